//! What is remembered between two passes and may be forgotten at any time.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capmaas_core::hosts::observed::Trouble;
use jiff::{SignedDuration, Timestamp};

use crate::port::Key;

/// The hosts of a cluster are not looked at more often than this, unless something was just done about them.
const LOOK: SignedDuration = SignedDuration::from_secs(10);
/// The first wait after a failure; it doubles with each one more.
const FIRST_WAIT: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_WAIT: SignedDuration = SignedDuration::from_secs(300);

/// The memory. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<Mutex<HashMap<Key, OfCluster>>>);

#[derive(Default)]
struct OfCluster {
    looked: Option<Timestamp>,
    refreshed: BTreeMap<i64, Timestamp>,
    trouble: BTreeMap<String, (u32, Trouble)>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

impl Memory {
    fn state(&self) -> MutexGuard<'_, HashMap<Key, OfCluster>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything about a cluster that is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.state().remove(key);
    }

    /// Whether the hosts may be looked at now; if so, that counts as a look.
    pub(crate) fn may_look(&self, key: &Key, now: Timestamp) -> bool {
        let mut state = self.state();
        let of = state.entry(key.clone()).or_default();
        let early = of.looked.is_some_and(|last| now.duration_since(last) < LOOK);
        if !early {
            of.looked = Some(now);
        }
        !early
    }

    pub(super) fn refreshed(&self, key: &Key) -> BTreeMap<i64, Timestamp> {
        self.state().get(key).map(|of| of.refreshed.clone()).unwrap_or_default()
    }

    pub(super) fn trouble(&self, key: &Key) -> BTreeMap<String, Trouble> {
        let state = self.state();
        let of = state.get(key).map(|of| &of.trouble);
        of.into_iter().flatten().map(|(target, (_, trouble))| (target.clone(), trouble.clone())).collect()
    }

    /// MAAS was made to look at a VM host.
    pub(super) fn made_look(&self, key: &Key, vm_host: i64, now: Timestamp) {
        self.state().entry(key.clone()).or_default().refreshed.insert(vm_host, now);
    }

    /// Something was done: the next pass looks at once.
    pub(super) fn worked(&self, key: &Key, target: &str) {
        let mut state = self.state();
        let of = state.entry(key.clone()).or_default();
        of.looked = None;
        of.trouble.remove(target);
    }

    /// Something failed: the next pass looks at once and says so.
    pub(super) fn failed(&self, key: &Key, target: &str, message: String, now: Timestamp) {
        let mut state = self.state();
        let of = state.entry(key.clone()).or_default();
        of.looked = None;
        let times = of.trouble.get(target).map_or(1, |(times, _)| times.saturating_add(1));
        let doublings = i32::try_from(times.min(16)).unwrap_or(16) - 1;
        let wait = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
        let retry_at = now.saturating_add(wait).unwrap_or(now);
        of.trouble.insert(target.to_owned(), (times, Trouble { message, retry_at }));
    }
}
