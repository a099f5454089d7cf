//! The reasons that conditions give, in one place, each with what a person does about it.
//!
//! Names that the Go provider used are kept letter by letter, `MachineDeployStartedReason` among them, because alerts
//! and scripts match them.

use crate::conditions::name_table;

/// A name that users see, with what it means and what a person does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// What a person does about it.
    pub action: &'static str,
}

name_table! {
    // Every kind.
    READY = "Ready", "All conditions are met.", "Nothing.";
    NOT_READY = "NotReady", "One of the other conditions is not met.", "See the condition that the message names.";
    PAUSED = "Paused", "The object or its Cluster is paused.", "Remove the annotation cluster.x-k8s.io/paused, or set the Cluster's spec.paused to false, to go on.";
    NOT_PAUSED = "NotPaused", "The object is reconciled.", "Nothing.";
    DELETING = "Deleting", "The object is being deleted.", "Wait. If it takes long, the message shows what it waits for.";
    DELETED = "Deleted", "The object's resources have been released.", "Nothing.";
    WAITING_FOR_OWNER = "WaitingForOwner", "No Cluster or Machine owns the object yet.", "Reference it from a Cluster or Machine, or delete it.";
    CREDENTIALS_VALID = "CredentialsValid", "MAAS accepts the credentials.", "Nothing.";
    CREDENTIALS_INVALID = "CredentialsInvalid", "There are no MAAS credentials, or MAAS refuses them.", "Correct the credentials; no restart is needed.";
    MAAS_UNAVAILABLE = "MAASUnavailable", "MAAS does not answer. Nothing is concluded from that; the last known state stays.", "Check MAAS and the network path to it. Reconciliation resumes by itself.";
    IDENTITY_CHANGED = "IdentityChanged", "The MAAS endpoint or user changed, so what MAAS does not show may still exist.", "Restore the former credentials, or make sure that the new user has access to the machines.";
    UNREADABLE_SPEC = "UnreadableSpec", "The stored spec holds something that this version does not understand, so the object is not reconciled.", "Correct the fields that the message names, or run a version that knows them.";
    CONTRADICTORY_SPEC = "ContradictorySpec", "Two fields of the spec contradict each other.", "Remove one of the fields that the message names.";

    // MaasMachine: up to a deployed machine.
    WAITING_FOR_CLUSTER_INFRASTRUCTURE = "WaitingForClusterInfrastructure", "The MaasCluster is not ready yet.", "Wait, or see the MaasCluster's conditions.";
    WAITING_FOR_BOOTSTRAP_DATA = "WaitingForBootstrapData", "The bootstrap provider has not created the machine's bootstrap data yet.", "Wait, or see the Machine's bootstrap object. Workers wait for the first control plane machine.";
    WAITING_FOR_STATIC_IP = "WaitingForStaticIP", "spec.staticIP is set without an address.", "Fill in the address, or check the controller that should.";
    STATIC_IP_FAILED = "StaticIPFailed", "The fixed address could not be assigned to the machine.", "Use an address that is free, inside a subnet that MAAS knows and that the machine is attached to.";
    NO_MACHINE_AVAILABLE = "NoMachineAvailable", "MAAS has no free machine that fits.", "Add machines, free some, or request less: the message shows what was requested.";
    MACHINE_ALLOCATING = "MachineAllocating", "A machine was requested and MAAS's answer is pending.", "Wait.";
    MACHINE_DEPLOY_STARTED = "MachineDeployStartedReason", "The deployment is being started.", "Wait.";
    MACHINE_DEPLOYING = "MachineDeploying", "MAAS is deploying the machine.", "Wait. If it takes longer than usual, look at the machine's console.";
    MACHINE_DEPLOYED = "MachineDeployed", "The machine runs the image.", "Nothing.";
    MACHINE_DEPLOY_FAILED = "MachineDeployFailed", "The machine was not deployed. Another one is tried, up to three times.", "Read MAAS's error in the message. If the image is the cause, correct it in a new template.";
    IMAGE_SUSPECTED = "ImageSuspected", "The same image failed on two machines, so no third one is tried.", "Check that the image exists in MAAS and boots, then roll out a new template.";
    ATTEMPTS_EXHAUSTED = "AttemptsExhausted", "Three attempts failed; a machine that failed and that MAAS allocates again counts as one.", "Check the machines that the message names, then delete the Machine to start over.";
    BRIDGE_FAILED = "BridgeFailed", "The bridge that the machine needs to become an LXD host could not be created in MAAS.", "Follow the message. Network changes need an administrator's API key. With lxdConfig.skipNetworkUpdate you provide the bridge yourself.";
    MACHINE_POWERED_OFF = "MachinePoweredOff", "The machine is off although it should run.", "It is turned on once. If it stays off, check its power settings in MAAS.";
    MACHINE_NOT_FOUND = "MachineNotFound", "MAAS does not know the machine any more.", "If somebody deleted it in MAAS, delete the Machine; a new one is created. It is never redeployed automatically.";
    MACHINE_TERMINATED = "MachineTerminatedReason", "The machine was released in MAAS outside of capmaas.", "Delete the Machine; a new one is created.";
    MACHINE_STATE_UNDEFINED = "MachineStateUndefined", "The machine is in an unexpected state in MAAS (Broken, Rescue mode, Testing, …). It is left alone.", "Bring it back to Deployed in MAAS, or delete the Machine.";
    NOT_OUR_MACHINE = "NotOurMachine", "The machine does not carry the stamp of this object, so it is left alone.", "Check in MAAS who owns it. If it belongs to somebody else now, delete the Machine.";
    COPIED_JOURNAL = "CopiedJournal", "The object carries a journal that was written for another object: it is a copy. It is not reconciled, and nothing is released when it is deleted.", "Delete the copy, or remove the annotation that the message names. The object that the message names is not affected.";
    UNPROVEN_JOURNAL = "UnprovenJournal", "The object carries the journal of an earlier object of the same name, and nothing proves that it is the same one, moved or restored. It is left alone.", "Restore the Machine that owns it. If it has no machine any more, follow the message to abandon it.";
    MACHINE_RELEASING = "MachineReleasing", "MAAS is releasing the machine or erasing its disks.", "Wait. Erasing takes as long as the disks need.";
    MACHINE_RELEASE_FAILED = "MachineReleaseFailed", "MAAS could not release the machine or erase its disks.", "Bring the machine to Ready in MAAS; the object is then deleted by itself.";
    WAITING_FOR_VMS_TO_LEAVE = "WaitingForVMsToLeave", "The machine is an LXD host and VMs are on it, so it is not released.", "Move or delete the VMs that the message names.";
    LEAVING_HOST = "LeavingHost", "The machine is an LXD host and is being unregistered from MAAS before it is released.", "Wait, or follow the message.";
    EVACUATING = "Evacuating", "VMs on an LXD host that is being evacuated are being replaced elsewhere, one at a time.", "Wait.";
    EVACUATION_WAITING = "EvacuationWaiting", "VMs are on an LXD host that is being evacuated, and none of them can be replaced now.", "Follow the message: it names each VM, what it waits for, and what a person can do.";
    EVACUATED = "Evacuated", "The LXD host is in maintenance or is being removed, and no VM is on it.", "Nothing: the host can be worked on.";
    NOT_EVACUATING = "NotEvacuating", "No LXD host that concerns this object is in maintenance or is being removed.", "Nothing.";
    BOOTSTRAP_FAILED = "BootstrapFailed", "The machine runs and cloud-init reported to MAAS that it failed, so there is no Node.", "Check what the message quotes and /var/log/cloud-init-output.log on the machine; a MachineHealthCheck replaces it.";
    NODE_LABELS_LEFT_OUT = "NodeLabelsLeftOut", "An event: the name of the machine's MAAS zone is not a valid label value, so its Node gets no topology.kubernetes.io/zone.", "Rename the zone in MAAS, or give the label a value in spec.nodeLabels.";
    NODE_PROVIDER_ID_CONFLICT = "NodeProviderIDConflict", "The Node carries another provider ID.", "Find out which machine the Node really is; the Node is not modified.";

    // MaasMachine: LXD VMs.
    HOST_UNAVAILABLE = "HostUnavailable", "The LXD host does not answer, is off, or is being taken out of use. Another one is tried.", "See the host in MAAS.";
    INSUFFICIENT_RESOURCES = "InsufficientResources", "No LXD host has the cores, memory or disk.", "Add a host, free resources, or request less: the message shows what is short where.";
    PROFILE_NOT_FOUND = "ProfileNotFound", "The LXD profile does not exist on any host that fits, or is one that MAAS does not assign to VMs.", "Create the profile maas in the host's project and name that, or remove lxdConfig.profile.";
    PROJECT_NOT_FOUND = "ProjectNotFound", "No LXD host is registered with this project.", "Register a host with the project, or remove lxdConfig.project.";
    VM_CREATION_FAILED = "VMCreationFailed", "MAAS could not compose the VM. Another host is tried.", "Read MAAS's error in the message.";
    VM_DEPLOYMENT_FAILED = "VMDeploymentFailed", "The VM exists, but was not deployed.", "Look at the VM's events in MAAS.";
    HOST_SELECTED = "HostSelected", "A host was chosen.", "Nothing.";
    RESOURCES_ALLOCATED = "ResourcesAllocated", "Resources are set aside.", "Nothing.";
    VM_CREATING = "VMCreating", "MAAS is composing and commissioning the VM.", "Wait.";
    VM_CREATED = "VMCreated", "The VM is in MAAS's inventory.", "Nothing.";
    VM_DEPLOYING = "VMDeploying", "MAAS is deploying the VM.", "Wait.";
    VM_DEPLOYED = "VMDeployed", "The VM runs the image.", "Nothing.";

    // MaasMachine: DNS.
    DNS_ATTACHED = "DNSAttached", "The address is in the DNS record.", "Nothing.";
    DNS_ATTACH_PENDING = "DNSAttachPending", "The address is going to be added to the DNS record.", "Wait, or see the MaasCluster's LoadBalancerReady.";
    DNS_DETACH_PENDING = "DNSDetachPending", "The address is going to be removed from the DNS record.", "Wait, or see the MaasCluster's LoadBalancerReady.";

    // MaasCluster.
    LOAD_BALANCER_READY = "LoadBalancerReady", "The DNS name of the API server exists.", "Nothing.";
    LOAD_BALANCER_FAILED = "LoadBalancerFailed", "The DNS record could not be created or changed.", "Check that spec.dnsDomain exists in MAAS and that the credentials may change it.";
    WAIT_FOR_DNS_NAME = "WaitForDNSName", "The name of the API server is not known yet.", "Wait.";
    DNS_NAME_TAKEN = "DNSNameTaken", "The name exists in MAAS and was not created for this object, so it is left alone.", "Remove the record in MAAS, or use another name.";
    CUSTOM_ENDPOINT = "CustomEndpoint", "The API server's address is provided by the user; MAAS's DNS is not changed.", "Nothing.";
    API_SERVER_AVAILABLE = "APIServerAvailable", "The API server answers.", "Nothing.";
    API_SERVER_NOT_READY = "APIServerNotReady", "The API server does not answer.", "Wait for the first control plane machine. If it is deployed, look at its console.";
    ZONE_NOT_FOUND = "ZoneNotFound", "A name in spec.failureDomains is not a zone in MAAS.", "Create the zone in MAAS, or remove the name.";
    LXD_READY = "LXDReady", "All hosts are registered.", "Nothing.";
    LXD_SETUP_PENDING = "LXDSetupPending", "Some hosts are not registered yet.", "Wait, or look at the logs of the lxd-initializer Pods on the machines that the message names.";
    LXD_SETUP_FAILED = "LXDSetupFailed", "A host could not be set up or registered.", "See the message; the lxd-initializer Pod of the machine has the details.";
    LXD_SWITCHED_OFF = "LXDSwitchedOff", "The cluster does not request LXD hosts any more.", "Nothing. Registered hosts stay; you can remove them in MAAS while they have no VMs.";
    MACHINES_REMAIN = "MachinesRemain", "The cluster still has machines.", "Wait until they are released.";
}

