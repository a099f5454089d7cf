//! Clusters whose machines become LXD hosts, on a simulated MAAS: from the agent to the VM host, and back.

use std::collections::BTreeMap;

use capmaas_api::names::CONTROL_PLANE_LABEL;
use capmaas_manager::kubernetes::{Key, Node, WorkloadRef};
use capmaas_manager::lxd_hosts::Report;
use capmaas_manager::machine;
use lxd_client::Fingerprint;
use lxd_initializer::names;
use serde_json::{Value, json};

use crate::stage::{ADMIN, Stage, key};

pub(crate) const IMAGE: &str = "registry.example/lxd-initializer:v1";

/// A cluster of hosts with one control plane machine that has joined, and an LXD on it.
pub(crate) async fn cluster_of_hosts(spec: Value) -> (Stage, String) {
    let mut stage = Stage::new();
    stage.context.agent_image = Some(IMAGE.into());
    stage.arrange(json!([{ "pool": { "name": "vm-generic" } }]));
    let mut whole = json!({ "lxdControlPlaneCluster": true });
    whole.as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap());
    stage.cluster(json!({}), whole, json!({}));
    let address = join(&stage, "cp1");
    stage.port.workload_answers(&key(), true);
    stage.rest().await;
    (stage, address)
}

/// A deployed machine with an LXD, and its Node.
pub(crate) fn join(stage: &Stage, name: &str) -> String {
    let address = stage.control_plane(name);
    stage.arrange(
        json!([{ "lxd": { "address": format!("{address}:8443"), "host": name, "cores": 8, "memory": 16384 } }]),
    );
    let node = Node {
        name: name.into(),
        provider_id: Some(provider_id(stage, name)),
        addresses: vec![address.clone()],
        ..Node::default()
    };
    stage.port.put_node(&key(), node);
    address
}

fn provider_id(stage: &Stage, name: &str) -> String {
    let object = stage.port.object("MaasMachine", &Key::new("default", name)).unwrap();
    object["spec"]["providerID"].as_str().unwrap().to_owned()
}

pub(crate) fn object(stage: &Stage, kind: &str) -> Value {
    let found = stage.port.workload_objects(&key()).into_iter().find(|object| object["kind"] == kind);
    found.unwrap_or(Value::Null)
}

/// The certificate that the nodes are told to trust.
pub(crate) fn certificate(stage: &Stage) -> String {
    object(stage, "ConfigMap")["data"][names::TRUST_KEY_FOR_ALL].as_str().unwrap_or_default().to_owned()
}

/// What the agent writes on its Node when everything is right, with these changes.
pub(crate) fn report(stage: &Stage, name: &str, address: &str, changes: &[(&str, &str)]) {
    let print = Fingerprint::of_pem(&certificate(stage)).map(|print| print.to_string()).unwrap_or_default();
    let listens = format!("https://{address}:8443");
    let mut annotations: BTreeMap<String, String> = [
        (names::STATE, "Ready"),
        (names::MESSAGE, "this node is a VM host for MAAS"),
        (names::MODE, "managed"),
        (names::ADDRESS, &listens),
        (names::CERTIFICATE, &print),
        (names::PROJECT, "maas"),
        (names::INSTANCES, "[]"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    annotations.extend(changes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let mut node = stage.port.node_of(&key(), name).unwrap();
    let told = node.annotations.get(names::LEAVE).cloned();
    annotations.extend(told.map(|told| (names::LEAVE.to_owned(), told)));
    node.annotations = annotations;
    stage.port.put_node(&key(), node);
}

/// The DaemonSet controller has rolled out the latest version.
pub(crate) fn rolled_out(stage: &Stage) {
    let mut daemon_set = object(stage, "DaemonSet");
    let generation = daemon_set["metadata"]["generation"].clone();
    daemon_set["status"] =
        json!({ "observedGeneration": generation, "desiredNumberScheduled": 1, "updatedNumberScheduled": 1 });
    stage.port.put_workload_object(&key(), daemon_set);
}

/// Time passes, and the cluster is reconciled until it settles.
pub(crate) async fn later(stage: &Stage, seconds: i64) {
    stage.advance(seconds);
    stage.rest().await;
}

/// Name, zone, pool and certificate of every VM host in MAAS.
pub(crate) fn vm_hosts(stage: &Stage) -> Vec<(i64, String)> {
    stage
        .maas
        .control()
        .with_model(|model| model.db.vm_hosts.values().map(|host| (host.id, host.name.clone())).collect())
}

pub(crate) async fn ready(spec: Value) -> (Stage, String) {
    let (stage, address) = cluster_of_hosts(spec).await;
    rolled_out(&stage);
    report(&stage, "cp1", &address, &[]);
    later(&stage, 15).await;
    later(&stage, 40).await;
    later(&stage, 40).await;
    assert_eq!(stage.condition("LXDReady")["status"], "True", "{:#}", stage.condition("LXDReady"));
    (stage, address)
}

#[tokio::test]
async fn a_node_becomes_a_vm_host_in_the_clusters_zone_and_pool_and_then_lxd_is_ready() {
    let (stage, address) = cluster_of_hosts(json!({ "lxdConfig": { "resourcePool": "vm-generic" } })).await;
    assert_eq!(stage.reason("LXDReady"), "LXDSetupPending");
    let message = stage.condition("LXDReady")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("node cp1") && message.contains("has not reported"), "{message}");
    let container = &object(&stage, "DaemonSet")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], IMAGE);
    rolled_out(&stage);
    report(&stage, "cp1", &address, &[]);
    stage.forget_requests();
    later(&stage, 15).await;
    assert_eq!(vm_hosts(&stage).len(), 1);
    later(&stage, 40).await;
    later(&stage, 40).await;
    assert_eq!(stage.condition("LXDReady")["status"], "True", "{:#}", stage.condition("LXDReady"));
    assert_eq!(stage.reason("Ready"), "Ready");
    let writes: Vec<String> = stage.writes().into_iter().filter(|write| write.ends_with("/vm-hosts/")).collect();
    assert_eq!(writes.len(), 1, "registered once: {:?}", stage.writes());
    let client = stage.identities.of_manager().await.unwrap().client;
    let host = client.vm_hosts().list().await.unwrap().remove(0);
    assert_eq!((host.name.as_deref(), host.pool.unwrap().name.as_str()), (Some("cp1"), "vm-generic"));
    assert_eq!(host.zone.unwrap().name, "az1", "nothing is said about the zone, so it is the machine's");
}

