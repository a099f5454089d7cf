//! What a journal remembers about a VM: its name, and how far its making has come.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::journal::{KEY_PREFIX, is_false};
use crate::conditions::whole_seconds;
use crate::maas;

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
    /// How far it has come.
    #[serde(flatten)]
    pub stage: VmStage,
    /// Hosts that failed, and that are left out for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoided: Vec<Avoided>,
}

/// How far the making of a VM has come. As long as the VM is not there, its place is the claim that other placements heed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredStage", into = "StoredStage")]
pub enum VmStage {
    /// It has no place yet.
    Unplaced,
    /// It is made here, or is going to be.
    Placed(Place),
    /// MAAS was told to make it here and never said what became of that: LXD may have it.
    Unanswered(Place),
    /// LXD has a VM of its name here and MAAS does not know it: what was made before MAAS died.
    OnlyInLxd(Place),
}

impl VmStage {
    /// Where it is made.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Self::Unplaced => None,
            Self::Placed(place) | Self::Unanswered(place) | Self::OnlyInLxd(place) => Some(place),
        }
    }

    pub(super) fn place_mut(&mut self) -> Option<&mut Place> {
        match self {
            Self::Unplaced => None,
            Self::Placed(place) | Self::Unanswered(place) | Self::OnlyInLxd(place) => Some(place),
        }
    }

    /// Whether LXD may have a VM that MAAS does not show.
    pub(super) fn may_be_in_lxd(&self) -> bool {
        matches!(self, Self::Unanswered(_) | Self::OnlyInLxd(_))
    }

    /// The stage at the same place that `next` makes of it.
    pub(super) fn become_at(&mut self, next: fn(Place) -> Self) {
        if let Some(place) = self.place() {
            *self = next(place.clone());
        }
    }
}

/// The stage as it is stored, among the other fields about the VM.
#[derive(Serialize, Deserialize)]
struct StoredStage {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<Place>,
    #[serde(default, skip_serializing_if = "is_false")]
    exists: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    unanswered: bool,
}

impl From<StoredStage> for VmStage {
    fn from(stored: StoredStage) -> Self {
        match (stored.place, stored.exists, stored.unanswered) {
            (None, _, _) => Self::Unplaced,
            (Some(place), true, _) => Self::OnlyInLxd(place),
            (Some(place), false, true) => Self::Unanswered(place),
            (Some(place), false, false) => Self::Placed(place),
        }
    }
}

impl From<VmStage> for StoredStage {
    fn from(stage: VmStage) -> Self {
        let (exists, unanswered) = (matches!(stage, VmStage::OnlyInLxd(_)), matches!(stage, VmStage::Unanswered(_)));
        Self { place: stage.place().cloned(), exists, unanswered }
    }
}

/// Where a VM is made, and what it takes there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// Number of the VM host in MAAS.
    pub host: i64,
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
        let host = self.stage.place().map(|place| place.host_name.as_str()).unwrap_or_default();
        format!(
            "MAAS did not say what became of {}, and does not know it; see whether LXD of {host} has a VM of that name, and \
             delete it there",
            self.name
        )
    }

    /// The journal of a VM to be, whose names begin with this object's name.
    pub fn new(object: &str, uid: &str) -> Self {
        let base = base_name(object, uid);
        Self { name: host_name(&base, 0), base, tries: 0, stage: VmStage::Unplaced, avoided: Vec::new() }
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
        let Some(place) = self.stage.place() else { return };
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
pub(super) fn uid_of(key: &str) -> &str {
    key.strip_prefix(KEY_PREFIX).unwrap_or(key)
}

pub(super) fn host_name(base: &str, tries: u32) -> String {
    if tries == 0 { base.to_owned() } else { format!("{base}-{}", tries.saturating_add(1)) }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

impl maas::Machine {
    /// It is the VM that was made under the name in the journal, where it was going to be made; and the name is one that only the object
    /// of this key gives. Whose it is, is another question.
    pub fn is_made_for(&self, vm: &VmJournal, key: &str) -> bool {
        let there = vm.stage.place().is_some_and(|place| self.vm_host == Some(place.host));
        self.is_vm() && there && self.hostname == vm.name && is_made_up(&vm.name, key)
    }
}