/// The entry of a reason.
pub fn entry(name: &str) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::conditions;

    /// As recorded from the Go provider v0.9, and from its source for what was not seen.
    const OF_THE_GO_PROVIDER: [&str; 18] = [
        "WaitingForBootstrapData",
        "WaitingForClusterInfrastructure",
        "WaitingForStaticIP",
        "MachineDeployStartedReason",
        "MachinePoweredOff",
        "MachineDeploying",
        "MachineDeployed",
        "MachineDeployFailed",
        "MachineNotFound",
        "MachineTerminatedReason",
        "MachineStateUndefined",
        "Deleted",
        "DNSAttachPending",
        "DNSAttached",
        "DNSDetachPending",
        "LoadBalancerFailed",
        "APIServerNotReady",
        "LXDSetupPending",
    ];

    #[test]
    fn names_are_unique_camel_case_words_that_kubernetes_takes_for_reasons() {
        for table in [ALL, conditions::ALL] {
            let names: BTreeSet<&str> = table.iter().map(|entry| entry.name).collect();
            assert_eq!(names.len(), table.len());
            for entry in table {
                assert!(entry.name.starts_with(|c: char| c.is_ascii_uppercase()), "{}", entry.name);
                assert!(entry.name.chars().all(|c| c.is_ascii_alphanumeric()), "{}", entry.name);
                assert!(entry.meaning.ends_with('.') && entry.action.ends_with('.'), "{}", entry.name);
            }
        }
    }

    #[test]
    fn the_names_of_the_go_provider_stay() {
        for name in OF_THE_GO_PROVIDER {
            assert!(entry(name).is_some(), "{name}");
        }
        for name in ["MachineDeployed", "DNSAttached", "LoadBalancerReady", "APIServerAvailable", "LXDReady", "Ready"] {
            assert!(conditions::entry(name).is_some(), "{name}");
        }
    }

    #[test]
    fn the_conditions_of_document_004_are_there() {
        for name in ["LXDHostSelected", "LXDVMCreated", "LXDVMDeployed", "LXDResourcesAllocated", "Paused"] {
            assert!(conditions::entry(name).is_some(), "{name}");
        }
    }
}
