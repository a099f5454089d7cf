//! What a `MaasMachine` remembers across crashes, moves and backups: an annotation, because status survives neither.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::conditions::whole_seconds;
use crate::hosts::leaving::Note;
use crate::maas;
use crate::origin::{Origin, WrittenFor};
use crate::plan::IN_FLIGHT;

/// The annotation that holds the [`Record`].
pub const JOURNAL_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/maas-record";
/// Annotation by which a person gives a machine up: its value is the system ID (S14).
pub const ABANDON_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/abandon-machine";
/// Annotation by which a person asks that the machine is never turned on by us; its presence counts (S20).
pub const LEAVE_POWER_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/leave-power";

/// What every key begins with; the rest is the UID of the object that it was made for.
const KEY_PREFIX: &str = "capmaas-";

/// What is remembered. Written before the first effect; the key is never computed again (S3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Journal {
    /// The key: `agent_name` in MAAS, and the stamp on the machine.
    pub key: String,
    /// The object that this was written for (S25). Absent: by a release that did not say so; then the UID in the key tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_for: Option<WrittenFor>,
    /// MAAS users that the object had before: what was allocated then is theirs in MAAS, and ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_users: Vec<String>,
    /// What is remembered about a VM besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<VmJournal>,
    /// System ID of the machine that is ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The machine was there before us: the Go provider allocated it, without any mark.
    #[serde(default, skip_serializing_if = "is_false")]
    pub adopted: bool,
    /// A write to MAAS that was going to be sent, and whose outcome is not known (S2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<InFlight>,
    /// When the deployment under way was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy_began: Option<Timestamp>,
    /// When the machine was last turned on by us, and how often in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turned_on: Option<TurnedOn>,
    /// The account may not turn swap off: it stays on.
    #[serde(default, skip_serializing_if = "is_false")]
    pub swap_denied: bool,
    /// System ID of the machine that we asked MAAS to release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<String>,
    /// When it was asked to, or when it was first seen on its way back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_began: Option<Timestamp>,
    /// Machines that were released on their way up, and when each of them was first seen off since (S14).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rising: BTreeMap<String, Option<Timestamp>>,
    /// Machines that were allocated under our key as well, and are followed until they are seen released (S4).
    #[serde(rename = "extra", default, skip_serializing_if = "Vec::is_empty")]
    pub surplus: Vec<String>,
    /// VMs on hosts that died before they were of use: the MaasCluster owes their removal, and they are none of ours (S16).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owed: Vec<String>,
    /// The machine is a VM host on its way out (S11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<Note>,
    /// Attempts that failed: machines that are not tried again, once for each time that MAAS handed one out (S17).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Failure>,
}

/// A write whose outcome is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InFlight {
    /// What was sent.
    pub write: Write,
    /// When.
    pub at: Timestamp,
}

/// The writes that must not be sent twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Write {
    /// An allocation.
    Allocate,
    /// A deployment, which on a Ready machine is an allocation too.
    Deploy,
    /// A release, which late would hit the machine's next owner.
    Release,
    /// A VM that is being made.
    Compose,
}

impl InFlight {
    /// Whether it may still take effect.
    pub fn may_still_land(&self, now: Timestamp) -> bool {
        now.duration_since(self.at) < IN_FLIGHT
    }
}

/// When and how often a machine was turned on by us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnedOn {
    /// The last time.
    pub at: Timestamp,
    /// How often since it was last seen on.
    pub times: u32,
}

/// A machine that failed.
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

/// What is remembered about a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmJournal {
    /// The host name of the VM: its key in MAAS and in LXD until it is allocated. Written before the VM is made (S3).
    pub name: String,
    /// What every name of this object's VMs begins with.
    pub base: String,
    /// How many names were used up before this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
    /// Where it is made. As long as the VM is not there, this is the claim that other placements heed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// LXD has a VM of this name and MAAS does not know it: what was made before MAAS died.
    #[serde(default, skip_serializing_if = "is_false")]
    pub exists: bool,
    /// MAAS was told to make it and never said what became of that: LXD may have it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unanswered: bool,
    /// Hosts that failed, and that are left out for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoided: Vec<Avoided>,
}

/// Where a VM is made, and what it takes there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// Number of the VM host in MAAS.
    pub host: i64,
    /// Its name.
    pub host_name: String,
    /// Its LXD project, if MAAS tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Its zone, which the VM gets.
    pub zone: String,
    /// The zone's number, which is how MAAS wants it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone_id: Option<i64>,
    /// The storage pool of the root disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_pool: Option<String>,
    /// Its network cards; none leaves them to MAAS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<VmNic>,
    /// Cores.
    pub cores: u32,
    /// MiB.
    pub memory: u32,
    /// GB.
    pub disk: u32,
    /// When it was chosen.
    pub at: Timestamp,
}

