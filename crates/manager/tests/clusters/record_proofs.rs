//! Tenants who share a MAAS user: whose a record in MAAS's DNS is, is decided by MAAS's stamps, not by what tenants write.

use std::net::IpAddr;

use capmaas_api::names::{CONTROL_PLANE_LABEL, DNS_RECORD_ANNOTATION};
use capmaas_core::plan::Requeue;
use capmaas_manager::cluster::reconcile;
use capmaas_manager::kubernetes::Key;
use capmaas_manager::machine;
use serde_json::{Value, json};

use crate::reads::owned;
use crate::stage::{Stage, key};

/// A name that the UID of no object here yields.
const NAME: &str = "c1-0abc12.k8s.example";
const ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/";

/// A tenant's cluster with the victim's name, in another namespace.
fn theirs() -> Key {
    Key::new("tenant", "c1")
}

/// Everything that the tenant may write: a MaasCluster that claims the record, with a Cluster that names it, and a journal that
/// names the object itself.
fn tenant(stage: &Stage, host: &str, forged: &Value) {
    let cluster = stage.create(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": { "name": "c1", "namespace": "tenant" },
        "spec": { "infrastructureRef":
            { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MaasCluster", "name": "c1" } },
    }));
    let owner = json!([{
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": cluster["metadata"]["uid"],
    }]);
    let object = stage.create(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster",
        "metadata": {
            "name": "c1", "namespace": "tenant", "labels": { "cluster.x-k8s.io/cluster-name": "c1" }, "ownerReferences": owner,
            "finalizers": ["maascluster.infrastructure.cluster.x-k8s.io"],
        },
        "spec": { "dnsDomain": "k8s.example", "controlPlaneEndpoint": { "host": host, "port": 6443 } },
    }));
    let itself = json!({ "namespace": "tenant", "name": "c1", "uid": object["metadata"]["uid"] });
    let mut annotations =
        json!({ format!("{ANNOTATION}dns-name"): host, format!("{ANNOTATION}written-for"): itself.to_string() });
    annotations.as_object_mut().unwrap().extend(forged.as_object().unwrap().clone());
    stage.port.edit("MaasCluster", &theirs(), &json!({ "metadata": { "annotations": annotations } })).unwrap();
}

/// A MaasMachine of the tenant that says to be up and names this machine in MAAS.
fn claim(stage: &Stage, name: &str, machine: &str, addresses: &[&str]) {
    stage.create(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
        "metadata": {
            "name": name, "namespace": "tenant", "finalizers": ["maasmachine.infrastructure.cluster.x-k8s.io"],
            "labels": { "cluster.x-k8s.io/cluster-name": "c1", CONTROL_PLANE_LABEL: "" },
        },
        "spec": { "providerID": format!("maas://az1/{machine}"), "image": "ubuntu/jammy" },
    }));
    let addresses: Vec<Value> = addresses.iter().map(|it| json!({ "type": "InternalIP", "address": it })).collect();
    let status = json!({ "ready": true, "machineState": "Deployed", "machinePowered": true, "addresses": addresses });
    stage.port.set_status("MaasMachine", &Key::new("tenant", name), status).unwrap();
}

/// A machine that MAAS shows to be the tenant's: the one that the record would be redirected to.
fn own(stage: &Stage, addresses: &[&str]) {
    let machine = json!({"hostname": "own", "status": "Deployed", "owner": "admin", "power": "on",
        "annotations": { "capmaas-key": "capmaas-own", "capmaas-machine": "tenant/own" }});
    stage.arrange(json!([{ "machine": machine }]));
    let (id, address) = machine_in_maas(stage, "own");
    claim(stage, "own", &id, &[&[address.as_str()], addresses].concat());
    let journal = json!({ "key": "capmaas-own", "machine": id }).to_string();
    let patch = json!({ "metadata": { "annotations": { format!("{ANNOTATION}maas-record"): journal } } });
    stage.port.edit("MaasMachine", &Key::new("tenant", "own"), &patch).unwrap();
}

