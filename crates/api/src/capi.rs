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
    failure_domains::FailureDomains,
    names,
    tolerant::{Tolerant, WHOLE_VALUE},
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
    /// The failure domains that machines can be placed in.
    pub failure_domains: Option<FailureDomains>,
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

    /// The failure domains that a control plane is spread over; `None` if they cannot be read.
    pub fn control_plane_failure_domains(&self) -> Option<Vec<String>> {
        let hidden = |path: &String| path.starts_with("failureDomains") || path == WHOLE_VALUE;
        if self.status.unreadable.iter().any(hidden) {
            return None;
        }
        let all = self.status.failure_domains.iter().flat_map(FailureDomains::entries);
        Some(all.filter(|(_, details)| details.control_plane == Some(true)).map(|(name, _)| name.to_owned()).collect())
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
    /// v1beta1 from Cluster API 1.9 on: the conditions that became those of v1beta2.
    pub v1beta2: NextConditions,
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

    /// Whether its owner would create it as it is; `Some(false)`: the owner is going to replace it. Cores before 1.9 do not tell.
    pub fn is_up_to_date(&self) -> Option<bool> {
        let said = [&self.status.conditions, &self.status.v1beta2.conditions];
        let said = said.into_iter().find_map(|conditions| conditions.condition("UpToDate"))?;
        match said.status {
            ConditionStatus::True => Some(true),
            ConditionStatus::False => Some(false),
            _ => None,
        }
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
mod tests;
