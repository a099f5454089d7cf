//! Whose turn it is. When a thousand machines are asked for at once, those that are half way must not wait behind all that have
//! not begun: MAAS has deployed them, or given them back, and somebody waits for that.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::port::Key;

/// Machines that wait for a pass, and those over which one is under way: never two over the same machine.
///
/// At most half of those under way are newcomers, so that half of the places is always open to everybody else. While both wait,
/// they begin in turn.
#[derive(Debug)]
pub(super) struct Queue {
    places: usize,
    under_way: HashMap<Key, UnderWay>,
    waiting: HashSet<Key>,
    newcomers: VecDeque<Key>,
    others: VecDeque<Key>,
    newcomer_began_last: bool,
}

#[derive(Debug)]
struct UnderWay {
    as_newcomer: bool,
    asked_again: bool,
}

impl Queue {
    /// For so many passes at once.
    pub(super) fn new(at_once: u16) -> Self {
        Self {
            places: usize::from(at_once.max(1)),
            under_way: HashMap::new(),
            waiting: HashSet::new(),
            newcomers: VecDeque::new(),
            others: VecDeque::new(),
            newcomer_began_last: false,
        }
    }

    /// A pass over a machine is asked for. What happens while one is under way may have come too late for it, so another one is
    /// needed; one that waits will see it.
    pub(super) fn ask(&mut self, machine: Key, is_newcomer: bool) {
        if let Some(pass) = self.under_way.get_mut(&machine) {
            pass.asked_again = true;
        } else if self.waiting.insert(machine.clone()) {
            if is_newcomer { &mut self.newcomers } else { &mut self.others }.push_back(machine);
        }
    }

    /// The machine whose pass begins now, if one waits and there is room.
    pub(super) fn begin(&mut self) -> Option<Key> {
        if self.under_way.len() >= self.places {
            return None;
        }
        let newcomers = self.under_way.values().filter(|pass| pass.as_newcomer).count();
        let may_be_newcomer = newcomers < self.places.div_ceil(2) && !self.newcomers.is_empty();
        let as_newcomer = may_be_newcomer && (self.others.is_empty() || !self.newcomer_began_last);
        let machine = if as_newcomer { &mut self.newcomers } else { &mut self.others }.pop_front()?;
        self.newcomer_began_last = as_newcomer;
        self.waiting.remove(&machine);
        self.under_way.insert(machine.clone(), UnderWay { as_newcomer, asked_again: false });
        Some(machine)
    }

    /// The pass over the machine has ended. Answers whether another one was asked for meanwhile.
    pub(super) fn end(&mut self, machine: &Key) -> bool {
        self.under_way.remove(machine).is_some_and(|pass| pass.asked_again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("team", name)
    }

    fn began(queue: &mut Queue) -> Vec<String> {
        std::iter::from_fn(|| queue.begin()).map(|machine| machine.name).collect()
    }

    #[test]
    fn a_machine_that_is_half_way_does_not_wait_behind_those_that_have_not_begun() {
        let mut queue = Queue::new(4);
        for name in ["new1", "new2", "new3", "new4"] {
            queue.ask(key(name), true);
        }
        assert_eq!(began(&mut queue), ["new1", "new2"], "half of the places");
        for name in ["half1", "half2", "half3"] {
            queue.ask(key(name), false);
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
            queue.ask(key(name), false);
        }
        assert_eq!(began(&mut queue), ["leaving1", "leaving2"], "alone, they may have all places");
        queue.ask(key("new1"), true);
        queue.ask(key("new2"), true);
        queue.end(&key("leaving1"));
        queue.end(&key("leaving2"));
        assert_eq!(began(&mut queue), ["new1", "leaving3"]);
    }

    #[test]
    fn where_only_one_is_allowed_at_once_they_take_turns() {
        let mut queue = Queue::new(0);
        for (name, newcomer) in [("new1", true), ("new2", true), ("half1", false), ("half2", false)] {
            queue.ask(key(name), newcomer);
        }
        let one_by_one: Vec<Key> = std::iter::from_fn(|| {
            let machine = queue.begin()?;
            assert_eq!(queue.begin(), None);
            queue.end(&machine);
            Some(machine)
        })
        .collect();
        assert_eq!(one_by_one, [key("new1"), key("half1"), key("new2"), key("half2")]);
    }

    #[test]
    fn a_machine_is_never_looked_at_twice_at_once_and_what_happens_meanwhile_is_not_lost() {
        let mut queue = Queue::new(4);
        queue.ask(key("a"), true);
        queue.ask(key("a"), false);
        assert_eq!(began(&mut queue), ["a"], "asked for twice, it waits once");
        queue.ask(key("a"), false);
        queue.ask(key("a"), false);
        assert!(began(&mut queue).is_empty());
        assert!(queue.end(&key("a")), "asked for again");
        queue.ask(key("a"), false);
        assert_eq!(began(&mut queue), ["a"]);
        assert!(!queue.end(&key("a")));
        assert!(began(&mut queue).is_empty());
    }
}