fn machine_in_maas(stage: &Stage, hostname: &str) -> (String, String) {
    stage.maas.control().with_model(|model| {
        let id = model.machine_named(hostname).unwrap();
        let machine = model.db.machines.get(&id).unwrap();
        (id, maas_sim::http::render::machine::addresses(model, machine)[0].clone())
    })
}

fn number(stage: &Stage) -> String {
    stage.maas.control().with_model(|model| model.db.dns.values().next().unwrap().id).to_string()
}

async fn passes(stage: &Stage) {
    for _ in 0..6 {
        reconcile(&stage.context, &theirs()).await.unwrap();
        stage.advance(15);
    }
}

fn tenants_condition(stage: &Stage, type_: &str) -> Value {
    let object = stage.port.object("MaasCluster", &theirs()).unwrap_or_default();
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default()
}

/// The tenant deletes machine after machine, then the cluster.
async fn leave(stage: &Stage, machines: &[&str]) {
    for name in machines {
        let machine = Key::new("tenant", *name);
        stage.port.delete("MaasMachine", &machine);
        passes(stage).await;
    }
    stage.port.delete("MaasCluster", &theirs());
    passes(stage).await;
    for name in machines {
        let none = json!({ "metadata": { "finalizers": [] } });
        stage.port.edit("MaasMachine", &Key::new("tenant", *name), &none).unwrap();
    }
    passes(stage).await;
    assert!(stage.port.object("MaasCluster", &theirs()).is_none(), "it may go at any time");
}

#[tokio::test]
async fn s18_a_provider_id_that_names_the_victims_machine_gets_nobody_its_record() {
    for (source, numbered) in [("adopted", false), ("adopted", true), ("dns", true)] {
        let stage = Stage::new();
        let address = stage.control_plane("victim");
        stage.arrange(json!([{"dns": {"fqdn": NAME, "ip_addresses": [address]}}]));
        let before = stage.records();
        let number = numbered.then(|| number(&stage));
        tenant(&stage, NAME, &json!({ format!("{ANNOTATION}endpoint-source"): source, DNS_RECORD_ANNOTATION: number }));
        let (victim, _) = machine_in_maas(&stage, "victim");
        claim(&stage, "victims", &victim, &[&address]);
        own(&stage, &[]);
        passes(&stage).await;
        assert_eq!(tenants_condition(&stage, "LoadBalancerReady")["reason"], "DNSNameTaken", "{source} {numbered}");
        let object = stage.port.object("MaasCluster", &theirs()).unwrap();
        assert!(numbered || object["status"]["ready"] != true, "nobody joins the victim's API server");
        leave(&stage, &["victims", "own"]).await;
        assert_eq!((stage.records(), stage.writes()), (before, vec![]), "{source} {numbered}");
    }
}

#[tokio::test]
async fn s18_an_address_in_a_status_or_among_those_owed_gets_nobody_a_record() {
    for in_status in [true, false] {
        let stage = Stage::new();
        let owed = (!in_status).then_some("10.0.0.77");
        stage.advance(60);
        stage.arrange(json!([{"dns": {"fqdn": NAME, "ip_addresses": ["10.0.0.77"]}}]));
        let before = stage.records();
        let forged = json!({
            format!("{ANNOTATION}endpoint-source"): "dns", DNS_RECORD_ANNOTATION: number(&stage),
            format!("{ANNOTATION}dns-owed-addresses"): owed,
        });
        tenant(&stage, NAME, &forged);
        own(&stage, if in_status { &["10.0.0.77"] } else { &[] });
        passes(&stage).await;
        assert_eq!(tenants_condition(&stage, "LoadBalancerReady")["reason"], "DNSNameTaken", "in status: {in_status}");
        leave(&stage, &["own"]).await;
        assert_eq!((stage.records(), stage.writes()), (before, vec![]), "in status: {in_status}");
    }
}

