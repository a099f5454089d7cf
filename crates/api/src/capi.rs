//! Small views of Cluster API's `Cluster` and `Machine` that read v1beta1 (cores up to v1.10) and v1beta2 alike.
//!
//! Which of the two is served is found out at run time, so the views carry their [`ApiResource`] as dynamic type. They
//! hold what this provider reads and nothing else, and never fail to decode.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Resource,
    core::{ApiResource, DynamicResourceScope, GroupVersionKind, ObjectMeta},
};
use serde::Deserialize;

use crate::{
    cluster::ControlPlaneEndpoint,
    condition::{Condition, ConditionStatus, Conditions},
    names,
    tolerant::Tolerant,
};

/// The API group of Cluster API's own kinds.
pub const GROUP: &str = "cluster.x-k8s.io";

/// The versions that the views read, best first: what the core stores needs no conversion.
pub const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// The best of the versions that an API server serves. `None`: Cluster API is not there, or too new or too old.
pub fn best_version<'a>(served: impl IntoIterator<Item = &'a str>) -> Option<&'static str> {
    let served: Vec<&str> = served.into_iter().collect();
    VERSIONS.into_iter().find(|version| served.contains(version))
}

/// A Cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Cluster {
    /// Name, labels, annotations, owners.
    pub metadata: ObjectMeta,
    /// What it should be.
    pub spec: Tolerant<ClusterSpec>,
    /// What it is.
    pub status: Tolerant<ClusterStatus>,
}

/// What a Cluster should be.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterSpec {
    /// Nothing may be done about the cluster.
    pub paused: Option<bool>,
    /// Where its API server is reached.
    pub control_plane_endpoint: Option<ControlPlaneEndpoint>,
    /// Network settings.
    pub cluster_network: Option<ClusterNetwork>,
    /// The infrastructure cluster.
    pub infrastructure_ref: Option<Reference>,
    /// The control plane.
    pub control_plane_ref: Option<Reference>,
}

/// Network settings of a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterNetwork {
    /// Port of the API server.
    pub api_server_port: Option<i64>,
}

/// What a Cluster is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterStatus {
    /// v1beta1: the infrastructure is there.
    pub infrastructure_ready: Option<bool>,
    /// v1beta2: how far the first set-up has come.
    pub initialization: Option<ClusterInitialization>,
    /// What holds for the cluster.
    pub conditions: Vec<Condition>,
    /// v1beta1 from Cluster API 1.9 on: the conditions that became those of v1beta2.
    pub v1beta2: NextConditions,
}

/// Conditions of the next version of the API, beside those of v1beta1.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NextConditions {
    /// What holds.
    pub conditions: Vec<Condition>,
}

/// How far the first set-up of a Cluster has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterInitialization {
    /// The infrastructure is there.
    pub infrastructure_provisioned: Option<bool>,
    /// The first control plane machine is up.
    pub control_plane_initialized: Option<bool>,
}

impl Cluster {
    /// The cluster is paused as a whole.
    pub fn is_paused(&self) -> bool {
        self.spec.paused == Some(true) || has_annotation(&self.metadata, names::PAUSED_ANNOTATION)
    }

    /// The infrastructure cluster has been ready once.
    pub fn infrastructure_ready(&self) -> bool {
        self.status.infrastructure_ready == Some(true)
            || self.initialization(|initialization| initialization.infrastructure_provisioned)
    }

    /// The first control plane machine has been up once.
    pub fn control_plane_initialized(&self) -> bool {
        self.status.conditions.is_true("ControlPlaneInitialized")
            || self.initialization(|initialization| initialization.control_plane_initialized)
    }

    /// Cluster API has lost its connection to the API server. Cores before 1.9 do not tell.
    pub fn api_server_is_away(&self) -> bool {
        let lost = |conditions: &[Condition]| conditions.has_status("RemoteConnectionProbe", &ConditionStatus::False);
        // The first connection is still to be made where nothing has come up yet.
        self.control_plane_initialized() && (lost(&self.status.conditions) || lost(&self.status.v1beta2.conditions))
    }

