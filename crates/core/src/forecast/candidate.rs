//! Machines of MAAS as `op=allocate` sees them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::maas::State;
use crate::machine::Constraints;

/// A machine in MAAS, with the properties that an allocation considers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its system ID.
    pub id: String,
    pub hostname: String,
    pub state: State,
    pub owned: bool,
    pub zone: String,
    pub pool: String,
    pub cores: i64,
    /// MiB.
    pub memory: i64,
    /// Its disks; it boots from the first.
    pub disks: Vec<Disk>,
    pub tags: BTreeSet<String>,
    /// The LXD host, if it is a VM.
    pub vm_host: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Bytes.
    pub size: i64,
    /// The storage pool of the LXD host that it is in.
    pub storage_pool: Option<String>,
}

/// Why a machine does not fit. In the order of the checks: the later, the closer to fitting.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Misfit {
    /// It is a VM, and bare metal is requested.
    Vm,
    /// Another machine was requested by its ID.
    NotPinned,
    OtherZone,
    OtherPool,
    LacksTag(String),
    TooFewCores,
    TooLittleMemory,
    /// Its boot disk is too small.
    TooLittleDisk,
    NotFree,
    /// It failed and is excluded for a day or two.
    Quarantined,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vm => f.write_str("is a VM"),
            Self::NotPinned => f.write_str("not the one that systemID names"),
            Self::OtherZone => f.write_str("in another zone"),
            Self::OtherPool => f.write_str("in another resource pool"),
            Self::LacksTag(tag) => write!(f, "without the tag {tag}"),
            Self::TooFewCores => f.write_str("with too few cores"),
            Self::TooLittleMemory => f.write_str("with too little memory"),
            Self::TooLittleDisk => f.write_str("with too small a boot disk"),
            Self::NotFree => f.write_str("not free"),
            Self::Quarantined => f.write_str("in quarantine"),
        }
    }
}

impl Candidate {
    /// Whether `op=allocate` with these constraints may return it.
    pub fn admits(&self, constraints: &Constraints) -> Result<(), Misfit> {
        let least = |have: i64, wanted: Option<u32>| wanted.is_none_or(|wanted| have >= i64::from(wanted));
        if self.vm_host.is_some() {
            return Err(Misfit::Vm);
        }
        if constraints.machine.as_ref().is_some_and(|id| *id != self.id) {
            return Err(Misfit::NotPinned);
        }
        if constraints.zone.as_ref().is_some_and(|zone| *zone != self.zone) {
            return Err(Misfit::OtherZone);
        }
        if constraints.pool.as_ref().is_some_and(|pool| *pool != self.pool) {
            return Err(Misfit::OtherPool);
        }
        if let Some(tag) = constraints.tags.iter().find(|tag| !self.tags.contains(*tag)) {
            return Err(Misfit::LacksTag(tag.clone()));
        }
        if !least(self.cores, constraints.min_cpu) {
            return Err(Misfit::TooFewCores);
        }
        if !least(self.memory, constraints.min_memory) {
            return Err(Misfit::TooLittleMemory);
        }
        let enough = |gigabytes: u32| {
            let bytes = i64::from(gigabytes) * 1_000_000_000;
            self.disks.first().is_some_and(|disk| disk.size >= bytes)
        };
        if constraints.min_disk.is_some_and(|gigabytes| !enough(gigabytes)) {
            return Err(Misfit::TooLittleDisk);
        }
        if self.state != State::Ready || self.owned {
            return Err(Misfit::NotFree);
        }
        if constraints.not_tags.iter().any(|tag| self.tags.contains(tag)) {
            return Err(Misfit::Quarantined);
        }
        Ok(())
    }

    /// The order in which MAAS allocates machines: the cheapest first, where a core costs as much as a GiB. MAAS breaks a tie by
    /// an ID that it does not show.
    pub(super) fn cheaper(&self, other: &Self) -> Ordering {
        let cost = |it: &Self| it.cores.saturating_mul(1024).saturating_add(it.memory);
        cost(self).cmp(&cost(other))
    }
}

/// Counts why bare-metal machines do not fit; the closest to fitting first.
pub(super) fn tally(machines: &[Candidate], constraints: &Constraints) -> String {
    let mut counts: BTreeMap<Misfit, usize> = BTreeMap::new();
    for misfit in machines.iter().filter_map(|machine| machine.admits(constraints).err()) {
        if misfit != Misfit::Vm {
            *counts.entry(misfit).or_default() += 1;
        }
    }
    if counts.is_empty() {
        return "MAAS has no other machine".to_owned();
    }
    let words: Vec<String> = counts.iter().rev().map(|(misfit, count)| format!("{count} {misfit}")).collect();
    words.join(", ")
}
