//! Changes that MAAS's event log reports (safety rule S6).
//!
//! The log is a trigger, not a source of truth: it names machines that are worth reading. IDs come from a sequence, so a
//! transaction that commits late inserts a lower ID behind a higher one; and after a restore from a backup IDs are used again. So
//! every query re-reads a stretch of the log: what is new in it was committed late, and what is missing or different in it means
//! that this is another log.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

/// The largest page that MAAS returns.
pub const PAGE: usize = 1000;
/// How late a transaction may commit and still be seen by the next query: MAAS retries for 90 s at most, and rarely so.
const OVERLAP: SignedDuration = SignedDuration::from_secs(60);
/// The overlap must leave most of a page for new events.
const MAX_OVERLAP: usize = 200;

/// An event of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub id: i64,
    /// The properties that identify an event: time, type and machine.
    pub mark: String,
    /// Its type, as MAAS names it.
    pub kind: String,
    /// The machine that it is about.
    pub system_id: Option<String>,
}

/// The next query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Only the newest event.
    Newest,
    /// The oldest [`PAGE`] events above this ID.
    After(i64),
}

/// The result of a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct News {
    /// Machines with new events, and the types of those.
    pub machines: BTreeMap<String, BTreeSet<String>>,
    /// Events may have been missed, or the log is another one than before: read every machine.
    pub resync: bool,
    /// There is more: query again at once.
    pub more: bool,
}

/// The position in the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Feed {
    state: State,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum State {
    #[default]
    New,
    Empty,
    /// The stretch that is read again; never empty.
    Read(BTreeMap<i64, Seen>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    mark: String,
    at: Timestamp,
}

impl Feed {
    /// A feed that starts with the newest event. Its first result asks for a resync.
    pub fn new() -> Self {
        Self::default()
    }

    /// A feed that continues after these events, which were the last of the log before any machine was read.
    pub fn after(events: Vec<Entry>, now: Timestamp) -> Self {
        let events: BTreeMap<i64, Entry> = events.into_iter().map(|entry| (entry.id, entry)).collect();
        let state = if events.is_empty() { State::Empty } else { State::Read(seen(events, now)) };
        Self { state }
    }

    pub fn question(&self) -> Question {
        match &self.state {
            State::New => Question::Newest,
            State::Empty => Question::After(0),
            // One below, so that the page includes the oldest event of the stretch.
            State::Read(stretch) => Question::After(stretch.keys().next().map_or(0, |id| id.saturating_sub(1))),
        }
    }

    /// The ID of the newest event that was read.
    pub fn cursor(&self) -> Option<i64> {
        match &self.state {
            State::New | State::Empty => None,
            State::Read(stretch) => stretch.keys().next_back().copied(),
        }
    }

    /// Processes the answer to the last [`question`](Self::question). A query that failed is simply repeated.
    pub fn take(&mut self, entries: Vec<Entry>, now: Timestamp) -> News {
        let more = entries.len() >= PAGE;
        let entries: BTreeMap<i64, Entry> = entries.into_iter().map(|entry| (entry.id, entry)).collect();
        match &mut self.state {
            State::New => {
                self.state = match entries.into_values().next_back() {
                    None => State::Empty,
                    Some(newest) => State::Read(BTreeMap::from([(newest.id, Seen { mark: newest.mark, at: now })])),
                };
                News { resync: true, ..News::default() }
            }
            State::Empty => {
                let news = names(entries.values());
                if !entries.is_empty() {
                    let mut stretch = seen(entries, now);
                    trim(&mut stretch, now);
                    self.state = State::Read(stretch);
                }
                News { machines: news, resync: false, more }
            }
            State::Read(stretch) => {
                // A full page ends somewhere; events beyond its end were not requested.
                let end = if more { entries.keys().next_back().copied().unwrap_or(i64::MIN) } else { i64::MAX };
                let same = |(id, before): (&i64, &Seen)| entries.get(id).is_some_and(|entry| entry.mark == before.mark);
                if !stretch.range(..=end).all(same) {
                    self.state = State::New;
                    return News { more: true, ..News::default() };
                }
                let news = names(entries.values().filter(|entry| !stretch.contains_key(&entry.id)));
                for (id, entry) in entries {
                    stretch.entry(id).or_insert(Seen { mark: entry.mark, at: now });
                }
                trim(stretch, now);
                News { machines: news, resync: false, more }
            }
        }
    }
}

fn names<'a>(entries: impl Iterator<Item = &'a Entry>) -> BTreeMap<String, BTreeSet<String>> {
    let mut machines: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in entries {
        if let Some(id) = &entry.system_id {
            machines.entry(id.clone()).or_default().insert(entry.kind.clone());
        }
    }
    machines
}

