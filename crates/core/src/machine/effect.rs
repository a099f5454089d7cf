//! The effects on MAAS and on Nodes for one machine.

use std::collections::BTreeMap;

use jiff::{Timestamp, ToSpan as _};

use super::debt::Debt;
use super::vm_journal::Place;
use crate::backoff::Request;
use crate::intent::{Metal, Wipe};
use crate::links::Change;
use crate::maas::{self, State};

/// Prefix of the tags that keep a failed machine out of every allocation; the rest is the day.
pub const QUARANTINE_PREFIX: &str = "capmaas-quarantine-";

/// The tags that exclude a machine today: today's, which a machine that fails now gets, and yesterday's. So a machine becomes
/// available again by itself after one to two days, whatever restarts meanwhile, and at once if a person removes the tag.
pub fn quarantine_tags(now: Timestamp) -> [String; 2] {
    let day = |time: Timestamp| format!("{QUARANTINE_PREFIX}{}", time.strftime("%Y-%m-%d"));
    [day(now), day(now.checked_sub(24.hours()).unwrap_or(now))]
}

/// The constraints of an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Constraints {
    /// Cores.
    pub min_cpu: Option<u32>,
    /// MB.
    pub min_memory: Option<u32>,
    /// GB.
    pub min_disk: Option<u32>,
    /// All of these.
    pub tags: Vec<String>,
    /// None of these.
    pub not_tags: Vec<String>,
    pub pool: Option<String>,
    pub zone: Option<String>,
    /// Exactly this machine.
    pub machine: Option<String>,
}

impl Constraints {
    /// The constraints for an intent. The Machine's failure domain wins over the intent's zone.
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

/// One action. At most one is performed in a pass.
///
/// Each variant states how its result is seen again if it took effect and we crashed before recording it ("after a crash").
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Allocates a machine under our idempotency key. After a crash: a lookup by the key finds it; the journal shows that an
    /// allocation may be in flight.
    Allocate {
        key: String,
        /// What the machine must have.
        constraints: Constraints,
    },
    /// Allocates a machine again that we released and that stayed powered on, to release it once more (S14). After a crash: as
    /// for `Allocate`.
    Reclaim { key: String, machine: String },
    /// Creates a VM, which nobody owns at first (S10). After a crash: a lookup by its host name finds it, or LXD reports that it
    /// exists; the journal shows that a creation may be in flight.
    Compose {
        /// The host name, which serves as the idempotency key until the VM is allocated.
        name: String,
        /// The host, and the resources that the VM takes there.
        place: Place,
    },
    /// Makes MAAS refresh the host, so that a VM that only LXD knows becomes a machine. Only while MAAS knows every other VM in
    /// the project (S12). After a crash: the VM shows in MAAS; a repetition changes nothing.
    RefreshHost {
        /// ID of the VM host.
        host: i64,
    },
    /// Allocates the VM that was made for us, before anybody else does (S10). After a crash: a lookup by the idempotency key
    /// finds it.
    Take {
        key: String,
        /// The VM.
        machine: String,
    },
    /// Tags a machine of ours. After a crash: the machine shows the tag; a repetition changes nothing.
    Tag { machine: String, tag: String },
    /// Deletes a VM of ours from MAAS and from its host. After a crash: MAAS does not know the VM any more; a repetition changes
    /// nothing.
    DeleteVm {
        /// The VM.
        machine: String,
    },
    /// Records on the MaasCluster that a VM still has to be removed (S16). After a crash: the MaasCluster shows the debt, or it
    /// is recorded then; a repetition changes nothing.
    Owe(Debt),
    /// Stamps the machine with our idempotency key, as a workload annotation. After a crash: the machine shows the stamp; a
    /// repetition changes nothing.
    Stamp { key: String, machine: String },
    /// Turns swap off for the next deployment, where the bootstrap data does not. After a crash: the machine shows it; a
    /// repetition changes nothing.
    DisableSwap { machine: String },
    /// Creates the bridge of a machine that becomes an LXD host. After a crash: the machine shows the bridge; MAAS accepts every
    /// name only once.
    CreateBridge {
        machine: String,
        name: String,
        /// ID of the interface that is bridged.
        parent: i64,
    },
    /// Changes one interface, so that the machine gets the requested address. After a crash: the interface shows the change; a
    /// repetition changes nothing.
    ChangeLink {
        machine: String,
        /// The write.
        change: Change,
    },
    /// Deploys the image with the bootstrap data. After a crash: the machine is no longer Allocated, and still carries our
    /// idempotency key.
    Deploy {
        /// The idempotency key, sent along: should the machine be Ready by then, a lookup by the key finds it.
        key: String,
        machine: String,
        image: String,
        /// The image runs from memory.
        in_memory: bool,
    },
    /// Keeps a failed machine out of further allocations (S17). After a crash: the machine shows the tag; a repetition changes
    /// nothing.
    Quarantine { machine: String, tag: String },
    /// Releases the machine. After a crash: the machine is Releasing or Ready, and the journal shows that the release was
    /// requested.
    Release {
        machine: String,
        /// How its disks are wiped.
        erase: Option<Wipe>,
    },
    /// Aborts a disk wipe that nothing works on any more; the machine then counts as one whose wipe failed, and is released
    /// again. After a crash: the machine is no longer wiping; a repetition is refused.
    AbortErase { machine: String },
    /// Tags the VM host on a machine that is being released, so that no VM is placed there (S11). After a crash: the VM host
    /// shows the tag.
    MarkHost {
        machine: String,
        /// ID of the VM host.
        vm_host: i64,
    },
    /// Asks the agent on a machine that is being released to stop. After a crash: the Node shows the request.
    TellAgent { node: String },
    /// Makes MAAS refresh the VM host on a machine that is being released, while MAAS knows every instance there (S12). After a
    /// crash: the refresh is repeated.
    LookAtHost {
        machine: String,
        /// ID of the VM host.
        vm_host: i64,
    },
    /// Unregisters the empty VM host on a machine that is being released; neither `force` nor `decompose` is ever sent (S11).
    /// After a crash: the VM host is gone.
    Unregister {
        machine: String,
        /// ID of the VM host.
        vm_host: i64,
    },
    /// Powers the machine on. After a crash: its power shows it; the journal has the time of the last attempt.
    PowerOn { machine: String },
    /// Sets the provider ID and labels of the machine's Node, in one write. After a crash: the Node shows them; the provider ID
    /// can be set only once, and no label is overwritten.
    NameNode {
        node: String,
        provider_id: String,
        /// The labels that it lacks.
        labels: BTreeMap<String, String>,
    },
}

impl Effect {
    /// The machine that the effect is about, if it is known beforehand.
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

    /// Whether the request goes to MAAS, and not to an API server.
    pub fn asks_maas(&self) -> bool {
        !matches!(self, Self::NameNode { .. } | Self::TellAgent { .. } | Self::Owe(_))
    }

    /// Whether a machine shows the result of this effect. If the answer does not show it, only a fresh read counts.
    pub fn shows_in(&self, machine: &maas::Machine) -> bool {
        match self {
            Self::Allocate { .. } => machine.state == State::Allocated,
            Self::Deploy { .. } => !matches!(machine.state, State::Allocated | State::Ready),
            Self::Release { .. } => machine.state.is_leaving(),
            _ => true,
        }
    }

    /// Whether a live machine may lose data or service by it, so that everything is read again first (S15).
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

    /// The request as far as an earlier refusal matters (S26): without the idempotency key or name, which may differ with every
    /// attempt.
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

    /// For logs and metrics.
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
