//! One `MaasMachine`, bare metal or VM, from its idempotency key to its release.
//!
//! [`decide`] takes what was [`Observed`] and returns a [`Plan`]: at most one [`Effect`], and everything that is written. After
//! the effect, [`conclude`] interprets its outcome. Whatever a crash loses between the two is observed again, because every
//! effect leaves a trace that can be read.

mod bridging;
mod conclude;
mod dead_host;
mod debt;
mod decide;
mod effect;
mod host_leaving;
mod journal;
mod kind;
mod landed;
mod metal;
mod node_labels;
mod ownership;
mod past;
mod plan;
mod preparing;
mod provisioning;
mod reading;
mod releasing;
mod removing;
mod rising;
mod running;
mod status;
mod stuck;
mod surplus;
mod swap;
#[cfg(test)]
pub(crate) mod tests;
mod vm;
mod vm_journal;
mod vm_status;

use std::collections::{BTreeMap, BTreeSet};

use capmaas_api::MaasMachine;
use capmaas_api::capi::{Cluster, Machine};

use crate::Lookup;
use crate::hosts::bridge::DesiredBridge;
use crate::hosts::leaving::AsHost;
use crate::maas;
use crate::maas::Power;
#[cfg(test)]
use crate::maas::State;
use crate::placement::Placement;

pub use conclude::{Conclusion, conclude};
pub use debt::{DEBTS_ANNOTATION, Debt, Payment, debts, pay};
pub use decide::{decide, idle};
pub use effect::{Constraints, Effect, QUARANTINE_PREFIX, quarantine_tags};
pub use journal::{
    ABANDON_ANNOTATION, Allocation, Failure, InFlight, JOURNAL_ANNOTATION, Journal, LEAVE_POWER_ANNOTATION, TurnedOn,
    Write,
};
pub use kind::{Wanted, wanted};
pub use node_labels::ZONE_LABEL;
pub use ownership::may_be_served;
pub use plan::{Outcome, Patch, Plan, SpecPatch};
pub use preparing::DEPLOY_DEADLINE;
pub use provisioning::{asks_power, first_journal, takes_ignition};
pub use reading::while_reading;
pub use releasing::is_sent_back;
pub use swap::ends_swap;
pub use vm_journal::{AVOIDED, Avoided, Place, VmJournal, VmNic, VmStage};

/// Key of the stamp among a machine's workload annotations. MAAS allows no slash in it.
pub const STAMP: &str = "capmaas-key";
/// Key of the other half of the stamp: namespace and name of the object. Only the machine's owner in MAAS can write either (S25).
pub const STAMPED_FOR: &str = "capmaas-machine";

/// Everything that a decision needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The object, read live, or as the previous pass stored it.
    pub object: MaasMachine,
    /// Its journal, read once per pass; the error states why it cannot be read.
    pub journal: Result<Option<Journal>, String>,
    /// The Cluster that it belongs to, read live. `Absent`: it belongs to none, or its Cluster is gone.
    pub cluster: Lookup<Cluster>,
    /// The Machine that owns it, possibly from a watch. `Absent`: none does, or it is gone.
    pub machine: Lookup<Machine>,
    pub maas_cluster: Lookup<ClusterFacts>,
    /// The format of the bootstrap data, if the Machine names any.
    pub bootstrap: Lookup<Format>,
    pub held_elsewhere: HeldElsewhere,
    /// Whether MAAS could be queried, and as which identity.
    pub access: Access,
    /// Machines that MAAS holds under our idempotency key. An empty list is `Found`; `Unknown` if MAAS was not queried.
    pub by_key: Lookup<Vec<maas::Machine>>,
    /// The machine in the journal. `Absent` only if MAAS itself reports that the ID does not exist; `Unknown` if there is none in
    /// the journal.
    pub in_journal: Lookup<maas::Machine>,
    /// The surplus machines in the journal (S4).
    pub surplus: Vec<Surplus>,
    /// What the power driver of the machine in the journal reports, if it was queried.
    pub power: Option<Power>,
    /// Whether the cluster's DNS record resolves to the machine in the journal. `Absent`: there is no such record.
    pub in_dns: Lookup<bool>,
    /// The machine's Node, if it was looked up.
    pub node: ObservedNode,
    /// Observed for a VM only.
    pub vm: ObservedVm,
    /// VMs that the MaasCluster still owes (S16). `Absent`: there is no MaasCluster.
    pub debts: Lookup<Vec<Debt>>,
    /// The interfaces of an Allocated machine, read where addresses are requested.
    pub links: Lookup<crate::links::Observed>,
    /// The machine as a VM host, if it is being released.
    pub as_host: AsHost,
}