/// A network card of a VM to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmNic {
    /// `eth0`, …
    pub name: String,
    /// The subnet that it is attached to, as `10.0.0.0/24`.
    pub subnet: String,
}

/// A host that is left out for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Avoided {
    /// Number of the VM host in MAAS.
    pub host: i64,
    /// Since when.
    pub at: Timestamp,
}

/// A host that failed for a machine is not chosen again for this long: others are tried first, and it may recover.
pub const AVOIDED: SignedDuration = SignedDuration::from_mins(30);

impl VmJournal {
    /// What a person has to know before the name is given up: LXD may have a VM that MAAS does not know. Nothing in MAAS
    /// shows it, and a refresh may harm others (S12).
    pub(super) fn may_be_left(&self) -> String {
        let host = self.place.as_ref().map(|place| place.host_name.as_str()).unwrap_or_default();
        format!(
            "MAAS did not say what became of {}, and does not know it; see whether LXD of {host} has a VM of that name, and \
             delete it there",
            self.name
        )
    }

    /// The journal of a VM to be, whose names begin with this object's name.
    pub fn new(object: &str, uid: &str) -> Self {
        let base = base_name(object, uid);
        Self {
            name: host_name(&base, 0),
            base,
            tries: 0,
            place: None,
            exists: false,
            unanswered: false,
            avoided: Vec::new(),
        }
    }

    /// The journal of a VM that the Go provider was making under this name.
    pub fn named(name: &str, object: &str, uid: &str) -> Self {
        Self { name: name.to_owned(), ..Self::new(object, uid) }
    }

    /// The hosts that are left out now.
    pub fn avoids(&self, now: Timestamp) -> impl Iterator<Item = i64> + '_ {
        self.avoided.iter().filter(move |avoided| now.duration_since(avoided.at) < AVOIDED).map(|avoided| avoided.host)
    }

    /// Leaves the host of the VM out for a while.
    pub fn avoid_host(&mut self, now: Timestamp) {
        let Some(place) = &self.place else { return };
        let host = place.host;
        self.avoided.retain(|avoided| avoided.host != host && now.duration_since(avoided.at) < AVOIDED);
        self.avoided.push(Avoided { host, at: whole_seconds(now) });
    }
}

/// A DNS label that begins with the object's name, so that people and the Node's name agree with it, and that nobody else has:
/// the object's uid is in it as a short hash. Leaves room for the number of the try.
fn base_name(object: &str, uid: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let label: String = object.chars().map(fit).take(48).collect();
    let hash = short_hash(uid);
    let label = label.trim_matches('-');
    if label.is_empty() { format!("vm-{hash:08x}") } else { format!("{label}-{hash:08x}") }
}

