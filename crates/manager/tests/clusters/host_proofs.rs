//! Tenants who share a MAAS user: whose VM host it is, is decided by MAAS's stamps, not by what tenants write.

use std::collections::BTreeMap;

use capmaas_api::names::CONTROL_PLANE_LABEL;
use capmaas_manager::cluster::reconcile;
use capmaas_manager::kubernetes::{Key, Node};
use capmaas_manager::lxd_hosts::Report;
use lxd_client::Fingerprint;
use lxd_initializer::names;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use crate::hosts::{certificate, cluster_of_hosts, later, pair, ready, report, rolled_out, vm_hosts};
use crate::stage::Stage;

const JOURNAL: &str = "infrastructure.cluster.x-k8s.io/maas-record";

/// A tenant's cluster of hosts with the victim's name, in another namespace.
fn theirs() -> Key {
    Key::new("tenant", "c1")
}

fn victims_machine(stage: &Stage) -> String {
    stage.maas.control().with_model(|model| model.machine_named("cp1").unwrap())
}

/// Everything that the tenant may write: a MaasCluster of the victim's name, and a MaasMachine with any machine's ID.
fn tenant(stage: &Stage, machine: &str, annotations: &Value) {
    let cluster = stage.create(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": { "name": "c1", "namespace": "tenant" },
        "spec": { "infrastructureRef":
            { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MaasCluster", "name": "c1" } },
    }));
    let owner = json!([{
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": cluster["metadata"]["uid"],
    }]);
    stage.create(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster",
        "metadata": {
            "name": "c1", "namespace": "tenant", "labels": { "cluster.x-k8s.io/cluster-name": "c1" }, "ownerReferences": owner,
        },
        "spec": { "dnsDomain": "k8s.example", "lxdControlPlaneCluster": true },
    }));
    stage.create(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
        "metadata": {
            "name": "cp1", "namespace": "tenant", "annotations": annotations,
            "labels": { "cluster.x-k8s.io/cluster-name": "c1", CONTROL_PLANE_LABEL: "" },
        },
        "spec": { "providerID": format!("maas://az1/{machine}"), "image": "ubuntu/jammy" },
    }));
    let addresses = json!([{ "type": "InternalIP", "address": "10.0.0.99" }]);
    let status = json!({ "ready": true, "machineState": "Deployed", "machinePowered": true, "addresses": addresses });
    stage.port.set_status("MaasMachine", &Key::new("tenant", "cp1"), status).unwrap();
    stage.port.workload_answers(&theirs(), true);
}

fn find(stage: &Stage, kind: &str) -> Option<Value> {
    stage.port.workload_objects(&theirs()).into_iter().find(|object| object["kind"] == kind)
}

async fn passes(stage: &Stage) {
    for _ in 0..8 {
        reconcile(&stage.context, &theirs()).await.unwrap();
        stage.advance(15);
    }
}

