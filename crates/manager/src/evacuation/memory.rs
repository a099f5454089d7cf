//! State that can be lost at any time: after a restart a refused request is sent once more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::clock::is_recent;

/// How long a refused request is held back (S26).
const HELD: SignedDuration = SignedDuration::from_mins(2);

/// Recent refusals. Clones share the same state.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    denied: Option<(Timestamp, String)>,
    /// By MAAS and ID of the VM host.
    tags: BTreeMap<(String, i64), (Timestamp, String)>,
}

impl Memory {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The API server answered that this manager may not delete Machines.
    pub(super) fn was_denied(&self, why: String, now: Timestamp) {
        self.state().denied = Some((now, why));
    }

    /// The recorded message, while it is still valid.
    pub(super) fn denied(&self, now: Timestamp) -> Option<String> {
        self.state().denied.as_ref().filter(|(at, _)| is_recent(*at, HELD, now)).map(|(_, why)| why.clone())
    }

    /// MAAS refused to change the tags of a VM host.
    pub(super) fn tag_refused(&self, maas: &str, vm_host: i64, why: String, now: Timestamp) {
        let mut state = self.state();
        state.tags.retain(|_, (at, _)| is_recent(*at, HELD, now));
        state.tags.insert((maas.to_owned(), vm_host), (now, why));
    }

    /// The recorded message, while it is still valid.
    pub(super) fn tag_trouble(&self, maas: &str, vm_host: i64, now: Timestamp) -> Option<String> {
        let state = self.state();
        let (at, why) = state.tags.get(&(maas.to_owned(), vm_host))?;
        is_recent(*at, HELD, now).then(|| why.clone())
    }
}
