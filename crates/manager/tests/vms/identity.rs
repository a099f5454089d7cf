//! MAAS users and endpoints that change, and machines of other users (S5, S7).

use capmaas_manager::kubernetes::Key;
use serde_json::json;

use crate::stage::{BOB, ELSEWHERE, Stage};

fn with_metal(names: &[&str]) -> Stage {
    let stage = Stage::new();
    for name in names {
        stage.arrange(json!([{"machine": {"hostname": name, "zone": "az1", "cpu_count": 4, "memory": 8192}}]));
    }
    stage
}

fn key(name: &str) -> Key {
    Key::new("default", name)
}

/// State and owner of a machine of the first MAAS.
fn state(stage: &Stage, name: &str) -> (String, Option<i64>) {
    stage.maas.control().with_model(|model| {
        let machine = model.db.machines.values().find(|machine| machine.hostname == name).unwrap();
        (machine.status.name().to_owned(), machine.owner)
    })
}

/// Another MAAS with one free machine.
fn furnish_the_other(stage: &Stage) {
    let statements = json!([
        {"zone": {"name": "az1"}}, {"image": {"name": "ubuntu/jammy"}},
        {"fabric": {"name": "fabric-0", "id": 0}}, {"vlan": {"fabric": "fabric-0", "vid": 0, "dhcp_on": true}},
        {"subnet": {"cidr": "10.9.0.0/24", "gateway_ip": "10.9.0.1"}},
        {"machine": {"hostname": "theirs", "zone": "az1", "cpu_count": 4, "memory": 8192}},
    ]);
    stage.other.control().arrange(&serde_json::from_value::<Vec<_>>(statements).unwrap()).unwrap();
}

/// Requests that changed something in the other MAAS.
fn mutations_elsewhere(stage: &Stage) -> Vec<String> {
    let ledger = stage.other.control().ledger(None);
    ledger.iter().filter(|entry| !entry.effects.is_empty()).map(|entry| entry.kind.clone()).collect()
}

#[tokio::test]
async fn s05_a_lost_allocation_is_not_forgotten_when_the_user_changes() {
    let stage = with_metal(&["bm01", "bm02"]);
    stage.machine("m", json!({}));
    stage.cluster_passes(2).await;
    stage.fault(json!({ "match": { "kind": "machines.allocate" }, "when": "after", "do": "reset" }));
    let taken = |stage: &Stage| ["bm01", "bm02"].iter().filter(|name| state(stage, name).1.is_some()).count();
    stage.until(&["m"], "an allocation", |stage| taken(stage) == 1).await;
    assert!(stage.record("m")["machine"].is_null() && !stage.record("m")["inFlight"].is_null());
    stage.use_key(BOB);
    stage.advance(60);
    stage.cluster_passes(3).await;
    stage.some_passes(&key("m"), 30, 15).await;
    assert_eq!(taken(&stage), 1, "{:?} {}", stage.mutations(), stage.record("m"));
    assert_eq!(stage.reason("m", "MachineDeployed"), "IdentityChanged");
    // With the former user it is found again, and is released with its object.
    stage.use_key(crate::stage::ADMIN);
    stage.advance(60);
    stage.cluster_passes(1).await;
    stage.until_ready(&["m"]).await;
    stage.until_gone(&["m"]).await;
    assert_eq!(taken(&stage), 0);
}

