//! The life of a VM that should exist: it gets a place, is created there, is allocated before anybody else does so, and is
//! replaced if it fails.

use capmaas_api::lxd_error::{LxdError, LxdErrorKind};
use capmaas_api::{Severity, reasons};
use jiff::SignedDuration;

use super::decide::{Step, after, left_alone, unknown, unseen};
use super::effect::Effect;
use super::journal::{Failure, Write};
use super::provisioning::{Provisioning, prerequisites, unplanned};
use super::status::Progress;
use super::vm_journal::{Place, VmJournal, VmNic, VmStage, is_made_up};
use super::{Access, dead_host, stuck};
use crate::Lookup;
use crate::conditions::whole_seconds;
use crate::intent::{Intent, Wipe};
use crate::maas::{self, Power, State};
use crate::placement::{Choice, Placement};
use crate::plan::Requeue;

/// Retry interval in seconds for what is not available now (document 004).
const RETRY: u64 = 30;
/// If the agent of a host has not seen a VM this long after it got its place, the agent does not run any more.
const AGENT_LOOKS: SignedDuration = SignedDuration::from_mins(10);
/// A VM that is not Ready this long after it got its place never will be. MAAS itself gives commissioning up after 20 minutes.
const READY_DEADLINE: SignedDuration = SignedDuration::from_mins(45);

/// A step that reports what is wrong with the VM or its host, as one of the six error kinds.
pub(super) fn trouble(error: LxdError) -> Step {
    let severity = if error.kind.is_retryable() { Severity::Warning } else { Severity::Error };
    let progress = Progress::not_yet(severity, error.kind.reason(), error.to_string());
    Step::say(progress, after(RETRY)).failing(error)
}

fn creating(message: impl Into<String>, requeue: Requeue) -> Step {
    Step::say(Progress::not_yet(Severity::Info, reasons::VM_CREATING, message), requeue)
}

