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
mod extra;
mod host_leaving;
mod kind;
mod leaving;
mod living;
mod metal;
mod ownership;
mod past;
mod preparing;
mod record;
mod removing;
mod rising;
mod running;
mod state;
mod status;
mod stuck;
mod swap;
#[cfg(test)]
mod tests;
mod vm;
mod vm_status;

use std::collections::BTreeSet;
use std::time::Duration;

use capmaas_api::capi::{Cluster, Machine};
use capmaas_api::{MaasMachine, MaasMachineStatus};
use jiff::Timestamp;

use crate::Lookup;
use crate::hosts::bridge::{BridgeWish, Network};
use crate::hosts::leaving::AsHost;
use crate::placement::Placement;

pub use conclude::{Conclusion, Outcome, Refusal, conclude};
pub use debt::{DEBTS_ANNOTATION, Debt, Payment, debts, pay};
pub use decide::decide;
pub use effect::{Constraints, Effect, QUARANTINE_PREFIX, quarantine_tags};
pub use kind::{Wanted, wanted};
pub use leaving::is_sent_back;
pub use living::{asks_power, first_record, takes_ignition};
pub use ownership::may_be_served;
pub use preparing::DEPLOY_DEADLINE;
pub use record::{
    ABANDON_ANNOTATION, AVOIDED, Avoided, Card, Failure, IN_FLIGHT, InFlight, LEAVE_POWER_ANNOTATION, Place,
    RECORD_ANNOTATION, Record, TurnedOn, VmRecord, Write,
};
pub use state::{Power, State};
pub use swap::ends_swap;

/// Key of the stamp among a machine's workload annotations. MAAS takes no slash in it.
pub const STAMP: &str = "capmaas-key";
/// Key of the other half of the stamp: namespace and name of the object. Only the machine's owner in MAAS can write either (S25).
pub const STAMPED_FOR: &str = "capmaas-machine";

/// Everything that a decision needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The object, read live, or as the pass right before stored it.
    pub object: MaasMachine,
    /// The Cluster that it belongs to, read live. `Absent`: it belongs to none, or its Cluster is gone.
    pub cluster: Lookup<Cluster>,
    /// The Machine that owns it, maybe from a watch. `Absent`: none does, or it is gone.
    pub machine: Lookup<Machine>,
    /// The MaasCluster of its Cluster.
    pub maas_cluster: Lookup<Surroundings>,
    /// The start-up data, if the Machine names any.
    pub bootstrap: Lookup<Format>,
    /// What other MaasMachines hold.
    pub others: Others,
    /// With whose eyes MAAS was looked at.
    pub eyes: Eyes,
    /// Machines that MAAS holds under our key. An empty list is `Found`; `Unknown` if nobody asked.
    pub by_key: Lookup<Vec<Metal>>,
    /// The machine on record. `Absent` only by MAAS's own word about the id; `Unknown` if there is none on record.
    pub on_record: Lookup<Metal>,
    /// The machines on record that were allocated as well (S4).
    pub extra: Vec<Extra>,
    /// What the power driver of the machine on record says, if it was asked.
    pub power: Option<Power>,
    /// Whether the cluster's DNS record leads to the machine on record. `Absent`: there is no such record.
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
    /// Whether the machine belongs to a control plane.
    pub fn is_control_plane(&self) -> bool {
        let machine = match &self.machine {
            Lookup::Found(machine) => Some(machine),
            Lookup::Absent | Lookup::Unknown(_) => None,
        };
        capmaas_api::capi::is_control_plane(&self.object, machine)
    }

    /// The ids of all machines that are spoken of: those that MAAS showed, and those on record. A decision may ask about each of
    /// them whether another object holds it.
    pub fn machines(&self) -> BTreeSet<String> {
        let shown = |found: &Lookup<Vec<Metal>>| match found {
            Lookup::Found(found) => found.iter().map(|metal| metal.id.clone()).collect(),
            Lookup::Absent | Lookup::Unknown(_) => Vec::new(),
        };
        let mut ids: BTreeSet<String> = shown(&self.by_key).into_iter().chain(shown(&self.vm.by_name)).collect();
        if let Lookup::Found(metal) = &self.on_record {
            ids.insert(metal.id.clone());
        }
        ids.extend(self.extra.iter().map(|extra| extra.id.clone()));
        if let Ok(Some(record)) = Record::read(self.object.metadata.annotations.as_ref()) {
            ids.extend(record.machine.into_iter().chain(record.released).chain(record.extra));
        }
        ids
    }
}

/// A machine that was allocated under our key besides the one on record (S4).
#[derive(Debug, Clone, PartialEq)]
pub struct Extra {
    /// Its system ID.
    pub id: String,
    /// How MAAS shows it. `Absent` only by MAAS's own word about the id.
    pub seen: Lookup<Metal>,
    /// What its power driver says, asked once it is released.
    pub power: Option<Power>,
}

/// What is looked at for a VM only.
#[derive(Debug, Clone, PartialEq)]
pub struct VmSight {
    /// Where it can be, asked for while it has no place yet.
    pub placement: Lookup<Placement>,
    /// The VM host on record, read in this pass where that matters.
    pub host: Lookup<HostSight>,
    /// Machines that MAAS has under the VM's host name. An empty list is `Found`; `Unknown` if nobody asked.
    pub by_name: Lookup<Vec<Metal>>,
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

/// What matters about the VM host on record.
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
pub struct Surroundings {
    /// Its DNS record is kept by us, so that a machine's address leaves it before the machine does (S18).
    pub keeps_dns: bool,
    /// The bridge that its metal needs to become LXD hosts, if it does. Or why that cannot be told.
    pub bridge: Result<Option<BridgeWish>, String>,
}

/// The format of start-up data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// For cloud-init.
    CloudConfig {
        /// It [turns swap off](ends_swap) by itself.
        ends_swap: bool,
    },
    /// For Ignition.
    Ignition,
    /// Something else, in its own word.
    Other(String),
}