/// The tenant's own Node claims to be the machine, ready and empty, and names the tenant's LXD.
async fn claim(stage: &Stage, node: &str, machine: &str) {
    passes(stage).await;
    let mut daemon_set = find(stage, "DaemonSet").unwrap();
    daemon_set["status"] = json!({
        "observedGeneration": daemon_set["metadata"]["generation"], "desiredNumberScheduled": 1, "updatedNumberScheduled": 1,
    });
    stage.port.put_workload_object(&theirs(), daemon_set);
    let trusted = find(stage, "ConfigMap").unwrap()["data"][names::TRUST_KEY_FOR_ALL].as_str().unwrap().to_owned();
    let print = Fingerprint::of_pem(&trusted).unwrap().to_string();
    let annotations: BTreeMap<String, String> = [
        (names::STATE, "Ready"),
        (names::MESSAGE, ""),
        (names::MODE, "managed"),
        (names::ADDRESS, "https://10.0.0.99:8443"),
        (names::CERTIFICATE, &print),
        (names::PROJECT, "maas"),
        (names::INSTANCES, "[]"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let provider_id = Some(format!("maas://az1/{machine}"));
    let node = Node { name: node.into(), provider_id, annotations, ..Node::default() };
    stage.port.put_node(&theirs(), node);
    stage.advance(400);
    passes(stage).await;
}

fn tenants_condition(stage: &Stage) -> String {
    let object = stage.port.object("MaasCluster", &theirs()).unwrap();
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let lxd = conditions.into_iter().find(|condition| condition["type"] == "LXDReady").unwrap_or_default();
    lxd["message"].as_str().unwrap_or_default().to_owned()
}

/// Requests that may change a VM host.
fn writes(stage: &Stage) -> Vec<String> {
    stage.writes().into_iter().filter(|write| write.contains("/vm-hosts/")).collect()
}

/// A pair as the release before made it: only the name of the cluster in it.
fn former_pair(name: &str) -> Value {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("capmaas@{name}"));
    json!({ "tls.crt": params.self_signed(&key).unwrap().pem(), "tls.key": key.serialize_pem() })
}

fn lay(stage: &Stage, key: &Key, values: &Value) {
    let metadata = json!({ "name": key.name, "namespace": key.namespace });
    stage.create(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values }));
}

