//! Caches between two passes. They can be lost at any time: correctness does not depend on them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capmaas_core::backoff::{Request, Trouble};
use capmaas_core::cluster::plan::Effect;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::clock::is_recent;
use crate::hosts;
use crate::identity::Fingerprint;
use crate::kubernetes::Key;
use crate::stamp::Stamp;

/// The first backoff after a failure.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// The minimum interval between two probes of an API server. Slightly shorter than the interval between two passes that
/// probe.
const PROBE: SignedDuration = SignedDuration::from_secs(20);
/// How long the list of MAAS's zones is cached.
const ZONES: SignedDuration = SignedDuration::from_mins(5);
/// The same for the zones that contain machines. Longer, because that list makes MAAS read every machine.
const USABLE_ZONES: SignedDuration = SignedDuration::from_mins(30);

/// Clones share the same state.
#[derive(Clone, Default)]
pub struct Memory {
    state: Arc<Mutex<State>>,
    /// State about its machines as LXD hosts.
    pub(super) hosts: hosts::Memory,
    /// Requests that were refused recently.
    pub(super) backoff: Backoff,
}

#[derive(Default)]
struct State {
    failures: HashMap<Key, Vec<(Effect, Trouble)>>,
    probes: HashMap<Key, Timestamp>,
    zones: HashMap<(Fingerprint, Zones), (Timestamp, BTreeSet<String>)>,
    shown: HashMap<Key, BTreeMap<String, Shown>>,
    outdated: HashMap<Key, Instant>,
}

/// What MAAS showed about a machine.
#[derive(Clone)]
pub(super) struct Shown {
    pub(super) stamp: Stamp,
    /// Only its owner can stamp it.
    pub(super) owner: Option<String>,
    pub(super) addresses: BTreeSet<IpAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Zones {
    /// All zones that MAAS has.
    All,
    /// Zones with usable machines.
    Usable,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

impl Memory {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops everything about a deleted cluster.
    pub(super) fn forget(&self, key: &Key) {
        self.hosts.forget(key);
        self.backoff.forget(key);
        let mut state = self.state();
        state.failures.remove(key);
        state.probes.remove(key);
        state.shown.remove(key);
        state.outdated.remove(key);
    }

    /// The effects that failed and have to wait: each of them, because another one that works proves nothing about it (S26).
    pub(super) fn troubles(&self, key: &Key) -> Vec<(Effect, Trouble)> {
        self.state().failures.get(key).cloned().unwrap_or_default()
    }

    pub(super) fn failed(&self, key: &Key, effect: &Effect, message: String, now: Timestamp) {
        let wait = self.backoff.refused(key, request(key, effect), FIRST_WAIT, now);
        let mut state = self.state();
        let failures = state.failures.entry(key.clone()).or_default();
        failures.retain(|(failed, trouble)| failed != effect && trouble.retry_at > now);
        failures.push((effect.clone(), Trouble::new(message, wait, now)));
    }

    pub(super) fn worked(&self, key: &Key, effect: &Effect, now: Timestamp) {
        self.backoff.done(key, request(key, effect), now);
        let mut state = self.state();
        let Some(failures) = state.failures.get_mut(key) else { return };
        failures.retain(|(failed, _)| failed != effect);
        if failures.is_empty() {
            state.failures.remove(key);
        }
    }

    /// The machines that a cluster's record resolved to when they were last read, by system ID. To be used only while the record
    /// comes from the cache too.
    pub(super) fn shown(&self, key: &Key) -> BTreeMap<String, Shown> {
        self.state().shown.get(key).cloned().unwrap_or_default()
    }

    pub(super) fn keep_shown(&self, key: &Key, shown: BTreeMap<String, Shown>) {
        self.state().shown.insert(key.clone(), shown);
    }

    /// Since when the stored status is outdated, if the last pass left that to the one that follows immediately.
    pub(super) fn take_outdated(&self, key: &Key) -> Option<Instant> {
        self.state().outdated.remove(key)
    }

    pub(super) fn keep_outdated(&self, key: &Key, since: Instant) {
        self.state().outdated.insert(key.clone(), since);
    }

    /// Whether the API server of a cluster may be probed now. If so, this counts as a probe.
    pub(super) fn may_probe(&self, key: &Key, now: Timestamp) -> bool {
        let mut state = self.state();
        let early = state.probes.get(key).is_some_and(|last| is_recent(*last, PROBE, now));
        if !early {
            state.probes.insert(key.clone(), now);
        }
        !early
    }

    pub(super) fn zones(&self, of: Fingerprint, which: Zones, now: Timestamp) -> Option<BTreeSet<String>> {
        let lasts = match which {
            Zones::All => ZONES,
            Zones::Usable => USABLE_ZONES,
        };
        let state = self.state();
        let (at, zones) = state.zones.get(&(of, which))?;
        is_recent(*at, lasts, now).then(|| zones.clone())
    }

    pub(super) fn keep_zones(&self, of: Fingerprint, which: Zones, zones: BTreeSet<String>, now: Timestamp) {
        let mut state = self.state();
        state.zones.retain(|_, (at, _)| is_recent(*at, USABLE_ZONES, now));
        state.zones.insert((of, which), (now, zones));
    }
}

fn request(key: &Key, effect: &Effect) -> Request {
    Request::new(&(key.to_string(), format!("{effect:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s26_waits_double_up_to_two_minutes_and_begin_anew_after_a_success() {
        let (memory, key, now) = (Memory::default(), Key::new("n", "c"), Timestamp::UNIX_EPOCH);
        let effect = Effect::DeleteDnsRecord { id: 7 };
        let wait = || memory.troubles(&key).first().map(|(_, trouble)| trouble.retry_at.as_second());
        let mut waits = Vec::new();
        for _ in 0..8 {
            memory.failed(&key, &effect, "denied".into(), now);
            waits.extend(wait());
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 120, 120, 120]);
        memory.worked(&key, &effect, now);
        assert_eq!(wait(), None);
    }

    #[test]
    fn s26_of_several_effects_that_fail_each_waits_until_it_works_itself() {
        let (memory, key, now) = (Memory::default(), Key::new("n", "c"), Timestamp::UNIX_EPOCH);
        let (one, other) = (Effect::DeleteDnsRecord { id: 7 }, Effect::DeleteDnsRecord { id: 8 });
        let left = || memory.troubles(&key).into_iter().map(|(effect, _)| effect).collect::<Vec<_>>();
        memory.failed(&key, &one, "denied".into(), now);
        memory.failed(&key, &other, "denied".into(), now);
        assert_eq!(left(), vec![one.clone(), other.clone()]);
        memory.worked(&key, &other, now);
        assert_eq!(left(), vec![one]);
        memory.failed(&key, &other, "denied".into(), now + SignedDuration::from_secs(5));
        assert_eq!(left(), [other], "the first one may be tried again");
    }

    #[test]
    fn go30_an_api_server_is_not_asked_in_a_loop() {
        let (memory, key) = (Memory::default(), Key::new("n", "c"));
        let at = |second| Timestamp::from_second(second).unwrap();
        let asked = (0..120).filter(|second| memory.may_probe(&key, at(*second))).count();
        assert_eq!(asked, 6);
    }
}
