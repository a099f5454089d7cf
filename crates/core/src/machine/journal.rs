//! The journal: what a `MaasMachine` remembers across crashes, moves and backups. It is an annotation, because status survives
//! neither a move nor a backup.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::vm_journal::{Place, VmJournal, VmStage, host_name};
use crate::conditions::whole_seconds;
use crate::hosts::leaving::Note;
use crate::maas;
use crate::origin::{Origin, WrittenFor};
use crate::plan::IN_FLIGHT;

/// The annotation that holds the [`Journal`].
pub const JOURNAL_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/maas-record";
/// Annotation by which a person abandons a machine: its value is the system ID (S14).
pub const ABANDON_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/abandon-machine";
/// Annotation that keeps us from ever powering the machine on; its presence counts (S20).
pub const LEAVE_POWER_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/leave-power";

/// Prefix of every idempotency key; the rest is the UID of the object that it was made for.
const KEY_PREFIX: &str = "capmaas-";

/// What must survive a crash. Written before the first effect; the idempotency key is never computed again (S3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Journal {
    /// The idempotency key: `agent_name` in MAAS, and the stamp on the machine.
    pub key: String,
    /// The object that this was written for (S25). Absent in journals of releases that did not store it; then the UID in the key
    /// identifies the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_for: Option<WrittenFor>,
    /// MAAS users that the object had before: machines that were allocated then belong to them in MAAS, and are still ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_users: Vec<String>,
    /// Present for a VM only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<VmJournal>,
    /// The machine that is ours.
    #[serde(flatten, deserialize_with = "Allocation::stored")]
    pub allocation: Option<Allocation>,
    /// A write to MAAS that was about to be sent and whose outcome is not known (S2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<InFlight>,
    /// Machines that were released while powering on, with the time when each was first seen off since (S14).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rising: BTreeMap<String, Option<Timestamp>>,
    /// Surplus machines under our idempotency key, followed until they are seen released (S4).
    #[serde(rename = "extra", default, skip_serializing_if = "Vec::is_empty")]
    pub surplus: Vec<String>,
    /// VMs on hosts that died before the VMs were in use: the MaasCluster owes their removal, and they are no longer ours (S16).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owed: Vec<String>,
    /// Failed attempts: machines that are not tried again, one entry for each time that MAAS allocated one (S17).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Failure>,
}

/// The machine that is ours, and everything that is remembered about it: dropped together. Stored flattened into the journal,
/// where releases without this type expect the fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Allocation {
    /// Its system ID.
    pub machine: String,
    /// It existed before us: the Go provider allocated it, without any stamp.
    #[serde(default, skip_serializing_if = "is_false")]
    pub adopted: bool,
    /// When the current deployment began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy_began: Option<Timestamp>,
    /// When we last powered it on, and how often in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turned_on: Option<TurnedOn>,
    /// The account may not turn swap off, so it stays on.
    #[serde(default, skip_serializing_if = "is_false")]
    pub swap_denied: bool,
    /// The system ID under which we requested its release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<String>,
    /// When the release was requested, or when it was first seen releasing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_began: Option<Timestamp>,
    /// Present for a VM host that is being released (S11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<Note>,
}

impl Allocation {
    /// A machine of which nothing else is known yet.
    pub fn of(machine: impl Into<String>) -> Self {
        Self {
            machine: machine.into(),
            adopted: false,
            deploy_began: None,
            turned_on: None,
            swap_denied: false,
            released: None,
            release_began: None,
            leaving: None,
        }
    }

    /// Whether its release under this ID was requested.
    pub fn is_released(&self, id: &str) -> bool {
        self.released.as_deref() == Some(id)
    }