#[tokio::test]
async fn s18_a_forged_debt_frees_no_address_that_another_record_has() {
    let stage = Stage::new();
    tenant(&stage, "c1-ffffff.k8s.example", &json!({ format!("{ANNOTATION}endpoint-source"): "dns" }));
    stage.advance(60);
    // What a record of the victim leaves behind: reserved for the user that both share, for no machine, and not before.
    stage.arrange(json!([{"dns": {"fqdn": NAME}}]));
    let admin = stage.identities.of_manager().await.unwrap().client;
    let number: i64 = number(&stage).parse().unwrap();
    admin.dns_resources().set_addresses(number, &["10.0.0.77".parse().unwrap()]).await.unwrap();
    let before = stage.records();
    stage.forget_requests();
    for forged in [None, Some(number.to_string())] {
        let owed = format!("{ANNOTATION}dns-owed-addresses");
        let forged = json!({ "metadata": { "annotations": { owed: "10.0.0.77", DNS_RECORD_ANNOTATION: forged } } });
        stage.port.edit("MaasCluster", &theirs(), &forged).unwrap();
        passes(&stage).await;
    }
    assert!(stage.records().contains(&before[0]), "{:?}", stage.writes());
    leave(&stage, &[]).await;
    assert!(stage.records().contains(&before[0]), "{:?}", stage.writes());
}

#[tokio::test]
async fn s24_a_machine_of_an_earlier_user_is_named_with_its_owner() {
    let stage = Stage::new();
    stage.arrange(json!([{ "machine": { "hostname": "cp1", "status": "Deployed", "owner": "alice", "power": "on" } }]));
    let (id, address) = machine_in_maas(&stage, "cp1");
    stage.maas_machine("cp1", &id, &[&address]);
    stage.arrange(json!([{"dns": {"fqdn": NAME, "ttl": 10, "ip_addresses": [address]}}]));
    let endpoint = json!({ "controlPlaneEndpoint": { "host": NAME, "port": 6443 } });
    let finalizer = json!({ "finalizers": ["maascluster.infrastructure.cluster.x-k8s.io"] });
    stage.cluster(endpoint.clone(), endpoint, finalizer);
    stage.rest().await;
    let said = stage.condition("LoadBalancerReady");
    assert_eq!((&said["status"], &said["reason"]), (&json!("Unknown"), &json!("NotOurMachine")));
    let message = said["message"].as_str().unwrap();
    let named = [id.as_str(), "MaasMachine cp1", "the user alice"];
    assert!(named.iter().all(|word| message.contains(word)) && !message.contains("delete"), "{message}");
    assert_eq!(stage.writes(), Vec::<String>::new());
}

/// Whether MAAS still has this address reserved.
fn is_reserved(stage: &Stage, address: &str) -> bool {
    let address: IpAddr = address.parse().unwrap();
    stage.maas.control().with_model(|model| model.db.addresses.values().any(|row| row.ip == Some(address)))
}

/// A person reserves this address with the MAAS user that all share.
async fn reserve(stage: &Stage, address: &str) {
    let admin = stage.identities.of_manager().await.unwrap().client;
    admin.ip_addresses().reserve(address.parse().unwrap()).await.unwrap();
    stage.advance(60);
}

#[tokio::test]
async fn s18_an_owed_address_is_released_only_if_it_was_reserved_since_the_object_exists() {
    for version in ["3.4", "3.7"] {
        let stage = Stage::of_version(version);
        reserve(&stage, "10.0.0.77").await;
        let owed = json!({ format!("{ANNOTATION}dns-owed-addresses"): "10.0.0.77,10.0.0.78" });
        tenant(&stage, "c1-ffffff.k8s.example", &owed);
        stage.advance(60);
        reserve(&stage, "10.0.0.78").await;
        passes(&stage).await;
        assert!(is_reserved(&stage, "10.0.0.77"), "{version}: {:?}", stage.writes());
        assert!(!is_reserved(&stage, "10.0.0.78"), "{version}: {:?}", stage.writes());
        let events = stage.port.events();
        let left = |reason: &str| events.iter().filter(|event| event.reason == reason).count();
        assert_eq!((left("AddressLeft"), left("AddressGivenBack")), (1, 1), "{version}");
    }
}

