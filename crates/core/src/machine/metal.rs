//! The life of a physical machine: requested, found again, adopted, released.

use capmaas_api::{Severity, reasons};

use super::decide::{Step, after, left_alone, unknown, unseen};
use super::effect::{Constraints, Effect};
use super::journal::{Failure, Write};
use super::provisioning::{ATTEMPTS, Provisioning, kept, prerequisites, unplanned};
use super::releasing::may_belong_to_earlier_user;
use super::status::Progress;
use super::{stuck, surplus};
use crate::Lookup;
use crate::intent::Intent;
use crate::maas::{self, State};
use crate::plan::Event;

impl Provisioning<'_> {
    /// Nothing is in the journal: see what MAAS holds under our idempotency key, then allocate.
    pub(super) fn find(mut self, identity_changed: bool) -> Step {
        let found = match &self.observed.by_key {
            Lookup::Found(found) => found,
            Lookup::Absent => &Vec::new(),
            Lookup::Unknown(why) => return unseen(why),
        };
        if let Some(message) = self.observed.contested(&self.journal) {
            return left_alone(reasons::NOT_OUR_MACHINE, message);
        }
        // Not the answer to our request: anybody can write our key.
        let (found, theirs): (Vec<&maas::Machine>, Vec<&maas::Machine>) =
            found.iter().partition(|metal| self.observed.is_ours(&self.journal, metal));
        // A live node of another object, allocated to us by a MAAS that lost its state (S6): neither deployed nor released, but
        // kept.
        let (held, mut candidates): (Vec<&maas::Machine>, Vec<&maas::Machine>) =
            found.into_iter().partition(|metal| self.observed.is_held_by_another(&self.journal, metal));
        // Being released: never the answer to our request.
        candidates.retain(|metal| !self.journal.surplus.contains(&metal.id));
        let failed = |metal: &maas::Machine| self.journal.failed.iter().any(|failure| failure.machine == metal.id);
        candidates.sort_by_key(|metal| (failed(metal), metal.state == State::Allocated, metal.id.clone()));
        if let Some(metal) = candidates.first() {
            if failed(metal) {
                // Nothing kept it out of the allocation: we are no administrator, or its quarantine is over. It is released, and
                // counts as an attempt (S17).
                let image = self.intent.image().to_owned();
                self.journal.failed.push(Failure { machine: metal.id.clone(), image, power: true });
            }
            self.journal.allocation_of(&metal.id);
            self.journal.note_what_landed(self.observed, &candidates);
            return self.found(metal);
        }
        if self.provisioned {
            let message = "the machine of this object is not known any more; delete the Machine to get another one";
            return left_alone(reasons::MACHINE_NOT_FOUND, message);
        }
        let unwritten = |metal: &&&maas::Machine| !self.journal.surplus.contains(&metal.id);
        if held.iter().any(|metal| unwritten(&metal))
            && self.journal.in_flight.as_ref().is_some_and(|sent| sent.write == Write::Allocate)
            && held.len() < ATTEMPTS
        {
            // The answer to the request in flight has arrived, even though it is of no use.
            self.journal.in_flight = None;
        }
        // Nobody else releases it once the other object has let go of it. A machine with our stamp is not recorded: journal and
        // stamp together would make it ours while it still belongs to another object (S6).
        let handed_out = |metal: &&&maas::Machine| metal.stamp.is_none() && metal.state == State::Allocated;
        let surplus: Vec<String> =
            held.iter().filter(handed_out).filter(unwritten).map(|metal| metal.id.clone()).collect();
        self.journal.surplus.extend(surplus);
        if let Some(step) = self.in_flight() {
            return step;
        }
        if identity_changed {
            let message =
                "the MAAS endpoint or user changed; nothing is allocated until a machine of the cluster has been seen";
            return unknown(reasons::IDENTITY_CHANGED, message);
        }
        if let Some(step) = self.exhausted(&held) {
            return step;
        }
        if let Some(step) = prerequisites(self.observed, &self.intent) {
            return step.writing(self.journal);
        }
        if let Some(step) = self.cannot_be_held() {
            return step.writing(self.journal);
        }
        let effect = Effect::Allocate { key: self.journal.key.clone(), constraints: self.constraints() };
        let mut message = "requesting a machine".to_owned();
        if let Some(live) = held.first() {
            message = format!(
                "MAAS allocated {}, which another MaasMachine holds; it is kept as it is; check it in MAAS",
                live.id
            );
        }
        if let Some(metal) = theirs.first() {
            message = not_ours_message(metal);
        }
        let progress = Progress::not_yet(Severity::Info, reasons::MACHINE_ALLOCATING, message);
        let journal = self.journal.clone().sending(Write::Allocate, self.now);
        let mut step = Step::say(progress, after(0)).writing(journal).doing(effect);
        step.events.extend(theirs.into_iter().map(not_ours_event));
        step
    }

    /// Found under our idempotency key, and in the journal from now on. If only the stamp comes next, no further read is needed.
    fn found(self, metal: &maas::Machine) -> Step {
        let message = format!("{} ({}) is ours", metal.hostname, metal.id);
        let alone = surplus::unwritten(self.observed, &self.journal, &metal.id).is_empty();
        let fit = alone && metal.state == State::Allocated && !metal.is_vm() && !self.is_to_go(&metal.id);
        match self.stamp(metal) {
            Some(step) if fit => step,
            _ => {
                let progress = Progress::not_yet(Severity::Info, reasons::MACHINE_DEPLOY_STARTED, message);
                Step::say(progress, after(0)).writing(self.journal)
            }
        }
    }

    fn constraints(&self) -> Constraints {
        let Intent::Metal(metal) = &self.intent else { return Constraints::default() };
        let failure_domain = match &self.observed.machine {
            Lookup::Found(machine) => machine.failure_domain(),
            _ => None,
        };
        Constraints::of(metal, failure_domain, self.now)
    }

    /// The machine in the journal carries neither our key nor our stamp (S7).
    pub(super) fn not_ours(mut self, metal: &maas::Machine, user: &str) -> Step {
        let id = &metal.id;
        if let Lookup::Unknown(why) = &self.observed.by_key {
            return unseen(why);
        }
        let unclaimed = metal.stamp.is_none() && !self.observed.held_elsewhere.machines.contains(id);
        if self.journal.is_adopted() && unclaimed && metal.owner.as_deref() == Some(user) && !metal.state.is_leaving() {
            // The Go provider left no stamp; this one is the only change that adoption makes (S24).
            let effect = Effect::Stamp { key: self.journal.key.clone(), machine: id.clone() };
            let progress = kept(self.observed, "the machine is being adopted");
            return Step::say(progress, after(1)).doing(effect);
        }
        if self.provisioned {
            let (reason, message) = match metal.state {
                State::Ready | State::New | State::Releasing | State::DiskErasing => (
                    reasons::MACHINE_TERMINATED,
                    format!(
                        "{id} was released in MAAS outside of capmaas; it is never deployed again, delete the Machine"
                    ),
                ),
                _ => (reasons::NOT_OUR_MACHINE, self.observed.unmarked(id)),
            };
            return left_alone(reason, message);
        }
        match (metal.state, &metal.owner) {
            (State::Releasing | State::DiskErasing, _) => {
                if let Some(step) = stuck::step(self.observed, &mut self.journal, metal, self.now) {
                    return step;
                }
                let progress =
                    Progress::not_yet(Severity::Info, reasons::MACHINE_RELEASING, format!("{id} is being released"));
                Step::say(progress, after(20)).writing(self.journal)
            }
            (State::Ready | State::New, _) => self.back(id),
            (State::Allocated | State::Deploying | State::Deployed | State::FailedDeployment, _)
                if self.journal.is_released(id) =>
            {
                self.begin_anew(&format!("{id} was released and allocated again; requesting another machine"))
            }
            (_, Some(owner)) if owner != user && !(unclaimed && may_belong_to_earlier_user(&self.journal, metal)) => {
                self.begin_anew(&format!("{id} belongs to {owner} now; requesting another machine"))
            }
            _ => left_alone(reasons::NOT_OUR_MACHINE, self.observed.unmarked(id)),
        }
    }

    /// A machine that is released in the first second of its deployment stays on (S14).
    pub(super) fn reclaim(self, id: &str) -> Step {
        let message = format!("{id} is still on after its release; it is reclaimed and released once more");
        let progress = Progress::not_yet(Severity::Warning, reasons::MACHINE_RELEASING, message);
        let effect = Effect::Reclaim { key: self.journal.key.clone(), machine: id.to_owned() };
        Step::say(progress, after(1)).writing(self.journal.sending(Write::Allocate, self.now)).doing(effect)
    }

    /// Ours, and never provisioned: a machine that fails is replaced (S9).
    pub(super) fn becoming(mut self, metal: &maas::Machine) -> Step {
        let id = metal.id.clone();
        if self.is_to_go(&id) {
            return self.giving_back(metal);
        }
        if let Some(surplus) = self.record_surplus(&id) {
            return surplus;
        }
        if metal.is_vm() {
            self.journal.failed.push(Failure {
                machine: id.clone(),
                image: self.intent.image().to_owned(),
                power: true,
            });
            return self.giving_back(metal);
        }
        let odd = self.deployed_surplus_events(&id);
        let mut step = match metal.state {
            State::Allocated => self.prepare(metal),
            State::Deploying => self.deploying(metal),
            State::Deployed => self.running(metal),
            State::FailedDeployment => {
                let why = format!("the deployment of {} failed: {}", metal.id, metal.last_message);
                self.failed(metal, metal.failed_for_power(), &why)
            }
            _ => unplanned(metal),
        };
        step.events.extend(odd);
        step
    }

    /// Two machines under one idempotency key: the one in the journal stays, another is recorded for release if it was never
    /// deployed (S4). A deployed one is only reported.
    pub(super) fn record_surplus(&self, id: &str) -> Option<Step> {
        let unwritten = surplus::unwritten(self.observed, &self.journal, id);
        let ours = |metal: &&maas::Machine| self.observed.is_ours(&self.journal, metal);
        let surplus = unwritten.into_iter().filter(ours).find(|metal| metal.state == State::Allocated)?;
        let message = format!("{} is a surplus machine and is going to be released", surplus.id);
        let progress = Progress::not_yet(Severity::Info, reasons::MACHINE_DEPLOY_STARTED, message);
        let mut journal = self.journal.clone();
        journal.surplus.push(surplus.id.clone());
        Some(Step::say(progress, after(0)).writing(journal))
    }

    /// Events about deployed machines under our idempotency key: nobody knows who deployed them, so they are left alone (S4).
    pub(super) fn deployed_surplus_events(&self, id: &str) -> Vec<Event> {
        let unwritten = surplus::unwritten(self.observed, &self.journal, id);
        let (ours, theirs): (Vec<&maas::Machine>, Vec<&maas::Machine>) =
            unwritten.into_iter().partition(|metal| self.observed.is_ours(&self.journal, metal));
        let odd = ours.into_iter().filter(|metal| metal.state != State::Allocated && !metal.state.is_leaving());
        let deployed = |metal: &maas::Machine| {
            let (id, state) = (&metal.id, &metal.state_name);
            let message =
                format!("{id} carries our key too and is {state} in MAAS; it is left alone; check it in MAAS");
            Event::warning(reasons::NOT_OUR_MACHINE, message)
        };
        odd.map(deployed).chain(theirs.into_iter().map(not_ours_event)).collect()
    }

    /// A machine that is not going to be used is released.
    fn giving_back(mut self, metal: &maas::Machine) -> Step {
        let id = &metal.id;
        if let Some(step) = stuck::step(self.observed, &mut self.journal, metal, self.now) {
            return step;
        }
        let progress =
            Progress::not_yet(Severity::Warning, reasons::MACHINE_DEPLOY_FAILED, format!("{id} is being released"));
        match metal.state {
            State::Releasing | State::DiskErasing => Step::say(progress, after(20)).writing(self.journal),
            State::Ready | State::New => self.back(id),
            state if state.is_releasable() && !metal.locked => {
                if let Some(stamp) = self.observed.missing_stamp(&self.journal, metal) {
                    return Step::say(progress, after(0)).writing(self.journal).doing(stamp);
                }
                let journal = self.journal.releasing(metal, self.now);
                let erase = self.intent.erase();
                Step::say(progress, after(2)).writing(journal).doing(Effect::Release { machine: id.clone(), erase })
            }
            _ => unplanned(metal),
        }
    }
}

/// A machine under our idempotency key that is not ours.
fn not_ours_message(metal: &maas::Machine) -> String {
    format!(
        "{} carries our key and belongs in MAAS to {}, who was never a user of this object, or to another object; it \
         is left alone; requesting another machine",
        metal.id,
        metal.owner.as_deref().unwrap_or("nobody")
    )
}

fn not_ours_event(metal: &maas::Machine) -> Event {
    Event::warning(reasons::NOT_OUR_MACHINE, not_ours_message(metal))
}
