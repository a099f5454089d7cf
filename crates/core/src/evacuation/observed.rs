//! What a decision about VMs on hosts that leave rests on.

use std::fmt;

use capmaas_api::MaasClusterSpec;
use capmaas_api::cluster::Evacuation;
use capmaas_api::tolerant::WHOLE_VALUE;

use crate::Lookup;
use crate::intent::Vm;
use crate::placement::{self, Claim, Sibling};

use super::group::Group;

/// Everything about one MAAS, read in one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The hosts that shall be empty.
    pub hosts: Vec<Host>,
    /// All LXD hosts, and what is promised on them: where replacements can go.
    pub site: Lookup<Site>,
    /// VMs that are asked for already and have no place yet: they take theirs before anybody else does.
    pub unplaced: Vec<Demanded>,
    /// The API server has just said that this manager may not delete Machines; its words.
    pub denied: Option<String>,
}

/// An LXD host that shall be empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    /// Its number as a VM host.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Why.
    pub cause: Cause,
    /// The MaasMachine that it is, if it is one that this manager looks after.
    pub object: Option<ObjectName>,
    /// Why it still takes new VMs: as long as it does, a replacement could come back to it.
    pub open: Option<String>,
    /// The VMs on it that MAAS shows.
    pub guests: Lookup<Vec<Guest>>,
}

/// Why a host shall be empty. In the order in which hosts are emptied: a machine that is being deleted holds up a roll-out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Its Machine is being deleted, or it is marked as leaving in MAAS.
    Leaving,
    /// A person put it into maintenance; the reason, which may be empty.
    Maintenance(String),
    /// A person tagged it in MAAS.
    Tagged,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaving => f.write_str("leaves"),
            Self::Maintenance(reason) if reason.is_empty() => f.write_str("is in maintenance"),
            Self::Maintenance(reason) => write!(f, "is in maintenance ({reason})"),
            Self::Tagged => write!(f, "is in maintenance (tag {} in MAAS)", placement::MAINTENANCE_TAG),
        }
    }
}

/// Namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectName {
    /// An object by namespace and name.
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
    /// Whose it is.
    pub whose: Whose,
}

/// Whose a VM is.
#[derive(Debug, Clone, PartialEq)]
pub enum Whose {
    /// No object that this manager looks after provably stands for it. The MAAS user who has it, if anybody does.
    Foreign(Option<String>),
    /// An object of ours stands for it, and MAAS shows that object's stamp on it.
    Ours(Box<Member>),
}

/// A VM of ours, with everything that tells whether it may go.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Its Cluster.
    pub cluster: ObjectName,
    /// Whether MAAS is looked at with the identity of its own cluster; else why not. A replacement is asked for with that one, so only
    /// that one tells whether there is room.
    pub own_identity: Result<(), String>,
    /// What its MaasCluster says about evacuation.
    pub consent: Lookup<Consent>,
    /// Whether it or its Cluster is paused or being moved.
    pub paused: Lookup<bool>,
    /// Its Machine.
    pub machine: Lookup<Machine>,
    /// What replaces the Machine when it is deleted. `Absent`: nothing does.
    pub group: Lookup<Group>,
    /// What a replacement asks for.
    pub demanded: Result<Demanded, String>,
}

/// Whether the owner of a cluster lets its VMs be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    /// Yes.
    Automatic,
    /// Only by a person.
    Manual,
}

/// What a MaasCluster says about evacuation. What cannot be read is no consent (S1).
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

/// A Cluster API Machine, as it is stored now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its namespace and name.
    pub object: ObjectName,
    /// Its UID: another one under the same name is another machine.
    pub uid: String,
    /// Its resourceVersion: one that changed since is looked at again.
    pub version: String,
    /// It is being deleted.
    pub deleting: bool,
    /// A person holds it by an annotation.
    pub held: bool,
}

/// A VM that is to be placed.
#[derive(Debug, Clone, PartialEq)]
pub struct Demanded {
    /// The VM.
    pub vm: Vm,
    /// Its zone, if that is settled.
    pub zone: Option<String>,
    /// Where its siblings are, without the VM that it replaces.
    pub siblings: Vec<Sibling>,
}

/// Where VMs can be.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// All LXD hosts.
    pub hosts: Vec<placement::Host>,
    /// What is promised and not in MAAS's figures yet.
    pub claims: Vec<Claim>,
}
