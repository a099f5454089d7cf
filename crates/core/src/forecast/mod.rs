//! What a change needs, worked out before anybody makes it.
//!
//! Pure, as every decision: from what MAAS has, what Cluster API is told to have and what there is already to the steps that
//! Cluster API would take, the machine or LXD host that each would get, and what is missing. Machines are chosen as MAAS chooses
//! them (the cheapest free one that meets the manager's own [`Constraints`](crate::machine::Constraints)), hosts by the manager's
//! own [`place`](crate::placement::place).
//!
//! MAAS has other users, so this is true of the moment it was read, and a promise to nobody.

mod candidate;
mod loss;
mod rollout;
mod stock;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeSet;

use crate::intent::{Intent, Problem};
use crate::placement::{Host, Placement};

pub use candidate::{Candidate, Disk, Misfit};
pub use loss::{Fate, HealthCheck, Impact, Lost, without};
pub use rollout::forecast;

/// What MAAS has.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// Every machine, VMs too.
    pub machines: Vec<Candidate>,
    /// The LXD hosts.
    pub hosts: Vec<Host>,
    /// The names of all zones.
    pub zones: BTreeSet<String>,
    /// The names of all resource pools.
    pub pools: BTreeSet<String>,
}

/// What the machines of a group do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// They hold etcd and the API server.
    ControlPlane,
    /// Everything else.
    Workers,
}

/// Machines that are made from one template: a control plane, a MachineDeployment or a MachineSet.
#[derive(Debug, Clone)]
pub struct Group {
    /// Namespace and name of its Cluster.
    pub cluster: String,
    /// Its own name.
    pub name: String,
    /// What its machines do.
    pub role: Role,
    /// How many machines it shall have.
    pub replicas: usize,
    /// What new machines ask for, or what is wrong with the template.
    pub intent: Result<Intent, Problem>,
    /// The failure domain of every machine, if the group names one.
    pub failure_domain: Option<String>,
    /// The failure domains that a control plane is spread over.
    pub failure_domains: Vec<String>,
    /// How many machines more than `replicas` a roll-out may have.
    pub surge: usize,
    /// How many machines less than `replicas` a roll-out may have.
    pub unavailable: usize,
    /// The machines that are there.
    pub members: Vec<Member>,
}

/// A machine that is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    /// Its name in Kubernetes.
    pub name: String,
    /// Its system ID; `None` while MAAS has nothing for it.
    pub machine: Option<String>,
    pub zone: Option<String>,
    /// A roll-out replaces it.
    pub outdated: bool,
    /// It is being deleted, so it counts as gone; what it holds is not free yet.
    pub leaving: bool,
}

/// What would happen.
#[derive(Debug, Clone, Default)]
pub struct Forecast {
    /// In the order in which Cluster API takes them.
    pub steps: Vec<Step>,
    /// What each group can choose from.
    pub groups: Vec<Supply>,
    /// What there is too little of. Empty: it fits.
    pub missing: Vec<Missing>,
}

impl Forecast {
    /// Whether every machine gets one.
    pub fn fits(&self) -> bool {
        self.missing.is_empty()
    }
}

/// One machine comes or goes.
#[derive(Debug, Clone)]
pub struct Step {
    /// Namespace and name of the Cluster.
    pub cluster: String,
    pub group: String,
    /// The machine's name in Kubernetes, or a number of its own while it has none.
    pub machine: String,
    /// What happens.
    pub action: Action,
}

/// What happens in a step.
#[derive(Debug, Clone)]
pub enum Action {
    /// A machine is made.
    Create(Server),
    /// A machine is deleted, and what it held is free afterwards.
    Delete {
        /// So many VMs are on it and must go first (S11).
        hosted_vms: usize,
    },
}

/// What a new machine gets.
#[derive(Debug, Clone)]
pub enum Server {
    /// A physical machine.
    Metal {
        /// Its system ID.
        id: String,
        /// Its name in MAAS.
        hostname: String,
        zone: String,
        /// Its resource pool.
        pool: String,
        /// The names of all free machines that met the constraints, this one first.
        choices: Vec<String>,
    },
    /// A VM, with what became of every host.
    Vm(Box<Placement>),
    Nothing {
        why: String,
        /// What became of every host, for a VM.
        placement: Option<Box<Placement>>,
    },
}

/// What a group can choose from.
#[derive(Debug, Clone)]
pub struct Supply {
    /// Namespace and name of the Cluster.
    pub cluster: String,
    pub group: String,
    /// Free metal that meets its constraints, by zone and pool.
    pub metal: Vec<Free>,
    /// What placing one more VM would say after all steps.
    pub next_vm: Option<Box<Placement>>,
}

/// Free metal in one zone and pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Free {
    pub zone: String,
    /// The resource pool.
    pub pool: String,
    /// So many fit now.
    pub now: usize,
    /// So many are left after all steps.
    pub left: usize,
}

/// Something that there is too little of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Namespace and name of the Cluster.
    pub cluster: String,
    pub group: String,
    /// How many.
    pub count: usize,
    /// In words: "two more machines with 32 GB of memory in zone az2".
    pub what: String,
    /// What keeps back the machines or hosts that come nearest.
    pub why: String,
}
