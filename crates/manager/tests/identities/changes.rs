//! Credentials that change.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use capmaas_api::MaasMachine;
use capmaas_core::credentials::{IDENTITY_ANNOTATION, Standing};
use capmaas_manager::credential_rotation::Rotation;
use capmaas_manager::feed::Waker;
use capmaas_manager::kubernetes::Key;
use futures::{FutureExt as _, StreamExt as _};
use kube::runtime::reflector;
use kube::runtime::watcher::Event;
use serde_json::json;

use crate::stage::{ALICE, ALICE_NEW, BOB, Stage, cluster, plain};

#[tokio::test(start_paused = true)]
async fn s05_a_new_key_is_the_same_identity_and_another_user_is_not() {
    let stage = Stage::bare();
    stage.documented("http://one/MAAS", ALICE);
    let first = stage.found(&plain()).await;
    assert_eq!(first.standing, Standing::First);
    let mut recorded = plain();
    recorded.metadata.annotations = Some([(IDENTITY_ANNOTATION.to_owned(), first.name.to_string())].into());
    assert_eq!(stage.found(&recorded).await.standing, Standing::Same);

    stage.documented("http://one/MAAS", ALICE_NEW);
    let rotated = stage.found(&recorded).await;
    assert_eq!(rotated.standing, Standing::Same);
    assert!(rotated.fingerprint != first.fingerprint, "the new key is used");

    stage.documented("http://one/MAAS", BOB);
    assert!(!stage.found(&recorded).await.standing.may_believe_absence());
    stage.documented("http://two/MAAS", ALICE);
    assert!(!stage.found(&recorded).await.standing.may_believe_absence());
}

#[tokio::test(start_paused = true)]
async fn a_rotated_identity_ref_is_noticed_without_a_watch() {
    let stage = Stage::bare();
    let mine = cluster(json!({"name": "mine"}));
    let endpoint = ("maasEndpoint", "http://one/MAAS");
    stage.secret("team", "mine", &[endpoint, ("apiKey", ALICE)]);
    assert_eq!(stage.name(&mine).await, "http://one/MAAS#alice");
    let object = stage.port.object("Secret", &Key::new("team", "mine")).unwrap();
    assert!(object.is_object());
    let patch = json!({"data": {"apiKey": BASE64_STANDARD.encode(BOB)}});
    stage.port.edit("Secret", &Key::new("team", "mine"), &patch).unwrap();
    stage.driver.advance(31_000);
    assert_eq!(stage.name(&mine).await, "http://one/MAAS#bob");
}

#[tokio::test(start_paused = true)]
async fn s05_a_quiet_cluster_and_its_machines_are_woken_when_their_credentials_change_and_nobody_else() {
    let stage = Stage::bare();
    stage.documented("http://one/MAAS", ALICE);
    stage.secret("team", "mine", &[("maasEndpoint", "http://two/MAAS"), ("apiKey", BOB)]);
    let (clusters, mut cluster_writer) = reflector::store();
    let (machines, mut machine_writer) = reflector::store();
    let mut mine = cluster(json!({"name": "mine"}));
    mine.metadata.name = Some("own".into());
    mine.metadata.labels = Some([("cluster.x-k8s.io/cluster-name".to_owned(), "own".to_owned())].into());
    for cluster in [plain(), mine] {
        cluster_writer.apply_watcher_event(&Event::Apply(cluster));
    }
    for (name, of) in [("m1", "cluster-1"), ("m2", "own")] {
        let machine: MaasMachine = serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
            "metadata": {"name": name, "namespace": "team", "labels": {"cluster.x-k8s.io/cluster-name": of}},
            "spec": {"image": "jammy", "minCPU": 1, "minMemory": 1},
        }))
        .unwrap();
        machine_writer.apply_watcher_event(&Event::Apply(machine));
    }
    let (cluster_waker, machine_waker) = (Waker::default(), Waker::default());
    let (mut of_clusters, mut of_machines) = (cluster_waker.subscribe().boxed(), machine_waker.subscribe().boxed());
    let identities = stage.identities.clone();
    let task = tokio::spawn(Rotation { identities, clusters, machines, cluster_waker, machine_waker }.run());
    let mut after = async |seconds: u64| {
        for _ in 0..seconds {
            stage.driver.advance(1000);
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        let mut woken = Vec::new();
        while let Some(Some(cluster)) = of_clusters.next().now_or_never() {
            woken.push(cluster.name);
        }
        while let Some(Some(machine)) = of_machines.next().now_or_never() {
            woken.push(machine.name);
        }
        woken.sort();
        woken
    };
    assert_eq!(after(60).await, ["c1", "own"], "each once in the beginning");
    assert_eq!(after(600).await, Vec::<String>::new(), "nothing changed");
    stage.port.hide_secrets(true);
    assert_eq!(after(120).await, Vec::<String>::new(), "an API server that does not answer has changed nothing");
    stage.port.hide_secrets(false);
    assert_eq!(after(120).await, Vec::<String>::new(), "nor does its return");
    // Secrets of another namespace are not watched.
    let key = Key::new("team", "mine");
    stage.port.delete("Secret", &key);
    let values = json!({"maasEndpoint": "http://two/MAAS", "apiKey": ALICE});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine", "namespace": "team"}, "stringData": values});
    stage.port.create(secret).unwrap();
    assert_eq!(after(50).await, ["m2", "own"], "within a minute");
    // The manager's own are watched.
    stage.documented("http://one/MAAS", BOB);
    assert_eq!(after(1).await, ["c1", "m1"], "at once");
    task.abort();
}
