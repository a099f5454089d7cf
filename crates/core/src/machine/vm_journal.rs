//! What a journal remembers about a VM: its name, and the stage of its creation.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::journal::{Journal, is_false};
use crate::conditions::whole_seconds;
use crate::maas;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmJournal {
    /// The host name of the VM: its idempotency key in MAAS and in LXD until it is allocated. Written before the VM is created
    /// (S3).
    pub name: String,
    /// Prefix of all names of this object's VMs.
    pub base: String,
    /// How many names were used before this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
    #[serde(flatten)]
    pub stage: VmStage,
    /// Hosts that failed, and that are left out for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoided: Vec<Avoided>,
}

/// The stage of a VM's creation. As long as the VM does not exist, its place is the claim that other placements account for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredStage", into = "StoredStage")]
pub enum VmStage {
    /// It has no place yet.
    Unplaced,
    /// It is or will be created here.
    Placed(Place),
    /// MAAS was asked to create it here and never answered: LXD may have it.
    Unanswered(Place),
    /// LXD has a VM of its name here and MAAS does not know it: created before MAAS crashed.
    OnlyInLxd(Place),
}

impl VmStage {
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

    /// Moves to the stage that `next` makes, at the same place.
    pub(super) fn become_at(&mut self, next: fn(Place) -> Self) {
        if let Some(place) = self.place() {
            *self = next(place.clone());
        }
    }
}

/// The stage as it is stored, flattened into the VM's fields.
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

/// Where a VM is created, and the resources that it takes there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// ID of the VM host in MAAS.
    pub host: i64,
    pub host_name: String,
    /// Its LXD project, if MAAS shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Its zone, which the VM gets.
    pub zone: String,
    /// The zone's ID, which MAAS expects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone_id: Option<i64>,
    /// The storage pool of the root disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_pool: Option<String>,
    /// Its NICs; if empty, MAAS chooses them.
    #[serde(default, rename = "cards", skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<VmNic>,
    pub cores: u32,
    /// MiB.
    pub memory: u32,
    /// GB.
    pub disk: u32,
    /// When it was chosen.
    pub at: Timestamp,
}

/// A NIC of a VM that is to be created.
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
    /// ID of the VM host in MAAS.
    pub host: i64,
    pub at: Timestamp,
}

/// A host that failed for a machine is not chosen again for this long: others are tried first, and it may recover.
pub const AVOIDED: SignedDuration = SignedDuration::from_mins(30);

impl VmJournal {
    /// What a person has to know before the name is given up: LXD may have a VM that MAAS does not know. Nothing in MAAS shows
    /// it, and a refresh may harm others (S12).
    pub(super) fn may_be_left(&self) -> String {
        let host = self.stage.place().map(|place| place.host_name.as_str()).unwrap_or_default();
        format!(
            "MAAS did not report what became of {} and does not know it; check whether LXD on {host} has a VM of that \
             name, and delete it there",
            self.name
        )
    }

    /// The journal of a VM that is to be created, whose names begin with this object's name.
    pub fn new(object: &str, uid: &str) -> Self {
        let base = base_name(object, uid);
        Self { name: host_name(&base, 0), base, tries: 0, stage: VmStage::Unplaced, avoided: Vec::new() }
    }

    /// The journal of a VM that the Go provider was creating under this name.
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

/// A unique DNS label that begins with the object's name, so that people and the Node's name agree with it; a short hash of the
/// object's UID makes it unique. Leaves room for the number of the attempt.
fn base_name(object: &str, uid: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let label: String = object.chars().map(fit).take(48).collect();
    let hash = short_hash(uid);
    let label = label.trim_matches('-');
    if label.is_empty() { format!("vm-{hash:08x}") } else { format!("{label}-{hash:08x}") }
}

/// FNV-1a: any hash will do that never changes.
fn short_hash(uid: &str) -> u32 {
    uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Whether we generated the name for the object of this idempotency key, so that a VM of that name was made for that object. A
/// name from an annotation of the Go provider is not: anybody can write it.
pub(super) fn is_made_up(name: &str, key: &str) -> bool {
    let hash = format!("-{:08x}", short_hash(Journal::uid_in(key).unwrap_or(key)));
    let again = name.rsplit_once('-').filter(|(_, tries)| tries.parse::<u32>().is_ok()).map(|(base, _)| base);
    name.ends_with(&hash) || again.is_some_and(|base| base.ends_with(&hash))
}

pub(super) fn host_name(base: &str, tries: u32) -> String {
    if tries == 0 { base.to_owned() } else { format!("{base}-{}", tries.saturating_add(1)) }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

impl maas::Machine {
    /// Whether it is the VM that was created under the name in the journal, at the recorded place, and the name is one that only
    /// the object of this idempotency key yields. Who owns it now is another question.
    pub fn is_made_for(&self, vm: &VmJournal, key: &str) -> bool {
        let there = vm.stage.place().is_some_and(|place| self.vm_host == Some(place.host));
        self.is_vm() && there && self.hostname == vm.name && is_made_up(&vm.name, key)
    }
}
