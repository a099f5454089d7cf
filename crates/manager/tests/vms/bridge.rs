//! Bare metal that becomes an LXD host: its bridge, in a MAAS that enforces the rules about bridges.

use capmaas_manager::kubernetes::Key;
use serde_json::json;

use crate::stage::Stage;

/// A machine that boots from eth1, and a cluster that turns its machines into LXD hosts, or does not.
fn stage(hosts: bool) -> Stage {
    let stage = Stage::new();
    stage.arrange(json!([{"machine": {
        "hostname": "bm01", "zone": "az1", "cpu_count": 4, "memory": 8192,
        "interfaces": [{"name": "eth1"}, {"name": "eth0", "links": []}],
    }}]));
    let spec = json!({ "spec": { "lxdControlPlaneCluster": hosts, "lxdConfig": { "networkBridge": "br7" } } });
    stage.port.edit("MaasCluster", &Key::new("default", "c1"), &spec).unwrap();
    stage.machine("metal", json!({}));
    stage
}

/// The interfaces of the machine, each with its parents and its number of addresses.
fn network(stage: &Stage) -> Vec<(String, Vec<String>, usize)> {
    stage.maas.control().with_model(|model| {
        let machine = model.db.machines.values().find(|machine| machine.hostname == "bm01").unwrap();
        let name = |id: &i64| machine.interfaces.iter().find(|nic| nic.id == *id).unwrap().name.clone();
        let shown = |nic: &maas_sim::model::db::Interface| {
            (nic.name.clone(), nic.parents.iter().map(name).collect(), nic.addresses.len())
        };
        machine.interfaces.iter().map(shown).collect()
    })
}

/// The position of the first effective request of a kind among all changes.
fn place(stage: &Stage, kind: &str) -> Option<usize> {
    stage.mutations().iter().position(|done| done.ends_with(kind))
}

fn bridges_made(stage: &Stage) -> usize {
    stage.mutations().iter().filter(|done| done.ends_with("create_bridge")).count()
}

#[tokio::test]
async fn the_bridge_is_made_on_the_boot_card_after_allocation_and_before_deployment_and_goes_on_release() {
    let stage = stage(true);
    let before = network(&stage);
    stage.until_ready(&["metal"]).await;
    let at = |kind: &str| place(&stage, kind).unwrap_or_else(|| panic!("no {kind}: {:?}", stage.mutations()));
    assert!(at("allocate") < at("create_bridge"), "on a Ready machine it would stay: {:?}", stage.mutations());
    assert!(at("create_bridge") < at("deploy"), "the deployment sets it up: {:?}", stage.mutations());
    let during = network(&stage);
    let bridge = during.iter().find(|(name, ..)| name == "br7").unwrap();
    assert_eq!(bridge.1, ["eth1"], "the card that the machine boots from");
    assert!(bridge.2 > 0, "it has the address: {during:?}");
    stage.until_gone(&["metal"]).await;
    assert_eq!(network(&stage).len(), before.len(), "it is gone with the allocation");
}

#[tokio::test]
async fn a_bridge_whose_making_was_not_answered_is_not_made_twice() {
    let mut stage = stage(true);
    let lost = json!({ "match": { "kind": "create_bridge" }, "when": "after", "do": "reset" });
    stage.fault(lost);
    stage.until(&["metal"], "a bridge", |stage| bridges_made(stage) > 0).await;
    stage.restart();
    stage.until_ready(&["metal"]).await;
    assert_eq!(bridges_made(&stage), 1, "{:?}", stage.mutations());
}

#[tokio::test]
async fn machines_of_other_clusters_keep_their_network() {
    let stage = stage(false);
    stage.until_ready(&["metal"]).await;
    assert_eq!(bridges_made(&stage), 0);
}