#[tokio::test]
async fn go25_no_maas_key_and_no_private_key_reach_the_workload_cluster() {
    let (stage, _) = ready(json!({})).await;
    let kinds: Vec<String> =
        stage.port.workload_objects(&key()).iter().map(|object| object["kind"].as_str().unwrap().into()).collect();
    for kind in
        ["Namespace", "ServiceAccount", "ClusterRole", "Role", "DaemonSet", "ConfigMap", "ValidatingAdmissionPolicy"]
    {
        assert!(kinds.iter().any(|found| found == kind), "{kind} is missing: {kinds:?}");
    }
    for object in stage.port.workload_objects(&key()) {
        let text = object.to_string();
        for secret in [ADMIN, "CANARY", "PRIVATE KEY", "maas.test"] {
            assert!(!text.contains(secret), "{secret} is in {text}");
        }
        assert_ne!(object["kind"], "Secret");
    }
    let secret = pair(&stage);
    assert!(secret["stringData"]["tls.key"].as_str().unwrap().contains("PRIVATE KEY"));
    let of = &secret["metadata"]["annotations"]["infrastructure.cluster.x-k8s.io/maas-cluster"];
    assert_eq!(of, "default/c1", "it goes with its cluster");
}

/// The Secret with the key pair of the cluster's hosts.
pub(crate) fn pair(stage: &Stage) -> Value {
    let secrets = stage.port.objects("Secret").into_iter();
    let mut pairs =
        secrets.filter(|secret| secret["metadata"]["name"].as_str().unwrap().starts_with("capmaas-host-keys-"));
    let found = pairs.next().unwrap();
    assert!(pairs.next().is_none());
    found
}

#[tokio::test]
async fn s28_key_pairs_of_hosts_are_made_in_the_managers_namespace_and_nowhere_else() {
    let (stage, _) = ready(json!({})).await;
    assert_eq!(pair(&stage)["metadata"]["namespace"], "capmaas-system");
    let elsewhere: Vec<Value> = stage.port.objects("Secret");
    assert!(
        elsewhere
            .iter()
            .all(|secret| secret["stringData"]["tls.key"].is_null()
                || secret["metadata"]["namespace"] == "capmaas-system")
    );
}

