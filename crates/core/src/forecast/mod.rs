//! What a change needs, computed before anybody makes it.
//!
//! Pure, like every decision. The input is what MAAS has, the desired state of the Cluster API objects, and the machines that
//! exist. The result is the steps that Cluster API would take, the machine or LXD host that each would get, and what is missing.
//! Machines are chosen as MAAS chooses them (the cheapest free one that meets the manager's own
//! [`Constraints`](crate::machine::Constraints)), hosts by the manager's own [`place`](crate::placement::place).
//!
//! MAAS has other users, so the result holds for the moment when MAAS was read; it reserves nothing.

mod candidate;
mod loss;
mod rollout;
mod stock;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeSet;

use crate::intent::{Intent, Problem};
use crate::maas::State;
use crate::placement::{Host, Named, Placement};

pub use candidate::{Candidate, Disk, Misfit};
pub use loss::{Fate, HealthCheck, Impact, Lost, without};
pub use rollout::forecast;

#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// Every machine, VMs included.
    pub machines: Vec<Candidate>,
    pub hosts: Vec<Host>,
    pub zones: BTreeSet<String>,
    pub pools: BTreeSet<String>,
}

impl Inventory {
    pub fn lists(&self, id: &str) -> bool {
        self.machines.iter().any(|machine| machine.id == id)
    }

    /// Adds the VMs that MAAS does not list although Kubernetes has them on an LXD host: a key may show the host without its VMs.
    /// Their size is unknown, so they leave nothing when they go.
    pub fn complete(&mut self, groups: &[Group]) {
        for member in groups.iter().flat_map(|group| &group.members) {
            let (Some(id), Some(name)) = (&member.machine, &member.host) else { continue };
            let Some(host) = self.hosts.iter().find(|host| host.name == *name).filter(|_| !self.lists(id)) else {
                continue;
            };
            let of = |named: &Option<Named>| named.as_ref().map_or_else(String::new, |it| it.name.clone());
            self.machines.push(Candidate {
                id: id.clone(),
                hostname: member.name.clone(),
                state: State::Unknown,
                owned: true,
                zone: of(&host.zone),
                pool: of(&host.pool),
                cores: 0,
                memory: 0,
                disks: Vec::new(),
                tags: BTreeSet::new(),
                vm_host: Some(host.id),
            });
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// They run etcd and the API server.
    ControlPlane,
    /// Everything else.
    Workers,
}

/// Machines that are created from one template: a control plane, a MachineDeployment or a MachineSet.
#[derive(Debug, Clone)]
pub struct Group {
    /// Namespace and name of its Cluster.
    pub cluster: String,
    pub name: String,
    pub role: Role,
    /// The desired number of machines.
    pub replicas: usize,
    /// What new machines ask for, or what is wrong with the template.
    pub intent: Result<Intent, Problem>,
    /// The failure domain of every machine, if the group names one.
    pub failure_domain: Option<String>,
    /// The failure domains that a control plane is spread over.
    pub failure_domains: Vec<String>,
    /// How many machines above `replicas` a rollout may have.
    pub surge: usize,
    /// How many machines below `replicas` a rollout may have.
    pub unavailable: usize,
    /// Its owner replaces outdated machines; otherwise they change only when somebody deletes them.
    pub rolls: bool,
    /// The machines that exist.
    pub members: Vec<Member>,
}

/// A machine that exists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    /// Its name in Kubernetes.
    pub name: String,
    /// Its system ID; `None` while MAAS has nothing for it.
    pub machine: Option<String>,
    pub zone: Option<String>,
    /// The name of its LXD host, if it is a VM.
    pub host: Option<String>,
    /// A rollout replaces it.
    pub outdated: bool,
    /// It is being deleted, so it counts as gone; its resources are not free yet.
    pub leaving: bool,
    /// It does not work, so it does not count for the quorum.
    pub unhealthy: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Forecast {
    /// In the order in which Cluster API takes them.
    pub steps: Vec<Step>,
    /// What each group can choose from.
    pub groups: Vec<Supply>,
    /// What is lacking. Empty: the change fits.
    pub missing: Vec<Missing>,
}

impl Forecast {
    /// Whether every machine gets what it asks for.
    pub fn fits(&self) -> bool {
        self.missing.is_empty()
    }
}

/// One machine is created or deleted.
#[derive(Debug, Clone)]
pub struct Step {
    /// Namespace and name of the Cluster.
    pub cluster: String,
    pub group: String,
    /// The machine's name in Kubernetes, or a generated one if it has none yet.
    pub machine: String,
    pub action: Action,
}

#[derive(Debug, Clone)]
pub enum Action {
    Create(Server),
    /// A machine is deleted, and its resources are free afterwards.
    Delete {
        /// How many VMs are on it and must be replaced elsewhere first (S11, S30). That is not part of the forecast.
        hosted_vms: usize,
    },
}

/// What a new machine gets.
#[derive(Debug, Clone)]
pub enum Server {
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
    /// A VM, with the verdict on every host.
    Vm(Box<Placement>),
    Nothing {
        why: String,
        /// For a VM: the verdict on every host.
        placement: Option<Box<Placement>>,
    },
}

/// What a group can choose from.
#[derive(Debug, Clone)]
pub struct Supply {
    /// Namespace and name of the Cluster.
    pub cluster: String,
    pub group: String,
    /// Free bare-metal machines that meet its constraints, by zone and pool.
    pub metal: Vec<Free>,
    /// The placement of one more VM after all steps.
    pub next_vm: Option<Box<Placement>>,
}

/// Free bare-metal machines in one zone and pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Free {
    pub zone: String,
    pub pool: String,
    /// How many fit now.
    pub now: usize,
    /// How many are left after all steps.
    pub left: usize,
}

/// Something that is lacking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Namespace and name of the Cluster.
    pub cluster: String,
    pub group: String,
    pub count: usize,
    /// A phrase such as "two more machines with 32 GB of memory in zone az2".
    pub what: String,
    /// Why the machines or hosts that come closest do not fit.
    pub why: String,
}
