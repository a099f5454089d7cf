//! One `MaasMachine`, metal or VM, from its key to its release.
//!
//! [`decide`] looks at what was [`Observed`] and answers with a [`Plan`]: at most one [`Effect`], and everything that is
//! written down. After the effect, [`conclude`] says what its answer means. Whatever is lost between the two by a crash is
//! found again by gathering, because every effect leaves a mark that can be read.

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
pub use releasing::is_sent_back;
pub use swap::ends_swap;
pub use vm_journal::{AVOIDED, Avoided, Place, VmJournal, VmNic, VmStage};

/// Key of the stamp among a machine's workload annotations. MAAS takes no slash in it.
pub const STAMP: &str = "capmaas-key";
/// Key of the other half of the stamp: namespace and name of the object. Only the machine's owner in MAAS can write either (S25).
pub const STAMPED_FOR: &str = "capmaas-machine";

/// Everything that a decision needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The object, read live, or as the pass right before stored it.
    pub object: MaasMachine,
    /// Its journal, read once in a pass; the sentence says why it cannot be read.
    pub journal: Result<Option<Journal>, String>,
    /// The Cluster that it belongs to, read live. `Absent`: it belongs to none, or its Cluster is gone.
    pub cluster: Lookup<Cluster>,
    /// The Machine that owns it, maybe from a watch. `Absent`: none does, or it is gone.
    pub machine: Lookup<Machine>,
    pub maas_cluster: Lookup<ClusterFacts>,
    /// The bootstrap data, if the Machine names any.
    pub bootstrap: Lookup<Format>,
    /// What other MaasMachines hold.
    pub held_elsewhere: HeldElsewhere,
    /// Whether, and as whom, MAAS could be asked.
    pub access: Access,
    /// Machines that MAAS holds under our key. An empty list is `Found`; `Unknown` if nobody asked.
    pub by_key: Lookup<Vec<maas::Machine>>,
    /// The machine in the journal. `Absent` only by MAAS's own word about the id; `Unknown` if there is none in the journal.
    pub on_record: Lookup<maas::Machine>,
    /// The machines in the journal that were allocated as well (S4).
    pub surplus: Vec<Surplus>,
    /// What the power driver of the machine in the journal says, if it was asked.
    pub power: Option<Power>,
    /// Whether the cluster's DNS record resolves to the machine in the journal. `Absent`: there is no such record.
    pub in_dns: Lookup<bool>,
    /// The machine's Node, if it was looked for.
    pub node: NodeSight,
    /// What was looked at for a VM only.
    pub vm: VmSight,
    /// VMs that the MaasCluster still owes (S16). `Absent`: there is no MaasCluster.
    pub debts: Lookup<Vec<Debt>>,
    /// The interfaces of an Allocated machine, read where addresses were asked for.
    pub links: Lookup<crate::links::Sight>,
    /// The machine as a VM host, if it leaves.
    pub as_host: AsHost,
}