/// Requests. Each result is an event of its own.
const REQUESTS: [&str; 5] =
    ["User acquiring node", "User starting deployment", "User releasing node", "Powering on", "Powering off"];

/// During a transition from one state to another these do not show where it ends.
const POWER: [&str; 2] = ["Node powered on", "Node powered off"];
/// States that end by themselves, as MAAS names them: an event may report that at any moment.
const ON_THE_WAY: [&str; 5] = ["Commissioning", "Testing", "Deploying", "Releasing", "Disk erasing"];

/// Whether a state ends by itself.
pub fn is_on_the_way(state: &str) -> bool {
    ON_THE_WAY.contains(&state)
}

/// Machines in states that end by themselves, and since when.
#[derive(Debug)]
pub struct OnTheWay<M> {
    since: BTreeMap<M, (String, SignedDuration)>,
}

impl<M> Default for OnTheWay<M> {
    fn default() -> Self {
        Self { since: BTreeMap::new() }
    }
}

impl<M: Ord> OnTheWay<M> {
    /// Takes all machines in such states as they are `now`, counted from any fixed moment. Returns how long the machine
    /// that entered its state last has been in it.
    pub fn youngest(
        &mut self,
        machines: impl IntoIterator<Item = (M, String)>,
        now: SignedDuration,
    ) -> Option<SignedDuration> {
        let mut before = std::mem::take(&mut self.since);
        for (machine, state) in machines {
            let since = match before.remove(&machine) {
                Some((same, since)) if same == state => since,
                _ => now,
            };
            self.since.insert(machine, (state, since));
        }
        self.since.values().map(|(_, since)| now.saturating_sub(*since)).min()
    }
}

/// The time between two queries. What has just begun may end at any moment, and what has taken a minute already may take
/// a few seconds more: the end of a transition is noticed within a quarter of what it took.
pub fn interval(youngest: Option<SignedDuration>, longest: SignedDuration) -> SignedDuration {
    youngest.map_or(longest, |waited| (waited / 4).clamp(longest / 4, longest))
}

/// Whether events of these types show more about a machine than its last observed state. The event log repeats what we requested
/// ourselves a moment ago, and the answer has shown that. A state that the machine left meanwhile has an event of its own.
pub fn is_worth_a_look(kinds: &BTreeSet<String>, last_seen: Option<&str>) -> bool {
    let on_the_way = last_seen.is_some_and(is_on_the_way);
    kinds
        .iter()
        .map(String::as_str)
        .any(|kind| !REQUESTS.contains(&kind) && Some(kind) != last_seen && !(on_the_way && POWER.contains(&kind)))
}

fn seen(entries: BTreeMap<i64, Entry>, now: Timestamp) -> BTreeMap<i64, Seen> {
    entries.into_iter().map(|(id, entry)| (id, Seen { mark: entry.mark, at: now })).collect()
}

/// Drops what is too old to be overtaken. One event older than the overlap is kept as the lower bound: what commits late has a
/// higher ID.
fn trim(stretch: &mut BTreeMap<i64, Seen>, now: Timestamp) {
    while stretch.len() > MAX_OVERLAP {
        stretch.pop_first();
    }
    loop {
        let mut ids = stretch.iter();
        let (Some(_), Some((_, second))) = (ids.next(), ids.next()) else { return };
        if now.duration_since(second.at) < OVERLAP {
            return;
        }
        stretch.pop_first();
    }
}