impl Provisioning<'_> {
    /// No VM is in the journal: see what MAAS holds under our idempotency key and under its name, then choose a place, then
    /// create it there.
    pub(super) fn find_vm(mut self, identity_changed: bool) -> Step {
        let Some(vm) = self.journal.vm.clone() else {
            let metadata = &self.observed.object.metadata;
            let (name, uid) =
                (metadata.name.as_deref().unwrap_or_default(), metadata.uid.as_deref().unwrap_or_default());
            self.journal.vm = Some(VmJournal::new(name, uid));
            return creating("choosing a name for the VM", after(0)).writing(self.journal);
        };
        let (by_key, by_name) = match (&self.observed.by_key, &self.observed.vm.by_name) {
            (Lookup::Unknown(why), _) | (_, Lookup::Unknown(why)) => return unseen(why),
            (by_key, by_name) => (listed(by_key), listed(by_name)),
        };
        if let Some(message) = self.observed.contested(&self.journal) {
            return left_alone(reasons::NOT_OUR_MACHINE, message);
        }
        let free = |metal: &&maas::Machine| {
            !self.observed.is_held_by_another(&self.journal, metal) && !self.journal.owed.contains(&metal.id)
        };
        let made = by_name
            .iter()
            .filter(|metal| metal.is_made_for(&vm, &self.journal.key) || self.is_go_providers(metal, &vm));
        let ours = by_key.iter().filter(|metal| self.observed.is_ours(&self.journal, metal));
        if let Some(metal) = ours.filter(free).chain(made.filter(free)).min_by_key(|metal| &metal.id) {
            return self.adopt_vm(&metal.clone());
        }
        if self.provisioned {
            let message = "the VM of this object is not known any more; delete the Machine to get another one";
            return left_alone(reasons::MACHINE_NOT_FOUND, message);
        }
        if let Some(step) = self.in_flight() {
            return step;
        }
        let vm = self.journal.vm.clone().unwrap_or(vm);
        if identity_changed {
            let message =
                "the MAAS endpoint or user changed; no VM is created until a machine of the cluster has been seen";
            return unknown(reasons::IDENTITY_CHANGED, message);
        }
        if !by_name.is_empty() {
            let message = format!("MAAS has another machine named {}; the VM gets another name", vm.name);
            let told = message.clone();
            let journal = self.journal.without_vm();
            return creating(message, after(0)).writing(journal).telling(true, reasons::NOT_OUR_MACHINE, told);
        }
        if let Some(step) = self.exhausted(&[]) {
            return step;
        }
        if let Some(step) = prerequisites(self.observed, &self.intent) {
            return step.writing(self.journal);
        }
        if let Some(step) = self.cannot_be_held() {
            return step.writing(self.journal);
        }
        match &vm.stage {
            VmStage::Unplaced => self.choose(&vm),
            VmStage::OnlyInLxd(place) => self.adopt_orphan(&vm, place),
            VmStage::Placed(place) | VmStage::Unanswered(place) => self.compose(&vm, place),
        }
    }

    /// The VM that the Go provider was creating under the name in its annotation, and has allocated already. Anybody can write
    /// such an annotation, so only a VM that our user owns and nobody has stamped counts (S24).
    fn is_go_providers(&self, metal: &maas::Machine, vm: &VmJournal) -> bool {
        let Access::Granted { user, .. } = &self.observed.access else { return false };
        let taken = metal.owner.as_ref() == Some(user) && metal.stamp.is_none() && metal.state == State::Allocated;
        metal.is_vm() && taken && metal.hostname == vm.name && !is_made_up(&vm.name, &self.journal.key)
    }

    /// MAAS has the VM: the answer was lost, or we crashed.
    fn adopt_vm(mut self, metal: &maas::Machine) -> Step {
        let adopted = self.journal.vm.as_ref().is_some_and(|vm| self.is_go_providers(metal, vm));
        self.journal.allocation_of(&metal.id).adopted = adopted;
        self.journal.note_what_landed(self.observed, &[]);
        if let Some(vm) = &mut self.journal.vm {
            vm.stage.become_at(VmStage::Placed);
        }
        let message = format!("the VM {} ({}) is in MAAS", metal.hostname, metal.id);
        creating(message.clone(), after(0)).writing(self.journal).telling(false, reasons::VM_CREATED, message)
    }

    /// Chooses a place: recorded before anything is created, so that other placements account for it (S3).
    fn choose(mut self, vm: &VmJournal) -> Step {
        let placement = match &self.observed.vm.placement {
            Lookup::Found(placement) => placement,
            Lookup::Unknown(why) => return unseen(why),
            Lookup::Absent => return unseen("LXD hosts were not looked up"),
        };
        match &placement.choice {
            Ok(choice) => {
                let place = self.place(choice);
                self.journal.vm = Some(VmJournal { stage: VmStage::Placed(place), ..vm.clone() });
                creating(format!("{} is going to be created on {}", vm.name, choice.name), after(0))
                    .writing(self.journal)
                    .explaining(placement.sentence())
                    .telling(false, reasons::HOST_SELECTED, placement.full())
            }
            Err(error) => {
                let news = self.is_news(placement);
                let step = trouble(error.clone()).explaining(placement.sentence()).writing(self.journal);
                if news { step.telling(true, error.kind.reason(), placement.full()) } else { step }
            }
        }
    }

    /// Whether the refusal was not reported before: the condition has the same text as long as nothing has changed.
    fn is_news(&self, placement: &Placement) -> bool {
        let conditions = self.observed.object.status.iter().flat_map(|status| &status.conditions);
        let mut selected = conditions.filter(|condition| condition.type_ == capmaas_api::conditions::LXD_HOST_SELECTED);
        !selected.any(|condition| {
            condition.message.as_deref().is_some_and(|message| message.contains(&placement.sentence()))
        })
    }

    fn place(&self, choice: &Choice) -> Place {
        let (cores, memory, disk) = match &self.intent {
            Intent::Vm(vm) => (vm.cores, vm.memory, vm.disk),
            Intent::Metal(_) => (0, 0, 0),
        };
        Place {
            host: choice.host,
            host_name: choice.name.clone(),
            project: choice.project.clone(),
            zone: choice.zone.as_ref().map(|zone| zone.name.clone()).unwrap_or_default(),
            zone_id: choice.zone.as_ref().map(|zone| zone.id),
            storage_pool: Some(choice.storage_pool.clone()).filter(|pool| !pool.is_empty()),
            nics: choice
                .interfaces
                .iter()
                .map(|nic| VmNic { name: nic.name.clone(), subnet: nic.subnet.clone() })
                .collect(),
            cores,
            memory,
            disk,
            at: whole_seconds(self.now),
        }
    }

    /// The host is checked once more, then the VM is created.
    fn compose(mut self, vm: &VmJournal, place: &Place) -> Step {
        let mut place = place.clone();
        match &self.observed.vm.host {
            Lookup::Found(host) => {
                place.project = place.project.or_else(|| host.project.clone());
                if let Err(why) = &host.usable {
                    let why = why.clone();
                    return self.elsewhere(LxdErrorKind::HostUnavailable, &why);
                }
            }
            Lookup::Absent => return self.elsewhere(LxdErrorKind::HostUnavailable, "it is gone from MAAS"),
            Lookup::Unknown(why) => return unseen(why),
        }
        let message = format!("{} is being created on {}", vm.name, place.host_name);
        let mut vm = vm.clone();
        vm.stage.place_mut().into_iter().for_each(|stored| stored.clone_from(&place));
        let effect = Effect::Compose { name: vm.name.clone(), place };
        self.journal.vm = Some(vm);
        creating(message, after(0)).writing(self.journal.sending(Write::Compose, self.now)).doing(effect)
    }

    /// LXD has a VM of our name that MAAS does not know: created before MAAS crashed. A refresh brings it back, and harms every
    /// other VM that MAAS does not know; so it is only done where there is none (S12).
    fn adopt_orphan(self, vm: &VmJournal, place: &Place) -> Step {
        let others_known = match &self.observed.vm.host {
            Lookup::Found(host) => &host.others_known,
            Lookup::Absent => return self.elsewhere(LxdErrorKind::HostUnavailable, "it is gone from MAAS"),
            Lookup::Unknown(why) => return unseen(why),
        };
        if *others_known == Lookup::Found(true) {
            let message = format!("{} is already in LXD on {}; MAAS refreshes the host", vm.name, place.host_name);
            return creating(message, after(5)).writing(self.journal).doing(Effect::RefreshHost { host: place.host });
        }
        // Its agent reports periodically.
        if *others_known == Lookup::Absent && self.now.duration_since(place.at) < AGENT_LOOKS {
            let message = format!(
                "{} is already in LXD on {}; waiting for its agent to report whether a refresh is safe",
                vm.name, place.host_name
            );
            return creating(message, after(RETRY)).writing(self.journal);
        }
        let why = match others_known {
            Lookup::Unknown(why) => format!("it is unknown whether a refresh would harm other VMs there ({why})"),
            Lookup::Absent => "the agent of the host does not report any more".to_owned(),
            Lookup::Found(_) => "a refresh would harm other VMs there that MAAS does not know".to_owned(),
        };
        let message = format!(
            "{} exists in LXD on {} and MAAS does not know it; {why}, so it is left alone: refresh the host or delete \
             the VM by hand",
            vm.name, place.host_name
        );
        self.elsewhere(LxdErrorKind::VmCreationFailed, &message)
    }

    /// The place is unusable: choose another one, under another name.
    fn elsewhere(mut self, kind: LxdErrorKind, why: &str) -> Step {
        let host = self.journal.place().map(|place| place.host_name.clone()).unwrap_or_default();
        let left = self
            .journal
            .vm
            .as_ref()
            .filter(|vm| matches!(vm.stage, VmStage::Unanswered(_)))
            .map(VmJournal::may_be_left);
        if let Some(vm) = &mut self.journal.vm {
            vm.avoid_host(self.now);
        }
        let error = LxdError::new(kind, format!("{host}: {why}")).on_host(host);
        let message = error.to_string();
        let step = trouble(error).writing(self.journal.without_vm()).telling(true, kind.reason(), message);
        match left {
            Some(left) => step.telling(true, reasons::VM_CREATION_FAILED, left),
            None => step,
        }
    }

    /// A VM is in the journal and was never provisioned.
    pub(super) fn becoming_vm(mut self, metal: &maas::Machine, user: &str) -> Step {
        let ours = self.observed.is_ours(&self.journal, metal);
        if let (false, Lookup::Unknown(why)) = (ours, &self.observed.by_key) {
            return unseen(why);
        }
        if let Some(step) = self.in_flight() {
            return step;
        }
        if self.is_to_go(&metal.id) {
            return self.discard(metal, ours, user);
        }
        if self.journal.is_adopted()
            && !ours
            && self.journal.vm.as_ref().is_some_and(|vm| self.is_go_providers(metal, vm))
        {
            let effect = Effect::Stamp { key: self.journal.key.clone(), machine: metal.id.clone() };
            let message = format!("{} ({}) is being adopted", metal.hostname, metal.id);
            return creating(message, after(1)).writing(self.journal).doing(effect);
        }
        if ours {
            if let Some(surplus) = self.record_surplus(&metal.id) {
                return surplus;
            }
            return match metal.state {
                State::Allocated => self.prepare(metal),
                State::Deploying => self.deploying(metal),
                State::Deployed => self.running(metal),
                State::FailedDeployment => {
                    let why = format!("the deployment of {} failed: {}", metal.id, metal.last_message);
                    self.failed(metal, metal.failed_for_power(), &why)
                }
                _ => unplanned(metal),
            };
        }
        // A user who refreshed the host owns it until it is Ready; until then it is not lost to us.
        if is_anothers(metal, user) && !metal.state.is_being_commissioned() {
            return self.stolen(metal);
        }
        match metal.state {
            State::New | State::Commissioning | State::Testing => self.awaited(metal),
            State::FailedCommissioning | State::FailedTesting => {
                let why = format!("{} is {} in MAAS: {}", metal.id, metal.state_name, metal.last_message);
                self.never_ready(metal, &why)
            }
            State::Ready => {
                let message = format!("{} ({}) is being allocated", metal.hostname, metal.id);
                let effect = Effect::Take { key: self.journal.key.clone(), machine: metal.id.clone() };
                creating(message, after(0)).writing(self.journal.sending(Write::Allocate, self.now)).doing(effect)
            }
            State::Releasing | State::DiskErasing => {
                creating(format!("{} is {} in MAAS", metal.id, metal.state_name), after(20)).writing(self.journal)
            }
            _ => unplanned(metal),
        }
    }

    /// MAAS is commissioning it.
    fn awaited(self, metal: &maas::Machine) -> Step {
        if dead_host::is_off(self.observed) {
            return self.never_ready(metal, &format!("its host is off while MAAS is commissioning {}", metal.id));
        }
        let since = self.journal.place().map(|place| self.now.duration_since(place.at)).unwrap_or_default();
        if since >= READY_DEADLINE {
            return self.never_ready(metal, &format!("{} is still {} after 45 minutes", metal.id, metal.state_name));
        }
        creating(format!("{} is {} in MAAS", metal.id, metal.state_name), after(20)).writing(self.journal)
    }

    fn never_ready(mut self, metal: &maas::Machine, why: &str) -> Step {
        self.blame(metal, true);
        let error = LxdError::new(LxdErrorKind::VmCreationFailed, why).on_host(self.host_name());
        let message = error.to_string();
        let mut step = trouble(error).writing(self.journal).telling(true, reasons::VM_CREATION_FAILED, message);
        step.requeue = after(0);
        step
    }

    /// Its deployment failed: it is removed, and another host is tried.
    pub(super) fn failed_vm(mut self, metal: &maas::Machine, power: bool, why: &str) -> Step {
        self.blame(metal, power);
        let error = LxdError::new(LxdErrorKind::VmDeploymentFailed, why).on_host(self.host_name());
        let progress = Progress::not_yet(
            Severity::Warning,
            reasons::MACHINE_DEPLOY_FAILED,
            format!("LXD VM deployment failed: {why}"),
        );
        let message = error.to_string();
        Step::say(progress, after(0)).failing(error).writing(self.journal).telling(
            true,
            reasons::VM_DEPLOYMENT_FAILED,
            message,
        )
    }

    pub(super) fn host_name(&self) -> String {
        self.journal.place().map(|place| place.host_name.clone()).unwrap_or_default()
    }

    fn blame(&mut self, metal: &maas::Machine, power: bool) {
        let image = self.intent.image().to_owned();
        self.journal.failed.push(Failure { machine: metal.id.clone(), image, power });
        if let Some(vm) = &mut self.journal.vm {
            vm.avoid_host(self.now);
        }
    }

    /// Somebody allocated it before we did. It is theirs: neither deployed nor removed (S10).
    fn stolen(mut self, metal: &maas::Machine) -> Step {
        let image = self.intent.image().to_owned();
        self.journal.failed.push(Failure { machine: metal.id.clone(), image, power: true });
        let whose = metal.owner.clone().unwrap_or_else(|| "somebody".to_owned());
        let message = format!("{whose} allocated {} ({}) before us; another VM is created", metal.hostname, metal.id);
        creating(message.clone(), after(0)).writing(self.journal.without_vm()).telling(
            true,
            reasons::NOT_OUR_MACHINE,
            message,
        )
    }

    /// A VM that is not going to be used: released, removed, and replaced.
    fn discard(mut self, metal: &maas::Machine, ours: bool, user: &str) -> Step {
        let id = &metal.id;
        if !metal.is_vm() {
            let message = format!("{id} is not a VM of any VM host in MAAS, so it is not removed; check it there");
            return left_alone(reasons::NOT_OUR_MACHINE, message);
        }
        if let Some(step) = self.left_on_dead_host(metal, ours) {
            return step;
        }
        if let Some(step) = stuck::step(self.observed, &mut self.journal, metal, self.now) {
            return step;
        }
        let progress =
            Progress::not_yet(Severity::Warning, reasons::MACHINE_DEPLOY_FAILED, format!("{id} is being removed"));
        if matches!(metal.state, State::Releasing | State::DiskErasing) {
            return Step::say(progress, after(10)).writing(self.journal);
        }
        if ours {
            if !metal.state.is_releasable() || metal.locked {
                return unplanned(metal);
            }
            // Without our stamp nothing would prove later that it is ours.
            if metal.stamp.as_ref() == Some(&self.journal.key) && !self.journal.would_be_proven(metal) {
                return self.delete(id, progress);
            }
            let journal = self.journal.releasing(metal, self.now);
            let effect = Effect::Release { machine: id.clone(), erase: Some(Wipe::Nothing) };
            return Step::say(progress, after(2)).writing(journal).doing(effect);
        }
        let claimed = self.observed.held_elsewhere.machines.contains(id);
        if is_anothers(metal, user) && !claimed && metal.state.is_being_commissioned() {
            // Somebody refreshed its host; nobody owns it again once it is commissioned.
            let message = format!("{id} is {} in MAAS; it is removed once nobody owns it", metal.state_name);
            return creating(message, after(20)).writing(self.journal);
        }
        let unproven = !self.journal.is_proven(metal);
        if is_anothers(metal, user) || claimed || unproven {
            let message = format!("{id} is somebody else's now; another VM is created");
            return creating(message, after(0)).writing(self.journal.without_vm());
        }
        if !metal.state.is_removable() || metal.locked {
            return unplanned(metal);
        }
        self.delete(id, progress)
    }

    /// A VM is removed only while its host answers.
    fn delete(self, id: &str, progress: Progress) -> Step {
        match self.observed.power {
            Some(Power::On | Power::Off) => {
                let effect = Effect::DeleteVm { machine: id.to_owned() };
                Step::say(progress, after(2)).writing(self.journal).doing(effect)
            }
            Some(Power::Unknown) | None => {
                let message = format!("{id} cannot be removed while its host does not answer; waiting for the host");
                trouble(LxdError::new(LxdErrorKind::HostUnavailable, message).on_host(self.host_name()))
                    .writing(self.journal)
            }
        }
    }

    /// MAAS does not know the VM in the journal any more. A refresh may have brought it back under its name.
    pub(super) fn gone_vm(mut self, id: &str) -> Step {
        let by_name = match &self.observed.vm.by_name {
            Lookup::Unknown(why) => return unseen(why),
            by_name => listed(by_name),
        };
        let back = self
            .journal
            .vm
            .as_ref()
            .and_then(|vm| by_name.iter().find(|metal| metal.is_made_for(vm, &self.journal.key)))
            .cloned();
        if let Some(back) = back {
            // A refresh of its host created a new machine for it.
            let to_go = self.is_to_go(id);
            self.journal.allocation_of(&back.id).released = to_go.then(|| back.id.clone());
            let message = format!("{id} came back as {}", back.id);
            return creating(message, after(0)).writing(self.journal);
        }
        let message = format!("{id} is gone from MAAS; another VM is created");
        creating(message, after(0)).writing(self.journal.without_vm())
    }
}

/// The machines of a lookup; empty if it did not succeed.
pub(super) fn listed(lookup: &Lookup<Vec<maas::Machine>>) -> &[maas::Machine] {
    match lookup {
        Lookup::Found(found) => found,
        Lookup::Absent | Lookup::Unknown(_) => &[],
    }
}

/// Somebody else has it: another user, or another object of the same user (S10). A user who composes a VM with commissioning owns
/// it until it is Ready.
pub(super) fn is_anothers(metal: &maas::Machine, user: &str) -> bool {
    match metal.owner.as_deref() {
        None => false,
        Some(owner) if owner != user => true,
        Some(_) => !metal.state.is_removable() && !matches!(metal.state, State::Releasing | State::DiskErasing),
    }
}
