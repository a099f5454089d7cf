//! Caches between two passes. They can be lost at any time.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capmaas_core::backoff::{Request, Trouble};
use jiff::{SignedDuration, Timestamp};

use crate::backoff::Backoff;
use crate::clock::is_recent;
use crate::kubernetes::Key;

/// The minimum interval between two observations of a cluster's hosts, unless something was just changed.
const MIN_INTERVAL: SignedDuration = SignedDuration::from_secs(10);
/// The first backoff after a failure.
const FIRST_WAIT: Duration = Duration::from_secs(10);

/// Clones share the same state.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    state: Arc<Mutex<HashMap<Key, OfCluster>>>,
    backoff: Backoff,
}

#[derive(Default)]
struct OfCluster {
    observed_at: Option<Timestamp>,
    refreshed: BTreeMap<i64, Timestamp>,
    trouble: BTreeMap<String, Trouble>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

impl Memory {
    fn state(&self) -> MutexGuard<'_, HashMap<Key, OfCluster>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops everything about a deleted cluster.
    pub(crate) fn forget(&self, key: &Key) {
        self.state().remove(key);
        self.backoff.forget(key);
    }

    /// Whether the hosts may be observed now. If so, this counts as an observation.
    pub(crate) fn may_observe(&self, key: &Key, now: Timestamp) -> bool {
        let mut state = self.state();
        let of = state.entry(key.clone()).or_default();
        let early = of.observed_at.is_some_and(|last| is_recent(last, MIN_INTERVAL, now));
        if !early {
            of.observed_at = Some(now);
        }
        !early
    }

    pub(super) fn refreshed(&self, key: &Key) -> BTreeMap<i64, Timestamp> {
        self.state().get(key).map(|of| of.refreshed.clone()).unwrap_or_default()
    }

    pub(super) fn trouble(&self, key: &Key) -> BTreeMap<String, Trouble> {
        self.state().get(key).map(|of| of.trouble.clone()).unwrap_or_default()
    }

    /// MAAS was made to refresh a VM host.
    pub(super) fn note_refresh(&self, key: &Key, vm_host: i64, now: Timestamp) {
        self.state().entry(key.clone()).or_default().refreshed.insert(vm_host, now);
    }

    /// The action succeeded: the next pass observes immediately.
    pub(super) fn worked(&self, key: &Key, target: &str, now: Timestamp) {
        self.backoff.done(key, request(key, target), now);
        let mut state = self.state();
        let of = state.entry(key.clone()).or_default();
        of.observed_at = None;
        of.trouble.remove(target);
    }

    /// The action failed: the next pass observes immediately and reports it.
    pub(super) fn failed(&self, key: &Key, target: &str, message: String, now: Timestamp) {
        let mut state = self.state();
        let of = state.entry(key.clone()).or_default();
        of.observed_at = None;
        let wait = self.backoff.refused(key, request(key, target), FIRST_WAIT, now);
        of.trouble.insert(target.to_owned(), Trouble::new(message, wait, now));
    }
}

/// All attempts on one host or node count as the same request: each step there needs the previous one.
fn request(key: &Key, target: &str) -> Request {
    Request::new(&(key.to_string(), target))
}
