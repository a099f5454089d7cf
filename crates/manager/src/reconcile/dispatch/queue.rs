//! Fair scheduling. When a thousand objects are due at once, those in progress must not wait behind all that have not
//! started: MAAS has deployed or released their machines, and somebody waits for that. And problems of one tenant must
//! not delay another tenant's objects (S29).

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::key::Key;

/// A pass that takes longer is waiting for a response, not working: its slot is given to another pass.
const SLOW: Duration = Duration::from_secs(5);

/// The scheduling class of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SchedulingClass {
    /// The MAAS identity that it uses: a MAAS that hangs delays only its own objects.
    pub(crate) tenant: String,
    /// Its cluster: the clusters of one tenant take turns.
    pub(crate) cluster: String,
    /// MAAS holds nothing for it yet.
    pub(crate) is_newcomer: bool,
}

/// Objects that wait for a pass, and objects with a running pass: never two passes over the same object.
///
/// - A single tenant may use all slots; [slow](SLOW) passes do not count against them. While as many passes run as
///   there are slots, slow ones included, a tenant gets at most a quarter of the slots. So there is always room for a
///   tenant whose MAAS answers.
/// - At most half of a tenant's share are newcomers. While both kinds wait, they start alternately.
/// - Tenants and clusters start in turn.
#[derive(Debug)]
pub(crate) struct Queue {
    slots: usize,
    under_way: HashMap<Key, UnderWay>,
    waiting: HashSet<Key>,
    lanes: HashMap<(String, String), Lane>,
    /// Lanes with waiting objects, the next one first.
    turns: VecDeque<(String, String)>,
}

#[derive(Debug)]
struct UnderWay {
    tenant: String,
    since: Instant,
    as_newcomer: bool,
    asked_again: bool,
}

/// The waiting objects of one cluster.
#[derive(Debug, Default)]
struct Lane {
    newcomers: VecDeque<Key>,
    others: VecDeque<Key>,
    newcomer_began_last: bool,
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.newcomers.is_empty() && self.others.is_empty()
    }

    /// The next object, and whether it is a newcomer.
    fn next(&mut self, may_be_newcomer: bool) -> Option<(Key, bool)> {
        let may_be_newcomer = may_be_newcomer && !self.newcomers.is_empty();
        let as_newcomer = may_be_newcomer && (self.others.is_empty() || !self.newcomer_began_last);
        let object = if as_newcomer { &mut self.newcomers } else { &mut self.others }.pop_front()?;
        self.newcomer_began_last = as_newcomer;
        Some((object, as_newcomer))
    }
}

impl Queue {
    /// A queue for this many concurrent passes.
    pub(super) fn new(at_once: u16) -> Self {
        Self {
            slots: usize::from(at_once.max(1)),
            under_way: HashMap::new(),
            waiting: HashSet::new(),
            lanes: HashMap::new(),
            turns: VecDeque::new(),
        }
    }

    /// Requests a pass over an object. A pass that is already running may have missed the change, so another one is
    /// needed; a waiting one will see it.
    pub(super) fn ask(&mut self, object: Key, class: SchedulingClass) {
        if let Some(pass) = self.under_way.get_mut(&object) {
            pass.asked_again = true;
        } else if self.waiting.insert(object.clone()) {
            let name = (class.tenant, class.cluster);
            let lane = self.lanes.entry(name.clone()).or_default();
            if lane.is_empty() {
                self.turns.push_back(name);
            }
            if class.is_newcomer { &mut lane.newcomers } else { &mut lane.others }.push_back(object);
        }
    }