/// What other MaasMachines hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Others {
    /// Of the [machines that are spoken of](Observed::machines) those that they name in their provider IDs or records: live nodes (S6).
    pub machines: BTreeSet<String>,
    /// The object that our key was made for, if that is another one: this one is a copy of it (S25).
    pub original: Option<String>,
    /// Another one that is no copy by its own word has the same key: only what MAAS's stamp names us for is ours (S25).
    pub contested: bool,
    /// One of the same cluster has a provider ID in the Go provider's form.
    pub use_go_form: bool,
}

/// With whose eyes MAAS was looked at (S5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Eyes {
    /// With these.
    Open {
        /// Endpoint and user, for the record.
        name: String,
        /// The user.
        user: String,
        /// The cluster's machines were made with other eyes: what these do not see may exist, and nothing new is allocated.
        strange: bool,
    },
    /// There was no way to look.
    Closed {
        /// For programs.
        reason: &'static str,
        /// For people.
        message: String,
    },
}

/// A machine as MAAS shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metal {
    /// Its system ID.
    pub id: String,
    /// Its state.
    pub state: State,
    /// Its state in MAAS's words.
    pub state_name: String,
    /// What MAAS last knew about its power.
    pub power: Power,
    /// Who has it.
    pub owner: Option<String>,
    /// The key that is stamped on it.
    pub stamp: Option<String>,
    /// The object that the stamp names.
    pub stamped_for: Option<String>,
    /// First part of its name.
    pub hostname: String,
    /// Its whole name.
    pub fqdn: String,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Its zone.
    pub zone: String,
    /// It is protected from release.
    pub locked: bool,
    /// It is marked for maintenance by a tag.
    pub in_maintenance: bool,
    /// Swap is off already.
    pub swap_off: bool,
    /// Its interfaces.
    pub network: Network,
    /// The VM host that it is a VM of.
    pub vm_host: Option<i64>,
    /// Its tags.
    pub tags: Vec<String>,
    /// The last thing that MAAS said about it.
    pub last_words: String,
    /// The VLAN that it boots from, if MAAS neither serves DHCP there nor passes it on.
    pub without_dhcp: Option<String>,
}

/// What is known about the machine's Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeSight {
    /// Nobody looked: it is too early, or the Machine has its Node already.
    NotAsked,
    /// It has not joined yet, or the cluster's API server does not answer yet.
    NotYet,
    /// A Node of the machine's name with one of its addresses and no provider ID.
    Nameless(String),
    /// It carries our provider ID.
    Named,
    /// The Node of that name is another machine's; the sentence says why. It is never touched (S19).
    Foreign(String),
}

/// What shall happen.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Plan {
    /// The one thing to do outside of Kubernetes' own cluster.
    pub effect: Option<Effect>,
    /// The record to store before the effect; `None` if it stays.
    pub record: Option<Record>,
    /// The identity to note on the object; `None` if it stays.
    pub identity: Option<String>,
    /// When the machine was asked to be registered as VM host, if that is to be written anew.
    pub asked: Option<Timestamp>,
    /// What to fill in.
    pub spec: SpecPatch,
    /// A VM that the MaasCluster owes from now on.
    pub debt: Option<Debt>,
    /// What becomes of the finalizer.
    pub finalizer: Finalizer,
    /// The whole status; `None` if nothing may be said.
    pub status: Option<MaasMachineStatus>,
    /// What happened.
    pub events: Vec<Event>,
    /// When to look again.
    pub requeue: Requeue,
    /// Why, in a sentence.
    pub why: String,
}

/// What to fill into the spec, together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpecPatch {
    /// The provider ID, written once.
    pub provider_id: Option<String>,
    /// The system ID.
    pub system_id: Option<String>,
    /// The zone that the machine really is in.
    pub failure_domain: Option<String>,
}

/// What becomes of the finalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finalizer {
    /// It stays as it is.
    Keep,
    /// It is put there.
    Add,
    /// It goes: nothing of ours is left.
    Remove,
}

/// Something to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// A person should look at it.
    pub warning: bool,
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// When to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// When something changes.
    OnChange,
    /// After about this time.
    After(Duration),
}

impl Requeue {
    /// The same, or sooner.
    fn at_the_latest(self, wait: Duration) -> Self {
        match self {
            Self::OnChange => Self::After(wait),
            Self::After(own) => Self::After(own.min(wait)),
        }
    }
}

impl Metal {
    /// It is a VM.
    pub fn is_vm(&self) -> bool {
        self.vm_host.is_some()
    }

    /// What MAAS said last is what the machine itself reported after its deployment: cloud-init has failed.
    fn bootstrap_failed(&self) -> bool {
        self.last_words.starts_with("Node post-installation failure")
    }

    /// What MAAS said last is about its power: the image is not to blame.
    fn failed_for_want_of_power(&self) -> bool {
        ["power", "bmc"].iter().any(|word| self.last_words.to_lowercase().contains(word))
    }

    /// It is the VM that was made under the name on record, where it was going to be made; and the name is one that only the object
    /// of this key gives. Whose it is, is another question.
    pub fn is_made_for(&self, vm: &VmRecord, key: &str) -> bool {
        let there = vm.place.as_ref().is_some_and(|place| self.vm_host == Some(place.host));
        self.is_vm() && there && self.hostname == vm.name && record::is_made_up(&vm.name, key)
    }
}
