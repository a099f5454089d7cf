//! The status of a `MaasMachine`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    cluster::Initialization, condition::Condition, machine::ProvisioningMode, text_enum::text_enum,
    tolerant::tolerant_struct,
};

text_enum! {
    /// What an address is for.
    AddressType, open {
        /// The host name.
        Hostname => "Hostname",
        /// Reachable from outside.
        ExternalIp => "ExternalIP",
        /// Reachable from inside.
        InternalIp => "InternalIP",
        /// A name for use from outside.
        ExternalDns => "ExternalDNS",
        /// A name for use from inside.
        InternalDns => "InternalDNS",
    }
}

/// One address of a machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct MachineAddress {
    /// Hostname, ExternalIP, InternalIP, ExternalDNS or InternalDNS.
    #[serde(rename = "type")]
    pub type_: AddressType,
    /// The address or name.
    pub address: String,
}

/// The observed state of the machine. It is observed again after it is lost (a move drops it).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct MaasMachineStatus {
    /// The machine is deployed and can be used (v1beta1 contract). Unlike initialization.provisioned it may return to
    /// false.
    #[serde(default)]
    pub ready: bool,
    /// How far the first set-up has come (v1beta2 contract).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// State of the machine, as MAAS names it: Deployed, Deploying, Failed deployment, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_state: Option<String>,
    /// The machine's power is on, as far as MAAS knows.
    #[serde(default)]
    pub machine_powered: bool,
    /// Name of the machine in MAAS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The machine's address is in the DNS record of the cluster's API server. Control plane machines only.
    #[serde(default)]
    pub dns_attached: bool,
    /// Addresses and names of the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<MachineAddress>,
    /// The MAAS zone that the machine is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
    /// The kind of the machine: bare-metal or lxd, as derived from the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning_mode: Option<ProvisioningMode>,
    /// LXD host that the VM is on. VMs only.
    #[serde(default, rename = "lxdHost", skip_serializing_if = "Option::is_none")]
    pub lxd_host: Option<String>,
    /// LXD project that the VM is in. VMs only.
    #[serde(default, rename = "lxdProject", skip_serializing_if = "Option::is_none")]
    pub lxd_project: Option<String>,
    /// The resources of the VM. VMs only.
    #[serde(default, rename = "vmResourceUsage", skip_serializing_if = "Option::is_none")]
    pub vm_resource_usage: Option<VmResourceUsage>,
    /// The current conditions of the machine: Ready is the summary; Paused, MachineDeployed, DNSAttached and, for a VM,
    /// LXDHostSelected, LXDResourcesAllocated, LXDVMCreated and LXDVMDeployed report the parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// One word for a failure that does not resolve itself (v1beta1 contract): Cluster API considers the Machine failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// The same in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,

    /// Parts of a stored status that could not be read; the next write replaces them.
    #[serde(skip)]
    pub unreadable: Vec<String>,
}
tolerant_struct!(MaasMachineStatus);

/// The resources that a VM was created with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct VmResourceUsage {
    /// CPU cores.
    pub allocated_cores: i64,
    /// Memory in MB.
    pub allocated_memory: i64,
    /// Disk in GB.
    pub allocated_disk: i64,
}
