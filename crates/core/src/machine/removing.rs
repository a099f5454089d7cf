//! A VM that should be gone: released like any machine, then removed from MAAS and LXD, then seen gone by its ID and by its name.

use capmaas_api::reasons;

use super::decide::{Step, unseen};
use super::effect::Effect;
use super::journal::Journal;
use super::releasing::{Releasing, done, kept, wait};
use super::stuck;
use super::vm::{is_anothers, listed};
use super::vm_journal::is_made_up;
use crate::Lookup;
use crate::maas::{self, Power, State};

impl Releasing<'_> {
    /// Nothing of ours is Allocated or Deployed any more.
    pub(super) fn remove(mut self, in_journal: Option<maas::Machine>, user: &str, identity_changed: bool) -> Step {
        if let Some(metal) = in_journal {
            return self.remove_one(&metal, user);
        }
        let made = match (&self.journal.vm, &self.observed.vm.by_name) {
            (Some(_), Lookup::Unknown(why)) => return unseen(why),
            (Some(vm), Lookup::Found(found)) => {
                found.iter().find(|metal| metal.is_made_for(vm, &self.journal.key)).cloned()
            }
            (None, _) | (_, Lookup::Absent) => None,
        };
        match made {
            // Created, and we crashed before recording it; or a refresh of the host brought it back.
            Some(metal)
                if (!is_anothers(&metal, user) || metal.state.is_being_commissioned())
                    && !self.observed.held_elsewhere.machines.contains(&metal.id) =>
            {
                let message = format!("{} ({}) is to be removed", metal.hostname, metal.id);
                self.journal.allocation_of(&metal.id);
                wait(reasons::MACHINE_RELEASING, message, 0).writing(self.journal)
            }
            _ if identity_changed => kept(
                reasons::IDENTITY_CHANGED,
                "the MAAS endpoint or user changed, so what MAAS does not show may still exist",
            ),
            _ => {
                let message = "MAAS holds no VM for this object";
                let step = done(message);
                if self.journal.allocation.as_ref().is_some_and(|allocation| allocation.released.is_some()) {
                    return step.telling(false, "SuccessfulRelease", "the VM was removed");
                }
                if let Some(left) = self.of_that_name(user) {
                    return step.telling(true, reasons::NOT_OUR_MACHINE, left);
                }
                // MAAS may have crashed between LXD and its own database.
                match (&self.journal.vm, self.unanswered) {
                    (Some(vm), true) => step.telling(true, reasons::VM_CREATION_FAILED, vm.may_be_left()),
                    _ => step,
                }
            }
        }
    }

    /// A VM that nobody owns, of the name that the Go provider recorded. Nothing proves that it was made for this object: anybody
    /// can write such an annotation, so it is left to a person.
    fn of_that_name(&self, user: &str) -> Option<String> {
        let vm = self.journal.vm.as_ref().filter(|vm| !is_made_up(&vm.name, &self.journal.key))?;
        let metal =
            listed(&self.observed.vm.by_name).iter().find(|metal| metal.is_vm() && !is_anothers(metal, user))?;
        Some(format!(
            "MAAS has a VM {} ({}) without an owner, and only an annotation claims that it was made for this object; \
             it is left alone: delete it in MAAS if it was",
            vm.name, metal.id
        ))
    }

    /// Removes a VM without a release. MAAS removes our stamp on release, and after that nothing would prove that this VM is
    /// ours: it was adopted, or somebody changed its name or host. So it is deleted while it carries the stamp.
    pub(super) fn remove_marked(&self, metal: &maas::Machine) -> Option<Step> {
        if !metal.is_vm() || self.journal.would_be_proven(metal) || metal.stamp.as_ref() != Some(&self.journal.key) {
            return None;
        }
        let mut journal = self.journal.clone();
        if !journal.has_machine(&metal.id) {
            // Its power is queried only once it is in the journal.
            journal.allocation_of(&metal.id);
            let message = format!("{} ({}) is to be removed", metal.hostname, metal.id);
            return Some(wait(reasons::MACHINE_RELEASING, message, 0).writing(journal));
        }
        journal.allocation_of(&metal.id).released = Some(metal.id.clone());
        Some(remove_while_host_answers(self.observed.power, &metal.id, journal))
    }

    /// Nobody owns it. It is removed only while its host answers, because MAAS forgets a VM even if it cannot remove it (727).
    fn remove_one(mut self, metal: &maas::Machine, user: &str) -> Step {
        let id = &metal.id;
        if let Some(step) = stuck::step(self.observed, &mut self.journal, metal, self.now) {
            return step;
        }
        if matches!(metal.state, State::Releasing | State::DiskErasing) {
            let message = format!("{id} is {} in MAAS", metal.state_name);
            return wait(reasons::MACHINE_RELEASING, message, 10).writing(self.journal);
        }
        let made_for_us = self.journal.is_proven(metal);
        let claimed = self.observed.held_elsewhere.machines.contains(id) || metal.stamp.is_some();
        if metal.is_vm() && made_for_us && !claimed && metal.state.is_being_commissioned() && is_anothers(metal, user) {
            let whose = metal.owner.as_deref().unwrap_or("somebody");
            let message =
                format!("{id} is {} in MAAS for {whose}; it is removed once nobody owns it", metal.state_name);
            return wait(reasons::MACHINE_RELEASING, message, 20).writing(self.journal);
        }
        let free = !is_anothers(metal, user) && !self.observed.held_elsewhere.machines.contains(id);
        if !(metal.is_vm() && made_for_us && free && metal.state.is_removable()) {
            return self.not_ours(metal, user);
        }
        if metal.locked {
            return kept(reasons::MACHINE_RELEASE_FAILED, format!("{id} is locked in MAAS; unlock it"));
        }
        remove_while_host_answers(self.observed.power, id, self.journal)
    }
}

fn remove_while_host_answers(power: Option<Power>, id: &str, journal: Journal) -> Step {
    match power {
        Some(Power::On | Power::Off) => {
            let effect = Effect::DeleteVm { machine: id.to_owned() };
            wait(reasons::MACHINE_RELEASING, format!("{id} is being removed"), 2).writing(journal).doing(effect)
        }
        Some(Power::Unknown) | None => kept(
            reasons::HOST_UNAVAILABLE,
            format!(
                "LXD HostUnavailable: the host of {id} does not answer; a VM that is removed now would stay on it, so \
                 the removal waits for the host"
            ),
        ),
    }
}
