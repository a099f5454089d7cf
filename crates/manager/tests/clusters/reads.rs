//! How often MAAS's DNS is read, and what is cached.

use capmaas_manager::kubernetes::Key;
use capmaas_manager::machine;
use serde_json::json;

use crate::stage::Stage;

/// Reads of the record, according to the simulator's ledger.
fn reads(stage: &Stage) -> usize {
    let entries = stage.maas.control().ledger(None);
    entries.iter().filter(|entry| entry.method == "GET" && entry.path.contains("/dnsresources/")).count()
}

#[tokio::test]
async fn a_record_that_we_wrote_is_not_read_at_every_pass() {
    let stage = Stage::new();
    stage.plain_cluster();
    stage.rest().await;
    assert_eq!(reads(&stage), 2, "is the name free, and is it still");
    for name in ["cp1", "cp2", "cp3"] {
        stage.control_plane(name);
        stage.rest().await;
    }
    assert_eq!((reads(&stage), stage.writes().len()), (2 + 3, 4), "once before each change");
    for _ in 0..20 {
        stage.advance(5);
        stage.pass().await;
    }
    assert_eq!(reads(&stage), 5);
    stage.advance(600);
    stage.pass().await;
    assert_eq!(reads(&stage), 6, "the resync");
}

#[tokio::test]
async fn s01_after_a_restart_the_record_is_read_once() {
    let mut stage = Stage::new();
    stage.plain_cluster();
    stage.control_plane("cp1");
    stage.rest().await;
    stage.forget_requests();
    stage.restart();
    for _ in 0..5 {
        stage.pass().await;
    }
    assert_eq!(reads(&stage), 1);
}

#[tokio::test]
async fn s02_a_write_whose_answer_was_lost_is_looked_for_at_every_pass() {
    let stage = Stage::new();
    stage.plain_cluster();
    *stage.lose_answer.lock().unwrap() = true;
    stage.rest().await;
    stage.advance(10);
    stage.rest().await;
    assert_eq!((stage.records().len(), stage.object()["status"]["ready"].clone()), (1, json!(true)));
    let before = reads(&stage);
    stage.pass().await;
    assert_eq!(reads(&stage), before + 1, "it may still change");
    stage.advance(160);
    stage.pass().await;
    stage.pass().await;
    assert_eq!(reads(&stage), before + 2);
}

#[tokio::test]
async fn s18_a_machine_learns_from_its_cluster_that_its_address_has_left_dns() {
    let stage = Stage::new();
    stage.plain_cluster();
    stage.control_plane("cp1");
    stage.rest().await;
    let (machines, cp1) = (stage.for_machines(), Key::new("default", "cp1"));
    stage.port.delete("MaasMachine", &cp1);
    stage.forget_requests();
    for _ in 0..6 {
        machine::reconcile(&machines, &cp1).await.unwrap();
        stage.advance(5);
    }
    assert_eq!(reads(&stage), 0, "what the cluster wrote is known");
    let released = || stage.maas.control().ledger(Some("machine.release")).len();
    assert_eq!((released(), stage.records()[0].1.len()), (0, 1), "{:?}", stage.writes());
    stage.rest().await;
    assert!(stage.records()[0].1.is_empty());
    for _ in 0..12 {
        machine::reconcile(&machines, &cp1).await.unwrap();
        stage.advance(40);
    }
    assert_eq!(released(), 1);
    assert!(reads(&stage) <= 2, "{}", reads(&stage));
}

/// A Machine of the control plane that owns the MaasMachine.
pub(crate) fn owned(stage: &Stage, name: &str) {
    let machine = stage.create(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": { "name": name, "namespace": "default",
            "labels": { "cluster.x-k8s.io/cluster-name": "c1", "cluster.x-k8s.io/control-plane": "" } },
        "spec": { "clusterName": "c1", "bootstrap": { "dataSecretName": name } },
    }));
    let owner = json!([{
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name, "uid": machine["metadata"]["uid"],
    }]);
    stage
        .port
        .edit("MaasMachine", &Key::new("default", name), &json!({ "metadata": { "ownerReferences": owner } }))
        .unwrap();
}

#[tokio::test]
async fn a_control_plane_made_by_hand_is_known_by_the_label_of_its_machine() {
    let stage = Stage::new();
    stage.plain_cluster();
    stage.rest().await;
    let address = stage.control_plane("cp1");
    let cp1 = Key::new("default", "cp1");
    let labelled = |labels| json!({ "metadata": { "labels": labels } });
    stage.port.edit("MaasMachine", &cp1, &labelled(json!({ "cluster.x-k8s.io/control-plane": null }))).unwrap();
    owned(&stage, "cp1");
    stage.rest().await;
    assert!(stage.records()[0].1.is_empty());
    let machines = stage.for_machines();
    for _ in 0..5 {
        machine::reconcile(&machines, &cp1).await.unwrap();
        stage.rest().await;
    }
    assert_eq!(stage.records()[0].1, [address]);
    machine::reconcile(&machines, &cp1).await.unwrap();
    assert_eq!(stage.port.object("MaasMachine", &cp1).unwrap()["status"]["dnsAttached"], true);
}

