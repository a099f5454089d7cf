//! A machine that should exist.

use capmaas_api::names::{HOST_EVACUATION_FINALIZER, MACHINE_FINALIZER, VM_NAME_ANNOTATION};
use capmaas_api::provider_id::ProviderId;
use capmaas_api::{Severity, reasons};
use jiff::{SignedDuration, Timestamp};

use super::decide::{Step, after, is_elsewhere, left_alone, unknown, unseen, waiting};
use super::journal::{Failure, Journal, Write};
use super::kind::with_change;
use super::preparing::DEPLOY_POWER;
use super::status::Progress;
use super::vm_journal::{VmJournal, VmStage};
use super::{Access, Format, Observed, SpecPatch, stuck, surplus, wanted};
use crate::Lookup;
use crate::intent::{self, FixedAddress, Intent, Wipe};
use crate::links::DesiredLinks;
use crate::maas::{self, Power, State};
use crate::plan::Requeue;

/// At most this many machines are tried for one object (S17).
pub(super) const ATTEMPTS: usize = 3;
/// An image that fails on this many machines is itself to blame (S17).
const IMAGE_FAILURES: usize = 2;

/// How often surplus machines are checked until they are gone.
const SURPLUS_POLL: Requeue = Requeue::seconds(30);

/// How often missing bootstrap data that a Machine names is looked up.
const BOOTSTRAP_DATA: Requeue = Requeue::seconds(15);

/// MAAS usually knows a VM this long after it got its place; after that its host is queried.
const MAKING: SignedDuration = SignedDuration::from_mins(5);

/// The context of every provisioning step.
pub(super) struct Provisioning<'a> {
    pub(super) observed: &'a Observed,
    pub(super) journal: Journal,
    pub(super) intent: Intent,
    pub(super) provisioned: bool,
    pub(super) now: Timestamp,
}

pub(super) fn step(observed: &Observed, now: Timestamp) -> Step {
    if let Lookup::Unknown(why) = &observed.machine {
        return unknown(reasons::WAITING_FOR_OWNER, why);
    }
    let journal = match &observed.journal {
        Ok(journal) => journal.clone().map(|journal| journal.without_future(now)),
        Err(why) => return left_alone(reasons::UNREADABLE_SPEC, why),
    };
    if matches!(observed.machine, Lookup::Absent) && journal.is_none() {
        return waiting(reasons::WAITING_FOR_OWNER, "no Machine owns the object yet");
    }
    let intent = match wanted(&observed.object, journal.as_ref()) {
        Ok(wanted) => wanted.intent,
        Err(problem) => return left_alone(problem.reason, problem.message),
    };
    let status = observed.object.status.as_ref();
    let latched = status.and_then(|status| status.initialization.as_ref()).and_then(|it| it.provisioned) == Some(true);
    let provisioned = latched || observed.object.spec.provider_id().is_some();
    let Some(journal) = journal else { return begin(observed, intent, now) };
    let mut step = Provisioning { observed, journal, intent, provisioned, now }.step();
    step.progress.message = with_change(observed, &step.progress.message);
    step
}

/// The first journal of a machine that may be requested now: MAAS has to be queried first for what it holds under its idempotency
/// key.
pub fn first_journal(observed: &Observed) -> Option<Journal> {
    let metadata = &observed.object.metadata;
    let begins = metadata.deletion_timestamp.is_none()
        && observed.object.spec.provider_id().is_none()
        && matches!(observed.machine, Lookup::Found(_))
        && matches!(observed.journal, Ok(None));
    let intent = intent::resolve(&observed.object.spec, false).ok()?;
    let metal = matches!(intent, Intent::Metal(_));
    let comes_first = prerequisites(observed, &intent);
    (begins && metal && comes_first.is_none()).then(|| Journal::new(metadata.uid.as_deref().unwrap_or_default()))
}

