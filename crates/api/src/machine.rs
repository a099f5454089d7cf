//! `MaasMachine`: one machine of a cluster, either a physical one from MAAS or an LXD VM that MAAS makes.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    cluster::said, machine_status::MaasMachineStatus, static_ip::StaticIp, text_enum::text_enum,
    tolerant::tolerant_struct,
};

text_enum! {
    /// What kind of machine is asked for.
    ProvisioningMode, closed {
        /// A physical machine, allocated from MAAS.
        BareMetal => "bare-metal",
        /// A VM that MAAS composes on an LXD host.
        Lxd => "lxd",
    }
}

text_enum! {
    /// How the disks are wiped when the machine is given back.
    Erase, closed {
        /// Not at all.
        None => "none",
        /// The beginning and end of each disk.
        Quick => "quick",
        /// By the disk's own secure erase.
        Secure => "secure",
        /// Every block is overwritten.
        Full => "full",
    }
}

/// Size of a VM's root disk, in GB, if nothing is said about it.
pub const DEFAULT_VM_DISK_GB: i64 = 60;
/// The least memory, in MB, that MAAS gives to a VM.
pub const MINIMUM_VM_MEMORY_MB: i64 = 1024;

/// What the machine should be.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "MaasMachine",
    plural = "maasmachines",
    namespaced,
    status = "MaasMachineStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "maasm",
    category = "cluster-api",
    label("cluster.x-k8s.io/provider", "infrastructure-maas"),
    label("cluster.x-k8s.io/v1beta1", "v1beta1"),
    label("cluster.x-k8s.io/v1beta2", "v1beta1"),
    doc = "MaasMachine is one machine of a cluster: a physical machine allocated from MAAS, or a VM that MAAS composes on an LXD host. Cluster API makes it from a MaasMachineTemplate."
)]
#[serde(remote = "Self", rename_all = "camelCase")]
#[schemars(extend("required" = ["image", "minCPU", "minMemory"]))]
pub struct MaasMachineSpec {
    /// MAAS zone to take the machine from. Machine.spec.failureDomain wins over it. Absent: any zone. Where the
    /// machine is stands in status.failureDomain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,

    /// MAAS system ID of the machine. Set it to ask for one particular machine; absent means any that fits. Once a
    /// machine is there, this is its ID.
    #[serde(default, rename = "systemID", skip_serializing_if = "Option::is_none")]
    pub system_id: Option<String>,

    /// Name of the machine for Kubernetes, equal to the Node's: maas://<zone>/<system ID> for metal,
    /// maas-lxd://<zone>/<system ID> for VMs. Filled in; do not set it yourself. It can be set once and not be replaced.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,

    /// MAAS resource pool: of the machine for metal, of the LXD host for VMs. Absent: any pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_pool: Option<String>,

    /// Number of CPU cores: at least so many for metal, exactly so many for a VM (which needs at least 1). Required, and
    /// cannot change later.
    #[serde(default, rename = "minCPU")]
    #[schemars(range(min = 0))]
    pub min_cpu: i64,

    /// Memory in MB: at least so much for metal, exactly so much for a VM (which needs at least 1024). Required, and
    /// cannot change later.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub min_memory: i64,

    /// Disk in GB: at least so much for metal; the size of the root disk for a VM where lxdConfig.storage.size and
    /// lxd.vmConfig.diskSize say nothing. Absent: no limit for metal, 60 for a VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_disk_size: Option<i64>,

    /// MAAS tags that the machine must carry, all of them. For a VM, tags that its host must carry, and that the VM gets
    /// as well. Absent: no restriction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,

    /// Image to deploy: os/series as MAAS knows it, for instance ubuntu/jammy, or the name of a custom image. Required,
    /// and cannot change later.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub image: String,

    /// Run the system from memory and leave the disks alone. Metal only; needs a MAAS that can do it and 16 GB of memory
    /// or more. Absent means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy_in_memory: Option<bool>,

    /// System ID of the machine that hosts this VM. Marks the machine as a VM of that host; to choose a host use
    /// lxdConfig.vmHost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,

    /// What kind of machine this is: bare-metal (a physical machine) or lxd (a VM on an LXD host). dynamicLXD and
    /// lxd.enabled say the same in another way; those that are given must agree. Absent means not said, and nothing said
    /// means bare metal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning_mode: Option<ProvisioningMode>,

    /// true: this machine is a VM on an LXD host. Says the same as provisioningMode: lxd. Absent means not said.
    #[serde(default, rename = "dynamicLXD", skip_serializing_if = "Option::is_none")]
    pub dynamic_lxd: Option<bool>,