#[tokio::test]
async fn s18_who_shares_the_maas_user_frees_an_address_that_it_reserved_later_and_no_other() {
    let stage = Stage::new();
    reserve(&stage, "10.0.0.77").await;
    tenant(&stage, "c1-ffffff.k8s.example", &json!({ format!("{ANNOTATION}endpoint-source"): "dns" }));
    stage.advance(60);
    reserve(&stage, "10.0.0.78").await;
    stage.arrange(json!([{ "ip_address": { "ip": "10.0.0.79", "user": "alice" } }]));
    let owed = format!("{ANNOTATION}dns-owed-addresses");
    let forged = json!({ "metadata": { "annotations": { owed: "10.0.0.77,10.0.0.78,10.0.0.79" } } });
    stage.port.edit("MaasCluster", &theirs(), &forged).unwrap();
    passes(&stage).await;
    let kept = ["10.0.0.77", "10.0.0.78", "10.0.0.79"].map(|address| is_reserved(&stage, address));
    assert_eq!(kept, [true, false, true], "{:?}", stage.writes());
}

/// Somebody, through the user that all share, gives this record these addresses.
async fn lead(stage: &Stage, addresses: &[&str]) {
    let admin = stage.identities.of_manager().await.unwrap().client;
    let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    admin.dns_resources().set_addresses(number(stage).parse().unwrap(), &addresses).await.unwrap();
    // What is remembered of the record is forgotten.
    stage.advance(700);
    stage.forget_requests();
}

#[tokio::test]
async fn s18_a_uid_whose_digits_were_tried_out_gets_nobody_the_record_of_stamped_machines() {
    let stage = Stage::new();
    stage.plain_cluster();
    let ours = stage.control_plane("cp1");
    stage.rest().await;
    // As if the name had been another tenant's before.
    own(&stage, &[]);
    let (_, theirs) = machine_in_maas(&stage, "own");
    lead(&stage, &[&theirs]).await;
    for _ in 0..5 {
        stage.rest().await;
        stage.advance(15);
        assert_eq!((stage.reason("LoadBalancerReady"), stage.writes()), ("DNSNameTaken".to_owned(), vec![]));
    }
    // A machine that nobody stamped shows nothing: ours was released by hand, and somebody else has it now.
    stage
        .arrange(json!([{ "machine": { "hostname": "bare", "status": "Deployed", "owner": "alice", "power": "on" } }]));
    let (_, bare) = machine_in_maas(&stage, "bare");
    lead(&stage, &[&bare]).await;
    stage.rest().await;
    assert_eq!(stage.records()[0].1, [ours]);
}

#[tokio::test]
async fn s18_a_forged_debt_gets_nobody_a_record_that_another_cluster_claims() {
    let stage = Stage::new();
    stage.plain_cluster();
    stage.rest().await;
    let (name, _) = stage.records()[0].clone();
    let forged = json!({
        format!("{ANNOTATION}endpoint-source"): "dns", DNS_RECORD_ANNOTATION: number(&stage),
        format!("{ANNOTATION}dns-owed-addresses"): "10.0.0.77",
    });
    tenant(&stage, &name, &forged);
    own(&stage, &[]);
    lead(&stage, &["10.0.0.77"]).await;
    passes(&stage).await;
    leave(&stage, &["own"]).await;
    assert_eq!(stage.writes(), Vec::<String>::new());
}

