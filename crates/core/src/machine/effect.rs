//! What can be done to MAAS and to Nodes for one machine.

use std::collections::BTreeMap;

use jiff::{Timestamp, ToSpan as _};

use super::debt::Debt;
use super::vm_journal::Place;
use crate::backoff::Request;
use crate::intent::{Metal, Wipe};
use crate::links::Change;
use crate::maas::{self, State};

/// Tags of this beginning keep a machine that failed out of every allocation; the rest is the day.
pub const QUARANTINE_PREFIX: &str = "capmaas-quarantine-";

/// The tags that keep a machine out today: that of today, which a machine that fails now gets, and that of yesterday. So a
/// machine comes back by itself after one to two days, whoever restarts meanwhile, and at once if a person removes the tag.
pub fn quarantine_tags(now: Timestamp) -> [String; 2] {
    let day = |time: Timestamp| format!("{QUARANTINE_PREFIX}{}", time.strftime("%Y-%m-%d"));
    [day(now), day(now.checked_sub(24.hours()).unwrap_or(now))]
}

/// What a machine must be like.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Constraints {
    /// At least so many cores.
    pub min_cpu: Option<u32>,
    /// At least so many MB of memory.
    pub min_memory: Option<u32>,
    /// At least so many GB of disk.
    pub min_disk: Option<u32>,
    /// All of these tags.
    pub tags: Vec<String>,
    /// None of these.
    pub not_tags: Vec<String>,
    pub pool: Option<String>,
    pub zone: Option<String>,
    /// This very machine.
    pub machine: Option<String>,
}

impl Constraints {
    /// What an intent asks MAAS for. The Machine's failure domain wins over the intent's zone.
    pub fn of(metal: &Metal, failure_domain: Option<&str>, now: Timestamp) -> Self {
        Self {
            min_cpu: metal.min_cpu,
            min_memory: metal.min_memory,
            min_disk: metal.min_disk,
            tags: metal.tags.clone(),
            not_tags: quarantine_tags(now).to_vec(),
            pool: metal.pool.clone(),
            zone: failure_domain.map(str::to_owned).or_else(|| metal.zone.clone()),
            machine: metal.pinned.clone(),
        }
    }
}

/// One thing to do. At most one is done in a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Takes a machine under our key. Lost: a look-up by the key finds it; the journal tells that one may be under way.
    Allocate {
        key: String,
        /// What it must be like.
        constraints: Constraints,
    },
    /// Takes back a machine that we released and that kept running, to release it once more (S14). Lost: as `Allocate`.
    Reclaim { key: String, machine: String },
    /// Makes a VM, which then is nobody's (S10). Lost: a look-up by its host name finds it, or LXD says that it exists; the
    /// journal tells that one may be under way.
    Compose {
        /// The host name, which is the key until the VM is allocated.
        name: String,
        /// Where, and what it takes.
        place: Place,
    },
    /// Has MAAS look at the host again, so that a VM that only LXD knows becomes a machine. Only while every other VM in
    /// the project is known (S12). Lost: the VM shows in MAAS; doing it again changes nothing.
    RefreshHost {
        /// Number of the VM host.
        host: i64,
    },
    /// Takes the VM that was made for us, before anybody else does (S10). Lost: a look-up by the key finds it.
    Take {
        key: String,
        /// The VM.
        machine: String,
    },
    /// Puts a tag on a machine of ours. Lost: the machine shows it; doing it again changes nothing.
    Tag { machine: String, tag: String },
    /// Removes a VM of ours from MAAS and from its host. Lost: MAAS knows the VM no more; doing it again changes nothing.
    DeleteVm {
        /// The VM.
        machine: String,
    },
    /// Writes on the MaasCluster that a VM is still to be removed (S16). Lost: it is not there, and is written then; written twice,
    /// nothing changes.
    Owe(Debt),
    /// Puts our key on the machine as a workload annotation. Lost: the machine shows it; doing it again changes nothing.
    Stamp { key: String, machine: String },
    /// Turns swap off in the deployment to come, where the bootstrap data does not. Lost: the machine shows it; doing it again changes nothing.
    DisableSwap { machine: String },
    /// Makes the bridge of a machine that becomes an LXD host. Lost: the machine shows it; MAAS has every name only once.
    CreateBridge {
        machine: String,
        name: String,
        /// The interface that it is made of.
        parent: i64,
    },
    /// Writes to one interface, so that the machine gets the address that was asked for. Lost: the interface shows it; doing
    /// it again changes nothing.
    ChangeLink {
        machine: String,
        /// The write.
        change: Change,
    },
    /// Installs the image with the bootstrap data. Lost: the machine is no longer Allocated, and still under our key.
    Deploy {
        /// The key, sent along: should the machine be Ready by then, it is found by it.
        key: String,
        machine: String,
        image: String,
        /// From memory.
        in_memory: bool,
    },
    /// Keeps a machine that failed away from others (S17). Lost: the machine shows the tag; doing it again changes nothing.
    Quarantine { machine: String, tag: String },
    /// Gives the machine back. Lost: the machine is Releasing or Ready, and the journal tells that it was asked for.
    Release {
        machine: String,
        /// What happens to its disks.
        erase: Option<Wipe>,
    },
    /// Ends a wiping of disks that nobody is at any more; the machine then counts as one whose wiping failed, and is released
    /// anew. Lost: the machine is no longer at it; doing it again is refused.
    AbortErase { machine: String },
    /// Marks the VM host on a leaving machine, so that nobody places a VM there (S11). Lost: the VM host shows it.
    MarkHost {
        machine: String,
        /// The number of the VM host.
        vm_host: i64,
    },
    /// Tells the agent of a leaving machine to stop. Lost: the Node shows it.
    TellAgent { node: String },
    /// Has MAAS look at the VM host on a leaving machine, while it knows every instance there (S12). Lost: it is done again.
    LookAtHost {
        machine: String,
        /// The number of the VM host.
        vm_host: i64,
    },
    /// Unregisters the empty VM host on a leaving machine; neither `force` nor `decompose` is ever sent (S11). Lost: the VM
    /// host is gone.
    Unregister {
        machine: String,
        /// The number of the VM host.
        vm_host: i64,
    },
    /// Turns the machine on. Lost: its power shows it; the journal tells when it was last tried.
    PowerOn { machine: String },
    /// Puts the provider ID and labels on the machine's Node, in one write. Lost: the Node shows it; the provider ID can be set once
    /// only, and no label is overwritten.
    NameNode {
        node: String,
        provider_id: String,
        /// Labels that it lacks.
        labels: BTreeMap<String, String>,
    },
}