#[tokio::test]
async fn the_key_pair_that_an_earlier_release_made_is_taken_over_and_nothing_is_renewed() {
    let (stage, _) = ready(json!({})).await;
    let (made, certificate) = (pair(&stage), certificate(&stage));
    // As an earlier release left it: next to the cluster instead of in the manager's namespace.
    let metadata = json!({ "name": "c1-lxd-hosts", "namespace": "default" });
    let values = &made["stringData"];
    stage
        .port
        .create(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values }))
        .unwrap();
    let key = Key::new("capmaas-system", made["metadata"]["name"].as_str().unwrap());
    stage.port.delete("Secret", &key);
    stage.forget_requests();
    later(&stage, 400).await;
    assert_eq!(pair(&stage)["stringData"], made["stringData"]);
    assert_eq!(self::certificate(&stage), certificate);
    assert!(stage.writes().is_empty(), "{:?}", stage.writes());
    assert_eq!(stage.condition("LXDReady")["status"], "True", "{:#}", stage.condition("LXDReady"));
}

#[tokio::test]
async fn s28_a_key_pair_that_a_tenant_lays_in_the_old_place_is_taken_only_if_it_is_the_clusters() {
    let (stage, _) = ready(json!({})).await;
    let made = pair(&stage);
    let stranger = rcgen::generate_simple_self_signed(["capmaas@c10".to_owned()]).unwrap();
    let values = json!({ "tls.crt": stranger.cert.pem(), "tls.key": stranger.signing_key.serialize_pem() });
    let metadata = json!({ "name": "c1-lxd-hosts", "namespace": "default" });
    stage
        .port
        .create(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values }))
        .unwrap();
    stage.port.delete("Secret", &Key::new("capmaas-system", made["metadata"]["name"].as_str().unwrap()));
    later(&stage, 400).await;
    assert_ne!(pair(&stage)["stringData"], values);
}

#[tokio::test]
async fn an_idle_cluster_of_hosts_writes_nothing() {
    let (stage, _) = ready(json!({})).await;
    later(&stage, 400).await;
    stage.forget_requests();
    stage.port.take_changes();
    later(&stage, 400).await;
    assert!(stage.writes().is_empty(), "{:?}", stage.writes());
    assert!(stage.port.take_changes().is_empty());
}

#[tokio::test]
async fn go10_without_an_image_the_condition_names_the_flag_and_nothing_is_applied() {
    let stage = Stage::new();
    stage.cluster(json!({}), json!({ "lxdConfig": { "enabled": true } }), json!({}));
    join(&stage, "cp1");
    stage.port.workload_answers(&key(), true);
    stage.rest().await;
    assert_eq!(stage.condition("LXDReady")["status"], "False");
    assert!(stage.condition("LXDReady")["message"].as_str().unwrap().contains("--lxd-initializer-image"));
    assert!(stage.port.workload_objects(&key()).is_empty());
}

#[tokio::test]
async fn an_agent_that_a_person_applied_is_left_as_it_is_and_its_node_is_registered() {
    let stage = Stage::new();
    stage.cluster(json!({}), json!({ "lxdControlPlaneCluster": true }), json!({}));
    let address = join(&stage, "cp1");
    let by_hand = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": "lxd-initializer", "namespace": "capmaas-system", "generation": 1 },
        "spec": { "by": "hand" },
        "status": { "observedGeneration": 1, "desiredNumberScheduled": 1, "updatedNumberScheduled": 1 },
    });
    stage.port.put_workload_object(&key(), by_hand.clone());
    stage.port.workload_answers(&key(), true);
    stage.rest().await;
    report(&stage, "cp1", &address, &[]);
    later(&stage, 15).await;
    later(&stage, 40).await;
    later(&stage, 40).await;
    assert_eq!(stage.condition("LXDReady")["status"], "True", "{:#}", stage.condition("LXDReady"));
    assert_eq!(object(&stage, "DaemonSet"), by_hand);
    later(&stage, 400).await;
    let kinds: Vec<Value> = stage.port.workload_objects(&key()).iter().map(|object| object["kind"].clone()).collect();
    assert_eq!(kinds, ["DaemonSet", "ConfigMap"], "of all that goes with the agent only the certificate is ours");
}

#[tokio::test]
async fn what_the_agent_needs_is_put_back_if_somebody_deletes_it() {
    let (stage, _) = ready(json!({})).await;
    let all = stage.port.workload_objects(&key());
    assert!(all.len() > 8, "{all:#?}");
    for part in &all {
        stage.port.delete_workload_object(&key(), &WorkloadRef::of(part).unwrap());
        later(&stage, 400).await;
        let now = stage.port.workload_objects(&key());
        assert_eq!(now.len(), all.len(), "{} is not put back", part["kind"]);
        rolled_out(&stage);
    }
    later(&stage, 30).await;
    assert_eq!(stage.condition("LXDReady")["status"], "True", "{:#}", stage.condition("LXDReady"));
}