#[tokio::test]
async fn s05_a_machine_that_is_being_deployed_is_not_forgotten_when_the_endpoint_changes() {
    let stage = with_metal(&["bm01"]);
    furnish_the_other(&stage);
    stage.machine("m", json!({}));
    stage.cluster_passes(2).await;
    stage.until(&["m"], "a deployment", |stage| state(stage, "bm01").0 == "Deploying").await;
    let before = stage.record("m")["machine"].clone();
    stage.use_endpoint(ELSEWHERE);
    stage.advance(60);
    stage.cluster_passes(3).await;
    stage.some_passes(&key("m"), 20, 15).await;
    assert_eq!((stage.record("m")["machine"].clone(), mutations_elsewhere(&stage)), (before, Vec::new()));
    stage.port.delete("MaasMachine", &key("m"));
    stage.some_passes(&key("m"), 10, 60).await;
    assert!(!stage.object("m").is_null(), "what another MAAS does not know is not gone");
    stage.use_endpoint("http://maas.test:5240/MAAS");
    stage.advance(60);
    stage.cluster_passes(1).await;
    stage.until(&["m"], "gone", |stage| stage.object("m").is_null()).await;
    assert_eq!(state(&stage, "bm01"), ("Ready".to_owned(), None));
}

#[tokio::test]
async fn s05_credentials_that_were_wrong_from_the_start_can_be_corrected() {
    let stage = with_metal(&["bm01"]);
    stage.use_endpoint(ELSEWHERE);
    stage.machine("m", json!({}));
    stage.cluster_passes(2).await;
    let waits = |stage: &Stage| stage.reason("m", "MachineDeployed") == "NoMachineAvailable";
    stage.until(&["m"], "waiting for a machine", waits).await;
    stage.use_endpoint("http://maas.test:5240/MAAS");
    stage.advance(60);
    stage.cluster_passes(2).await;
    stage.until_ready(&["m"]).await;
}

#[tokio::test]
async fn s07_a_machine_that_another_user_put_under_our_key_gets_no_bootstrap_data() {
    let stage = with_metal(&["bm01"]);
    stage.arrange(json!([{"machine": {"hostname": "bm01", "status": "Allocated", "owner": "bob"}}]));
    stage.machine("m", json!({}));
    stage.until(&["m"], "waiting", |stage| stage.reason("m", "MachineDeployed") == "NoMachineAvailable").await;
    // The idempotency key is on the object, for everybody who can read it. bob, who is not an administrator, allocates
    // a machine under it, and stamps it as well.
    let journal = stage.record("m")["key"].clone();
    let annotations = json!({ "capmaas-key": journal, "capmaas-machine": "default/m" });
    for annotations in [json!({}), annotations] {
        stage.arrange(json!([{"machine": {
            "hostname": "bm01", "status": "Allocated", "owner": "bob", "agent_name": journal, "annotations": annotations,
        }}]));
        stage.some_passes(&key("m"), 20, 10).await;
        assert!(!stage.mutations().iter().any(|kind| kind == "machine.deploy"), "{:?}", stage.mutations());
        let told = stage.port.events();
        assert!(told.iter().any(|told| told.reason == "NotOurMachine" && told.message.contains("to bob")), "{told:?}");
    }
    // Another machine is allocated as soon as there is one, and bob keeps his.
    stage.arrange(json!([{"machine": {"hostname": "bm02", "zone": "az1", "cpu_count": 4, "memory": 8192}}]));
    stage.until_ready(&["m"]).await;
    assert_eq!(state(&stage, "bm02").0, "Deployed");
    stage.until_gone(&["m"]).await;
    assert_eq!(state(&stage, "bm01").0, "Allocated");
}

#[tokio::test]
async fn s06_a_machine_of_the_same_id_in_another_maas_is_not_a_live_node_of_this_one() {
    let stage = with_metal(&["bm01"]);
    let id = stage.maas.control().with_model(|model| model.db.by_hostname["bm01"].clone());
    // A cluster in a staging MAAS that was cloned from this one has a machine with the same ID.
    stage.create(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
        "metadata": {
            "name": "staging", "namespace": "staging",
            "annotations": { "infrastructure.cluster.x-k8s.io/maas-identity": format!("{ELSEWHERE}#admin") },
        },
        "spec": { "image": "ubuntu/jammy", "minCPU": 2, "minMemory": 2048, "providerID": format!("maas://az1/{id}") },
    }));
    stage.machine("m", json!({}));
    stage.until_ready(&["m"]).await;
    assert_eq!(stage.record("m")["machine"], id);
}
