//! Whether a write whose answer was lost has had its effect, by what MAAS shows. Until that is so, or it can no longer land, nothing else
//! is sent (S2).

use super::Observed;
use super::journal::{Journal, Write};
use super::vm::listed;
use crate::Lookup;
use crate::maas::{self, State};

impl Journal {
    /// Forgets the write in flight if it has landed. `ours` are the machines that MAAS shows and that are ours.
    pub(super) fn note_what_landed(&mut self, observed: &Observed, ours: &[&maas::Machine]) {
        if self.has_landed(observed, ours) {
            self.in_flight = None;
        }
    }

    fn has_landed(&self, observed: &Observed, ours: &[&maas::Machine]) -> bool {
        let Some(sent) = &self.in_flight else { return false };
        match sent.write {
            // One that was allocated as well was there before, and one that leaves is not what was asked for.
            Write::Allocate => ours.iter().any(|metal| !metal.state.is_leaving() && !self.surplus.contains(&metal.id)),
            // What was made under the name is seen by it.
            Write::Compose => {
                let made = |metal: &maas::Machine| self.vm.as_ref().is_some_and(|vm| metal.is_made_for(vm, &self.key));
                self.allocation.is_some() || listed(&observed.vm.by_name).iter().any(made)
            }
            Write::Deploy => ours.iter().any(|metal| deploys(metal)),
            // Sent for the machine in the journal, or for one that was allocated as well.
            Write::Release => self.have_left(observed),
        }
    }

    fn have_left(&self, observed: &Observed) -> bool {
        let left = |seen: &Lookup<maas::Machine>| match seen {
            Lookup::Found(metal) => metal.state.is_leaving() || !observed.is_ours(self, metal),
            Lookup::Absent => true,
            Lookup::Unknown(_) => false,
        };
        let on_record = match &observed.on_record {
            Lookup::Found(metal) => !self.is_released(&metal.id) || left(&observed.on_record),
            Lookup::Absent | Lookup::Unknown(_) => true,
        };
        let written = observed.surplus.iter().filter(|surplus| self.surplus.contains(&surplus.id));
        on_record && written.map(|surplus| &surplus.seen).all(left)
    }

    /// Whether something was sent that this machine does not show: then it matters what else is under our key.
    pub fn awaits_more_than(&self, metal: &maas::Machine) -> bool {
        self.in_flight.as_ref().is_some_and(|sent| match sent.write {
            Write::Deploy => !deploys(metal),
            Write::Release => !(metal.state.is_leaving() && self.is_released(&metal.id)),
            Write::Allocate | Write::Compose => true,
        })
    }
}

fn deploys(metal: &maas::Machine) -> bool {
    !matches!(metal.state, State::Allocated | State::Ready)
}