    /// The object whose pass starts now, if one waits and there is room.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Key> {
        let prompt = self.under_way.values().filter(|pass| now.duration_since(pass.since) < SLOW).count();
        if prompt >= self.slots {
            return None;
        }
        for _ in 0..self.turns.len() {
            let name = self.turns.pop_front()?;
            let begun = self.begin_in(&name, now);
            if self.lanes.get(&name).is_some_and(Lane::is_empty) {
                self.lanes.remove(&name);
            } else {
                self.turns.push_back(name);
            }
            if begun.is_some() {
                return begun;
            }
        }
        None
    }

    fn begin_in(&mut self, name: &(String, String), now: Instant) -> Option<Key> {
        let share = if self.under_way.len() < self.slots { self.slots } else { self.slots.div_ceil(4) };
        let own = |pass: &&UnderWay| pass.tenant == name.0;
        if self.under_way.values().filter(own).count() >= share {
            return None;
        }
        let newcomers = self.under_way.values().filter(own).filter(|pass| pass.as_newcomer).count();
        let (object, as_newcomer) = self.lanes.get_mut(name)?.next(newcomers < share.div_ceil(2))?;
        self.waiting.remove(&object);
        let tenant = name.0.clone();
        self.under_way.insert(object.clone(), UnderWay { tenant, since: now, as_newcomer, asked_again: false });
        Some(object)
    }

    /// When there may be room although no pass has ended, because one has become slow. `None` if nothing waits.
    pub(super) fn room_at(&self, now: Instant) -> Option<Instant> {
        if self.waiting.is_empty() {
            return None;
        }
        self.under_way.values().map(|pass| pass.since + SLOW).filter(|then| *then > now).min()
    }

    /// The pass over the object has ended. Returns whether another one was requested in the meantime.
    pub(super) fn end(&mut self, object: &Key) -> bool {
        self.under_way.remove(object).is_some_and(|pass| pass.asked_again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("team", name)
    }

    fn class(tenant: &str, cluster: &str, is_newcomer: bool) -> SchedulingClass {
        SchedulingClass { tenant: tenant.to_owned(), cluster: cluster.to_owned(), is_newcomer }
    }

    fn newcomer() -> SchedulingClass {
        class("t", "c", true)
    }

    fn half_way() -> SchedulingClass {
        class("t", "c", false)
    }

    fn began_at(queue: &mut Queue, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| queue.begin(now)).map(|machine| machine.name).collect()
    }

    fn began(queue: &mut Queue) -> Vec<String> {
        began_at(queue, Instant::now())
    }

    #[test]
    fn a_machine_that_is_half_way_does_not_wait_behind_those_that_have_not_begun() {
        let mut queue = Queue::new(4);
        for name in ["new1", "new2", "new3", "new4"] {
            queue.ask(key(name), newcomer());
        }
        assert_eq!(began(&mut queue), ["new1", "new2"], "half of the slots");
        for name in ["half1", "half2", "half3"] {
            queue.ask(key(name), half_way());
        }
        assert_eq!(began(&mut queue), ["half1", "half2"]);
        queue.end(&key("half1"));
        assert_eq!(began(&mut queue), ["half3"]);
        queue.end(&key("new1"));
        assert_eq!(began(&mut queue), ["new3"]);
    }

    #[test]
    fn who_has_not_begun_does_not_wait_behind_all_others_either() {
        let mut queue = Queue::new(2);
        for name in ["leaving1", "leaving2", "leaving3", "leaving4"] {
            queue.ask(key(name), half_way());
        }
        assert_eq!(began(&mut queue), ["leaving1", "leaving2"], "alone, they may have all slots");
        queue.ask(key("new1"), newcomer());
        queue.ask(key("new2"), newcomer());
        queue.end(&key("leaving1"));
        queue.end(&key("leaving2"));
        assert_eq!(began(&mut queue), ["new1", "leaving3"]);
    }

    #[test]
    fn where_only_one_is_allowed_at_once_they_take_turns() {
        let mut queue = Queue::new(0);
        for (name, newcomer) in [("new1", true), ("new2", true), ("half1", false), ("half2", false)] {
            queue.ask(key(name), class("t", "c", newcomer));
        }
        let now = Instant::now();
        let one_by_one: Vec<Key> = std::iter::from_fn(|| {
            let machine = queue.begin(now)?;
            assert_eq!(queue.begin(now), None);
            queue.end(&machine);
            Some(machine)
        })
        .collect();
        assert_eq!(one_by_one, [key("new1"), key("half1"), key("new2"), key("half2")]);
    }

    #[test]
    fn a_machine_is_never_looked_at_twice_at_once_and_what_happens_meanwhile_is_not_lost() {
        let mut queue = Queue::new(4);
        queue.ask(key("a"), newcomer());
        queue.ask(key("a"), half_way());
        assert_eq!(began(&mut queue), ["a"], "asked for twice, it waits once");
        queue.ask(key("a"), half_way());
        queue.ask(key("a"), half_way());
        assert!(began(&mut queue).is_empty());
        assert!(queue.end(&key("a")), "asked for again");
        queue.ask(key("a"), half_way());
        assert_eq!(began(&mut queue), ["a"]);
        assert!(!queue.end(&key("a")));
        assert!(began(&mut queue).is_empty());
    }

    #[test]
    fn s29_clusters_and_tenants_begin_in_turn() {
        let mut queue = Queue::new(6);
        for name in ["a1", "a2", "a3", "a4", "a5", "a6"] {
            queue.ask(key(name), class("a", "one", false));
        }
        queue.ask(key("other1"), class("a", "two", false));
        queue.ask(key("b1"), class("b", "one", false));
        assert_eq!(began(&mut queue), ["a1", "other1", "b1", "a2", "a3", "a4"]);
    }

    #[test]
    fn s29_a_tenant_whose_passes_hang_leaves_room_for_others_however_many_hang() {
        let (mut queue, began) = (Queue::new(8), Instant::now());
        for name in 0..100 {
            queue.ask(key(&format!("a{name}")), class("a", "c", false));
        }
        assert_eq!(began_at(&mut queue, began).len(), 8, "alone, it may have all slots");
        queue.ask(key("b0"), class("b", "c", false));
        assert!(began_at(&mut queue, began).is_empty());
        assert_eq!(queue.room_at(began), Some(began + SLOW), "this is when to ask again");
        let now = began + SLOW;
        assert_eq!(began_at(&mut queue, now), ["b0"]);
        for tenant in ["b", "c", "d"] {
            for name in 1..100 {
                queue.ask(key(&format!("{tenant}{name}")), class(tenant, "c", false));
            }
        }
        assert_eq!(began_at(&mut queue, now).len(), 5, "each has a quarter of the slots, and b has begun with one");
        let now = now + SLOW;
        assert_eq!(began_at(&mut queue, now).len(), 0, "they hang as well");
        queue.ask(key("x"), class("x", "c", false));
        assert_eq!(began_at(&mut queue, now), ["x"], "at once");
        assert_eq!(queue.room_at(now + SLOW), None, "nothing changes by itself any more");
    }

    #[test]
    fn nothing_is_kept_of_clusters_in_which_nobody_waits() {
        let mut queue = Queue::new(2);
        queue.ask(key("a"), newcomer());
        began(&mut queue);
        queue.end(&key("a"));
        assert!(queue.lanes.is_empty() && queue.turns.is_empty() && queue.under_way.is_empty());
    }
}
