//! The source of the current time: the system clock, or a test that drives it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};

/// Decisions get the time as an argument and read no clock themselves.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    pub fn system() -> Self {
        Self(Arc::new(Timestamp::now))
    }

    /// A clock that stands still until it is [driven](Driver).
    pub fn driven(start: Timestamp) -> (Self, Driver) {
        let milliseconds = Arc::new(AtomicI64::new(start.as_millisecond()));
        let hand = milliseconds.clone();
        let read = move || Timestamp::from_millisecond(hand.load(Ordering::SeqCst)).unwrap_or(Timestamp::MAX);
        (Self(Arc::new(read)), Driver { milliseconds })
    }

    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}

/// Whether `at` is less than `lasts` ago. A time in the future came from a clock that was ahead and has been corrected:
/// its age is unknown, so what was cached since then is read again.
pub(crate) fn is_recent(at: Timestamp, lasts: SignedDuration, now: Timestamp) -> bool {
    let age = now.duration_since(at);
    !age.is_negative() && age < lasts
}

/// Moves a driven clock.
#[derive(Clone, Debug)]
pub struct Driver {
    milliseconds: Arc<AtomicI64>,
}

impl Driver {
    /// Lets time pass.
    pub fn advance(&self, milliseconds: i64) {
        self.milliseconds.fetch_add(milliseconds.max(0), Ordering::SeqCst);
    }

    /// Sets the clock forward or back, like a correction by an administrator or NTP.
    pub fn jump(&self, milliseconds: i64) {
        self.milliseconds.fetch_add(milliseconds, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_clock_that_was_ahead_told_is_not_recent() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let recent = |then| is_recent(at(then), SignedDuration::from_secs(10), at(100));
        assert_eq!([90, 91, 100, 101].map(recent), [false, true, true, false]);
    }

    #[test]
    fn a_driven_clock_moves_only_when_it_is_told_to() {
        let (clock, driver) = Clock::driven(Timestamp::UNIX_EPOCH);
        assert_eq!(clock.now(), Timestamp::UNIX_EPOCH);
        driver.advance(1500);
        assert_eq!(clock.now().as_millisecond(), 1500);
        driver.advance(-9);
        assert_eq!(clock.now().as_millisecond(), 1500);
        driver.jump(-500);
        assert_eq!(clock.now().as_millisecond(), 1000);
    }
}
