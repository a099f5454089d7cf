//! Journal times that lie in the future, because a clock was ahead when they were written.
//!
//! Nothing may wait until then. Such a time is replaced by now, once: a wait that starts at that time runs its whole duration
//! from now on. Where a time proves that something was seen, the proof is dropped.

use jiff::Timestamp;

use super::journal::Journal;
use crate::conditions::whole_seconds;

impl Journal {
    #[must_use]
    pub fn without_future(mut self, now: Timestamp) -> Self {
        let settle = |time: &mut Timestamp| {
            if *time > now {
                *time = whole_seconds(now);
            }
        };
        self.in_flight.iter_mut().for_each(|sent| settle(&mut sent.at));
        if let Some(vm) = &mut self.vm {
            vm.stage.place_mut().into_iter().for_each(|place| settle(&mut place.at));
            vm.avoided.iter_mut().for_each(|avoided| settle(&mut avoided.at));
        }
        if let Some(allocation) = &mut self.allocation {
            allocation.deploy_began.iter_mut().for_each(settle);
            allocation.release_began.iter_mut().for_each(settle);
            allocation.turned_on.iter_mut().for_each(|on| settle(&mut on.at));
            if let Some(note) = &mut allocation.leaving {
                settle(&mut note.since);
                note.refreshed = note.refreshed.filter(|at| *at <= now);
            }
        }
        for first in self.rising.values_mut() {
            *first = first.filter(|at| *at <= now);
        }
        self
    }
}
