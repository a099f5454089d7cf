//! Times in a journal that lie in the future: a clock was ahead when they were written.
//!
//! Nothing may wait until then. Such a time counts as now, and is written down so, once: what is waited for from a time on takes
//! its whole time from now on. Where a time is the proof that something was seen, there is no proof.

use jiff::Timestamp;

use super::journal::Journal;
use crate::conditions::whole_seconds;

impl Journal {
    /// The journal without times in the future.
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