    /// Fixed IP address, such as 192.168.1.100, out of a subnet that MAAS knows and that the machine is attached to; taken
    /// once the machine is there. Or an object with ip, cidr, gateway and nameservers, in which a missing or empty ip means
    /// to wait until somebody (an IPAM controller) fills it in. Absent: MAAS assigns an address.
    #[serde(default, rename = "staticIP", skip_serializing_if = "Option::is_none")]
    pub static_ip: Option<StaticIp>,

    /// Settings of a VM: storage, network, host, project, profile. Not allowed on a machine that says it is bare metal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lxd_config: Option<MachineLxdConfig>,

    /// The VM switch and VM settings as earlier releases had them. provisioningMode and lxdConfig say the same and more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lxd: Option<LxdSection>,

    /// Labels for the Node, which it gets together with its provider ID, once: a label that it has by then stays as it is, and later
    /// changes are not followed. topology.kubernetes.io/zone is set to the MAAS zone unless it is given here, where
    /// topology.kubernetes.io/region can be given too. Labels of the Machine that Cluster API puts on Nodes itself win over these.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = { "type": "string", "maxLength": 63 }))]
    pub node_labels: BTreeMap<String, String>,

    /// What happens to the machine when it is given back to MAAS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,

    /// Parts of a stored spec that could not be read: unknown, not absent. Nothing may be done to a machine whose spec has
    /// any.
    #[serde(skip)]
    pub unreadable: Vec<String>,
}
tolerant_struct!(MaasMachineSpec);

impl MaasMachineSpec {
    /// The provider ID, unless it is absent or empty.
    pub fn provider_id(&self) -> Option<&str> {
        said(self.provider_id.as_ref())
    }

    /// The system ID, unless it is absent or empty.
    pub fn system_id(&self) -> Option<&str> {
        said(self.system_id.as_ref())
    }

    /// The zone, unless it is absent or empty.
    pub fn failure_domain(&self) -> Option<&str> {
        said(self.failure_domain.as_ref())
    }

    /// The resource pool, unless it is absent or empty.
    pub fn resource_pool(&self) -> Option<&str> {
        said(self.resource_pool.as_ref())
    }
}

/// Settings of an LXD VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineLxdConfig {
    /// LXD profile of the VM. MAAS gives VMs the profile `maas` of their project, where there is one, and no other: that one can be
    /// asked for, and the VM goes where the agent reports it. Absent: no particular one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub profile: Option<String>,
    /// The root disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<LxdStorageConfig>,
    /// The network cards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<LxdNetworkConfig>,
    /// The one LXD host to use, by its name, system ID or number in MAAS. Absent: the best host that fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub vm_host: Option<String>,
    /// LXD project that the host is registered with. Absent: hosts of any project.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub project: Option<String>,
}

/// The root disk of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LxdStorageConfig {
    /// Size of the disk. A plain number is GB; units such as GB, GiB or TiB are understood. Absent:
    /// lxd.vmConfig.diskSize, else minDiskSize, else 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub size: Option<String>,
    /// Storage pool of the LXD host. Absent: the host's default pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub pool: Option<String>,
}

/// The network cards of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LxdNetworkConfig {
    /// Bridge of the host that the first card is attached to. Absent: the network that the host boots from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 15))]
    pub bridge: Option<String>,
    /// Further cards, one for each entry: the subnet (by name or CIDR) that it is attached to. Absent: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub devices: Vec<String>,
}

/// The VM switch and VM settings as the Go provider had them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct LxdSection {
    /// true: this machine is a VM on an LXD host. Says the same as provisioningMode: lxd. Absent means not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Settings of the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_config: Option<VmConfig>,
}

/// Settings of a VM as the Go provider had them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct VmConfig {
    /// Size of the root disk in GB. lxdConfig.storage.size wins over it. Absent: minDiskSize, else 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_size: Option<i64>,
    /// Storage pool of the LXD host. lxdConfig.storage.pool wins over it. Absent: the host's default pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_pool: Option<String>,
    /// Subnets of the network cards, separated by commas: the first card gets the first subnet. Absent: one card in the
    /// network that the host boots from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// How each network card (eth0, eth1, …) gets its address: auto, dhcp, static or link_up. Absent: auto for the first,
    /// dhcp for the others.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub interface_link_modes: BTreeMap<String, String>,
    /// Start the VM together with its host. Absent means true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_start: Option<bool>,
}

/// What happens to a machine when it is given back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Release {
    /// How the disks are wiped: none, quick (beginning and end of each disk), secure (the disk's own secure erase) or full
    /// (every block is overwritten, which takes hours). The machine is not free before it is done. Absent: as MAAS is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erase: Option<Erase>,
}
