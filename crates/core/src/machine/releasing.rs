//! A machine that should be released.

use capmaas_api::names::VM_NAME_ANNOTATION;
use capmaas_api::{Severity, reasons};
use jiff::Timestamp;

use super::decide::{Step, after, is_elsewhere, unknown, unseen};
use super::effect::Effect;
use super::host_leaving::before_release;
use super::journal::{ABANDON_ANNOTATION, Journal, Write};
use super::ownership::{self, Whose};
use super::rising::{READS_APART, once_more};
use super::status::Progress;
use super::vm_journal::VmJournal;
use super::{Access, Observed, stuck, surplus, wanted};
use crate::Lookup;
use crate::intent::Wipe;
use crate::maas::{self, Power, State};
use crate::plan::{Finalizer, Requeue};

pub(super) struct Releasing<'a> {
    pub(super) observed: &'a Observed,
    pub(super) journal: Journal,
    pub(super) erase: Option<Wipe>,
    pub(super) is_vm: bool,
    /// A VM was requested, and the outcome was never seen.
    pub(super) unanswered: bool,
    pub(super) now: Timestamp,
}

pub(super) fn step(observed: &Observed, now: Timestamp) -> Step {
    let spec = &observed.object.spec;
    let journal = match &observed.journal {
        Ok(Some(journal)) => journal.clone().without_future(now),
        Ok(None) if spec.provider_id().is_none() => {
            // Nothing was ever requested: the journal comes before the first effect (S3, S13). An unreadable spec may hide a
            // provider ID of the Go provider.
            let hidden = spec.unreadable.iter().any(|path| path == "." || path.starts_with("providerID"));
            if hidden {
                return kept(
                    reasons::UNREADABLE_SPEC,
                    "the stored spec cannot be read, so there may be a machine for it",
                );
            }
            let metadata = &observed.object.metadata;
            if let Some(begun) = metadata.annotations.as_ref().and_then(|map| map.get(VM_NAME_ANNOTATION)) {
                // The Go provider was creating a VM of this name.
                let uid = metadata.uid.as_deref().unwrap_or_default();
                let mut journal = Journal::new(uid);
                journal.vm = Some(VmJournal::named(begun, metadata.name.as_deref().unwrap_or_default(), uid));
                return taking_over().writing(journal);
            }
            return done("nothing was ever allocated");
        }
        Ok(None) => return adopt(observed),
        Err(why) => return kept(reasons::UNREADABLE_SPEC, why),
    };
    // MAAS itself shows the kind of an adopted machine.
    let shown = matches!(&observed.in_journal, Lookup::Found(metal) if metal.is_vm());
    let is_vm = journal.vm.is_some() || journal.is_adopted() && shown;
    let erase = match wanted(&observed.object, Some(&journal)) {
        Ok(wanted) => wanted.intent.erase(),
        // Whatever else is wrong with the spec, the machine is released; MAAS's own setting then decides how its disks are wiped.
        Err(_) => None,
    };
    // The disk of a VM is deleted with it.
    let erase = erase.or(is_vm.then_some(Wipe::Nothing));
    Releasing { observed, journal, erase, is_vm, unanswered: false, now }.step()
}

/// Deleted before we saw it for the first time: adopted, then released.
fn adopt(observed: &Observed) -> Step {
    let spec = &observed.object.spec;
    let mut journal = Journal::new(observed.object.metadata.uid.as_deref().unwrap_or_default());
    let id = spec.provider_id().and_then(|id| id.parse::<capmaas_api::ProviderId>().ok());
    let id = id.and_then(|id| id.system_id().map(str::to_owned)).or_else(|| spec.system_id().map(str::to_owned));
    let Some(id) = id else {
        return kept(reasons::MACHINE_NOT_FOUND, "spec.providerID names no machine to be looked up");
    };
    journal.allocation_of(&id).adopted = true;
    taking_over().writing(journal)
}

fn taking_over() -> Step {
    Step::say(Progress::not_yet(Severity::Info, reasons::DELETING, "the machine is being adopted"), after(0))
}

pub(super) fn done(why: &str) -> Step {
    Step::say(Progress::not_yet(Severity::Info, reasons::DELETED, why), Requeue::OnChange).letting_go()
}

/// The finalizer stays until a person acts.
pub(super) fn kept(reason: &'static str, message: impl Into<String>) -> Step {
    Step::say(Progress::not_yet(Severity::Error, reason, message), after(120))
}

pub(super) fn wait(reason: &'static str, message: impl Into<String>, seconds: u64) -> Step {
    Step::say(Progress::not_yet(Severity::Info, reason, message), after(seconds))
}