#[tokio::test]
async fn those_who_place_vms_are_told_what_the_agent_reports_and_only_while_it_can_be_read() {
    let (stage, address) = ready(json!({})).await;
    let identity = stage.identities.of_manager().await.unwrap();
    let machine = provider_id(&stage, "cp1").rsplit('/').next().unwrap().to_owned();
    let told = || stage.context.reports.of(&identity, &machine, stage.context.clock.now());
    let set = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
    report(&stage, "cp1", &address, &[(names::PROFILES, r#"["default","maas"]"#), (names::INSTANCES, r#"["vm1"]"#)]);
    later(&stage, 400).await;
    assert_eq!(told(), Some(Report { profiles: set(&["default", "maas"]), instances: set(&["vm1"]) }));
    report(&stage, "cp1", &address, &[(names::PROFILES, ""), (names::INSTANCES, "nonsense")]);
    later(&stage, 400).await;
    assert_eq!(told(), Some(Report::default()), "s01: a list that cannot be read is not an empty one");
    stage.port.workload_answers(&key(), false);
    later(&stage, 700).await;
    assert_eq!(told(), None);
}

#[tokio::test]
async fn a_changed_setting_rolls_out_and_a_node_that_joins_late_is_registered_too() {
    let (stage, _) = ready(json!({})).await;
    let patch = json!({ "spec": { "lxdConfig": { "storageSize": "80" } } });
    stage.port.edit("MaasCluster", &key(), &patch).unwrap();
    later(&stage, 15).await;
    let daemon_set = object(&stage, "DaemonSet").to_string();
    assert!(daemon_set.contains(r#"{"name":"STORAGE_SIZE","value":"80"}"#), "{daemon_set}");
    assert_eq!(stage.condition("LXDReady")["status"], "False", "it has to roll out first");
    rolled_out(&stage);
    let address = join(&stage, "w1");
    let worker = Key::new("default", "w1");
    stage
        .port
        .edit("MaasMachine", &worker, &json!({ "metadata": { "labels": { CONTROL_PLANE_LABEL: null } } }))
        .unwrap();
    later(&stage, 15).await;
    assert_eq!(stage.condition("LXDReady")["status"], "True", "a worker does not hold it up");
    report(&stage, "w1", &address, &[]);
    later(&stage, 400).await;
    assert_eq!(vm_hosts(&stage).len(), 2);
}

#[tokio::test]
async fn s12_a_node_with_instances_is_not_registered_and_they_are_named() {
    let (stage, address) = cluster_of_hosts(json!({})).await;
    rolled_out(&stage);
    report(&stage, "cp1", &address, &[(names::INSTANCES, r#"["web"]"#)]);
    later(&stage, 15).await;
    assert!(vm_hosts(&stage).is_empty());
    assert_eq!(stage.reason("LXDReady"), "LXDSetupFailed");
    assert!(stage.condition("LXDReady")["message"].as_str().unwrap().contains("web"));
}

#[tokio::test]
async fn a_lost_key_is_replaced_on_the_same_vm_host() {
    let (stage, address) = ready(json!({})).await;
    let before = (vm_hosts(&stage), certificate(&stage));
    let name = pair(&stage)["metadata"]["name"].as_str().unwrap().to_owned();
    stage.port.delete("Secret", &Key::new("capmaas-system", name));
    later(&stage, 400).await;
    assert_ne!(certificate(&stage), before.1, "the nodes are told to trust a new one");
    assert_eq!(stage.condition("LXDReady")["status"], "False");
    report(&stage, "cp1", &address, &[]);
    later(&stage, 30).await;
    later(&stage, 60).await;
    assert_eq!(vm_hosts(&stage), before.0, "no second one");
    let client = stage.identities.of_manager().await.unwrap().client;
    let parameters = client.vm_hosts().parameters(before.0[0].0).await.unwrap();
    assert_eq!(parameters.certificate.as_deref(), Some(certificate(&stage).as_str()));
    assert_eq!(stage.condition("LXDReady")["status"], "True", "{:#}", stage.condition("LXDReady"));
}

#[tokio::test]
async fn s22_the_agent_hears_of_the_new_key_only_after_maas_has_it() {
    let (stage, address) = ready(json!({})).await;
    let name = pair(&stage)["metadata"]["name"].as_str().unwrap().to_owned();
    stage.port.delete("Secret", &Key::new("capmaas-system", name));
    later(&stage, 400).await;
    let told = || stage.port.node_of(&key(), "cp1").unwrap().annotations.get(names::MAAS_CERTIFICATE).cloned();
    // The agent trusts both.
    report(&stage, "cp1", &address, &[(names::EARLIER, r#"["before"]"#), (names::STATE, "Working")]);
    later(&stage, 30).await;
    assert_eq!(told(), None);
    report(&stage, "cp1", &address, &[(names::EARLIER, r#"["before"]"#)]);
    later(&stage, 30).await;
    later(&stage, 60).await;
    let print = Fingerprint::of_pem(&certificate(&stage)).unwrap().to_string();
    assert_eq!(told(), Some(print));
    assert_eq!(stage.condition("LXDReady")["status"], "True", "{:#}", stage.condition("LXDReady"));
}

/// Passes over the machine as often as it requeues, with passes over the cluster in between.
async fn machine_passes(stage: &Stage, name: &str, times: usize) {
    let context = stage.for_machines();
    for _ in 0..times {
        machine::reconcile(&context, &Key::new("default", name)).await.unwrap();
        stage.pass().await;
        stage.advance(5);
    }
}

/// The queries of all requests of a kind.
fn asked(stage: &Stage, kind: &str) -> Vec<String> {
    stage.maas.control().ledger(Some(kind)).into_iter().map(|entry| entry.query).collect()
}

pub(crate) fn machine_says(stage: &Stage, name: &str) -> String {
    let object = stage.port.object("MaasMachine", &Key::new("default", name)).unwrap_or_default();
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let deployed = conditions.into_iter().find(|condition| condition["type"] == "MachineDeployed").unwrap_or_default();
    deployed["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn s11_a_host_with_a_vm_is_not_given_back_until_the_vm_is_gone() {
    let (stage, address) = ready(json!({})).await;
    stage.arrange(
        json!([{ "machine": { "hostname": "vm1", "vm_host": "cp1", "status": "Deployed", "owner": "carol" } }]),
    );
    report(&stage, "cp1", &address, &[(names::INSTANCES, r#"["vm1"]"#)]);
    stage.port.delete("MaasMachine", &Key::new("default", "cp1"));
    machine_passes(&stage, "cp1", 12).await;
    assert!(machine_says(&stage, "cp1").contains("vm1 of user carol"), "{}", machine_says(&stage, "cp1"));
    assert_eq!(vm_hosts(&stage).len(), 1);
    assert!(asked(&stage, "machine.release").is_empty());
    assert_eq!(stage.records()[0].1, std::slice::from_ref(&address), "its agent is still reached by the name");
    let client = stage.identities.of_manager().await.unwrap().client;
    let host = client.vm_hosts().list().await.unwrap().remove(0);
    assert!(host.tags.iter().any(|tag| tag == "capmaas-leaving"), "no placement chooses it any more");
    let node = stage.context.kubernetes.node(&key(), "cp1").await.unwrap().unwrap();
    assert_eq!(node.annotations.get(names::LEAVE).map(String::as_str), Some("true"));

    let vm = client.machines().list(&maas_client::MachineFilter::hostname("vm1")).await.unwrap().remove(0);
    #[expect(clippy::disallowed_methods, reason = "a person removes the VM")]
    client.machines().delete(&vm.system_id).await.unwrap();
    report(&stage, "cp1", &address, &[(names::STATE, "Left")]);
    machine_passes(&stage, "cp1", 30).await;
    assert!(vm_hosts(&stage).is_empty(), "{}", machine_says(&stage, "cp1"));
    assert!(stage.port.object("MaasMachine", &Key::new("default", "cp1")).is_none(), "{}", machine_says(&stage, "cp1"));
    assert_eq!(asked(&stage, "machine.release").len(), 1);
    assert!(stage.records()[0].1.is_empty(), "{:?}", stage.records());
    for query in asked(&stage, "vm-host.delete") {
        assert!(!query.contains("decompose") && !query.contains("force"), "{query}");
    }
    assert_eq!(asked(&stage, "vm-host.delete").len(), 1);
}

#[tokio::test]
async fn s11_a_host_whose_agent_is_never_heard_of_again_is_not_looked_at() {
    let (stage, _) = ready(json!({})).await;
    stage.port.workload_answers(&key(), false);
    stage.port.delete("MaasMachine", &Key::new("default", "cp1"));
    machine_passes(&stage, "cp1", 60).await;
    assert_eq!(vm_hosts(&stage).len(), 1);
    assert!(machine_says(&stage, "cp1").contains("remove the VM host in MAAS"), "{}", machine_says(&stage, "cp1"));
    let client = stage.identities.of_manager().await.unwrap().client;
    client.vm_hosts().delete(vm_hosts(&stage)[0].0).await.unwrap();
    machine_passes(&stage, "cp1", 30).await;
    assert!(stage.port.object("MaasMachine", &Key::new("default", "cp1")).is_none(), "a person removed it");
}
