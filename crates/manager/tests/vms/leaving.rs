//! Deletion of a VM.

use serde_json::json;

use crate::lxd_host::address;
use crate::stage::{ADMIN, BOB, Stage};

#[tokio::test]
async fn s14_a_vm_is_released_removed_and_seen_gone_before_its_object_goes() {
    let stage = Stage::new();
    stage.vm("cp-0");
    stage.until_ready(&["cp-0"]).await;
    stage.maas.control().clear_ledger();
    stage.until_gone(&["cp-0"]).await;
    assert_eq!((stage.in_maas(), stage.in_lxd()), (Vec::<String>::new(), Vec::<String>::new()));
    assert_eq!(stage.mutations(), ["machine.release", "machine.delete"]);
}

#[tokio::test]
async fn go03_a_vm_is_removed_however_far_it_had_come() {
    for passes in 1..14 {
        let stage = Stage::new();
        stage.vm("cp-0");
        for _ in 0..passes {
            stage.pass("cp-0").await;
            stage.advance(1);
        }
        stage.until_gone(&["cp-0"]).await;
        let left = (stage.in_maas(), stage.in_lxd());
        assert_eq!(left, (Vec::<String>::new(), Vec::<String>::new()), "deleted after {passes} passes");
    }
}

#[tokio::test(start_paused = true)]
async fn s02_deleted_while_a_vm_is_being_made_it_is_waited_for_and_removed() {
    let stage = Stage::new();
    stage.vm("cp-0");
    stage.fault(json!({ "match": { "kind": "vm-host.compose" }, "do": "late", "seconds": 60 }));
    stage.until(&["cp-0"], "composing", |stage| stage.record("cp-0")["inFlight"]["write"] == "compose").await;
    stage.until_gone(&["cp-0"]).await;
    assert_eq!((stage.in_maas(), stage.in_lxd()), (Vec::<String>::new(), Vec::<String>::new()));
}

#[tokio::test]
async fn s16_a_vm_whose_host_does_not_answer_is_not_removed_because_it_would_stay_there() {
    let stage = Stage::new();
    stage.vm("cp-0");
    stage.until_ready(&["cp-0"]).await;
    let host = stage.object("cp-0")["status"]["lxdHost"].as_str().unwrap().to_owned();
    let address = address(host.trim_start_matches("host").parse().unwrap());
    stage.arrange(json!([{"lxd": {"address": address, "reachable": false}}]));
    stage.port.delete("MaasMachine", &capmaas_manager::kubernetes::Key::new("default", "cp-0"));
    for _ in 0..20 {
        stage.pass("cp-0").await;
        stage.advance(30);
    }
    assert_eq!((stage.in_maas().len(), stage.in_lxd().len()), (1, 1));
    assert!(!stage.object("cp-0").is_null(), "the finalizer stays while nobody can tell");
    stage.arrange(json!([{"lxd": {"address": address, "reachable": true}}]));
    stage.until_gone(&["cp-0"]).await;
    assert_eq!((stage.in_maas(), stage.in_lxd()), (Vec::<String>::new(), Vec::<String>::new()));
}

#[tokio::test]
async fn s16_the_vm_of_a_dead_host_is_owed_and_removed_when_the_host_comes_back() {
    let stage = Stage::new();
    stage.vm("cp-0");
    stage.until_ready(&["cp-0"]).await;
    let host = stage.object("cp-0")["status"]["lxdHost"].as_str().unwrap().to_owned();
    stage.power_of_host(&host, "off");
    stage.until_gone(&["cp-0"]).await;
    assert_eq!((stage.in_maas().len(), stage.in_lxd().len()), (1, 1), "nothing can be removed yet");
    assert!(stage.debts().contains("cp-0"), "{}", stage.debts());
    stage.cluster_passes(4).await;
    assert_eq!(stage.in_lxd().len(), 1);
    stage.power_of_host(&host, "on");
    stage.cluster_passes(10).await;
    assert_eq!((stage.in_maas(), stage.in_lxd()), (Vec::<String>::new(), Vec::<String>::new()));
    assert_eq!(stage.debts(), "");
}

#[tokio::test]
async fn s05_what_is_owed_is_neither_paid_nor_forgotten_through_another_identity() {
    let stage = Stage::new();
    stage.vm("cp-0");
    stage.until_ready(&["cp-0"]).await;
    let host = stage.object("cp-0")["status"]["lxdHost"].as_str().unwrap().to_owned();
    stage.power_of_host(&host, "off");
    stage.until_gone(&["cp-0"]).await;
    stage.use_key(BOB);
    stage.power_of_host(&host, "on");
    stage.cluster_passes(10).await;
    assert_eq!(
        (stage.in_maas().len(), stage.in_lxd().len()),
        (1, 1),
        "bob does not see it, which does not mean that it is gone"
    );
    assert!(stage.debts().contains("cp-0"), "{}", stage.debts());
    stage.use_key(ADMIN);
    stage.cluster_passes(10).await;
    assert_eq!((stage.in_maas(), stage.in_lxd()), (Vec::<String>::new(), Vec::<String>::new()));
}
