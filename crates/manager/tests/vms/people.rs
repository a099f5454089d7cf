//! What people write into specs and annotations removes nothing that is not provably ours (S27).

use capmaas_manager::kubernetes::Key;
use serde_json::{Value, json};

use crate::stage::Stage;

fn key(name: &str) -> Key {
    Key::new("default", name)
}

fn with_metal(name: &str) -> Stage {
    let stage = Stage::new();
    stage.arrange(json!([{"machine": {"hostname": name, "zone": "az1", "cpu_count": 4, "memory": 8192}}]));
    stage
}

fn system_id(stage: &Stage, name: &str) -> String {
    stage.maas.control().with_model(|model| model.db.by_hostname[name].clone())
}

fn is_known(stage: &Stage, name: &str) -> bool {
    stage.maas.control().with_model(|model| model.db.machines.values().any(|machine| machine.hostname == name))
}

async fn passes(stage: &Stage, name: &str, times: usize, seconds: u64) {
    for _ in 0..times {
        if stage.object(name).is_null() {
            return;
        }
        stage.pass(name).await;
        stage.advance(seconds);
    }
}

/// Somebody writes this debt onto the MaasCluster.
fn owe(stage: &Stage, debt: &Value) {
    let text = json!([debt]).to_string();
    let note = json!({ "metadata": { "annotations": { "infrastructure.cluster.x-k8s.io/vm-debts": text } } });
    stage.port.edit("MaasCluster", &key("c1"), &note).unwrap();
}

/// Somebody composes a VM by hand and has not allocated it yet.
async fn by_hand(stage: &Stage, name: &str) {
    let object = stage.port.object("MaasCluster", &key("c1")).unwrap();
    let object: capmaas_api::MaasCluster = serde_json::from_value(object).unwrap();
    let identity = stage.context.identities.check(&object).await.unwrap();
    let host = identity.client.vm_hosts().list().await.unwrap()[0].id;
    let compose = maas_client::Compose {
        hostname: Some(name.into()),
        cores: Some(1),
        memory_mib: Some(2048),
        skip_commissioning: true,
        ..maas_client::Compose::default()
    };
    identity.client.vm_hosts().compose(host, &compose).await.unwrap();
}

#[tokio::test]
async fn s27_metal_is_not_deleted_from_maas_by_a_change_of_mode() {
    let stage = with_metal("bm01");
    stage.arrange(json!([{"machine": {"hostname": "bm01", "next": {"deploy": "fail"}}}]));
    stage.machine("m", json!({}));
    stage.until(&["m"], "given back", |stage| stage.record("m")["released"].is_string()).await;
    stage.port.edit("MaasMachine", &key("m"), &json!({ "spec": { "provisioningMode": "lxd" } })).unwrap();
    passes(&stage, "m", 60, 5).await;
    assert!(is_known(&stage, "bm01"), "the server was deleted from MAAS: {:?}", stage.mutations());
    let said = stage.condition("m", "MachineDeployed")["message"].to_string();
    assert!(said.contains("this machine was created as bare metal and remains so"), "{said}");
    stage.until_gone(&["m"]).await;
    assert!(is_known(&stage, "bm01"), "{:?}", stage.mutations());
}

#[tokio::test]
async fn s27_a_debt_for_metal_is_struck_off_and_the_server_stays() {
    let stage = with_metal("bm01");
    stage.cluster_passes(2).await;
    owe(&stage, &json!({ "machine": system_id(&stage, "bm01"), "name": "bm01", "host": "h", "key": "k" }));
    stage.cluster_passes(4).await;
    assert!(is_known(&stage, "bm01"), "the server was deleted from MAAS: {:?}", stage.mutations());
    assert_eq!(stage.debts(), "");
}

#[tokio::test]
async fn s27_a_debt_removes_neither_an_unmarked_vm_nor_the_live_vm_of_an_object() {
    let stage = Stage::new();
    by_hand(&stage, "database").await;
    stage.vm("m");
    stage.until_ready(&["m"]).await;
    let live = stage.object("m")["status"]["hostname"].as_str().unwrap().to_owned();
    let mark = stage.record("m")["key"].clone();
    for (name, mark) in [("database", json!("k")), (live.as_str(), mark)] {
        owe(&stage, &json!({ "machine": system_id(&stage, name), "name": name, "host": "h", "key": mark }));
        stage.cluster_passes(4).await;
        assert!(is_known(&stage, name), "{name}: {:?}", stage.mutations());
    }
    assert_eq!(stage.in_lxd().len(), 2);
}

#[tokio::test]
async fn s27_a_vm_that_somebody_made_by_hand_is_not_removed_for_an_annotation() {
    let stage = Stage::new();
    by_hand(&stage, "database").await;
    let object = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
        "metadata": {
            "name": "evil", "namespace": "default", "finalizers": ["maasmachine.infrastructure.cluster.x-k8s.io"],
            "labels": { "cluster.x-k8s.io/cluster-name": "c1" },
            "annotations": { (capmaas_api::names::VM_NAME_ANNOTATION): "database" },
        },
        "spec": { "image": "ubuntu/jammy", "minCPU": 1, "minMemory": 2048, "provisioningMode": "lxd" },
    });
    stage.port.create(object).unwrap();
    stage.until_gone(&["evil"]).await;
    assert_eq!(stage.in_lxd(), ["database"], "{:?}", stage.mutations());
}

#[tokio::test]
async fn s27_what_is_no_vm_is_not_deleted_even_if_a_decision_says_so() {
    // The journal of a VM, with its ID replaced by that of a server that nobody has allocated.
    let stage = with_metal("bm01");
    stage.vm("m");
    stage.until(&["m"], "a VM", |stage| stage.record("m")["machine"].is_string()).await;
    let mut journal = stage.record("m");
    journal["machine"] = json!(system_id(&stage, "bm01"));
    journal["released"] = journal["machine"].clone();
    let note = json!({ "metadata": { "annotations": { "infrastructure.cluster.x-k8s.io/maas-record": journal.to_string() } } });
    stage.port.edit("MaasMachine", &key("m"), &note).unwrap();
    passes(&stage, "m", 10, 30).await;
    stage.port.delete("MaasMachine", &key("m"));
    passes(&stage, "m", 20, 30).await;
    assert!(is_known(&stage, "bm01"), "{:?}", stage.mutations());
}
