//! Why a VM stays where it is, for now or until a person acts.

use std::fmt;

use capmaas_api::names::HOLD_EVACUATION_ANNOTATION;

use super::group::Unsettled;
use super::observed::Refusal;

/// Why the Machine of a VM is not deleted now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waiting {
    /// It is not ours. Holds its MAAS owner, if any.
    Foreign(Option<String>),
    /// Something that must be known is not.
    Unknown(String),
    /// The same, because MAAS was read with the identity of another cluster; that of its own may know more.
    OtherIdentity(String),
    /// The host still takes new VMs; why.
    Open(String),
    /// It or its Cluster is paused or being moved.
    Paused,
    /// Only a person replaces the VM: `spec.evacuation` is Manual. Holds the Machine.
    Manual(String),
    /// A person holds the Machine by an annotation.
    Held(String),
    /// Nothing would replace the Machine.
    NoOwner(String),
    /// The control plane has only this machine.
    OnlyOne(String),
    /// etcd would lose its quorum.
    NoQuorum(String),
    /// It is not specified how many machines the group may miss.
    NoAllowance(String, String),
    /// The group must not be disturbed.
    Unsettled(String, Unsettled),
    /// Another machine of the same control plane is being deleted.
    OtherLeaves(String, String),
    /// The control plane does not have all its machines.
    Incomplete {
        /// The group.
        group: String,
        /// How many it has.
        has: usize,
        /// How many it should have.
        wants: usize,
    },
    /// A machine of the group is not healthy.
    Unhealthy(String, String),
    /// As many machines are missing as allowed.
    Budget {
        /// The group.
        group: String,
        /// How many are missing.
        missing: usize,
        /// How many may be missing.
        allowed: usize,
    },
    /// No other host has room for the replacement.
    NoRoom(String),
    /// This Machine is about to be a host. Why the others are not chosen.
    Successor(String, String),
    /// Another Machine is deleted first.
    Turn(String),
    /// It would be deleted now, but something else comes first in this pass.
    Postponed(&'static str),
    /// The Machine could not be deleted.
    Denied(String, Refusal),
}

impl Waiting {
    /// Whether it resolves by itself; otherwise a person has to act.
    pub fn passes(&self) -> bool {
        match self {
            Self::Turn(_)
            | Self::Postponed(_)
            | Self::Successor(..)
            | Self::OtherLeaves(..)
            | Self::Incomplete { .. } => true,
            Self::Unsettled(_, unsettled) => !matches!(unsettled, Unsettled::Paused(_)),
            Self::Budget { missing, .. } => *missing > 0,
            _ => false,
        }
    }

    /// For metrics and events.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Foreign(_) => "Foreign",
            Self::Unknown(_) | Self::OtherIdentity(_) => "Unknown",
            Self::Open(_) => "Open",
            Self::Paused => "Paused",
            Self::Manual(_) => "Manual",
            Self::Held(_) => "Held",
            Self::NoOwner(_) => "NoOwner",
            Self::OnlyOne(_) => "OnlyOne",
            Self::NoQuorum(_) => "NoQuorum",
            Self::NoAllowance(..) => "NoAllowance",
            Self::Unsettled(..) => "Unsettled",
            Self::OtherLeaves(..) => "OtherLeaves",
            Self::Incomplete { .. } => "Incomplete",
            Self::Unhealthy(..) => "Unhealthy",
            Self::Budget { .. } => "Budget",
            Self::NoRoom(_) => "NoRoom",
            Self::Successor(..) => "Successor",
            Self::Turn(_) => "Turn",
            Self::Postponed(_) => "Postponed",
            Self::Denied(..) => "Denied",
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign(Some(owner)) => write!(f, "is not ours but belongs to MAAS user {owner}, who has to move it"),
            Self::Foreign(None) => f.write_str("is not ours and nobody has allocated it; delete it in MAAS"),
            Self::Unknown(what) | Self::OtherIdentity(what) => write!(f, "stays because this is not known: {what}"),
            Self::Open(why) => write!(f, "waits until its host takes no more VMs: {why}"),
            Self::Paused => f.write_str("stays because it or its Cluster is paused"),
            Self::Manual(machine) => {
                write!(
                    f,
                    "stays because its cluster has evacuation: Manual; delete the Machine {machine} when \
                     convenient"
                )
            }
            Self::Held(machine) => write!(
                f,
                "is held by the annotation {HOLD_EVACUATION_ANNOTATION} of the Machine {machine}; remove it to go on"
            ),
            Self::NoOwner(machine) => {
                write!(
                    f,
                    "would not be replaced, because nothing owns the Machine {machine}; move what runs there and delete it"
                )
            }
            Self::OnlyOne(group) => {
                write!(f, "is the only machine of {group}; scale that to 3, or delete it with its cluster")
            }
            Self::NoQuorum(group) => write!(f, "is needed for the quorum of {group}; scale that to 3"),
            Self::NoAllowance(group, why) => {
                write!(f, "stays because it is not known how many machines {group} may lack: {why}")
            }
            Self::Unsettled(group, Unsettled::Deleting) => write!(f, "is removed with {group}, which is being deleted"),
            Self::Unsettled(_, Unsettled::Paused(what)) => write!(f, "stays because {what} is paused"),
            Self::Unsettled(group, Unsettled::Unobserved) => {
                write!(f, "waits until the latest change of {group} is observed")
            }
            Self::Unsettled(group, Unsettled::RollingOut) => {
                write!(f, "waits for the rollout of {group}, which replaces its machines itself")
            }
            Self::Unsettled(group, Unsettled::Remediating) => {
                write!(f, "waits until {group} has replaced an unhealthy machine")
            }
            Self::OtherLeaves(group, machine) => write!(f, "waits until {machine} of {group} is replaced"),
            Self::Incomplete { group, has, wants } => {
                write!(f, "waits because {group} has {has} of {wants} machines")
            }
            Self::Unhealthy(machine, why) => write!(f, "waits because the Machine {machine} is not healthy: {why}"),
            Self::Budget { group, missing: 0, .. } => write!(
                f,
                "stays because {group} may not lack a machine; set maxUnavailable of its rolling update to 1, or roll \
                 it out"
            ),
            Self::Budget { group, missing, allowed } => {
                write!(f, "waits because {group} lacks {missing} of its machines and may lack {allowed}")
            }
            Self::NoRoom(why) => write!(f, "stays because its replacement would find no room: {why}"),
            Self::Successor(machine, why) => write!(f, "waits until the Machine {machine} is an LXD host: {why}"),
            Self::Turn(machine) => write!(f, "comes after {machine}"),
            Self::Postponed(why) => write!(f, "is replaced soon, but not now: {why}"),
            Self::Denied(machine, Refusal::NoRight) => write!(
                f,
                "would be replaced now, but this manager may not delete the Machine {machine}; delete it, or install \
                 the ClusterRole capmaas-evacuation"
            ),
            Self::Denied(machine, Refusal::Refused(why) | Refusal::Unanswered(why)) => {
                write!(f, "would be replaced now, but the Machine {machine} could not be deleted: {why}")
            }
        }
    }
}
