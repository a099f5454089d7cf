//! The names of all conditions, with what they mean.

use crate::reasons::Entry;

/// Declares names together with the table that states what they mean and what a person does about them.
macro_rules! name_table {
    ($($(#[$meta:meta])* $constant:ident = $name:literal, $meaning:literal, $action:literal;)+) => {
        $($(#[$meta])* #[doc = $meaning] #[doc = ""] #[doc = $action] pub const $constant: &str = $name;)+

        /// All of them, with what they mean and what a person does about them.
        pub const ALL: &[$crate::reasons::Entry] =
            &[$($crate::reasons::Entry { name: $name, meaning: $meaning, action: $action }),+];
    };
}
pub(crate) use name_table;

name_table! {
    READY = "Ready", "The object is in its desired state. Summarizes the other conditions; Cluster API shows it as InfrastructureReady.",
        "If it is not True, read its message: it names the condition that is not met.";
    PAUSED = "Paused", "The object is not reconciled, because it or its Cluster is paused.",
        "Remove the annotation cluster.x-k8s.io/paused, or set the Cluster's spec.paused to false, to go on.";
    DELETING = "Deleting", "The object is being deleted. The message shows what it waits for.",
        "If it takes long, resolve what the message names.";
    CREDENTIALS_VALID = "CredentialsValid", "MAAS accepts the credentials that apply to this cluster. Unknown while MAAS does not answer.",
        "If it is False, correct the credentials that the message names; no restart is needed.";
    MACHINE_DEPLOYED = "MachineDeployed", "The machine exists and runs the image.",
        "If it is False, the reason shows which step is pending.";
    DNS_ATTACHED = "DNSAttached", "The machine's address is in the DNS record of the cluster's API server. Control plane machines only.",
        "If it stays False, see the MaasCluster's LoadBalancerReady.";
    LOAD_BALANCER_READY = "LoadBalancerReady", "The name of the cluster's API server exists in MAAS's DNS, or is provided by the user.",
        "If it is False, check that spec.dnsDomain exists in MAAS and that the credentials may change it.";
    API_SERVER_AVAILABLE = "APIServerAvailable", "The cluster's API server answers.",
        "If it stays False, look at the console of the first control plane machine: its set-up has not finished.";
    LXD_READY = "LXDReady", "Every machine of the cluster that should be an LXD host is registered as one in MAAS.",
        "If it is False, the message names the machines; look at the logs of the lxd-initializer Pods there.";
    LXD_HOST_SELECTED = "LXDHostSelected", "A host for the VM was found.",
        "If it is False, the reason shows what no host has.";
    LXD_RESOURCES_ALLOCATED = "LXDResourcesAllocated", "Cores, memory and disk of the host are set aside for the VM.",
        "If it is False, free or add resources on the hosts that the message names.";
    LXD_VM_CREATED = "LXDVMCreated", "MAAS has composed the VM and added it to its inventory.",
        "If it is False, the message contains MAAS's error.";
    LXD_VM_DEPLOYED = "LXDVMDeployed", "The VM runs the image.",
        "If it is False, look at the VM's events in MAAS.";
    EVACUATING = "Evacuating", "VMs are on an LXD host that is in maintenance or is being removed. On the host's MaasMachine: the VMs that are left on it. On a MaasCluster: its VMs that are on such hosts.",
        "Nothing while VMs are being replaced. If the reason is EvacuationWaiting, the message names each VM that waits, for what, and what a person can do.";
}

/// The entry of a condition.
pub fn entry(name: &str) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.name == name)
}
