//! Leader election: one manager writes at a time, by a Lease that both client-go's leader election and ours understand (safety
//! rule S23).
//!
//! Whether a Lease has expired depends on how long *we* have seen it unchanged, never on the times in it: the clocks of two
//! machines differ.

use jiff::{SignedDuration, Timestamp};

/// The Lease of the Go provider, in the manager's namespace. We use it too, so that managers of both kinds exclude each other.
pub const LEASE_NAME: &str = "controller-leader-election-capmaas";

/// The timing of the Lease. The defaults are client-go's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Nobody else takes a Lease that was seen to change within this time.
    pub lease: SignedDuration,
    /// A holder that could not renew for this long stops at once. Shorter than `lease`, so that it has stopped before anybody
    /// else may start.
    pub renew_deadline: SignedDuration,
    /// How often a holder renews, and others check.
    pub retry: SignedDuration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: SignedDuration::from_secs(15),
            renew_deadline: SignedDuration::from_secs(10),
            retry: SignedDuration::from_secs(2),
        }
    }
}

/// The contents of a Lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// `None` or empty: nobody.
    pub holder: Option<String>,
    /// How long it lasts without a renewal, as the holder set it.
    pub duration_seconds: Option<i32>,
    pub acquired: Option<Timestamp>,
    pub renewed: Option<Timestamp>,
    pub transitions: Option<i32>,
}

impl LeaseRecord {
    /// The holder, if any.
    pub fn holder(&self) -> Option<&str> {
        self.holder.as_deref().filter(|holder| !holder.is_empty())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Write this, if the Lease is still the one that was read: it makes or keeps us the holder.
    ///
    /// After a crash: the next start has another identity, sees a holder that does not renew, and waits until the Lease has
    /// expired.
    Write(LeaseRecord),
    /// Another manager holds it and is alive as far as we know. Check again after the retry time.
    Wait {
        /// The current holder.
        holder: String,
    },
}

/// Decides about a Lease. `unchanged` is how long we have seen it as it is.
pub fn evaluate(
    found: Option<&LeaseRecord>,
    unchanged: SignedDuration,
    me: &str,
    timing: &Timing,
    now: Timestamp,
) -> Step {
    let mine = |acquired: Option<Timestamp>, transitions: i32| LeaseRecord {
        holder: Some(me.to_owned()),
        duration_seconds: Some(i32::try_from(timing.lease.as_secs()).unwrap_or(i32::MAX)),
        acquired,
        renewed: Some(now),
        transitions: Some(transitions),
    };
    let Some(record) = found else { return Step::Write(mine(Some(now), 0)) };
    let transitions = record.transitions.unwrap_or(0);
    match record.holder() {
        Some(holder) if holder == me => Step::Write(mine(record.acquired.or(Some(now)), transitions)),
        Some(holder) if unchanged < lasts(record, timing) => Step::Wait { holder: holder.to_owned() },
        _ => Step::Write(mine(Some(now), transitions.saturating_add(1))),
    }
}

/// The holder may use a longer lease duration than ours.
fn lasts(record: &LeaseRecord, timing: &Timing) -> SignedDuration {
    let theirs = SignedDuration::from_secs(i64::from(record.duration_seconds.unwrap_or(0)));
    theirs.max(timing.lease)
}

/// What a holder writes when it stops voluntarily, so that the next one need not wait. Only after its last write.
pub fn released(record: &LeaseRecord, now: Timestamp) -> LeaseRecord {
    LeaseRecord {
        holder: Some(String::new()),
        duration_seconds: Some(1),
        acquired: Some(now),
        renewed: Some(now),
        transitions: record.transitions,
    }
}

/// Whether a holder may still write. `since` is the time since it *began* its last successful renewal.
pub fn may_write(since: SignedDuration, timing: &Timing) -> bool {
    since < timing.renew_deadline
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ME: &str = "me";

    fn seconds(seconds: i64) -> SignedDuration {
        SignedDuration::from_secs(seconds)
    }

    fn held(holder: &str) -> LeaseRecord {
        LeaseRecord {
            holder: Some(holder.to_owned()),
            duration_seconds: Some(15),
            acquired: Some(Timestamp::UNIX_EPOCH),
            renewed: Some(Timestamp::UNIX_EPOCH),
            transitions: Some(3),
        }
    }

    fn step(found: Option<&LeaseRecord>, unchanged: i64) -> Step {
        evaluate(found, seconds(unchanged), ME, &Timing::default(), Timestamp::from_second(100).unwrap())
    }

    #[test]
    fn nobodys_lease_is_taken() {
        for found in
            [None, Some(&LeaseRecord::default()), Some(&LeaseRecord { holder: Some(String::new()), ..held("x") })]
        {
            let Step::Write(record) = step(found, 0) else { panic!() };
            assert_eq!(record.holder(), Some(ME));
        }
    }

    #[test]
    fn s23_a_lease_that_was_renewed_within_its_time_is_never_taken_whatever_its_times_say() {
        // The holder's clock is years behind: only what we saw counts.
        assert_eq!(step(Some(&held("go")), 14), Step::Wait { holder: "go".into() });
        let Step::Write(record) = step(Some(&held("go")), 15) else { panic!() };
        assert_eq!((record.holder(), record.transitions), (Some(ME), Some(4)));
    }

    #[test]
    fn s23_a_longer_lease_of_the_holder_is_respected() {
        let long = LeaseRecord { duration_seconds: Some(60), ..held("other") };
        assert!(matches!(step(Some(&long), 59), Step::Wait { .. }));
        assert!(matches!(step(Some(&long), 60), Step::Write(_)));
    }

    #[test]
    fn renewing_keeps_when_it_was_taken_and_how_often_it_changed_hands() {
        let Step::Write(record) = step(Some(&held(ME)), 1) else { panic!() };
        assert_eq!((record.acquired, record.transitions), (Some(Timestamp::UNIX_EPOCH), Some(3)));
        assert_eq!(record.renewed, Some(Timestamp::from_second(100).unwrap()));
    }

    #[test]
    fn a_released_lease_is_taken_at_once() {
        assert!(matches!(step(Some(&released(&held("other"), Timestamp::UNIX_EPOCH)), 0), Step::Write(_)));
    }

    proptest! {
        /// Two managers, one Lease, any delays: the other manager may write only from the moment on that the first one may not
        /// any more.
        #[test]
        fn s23_two_managers_never_both_write(steps in proptest::collection::vec((any::<bool>(), 0i64..8), 1..200)) {
            let timing = Timing::default();
            let mut lease: Option<LeaseRecord> = None;
            // When each began its last renewal, and what it has seen since when.
            let mut renewed = [None::<i64>; 2];
            let mut seen: [Option<(Option<LeaseRecord>, i64)>; 2] = [None, None];
            let mut now = 0;
            for (second, wait) in steps {
                now += wait;
                let (who, name) = if second { (1, "b") } else { (0, "a") };
                let changed = seen[who].as_ref().is_none_or(|(record, _)| *record != lease);
                if changed {
                    seen[who] = Some((lease.clone(), now));
                }
                let since = seen[who].as_ref().map_or(now, |(_, since)| *since);
                let at = Timestamp::from_second(now).unwrap();
                if let Step::Write(record) = evaluate(lease.as_ref(), seconds(now - since), name, &timing, at) {
                    lease = Some(record);
                    renewed[who] = Some(now);
                }
                let writing = renewed.iter().flatten().filter(|began| may_write(seconds(now - **began), &timing)).count();
                prop_assert!(writing <= 1, "both write at {now}: {renewed:?}");
            }
        }
    }
}