/// The first step: wait for the prerequisites, then choose the idempotency key. It is stored before anything is requested under
/// it (S3); for bare metal together with the allocation in flight.
fn begin(observed: &Observed, intent: Intent, now: Timestamp) -> Step {
    let metadata = &observed.object.metadata;
    let (name, uid) = (metadata.name.as_deref().unwrap_or_default(), metadata.uid.as_deref().unwrap_or_default());
    let mut journal = Journal::new(uid);
    let spec = &observed.object.spec;
    if let Some(provider_id) = spec.provider_id() {
        // From the Go provider: it wrote the ID when it allocated the machine, and left no stamp (S24).
        let id = provider_id.parse::<ProviderId>().ok().and_then(|id| id.system_id().map(str::to_owned));
        let Some(id) = id.or_else(|| spec.system_id().map(str::to_owned)) else {
            let message = format!("spec.providerID {provider_id:?} names no machine that could be looked up");
            return left_alone(reasons::MACHINE_NOT_FOUND, message);
        };
        journal.allocation_of(&id).adopted = true;
        return Step::say(kept(observed, "the machine is being adopted"), after(0)).writing(journal);
    }
    if let Some(step) = prerequisites(observed, &intent) {
        return step;
    }
    if let Access::Denied { reason, message } = &observed.access {
        return unknown(reason, message);
    }
    if !matches!(intent, Intent::Vm(_)) {
        return Provisioning { observed, journal, intent, provisioned: false, now }.step();
    }
    let begun = metadata.annotations.as_ref().and_then(|map| map.get(VM_NAME_ANNOTATION));
    journal.vm = Some(match begun.filter(|name| !name.is_empty()) {
        Some(begun) => VmJournal::named(begun, name, uid),
        None => VmJournal::new(name, uid),
    });
    let progress = Progress::not_yet(Severity::Info, reasons::MACHINE_ALLOCATING, "a machine is going to be requested");
    Step::say(progress, after(0)).writing(journal)
}

/// The condition of an adopted machine stays until the machine has been seen.
pub(super) fn kept(observed: &Observed, message: &str) -> Progress {
    let ready = observed.object.status.as_ref().is_some_and(|status| status.ready);
    if ready { Progress::deployed() } else { Progress::unknown(reasons::MACHINE_DEPLOYING, message) }
}

/// The cluster's infrastructure and the bootstrap data come before any machine.
pub(super) fn prerequisites(observed: &Observed, intent: &Intent) -> Option<Step> {
    let image = intent.image();
    if intent.address() == Some(&FixedAddress::Awaited) {
        let problem = FixedAddress::awaited();
        return Some(waiting(problem.reason, problem.message));
    }
    match &observed.cluster {
        Lookup::Found(cluster) if cluster.infrastructure_ready() => {}
        Lookup::Found(_) => {
            return Some(waiting(reasons::WAITING_FOR_CLUSTER_INFRASTRUCTURE, "the MaasCluster is not ready yet"));
        }
        Lookup::Absent => {
            return Some(waiting(reasons::WAITING_FOR_CLUSTER_INFRASTRUCTURE, "the Cluster does not exist"));
        }
        Lookup::Unknown(why) => return Some(unknown(reasons::WAITING_FOR_CLUSTER_INFRASTRUCTURE, why)),
    }
    match &observed.bootstrap {
        Lookup::Found(Format::CloudConfig { .. }) => None,
        Lookup::Found(Format::Ignition) if takes_ignition(image) => None,
        Lookup::Found(Format::Ignition) => Some(left_alone(
            reasons::MACHINE_DEPLOY_FAILED,
            format!(
                "the bootstrap data is for Ignition, and the image {image} does not read it; set format: cloud-config in \
                 the bootstrap configuration, or use a Flatcar or CoreOS image"
            ),
        )),
        Lookup::Found(Format::Other(word)) => Some(left_alone(
            reasons::MACHINE_DEPLOY_FAILED,
            format!("the bootstrap data has the format {word:?}, which is not supported; use cloud-config"),
        )),
        Lookup::Absent => Some(without_bootstrap_data(observed)),
        Lookup::Unknown(why) => Some(unknown(reasons::WAITING_FOR_BOOTSTRAP_DATA, why)),
    }
}