#[tokio::test]
async fn an_address_of_commissioning_is_not_published_when_a_link_loses_its_own() {
    let stage = Stage::new();
    stage.plain_cluster();
    let (one, two) = (stage.control_plane("cp1"), stage.control_plane("cp2"));
    stage.rest().await;
    // As a real MAAS shows it: the link has no address, and ip_addresses lists what was once observed.
    let nic = stage.maas.control().with_model(|model| {
        let machine = model.db.machines.get(&model.machine_named("cp2").unwrap()).unwrap();
        machine.interfaces[0].name.clone()
    });
    let lost = json!([{"interface": {"machine": "cp2", "name": nic, "links": [{"mode": "auto", "subnet": "10.0.0.0/24"}],
        "discovered": ["10.0.0.201"]}}]);
    stage.arrange(lost);
    let client = stage.identities.of_manager().await.unwrap().client;
    let id = stage.maas.control().with_model(|model| model.machine_named("cp2").unwrap());
    assert_eq!(client.machines().read(&id).await.unwrap().ip_addresses, ["10.0.0.201"]);
    owned(&stage, "cp2");
    let machines = stage.for_machines();
    for _ in 0..4 {
        machine::reconcile(&machines, &Key::new("default", "cp2")).await.unwrap();
    }
    stage.advance(601);
    stage.rest().await;
    let published = stage.records()[0].1.clone();
    assert!(published.contains(&one) && !published.contains(&"10.0.0.201".to_owned()), "{published:?} {two}");
    let object = stage.port.object("MaasMachine", &Key::new("default", "cp2")).unwrap();
    assert!(!object["status"]["addresses"].to_string().contains("10.0.0.201"), "{:#}", object["status"]);
    let message = stage.condition("LoadBalancerReady")["message"].to_string();
    assert!(message.contains("cp2"), "{message}");
}

/// Gives the only link of a machine this address, or none.
fn link(stage: &Stage, machine: &str, address: Option<&str>) {
    let nic = stage.maas.control().with_model(|model| {
        let machine = model.db.machines.get(&model.machine_named(machine).unwrap()).unwrap();
        machine.interfaces[0].name.clone()
    });
    let links = json!([{ "mode": "auto", "subnet": "10.0.0.0/24", "ip_address": address }]);
    stage.arrange(json!([{ "interface": { "machine": machine, "name": nic, "links": links } }]));
}

async fn machine_passes(stage: &Stage, name: &str) {
    let machines = stage.for_machines();
    for _ in 0..4 {
        machine::reconcile(&machines, &Key::new("default", name)).await.unwrap();
    }
}

#[tokio::test]
async fn an_address_that_a_machine_lost_comes_back_into_dns_without_a_write() {
    let stage = Stage::new();
    stage.plain_cluster();
    let (one, two) = (stage.control_plane("cp1"), stage.control_plane("cp2"));
    stage.rest().await;
    owned(&stage, "cp2");
    machine_passes(&stage, "cp2").await;
    stage.forget_requests();
    link(&stage, "cp2", None);
    stage.advance(601);
    machine_passes(&stage, "cp2").await;
    stage.rest().await;
    let published = stage.records()[0].1.clone();
    assert!(
        published.len() == 2 && published.contains(&one) && published.contains(&"null".to_owned()),
        "{published:?}"
    );
    let message = stage.condition("LoadBalancerReady")["message"].to_string();
    assert!(message.contains("not published") && message.contains("cp2"), "{message}");
    link(&stage, "cp2", Some(&two));
    assert!(stage.records()[0].1.contains(&two), "MAAS itself completes the entry");
    machine_passes(&stage, "cp2").await;
    stage.rest().await;
    assert_eq!(stage.condition("LoadBalancerReady")["message"].as_str().unwrap_or_default(), "");
    let to_dns = |write: &String| write.contains("/dnsresources/");
    assert!(!stage.writes().iter().any(to_dns), "{:?}", stage.writes());
    // Before its release the entry goes, with or without an address (S18).
    link(&stage, "cp2", None);
    stage.port.delete("MaasMachine", &Key::new("default", "cp2"));
    stage.rest().await;
    assert_eq!(stage.records()[0].1, [one]);
}

#[tokio::test]
async fn a_machine_outside_of_the_preferred_subnets_is_named_and_the_record_keeps_what_it_had() {
    let stage = Stage::new();
    stage.plain_cluster();
    let (_, two) = (stage.control_plane("cp1"), stage.control_plane("cp2"));
    stage.rest().await;
    let before = stage.records();
    let one = stage.records()[0].1.iter().find(|address| **address != two).unwrap().clone();
    stage.forget_requests();
    stage.create(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "maas-preferred-subnet", "namespace": "default" },
        "data": { "preferredSubnets": format!("{one}/32") },
    }));
    stage.rest().await;
    let message = stage.condition("LoadBalancerReady")["message"].to_string();
    assert!(message.contains("no address is in a preferred subnet: cp2"), "{message}");
    assert_eq!((stage.records(), stage.writes()), (before, vec![]));
}
