//! A refused request is not sent again before its backoff is over, whatever triggers the object meanwhile (S26).
//!
//! An object may be reconciled at any time: somebody edits it, MAAS's event log names it, a resync is due. None of that is a
//! reason to repeat what MAAS has just refused. A different request is never held: a changed spec counts at once.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// The longest wait for repeated refusals of the same request, unless the first one was longer.
const LONGEST: Duration = Duration::from_secs(120);
/// How long after its backoff a refusal still counts as the previous one.
const REMEMBERED: Duration = Duration::from_secs(600);
/// The distance between retries of all objects that wait for the same thing: ten thousand that wait for a hundred servers cost no
/// more than a hundred that do.
const APART: Duration = Duration::from_millis(500);
/// How many different requests are remembered per object.
const REQUESTS: usize = 8;

/// The identity of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request(u64);

impl Request {
    /// Two requests are the same if `told` hashes alike.
    pub fn new(told: &impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        told.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// A failure, as a decision sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// From the server that refused it.
    pub message: String,
    /// When it may be tried again.
    pub retry_at: Timestamp,
}

/// No retry waits longer than this.
const LONGEST_TROUBLE: SignedDuration = SignedDuration::from_mins(10);

impl Trouble {
    /// A failure that happened now and may be retried after this wait.
    pub fn new(message: String, wait: Duration, now: Timestamp) -> Self {
        let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
        Self { message, retry_at: now.saturating_add(wait).unwrap_or(now) }
    }

    /// Whether it is too early for a retry. A time too far ahead was written by a clock that has been corrected since.
    pub(crate) fn holds(&self, now: Timestamp) -> bool {
        let left = self.retry_at.duration_since(now);
        left > SignedDuration::ZERO && left <= LONGEST_TROUBLE
    }
}

/// Which object was refused what. In memory only: after a restart every object may ask once.
#[derive(Debug)]
pub struct Backoff<K> {
    refused: HashMap<K, Vec<Refused>>,
    /// How many objects were refused a request.
    crowds: HashMap<Request, u32>,
}

#[derive(Debug, Clone, Copy)]
struct Refused {
    request: Request,
    at: Timestamp,
    wait: Duration,
    times: u32,
}

impl Refused {
    /// The time since; `None` if the clock was set back: then the request is sent once more.
    fn age(&self, now: Timestamp) -> Option<Duration> {
        Duration::try_from(now.duration_since(self.at)).ok()
    }

    fn is_remembered(&self, now: Timestamp) -> bool {
        self.age(now).is_some_and(|age| age < self.wait + REMEMBERED)
    }
}

impl<K> Default for Backoff<K> {
    fn default() -> Self {
        Self { refused: HashMap::new(), crowds: HashMap::new() }
    }
}

impl<K: Hash + Eq + Clone> Backoff<K> {
    /// How long the object still has to wait before it may send this; `None` if it may now.
    pub fn held(&self, object: &K, request: Request, now: Timestamp) -> Option<Duration> {
        let refused = self.refused.get(object)?.iter().find(|refused| refused.request == request)?;
        refused.wait.checked_sub(refused.age(now)?).filter(|left| !left.is_zero())
    }

    /// The request was refused, or its outcome is not known. Returns how long to wait: `wait` at first, twice as long each time
    /// the same request is refused again, and longer if many objects wait for the same. A `wait` of zero holds nothing.
    pub fn refused(&mut self, object: &K, request: Request, wait: Duration, now: Timestamp) -> Duration {
        if wait.is_zero() {
            return wait;
        }
        let before = self.take(object, request).filter(|before| before.is_remembered(now));
        let times = before.map_or(1, |before| before.times.saturating_add(1));
        let grown = wait.saturating_mul(2_u32.saturating_pow(times - 1)).min(LONGEST.max(wait));
        let crowd = self.crowds.entry(request).or_default();
        *crowd += 1;
        let wait = grown.max(APART * *crowd);
        self.refused.entry(object.clone()).or_default().push(Refused { request, at: now, wait, times });
        self.prune(object, now);
        wait
    }

    /// The request succeeded: the next refusal counts as the first one.
    pub fn done(&mut self, object: &K, request: Request, now: Timestamp) {
        self.take(object, request);
        self.prune(object, now);
    }

    /// The object is gone.
    pub fn forget(&mut self, object: &K) {
        for refused in self.refused.remove(object).unwrap_or_default() {
            self.leave(refused.request);
        }
    }

    /// Drops what was refused long ago, and what exceeds the limit.
    fn prune(&mut self, object: &K, now: Timestamp) {
        let Some(of_object) = self.refused.get(object) else { return };
        let surplus = of_object.len().saturating_sub(REQUESTS);
        let of_object = of_object.iter().enumerate();
        let old = of_object.filter(|(index, refused)| *index < surplus || !refused.is_remembered(now));
        let old: Vec<Request> = old.map(|(_, refused)| refused.request).collect();
        for request in old {
            self.take(object, request);
        }
    }