#[tokio::test]
async fn s25_a_victim_that_was_moved_goes_on_under_a_forged_claim_that_equals_its_own() {
    let before = Stage::new();
    before.plain_cluster();
    let one = before.control_plane("cp1");
    before.rest().await;
    let (object, name) = (before.object(), before.records()[0].0.clone());
    // The same cluster in another management cluster: different UIDs, no status, the same MAAS.
    let stage = Stage::beside(&before);
    stage.create(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x", "namespace": "default" }, "data": {} }));
    let forged = json!({ format!("{ANNOTATION}endpoint-source"): "dns", DNS_RECORD_ANNOTATION: number(&before) });
    tenant(&stage, &name, &forged);
    let (cp1, _) = machine_in_maas(&stage, "cp1");
    claim(&stage, "cp1", &cp1, &[&one]);
    let moved =
        json!({ "annotations": object["metadata"]["annotations"], "finalizers": object["metadata"]["finalizers"] });
    stage.cluster(json!({}), object["spec"].clone(), moved);
    stage.maas_machine("cp1", &cp1, &[&one]);
    let journal = before.port.object("MaasMachine", &Key::new("default", "cp1")).unwrap();
    stage.journal("cp1", journal["metadata"]["annotations"][format!("{ANNOTATION}maas-record")].as_str().unwrap());
    assert_ne!(stage.object()["metadata"]["uid"], object["metadata"]["uid"]);
    stage.rest().await;
    let two = stage.control_plane("cp2");
    stage.rest().await;
    let mut expected = vec![one, two];
    expected.sort();
    let published = || {
        let mut published = stage.records()[0].1.clone();
        published.sort();
        published
    };
    assert_eq!(
        (published(), stage.condition("LoadBalancerReady")["status"].clone()),
        (expected.clone(), json!("True"))
    );
    stage.forget_requests();
    passes(&stage).await;
    leave(&stage, &["cp1"]).await;
    assert_eq!((published(), stage.writes()), (expected, vec![]));
    // As long as the record comes from the cache, so do the stamps.
    stage.pass().await;
    stage.forget_requests();
    for _ in 0..5 {
        stage.pass().await;
    }
    assert_eq!(stage.requests(), 0);
}

#[tokio::test]
async fn s24_a_cluster_of_the_go_provider_is_taken_over_as_soon_as_its_machine_is_stamped_and_not_before() {
    let stage = Stage::new();
    let machine = json!({"hostname": "cp1", "status": "Deployed", "owner": "admin", "zone": "az1", "power": "on"});
    stage.arrange(json!([{ "machine": machine }]));
    let (id, one) = machine_in_maas(&stage, "cp1");
    stage.maas_machine("cp1", &id, &[&one]);
    stage.arrange(json!([{"dns": {"fqdn": NAME, "ttl": 10, "ip_addresses": [one]}}]));
    let endpoint = json!({ "controlPlaneEndpoint": { "host": NAME, "port": 6443 } });
    let finalizer = json!({ "finalizers": ["maascluster.infrastructure.cluster.x-k8s.io"] });
    stage.cluster(endpoint.clone(), endpoint, finalizer);
    let status = json!({ "ready": true, "network": { "dnsName": NAME }, "conditions": [{
        "type": "LoadBalancerReady", "status": "True", "lastTransitionTime": "2026-11-15T21:15:10Z",
    }] });
    stage.port.set_status("MaasCluster", &key(), status).unwrap();
    // Up before the other one is stamped.
    let two = stage.control_plane("cp2");
    let again = stage.rest().await;
    assert!(again <= Requeue::seconds(15), "{again:?}");
    let said = stage.condition("LoadBalancerReady");
    assert_eq!((&said["status"], &said["reason"]), (&json!("Unknown"), &json!("NotOurMachine")));
    let message = said["message"].as_str().unwrap();
    assert!(message.contains(&id) && message.contains("does not carry the stamp of the MaasMachine cp1"), "{message}");
    assert!(stage.object()["metadata"]["annotations"].get(DNS_RECORD_ANNOTATION).is_none());
    assert_eq!((stage.object()["status"]["ready"].clone(), stage.writes()), (json!(true), vec![]));

    // Its machine does not wait for the MaasCluster.
    owned(&stage, "cp1");
    let machines = stage.for_machines();
    for _ in 0..4 {
        machine::reconcile(&machines, &Key::new("default", "cp1")).await.unwrap();
    }
    stage.rest().await;
    assert_eq!(stage.condition("LoadBalancerReady")["status"], "True");
    assert_eq!(stage.object()["metadata"]["annotations"][DNS_RECORD_ANNOTATION], number(&stage));
    let mut published = stage.records()[0].1.clone();
    published.sort();
    let mut expected = vec![one, two];
    expected.sort();
    assert_eq!(published, expected);
}
