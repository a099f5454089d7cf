//! Registrations of LXD hosts that MAAS refuses, and those that must not be sent.

use capmaas_core::hosts::leaving::ASKED_ANNOTATION;
use capmaas_manager::kubernetes::Key;
use maas_client::{NewVmHost, VmHostAuth};
use serde_json::{Value, json};

use crate::hosts::{certificate, cluster_of_hosts, later, pair, report, rolled_out, vm_hosts};
use crate::stage::Stage;

fn creations(stage: &Stage) -> usize {
    stage.maas.control().ledger(Some("vm-hosts.create")).len()
}

fn noted(stage: &Stage) -> Value {
    stage.port.object("MaasMachine", &Key::new("default", "cp1")).unwrap()["metadata"]["annotations"][ASKED_ANNOTATION]
        .clone()
}

fn message(stage: &Stage) -> String {
    stage.condition("LXDReady")["message"].as_str().unwrap_or_default().to_owned()
}

/// The VM host of an earlier machine of the cluster stayed in MAAS, and a new machine got its address.
async fn with_the_vm_host_of_an_earlier_machine() -> (Stage, i64) {
    let (stage, address) = cluster_of_hosts(json!({})).await;
    rolled_out(&stage);
    let key = pair(&stage)["stringData"]["tls.key"].as_str().unwrap().to_owned();
    let auth = VmHostAuth::Certificate { certificate: certificate(&stage), key: key.into() };
    let new = NewVmHost::new("host-a", format!("https://{address}:8443"), "maas", auth);
    let client = stage.identities.of_manager().await.unwrap().client;
    let id = client.vm_hosts().create(&new).await.unwrap().id;
    stage.maas.control().with_model(|model| model.db.vm_hosts.get_mut(&id).unwrap().host = None);
    stage.forget_requests();
    report(&stage, "cp1", &address, &[]);
    (stage, id)
}

#[tokio::test]
async fn s26_a_refused_registration_quotes_maas_names_the_vm_host_and_is_backed_off() {
    let (stage, earlier) = with_the_vm_host_of_an_earlier_machine().await;
    later(&stage, 15).await;
    assert_eq!((stage.reason("LXDReady").as_str(), creations(&stage)), ("LXDSetupFailed", 1), "{}", message(&stage));
    for words in ["VM host cp1 at https://", "Pod host-a with type and parameters already exist", "remove it in MAAS"] {
        assert!(message(&stage).contains(words), "{words:?} is not in {}", message(&stage));
    }
    assert_eq!(noted(&stage), Value::Null, "a refused request is not in flight");
    for _ in 0..8 {
        later(&stage, 5).await;
        let said = message(&stage);
        assert!(said.contains("Pod host-a"), "{said}");
    }
    assert!((2..=3).contains(&creations(&stage)), "{}", creations(&stage));
    for _ in 0..60 {
        later(&stage, 10).await;
    }
    assert!(creations(&stage) <= 10, "{}", creations(&stage));
    assert_eq!(vm_hosts(&stage), [(earlier, "host-a".to_owned())], "the other one is left alone");

    // A person removes it.
    stage.identities.of_manager().await.unwrap().client.vm_hosts().delete(earlier).await.unwrap();
    for _ in 0..6 {
        later(&stage, 40).await;
    }
    assert_eq!(stage.condition("LXDReady")["status"], "True", "{}", message(&stage));
    assert_eq!(vm_hosts(&stage).len(), 1);
}
