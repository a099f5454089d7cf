//! When a read is retried, and after how long.

use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// How reads are retried. Writes never are: only the caller knows whether an effect may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// The total number of attempts; 1 means no retries.
    pub tries: u32,
    /// The longest wait after the first attempt; it doubles with each further one.
    pub first_wait: Duration,
    /// The longest wait that we choose ourselves.
    pub longest_wait: Duration,
    /// If MAAS asks for a longer wait than this, the error is returned instead, with the wait in it.
    pub longest_asked_wait: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            tries: 3,
            first_wait: Duration::from_millis(250),
            longest_wait: Duration::from_secs(5),
            longest_asked_wait: Duration::from_secs(15),
        }
    }
}

impl RetryPolicy {
    /// No retries.
    pub fn never() -> Self {
        Self { tries: 1, ..Self::default() }
    }

    /// How long to wait before the next attempt, if there is one. `chance` provides the jitter, so that clients that
    /// failed at the same moment do not retry at the same moment.
    pub(crate) fn wait(&self, attempt: u32, error: &Error, chance: u128) -> Option<Duration> {
        if attempt >= self.tries || !is_passing(error) {
            return None;
        }
        let longest = self.first_wait.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1)));
        let longest = longest.min(self.longest_wait);
        let jitter = Duration::from_millis(u64::try_from(chance % (longest.as_millis().max(1))).unwrap_or_default());
        match error.retry_after() {
            // Never earlier than requested, and with jitter.
            Some(asked) if asked <= self.longest_asked_wait => Some(asked.saturating_add(jitter)),
            Some(_) => None,
            None => Some(jitter),
        }
    }
}

/// Whether a read may well succeed a moment later. An expired deadline is not among them: it is the time limit of the
/// whole call.
fn is_passing(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Unreachable => !error.timed_out(),
        ErrorKind::Conflict | ErrorKind::Throttled | ErrorKind::ServerTrouble => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Effect;

    fn trouble() -> Error {
        Error::new(ErrorKind::ServerTrouble, "x", Effect::None, "")
    }

    #[test]
    fn waits_double_up_to_a_bound_and_are_jittered_over_their_whole_length() {
        let policy = RetryPolicy { tries: 99, ..RetryPolicy::default() };
        for (attempt, longest) in [(1, 250), (2, 500), (3, 1000), (5, 4000), (6, 5000), (60, 5000)] {
            let waits = [0, longest - 1].map(|chance| policy.wait(attempt, &trouble(), chance).unwrap().as_millis());
            assert_eq!(waits, [0, longest - 1], "attempt {attempt}");
            assert_eq!(policy.wait(attempt, &trouble(), longest).unwrap().as_millis(), 0, "attempt {attempt}");
        }
    }

    #[test]
    fn a_wait_that_maas_asks_for_is_never_cut_short() {
        let asked = |seconds| trouble().with_retry_after(Some(Duration::from_secs(seconds)));
        let policy = RetryPolicy::default();
        assert_eq!(policy.wait(1, &asked(10), 0), Some(Duration::from_secs(10)));
        assert_eq!(policy.wait(1, &asked(16), 0), None, "too long to sit and wait: the caller is told");
    }

    #[test]
    fn only_what_passes_by_itself_is_tried_again() {
        let policy = RetryPolicy::default();
        for kind in [
            ErrorKind::NotFound,
            ErrorKind::Invalid,
            ErrorKind::Denied,
            ErrorKind::HostTrouble,
            ErrorKind::NotUnderstood,
            ErrorKind::Gone,
        ] {
            assert_eq!(policy.wait(1, &Error::new(kind, "x", Effect::None, ""), 0), None, "{kind}");
        }
        let late = Error::new(ErrorKind::Unreachable, "x", Effect::None, "").after_deadline();
        assert_eq!(policy.wait(1, &late, 0), None);
        assert_eq!(policy.wait(3, &trouble(), 0), None, "three tries are all");
        assert_eq!(RetryPolicy::never().wait(1, &trouble(), 0), None);
    }
}
