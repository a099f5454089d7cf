//! A refused request is not sent again before its backoff is over, whatever triggers the object meanwhile (S26).
//!
//! An object may be reconciled at any time: somebody edits it, MAAS's event log names it, a resync is due. None of that is a
//! reason to repeat what MAAS has just refused. A different request is not held, because a changed spec counts at once, unless
//! very many are held already.

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
/// How many different requests are remembered per object, and how many may be held before every other one is held as well: an
/// object whose refused requests are forgotten early would send them early. Far more than the hosts that refuse one VM within a
/// back-off, so that a changed spec and a deletion are in practice never held.
const REQUESTS: usize = 32;

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

    /// How long it is still held; `None` if it is not.
    fn left(&self, now: Timestamp) -> Option<Duration> {
        self.wait.checked_sub(self.age(now)?).filter(|left| !left.is_zero())
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
        let of_object = self.refused.get(object)?;
        let same = of_object.iter().find(|refused| refused.request == request).and_then(|refused| refused.left(now));
        same.or_else(|| {
            let waits = of_object.iter().filter_map(|refused| refused.left(now));
            waits.clone().min().filter(|_| waits.count() >= REQUESTS)
        })
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

    /// Drops what was refused long ago, and what exceeds the limit and is not held any more.
    fn prune(&mut self, object: &K, now: Timestamp) {
        let Some(of_object) = self.refused.get(object) else { return };
        let surplus = of_object.len().saturating_sub(REQUESTS);
        let over = of_object.iter().filter(|refused| refused.left(now).is_none()).enumerate();
        let old = over.filter(|(index, refused)| *index < surplus || !refused.is_remembered(now));
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
    fn s26_nine_requests_that_are_refused_within_a_second_are_each_held() {
        let mut backoff = Backoff::default();
        let requests = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|host| Request::new(&host));
        for (refused, request) in requests.into_iter().enumerate() {
            assert_eq!(backoff.held(&"m", request, at(0)), None, "the hosts are tried one after the other: {refused}");
            backoff.refused(&"m", request, seconds(30), at(0));
        }
        for second in 0..30 {
            let held = requests.map(|request| backoff.held(&"m", request, at(second)));
            assert_eq!(held, [Some(seconds(30 - second.unsigned_abs())); 9]);
        }
        assert_eq!(requests.map(|request| backoff.held(&"m", request, at(30))), [None; 9]);
    }

    #[test]
    fn s26_of_one_object_only_some_requests_are_remembered_and_none_is_sent_before_its_back_off() {
        let mut backoff = Backoff::default();
        let mut due = HashMap::new();
        for step in 0..6_000 {
            let (second, number) = (step / 10, step % 97);
            let request = Request::new(&number);
            if backoff.held(&"m", request, at(second)).is_none() {
                assert!(due.get(&number).is_none_or(|due| *due <= at(second)), "{number} at {second} s");
                let wait = backoff.refused(&"m", request, seconds(30), at(second));
                due.insert(number, at(second) + SignedDuration::try_from(wait).unwrap());
            }
            let remembered = backoff.refused["m"].len();
            assert!(remembered <= REQUESTS && remembered == backoff.crowds.len(), "{remembered} at {second} s");
        }
        assert!(due.len() > REQUESTS, "the others have their turn: {}", due.len());
    }

    #[test]
    fn where_very_many_requests_are_held_every_other_one_is_until_the_first_may_be_sent() {
        let mut backoff = Backoff::default();
        let other = Request::new(&"another spec");
        for wait in (30..).take(REQUESTS) {
            assert_eq!(backoff.held(&"m", other, at(0)), None);
            backoff.refused(&"m", Request::new(&wait), seconds(wait), at(0));
        }
        assert_eq!(backoff.held(&"m", other, at(10)), Some(seconds(20)));
        assert_eq!(backoff.held(&"m", Request::new(&35_u64), at(10)), Some(seconds(25)), "its own back-off is longer");
        assert_eq!(backoff.held(&"n", other, at(10)), None);
        assert_eq!(backoff.held(&"m", other, at(30)), None);
    }
}
