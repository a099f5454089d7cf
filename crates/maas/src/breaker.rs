//! Stops requests to a MAAS that does not answer.
//!
//! Each request to a server that hangs waits for its whole deadline, and so does its caller. After a few unanswered
//! requests in a row, further ones fail at once, and one at a time is sent to probe whether the server is back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// This many unanswered requests in a row open the breaker.
const FAILURES: u32 = 3;
/// The time between two probes while it is open; it doubles with each failed one.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A circuit breaker for one server. Clients that were given the same one share it.
#[derive(Debug, Clone, Default)]
pub struct Breaker {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed { failures: u32, since: Option<Instant> },
    Open { since: Instant, pause: Duration, next: Instant, probing: bool },
}

impl Default for State {
    fn default() -> Self {
        Self::Closed { failures: 0, since: None }
    }
}

/// Whether a request may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Yes,
    /// Alone, to probe whether the server is back.
    AsProbe,
    /// No: there has been no answer since then.
    No(Instant),
}

impl State {
    fn admit(&mut self, now: Instant) -> Admission {
        match self {
            Self::Closed { .. } => Admission::Yes,
            Self::Open { next, probing, .. } if !*probing && now >= *next => {
                *probing = true;
                Admission::AsProbe
            }
            Self::Open { since, .. } => Admission::No(*since),
        }
    }

    /// An admitted request has ended, with any answer or without one.
    fn ended(&mut self, as_probe: bool, answered: bool, now: Instant) {
        match self {
            _ if answered => *self = Self::default(),
            Self::Closed { failures, since } => {
                *failures += 1;
                let since = *since.get_or_insert(now);
                if *failures >= FAILURES {
                    *self = Self::Open { since, pause: FIRST_PAUSE, next: now + FIRST_PAUSE, probing: false };
                }
            }
            Self::Open { pause, next, probing, .. } if as_probe => {
                *pause = (*pause * 2).min(LONGEST_PAUSE);
                (*next, *probing) = (now + *pause, false);
            }
            // Sent before it opened.
            Self::Open { .. } => {}
        }
    }

    /// The caller gave up on an admitted request, so nothing is known about the server.
    fn abandoned(&mut self, as_probe: bool) {
        if let (Self::Open { probing, .. }, true) = (self, as_probe) {
            *probing = false;
        }
    }
}

impl Breaker {
    /// A closed breaker: everything is sent.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks to send a request; `Err` holds the time since which there has been no answer.
    pub(crate) fn admit(&self) -> Result<Admitted, Instant> {
        match self.state().admit(Instant::now()) {
            Admission::No(since) => Err(since),
            admission => {
                Ok(Admitted { state: self.state.clone(), as_probe: admission == Admission::AsProbe, told: false })
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An admitted request. Dropped without a result, it counts as abandoned.
#[derive(Debug)]
pub(crate) struct Admitted {
    state: Arc<Mutex<State>>,
    as_probe: bool,
    told: bool,
}

impl Admitted {
    pub(crate) fn ended(mut self, answered: bool) {
        self.told = true;
        lock(&self.state).ended(self.as_probe, answered, Instant::now());
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if !self.told {
            lock(&self.state).abandoned(self.as_probe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(now: Instant) -> State {
        let mut state = State::default();
        for _ in 0..FAILURES {
            assert_eq!(state.admit(now), Admission::Yes);
            state.ended(false, false, now);
        }
        state
    }

    #[test]
    fn a_few_failures_in_a_row_open_it_and_an_answer_in_between_does_not_let_them() {
        let now = Instant::now();
        let mut state = State::default();
        for _ in 0..10 {
            state.ended(false, false, now);
            state.ended(false, false, now);
            state.ended(false, true, now);
        }
        assert_eq!(state.admit(now), Admission::Yes);
        assert_eq!(opened(now).admit(now), Admission::No(now));
    }

    #[test]
    fn while_it_is_open_one_at_a_time_tries_with_growing_pauses() {
        let began = Instant::now();
        let mut state = opened(began);
        let (mut now, mut tries) = (began, Vec::new());
        while now < began + Duration::from_secs(300) {
            if state.admit(now) == Admission::AsProbe {
                assert_eq!(state.admit(now), Admission::No(began), "one at a time");
                tries.push((now - began).as_secs());
                state.ended(true, false, now);
            }
            now += Duration::from_secs(1);
        }
        assert_eq!(tries, [5, 15, 35, 65, 95, 125, 155, 185, 215, 245, 275]);
    }

    #[test]
    fn the_first_answer_closes_it() {
        let now = Instant::now();
        let mut state = opened(now);
        assert_eq!(state.admit(now + FIRST_PAUSE), Admission::AsProbe);
        state.ended(true, true, now + FIRST_PAUSE);
        assert_eq!(state, State::default());
        let mut state = opened(now);
        state.ended(false, true, now);
        assert_eq!(state, State::default(), "also one that was sent before it opened");
    }

    #[test]
    fn a_probe_that_is_given_up_makes_room_for_another_one() {
        let breaker = Breaker::new();
        let now = Instant::now();
        *breaker.state() = State::Open { since: now, pause: FIRST_PAUSE, next: now, probing: false };
        let probe = breaker.admit().unwrap();
        assert!(breaker.admit().is_err());
        drop(probe);
        let probe = breaker.admit().unwrap();
        assert_eq!(breaker.admit().unwrap_err(), now);
        probe.ended(true);
        assert_eq!(*breaker.state(), State::default());
    }
}
