//! The Rust types on the wire: what they write is stored as it is, and what is stored they read.

use capmaas_api::{
    Condition, ConditionStatus, MaasCluster, MaasClusterStatus, MaasMachine, MaasMachineStatus, Severity,
    capi::{Cluster, Machine},
    cluster::Initialization,
    failure_domains::{FailureDomainDetails, FailureDomains, NamedFailureDomain},
    machine::ProvisioningMode,
    machine_status::{AddressType, MachineAddress, VmResourceUsage},
};
use capmaas_testbed::{KubernetesVersion, Testbed};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::server::{Server, api_resource, documents, dynamic, kind_of, repository};

fn condition(type_: &str, status: ConditionStatus) -> Condition {
    let severity = (status == ConditionStatus::False).then_some(Severity::Warning);
    Condition {
        type_: type_.to_owned(),
        status,
        severity,
        reason: Some("Because".to_owned()),
        message: Some("It is so.".to_owned()),
        last_transition_time: Some(serde_json::from_value(json!("2026-11-15T21:10:50Z")).unwrap()),
        observed_generation: Some(1),
    }
}

fn machine_status() -> MaasMachineStatus {
    MaasMachineStatus {
        ready: true,
        initialization: Some(Initialization { provisioned: Some(true) }),
        machine_state: Some("Deployed".to_owned()),
        machine_powered: true,
        hostname: Some("vm-1".to_owned()),
        dns_attached: true,
        addresses: vec![MachineAddress { type_: AddressType::InternalIp, address: "10.0.0.5".to_owned() }],
        failure_domain: Some("az1".to_owned()),
        provisioning_mode: Some(ProvisioningMode::Lxd),
        lxd_host: Some("lxd-host-1".to_owned()),
        lxd_project: Some("maas".to_owned()),
        vm_resource_usage: Some(VmResourceUsage { allocated_cores: 4, allocated_memory: 8192, allocated_disk: 60 }),
        conditions: vec![
            condition("MachineDeployed", ConditionStatus::False),
            condition("Ready", ConditionStatus::Undetermined),
        ],
        failure_reason: Some("CreateError".to_owned()),
        failure_message: Some("It failed.".to_owned()),
        unreadable: Vec::new(),
    }
}

#[tokio::test]
async fn a_status_is_stored_as_it_is_written_and_writing_it_again_changes_nothing() {
    let server = Server::with_namespace("typed-status").await;
    let api: Api<MaasMachine> = Api::namespaced(server.client.clone(), &server.namespace);
    let spec = json!({"image": "ubuntu/jammy", "minCPU": 4, "minMemory": 8192, "provisioningMode": "lxd"});
    let machine = MaasMachine::new("m", serde_json::from_value(spec).unwrap());
    let created = api.create(&PostParams::default(), &machine).await.unwrap();
    assert_eq!(created.spec, machine.spec);

    let body = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine", "metadata": {"name": "m"},
        "status": machine_status(),
    });
    let apply = PatchParams::apply("capmaas-test").force();
    let first = api.patch_status("m", &apply, &Patch::Apply(&body)).await.unwrap();
    assert_eq!(first.status, Some(machine_status()));
    let second = api.patch_status("m", &apply, &Patch::Apply(&body)).await.unwrap();
    assert_eq!(second.metadata.resource_version, first.metadata.resource_version);
}

#[tokio::test]
async fn both_forms_of_failure_domains_are_written_and_read() {
    let server = Server::with_namespace("typed-domains").await;
    let api: Api<MaasCluster> = Api::namespaced(server.client.clone(), &server.namespace);
    let cluster = MaasCluster::new("c", serde_json::from_value(json!({"dnsDomain": "maas"})).unwrap());
    api.create(&PostParams::default(), &cluster).await.unwrap();
    let details = FailureDomainDetails { control_plane: Some(true), ..FailureDomainDetails::default() };
    for domains in [
        FailureDomains::List(vec![NamedFailureDomain { name: "az1".to_owned(), details: details.clone() }]),
        FailureDomains::Map([("az1".to_owned(), details)].into()),
    ] {
        let status = MaasClusterStatus { failure_domains: Some(domains), ..MaasClusterStatus::default() };
        let body = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster", "metadata": {"name": "c"},
            "status": status,
        });
        let apply = PatchParams::apply("capmaas-test").force();
        let stored = api.patch_status("c", &apply, &Patch::Apply(&body)).await.unwrap();
        assert_eq!(stored.status, Some(status));
    }
}

