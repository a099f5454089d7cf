//! The templates that Cluster API clones clusters and machines from.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{cluster::MaasClusterSpec, machine::MaasMachineSpec, tolerant::tolerant_struct};

/// Labels and annotations of the objects that are created from a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TemplateMetadata {
    /// Labels of all objects that are created from the template.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of all objects that are created from the template.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The object to create from the template.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "MaasMachineTemplate",
    plural = "maasmachinetemplates",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    shortname = "maasmt",
    category = "cluster-api",
    label("cluster.x-k8s.io/provider", "infrastructure-maas"),
    label("cluster.x-k8s.io/v1beta1", "v1beta1"),
    label("cluster.x-k8s.io/v1beta2", "v1beta1"),
    doc = "MaasMachineTemplate is what Cluster API makes the MaasMachines of a control plane or MachineDeployment from. It does not change: to change machines, make a template with another name and point the control plane or MachineDeployment at it."
)]
#[serde(remote = "Self")]
#[schemars(extend("required" = ["template"]))]
pub struct MaasMachineTemplateSpec {
    /// The MaasMachine to create.
    #[serde(default)]
    pub template: MachineTemplate,

    /// Parts of a stored spec that could not be read: unknown, not absent.
    #[serde(skip)]
    pub unreadable: Vec<String>,
}
tolerant_struct!(MaasMachineTemplateSpec);

/// A MaasMachine to create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["spec"]))]
pub struct MachineTemplate {
    /// Labels and annotations of the MaasMachines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// The spec of the MaasMachines.
    pub spec: MaasMachineSpec,
}

/// The object to create from the template.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "MaasClusterTemplate",
    plural = "maasclustertemplates",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    shortname = "maasct",
    category = "cluster-api",
    label("cluster.x-k8s.io/provider", "infrastructure-maas"),
    label("cluster.x-k8s.io/v1beta1", "v1beta1"),
    label("cluster.x-k8s.io/v1beta2", "v1beta1"),
    doc = "MaasClusterTemplate is what Cluster API makes the MaasCluster of a Cluster with a topology (a ClusterClass) from. It does not change: make a template with another name and point the ClusterClass at it."
)]
#[serde(remote = "Self")]
#[schemars(extend("required" = ["template"]))]
pub struct MaasClusterTemplateSpec {
    /// The MaasCluster to create.
    #[serde(default)]
    pub template: ClusterTemplate,

    /// Parts of a stored spec that could not be read: unknown, not absent.
    #[serde(skip)]
    pub unreadable: Vec<String>,
}
tolerant_struct!(MaasClusterTemplateSpec);

/// A MaasCluster to create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["spec"]))]
pub struct ClusterTemplate {
    /// Labels and annotations of the MaasClusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// The spec of the MaasClusters.
    pub spec: MaasClusterSpec,
}