impl Releasing<'_> {
    /// Surplus machines are handled last, and keep the finalizer (S4, S14).
    fn step(mut self) -> Step {
        if ownership::is_given_up(self.observed, &self.journal) {
            return ownership::given_up(&self.journal);
        }
        let mut followed = surplus::follow(self.observed, &mut self.journal, self.now);
        let journal = self.journal.clone();
        let mut step = self.go_on(followed.step.take().or(followed.try_out.take()));
        if let Some(why) = followed.awaited.filter(|_| step.finalizer == Finalizer::Remove) {
            step = wait(reasons::MACHINE_RELEASING, why, 30);
        }
        step.events.extend(followed.events);
        step.journal.get_or_insert(journal);
        step
    }

    fn go_on(mut self, about_surplus: Option<Step>) -> Step {
        let (user, identity_changed) = match &self.observed.access {
            Access::Granted { user, identity_changed, .. } => (user.clone(), *identity_changed),
            Access::Denied { reason, message } => return unknown(reason, message),
        };
        let found = match &self.observed.by_key {
            Lookup::Found(found) => found.clone(),
            Lookup::Absent => Vec::new(),
            Lookup::Unknown(_) if is_sent_back(&self.journal, &self.observed.in_journal) => Vec::new(),
            Lookup::Unknown(why) => return unseen(why),
        };
        if let Some(message) = self.observed.contested(&self.journal) {
            return kept(reasons::NOT_OUR_MACHINE, message);
        }
        // Another object's live node is left as it is (S6), and what the MaasCluster owes is the MaasCluster's to remove (S16).
        let is_ours = |metal: &maas::Machine| {
            let left = self.observed.is_held_by_another(&self.journal, metal) || self.journal.owed.contains(&metal.id);
            !left && self.observed.is_ours(&self.journal, metal)
        };
        let in_journal = match (self.journal.machine(), &self.observed.in_journal) {
            (Some(id), Lookup::Absent) if found.iter().any(|metal| metal.id == *id) => {
                return unseen("MAAS lists the machine under our key, but does not know its ID");
            }
            (None, _) | (Some(_), Lookup::Absent) => None,
            (Some(id), Lookup::Found(metal)) if metal.id == *id => Some(metal.clone()),
            (Some(_), Lookup::Unknown(why)) => return unseen(why),
            (Some(_), Lookup::Found(_)) => return unseen("MAAS answered with another machine"),
        };
        let surplus = self.observed.surplus.iter().filter_map(|surplus| match &surplus.seen {
            Lookup::Found(metal) => Some(metal),
            Lookup::Absent | Lookup::Unknown(_) => None,
        });
        // Of two observations of one machine, the one by its ID counts.
        let mut seen: Vec<maas::Machine> = in_journal.iter().chain(surplus).cloned().collect();
        seen.extend(
            found.into_iter().filter(|metal| seen.iter().all(|other| other.id != metal.id)).collect::<Vec<_>>(),
        );
        let mut ours: Vec<maas::Machine> = seen.into_iter().filter(is_ours).collect();
        self.journal.note_what_landed(self.observed, &ours.iter().collect::<Vec<_>>());
        if let Some(sent) = &self.journal.in_flight
            && sent.may_still_land(self.now)
        {
            return wait(reasons::MACHINE_RELEASING, "waiting for MAAS's answer to an earlier request", 10);
        }
        self.unanswered = self.journal.in_flight.as_ref().is_some_and(|sent| sent.write == Write::Compose)
            || self.journal.vm.as_ref().is_some_and(|vm| vm.stage.may_be_in_lxd());
        self.journal.in_flight = None;
        if let Some(step) = self.fenced(in_journal.as_ref(), &ours) {
            return step;
        }
        ours.sort_by(|a, b| a.id.cmp(&b.id));
        let is_in_journal = |metal: &&maas::Machine| self.journal.machine().is_none_or(|id| *id == metal.id);
        let held = |metal: &&maas::Machine| !metal.state.is_leaving();
        if let Some(metal) = ours.iter().filter(held).find(is_in_journal) {
            // Recorded together with the release, so that no second lookup is needed.
            let surplus = |other: &&maas::Machine| other.id != metal.id && !self.journal.surplus.contains(&other.id);
            let surplus: Vec<String> = ours.iter().filter(held).filter(surplus).map(|other| other.id.clone()).collect();
            self.journal.surplus.extend(surplus);
            return self.release(metal);
        }
        if let Some(step) = about_surplus {
            return step;
        }
        if let Some(metal) = ours.iter().filter(held).find(|metal| !self.journal.surplus.contains(&metal.id)) {
            self.journal.surplus.push(metal.id.clone());
            let message = format!("{} is a surplus machine and is going to be released", metal.id);
            return wait(reasons::MACHINE_RELEASING, message, 0).writing(self.journal);
        }
        if let Some(metal) = ours.iter().find(|metal| matches!(metal.state, State::Releasing | State::DiskErasing)) {
            let message = format!("{} is {} in MAAS", metal.id, metal.state_name);
            if self.journal.has_machine(&metal.id)
                && let Some(step) = stuck::step(self.observed, &mut self.journal, metal, self.now)
            {
                return step;
            }
            return wait(reasons::MACHINE_RELEASING, message, 20).writing(self.journal);
        }
        if let Some(metal) = in_journal.as_ref().filter(|_| is_elsewhere(self.observed)) {
            let message =
                format!("the MAAS endpoint changed, so {} may be another machine there, without our stamp", metal.id);
            return kept(reasons::IDENTITY_CHANGED, message);
        }
        if self.is_vm {
            return self.remove(in_journal, &user, identity_changed);
        }
        match in_journal {
            Some(metal) => self.see_off(&metal, &user),
            None if identity_changed => kept(
                reasons::IDENTITY_CHANGED,
                format!(
                    "the MAAS endpoint or user changed, so what MAAS does not show may still exist; go back to the \
                     former credentials, or abandon it with the annotation {ABANDON_ANNOTATION}: {}",
                    self.journal.machine().unwrap_or(&self.journal.key)
                ),
            ),
            None => done("MAAS holds no machine for this object"),
        }
    }

    /// Ours, and not being released yet.
    fn release(mut self, metal: &maas::Machine) -> Step {
        let id = &metal.id;
        if !metal.state.is_releasable() {
            let shown = metal.state_shown();
            let message = format!("{id} is {shown}, which cannot be released; bring it to Ready or Deployed");
            return kept(reasons::MACHINE_STATE_UNDEFINED, message);
        }
        if metal.locked {
            return kept(reasons::MACHINE_RELEASE_FAILED, format!("{id} is locked in MAAS; unlock it"));
        }
        // In this order: its agent is reached through the API server, whose name needs the DNS record.
        if self.journal.has_machine(id)
            && let Some(step) = before_release(self.observed, &self.journal, metal, self.now)
        {
            return step;
        }
        if let Some(step) = self.dns(metal) {
            return step;
        }
        if let Some(step) = self.remove_marked(metal) {
            return step;
        }
        if let Some(stamp) = self.observed.missing_stamp(&self.journal, metal) {
            let message = format!("{id} is stamped as ours and then released");
            self.journal.allocation_of(id);
            return wait(reasons::MACHINE_RELEASING, message, 0).writing(self.journal).doing(stamp);
        }
        let failed = matches!(metal.state, State::ReleasingFailed | State::FailedDiskErasing);
        let (reason, message) = if failed {
            (reasons::MACHINE_RELEASE_FAILED, format!("{id} is {}; the release is retried", metal.state_shown()))
        } else {
            (reasons::MACHINE_RELEASING, format!("{id} is being released"))
        };
        let erase = self.erase;
        let journal = self.journal.releasing(metal, self.now);
        // Many machines are free and off a moment later, so this state need not be reported.
        let mut step = wait(reason, message.clone(), if failed { 120 } else { 1 });
        if failed {
            step = step.telling(true, reason, message);
        }
        step.writing(journal).doing(Effect::Release { machine: id.clone(), erase })
    }

    /// The address leaves DNS before the machine is released: a record would follow the machine to its next owner (S18). Only
    /// while somebody maintains the record; otherwise there is nothing to wait for. For a VM host, the cluster reads this reason
    /// as permission to remove its address.
    pub(super) fn dns(&self, metal: &maas::Machine) -> Option<Step> {
        if !self.journal.has_machine(&metal.id) {
            return None;
        }
        match (&self.observed.maas_cluster, &self.observed.in_dns) {
            (Lookup::Found(around), Lookup::Found(true)) if around.keeps_dns => {
                let stamp = self.observed.missing_stamp(&self.journal, metal);
                let mut message = format!("{} waits until its address has left DNS", metal.id);
                if let (None, None, Some(owner)) = (&stamp, &metal.stamp, &metal.owner) {
                    // MAAS lets only its owner stamp it.
                    message = format!(
                        "{message}; it carries no stamp and belongs in MAAS to the earlier user {owner}, so the cluster may not \
                         be able to prove that the record is its own: then remove the address from the record in MAAS"
                    );
                }
                let step = wait(reasons::DNS_DETACH_PENDING, message, 5);
                // Where the name does not prove whose the record is, the cluster changes it only if the machine is stamped.
                Some(match stamp {
                    Some(stamp) => step.doing(stamp),
                    None => step,
                })
            }
            (Lookup::Found(around), Lookup::Unknown(why)) if around.keeps_dns => Some(unseen(why)),
            (Lookup::Unknown(why), _) => Some(unseen(why)),
            _ => None,
        }
    }

    /// Not ours any more: released means seen released, and off (S14).
    fn see_off(mut self, metal: &maas::Machine, user: &str) -> Step {
        let id = &metal.id;
        if let Some(step) = stuck::step(self.observed, &mut self.journal, metal, self.now) {
            return step;
        }
        match metal.state {
            State::Ready | State::New => {
                if !self.journal.is_released(id) {
                    return done(&format!("{id} is {} in MAAS and carries no stamp of ours", metal.state_name));
                }
                match self.observed.power {
                    Some(Power::Off) if !self.journal.seen_off(id, self.now) => {
                        wait(reasons::MACHINE_RELEASING, once_more(id), READS_APART.into()).writing(self.journal)
                    }
                    Some(Power::Off) => done(&format!("{id} was released")),
                    Some(Power::On) => {
                        let message =
                            format!("{id} is still on after its release; it is reclaimed and released once more");
                        let effect = Effect::Reclaim { key: self.journal.key.clone(), machine: id.clone() };
                        self.journal.seen_on(id);
                        let journal = self.journal.sending(Write::Allocate, self.now);
                        wait(reasons::MACHINE_RELEASING, message, 2).writing(journal).doing(effect)
                    }
                    Some(Power::Unknown) | None => kept(
                        reasons::MACHINE_RELEASE_FAILED,
                        format!(
                            "{id} is released, but its power state is unknown; check its power settings in MAAS, or \
                             make sure that it is off and abandon it with the annotation {ABANDON_ANNOTATION}: {id}"
                        ),
                    ),
                }
            }
            State::Releasing | State::DiskErasing => {
                wait(reasons::MACHINE_RELEASING, format!("{id} is {} in MAAS", metal.state_name), 20)
                    .writing(self.journal)
            }
            _ => self.not_ours(metal, user),
        }
    }

    /// Somebody has it, and it carries neither our idempotency key nor our stamp.
    pub(super) fn not_ours(self, metal: &maas::Machine, user: &str) -> Step {
        let id = &metal.id;
        let unclaimed = metal.stamp.is_none() && !self.observed.held_elsewhere.machines.contains(id);
        if self.journal.is_adopted() && unclaimed && metal.owner.as_deref() == Some(user) {
            let effect = Effect::Stamp { key: self.journal.key.clone(), machine: id.clone() };
            return wait(reasons::DELETING, format!("{id} is being adopted"), 1).doing(effect);
        }
        if may_belong_to_earlier_user(&self.journal, metal) && unclaimed {
            return kept(
                reasons::NOT_OUR_MACHINE,
                format!(
                    "{id} belongs to {} in MAAS and carries no stamp, so it is unknown whether it was ours under an \
                     earlier user; release it in MAAS, or abandon it with the annotation {ABANDON_ANNOTATION}: {id}",
                    metal.owner.as_deref().unwrap_or_default()
                ),
            );
        }
        // Released, free for a moment, and taken by another object of the same user: otherwise our key would still be on it.
        let taken =
            matches!(metal.state, State::Allocated | State::Deploying | State::Deployed | State::FailedDeployment);
        let of_another = (self.journal.is_released(id) && taken)
            || self.observed.whose(&self.journal, metal) == Whose::AnotherObjects
            || metal.stamp.as_ref().is_some_and(|stamp| *stamp != self.journal.key)
            || metal.owner.as_deref().is_some_and(|owner| owner != user);
        if of_another {
            return done(&format!("{id} is somebody else's now")).telling(
                true,
                reasons::NOT_OUR_MACHINE,
                format!("{id} is somebody else's now; nothing was released"),
            );
        }
        kept(
            reasons::NOT_OUR_MACHINE,
            format!(
                "{id} is {} in MAAS and carries neither our key nor our stamp; release it by hand, or abandon it with \
                 the annotation {ABANDON_ANNOTATION}: {id}",
                metal.state_name
            ),
        )
    }
}

/// Whether MAAS need not be queried again for machines under our idempotency key: it was queried before the release was sent,
/// nothing can have been added since, and the one machine is seen by its ID while it is being released.
pub fn is_sent_back(journal: &Journal, in_journal: &Lookup<maas::Machine>) -> bool {
    let Lookup::Found(metal) = in_journal else { return false };
    journal.vm.is_none()
        && !journal.awaits_more_than(metal)
        && journal.surplus.is_empty()
        && journal.has_machine(&metal.id)
        && journal.is_released(&metal.id)
        && metal.state.is_leaving()
}

/// Whether an owner other than us proves nothing: the machine was adopted before it was stamped, or its release failed, and our
/// MAAS user may have changed since (S5).
pub(super) fn may_belong_to_earlier_user(journal: &Journal, metal: &maas::Machine) -> bool {
    let failed = matches!(metal.state, State::ReleasingFailed | State::FailedDiskErasing);
    let released = journal.is_released(&metal.id);
    metal.stamp.is_none() && metal.owner.is_some() && (journal.is_adopted() && !released || released && failed)
}
