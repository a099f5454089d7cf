//! `MaasCluster`: the network name of a cluster, its zones, and whether its machines become LXD hosts.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{condition::Condition, failure_domains::FailureDomains, text_enum::text_enum, tolerant::tolerant_struct};

text_enum! {
    /// How the NIC of a VM is attached to its host.
    NicType, closed {
        /// To a bridge.
        Bridge => "bridge",
        /// The same, as LXD itself calls it.
        Bridged => "bridged",
        /// To the host's interface directly, without a bridge.
        Macvlan => "macvlan",
    }
}

text_enum! {
    /// Whether VMs of a cluster may be replaced because their LXD host is in maintenance or is being removed.
    Evacuation, closed {
        /// Their Machines are deleted one by one, as far as control planes and MachineDeployments can spare them.
        Automatic => "Automatic",
        /// Only a person deletes them.
        Manual => "Manual",
    }
}

/// The desired state of the cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "MaasCluster",
    plural = "maasclusters",
    namespaced,
    status = "MaasClusterStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "maasc",
    category = "cluster-api",
    label("cluster.x-k8s.io/provider", "infrastructure-maas"),
    label("cluster.x-k8s.io/v1beta1", "v1beta1"),
    label("cluster.x-k8s.io/v1beta2", "v1beta1"),
    doc = "MaasCluster is the MAAS side of a Cluster API Cluster: the DNS name of its API server in MAAS, its zones, and whether its machines become LXD hosts for the VMs of other clusters."
)]
#[serde(remote = "Self", rename_all = "camelCase")]
#[schemars(extend("required" = ["dnsDomain"]))]
pub struct MaasClusterSpec {
    /// MAAS DNS domain in which the name of the API server is created, for instance "maas" or "k8s.example". It must exist
    /// in MAAS. Required, and cannot change later, because the name in every kubeconfig ends with it.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub dns_domain: String,

    /// Where the cluster's API server is reached. Leave it out: a name in dnsDomain is created and filled in here. Set it
    /// (with the annotation spectrocloud.com/custom-dns-provided) when a load balancer or virtual address of your own
    /// points to the control plane; then no DNS record is created in MAAS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<ControlPlaneEndpoint>,

    /// Names of MAAS zones over which control plane machines are spread. Absent: none are published and MAAS picks the
    /// zone, unless discoverFailureDomains is true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failure_domains: Vec<String>,

    /// Publish every MAAS zone that holds usable machines as a failure domain. Only used when failureDomains is
    /// empty. Absent means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discover_failure_domains: Option<bool>,

    /// Networks in CIDR notation, such as 10.0.0.0/16 or fd00:10::/64, best first. The API server's name resolves
    /// only to machine addresses inside them. Absent: the ConfigMap maas-preferred-subnet of the namespace applies if it
    /// exists, otherwise every address is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 64)))]
    pub preferred_subnets: Vec<String>,

    /// The Secret with the MAAS credentials of this cluster. Absent: the manager's own credentials are used. A change to
    /// another MAAS or another user does not affect existing machines, but nothing is allocated until one of them has
    /// been seen with the new credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_ref: Option<IdentityReference>,

    /// What happens to VMs of this cluster whose LXD host goes into maintenance or is being removed. Automatic: their Machines are deleted
    /// one at a time, while the control plane is healthy and keeps its quorum, or as maxUnavailable of the MachineDeployment allows,
    /// so that Cluster API replaces them on another host. Manual: the host waits until a person deletes them. Absent means Automatic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evacuation: Option<Evacuation>,

    /// The machines of this cluster become LXD hosts that MAAS can put VMs on (its VMs, if it has any, do not). Same
    /// as lxdConfig.enabled; if both are set they must agree. If neither is set: false.
    #[serde(default, rename = "lxdControlPlaneCluster", skip_serializing_if = "Option::is_none")]
    pub lxd_control_plane_cluster: Option<bool>,

    /// How the machines of this cluster are set up as LXD hosts. Without effect unless lxdControlPlaneCluster or
    /// lxdConfig.enabled is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lxd_config: Option<ClusterLxdConfig>,

    /// Parts of a stored spec that could not be read: unknown, not absent.
    #[serde(skip)]
    pub unreadable: Vec<String>,
}
tolerant_struct!(MaasClusterSpec);

