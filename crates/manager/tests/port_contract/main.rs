//! The contract of the Kubernetes port, tested against both implementations: a real API server, and in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod promises;

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use capmaas_api::{MaasMachine, names};
use capmaas_manager::clock::Clock;
use capmaas_manager::kubernetes::{
    self, ErrorKind, Guard, Key, Kind, KubeClient, Kubernetes, MemoryKubernetes, NewSecret, Node, ObjectEvent, Owners,
    WorkloadRef,
};
use capmaas_manager::machine_index::Asker;
use capmaas_testbed::{SharedTestbed, Testbed};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::sync::watch;

static SERVER: SharedTestbed = SharedTestbed::new(|| Testbed::builder().controller_manager(true));

/// One implementation, and other writers of its objects.
enum Stage {
    Server(Client, Box<KubeClient>),
    Memory(MemoryKubernetes),
}

impl Stage {
    fn port(&self) -> &dyn Kubernetes {
        match self {
            Self::Server(_, port) => port.as_ref(),
            Self::Memory(port) => port,
        }
    }

    fn owners(&self) -> &dyn Owners {
        match self {
            Self::Server(_, port) => port.as_ref(),
            Self::Memory(port) => port,
        }
    }

    fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
        let (group, version) = match kind {
            "Secret" | "ConfigMap" => ("", "v1"),
            "Cluster" | "Machine" => ("cluster.x-k8s.io", "v1beta1"),
            _ => ("infrastructure.cluster.x-k8s.io", "v1beta1"),
        };
        Api::namespaced_with(
            client.clone(),
            "default",
            &ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)),
        )
    }

    async fn create(&self, object: Value) -> Value {
        match self {
            Self::Server(client, _) => {
                let api = Self::api(client, object["kind"].as_str().unwrap());
                let made = api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
                serde_json::to_value(made).unwrap()
            }
            Self::Memory(port) => port.create(object).unwrap(),
        }
    }

    async fn delete(&self, kind: &str, key: &Key) {
        match self {
            Self::Server(client, _) => {
                Self::api(client, kind).delete(&key.name, &DeleteParams::background()).await.unwrap();
            }
            Self::Memory(port) => port.delete(kind, key),
        }
    }

    /// Another writer, such as the Go provider, writes a status.
    async fn set_status(&self, kind: &str, key: &Key, status: Value) {
        match self {
            Self::Server(client, _) => {
                let body = Patch::Merge(json!({ "status": status }));
                Self::api(client, kind).patch_status(&key.name, &PatchParams::default(), &body).await.unwrap();
            }
            Self::Memory(port) => port.set_status(kind, key, status).unwrap(),
        }
    }

    /// A workload cluster that answers, with one Node. With the API server, it is that same server.
    async fn workload(&self, name: &str) -> Key {
        let cluster = key(name);
        let node = format!("{name}-node");
        match self {
            Self::Server(client, _) => {
                let kubeconfig = std::fs::read_to_string(SERVER.get().await.unwrap().kubeconfig_path()).unwrap();
                let secret = json!({
                    "apiVersion": "v1", "kind": "Secret", "stringData": { "value": kubeconfig },
                    "metadata": { "name": format!("{name}-kubeconfig"), "namespace": "default" },
                });
                self.create(secret).await;
                let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
                let body = json!({ "metadata": { "name": node }, "spec": { "providerID": "maas://z/abc123" } });
                nodes.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
            }
            Self::Memory(port) => {
                port.workload_answers(&cluster, true);
                let provider_id = Some("maas://z/abc123".to_owned());
                port.put_node(&cluster, Node { name: node, provider_id, ..Node::default() });
            }
        }
        cluster
    }

    async fn machine(&self, key: &Key) -> MaasMachine {
        self.port().maas_machine(key).await.unwrap().expect("the machine is there")
    }
}

async fn server() -> Stage {
    static PROVIDER: OnceLock<()> = OnceLock::new();
    PROVIDER.get_or_init(|| drop(rustls::crypto::ring::default_provider().install_default()));
    let testbed = SERVER.get().await.unwrap();
    let client = testbed.client().unwrap();
    for definition in capmaas_api::crd::all().unwrap() {
        testbed.apply_yaml(&serde_json::to_string(&definition).unwrap()).await.unwrap();
    }
    for (kind, plural) in [("Cluster", "clusters"), ("Machine", "machines")] {
        testbed.apply_yaml(&stand_in(kind, plural)).await.unwrap();
    }
    let (sender, core_version) = watch::channel("v1beta1".to_owned());
    // The version does not change here; the receiver keeps its value.
    drop(sender);
    Stage::Server(client.clone(), Box::new(KubeClient::new(client, core_version)))
}

/// A minimal definition of one of Cluster API's kinds.
fn stand_in(kind: &str, plural: &str) -> String {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.cluster.x-k8s.io") },
        "spec": {
            "group": "cluster.x-k8s.io", "scope": "Namespaced", "names": { "kind": kind, "plural": plural },
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
    .to_string()
}

fn memory() -> Stage {
    let (clock, _) = Clock::driven(Timestamp::from_second(1_800_000_000).unwrap());
    Stage::Memory(MemoryKubernetes::new(clock))
}

fn key(name: &str) -> Key {
    Key::new("default", name)
}

fn maas_machine(name: &str) -> Value {
    json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
        "metadata": { "name": name, "namespace": "default", "labels": { names::CLUSTER_NAME_LABEL: name } },
        "spec": { "image": "ubuntu/jammy", "minCPU": 2, "minMemory": 4096 },
    })
}

macro_rules! contract {
    ($($name:ident),+ $(,)?) => { $(
        mod $name {
            #[tokio::test]
            async fn on_the_api_server() {
                super::promises::$name(super::server().await).await;
            }

            #[tokio::test]
            async fn in_memory() {
                super::promises::$name(super::memory()).await;
            }
        }
    )+ };
}

contract!(
    what_does_not_exist_is_none_and_no_error,
    a_write_to_an_object_that_changed_is_a_conflict_and_changes_nothing,
    the_generation_follows_the_spec_and_nothing_else,
    an_object_with_a_finalizer_stays_until_it_is_taken_away,
    what_its_owner_leaves_behind_is_deleted,
    a_status_becomes_exactly_what_is_applied_but_for_conditions_of_others,
    a_status_is_not_written_to_an_object_that_changed,
    saying_the_same_again_is_no_write,
    secrets_and_config_maps_are_read_by_name,
    machines_are_listed_by_their_cluster,
    what_machines_stand_for_is_known_as_soon_as_they_are_listed,
    cluster_api_objects_are_read_in_the_version_that_is_served,
    an_event_is_published,
    a_provider_id_cannot_be_replaced,
    a_workload_cluster_without_a_kubeconfig_is_unavailable,
    nodes_are_listed_and_annotated_if_they_are_still_as_they_were_read,
    a_node_gets_its_labels_with_its_provider_id_if_it_is_still_as_it_was_read,
    what_is_applied_to_a_workload_cluster_is_read_back_and_other_fields_stay,
    every_maas_cluster_is_listed,
    a_secret_is_made_once_and_never_changes,
    a_machine_is_listed_live_and_deleted_only_as_it_was_read,
);
