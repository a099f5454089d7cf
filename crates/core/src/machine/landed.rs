//! Whether a write whose answer was lost has taken effect, judged by what MAAS shows. Until it has, or can no longer land,
//! nothing else is sent (S2).

use super::Observed;
use super::journal::{Journal, Write};
use super::vm::listed;
use crate::Lookup;
use crate::maas::{self, State};

impl Journal {
    /// Clears the write in flight if it has landed. `ours` are the machines in MAAS that are ours.
    pub(super) fn note_what_landed(&mut self, observed: &Observed, ours: &[&maas::Machine]) {
        if self.has_landed(observed, ours) {
            self.in_flight = None;
        }
    }

    fn has_landed(&self, observed: &Observed, ours: &[&maas::Machine]) -> bool {
        let Some(sent) = &self.in_flight else { return false };
        match sent.write {
            // A surplus machine existed before, and a machine that is being released is not the one that was requested.
            Write::Allocate => ours.iter().any(|metal| !metal.state.is_leaving() && !self.surplus.contains(&metal.id)),
            // A VM that was created under the name is found by it.
            Write::Compose => {
                let made = |metal: &maas::Machine| self.vm.as_ref().is_some_and(|vm| metal.is_made_for(vm, &self.key));
                self.allocation.is_some() || listed(&observed.vm.by_name).iter().any(made)
            }
            Write::Deploy => ours.iter().any(|metal| deploys(metal)),
            // Sent for the machine in the journal, or for a surplus machine.
            Write::Release => self.have_left(observed),
        }
    }

    fn have_left(&self, observed: &Observed) -> bool {
        let left = |seen: &Lookup<maas::Machine>| match seen {
            Lookup::Found(metal) => metal.state.is_leaving() || !observed.is_ours(self, metal),
            Lookup::Absent => true,
            Lookup::Unknown(_) => false,
        };
        let in_journal = match &observed.in_journal {
            Lookup::Found(metal) => !self.is_released(&metal.id) || left(&observed.in_journal),
            Lookup::Absent | Lookup::Unknown(_) => true,
        };
        let written = observed.surplus.iter().filter(|surplus| self.surplus.contains(&surplus.id));
        in_journal && written.map(|surplus| &surplus.seen).all(left)
    }

    /// Whether a write was sent whose result this machine does not show: then all machines under our idempotency key matter.
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