/// A definition that lets everything through, as if another version had been installed before.
fn anything_goes(kind: &str) -> Value {
    let plural = api_resource(kind).plural;
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.infrastructure.cluster.x-k8s.io")},
        "spec": {
            "group": "infrastructure.cluster.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

async fn create_all(client: &Client, objects: &[Value]) {
    for (number, object) in objects.iter().enumerate() {
        let mut object = object.clone();
        object["metadata"] =
            json!({"name": format!("object-{number}"), "finalizers": object["metadata"]["finalizers"]});
        let api: Api<kube::api::DynamicObject> =
            Api::namespaced_with(client.clone(), "default", &api_resource(kind_of(&object)));
        api.create(&PostParams::default(), &dynamic(&object)).await.unwrap();
    }
}

/// On an API server of its own, because it installs other definitions first.
#[tokio::test]
async fn what_was_stored_before_our_definitions_came_is_listed_whole_however_odd_one_object_is() {
    let testbed = Testbed::builder().kubernetes(KubernetesVersion::from_env().unwrap()).start().await.unwrap();
    let client = testbed.client().unwrap();
    testbed.apply_objects(vec![anything_goes("MaasMachine"), anything_goes("MaasCluster")]).await.unwrap();

    let mut objects: Vec<Value> = ["v4.6", "extremes"]
        .into_iter()
        .flat_map(|name| documents(&format!("crates/api/tests/fixtures/go-provider-schemas/{name}.yaml")))
        .filter(|object| !kind_of(object).ends_with("Template"))
        .collect();
    let from_go = objects.len();
    let api_version = "infrastructure.cluster.x-k8s.io/v1beta1";
    for (kind, spec, status) in [
        ("MaasMachine", json!({"provisioningMode": 7, "minCPU": "four", "lxd": []}), json!({"conditions": "none"})),
        ("MaasMachine", json!("a text"), json!(["a", "list"])),
        ("MaasCluster", json!({"dnsDomain": {}, "lxdConfig": {"enabled": "yes"}}), json!({"failureDomains": 7})),
    ] {
        objects.push(json!({"apiVersion": api_version, "kind": kind, "metadata": {}, "spec": spec, "status": status}));
    }
    create_all(&client, &objects).await;

    for entry in std::fs::read_dir(repository("config/crd")).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with("kustomization.yaml") {
            testbed.apply_yaml(&std::fs::read_to_string(path).unwrap()).await.unwrap();
        }
    }

    let machines = Api::<MaasMachine>::all(client.clone()).list(&ListParams::default()).await.unwrap().items;
    let clusters = Api::<MaasCluster>::all(client.clone()).list(&ListParams::default()).await.unwrap().items;
    assert_eq!(machines.len() + clusters.len(), objects.len());
    let odd = |name: &str| machines.iter().find(|machine| machine.metadata.name.as_deref() == Some(name)).unwrap();
    assert_eq!(odd(&format!("object-{from_go}")).spec.unreadable, ["minCPU", "provisioningMode"]);
    assert_eq!(odd(&format!("object-{}", from_go + 1)).spec.unreadable, ["."]);

    // What the Go provider could have stored can go now, under our definitions.
    for (number, object) in objects.iter().enumerate().take(from_go) {
        let api: Api<kube::api::DynamicObject> =
            Api::namespaced_with(client.clone(), "default", &api_resource(kind_of(object)));
        let let_go = json!({"metadata": {"finalizers": null}});
        let patched = api.patch(&format!("object-{number}"), &PatchParams::default(), &Patch::Merge(&let_go)).await;
        patched.unwrap_or_else(|error| panic!("{object}: {error}"));
    }
    testbed.stop().await;
}

#[tokio::test]
async fn the_views_of_cluster_api_ask_for_the_version_that_they_are_given() {
    let server = Server::with_namespace("views").await;
    for version in ["v1beta1", "v1beta2"] {
        // Cluster API is not installed here: the answer is that nobody serves it, not that it cannot be read.
        let clusters: Api<Cluster> = Api::all_with(server.client.clone(), &Cluster::api_resource(version));
        let machines: Api<Machine> = Api::all_with(server.client.clone(), &Machine::api_resource(version));
        let answers = [
            clusters.list(&ListParams::default()).await.map(drop),
            machines.list(&ListParams::default()).await.map(drop),
        ];
        for answer in answers {
            assert!(matches!(answer, Err(kube::Error::Api(status)) if status.code == 404));
        }
    }
}