impl Effect {
    /// The machine that it is done to, if it is known beforehand.
    pub fn machine(&self) -> Option<&str> {
        match self {
            Self::Allocate { .. }
            | Self::NameNode { .. }
            | Self::Compose { .. }
            | Self::RefreshHost { .. }
            | Self::Owe(_)
            | Self::TellAgent { .. } => None,
            Self::Reclaim { machine, .. }
            | Self::Take { machine, .. }
            | Self::Tag { machine, .. }
            | Self::ChangeLink { machine, .. }
            | Self::DeleteVm { machine }
            | Self::Stamp { machine, .. }
            | Self::DisableSwap { machine }
            | Self::CreateBridge { machine, .. }
            | Self::MarkHost { machine, .. }
            | Self::LookAtHost { machine, .. }
            | Self::Unregister { machine, .. }
            | Self::Deploy { machine, .. }
            | Self::Quarantine { machine, .. }
            | Self::Release { machine, .. }
            | Self::AbortErase { machine }
            | Self::PowerOn { machine } => Some(machine),
        }
    }

    /// Whether MAAS is asked to do it, and not an API server.
    pub fn asks_maas(&self) -> bool {
        !matches!(self, Self::NameNode { .. } | Self::TellAgent { .. } | Self::Owe(_))
    }

    /// Whether a machine is as it has to be after this. An answer that does not show it is not worth more than a fresh look.
    pub fn shows_in(&self, machine: &maas::Machine) -> bool {
        match self {
            Self::Allocate { .. } => machine.state == State::Allocated,
            Self::Deploy { .. } => !matches!(machine.state, State::Allocated | State::Ready),
            Self::Release { .. } => machine.state.is_leaving(),
            _ => true,
        }
    }

    /// A live machine may lose what it holds by it, so everything is read once more before (S15).
    pub fn is_destructive(&self) -> bool {
        matches!(
            self,
            Self::Release { .. }
                | Self::AbortErase { .. }
                | Self::Deploy { .. }
                | Self::PowerOn { .. }
                | Self::Reclaim { .. }
                | Self::DeleteVm { .. }
                | Self::RefreshHost { .. }
                | Self::LookAtHost { .. }
                | Self::Unregister { .. }
        )
    }

    /// What is asked for, as far as it matters whether it was refused before (S26): not under which key or name, which may be
    /// another one with every try.
    pub fn request(&self, identity: &str) -> Request {
        let told = match self {
            Self::Allocate { constraints, .. } => format!("allocate {constraints:?}"),
            Self::Compose { place, .. } => {
                format!("compose {:?}", Place { at: Timestamp::UNIX_EPOCH, ..place.clone() })
            }
            other => format!("{other:?}"),
        };
        Request::new(&(identity, told))
    }

    /// One word for logs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Allocate { .. } => "allocate",
            Self::Reclaim { .. } => "reclaim",
            Self::Compose { .. } => "compose",
            Self::RefreshHost { .. } => "refresh_host",
            Self::Take { .. } => "take",
            Self::Tag { .. } => "tag",
            Self::ChangeLink { .. } => "change_link",
            Self::DeleteVm { .. } => "delete_vm",
            Self::Owe(_) => "owe",
            Self::Stamp { .. } => "stamp",
            Self::DisableSwap { .. } => "disable_swap",
            Self::CreateBridge { .. } => "create_bridge",
            Self::Deploy { .. } => "deploy",
            Self::Quarantine { .. } => "quarantine",
            Self::Release { .. } => "release",
            Self::AbortErase { .. } => "abort_erase",
            Self::MarkHost { .. } => "mark_host",
            Self::TellAgent { .. } => "tell_agent",
            Self::LookAtHost { .. } => "look_at_host",
            Self::Unregister { .. } => "unregister",
            Self::PowerOn { .. } => "power_on",
            Self::NameNode { .. } => "name_node",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s17_a_machine_that_failed_comes_back_by_itself_after_one_to_two_days() {
        let at = |text: &str| quarantine_tags(text.parse().unwrap());
        let given = at("2026-11-15T23:00:00Z")[0].clone();
        assert_eq!(given, "capmaas-quarantine-2026-11-15");
        assert!(at("2026-11-16T23:59:59Z").contains(&given));
        assert!(!at("2026-11-17T00:00:00Z").contains(&given));
    }
}