    /// Host and port of the API server, if it is known.
    pub fn endpoint(&self) -> Option<(&str, u16)> {
        self.spec.control_plane_endpoint.as_ref().and_then(ControlPlaneEndpoint::usable)
    }

    /// The port that the API server is meant to have, if anything is said about it.
    pub fn api_server_port(&self) -> Option<u16> {
        let port = self.spec.cluster_network.as_ref()?.api_server_port?;
        u16::try_from(port).ok().filter(|port| *port != 0)
    }

    fn initialization(&self, field: impl Fn(&ClusterInitialization) -> Option<bool>) -> bool {
        self.status.initialization.as_ref().and_then(field) == Some(true)
    }
}

/// A Machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Name, labels, annotations, owners.
    pub metadata: ObjectMeta,
    /// What it should be.
    pub spec: Tolerant<MachineSpec>,
    /// What it is.
    pub status: Tolerant<MachineStatus>,
}

/// What a Machine should be.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineSpec {
    /// Name of its Cluster.
    pub cluster_name: Option<String>,
    /// Where its bootstrap data is.
    pub bootstrap: Bootstrap,
    /// The infrastructure machine.
    pub infrastructure_ref: Option<Reference>,
    /// Kubernetes version.
    pub version: Option<String>,
    /// Where it should be placed.
    pub failure_domain: Option<String>,
    /// Name of the machine for Kubernetes.
    #[serde(rename = "providerID")]
    pub provider_id: Option<String>,
}

/// Where the bootstrap data of a Machine is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Bootstrap {
    /// Secret that holds it, once it has been made.
    pub data_secret_name: Option<String>,
}

/// What a Machine is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineStatus {
    /// The Node, once it has joined.
    pub node_ref: Option<NodeReference>,
    /// What holds for the machine.
    pub conditions: Vec<Condition>,
}

/// The Node of a Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeReference {
    /// Its name.
    pub name: String,
}

impl Machine {
    /// The Secret with the bootstrap data, once it has been made.
    pub fn bootstrap_secret(&self) -> Option<&str> {
        non_empty(self.spec.bootstrap.data_secret_name.as_ref())
    }

    /// Where it should be placed, if anything is said about it.
    pub fn failure_domain(&self) -> Option<&str> {
        non_empty(self.spec.failure_domain.as_ref())
    }

    /// Nobody knows how its Node is: its kubelet reports nothing any more, or the API server is away. A Node that says of itself that
    /// it is not ready does report.
    pub fn node_is_silent(&self) -> bool {
        let unknown = |type_| self.status.conditions.has_status(type_, &ConditionStatus::Undetermined);
        let joined = self.status.node_ref.as_ref().is_some_and(|node| !node.name.is_empty());
        // Of v1beta2, and of v1beta1.
        joined && (unknown("NodeReady") || unknown("NodeHealthy"))
    }

    /// It belongs to a control plane.
    pub fn is_control_plane(&self) -> bool {
        self.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(names::CONTROL_PLANE_LABEL))
    }
}

/// Whether a MaasMachine belongs to a control plane: its own label says so, or that of its Machine. Cluster API labels both of
/// those that it makes; whoever makes a Machine by hand labels that one.
pub fn is_control_plane(object: &crate::MaasMachine, machine: Option<&Machine>) -> bool {
    let labels = object.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(names::CONTROL_PLANE_LABEL))
        || machine.is_some_and(Machine::is_control_plane)
}

/// A reference in either form: with `apiVersion` (v1beta1) or `apiGroup` (v1beta2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Reference {
    api_version: Option<String>,
    api_group: Option<String>,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
}

impl Reference {
    /// Group of the object.
    pub fn group(&self) -> &str {
        match (&self.api_group, &self.api_version) {
            (Some(group), _) => group,
            (None, Some(api_version)) => group_of(api_version),
            (None, None) => "",
        }
    }

