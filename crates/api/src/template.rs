//! The templates that Cluster API clones clusters and machines from.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{cluster::MaasClusterSpec, machine::MaasMachineSpec};

/// Labels and annotations for what is made from a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TemplateMetadata {
    /// Labels that everything made from the template carries.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations that everything made from the template carries.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What is made from the template.
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
    doc = "MaasMachineTemplate is what Cluster API makes the MaasMachines of a control plane or MachineDeployment from. It does not change: to change machines, make a template with another name and point the control plane or MachineDeployment at it.",
    printcolumn(
        name = "Mode",
        type_ = "string",
        json_path = ".spec.template.spec.provisioningMode",
        description = "bare-metal or lxd, if the template says so by provisioningMode"
    ),
    printcolumn(
        name = "Image",
        type_ = "string",
        json_path = ".spec.template.spec.image",
        description = "Image that is deployed"
    ),
    printcolumn(name = "CPU", type_ = "integer", json_path = ".spec.template.spec.minCPU", description = "CPU cores"),
    printcolumn(
        name = "Memory",
        type_ = "integer",
        json_path = ".spec.template.spec.minMemory",
        description = "Memory in MB"
    ),
    printcolumn(
        name = "Pool",
        type_ = "string",
        json_path = ".spec.template.spec.resourcePool",
        description = "MAAS resource pool",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the object was created"
    )
)]
#[serde(default)]
#[schemars(extend("required" = ["template"]))]
pub struct MaasMachineTemplateSpec {
    /// The MaasMachine to make.
    pub template: MachineTemplate,
}

/// A MaasMachine to make.
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

/// What is made from the template.
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
    doc = "MaasClusterTemplate is what Cluster API makes the MaasCluster of a Cluster with a topology (a ClusterClass) from. It does not change: make a template with another name and point the ClusterClass at it.",
    printcolumn(
        name = "Domain",
        type_ = "string",
        json_path = ".spec.template.spec.dnsDomain",
        description = "MAAS DNS domain"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the object was created"
    )
)]
#[serde(default)]
#[schemars(extend("required" = ["template"]))]
pub struct MaasClusterTemplateSpec {
    /// The MaasCluster to make.
    pub template: ClusterTemplate,
}

/// A MaasCluster to make.
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