impl Observed {
    /// What must survive a crash, as far as it can be read.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref().ok()?.as_ref()
    }

    /// Whether the object carries an annotation.
    pub fn has_annotation(&self, name: &str) -> bool {
        self.object.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(name))
    }

    /// Whether the machine belongs to a control plane.
    pub fn is_control_plane(&self) -> bool {
        capmaas_api::capi::is_control_plane(&self.object, self.machine.found())
    }

    /// Whether the machine's Node, or the API server of a control plane, cannot be heard any more: its power may be gone, which MAAS
    /// itself may notice minutes later, and from 3.5 on without an event.
    pub fn is_silent(&self) -> bool {
        let api_server_is_away = self.cluster.found().is_some_and(Cluster::api_server_is_away);
        self.machine.found().is_some_and(Machine::node_is_silent) || api_server_is_away && self.is_control_plane()
    }

    /// The ids of all machines that are spoken of: those that MAAS showed, and those in the journal. A decision may ask about each of
    /// them whether another object holds it.
    pub fn machines(&self) -> BTreeSet<String> {
        let listed = self.by_key.found().into_iter().chain(self.vm.by_name.found()).flatten();
        let shown = listed.chain(self.on_record.found());
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

/// A machine that was allocated under our key besides the one in the journal (S4).
#[derive(Debug, Clone, PartialEq)]
pub struct Surplus {
    /// Its system ID.
    pub id: String,
    /// How MAAS shows it. `Absent` only by MAAS's own word about the id.
    pub seen: Lookup<maas::Machine>,
    /// What its power driver says, asked once it is released.
    pub power: Option<Power>,
}

/// What is looked at for a VM only.
#[derive(Debug, Clone, PartialEq)]
pub struct VmSight {
    /// Where it can be, asked for while it has no place yet.
    pub placement: Lookup<Placement>,
    /// The VM host in the journal, read in this pass where that matters.
    pub host: Lookup<HostSight>,
    /// Machines that MAAS has under the VM's host name. An empty list is `Found`; `Unknown` if nobody asked.
    pub by_name: Lookup<Vec<maas::Machine>>,
}

impl Default for VmSight {
    fn default() -> Self {
        let nobody = || "MAAS was not asked".to_owned();
        Self {
            placement: Lookup::Unknown(nobody()),
            host: Lookup::Unknown(nobody()),
            by_name: Lookup::Unknown(nobody()),
        }
    }
}

/// What matters about the VM host in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSight {
    /// MAAS reaches it and can make VMs on it; the sentence says what is in the way.
    pub usable: Result<(), String>,
    /// Its LXD project, if the account may know.
    pub project: Option<String>,
    /// All VMs of its project but ours are known to MAAS, so that a refresh harms none (S12). Only its agent can tell;
    /// `Absent` while it cannot be heard, or has not seen ours, so that what it tells is too old.
    pub others_known: Lookup<bool>,
    /// What the power driver of the machine under it says, if it was asked.
    pub power: Option<Power>,
}

/// What matters about the MaasCluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFacts {
    /// Its DNS record is kept by us, so that a machine's address leaves it before the machine does (S18).
    pub keeps_dns: bool,
    /// The bridge that its metal needs to become LXD hosts, if it does. Or why that cannot be told.
    pub bridge: Result<Option<DesiredBridge>, String>,
}

/// The format of bootstrap data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// For cloud-init.
    CloudConfig {
        /// It [turns swap off](ends_swap) by itself.
        ends_swap: bool,
    },
    Ignition,
    /// Something else, in its own word.
    Other(String),
}

/// What other MaasMachines hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeldElsewhere {
    /// Of the [machines that are spoken of](Observed::machines) those that they name in their provider IDs or records: live nodes (S6).
    pub machines: BTreeSet<String>,
    /// The object that our key was made for, if that is another one: this one is a copy of it (S25).
    pub original: Option<String>,
    /// Another one that is no copy by its own word has the same key: only what MAAS's stamp names us for is ours (S25).
    pub contested: bool,
    /// One of the same cluster has a provider ID in the Go provider's form.
    pub use_go_form: bool,
}

/// Whether MAAS could be asked, and as whom (S5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// As this identity.
    Granted {
        /// Endpoint and user, as noted on objects.
        name: String,
        user: String,
        /// The cluster's machines were made under another identity: what this one does not see may exist, and nothing new is
        /// allocated.
        identity_changed: bool,
    },
    /// It could not be asked.
    Denied {
        /// For programs.
        reason: &'static str,
        /// For people.
        message: String,
    },
}

/// What is known about the machine's Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeSight {
    /// Nobody looked: it is too early, or the Machine has its Node already.
    NotAsked,
    /// It has not joined yet, or the cluster's API server does not answer yet.
    NotYet,
    /// A Node of the machine's name with one of its addresses.
    Joined {
        name: String,
        /// It carries our provider ID; otherwise it carries none.
        named: bool,
        labels: BTreeMap<String, String>,
    },
    /// The Node of that name is another machine's; the sentence says why. It is never touched (S19).
    Foreign(String),
}