    /// Whether it names an object of ours of this kind.
    pub fn is_ours(&self, kind: &str) -> bool {
        self.group() == crate::GROUP && self.kind == kind
    }
}

/// The owner of this kind in Cluster API's group. The version does not count: Cluster API rewrites it.
pub fn owner<'a>(metadata: &'a ObjectMeta, kind: &str) -> Option<&'a OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.kind == kind && group_of(&owner.api_version) == GROUP)
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn non_empty(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

fn has_annotation(metadata: &ObjectMeta, key: &str) -> bool {
    metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(key))
}

macro_rules! view_resource {
    ($view:ident, $kind:literal, $plural:literal) => {
        impl $view {
            /// How to ask for it in this version.
            pub fn api_resource(version: &str) -> ApiResource {
                ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, version, $kind), $plural)
            }
        }

        impl Resource for $view {
            type DynamicType = ApiResource;
            type Scope = DynamicResourceScope;

            fn kind(dt: &ApiResource) -> Cow<'_, str> {
                dt.kind.as_str().into()
            }

            fn group(dt: &ApiResource) -> Cow<'_, str> {
                dt.group.as_str().into()
            }

            fn version(dt: &ApiResource) -> Cow<'_, str> {
                dt.version.as_str().into()
            }

            fn plural(dt: &ApiResource) -> Cow<'_, str> {
                dt.plural.as_str().into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
