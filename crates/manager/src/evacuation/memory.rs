//! State that can be lost at any time: after a restart a refused request is sent once more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capmaas_core::evacuation::Refusal;
use jiff::{SignedDuration, Timestamp};

use crate::clock::is_recent;

/// How long a refused request is held back (S26).
const HELD: SignedDuration = SignedDuration::from_mins(2);
/// After so many conflicts in a row a deletion counts as refused: it is not a change of the Machine that is in the way.
const CONFLICTS: u32 = 3;

/// Recent refusals. Clones share the same state.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// By the UID of the Machine.
    refusals: BTreeMap<String, (Timestamp, Refusal)>,
    /// By MAAS and ID of the VM host.
    tags: BTreeMap<(String, i64), (Timestamp, String)>,
    /// By the UID of the MaasMachine.
    notes: BTreeMap<String, (Timestamp, String)>,
    /// By the UID of the Machine: the last conflict, and how many there were in a row.
    conflicts: BTreeMap<String, (Timestamp, u32)>,
}

impl Memory {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A Machine could not be deleted.
    pub(super) fn deletion_failed(&self, uid: &str, refusal: Refusal, now: Timestamp) {
        self.state().refusals.insert(uid.to_owned(), (now, refusal));
    }

    /// The deletion of a Machine was refused because of a conflict. Returns whether that no longer looks like a coincidence.
    pub(super) fn is_conflict_lasting(&self, uid: &str, now: Timestamp) -> bool {
        let mut state = self.state();
        state.conflicts.retain(|_, (at, _)| is_recent(*at, HELD, now));
        let (at, count) = state.conflicts.entry(uid.to_owned()).or_insert((now, 0));
        (*at, *count) = (now, *count + 1);
        *count >= CONFLICTS
    }

    /// By UID: the Machines that could not be deleted recently.
    pub(super) fn refusals(&self, now: Timestamp) -> BTreeMap<String, Refusal> {
        let mut state = self.state();
        state.refusals.retain(|_, (at, _)| is_recent(*at, HELD, now));
        state.refusals.iter().map(|(uid, (_, refusal))| (uid.clone(), refusal.clone())).collect()
    }

    /// MAAS refused to change the tags of a VM host.
    pub(super) fn tag_refused(&self, maas: &str, vm_host: i64, why: String, now: Timestamp) {
        let mut state = self.state();
        state.tags.retain(|_, (at, _)| is_recent(*at, HELD, now));
        state.tags.insert((maas.to_owned(), vm_host), (now, why));
    }

    /// The API server refused to annotate a MaasMachine.
    pub(super) fn note_refused(&self, uid: &str, why: String, now: Timestamp) {
        let mut state = self.state();
        state.notes.retain(|_, (at, _)| is_recent(*at, HELD, now));
        state.notes.insert(uid.to_owned(), (now, why));
    }

    /// The recorded message, while it is still valid.
    pub(super) fn note_trouble(&self, uid: Option<&str>, now: Timestamp) -> Option<String> {
        let state = self.state();
        let (at, why) = state.notes.get(uid?)?;
        is_recent(*at, HELD, now).then(|| why.clone())
    }

    /// The recorded message, while it is still valid.
    pub(super) fn tag_trouble(&self, maas: &str, vm_host: i64, now: Timestamp) -> Option<String> {
        let state = self.state();
        let (at, why) = state.tags.get(&(maas.to_owned(), vm_host))?;
        is_recent(*at, HELD, now).then(|| why.clone())
    }
}