    fn take(&mut self, object: &K, request: Request) -> Option<Refused> {
        let of_object = self.refused.get_mut(object)?;
        let index = of_object.iter().position(|refused| refused.request == request)?;
        let refused = of_object.remove(index);
        if of_object.is_empty() {
            self.refused.remove(object);
        }
        self.leave(request);
        Some(refused)
    }

    fn leave(&mut self, request: Request) {
        if let Some(crowd) = self.crowds.get_mut(&request) {
            *crowd = crowd.saturating_sub(1);
            if *crowd == 0 {
                self.crowds.remove(&request);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn s26_the_same_request_is_held_until_its_back_off_is_over_and_another_one_never() {
        let (mut backoff, eight, four) = (Backoff::default(), Request::new(&"8 cores"), Request::new(&"4 cores"));
        assert_eq!(backoff.held(&"m", eight, at(0)), None);
        assert_eq!(backoff.refused(&"m", eight, seconds(30), at(0)), seconds(30));
        assert_eq!(backoff.held(&"m", eight, at(0)), Some(seconds(30)));
        assert_eq!(backoff.held(&"m", eight, at(29)), Some(seconds(1)));
        assert_eq!(backoff.held(&"m", eight, at(30)), None);
        assert_eq!(backoff.held(&"m", four, at(1)), None, "a changed spec is acted upon at once");
        assert_eq!(backoff.held(&"n", eight, at(1)), None, "another object was refused nothing");
    }

    #[test]
    fn s26_whatever_wakes_it_one_object_asks_a_few_times_in_ten_minutes() {
        let (mut backoff, request) = (Backoff::default(), Request::new(&"8 cores"));
        let mut asked = Vec::new();
        for second in 0..600 {
            if backoff.held(&"m", request, at(second)).is_none() {
                asked.push(second);
                backoff.refused(&"m", request, seconds(30), at(second));
            }
        }
        assert_eq!(asked, [0, 30, 90, 210, 330, 450, 570]);
    }

    #[test]
    fn s26_ten_thousand_that_wait_for_the_same_ask_about_twice_a_second_together() {
        let (mut backoff, request) = (Backoff::default(), Request::new(&"8 cores"));
        let mut due: Vec<(i64, u32)> = (0..10_000).map(|object| (0, object)).collect();
        let mut asked = 0;
        for second in 0..10_000 {
            for (then, object) in due.iter_mut().filter(|(then, _)| *then <= second) {
                asked += u32::from(second >= 5_000);
                let wait = backoff.refused(object, request, seconds(30), at(second));
                *then = second + i64::try_from(wait.as_secs()).unwrap();
            }
        }
        assert!((8_000..=14_000).contains(&asked), "{asked} in the second 5,000 seconds");
        for object in 0..10_000 {
            backoff.forget(&object);
        }
        assert!(backoff.crowds.is_empty() && backoff.refused.is_empty());
    }

    #[test]
    fn a_success_and_a_long_time_make_the_next_refusal_the_first_one() {
        let (mut backoff, request) = (Backoff::default(), Request::new(&"8 cores"));
        backoff.refused(&"m", request, seconds(30), at(0));
        assert_eq!(backoff.refused(&"m", request, seconds(30), at(30)), seconds(60));
        backoff.done(&"m", request, at(60));
        assert_eq!(backoff.refused(&"m", request, seconds(30), at(90)), seconds(30));
        assert_eq!(backoff.refused(&"m", request, seconds(30), at(5_000)), seconds(30));
        assert_eq!(backoff.refused(&"m", request, seconds(300), at(5_400)), seconds(300), "never less than asked for");
        assert_eq!(backoff.refused(&"m", Request::new(&1), Duration::ZERO, at(5_400)), Duration::ZERO);
        assert_eq!(backoff.held(&"m", Request::new(&1), at(5_400)), None);
    }

    #[test]
    fn a_clock_that_is_set_back_holds_nobody_for_hours() {
        let (mut backoff, request) = (Backoff::default(), Request::new(&"8 cores"));
        backoff.refused(&"m", request, seconds(30), at(36_000));
        assert_eq!(backoff.held(&"m", request, at(0)), None);
    }

    #[test]
    fn of_one_object_only_a_few_requests_are_remembered() {
        let mut backoff = Backoff::default();
        for number in 0..100 {
            backoff.refused(&"m", Request::new(&number), seconds(30), at(0));
        }
        assert_eq!((backoff.refused["m"].len(), backoff.crowds.len()), (REQUESTS, REQUESTS));
    }
}