/// If the Machine names no Secret yet, its change triggers the next pass. Secrets are not watched, so one that is named and
/// missing, or lacks its value, is polled.
fn without_bootstrap_data(observed: &Observed) -> Step {
    let reason = reasons::WAITING_FOR_BOOTSTRAP_DATA;
    let named = match &observed.machine {
        Lookup::Found(machine) => machine.bootstrap_secret(),
        Lookup::Absent | Lookup::Unknown(_) => None,
    };
    let Some(name) = named else {
        return waiting(reason, "the bootstrap provider has not created the bootstrap data yet");
    };
    let message = format!("the Secret {name} with the bootstrap data does not exist yet, or has no key \"value\"");
    Step::say(Progress::not_yet(Severity::Info, reason, message), BOOTSTRAP_DATA)
}

/// Whether an image uses Ignition rather than cloud-init.
pub fn takes_ignition(image: &str) -> bool {
    let image = image.to_lowercase();
    ["flatcar", "coreos", "fcos", "rhcos", "scos"].iter().any(|name| image.contains(name))
}

/// Whether the power driver must be queried before the decision: it costs MAAS a call to the BMC.
pub fn asks_power(observed: &Observed, journal: &Journal, metal: &maas::Machine, now: Timestamp) -> bool {
    let deleting = observed.object.metadata.deletion_timestamp.is_some();
    match metal.state {
        // Also shows whether its host is alive (S16).
        state if metal.is_vm() && state.is_releasable() && (deleting || journal.is_to_go(&metal.id)) => true,
        State::Deployed => !deleting && (metal.power != Power::On || observed.is_silent()),
        State::Deploying => {
            let began = journal.allocation.as_ref().and_then(|it| it.deploy_began).unwrap_or(now);
            !deleting && metal.power != Power::On && now.duration_since(began) >= DEPLOY_POWER
        }
        // A VM is only removed while its host answers. One that takes long to appear may be on a host that died.
        state if metal.is_vm() && state.is_removable() => {
            let on_its_way = state.is_being_commissioned() && metal.power != Power::On;
            deleting || journal.is_to_go(&metal.id) || on_its_way && is_long_in_the_making(journal, now)
        }
        State::Releasing | State::DiskErasing => stuck::is_overdue(journal, now),
        State::Ready | State::New => journal.is_released(&metal.id),
        _ => false,
    }
}

/// Whether MAAS usually knows a VM by now.
fn is_long_in_the_making(journal: &Journal, now: Timestamp) -> bool {
    journal.place().is_some_and(|place| now.duration_since(place.at) >= MAKING)
}