    /// Reads the allocation from the flattened fields. `None` without a machine; an unreadable one is an error (S1).
    fn stored<'de, D: Deserializer<'de>>(stored: D) -> Result<Option<Self>, D::Error> {
        let fields = serde_json::Map::deserialize(stored)?;
        if fields.get("machine").is_none_or(Value::is_null) {
            return Ok(None);
        }
        Self::deserialize(Value::Object(fields)).map(Some).map_err(D::Error::custom)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InFlight {
    pub write: Write,
    pub at: Timestamp,
}

/// The writes that must not be sent twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Write {
    Allocate,
    /// Deploying a Ready machine allocates it, too.
    Deploy,
    /// A late release would hit the machine's next owner.
    Release,
    Compose,
}

impl InFlight {
    /// Whether it may still take effect.
    pub fn may_still_land(&self, now: Timestamp) -> bool {
        now.duration_since(self.at) < IN_FLIGHT
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnedOn {
    /// The last time.
    pub at: Timestamp,
    /// How often since it was last seen on.
    pub times: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Its system ID.
    pub machine: String,
    /// The image that was being deployed.
    pub image: String,
    /// The image is not to blame: the machine has no power or no DHCP, or was never deployed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub power: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(super) fn is_false(value: &bool) -> bool {
    !value
}

impl Journal {
    /// A new journal with a unique idempotency key. `uid` is the object's; it is used here and never again (S3).
    pub fn new(uid: &str) -> Self {
        Self {
            key: format!("{KEY_PREFIX}{uid}"),
            written_for: None,
            earlier_users: Vec::new(),
            vm: None,
            allocation: None,
            in_flight: None,
            rising: BTreeMap::new(),
            surplus: Vec::new(),
            owed: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// The UID of the object that an idempotency key was made for.
    pub fn uid_in(key: &str) -> Option<&str> {
        key.strip_prefix(KEY_PREFIX)
    }

    /// Whether the journal was written for another object than the one of this metadata: this object is a copy then (S25).
    pub fn is_anothers(&self, metadata: &ObjectMeta) -> bool {
        matches!(WrittenFor::judge(self.written_for.as_ref(), metadata), Origin::Copy(_))
    }

    /// System ID of the machine that is ours.
    pub fn machine(&self) -> Option<&String> {
        self.allocation.as_ref().map(|allocation| &allocation.machine)
    }

    /// Whether this is the machine that is ours.
    pub fn has_machine(&self, id: &str) -> bool {
        self.machine().is_some_and(|machine| machine == id)
    }

    /// Whether the machine existed before us.
    pub fn is_adopted(&self) -> bool {
        self.allocation.as_ref().is_some_and(|allocation| allocation.adopted)
    }

    /// Whether the release of the machine with this ID was requested.
    pub fn is_released(&self, id: &str) -> bool {
        self.allocation.as_ref().is_some_and(|allocation| allocation.is_released(id))
    }

    /// The allocation of this machine, which becomes ours if none was. The same machine may come back under another ID.
    pub(super) fn allocation_of(&mut self, id: &str) -> &mut Allocation {
        let allocation = self.allocation.get_or_insert_with(|| Allocation::of(id));
        if allocation.machine != id {
            id.clone_into(&mut allocation.machine);
        }
        allocation
    }

    /// Whether MAAS may hold something under the idempotency key: a machine is in the journal, or an allocation may be in flight.
    /// While that is so, the MAAS identity that made the request is not given up (S5).
    pub fn may_hold_something(&self) -> bool {
        let made = self.vm.as_ref().is_some_and(|vm| vm.stage.may_be_in_lxd());
        self.allocation.is_some() || self.in_flight.is_some() || !self.surplus.is_empty() || made
    }

    /// Reads the annotation: none yet, a journal, or an error if it is unreadable, which is not the same as none.
    pub fn read(annotations: Option<&BTreeMap<String, String>>) -> Result<Option<Self>, String> {
        let Some(text) = annotations.and_then(|annotations| annotations.get(JOURNAL_ANNOTATION)) else {
            return Ok(None);
        };
        match serde_json::from_str::<Self>(text) {
            Ok(journal) if !journal.key.is_empty() => Ok(Some(journal)),
            Ok(_) => Err(format!("the annotation {JOURNAL_ANNOTATION} has an empty key; restore it")),
            Err(error) => Err(format!("cannot read the annotation {JOURNAL_ANNOTATION}: {error}; restore it")),
        }
    }

    pub fn text(&self) -> String {
        // Cannot fail: only strings, numbers and times.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether MAAS will show every difference to the stored journal again, also after a crash: that a write has landed, and
    /// which machine an allocation returned. Does not cover VMs, which are found by host and name.
    pub(super) fn is_observable_beyond(&self, stored: &Self) -> bool {
        let allocation = stored.allocation.clone().or_else(|| Some(Allocation::of(self.machine()?)));
        self.vm.is_none() && *self == Self { in_flight: None, allocation, ..stored.clone() }
    }

    /// Records that this write is about to be sent.
    #[must_use]
    pub fn sending(mut self, write: Write, now: Timestamp) -> Self {
        self.in_flight = Some(InFlight { write, at: whole_seconds(now) });
        self
    }

    /// Records that the release of the machine in the journal is about to be sent.
    #[must_use]
    pub fn releasing(self, metal: &maas::Machine, now: Timestamp) -> Self {
        let mut journal = self.sending(Write::Release, now);
        journal.note_rising(metal, now);
        let allocation = journal.allocation_of(&metal.id);
        allocation.released = Some(metal.id.clone());
        allocation.release_began = Some(whole_seconds(now));
        journal
    }

    /// Forgets the machine, and everything about it.
    #[must_use]
    pub fn without_machine(mut self) -> Self {
        if let Some(allocation) = self.allocation.take() {
            self.rising.remove(&allocation.machine);
        }
        self
    }

    /// Forgets the VM, its place and its name: the next one is made under another name, so that nothing that was begun under the
    /// old one can be mistaken for it.
    #[must_use]
    pub fn without_vm(self) -> Self {
        let mut journal = self.without_machine();
        if let Some(vm) = &mut journal.vm {
            vm.tries += 1;
            vm.name = host_name(&vm.base, vm.tries);
            vm.stage = VmStage::Unplaced;
        } else {
            // It was adopted, and the next one is a VM as well (S27).
            let uid = Self::uid_in(&journal.key).unwrap_or(&journal.key);
            journal.vm = Some(VmJournal::new("", uid));
        }
        journal
    }

    /// Whether the machine failed or was released, so that it only has to be disposed of.
    pub fn is_to_go(&self, id: &str) -> bool {
        self.is_released(id) || self.failed.iter().any(|failure| failure.machine == id)
    }

    /// Whether a VM that nobody owns and nobody stamped is provably the one of this journal: it was made for it. An entry in the
    /// journal is no proof, because people can write one.
    pub(super) fn is_proven(&self, metal: &maas::Machine) -> bool {
        metal.stamp.is_none() && self.would_be_proven(metal)
    }

    /// The same for a VM that still carries a stamp.
    pub(super) fn would_be_proven(&self, metal: &maas::Machine) -> bool {
        self.vm.as_ref().is_some_and(|vm| metal.is_made_for(vm, &self.key))
    }

    /// Where the VM is or was made.
    pub fn place(&self) -> Option<&Place> {
        self.vm.as_ref().and_then(|vm| vm.stage.place())
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn annotations(text: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(JOURNAL_ANNOTATION.to_owned(), text.to_owned())])
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut journal = Journal::new("u-1").sending(Write::Deploy, Timestamp::UNIX_EPOCH);
        journal.allocation_of("abc123").swap_denied = true;
        journal.failed.push(Failure { machine: "def456".into(), image: "jammy".into(), power: true });
        assert_eq!(Journal::read(Some(&annotations(&journal.text()))), Ok(Some(journal)));
        assert_eq!(Journal::read(None), Ok(None));
        assert_eq!(Journal::read(Some(&BTreeMap::new())), Ok(None));
    }

    #[test]
    fn s01_a_record_that_cannot_be_read_is_not_absent() {
        for text in ["", "{", "{}", "[]", "{\"key\":\"\"}", "{\"key\":\"k\",\"inFlight\":{\"write\":\"sing\"}}"] {
            assert!(Journal::read(Some(&annotations(text))).is_err(), "{text}");
        }
    }

    #[test]
    fn s02_a_write_lands_before_its_deadline_or_never() {
        let sent = InFlight { write: Write::Allocate, at: Timestamp::UNIX_EPOCH };
        assert!(sent.may_still_land(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(149)));
        assert!(!sent.may_still_land(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(150)));
    }
}