/// A Secret with MAAS credentials: key maasEndpoint with the address, such as http://maas.example:5240/MAAS, key apiKey
/// with consumer:token:secret, and key ca.crt with the authority to trust if it is not a public one. Give it the label
/// clusterctl.cluster.x-k8s.io/move, so that clusterctl move includes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("required" = ["name"]))]
pub struct IdentityReference {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the Secret. Absent: that of the cluster. Others must be allowed by the manager's flag
    /// --identity-namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// Where an API server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["host", "port"]))]
pub struct ControlPlaneEndpoint {
    /// DNS name or address. Empty means not known yet.
    pub host: String,
    /// TCP port, 1 to 65535. 0 means not known yet.
    pub port: i64,
}

impl ControlPlaneEndpoint {
    /// Host and port, if both are usable.
    pub fn usable(&self) -> Option<(&str, u16)> {
        let port = u16::try_from(self.port).ok().filter(|port| *port != 0)?;
        (!self.host.is_empty()).then_some((self.host.as_str(), port))
    }
}

/// How a machine is set up as an LXD host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterLxdConfig {
    /// The machines of this cluster become LXD hosts. Same as lxdControlPlaneCluster; if both are set they must agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Driver of the storage pool for VM disks: zfs, btrfs, lvm or dir. Absent means zfs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_backend: Option<String>,
    /// Size of the storage pool. A plain number is GB; units such as GB, GiB or TiB are understood. Absent means 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_size: Option<String>,
    /// Name of the bridge that VMs are attached to. Absent means br0. It is created on each host unless skipNetworkUpdate is
    /// true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_bridge: Option<String>,
    /// MAAS zone that the hosts are registered in. Absent or empty means the zone of each machine itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// MAAS resource pool that the hosts are registered in. Absent or empty means the pool of each machine itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_pool: Option<String>,
    /// How VMs are attached: bridge (bridged is the same) or macvlan. Absent means bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nic_type: Option<NicType>,
    /// Host interface or existing bridge that VMs are attached to. Absent means the machine's boot interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nic_parent: Option<String>,
    /// Leave the networks of the host as they are: create no bridge. Absent means false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_network_update: Option<bool>,
}

impl ClusterLxdConfig {
    /// Default driver of the storage pool.
    pub const DEFAULT_STORAGE_BACKEND: &'static str = "zfs";
    /// Default size of the storage pool, in GB.
    pub const DEFAULT_STORAGE_SIZE: &'static str = "50";
    /// Default name of the bridge.
    pub const DEFAULT_NETWORK_BRIDGE: &'static str = "br0";

    /// Driver of the storage pool, or its default.
    pub fn storage_backend_or_default(&self) -> &str {
        said(self.storage_backend.as_ref()).unwrap_or(Self::DEFAULT_STORAGE_BACKEND)
    }

    /// Size of the storage pool, or its default.
    pub fn storage_size_or_default(&self) -> &str {
        said(self.storage_size.as_ref()).unwrap_or(Self::DEFAULT_STORAGE_SIZE)
    }

    /// Name of the bridge, or its default.
    pub fn network_bridge_or_default(&self) -> &str {
        said(self.network_bridge.as_ref()).unwrap_or(Self::DEFAULT_NETWORK_BRIDGE)
    }

    /// Zone to register hosts in; `None` means each machine's own.
    pub fn zone(&self) -> Option<&str> {
        said(self.zone.as_ref())
    }

    /// Resource pool to register hosts in; `None` means each machine's own.
    pub fn resource_pool(&self) -> Option<&str> {
        said(self.resource_pool.as_ref())
    }
}

/// The Go provider could store an empty text where nothing was meant.
pub(crate) fn said(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

/// The observed state of the cluster. It is observed again after it is lost (a move drops it).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct MaasClusterStatus {
    /// The cluster's infrastructure can be used (v1beta1 contract). Same as initialization.provisioned.
    #[serde(default)]
    pub ready: bool,
    /// How far the first set-up has come (v1beta2 contract).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// Names in the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkStatus>,
    /// Zones that machines can be placed in. A map of name to details for Cluster API up to v1.10, a list of named
    /// entries for later ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_domains: Option<FailureDomains>,
    /// The current conditions of the cluster: Ready is the summary; Paused, LoadBalancerReady (the DNS name),
    /// APIServerAvailable and LXDReady report the parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// Parts of a stored status that could not be read; the next write replaces them.
    #[serde(skip)]
    pub unreadable: Vec<String>,
}
tolerant_struct!(MaasClusterStatus);

/// How far the first set-up has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Initialization {
    /// True once the infrastructure was ready for the first time; it never returns to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<bool>,
}

/// Names of the cluster in the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkStatus {
    /// Full DNS name of the API server.
    #[serde(rename = "dnsName", skip_serializing_if = "Option::is_none")]
    pub dns_name: Option<String>,
}