/// FNV-1a: any hash will do that stays the same for ever.
fn short_hash(uid: &str) -> u32 {
    uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Whether we made a name up ourselves for the object of this key, so that a VM which carries it was made for that object. The name that
/// an annotation of the Go provider gives is none: anybody can write it.
pub(super) fn is_made_up(name: &str, key: &str) -> bool {
    let hash = format!("-{:08x}", short_hash(uid_of(key)));
    let again = name.rsplit_once('-').filter(|(_, tries)| tries.parse::<u32>().is_ok()).map(|(base, _)| base);
    name.ends_with(&hash) || again.is_some_and(|base| base.ends_with(&hash))
}

/// The UID that a key was made of.
fn uid_of(key: &str) -> &str {
    key.strip_prefix(KEY_PREFIX).unwrap_or(key)
}

fn host_name(base: &str, tries: u32) -> String {
    if tries == 0 { base.to_owned() } else { format!("{base}-{}", tries.saturating_add(1)) }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Journal {
    /// A new journal with a key that nobody else has. `uid` is the object's; it is used here and never again (S3).
    pub fn new(uid: &str) -> Self {
        Self {
            key: format!("{KEY_PREFIX}{uid}"),
            written_for: None,
            earlier_users: Vec::new(),
            vm: None,
            machine: None,
            adopted: false,
            in_flight: None,
            deploy_began: None,
            turned_on: None,
            swap_denied: false,
            released: None,
            release_began: None,
            rising: BTreeMap::new(),
            surplus: Vec::new(),
            owed: Vec::new(),
            leaving: None,
            failed: Vec::new(),
        }
    }

    /// The UID of the object that a key was made for.
    pub fn uid_in(key: &str) -> Option<&str> {
        key.strip_prefix(KEY_PREFIX)
    }

    /// Whether it says that it was written for another object than that of this metadata: that one is a copy (S25).
    pub fn is_anothers(&self, metadata: &ObjectMeta) -> bool {
        matches!(WrittenFor::judge(self.written_for.as_ref(), metadata), Origin::Copy(_))
    }

    /// Whether MAAS may hold something under the key: a machine is in the journal, or one may be on its way. While that is so, the
    /// identity that it was asked for with is not given up (S5).
    pub fn may_hold_something(&self) -> bool {
        let made = self.vm.as_ref().is_some_and(|vm| vm.exists || vm.unanswered);
        self.machine.is_some() || self.in_flight.is_some() || !self.surplus.is_empty() || made
    }

    /// What the annotations say: nothing yet, a journal, or something that cannot be read, which is not nothing.
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

    /// The value of the annotation.
    pub fn text(&self) -> String {
        // Cannot fail: texts, numbers and times only.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// This write is going to be sent.
    #[must_use]
    pub fn sending(mut self, write: Write, now: Timestamp) -> Self {
        self.in_flight = Some(InFlight { write, at: whole_seconds(now) });
        self
    }

    /// The release of the machine in the journal is going to be sent.
    #[must_use]
    pub fn releasing(self, metal: &maas::Machine, now: Timestamp) -> Self {
        let mut journal = self.sending(Write::Release, now);
        journal.note_rising(metal, now);
        journal.released = Some(metal.id.clone());
        journal.release_began = Some(whole_seconds(now));
        journal
    }

    /// Forgets the machine, and everything that was about it.
    #[must_use]
    pub fn without_machine(mut self) -> Self {
        if let Some(id) = self.machine.take() {
            self.rising.remove(&id);
        }
        self.adopted = false;
        self.deploy_began = None;
        self.turned_on = None;
        self.swap_denied = false;
        self.released = None;
        self.release_began = None;
        self.leaving = None;
        self
    }

    /// Forgets the VM, its place and its name: the next one is made under another name, so that nothing that was begun under
    /// the old one can be taken for it.
    #[must_use]
    pub fn without_vm(self) -> Self {
        let mut journal = self.without_machine();
        match &mut journal.vm {
            Some(vm) => {
                vm.tries += 1;
                vm.name = host_name(&vm.base, vm.tries);
                vm.place = None;
                (vm.exists, vm.unanswered) = (false, false);
            }
            // It was taken over, and the next one is a VM as well (S27).
            None => journal.vm = Some(VmJournal::new("", uid_of(&journal.key))),
        }
        journal
    }

    /// Whether the machine failed or was given back, so that it is only to be got rid of.
    pub fn is_to_go(&self, id: &str) -> bool {
        self.released.as_deref() == Some(id) || self.failed.iter().any(|failure| failure.machine == id)
    }

    /// Whether a VM that nobody has and nobody marked is provably the one of this journal: it was made for it. A line in the journal is
    /// no proof, because people can write one.
    pub(super) fn is_proven(&self, metal: &maas::Machine) -> bool {
        metal.stamp.is_none() && self.would_be_proven(metal)
    }

    /// The same of a VM that still carries a mark.
    pub(super) fn would_be_proven(&self, metal: &maas::Machine) -> bool {
        self.vm.as_ref().is_some_and(|vm| metal.is_made_for(vm, &self.key))
    }

    /// Where the VM is made or was made.
    pub fn place(&self) -> Option<&Place> {
        self.vm.as_ref().and_then(|vm| vm.place.as_ref())
    }
}

impl maas::Machine {
    /// It is the VM that was made under the name in the journal, where it was going to be made; and the name is one that only the object
    /// of this key gives. Whose it is, is another question.
    pub fn is_made_for(&self, vm: &VmJournal, key: &str) -> bool {
        let there = vm.place.as_ref().is_some_and(|place| self.vm_host == Some(place.host));
        self.is_vm() && there && self.hostname == vm.name && is_made_up(&vm.name, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(text: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(JOURNAL_ANNOTATION.to_owned(), text.to_owned())])
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut journal = Journal::new("u-1").sending(Write::Deploy, Timestamp::UNIX_EPOCH);
        journal.machine = Some("abc123".into());
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
