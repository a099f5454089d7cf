//! What may be forgotten at any time: a restart asks once more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::clock::is_recent;

/// How long what was refused is not asked for again (S26).
const HELD: SignedDuration = SignedDuration::from_mins(2);

/// What was refused a moment ago. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    denied: Option<(Timestamp, String)>,
    /// By MAAS and number of the VM host.
    tags: BTreeMap<(String, i64), (Timestamp, String)>,
}

impl Memory {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The API server said that this manager may not delete Machines.
    pub(super) fn was_denied(&self, why: String, now: Timestamp) {
        self.state().denied = Some((now, why));
    }

    /// What it said, as long as that counts.
    pub(super) fn denied(&self, now: Timestamp) -> Option<String> {
        self.state().denied.as_ref().filter(|(at, _)| is_recent(*at, HELD, now)).map(|(_, why)| why.clone())
    }

    /// MAAS refused to change the tags of a VM host.
    pub(super) fn tag_refused(&self, maas: &str, vm_host: i64, why: String, now: Timestamp) {
        let mut state = self.state();
        state.tags.retain(|_, (at, _)| is_recent(*at, HELD, now));
        state.tags.insert((maas.to_owned(), vm_host), (now, why));
    }

    /// What it said, as long as that counts.
    pub(super) fn tag_trouble(&self, maas: &str, vm_host: i64, now: Timestamp) -> Option<String> {
        let state = self.state();
        let (at, why) = state.tags.get(&(maas.to_owned(), vm_host))?;
        is_recent(*at, HELD, now).then(|| why.clone())
    }
}