#[tokio::test]
async fn s22_a_namesake_who_names_the_victims_machine_gets_no_vm_host() {
    for forged in [false, true] {
        let (stage, address) = ready(json!({})).await;
        report(&stage, "cp1", &address, &[(names::INSTANCES, r#"["vm1"]"#)]);
        later(&stage, 400).await;
        let machine = victims_machine(&stage);
        let original = stage.port.object("MaasMachine", &Key::new("default", "cp1")).unwrap();
        let journal = original["metadata"]["annotations"][JOURNAL].as_str().unwrap();
        let mut journal: Value = serde_json::from_str(journal).unwrap();
        // Keys are no secret.
        journal.as_object_mut().unwrap().remove("writtenFor");
        let annotations = if forged { json!({ JOURNAL: journal.to_string() }) } else { json!({}) };
        tenant(&stage, &machine, &annotations);
        stage.forget_requests();
        claim(&stage, "cp1", &machine).await;
        assert_eq!(writes(&stage), Vec::<String>::new(), "forged: {forged}");
        let message = tenants_condition(&stage);
        assert!(message.contains(&machine) && message.contains("stamp"), "{message}");
        // Nor does its word count for those who place VMs.
        let identity = stage.identities.of_manager().await.unwrap();
        later(&stage, 30).await;
        passes(&stage).await;
        let told = stage.context.reports.of(&identity, &machine, stage.context.clock.now());
        let instances = Some(["vm1".to_owned()].into());
        assert_eq!(told, Some(Report { profiles: None, instances }), "forged: {forged}");
        assert_eq!(vm_hosts(&stage).len(), 1);
    }
}

#[tokio::test]
async fn s22_a_vm_host_that_maas_has_not_matched_is_no_namesakes() {
    // With a certificate of this release, and with one of the release before, which names no namespace.
    for former in [false, true] {
        let (stage, address) = cluster_of_hosts(json!({})).await;
        if former {
            let place = pair(&stage);
            let place = Key::new("capmaas-system", place["metadata"]["name"].as_str().unwrap());
            stage.port.delete("Secret", &place);
            lay(&stage, &Key::new("default", "c1-lxd-hosts"), &former_pair("c1"));
            later(&stage, 400).await;
        }
        rolled_out(&stage);
        report(&stage, "cp1", &address, &[]);
        later(&stage, 15).await;
        later(&stage, 40).await;
        assert_eq!(vm_hosts(&stage).len(), 1);
        // Nothing in MAAS refers from the VM host to a machine.
        stage.maas.control().with_model(|model| {
            for host in model.db.vm_hosts.values_mut() {
                host.host = None;
            }
        });
        stage.arrange(json!([{"machine": {"hostname": "own", "status": "Deployed", "owner": "admin", "power": "on"}}]));
        let own = stage.maas.control().with_model(|model| model.machine_named("own").unwrap());
        tenant(&stage, &own, &json!({}));
        let uid = stage.port.object("MaasMachine", &Key::new("tenant", "cp1")).unwrap()["metadata"]["uid"].clone();
        let mark = format!("capmaas-{}", uid.as_str().unwrap());
        let journal = json!({ JOURNAL: json!({ "key": mark, "machine": own }).to_string() });
        let patch = json!({ "metadata": { "annotations": journal } });
        stage.port.edit("MaasMachine", &Key::new("tenant", "cp1"), &patch).unwrap();
        let stamp = json!({ "capmaas-key": mark, "capmaas-machine": "tenant/cp1" });
        stage.arrange(json!([{ "machine": { "hostname": "own", "annotations": stamp } }]));
        stage.forget_requests();
        claim(&stage, "cp1", &own).await;
        // What it does with a VM host of its own is its business.
        let victims = format!("/vm-hosts/{}/", vm_hosts(&stage)[0].0);
        let changed: Vec<_> = writes(&stage).into_iter().filter(|write| write.contains(&victims)).collect();
        assert_eq!(changed, Vec::<String>::new(), "former: {former}");
    }
}

#[tokio::test]
async fn s22_a_pair_of_the_release_before_is_known_on_a_stamped_machine() {
    let (stage, address) = cluster_of_hosts(json!({})).await;
    let made = Key::new("capmaas-system", pair(&stage)["metadata"]["name"].as_str().unwrap());
    stage.port.delete("Secret", &made);
    let former = Key::new("default", "c1-lxd-hosts");
    lay(&stage, &former, &former_pair("c1"));
    later(&stage, 400).await;
    rolled_out(&stage);
    report(&stage, "cp1", &address, &[]);
    for _ in 0..3 {
        later(&stage, 40).await;
    }
    assert_eq!(stage.condition("LXDReady")["status"], "True", "{:#}", stage.condition("LXDReady"));
    stage.forget_requests();
    later(&stage, 400).await;
    assert_eq!(stage.writes(), Vec::<String>::new(), "an upgrade changes nothing in MAAS");
    // If it is lost, MAAS gets one of this release for the same VM host.
    let before = vm_hosts(&stage);
    stage.port.delete("Secret", &made);
    stage.port.delete("Secret", &former);
    later(&stage, 400).await;
    report(&stage, "cp1", &address, &[]);
    for _ in 0..3 {
        later(&stage, 40).await;
    }
    assert_eq!(vm_hosts(&stage), before);
    let client = stage.identities.of_manager().await.unwrap().client;
    let parameters = client.vm_hosts().parameters(before[0].0).await.unwrap();
    assert_eq!(parameters.certificate.as_deref(), Some(certificate(&stage).as_str()));
    assert_eq!(stage.condition("LXDReady")["status"], "True", "{:#}", stage.condition("LXDReady"));
}

#[tokio::test]
async fn s24_a_host_of_the_go_provider_waits_for_its_stamp() {
    let (stage, address) = cluster_of_hosts(json!({})).await;
    let machine = victims_machine(&stage);
    stage.arrange(json!([{ "machine": { "system_id": machine, "annotations": {} } }]));
    rolled_out(&stage);
    report(&stage, "cp1", &address, &[]);
    later(&stage, 40).await;
    assert!(vm_hosts(&stage).is_empty());
    let message = stage.condition("LXDReady")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("stamp"), "{message}");
    stage.stamp("cp1", &machine);
    for _ in 0..3 {
        later(&stage, 40).await;
    }
    assert_eq!(stage.condition("LXDReady")["status"], "True", "{:#}", stage.condition("LXDReady"));
}
