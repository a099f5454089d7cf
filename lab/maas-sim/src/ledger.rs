//! Every request with its effects, so that a test can assert "exactly one allocate".

use jiff::Timestamp;
use serde::Serialize;

use crate::model::Status;

/// Something that a request changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// A machine was allocated to a user.
    Allocated { machine: String, user: String },
    /// A VM was composed on a host.
    Composed { machine: String, vm_host: i64 },
    /// A machine changed its status.
    Status { machine: String, from: Status, to: Status },
    /// Any other change of a machine.
    Machine { machine: String, change: MachineChange },
    /// A change of another object.
    Object { kind: ObjectKind, name: String, change: ObjectChange },
}

/// What happened to a machine other than a status change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineChange {
    Created,
    Updated,
    Deleted,
    Adopted,
    Annotated,
    Locked,
    Unlocked,
    PowerOn,
    PowerOff,
    Aborted,
    Zone,
    Interfaces,
}

/// Kinds of other objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    Address,
    Device,
    Dns,
    Image,
    Pool,
    Tag,
    User,
    VmHost,
    Zone,
}

/// What happened to another object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectChange {
    Created,
    Updated,
    Deleted,
    Refreshed,
}

impl Effect {
    /// Something about a machine.
    pub fn machine(machine: &str, change: MachineChange) -> Self {
        Self::Machine { machine: machine.to_owned(), change }
    }

    /// Something about another object.
    pub fn object(kind: ObjectKind, name: impl ToString, change: ObjectChange) -> Self {
        Self::Object { kind, name: name.to_string(), change }
    }

    /// The machine that it affects.
    pub fn about(&self) -> Option<&str> {
        match self {
            Self::Allocated { machine, .. }
            | Self::Composed { machine, .. }
            | Self::Status { machine, .. }
            | Self::Machine { machine, .. } => Some(machine),
            Self::Object { .. } => None,
        }
    }
}

/// A request.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    pub number: u64,
    pub at: Timestamp,
    pub user: String,
    pub method: String,
    pub path: String,
    pub query: String,
    /// "machines.allocate"; empty if the path is unknown.
    pub kind: String,
    pub machine: Option<String>,
    /// Status of MAAS's answer; `None` if it was killed before it had one.
    pub status: Option<u16>,
    /// What changed.
    pub effects: Vec<Effect>,
    /// Faults that applied.
    pub faults: Vec<String>,
}

/// The newest entries are kept.
const KEPT: usize = 200_000;

#[derive(Debug, Default)]
pub struct Ledger {
    entries: std::collections::VecDeque<Entry>,
    count: u64,
}

impl Ledger {
    /// Adds an entry and numbers it.
    pub fn add(&mut self, mut entry: Entry) {
        self.count += 1;
        entry.number = self.count;
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Entries of a kind ("machines.allocate" or "allocate"), or all.
    pub fn entries(&self, kind: Option<&str>) -> Vec<Entry> {
        let fits = |entry: &&Entry| {
            kind.is_none_or(|kind| {
                entry.kind == kind || entry.kind.rsplit_once('.').is_some_and(|(_, action)| action == kind)
            })
        };
        self.entries.iter().filter(fits).cloned().collect()
    }

    /// Entries after the one with this number.
    pub fn after(&self, number: u64) -> Vec<Entry> {
        let first = self.entries.partition_point(|entry| entry.number <= number);
        self.entries.range(first..).cloned().collect()
    }

    /// The number of requests of a kind that changed something.
    pub fn effective(&self, kind: &str) -> usize {
        self.entries(Some(kind)).iter().filter(|entry| !entry.effects.is_empty()).count()
    }
}