/// How many groups of a slow resync are due when `elapsed` of its `period` has passed: they are spread evenly, the last at the
/// end. None is due at the beginning: a manager that starts has just read everything.
pub fn groups_due(groups: usize, period: SignedDuration, elapsed: SignedDuration) -> usize {
    let (period, elapsed) = (period.as_millis().max(1), elapsed.as_millis().max(0));
    let due = i128::try_from(groups).unwrap_or(i128::MAX).saturating_mul(elapsed) / period;
    usize::try_from(due).unwrap_or(usize::MAX).min(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_echo_of_the_state_that_was_seen_already_is_not_worth_a_look() {
        let kinds = |kinds: &[&str]| kinds.iter().map(|kind| (*kind).to_owned()).collect::<BTreeSet<_>>();
        let echo = kinds(&["User releasing node", "Releasing", "Powering off"]);
        assert!(!is_worth_a_look(&echo, Some("Releasing")));
        assert!(is_worth_a_look(&echo, Some("Deployed")), "somebody else released it");
        assert!(is_worth_a_look(&echo, None), "nobody has seen it yet");
        assert!(is_worth_a_look(&kinds(&["Releasing", "Released"]), Some("Releasing")), "it went on");
        assert!(is_worth_a_look(&kinds(&["Node powered off"]), Some("Deployed")));
        assert!(!is_worth_a_look(&kinds(&["Node powered off"]), Some("Releasing")), "as it has to");
        assert!(is_worth_a_look(&kinds(&["Failed to power on node"]), Some("Deploying")));
    }

    fn entry(id: i64, system_id: &str) -> Entry {
        Entry {
            id,
            mark: format!("{system_id} at {id}"),
            kind: "Node powered off".into(),
            system_id: Some(system_id.to_owned()),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// What MAAS answers: the newest event, or the oldest page above an ID.
    fn answer(log: &[Entry], question: Question) -> Vec<Entry> {
        let mut log = log.to_vec();
        log.sort_by_key(|entry| entry.id);
        match question {
            Question::Newest => log.into_iter().next_back().into_iter().collect(),
            Question::After(id) => log.into_iter().filter(|entry| entry.id > id).take(PAGE).collect(),
        }
    }

    fn poll(feed: &mut Feed, log: &[Entry], second: i64) -> News {
        feed.take(answer(log, feed.question()), at(second))
    }

    fn woken(news: &News) -> Vec<&str> {
        news.machines.keys().map(String::as_str).collect()
    }

    #[test]
    fn it_begins_with_a_resync_and_then_names_what_happens() {
        let mut log = vec![entry(1, "old"), entry(2, "old")];
        let mut feed = Feed::new();
        assert_eq!(poll(&mut feed, &log, 0), News { resync: true, ..News::default() });
        assert_eq!(poll(&mut feed, &log, 5), News::default());
        log.push(entry(3, "abc"));
        assert_eq!(woken(&poll(&mut feed, &log, 10)), ["abc"]);
        assert_eq!(poll(&mut feed, &log, 15), News::default());
    }

    #[test]
    fn a_log_whose_end_was_read_before_is_followed_from_there_without_a_resync() {
        let mut log = vec![entry(1, "old"), entry(3, "old")];
        let mut feed = Feed::after(log.clone(), at(0));
        log.push(entry(4, "meanwhile"));
        log.push(entry(2, "late"));
        let news = poll(&mut feed, &log, 5);
        assert_eq!((woken(&news), news.resync), (vec!["late", "meanwhile"], false));
        let mut of_empty = Feed::after(Vec::new(), at(0));
        assert_eq!(woken(&poll(&mut of_empty, &[entry(1, "abc")], 5)), ["abc"]);
    }

    #[test]
    fn an_empty_log_is_followed_from_its_first_event_on() {
        let mut feed = Feed::new();
        assert!(poll(&mut feed, &[], 0).resync);
        assert_eq!(poll(&mut feed, &[], 5), News::default());
        assert_eq!(woken(&poll(&mut feed, &[entry(1, "abc")], 10)), ["abc"]);
    }

    #[test]
    fn a_transaction_that_commits_late_is_not_missed() {
        let mut log = vec![entry(1, "old")];
        let mut feed = Feed::new();
        let _ = poll(&mut feed, &log, 0);
        log.push(entry(3, "early"));
        assert_eq!(woken(&poll(&mut feed, &log, 1000)), ["early"]);
        log.push(entry(2, "late"));
        assert_eq!(woken(&poll(&mut feed, &log, 1050)), ["late"]);
        assert_eq!(poll(&mut feed, &log, 1100), News::default());
    }

    #[test]
    fn s06_a_cursor_newer_than_the_newest_event_is_a_restored_backup() {
        let mut feed = Feed::new();
        let _ = poll(&mut feed, &[entry(1, "a"), entry(9, "b")], 0);
        let restored = [entry(1, "a")];
        assert_eq!(poll(&mut feed, &restored, 5), News { more: true, ..News::default() });
        assert!(poll(&mut feed, &restored, 5).resync);
        assert_eq!(feed.cursor(), Some(1));
    }

    #[test]
    fn s06_numbers_that_are_used_again_are_a_restored_backup() {
        let mut feed = Feed::new();
        let _ = poll(&mut feed, &[entry(1, "a")], 0);
        let _ = poll(&mut feed, &[entry(1, "a"), entry(2, "b"), entry(3, "c")], 5);
        // Restored to the state after event 1; other events have followed since.
        let restored = [entry(1, "a"), entry(2, "x"), entry(3, "y"), entry(4, "z")];
        assert!(poll(&mut feed, &restored, 10).more);
        assert!(poll(&mut feed, &restored, 10).resync);
    }

    #[test]
    fn a_quiet_log_is_asked_for_one_event_only() {
        let log: Vec<Entry> = (1..=5000).map(|id| entry(id, "m")).collect();
        let mut feed = Feed::new();
        let _ = poll(&mut feed, &log, 0);
        let _ = poll(&mut feed, &log, 5);
        assert_eq!(answer(&log, feed.question()).len(), 1);
    }

    #[test]
    fn a_burst_is_read_page_by_page_to_its_end() {
        let mut log = vec![entry(1, "old")];
        let mut feed = Feed::new();
        let _ = poll(&mut feed, &log, 0);
        log.extend((2..=3500).map(|id| entry(id, &format!("m{id}"))));
        let (mut woken, mut pages) = (BTreeSet::new(), 0);
        loop {
            let news = poll(&mut feed, &log, 10);
            assert!(!news.resync);
            woken.extend(news.machines.into_keys());
            pages += 1;
            if !news.more {
                break;
            }
        }
        assert_eq!((woken.len(), pages <= 6), (3499, true), "{pages}");
    }

    #[test]
    fn a_resync_is_spread_over_its_period() {
        let due = |elapsed| groups_due(4, SignedDuration::from_secs(100), SignedDuration::from_secs(elapsed));
        assert_eq!([0, 24, 25, 74, 75, 99, 100, 500].map(due), [0, 0, 1, 2, 3, 3, 4, 4]);
        assert_eq!(groups_due(0, SignedDuration::from_secs(100), SignedDuration::from_secs(50)), 0);
    }

    #[test]
    fn the_log_is_read_more_often_the_younger_a_transition_is() {
        let longest = SignedDuration::from_secs(4);
        let after = |waited: i64| interval(Some(SignedDuration::from_secs(waited)), longest).as_millis();
        assert_eq!([0, 1, 4, 6, 10, 16, 3600].map(after), [1000, 1000, 1000, 1500, 2500, 4000, 4000]);
        assert_eq!(interval(None, longest), longest, "nothing is on its way");
    }

    #[test]
    fn the_machine_that_entered_its_state_last_is_the_youngest() {
        let mut on_the_way = OnTheWay::default();
        let mut at = |second: i64, machines: &[(&'static str, &str)]| {
            let machines = machines.iter().map(|(name, state)| (*name, (*state).to_owned()));
            on_the_way.youngest(machines, SignedDuration::from_secs(second)).map(|waited| waited.as_secs())
        };
        assert_eq!(at(10, &[]), None);
        assert_eq!(at(20, &[("a", "Deploying")]), Some(0));
        assert_eq!(at(50, &[("a", "Deploying")]), Some(30));
        assert_eq!(at(60, &[("a", "Deploying"), ("b", "Releasing")]), Some(0));
        assert_eq!(at(70, &[("a", "Deploying"), ("b", "Releasing")]), Some(10));
        assert_eq!(at(80, &[("a", "Deploying")]), Some(60), "b has arrived");
        assert_eq!(at(90, &[("a", "Releasing")]), Some(0), "another transition begins");
        assert_eq!(at(95, &[]), None);
        assert_eq!(at(99, &[("a", "Releasing")]), Some(0), "and a third one");
    }

    proptest! {
        /// Whatever the order of commits within the overlap: every event triggers its machine exactly once, without a resync.
        #[test]
        fn every_event_wakes_its_machine_once(delays in proptest::collection::vec((0i64..40, 0i64..20), 0..60)) {
            // Event k gets its ID at `begin` and is visible from `begin + delay` on.
            let mut begin = 100;
            let mut events = Vec::new();
            for (k, (delay, gap)) in delays.iter().enumerate() {
                begin += gap;
                let id = i64::try_from(k).unwrap() + 2;
                events.push((begin + delay, entry(id, &format!("m{id}"))));
            }
            let mut feed = Feed::new();
            let first = entry(1, "old");
            let _ = poll(&mut feed, std::slice::from_ref(&first), 0);
            let mut woken: Vec<String> = Vec::new();
            let mut second = 100;
            while second < begin + 100 {
                let mut log = vec![first.clone()];
                log.extend(events.iter().filter(|(visible, _)| *visible <= second).map(|(_, entry)| entry.clone()));
                let news = poll(&mut feed, &log, second);
                prop_assert!(!news.resync && !news.more);
                woken.extend(news.machines.into_keys());
                second += 5;
            }
            woken.sort();
            let mut expected: Vec<String> = events.iter().filter_map(|(_, entry)| entry.system_id.clone()).collect();
            expected.sort();
            prop_assert_eq!(woken, expected);
        }

        /// Total: any answer to any query leaves a working feed.
        #[test]
        fn no_answer_breaks_it(pages in proptest::collection::vec(proptest::collection::vec((any::<i64>(), "[ab]"), 0..8), 0..12)) {
            let mut feed = Feed::new();
            for (second, page) in pages.into_iter().enumerate() {
                let page = page.into_iter().map(|(id, name)| entry(id, &name)).collect();
                let _ = feed.take(page, at(i64::try_from(second).unwrap()));
                let _ = feed.question();
            }
        }
    }
}