impl Provisioning<'_> {
    /// Surplus machines are handled along the way (S4); they block nothing.
    fn step(mut self) -> Step {
        let mut followed = surplus::follow(self.observed, &mut self.journal, self.now);
        let free = !self.journal.in_flight.as_ref().is_some_and(|sent| sent.may_still_land(self.now));
        let journal = self.journal.clone();
        let free = free && matches!(self.observed.access, Access::Granted { .. });
        let mut step = match followed.step.take().filter(|_| free) {
            Some(step) => step,
            None => self.go_on(),
        };
        let unchanged =
            step.journal.as_ref().is_none_or(|after| *after == journal) && step.spec == SpecPatch::default();
        let idle = unchanged && step.effect.is_none() && step.requeue != Requeue::NOW;
        if let Some(trying) = followed.try_out.take().filter(|_| free && idle) {
            step = trying;
        }
        step.events.extend(followed.events);
        // Finished surplus machines leave the journal even if nothing else is to be stored.
        step.journal.get_or_insert(journal);
        if followed.awaited.is_some() {
            step.requeue = step.requeue.min(SURPLUS_POLL);
        }
        step
    }

    fn go_on(mut self) -> Step {
        let Access::Granted { user, identity_changed, .. } = &self.observed.access else {
            let Access::Denied { reason, message } = &self.observed.access else {
                return unseen("MAAS was not queried");
            };
            return unknown(reason, message);
        };
        let Some(id) = self.journal.machine().cloned() else {
            return if self.is_vm() { self.find_vm(*identity_changed) } else { self.find(*identity_changed) };
        };
        let metal = match &self.observed.in_journal {
            Lookup::Found(metal) if metal.id == id => metal,
            Lookup::Absent if *identity_changed => {
                return unseen("the MAAS identity changed, so the machine may still exist (S5)");
            }
            Lookup::Absent => return self.gone(&id),
            Lookup::Unknown(why) => return unseen(why),
            Lookup::Found(_) => return unseen("MAAS answered with another machine"),
        };
        let ours = self.observed.is_ours(&self.journal, metal);
        if !ours && is_elsewhere(self.observed) {
            return unseen("the MAAS endpoint changed, so the machine with this ID there may be another one (S5)");
        }
        let shown: &[&maas::Machine] = if ours { &[metal] } else { &[] };
        self.journal.note_what_landed(self.observed, shown);
        if self.is_vm() && !self.provisioned {
            let user = user.clone();
            return self.becoming_vm(metal, &user);
        }
        if !ours {
            let user = user.clone();
            return self.not_ours(metal, &user);
        }
        if let Some(step) = self.in_flight() {
            return step;
        }
        if self.provisioned { self.running(metal) } else { self.becoming(metal) }
    }

    /// Nothing is requested without a finalizer. It is added together with the journal, before the effect, but only on an object
    /// that a Machine owns.
    pub(super) fn cannot_be_held(&self) -> Option<Step> {
        let mut finalizers = self.observed.object.metadata.finalizers.iter().flatten();
        let held = finalizers.any(|name| name == MACHINE_FINALIZER || name == HOST_EVACUATION_FINALIZER);
        let owned = matches!(self.observed.machine, Lookup::Found(_));
        (!held && !owned).then(|| waiting(reasons::WAITING_FOR_OWNER, "no Machine owns the object any more"))
    }

    /// A write whose answer was lost: until it can no longer land, nothing else is sent (S2).
    pub(super) fn in_flight(&mut self) -> Option<Step> {
        let sent = self.journal.in_flight.clone()?;
        if sent.may_still_land(self.now) {
            let what = match sent.write {
                Write::Allocate => "allocation",
                Write::Deploy => "deployment",
                Write::Release => "release",
                Write::Compose => "creation of the VM",
            };
            let message = format!("waiting for MAAS's answer to the {what}");
            let progress = if self.provisioned {
                kept(self.observed, &message)
            } else {
                Progress::not_yet(Severity::Info, reasons::MACHINE_ALLOCATING, message)
            };
            return Some(Step::say(progress, after(10)));
        }
        self.journal.in_flight = None;
        if let (Write::Compose, Some(vm)) = (sent.write, &mut self.journal.vm)
            && let VmStage::Placed(_) = vm.stage
        {
            vm.stage.become_at(VmStage::Unanswered);
        }
        None
    }

    /// Whether enough machines were tried (S17). Those that others hold do not count as failed, but no more of them are taken
    /// than of those.
    pub(super) fn exhausted(&self, held: &[&maas::Machine]) -> Option<Step> {
        let failed = &self.journal.failed;
        let by_image = failed.iter().filter(|failure| !failure.power && failure.image == self.intent.image()).count();
        let names = listed(failed);
        if by_image >= IMAGE_FAILURES {
            let message = format!(
                "the image {} failed on {names}; check it in MAAS, then roll out a new template",
                self.intent.image()
            );
            let progress = Progress::not_yet(Severity::Error, reasons::IMAGE_SUSPECTED, message).terminal();
            return Some(Step::say(progress, Requeue::OnChange).writing(self.journal.clone()));
        }
        if failed.len() >= ATTEMPTS {
            let message = format!(
                "{ATTEMPTS} attempts were made and no machine could be used ({names}); check them in MAAS, then \
                 delete the Machine to start over"
            );
            let progress = Progress::not_yet(Severity::Error, reasons::ATTEMPTS_EXHAUSTED, message).terminal();
            return Some(Step::say(progress, Requeue::OnChange).writing(self.journal.clone()));
        }
        if failed.len() + held.len() >= ATTEMPTS {
            // Not final: anybody who may write a MaasMachine can claim a free machine, and give it up again.
            let ids: Vec<&str> = held.iter().map(|metal| metal.id.as_str()).collect();
            let message = format!(
                "MAAS allocated {}, which other MaasMachines hold; they are kept as they are, and no further machine is \
                 requested until those let go; check them in MAAS",
                ids.join(", ")
            );
            let progress = Progress::not_yet(Severity::Warning, reasons::NOT_OUR_MACHINE, message);
            return Some(Step::say(progress, after(60)).writing(self.journal.clone()));
        }
        None
    }

    /// MAAS reports that the machine in the journal does not exist.
    fn gone(self, id: &str) -> Step {
        if self.provisioned {
            let message = format!("MAAS does not know {id} any more; delete the Machine to get another one");
            return left_alone(reasons::MACHINE_NOT_FOUND, message);
        }
        if self.is_vm() {
            return self.gone_vm(id);
        }
        self.begin_anew(&format!("{id} is gone from MAAS; requesting another machine"))
    }

    pub(super) fn is_vm(&self) -> bool {
        matches!(self.intent, Intent::Vm(_))
    }

    /// Whether it failed or was released, so that it only has to be disposed of.
    pub(super) fn is_to_go(&self, id: &str) -> bool {
        self.journal.is_to_go(id)
    }

    pub(super) fn begin_anew(mut self, why: &str) -> Step {
        self.journal = self.journal.without_machine();
        let progress = Progress::not_yet(Severity::Warning, reasons::MACHINE_ALLOCATING, why);
        Step::say(progress, after(0)).writing(self.journal)
    }
}