view_resource!(Cluster, "Cluster", "clusters");
view_resource!(Machine, "Machine", "machines");

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn clusters() -> [Cluster; 2] {
        let v1beta1 = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "metadata": {"name": "c"},
            "spec": {
                "paused": false, "controlPlaneEndpoint": {"host": "api.example", "port": 6443},
                "clusterNetwork": {"apiServerPort": 6443},
                "infrastructureRef": {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster", "name": "c", "namespace": "n"},
            },
            "status": {"infrastructureReady": true, "conditions": [
                {"type": "ControlPlaneInitialized", "status": "True", "lastTransitionTime": "2026-11-15T21:10:50Z"},
            ]},
        });
        let v1beta2 = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c"},
            "spec": {
                "controlPlaneEndpoint": {"host": "api.example", "port": 6443},
                "clusterNetwork": {"apiServerPort": 6443},
                "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MaasCluster", "name": "c"},
            },
            "status": {"initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true}},
        });
        [v1beta1, v1beta2].map(|stored| serde_json::from_value(stored).unwrap())
    }

    #[test]
    fn both_versions_of_a_cluster_say_the_same() {
        for cluster in clusters() {
            assert!(!cluster.is_paused());
            assert!(cluster.infrastructure_ready());
            assert!(cluster.control_plane_initialized());
            assert_eq!(cluster.endpoint(), Some(("api.example", 6443)));
            assert_eq!(cluster.api_server_port(), Some(6443));
            assert!(cluster.spec.infrastructure_ref.as_ref().unwrap().is_ours("MaasCluster"));
        }
    }

    #[test]
    fn a_new_cluster_has_nothing_yet() {
        let cluster: Cluster = serde_json::from_value(json!({"metadata": {"name": "c"}})).unwrap();
        assert!(!cluster.infrastructure_ready() && !cluster.control_plane_initialized() && !cluster.is_paused());
        assert_eq!((cluster.endpoint(), cluster.api_server_port()), (None, None));
    }

    #[test]
    fn a_cluster_is_paused_by_its_spec_or_by_the_annotation() {
        let by_spec: Cluster = serde_json::from_value(json!({"spec": {"paused": true}})).unwrap();
        let by_annotation: Cluster =
            serde_json::from_value(json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})).unwrap();
        assert!(by_spec.is_paused() && by_annotation.is_paused());
    }

    #[test]
    fn both_versions_of_a_machine_say_the_same() {
        for infrastructure in [
            json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine", "name": "m"}),
            json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MaasMachine", "name": "m"}),
        ] {
            let machine: Machine = serde_json::from_value(json!({
                "metadata": {"labels": {"cluster.x-k8s.io/control-plane": ""}},
                "spec": {
                    "bootstrap": {"dataSecretName": "s"}, "infrastructureRef": infrastructure,
                    "failureDomain": "az1", "providerID": "maas:///az1/abc123", "version": "v1.34.0",
                },
                "status": {"nodeRef": {"name": "node"}},
            }))
            .unwrap();
            assert_eq!(machine.bootstrap_secret(), Some("s"));
            assert_eq!(machine.failure_domain(), Some("az1"));
            assert_eq!(machine.spec.provider_id.as_deref(), Some("maas:///az1/abc123"));
            assert_eq!(machine.status.node_ref.as_ref().unwrap().name, "node");
            assert!(machine.is_control_plane());
            assert!(machine.spec.infrastructure_ref.as_ref().unwrap().is_ours("MaasMachine"));
        }
    }

    #[test]
    fn an_api_server_is_away_once_it_was_there() {
        let probe = |status: &str| json!([{"type": "RemoteConnectionProbe", "status": status}]);
        let initialized = json!({"controlPlaneInitialized": true});
        let is_away = |status: serde_json::Value| {
            serde_json::from_value::<Cluster>(json!({"status": status})).unwrap().api_server_is_away()
        };
        assert!(is_away(json!({"initialization": initialized, "conditions": probe("False")})));
        assert!(!is_away(json!({"initialization": initialized, "conditions": probe("True")})));
        assert!(!is_away(json!({"conditions": probe("False")})), "it was never reached");
        let up = json!([{"type": "ControlPlaneInitialized", "status": "True"}]);
        assert!(is_away(json!({"conditions": up, "v1beta2": {"conditions": probe("False")}})), "Cluster API 1.10");
        assert!(!is_away(json!({"conditions": up})), "Cluster API 1.5");
    }

    #[test]
    fn a_node_is_silent_if_nobody_knows_how_it_is() {
        let is_silent = |node: &str, type_: &str, status: &str| {
            let status = json!({"nodeRef": {"name": node}, "conditions": [{"type": type_, "status": status}]});
            serde_json::from_value::<Machine>(json!({"status": status})).unwrap().node_is_silent()
        };
        assert!(is_silent("n1", "NodeReady", "Unknown") && is_silent("n1", "NodeHealthy", "Unknown"));
        assert!(!is_silent("n1", "NodeReady", "False"), "it reports that it is not ready");
        assert!(!is_silent("", "NodeReady", "Unknown"), "it has not joined");
    }

    #[test]
    fn an_object_of_another_shape_still_reads() {
        let machine: Machine =
            serde_json::from_value(json!({"spec": {"bootstrap": 7, "failureDomain": ["a"]}, "status": "new"})).unwrap();
        assert_eq!(machine.bootstrap_secret(), None);
        assert_eq!(machine.spec.unreadable, ["bootstrap", "failureDomain"]);
        assert_eq!(machine.status.unreadable, ["."]);
    }

    #[test]
    fn the_owner_is_found_by_group_and_kind_whatever_its_version() {
        let metadata: ObjectMeta = serde_json::from_value(json!({"ownerReferences": [
            {"apiVersion": "example.com/v1", "kind": "Machine", "name": "foreign", "uid": "1"},
            {"apiVersion": "cluster.x-k8s.io/v1beta9", "kind": "Machine", "name": "m", "uid": "2"},
        ]}))
        .unwrap();
        assert_eq!(owner(&metadata, "Machine").unwrap().name, "m");
        assert!(owner(&metadata, "Cluster").is_none());
    }

    #[test]
    fn the_newest_version_that_both_know_is_used() {
        assert_eq!(best_version(["v1beta1", "v1beta2"]), Some("v1beta2"));
        assert_eq!(best_version(["v1alpha4", "v1beta1"]), Some("v1beta1"));
        assert_eq!(best_version(["v1"]), None);
        assert_eq!(Cluster::api_resource("v1beta1").api_version, "cluster.x-k8s.io/v1beta1");
    }
}
