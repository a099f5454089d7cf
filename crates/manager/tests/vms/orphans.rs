//! VMs that LXD has and MAAS does not know, on hosts whose agent reports its instances.

use capmaas_manager::kubernetes::{Key, Node};
use serde_json::json;

use crate::stage::Stage;

fn host_cluster() -> Key {
    Key::new("default", "hosts")
}

/// The three hosts are machines of a separate cluster.
fn of_a_cluster(stage: &Stage) {
    stage.port.workload_answers(&host_cluster(), true);
    for number in 1..=3 {
        let labels = json!({ "cluster.x-k8s.io/cluster-name": "hosts" });
        stage.host_object(&format!("host{number}"), json!({ "labels": labels }));
    }
}

/// Their agents report what is in LXD, and additional VMs of others on request.
fn agents_report(stage: &Stage, besides: &[&str]) {
    for number in 1..=3 {
        let name = format!("host{number}");
        let address = format!("10.0.0.{}:8443", 10 + number);
        let (id, mut instances) = stage.maas.control().with_model(|model| {
            let lxd = model.world.lxds.iter().find(|(key, _)| key.contains(&address)).unwrap().1;
            let names: Vec<String> = lxd.instances.keys().map(|(_, name)| name.clone()).collect();
            (model.db.by_hostname[&name].clone(), names)
        });
        instances.extend(besides.iter().map(|name| (*name).to_owned()));
        let annotations = [
            ("lxdhost.cluster.com/state".to_owned(), "Ready".to_owned()),
            ("lxdhost.cluster.com/instances".to_owned(), json!(instances).to_string()),
        ];
        let node = Node {
            name: name.clone(),
            provider_id: Some(format!("maas://az{number}/{id}")),
            annotations: annotations.into(),
            ..Node::default()
        };
        stage.port.put_node(&host_cluster(), node);
    }
}

/// MAAS dies after LXD has created the VM and before it is in the database.
async fn orphaned(stage: &Stage) -> String {
    of_a_cluster(stage);
    agents_report(stage, &[]);
    stage.vm("cp-0");
    stage.fault(json!({ "match": { "kind": "vm-host.compose" }, "when": "before", "do": "kill", "down_seconds": 20 }));
    stage.until(&["cp-0"], "an orphan", |stage| !stage.in_lxd().is_empty()).await;
    assert!(stage.in_maas().is_empty());
    stage.in_lxd()[0].clone()
}

fn refreshes(stage: &Stage) -> usize {
    let ledger = stage.maas.control().ledger(None);
    ledger.iter().filter(|entry| entry.kind.contains("refresh")).count()
}

#[tokio::test]
async fn s12_an_orphan_is_brought_back_by_a_refresh_once_the_agent_tells_that_it_is_the_only_unknown_vm() {
    let stage = Stage::new();
    let name = orphaned(&stage).await;
    let known = |stage: &Stage| stage.record("cp-0")["vm"]["exists"] == true;
    stage.until(&["cp-0"], "LXD's word", known).await;
    for _ in 0..3 {
        stage.pass("cp-0").await;
        stage.advance(30);
    }
    assert_eq!(refreshes(&stage), 0, "the agent has not seen it yet");
    agents_report(&stage, &[]);
    stage.until_ready(&["cp-0"]).await;
    assert!(refreshes(&stage) >= 1, "{name}: {:?} {:?} {:#?}", stage.in_maas(), stage.in_lxd(), stage.mutations());
    assert_eq!((stage.in_maas(), stage.in_lxd()), (vec![name.clone()], vec![name]), "it is the same VM");
}

#[tokio::test]
async fn s12_an_orphan_beside_a_vm_of_somebody_else_is_left() {
    let stage = Stage::new();
    let name = orphaned(&stage).await;
    agents_report(&stage, &["by-hand"]);
    stage.until_ready(&["cp-0"]).await;
    assert_eq!(refreshes(&stage), 0);
    assert_ne!(stage.in_maas(), vec![name], "another VM was made elsewhere");
}

#[tokio::test]
async fn s12_a_report_from_the_node_of_somebody_who_only_claims_the_host_is_not_believed() {
    let stage = Stage::new();
    let name = orphaned(&stage).await;
    for number in 1..=3 {
        let annotations = json!({ "capmaas-machine": "tenant/host" });
        stage.arrange(json!([{ "machine": { "hostname": format!("host{number}"), "annotations": annotations } }]));
    }
    agents_report(&stage, &[]);
    stage.until_ready(&["cp-0"]).await;
    assert_eq!(refreshes(&stage), 0);
    assert_ne!(stage.in_maas(), vec![name], "another VM was made elsewhere");
}