/// The machines that failed, each once.
fn listed(failed: &[Failure]) -> String {
    let mut names: Vec<String> = Vec::new();
    for (index, failure) in failed.iter().enumerate() {
        let id = &failure.machine;
        let times = failed.iter().filter(|other| other.machine == *id).count();
        if failed.iter().take(index).any(|other| other.machine == *id) {
            continue;
        }
        names.push(if times > 1 { format!("{id}, which MAAS allocated {times} times") } else { id.clone() });
    }
    names.join(", ")
}

/// A machine in an unexpected state is left alone (S8).
pub(super) fn unplanned(metal: &maas::Machine) -> Step {
    let shown = metal.state_shown();
    let message = format!("{} is {shown}; it is left alone, bring it back or delete the Machine", metal.id);
    left_alone(reasons::MACHINE_STATE_UNDEFINED, message)
}

impl Intent {
    /// The image, as MAAS expects it.
    pub(super) fn image(&self) -> &str {
        match self {
            Self::Metal(metal) => &metal.image,
            Self::Vm(vm) => &vm.image,
        }
    }

    /// The requested fixed address.
    pub(super) fn address(&self) -> Option<&FixedAddress> {
        match self {
            Self::Metal(metal) => metal.address.as_ref(),
            Self::Vm(vm) => vm.address.as_ref(),
        }
    }

    /// The requested link configuration of the machine's interfaces.
    pub fn links(&self) -> DesiredLinks<'_> {
        match self {
            Self::Metal(metal) => DesiredLinks { address: metal.address.as_ref(), nics: &[] },
            Self::Vm(vm) => DesiredLinks { address: vm.address.as_ref(), nics: &vm.nics },
        }
    }

    /// How the disks are wiped on release.
    pub(super) fn erase(&self) -> Option<Wipe> {
        match self {
            Self::Metal(metal) => metal.erase,
            Self::Vm(vm) => vm.erase,
        }
    }
}
