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
    /// The kind of machine that is requested.
    ProvisioningMode, closed {
        /// A physical machine, allocated from MAAS.
        BareMetal => "bare-metal",
        /// A VM that MAAS composes on an LXD host.
        Lxd => "lxd",
    }
}

text_enum! {
    /// How the disks are erased when the machine is released.
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

/// Size of a VM's root disk, in GB, by default.
pub const DEFAULT_VM_DISK_GB: i64 = 60;
/// The minimum memory of a VM in MAAS, in MB.
pub const MINIMUM_VM_MEMORY_MB: i64 = 1024;

/// The desired state of the machine.
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
    /// MAAS zone to allocate the machine from. Machine.spec.failureDomain takes precedence. Absent: any zone. The
    /// actual zone is in status.failureDomain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,

    /// MAAS system ID of the machine. Set it to request one particular machine; absent means any that fits. Once a
    /// machine is allocated, this is its ID.
    #[serde(default, rename = "systemID", skip_serializing_if = "Option::is_none")]
    pub system_id: Option<String>,

    /// Name of the machine for Kubernetes, equal to the Node's: maas://<zone>/<system ID> for metal,
    /// maas-lxd://<zone>/<system ID> for VMs. Set by capmaas; do not set it yourself. It can be set once and not be replaced.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,

    /// MAAS resource pool: of the machine for metal, of the LXD host for VMs. Absent: any pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_pool: Option<String>,

    /// Number of CPU cores: a minimum for bare metal, the exact number for a VM (which needs at least 1). Required, and
    /// cannot change later.
    #[serde(default, rename = "minCPU")]
    #[schemars(range(min = 0))]
    pub min_cpu: i64,

    /// Memory in MB: a minimum for bare metal, the exact amount for a VM (which needs at least 1024). Required, and
    /// cannot change later.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub min_memory: i64,

    /// Disk in GB: a minimum for bare metal; the size of the root disk for a VM where lxdConfig.storage.size and
    /// lxd.vmConfig.diskSize are not set. Absent: no limit for bare metal, 60 for a VM.
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

    /// Run the system from memory and leave the disks alone. Bare metal only; needs a MAAS that supports it and 16 GB of memory
    /// or more. Absent means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy_in_memory: Option<bool>,

    /// System ID of the machine that hosts this VM. Marks the machine as a VM of that host; to choose a host use
    /// lxdConfig.vmHost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,

    /// What kind of machine this is: bare-metal (a physical machine) or lxd (a VM on an LXD host). dynamicLXD and
    /// lxd.enabled are other forms of the same choice; those that are set must agree. If none is set: bare metal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning_mode: Option<ProvisioningMode>,

    /// true: this machine is a VM on an LXD host. Same as provisioningMode: lxd.
    #[serde(default, rename = "dynamicLXD", skip_serializing_if = "Option::is_none")]
    pub dynamic_lxd: Option<bool>,

    /// Fixed IP address, such as 192.168.1.100, in a subnet that MAAS knows and that the machine is attached to; assigned
    /// once the machine is allocated. Or an object with ip, cidr, gateway and nameservers, in which a missing or empty ip means
    /// to wait until somebody (an IPAM controller) fills it in. Absent: MAAS assigns an address.
    #[serde(default, rename = "staticIP", skip_serializing_if = "Option::is_none")]
    pub static_ip: Option<StaticIp>,

    /// Settings of a VM: storage, network, host, project, profile. Not allowed on a bare-metal machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lxd_config: Option<MachineLxdConfig>,

    /// The VM switch and VM settings of earlier releases. provisioningMode and lxdConfig replace them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lxd: Option<LxdSection>,

    /// Labels for the Node, which it gets together with its provider ID, once: a label that it has by then stays as it is, and later
    /// changes are not followed. topology.kubernetes.io/zone is set to the MAAS zone unless it is given here, where
    /// topology.kubernetes.io/region can be given too. Labels of the Machine that Cluster API itself syncs to Nodes take precedence.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = { "type": "string", "maxLength": 63 }))]
    pub node_labels: BTreeMap<String, String>,

    /// What happens to the machine when it is released.
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
    /// LXD profile of the VM. MAAS gives VMs the profile `maas` of their project, if it exists, and no other: only that one can be
    /// requested, and the VM is placed where the agent reports it. Absent: no particular one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub profile: Option<String>,
    /// The root disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<LxdStorageConfig>,
    /// The NICs.
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

/// The NICs of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LxdNetworkConfig {
    /// Bridge of the host that the first NIC is attached to. Absent: the network that the host boots from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 15))]
    pub bridge: Option<String>,
    /// Further NICs, one for each entry: the subnet (by name or CIDR) that it is attached to. Absent: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub devices: Vec<String>,
}

/// The VM switch and VM settings of the Go provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct LxdSection {
    /// true: this machine is a VM on an LXD host. Same as provisioningMode: lxd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Settings of the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_config: Option<VmConfig>,
}

/// VM settings of the Go provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct VmConfig {
    /// Size of the root disk in GB. lxdConfig.storage.size takes precedence. Absent: minDiskSize, else 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_size: Option<i64>,
    /// Storage pool of the LXD host. lxdConfig.storage.pool takes precedence. Absent: the host's default pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_pool: Option<String>,
    /// Subnets of the NICs, separated by commas: the first NIC gets the first subnet. Absent: one NIC in the
    /// network that the host boots from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// How each NIC (eth0, eth1, …) gets its address: auto, dhcp, static or link_up. Absent: auto for the first,
    /// dhcp for the others.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub interface_link_modes: BTreeMap<String, String>,
    /// Start the VM together with its host. Absent means true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_start: Option<bool>,
}

/// What happens to a machine when it is released.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Release {
    /// How the disks are erased: none, quick (beginning and end of each disk), secure (the disk's own secure erase) or full
    /// (every block is overwritten, which takes hours). The machine is not available before that is done. Absent: MAAS's own setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erase: Option<Erase>,
}
