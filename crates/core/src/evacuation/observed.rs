//! What a decision about the VMs on hosts that should be empty rests on.

use std::collections::BTreeMap;
use std::fmt;

use capmaas_api::MaasClusterSpec;
use capmaas_api::cluster::Evacuation;
use capmaas_api::tolerant::WHOLE_VALUE;

use crate::Lookup;
use crate::intent::Vm;
use crate::placement::{self, Claim, Sibling};

use super::group::{Group, Unsettled};

/// Everything about one MAAS, read in one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The hosts that should be empty.
    pub hosts: Vec<Host>,
    /// All LXD hosts, and what is claimed on them: where replacements can be placed.
    pub site: Lookup<Site>,
    /// By VM host that a rollout is going to replace: the Machine that becomes a host instead of one of its kind and is none yet.
    pub successors: BTreeMap<i64, String>,
    /// VMs that are requested already and have no place yet: they are placed before any replacement.
    pub unplaced: Vec<Demanded>,
    /// By UID: Machines that could not be deleted a moment ago.
    pub refusals: BTreeMap<String, Refusal>,
}

/// Why a Machine could not be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// This manager has no right to.
    NoRight,
    /// The API server, a webhook or a policy refused it.
    Refused(String),
    /// It is not known whether the request took effect, or still will.
    Unanswered(String),
}

/// An LXD host that should be empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    /// ID of the VM host.
    pub id: i64,
    pub name: String,
    pub cause: Cause,
    /// Its MaasMachine, if this manager reconciles it.
    pub object: Option<ObjectName>,
    /// Why it still takes new VMs: as long as it does, a replacement could be placed on it again.
    pub open: Option<String>,
    /// The VMs on it that MAAS shows.
    pub guests: Lookup<Vec<Guest>>,
}

/// Why a host should be empty. In the order in which hosts are emptied: a machine that is being deleted blocks a rollout.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Its Machine is being deleted, or it is tagged as leaving in MAAS.
    Leaving,
    /// A person put it into maintenance; the reason, which may be empty.
    Maintenance(String),
    /// A person tagged it in MAAS.
    Tagged,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaving => f.write_str("is being removed"),
            Self::Maintenance(reason) if reason.is_empty() => f.write_str("is in maintenance"),
            Self::Maintenance(reason) => write!(f, "is in maintenance ({reason})"),
            Self::Tagged => write!(f, "is in maintenance (tag {} in MAAS)", placement::MAINTENANCE_TAG),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    pub namespace: String,
    pub name: String,
}

impl ObjectName {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A VM on such a host.
#[derive(Debug, Clone, PartialEq)]
pub struct Guest {
    /// Its name in MAAS.
    pub name: String,
    pub whose: Whose,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Whose {
    /// No object that this manager reconciles provably claims it. Holds its MAAS owner, if any.
    Foreign(Option<String>),
    /// An object of ours claims it, and it carries that object's stamp in MAAS.
    Ours(Box<Member>),
}

/// A VM of ours, with everything that decides whether it may be deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    pub cluster: ObjectName,
    /// Whether MAAS is accessed with the identity of the VM's own cluster; otherwise why not. The replacement is requested with
    /// that identity, so only that one shows whether there is room.
    pub own_identity: Result<(), String>,
    /// The evacuation policy of its MaasCluster.
    pub consent: Lookup<Consent>,
    /// Whether it or its Cluster is paused or being moved.
    pub paused: Lookup<bool>,
    pub machine: Lookup<Machine>,
    /// What replaces the Machine when it is deleted. `Absent`: nothing does.
    pub group: Lookup<Group>,
    /// What a replacement asks for.
    pub demanded: Result<Demanded, String>,
}

impl Member {
    /// What its replacement asks for, if its Machine is being deleted and something replaces it.
    pub fn replacement(&self) -> Option<&Demanded> {
        let leaves = self.machine.found().is_some_and(|machine| machine.deleting);
        let ends = match &self.group {
            Lookup::Found(group) => group.unsettled == Some(Unsettled::Deleting),
            Lookup::Absent => true,
            Lookup::Unknown(_) => false,
        };
        self.demanded.as_ref().ok().filter(|_| leaves && !ends)
    }
}

/// Whether the owner of a cluster lets its VMs be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    Automatic,
    /// Only by a person.
    Manual,
}

/// The evacuation policy of a MaasCluster. An unreadable one is no consent (S1).
pub fn consent(spec: &MaasClusterSpec) -> Lookup<Consent> {
    let hidden = |path: &&String| *path == "evacuation" || *path == WHOLE_VALUE;
    match (&spec.evacuation, spec.unreadable.iter().find(hidden)) {
        (_, Some(_)) => Lookup::Unknown("spec.evacuation of its MaasCluster cannot be read".to_owned()),
        (None | Some(Evacuation::Automatic), None) => Lookup::Found(Consent::Automatic),
        (Some(Evacuation::Manual), None) => Lookup::Found(Consent::Manual),
        (Some(Evacuation::Unknown(text)), None) => {
            Lookup::Unknown(format!("what its MaasCluster means by evacuation: {text}"))
        }
    }
}

/// A Cluster API Machine, as currently stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub object: ObjectName,
    /// Another UID under the same name is another Machine.
    pub uid: String,
    /// If the resourceVersion has changed, the Machine is read again.
    pub version: String,
    pub deleting: bool,
    /// A person holds it by an annotation.
    pub held: bool,
}

/// A VM that is to be placed.
#[derive(Debug, Clone, PartialEq)]
pub struct Demanded {
    pub vm: Vm,
    /// The zones in which it may be requested; none: any.
    pub zones: Vec<String>,
    /// Where its siblings are, without the VM that it replaces.
    pub siblings: Vec<Sibling>,
}

/// Where VMs can be placed.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    pub hosts: Vec<placement::Host>,
    /// What is claimed and not in MAAS's figures yet.
    pub claims: Vec<Claim>,
}