impl Observed {
    /// The journal, as far as it can be read.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref().ok()?.as_ref()
    }

    pub fn has_annotation(&self, name: &str) -> bool {
        self.object.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(name))
    }

    pub fn is_control_plane(&self) -> bool {
        capmaas_api::capi::is_control_plane(&self.object, self.machine.found())
    }

    /// Whether the machine's Node, or the API server of a control plane, stopped responding: the machine may have lost power.
    /// MAAS itself may notice minutes later, and from 3.5 on without an event.
    pub fn is_silent(&self) -> bool {
        let api_server_is_away = self.cluster.found().is_some_and(Cluster::api_server_is_away);
        self.machine.found().is_some_and(Machine::node_is_silent) || api_server_is_away && self.is_control_plane()
    }

    /// The IDs of all machines involved: those that MAAS showed, and those in the journal. A decision may need to know of each
    /// whether another object holds it.
    pub fn machines(&self) -> BTreeSet<String> {
        let listed = self.by_key.found().into_iter().chain(self.vm.by_name.found()).flatten();
        let shown = listed.chain(self.in_journal.found());
        let mut ids: BTreeSet<String> = shown.map(|metal| metal.id.clone()).collect();
        ids.extend(self.surplus.iter().map(|surplus| surplus.id.clone()));
        if let Some(journal) = self.journal() {
            ids.extend(journal.surplus.iter().cloned());
            if let Some(allocation) = &journal.allocation {
                ids.extend(allocation.released.iter().chain([&allocation.machine]).cloned());
            }
        }
        ids
    }
}

/// A machine that was allocated under our idempotency key in addition to the one in the journal (S4).
#[derive(Debug, Clone, PartialEq)]
pub struct Surplus {
    /// Its system ID.
    pub id: String,
    /// The machine in MAAS. `Absent` only if MAAS itself reports that the ID does not exist.
    pub seen: Lookup<maas::Machine>,
    /// What its power driver reports, queried once it is released.
    pub power: Option<Power>,
}

/// Observed for a VM only.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedVm {
    /// Where it can be placed, computed while it has no place yet.
    pub placement: Lookup<Placement>,
    /// The VM host in the journal, read in this pass where it matters.
    pub host: Lookup<ObservedHost>,
    /// Machines that MAAS has under the VM's host name. An empty list is `Found`; `Unknown` if MAAS was not queried.
    pub by_name: Lookup<Vec<maas::Machine>>,
}

impl Default for ObservedVm {
    fn default() -> Self {
        let nobody = || "MAAS was not queried".to_owned();
        Self {
            placement: Lookup::Unknown(nobody()),
            host: Lookup::Unknown(nobody()),
            by_name: Lookup::Unknown(nobody()),
        }
    }
}

/// The VM host in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedHost {
    /// Whether MAAS reaches it and can make VMs on it; the error states what prevents that.
    pub usable: Result<(), String>,
    /// Its LXD project, if the account may see it.
    pub project: Option<String>,
    /// Whether MAAS knows all VMs of its project except ours, so that a refresh harms none (S12). Only its agent can tell;
    /// `Absent` while the agent does not respond, or has not seen our VM yet, so that its report is too old.
    pub others_known: Lookup<bool>,
    /// What the power driver of the host's own machine reports, if it was queried.
    pub power: Option<Power>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFacts {
    /// We maintain its DNS record, so a machine's address leaves the record before the machine is released (S18).
    pub keeps_dns: bool,
    /// The bridge that its bare-metal machines need to become LXD hosts, if they do; the error states why that is not known.
    pub bridge: Result<Option<DesiredBridge>, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    CloudConfig {
        /// It [turns swap off](ends_swap) by itself.
        ends_swap: bool,
    },
    Ignition,
    /// Any other format, by its name.
    Other(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeldElsewhere {
    /// Those of the [machines involved](Observed::machines) that other objects name in their provider IDs or journals: live nodes
    /// (S6).
    pub machines: BTreeSet<String>,
    /// One object for each of these machines, for people.
    pub holders: BTreeMap<String, String>,
    /// The object that our idempotency key was made for, if it is another one: this one is a copy of it (S25).
    pub original: Option<String>,
    /// Another object has the same idempotency key, and its journal does not mark it as a copy: only machines whose stamp names
    /// us are ours (S25).
    pub contested: bool,
    /// An object of the same cluster has a provider ID in the Go provider's form.
    pub use_go_form: bool,
}

/// Whether MAAS could be queried, and as which identity (S5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    Granted {
        /// Endpoint and user, as recorded on objects.
        name: String,
        user: String,
        /// The cluster's machines were created under another identity: what this one does not see may exist, and nothing new is
        /// allocated.
        identity_changed: bool,
    },
    Denied {
        /// The condition's reason.
        reason: &'static str,
        /// The condition's message.
        message: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedNode {
    /// Not looked up: it is too early, or the Machine has its Node already.
    NotAsked,
    /// It has not joined yet, or the cluster's API server does not answer yet.
    NotYet,
    /// A Node with the machine's name and one of its addresses.
    Joined {
        name: String,
        /// It carries our provider ID; otherwise it carries none.
        named: bool,
        labels: BTreeMap<String, String>,
    },
    /// The Node of that name belongs to another machine; the message states why. It is never modified (S19).
    Foreign(String),
}
