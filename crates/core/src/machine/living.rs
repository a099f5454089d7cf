//! A machine that shall be there.

use capmaas_api::names::{HOST_EVACUATION_FINALIZER, MACHINE_FINALIZER};
use capmaas_api::provider_id::ProviderId;
use capmaas_api::{Severity, reasons};
use jiff::{SignedDuration, Timestamp};

use super::decide::{Step, after, left_alone, unknown, unseen, waiting};
use super::effect::{Constraints, Effect, quarantine_tags};
use super::record::{Failure, Record, TurnedOn, Write, whole_seconds};
use super::state::{Power, State};
use super::status::Said;
use super::{Eyes, Format, Metal, Observed, Requeue};
use crate::Lookup;
use crate::intent::{self, Intent};

/// A deployment that has not ended by then is taken for failed. MAAS itself gives up after 30 minutes, unless it was killed
/// in the middle: then it never does.
pub const DEPLOY_DEADLINE: SignedDuration = SignedDuration::from_mins(45);
/// A machine that is still off this long after its deployment began will not turn on by itself.
const DEPLOY_POWER: SignedDuration = SignedDuration::from_mins(2);
/// At most so many machines are tried for one object (S17).
const ATTEMPTS: usize = 3;
/// The same image failing on so many machines is to blame itself (S17).
const IMAGE_FAILURES: usize = 2;

/// What every step here needs.
pub(super) struct Life<'a> {
    pub(super) observed: &'a Observed,
    pub(super) record: Record,
    pub(super) metal: intent::Metal,
    pub(super) provisioned: bool,
    pub(super) now: Timestamp,
}

pub(super) fn step(observed: &Observed, now: Timestamp) -> Step {
    if let Lookup::Unknown(why) = &observed.machine {
        return unknown(reasons::WAITING_FOR_OWNER, why);
    }
    let record = match Record::read(observed.object.metadata.annotations.as_ref()) {
        Ok(record) => record,
        Err(why) => return left_alone(reasons::UNREADABLE_SPEC, why),
    };
    if matches!(observed.machine, Lookup::Absent) && record.is_none() {
        return waiting(reasons::WAITING_FOR_OWNER, "no Machine owns the object yet");
    }
    let on_record = record.as_ref().is_some_and(|record| record.machine.is_some());
    let metal = match intent::resolve(&observed.object.spec, on_record) {
        Ok(Intent::Metal(metal)) => metal,
        Ok(Intent::Vm(_)) => {
            let message = "this version does not make LXD VMs yet; nothing is done about the machine";
            return left_alone(reasons::VM_CREATION_FAILED, message);
        }
        Err(problem) => return left_alone(problem.reason, problem.message),
    };
    if observed.others.share_key {
        let message = "another MaasMachine carries the same record; remove its annotation from the copy";
        return left_alone(reasons::NOT_OUR_MACHINE, message);
    }
    let status = observed.object.status.as_ref();
    let latched = status.and_then(|status| status.initialization.as_ref()).and_then(|it| it.provisioned) == Some(true);
    let provisioned = latched || observed.object.spec.provider_id().is_some();
    let Some(record) = record else { return begin(observed, &metal) };
    Life { observed, record, metal, provisioned, now }.step()
}

/// The first step: wait for what must come first, then the key, before anything else (S3).
fn begin(observed: &Observed, metal: &intent::Metal) -> Step {
    let mut record = Record::new(observed.object.metadata.uid.as_deref().unwrap_or_default());
    let spec = &observed.object.spec;
    if let Some(provider_id) = spec.provider_id() {
        // The Go provider's: it wrote the ID when it allocated the machine, and no mark at all (S24).
        let id = provider_id.parse::<ProviderId>().ok().and_then(|id| id.system_id().map(str::to_owned));
        let Some(id) = id.or_else(|| spec.system_id().map(str::to_owned)) else {
            let message = format!("spec.providerID {provider_id:?} names no machine that could be looked up");
            return left_alone(reasons::MACHINE_NOT_FOUND, message);
        };
        record.machine = Some(id);
        record.adopted = true;
        return Step::say(kept(observed, "the machine is being taken over"), after(0)).recording(record);
    }
    if let Some(step) = first_things_first(observed, metal) {
        return step;
    }
    if let Eyes::Closed { reason, message } = &observed.eyes {
        return unknown(reason, message);
    }
    let said = Said::not_yet(Severity::Info, reasons::MACHINE_ALLOCATING, "a machine is going to be asked for");
    Step::say(said, after(0)).recording(record)
}

/// What was said about an adopted machine stays until it has been seen.
fn kept(observed: &Observed, message: &str) -> Said {
    let ready = observed.object.status.as_ref().is_some_and(|status| status.ready);
    if ready { Said::deployed() } else { Said::unknown(reasons::MACHINE_DEPLOYING, message) }
}

/// The cluster's infrastructure and the start-up data come before any machine.
fn first_things_first(observed: &Observed, metal: &intent::Metal) -> Option<Step> {
    match &observed.cluster {
        Lookup::Found(cluster) if cluster.infrastructure_ready() => {}
        Lookup::Found(_) => {
            return Some(waiting(reasons::WAITING_FOR_CLUSTER_INFRASTRUCTURE, "the MaasCluster is not ready yet"));
        }
        Lookup::Absent => {
            return Some(waiting(reasons::WAITING_FOR_CLUSTER_INFRASTRUCTURE, "the Cluster is not there"));
        }
        Lookup::Unknown(why) => return Some(unknown(reasons::WAITING_FOR_CLUSTER_INFRASTRUCTURE, why)),
    }
    match &observed.bootstrap {
        Lookup::Found(Format::CloudConfig) => None,
        Lookup::Found(Format::Ignition) if takes_ignition(&metal.image) => None,
        Lookup::Found(Format::Ignition) => Some(left_alone(
            reasons::MACHINE_DEPLOY_FAILED,
            format!(
                "the start-up data is for Ignition, and the image {} does not read it; set format: cloud-config in the \
                 bootstrap configuration, or use a Flatcar or CoreOS image",
                metal.image
            ),
        )),
        Lookup::Found(Format::Other(word)) => Some(left_alone(
            reasons::MACHINE_DEPLOY_FAILED,
            format!("the start-up data has the format {word:?}, which is not known here; use cloud-config"),
        )),
        Lookup::Absent => Some(waiting(
            reasons::WAITING_FOR_BOOTSTRAP_DATA,
            "the bootstrap provider has not made the start-up data yet",
        )),
        Lookup::Unknown(why) => Some(unknown(reasons::WAITING_FOR_BOOTSTRAP_DATA, why)),
    }
}

/// Whether an image is started by Ignition rather than by cloud-init.
pub fn takes_ignition(image: &str) -> bool {
    let image = image.to_lowercase();
    ["flatcar", "coreos", "fcos", "rhcos", "scos"].iter().any(|name| image.contains(name))
}

/// Whether the power driver must be asked before anything is decided: it costs MAAS a call to the BMC.
pub fn asks_power(record: &Record, metal: &Metal, deleting: bool, now: Timestamp) -> bool {
    match metal.state {
        State::Deployed => !deleting && metal.power != Power::On,
        State::Deploying => {
            let began = record.deploy_began.unwrap_or(now);
            !deleting && metal.power != Power::On && now.duration_since(began) >= DEPLOY_POWER
        }
        State::Ready | State::New => record.released.as_deref() == Some(metal.id.as_str()),
        _ => false,
    }
}

impl Life<'_> {
    fn step(mut self) -> Step {
        let Eyes::Open { user, strange, .. } = &self.observed.eyes else {
            let Eyes::Closed { reason, message } = &self.observed.eyes else { return unseen("MAAS was not asked") };
            return unknown(reason, message);
        };
        let Some(id) = self.record.machine.clone() else { return self.find(*strange) };
        let metal = match &self.observed.on_record {
            Lookup::Found(metal) if metal.id == id => metal,
            Lookup::Absent if *strange => {
                return unseen("the MAAS identity changed, so the machine may still exist (S5)");
            }
            Lookup::Absent => return self.gone(&id),
            Lookup::Unknown(why) => return unseen(why),
            Lookup::Found(_) => return unseen("MAAS answered with another machine"),
        };
        if !metal.is_ours(&self.record.key, &self.observed.by_key) {
            let user = user.clone();
            return self.not_ours(metal, &user);
        }
        if self.landed(metal) {
            self.record.in_flight = None;
        }
        if let Some(step) = self.in_flight() {
            return step;
        }
        if self.provisioned { self.running(metal) } else { self.becoming(metal) }
    }

    /// Nothing is on record: look what MAAS holds under our key, then allocate.
    fn find(mut self, strange: bool) -> Step {
        let found = match &self.observed.by_key {
            Lookup::Found(found) => found,
            Lookup::Absent => &Vec::new(),
            Lookup::Unknown(why) => return unseen(why),
        };
        // A live node of somebody else's, handed out by a MAAS that forgot (S6): neither deployed nor released, but kept.
        let (held, mut candidates): (Vec<&Metal>, Vec<&Metal>) =
            found.iter().partition(|metal| self.observed.others.machines.contains(&metal.id));
        candidates.sort_by_key(|metal| (metal.state == State::Allocated, metal.id.clone()));
        if let Some(metal) = candidates.first() {
            self.record.machine = Some(metal.id.clone());
            if self.record.in_flight.as_ref().is_some_and(|sent| sent.write == Write::Allocate) {
                self.record.in_flight = None;
            }
            let message = format!("{} ({}) is ours", metal.hostname, metal.id);
            let said = Said::not_yet(Severity::Info, reasons::MACHINE_DEPLOY_STARTED, message.clone());
            return Step::say(said, after(0)).recording(self.record).telling(false, "MachineAllocated", message);
        }
        if self.provisioned {
            let message = "the machine of this object is not known any more; delete the Machine to get another one";
            return left_alone(reasons::MACHINE_NOT_FOUND, message);
        }
        if !held.is_empty()
            && self.record.in_flight.as_ref().is_some_and(|sent| sent.write == Write::Allocate)
            && held.len() < ATTEMPTS
        {
            // The answer to what was in flight has come, even though it is of no use.
            self.record.in_flight = None;
        }
        if let Some(step) = self.in_flight() {
            return step;
        }
        if strange {
            let message =
                "the MAAS endpoint or user changed; nothing is allocated until a machine of the cluster was seen";
            return unknown(reasons::IDENTITY_CHANGED, message);
        }
        if let Some(step) = self.exhausted(held.len()) {
            return step;
        }
        if let Some(step) = first_things_first(self.observed, &self.metal) {
            return step.recording(self.record);
        }
        if !self.is_held_by_finalizer() {
            let said = Said::not_yet(Severity::Info, reasons::MACHINE_ALLOCATING, "the finalizer comes first");
            return Step::say(said, after(0)).recording(self.record);
        }
        let effect = Effect::Allocate { key: self.record.key.clone(), constraints: self.constraints() };
        let mut message = "a machine is being asked for".to_owned();
        if let Some(live) = held.first() {
            message = format!(
                "MAAS handed out {}, which another MaasMachine holds; it is kept as it is, look at it",
                live.id
            );
        }
        let said = Said::not_yet(Severity::Info, reasons::MACHINE_ALLOCATING, message);
        let record = self.record.clone().sending(Write::Allocate, self.now);
        Step::say(said, after(1)).recording(record).doing(effect)
    }

    fn is_held_by_finalizer(&self) -> bool {
        let finalizers = self.observed.object.metadata.finalizers.iter().flatten();
        finalizers.into_iter().any(|name| name == MACHINE_FINALIZER || name == HOST_EVACUATION_FINALIZER)
    }

    fn constraints(&self) -> Constraints {
        let metal = &self.metal;
        let wanted = match &self.observed.machine {
            Lookup::Found(machine) => machine.failure_domain().map(str::to_owned),
            _ => None,
        };
        Constraints {
            min_cpu: metal.min_cpu,
            min_memory: metal.min_memory,
            min_disk: metal.min_disk,
            tags: metal.tags.clone(),
            not_tags: quarantine_tags(self.now).to_vec(),
            pool: metal.pool.clone(),
            zone: wanted.or_else(|| metal.zone.clone()),
            machine: metal.pinned.clone(),
        }
    }

    /// A write whose answer was lost: until it can no longer land, nothing else is sent (S2).
    fn in_flight(&mut self) -> Option<Step> {
        let sent = self.record.in_flight.clone()?;
        if sent.may_still_land(self.now) {
            let what = match sent.write {
                Write::Allocate => "allocation",
                Write::Deploy => "deployment",
                Write::Release => "release",
            };
            let message = format!("the answer of MAAS to the {what} is awaited");
            let said = Said::not_yet(Severity::Info, reasons::MACHINE_ALLOCATING, message);
            return Some(Step::say(said, after(10)));
        }
        self.record.in_flight = None;
        None
    }

    /// Whether the write in flight shows in the machine's state.
    fn landed(&self, metal: &Metal) -> bool {
        self.record.in_flight.as_ref().is_some_and(|sent| match sent.write {
            Write::Allocate => true,
            Write::Deploy => metal.state != State::Allocated && metal.state != State::Ready,
            Write::Release => metal.state.is_leaving(),
        })
    }

    /// Enough machines were tried (S17).
    fn exhausted(&self, held: usize) -> Option<Step> {
        let failed = &self.record.failed;
        let by_image = failed.iter().filter(|failure| !failure.power && failure.image == self.metal.image).count();
        let names = failed.iter().map(|failure| failure.machine.as_str()).collect::<Vec<_>>().join(", ");
        if by_image >= IMAGE_FAILURES {
            let message = format!(
                "the image {} failed on {names}; check it in MAAS, then roll out a new template",
                self.metal.image
            );
            let said = Said::not_yet(Severity::Error, reasons::IMAGE_SUSPECTED, message).terminal();
            return Some(Step::say(said, Requeue::OnChange).recording(self.record.clone()));
        }
        if failed.len() + held >= ATTEMPTS {
            let message = format!(
                "{ATTEMPTS} machines were tried and none could be used ({names}); delete the Machine to begin anew"
            );
            let said = Said::not_yet(Severity::Error, reasons::ATTEMPTS_EXHAUSTED, message).terminal();
            return Some(Step::say(said, Requeue::OnChange).recording(self.record.clone()));
        }
        None
    }

    /// MAAS says that the machine on record does not exist.
    fn gone(self, id: &str) -> Step {
        if self.provisioned {
            let message = format!("MAAS does not know {id} any more; delete the Machine to get another one");
            return left_alone(reasons::MACHINE_NOT_FOUND, message);
        }
        self.begin_anew(&format!("{id} is gone from MAAS; another machine is asked for"))
    }

    fn begin_anew(mut self, why: &str) -> Step {
        self.record = self.record.without_machine();
        let said = Said::not_yet(Severity::Warning, reasons::MACHINE_ALLOCATING, why);
        Step::say(said, after(0)).recording(self.record)
    }

    /// The machine on record carries neither our key nor our stamp (S7).
    fn not_ours(self, metal: &Metal, user: &str) -> Step {
        let id = &metal.id;
        if let Lookup::Unknown(why) = &self.observed.by_key {
            return unseen(why);
        }
        let unclaimed = metal.stamp.is_none() && !self.observed.others.machines.contains(id);
        if self.record.adopted && unclaimed && metal.owner.as_deref() == Some(user) && !metal.state.is_leaving() {
            // The Go provider left no mark; from now on there is one. The only change that taking over makes (S24).
            let effect = Effect::Stamp { key: self.record.key.clone(), machine: id.clone() };
            let said = kept(self.observed, "the machine is being taken over");
            return Step::say(said, after(1)).doing(effect);
        }
        if self.provisioned {
            let (reason, message) = match metal.state {
                State::Ready | State::New | State::Releasing | State::DiskErasing => (
                    reasons::MACHINE_TERMINATED,
                    format!(
                        "{id} was released in MAAS behind our back; it is never deployed again, delete the Machine"
                    ),
                ),
                _ => {
                    (reasons::NOT_OUR_MACHINE, format!("{id} carries neither our key nor our stamp; it is left alone"))
                }
            };
            return left_alone(reason, message);
        }
        match (metal.state, &metal.owner) {
            (State::Releasing | State::DiskErasing, _) => {
                let said = Said::not_yet(Severity::Info, reasons::MACHINE_RELEASING, format!("{id} is being released"));
                Step::say(said, after(20))
            }
            (State::Ready | State::New, _) => {
                let still_on = self.record.released.as_ref() == Some(id) && self.observed.power == Some(Power::On);
                if still_on && self.record.in_flight.is_none() {
                    return self.reclaim(id);
                }
                self.begin_anew(&format!("{id} was released; another machine is asked for"))
            }
            (State::Allocated | State::Deploying | State::Deployed | State::FailedDeployment, _)
                if self.record.released.as_ref() == Some(id) =>
            {
                self.begin_anew(&format!("{id} was released and taken again; another machine is asked for"))
            }
            (_, Some(owner)) if owner != user => {
                self.begin_anew(&format!("{id} is {owner}'s now; another machine is asked for"))
            }
            _ => left_alone(
                reasons::NOT_OUR_MACHINE,
                format!("{id} carries neither our key nor our stamp; it is left alone"),
            ),
        }
    }

    /// Released in the first second of its deployment, a machine stays on (S14).
    fn reclaim(self, id: &str) -> Step {
        let message = format!("{id} is still on after its release; it is taken back and released once more");
        let said = Said::not_yet(Severity::Warning, reasons::MACHINE_RELEASING, message);
        let effect = Effect::Reclaim { key: self.record.key.clone(), machine: id.to_owned() };
        Step::say(said, after(1)).recording(self.record.sending(Write::Allocate, self.now)).doing(effect)
    }

    /// Ours, and never provisioned: what fails is replaced (S9).
    fn becoming(mut self, metal: &Metal) -> Step {
        let id = metal.id.clone();
        if self.record.released.as_ref() == Some(&id) || self.has_failed(&id) {
            return self.giving_back(metal);
        }
        if let Some(extra) = self.superfluous(&id) {
            return extra;
        }
        if metal.is_vm {
            self.record.failed.push(Failure { machine: id, image: self.metal.image.clone(), power: true });
            return self.giving_back(metal);
        }
        match metal.state {
            State::Allocated => self.prepare(metal),
            State::Deploying => self.deploying(metal),
            State::Deployed => self.running(metal),
            State::FailedDeployment => {
                let power = ["power", "bmc"].iter().any(|word| metal.last_words.to_lowercase().contains(word));
                self.failed(metal, power, &format!("the deployment of {} failed: {}", metal.id, metal.last_words))
            }
            _ => unplanned(metal),
        }
    }

    fn has_failed(&self, id: &str) -> bool {
        self.record.failed.iter().any(|failure| failure.machine == id)
    }

    /// Two machines under one key: the one on record stays, another is released if it was never deployed (S4).
    fn superfluous(&self, id: &str) -> Option<Step> {
        let Lookup::Found(found) = &self.observed.by_key else { return None };
        let mut others = found.iter().filter(|metal| metal.id != id);
        let extra = others
            .find(|metal| metal.state == State::Allocated && !self.observed.others.machines.contains(&metal.id))?;
        let message = format!("{} was allocated as well; it is released", extra.id);
        let said = Said::not_yet(Severity::Info, reasons::MACHINE_DEPLOY_STARTED, message);
        let effect = Effect::Release { machine: extra.id.clone(), erase: Some(intent::Wipe::Nothing) };
        let record = self.record.clone().sending(Write::Release, self.now);
        Some(Step::say(said, after(1)).recording(record).doing(effect))
    }

    /// Allocated: stamp, swap, deploy, one at a time.
    pub(super) fn prepare(self, metal: &Metal) -> Step {
        let said = Said::not_yet(
            Severity::Info,
            reasons::MACHINE_DEPLOY_STARTED,
            format!("{} ({}) is being prepared", metal.hostname, metal.id),
        );
        if metal.stamp.as_ref() != Some(&self.record.key) {
            let effect = Effect::Stamp { key: self.record.key.clone(), machine: metal.id.clone() };
            return Step::say(said, after(0)).recording(self.record).doing(effect);
        }
        // Without its data a machine would be deployed for nothing; what is allocated meanwhile stays ours.
        if let Some(step) = first_things_first(self.observed, &self.metal) {
            return step;
        }
        if !metal.swap_off && !self.record.swap_denied {
            return Step::say(said, after(0))
                .recording(self.record)
                .doing(Effect::DisableSwap { machine: metal.id.clone() });
        }
        if let Some(step) = self.bridge(metal) {
            return step;
        }
        let effect = Effect::Deploy {
            key: self.record.key.clone(),
            machine: metal.id.clone(),
            image: self.metal.image.clone(),
            in_memory: self.metal.in_memory,
        };
        let mut record = self.record.sending(Write::Deploy, self.now);
        record.deploy_began = Some(whole_seconds(self.now));
        record.turned_on = None;
        Step::say(said, after(1)).recording(record).doing(effect)
    }

    pub(super) fn deploying(mut self, metal: &Metal) -> Step {
        // Taken over in the middle: its time begins now.
        let began = *self.record.deploy_began.get_or_insert(whole_seconds(self.now));
        let since = self.now.duration_since(began);
        if since >= DEPLOY_DEADLINE {
            let off = self.observed.power != Some(Power::On) && metal.power != Power::On;
            return self.failed(metal, off, &format!("the deployment of {} has not ended within 45 minutes", metal.id));
        }
        let said = Said::not_yet(
            Severity::Info,
            reasons::MACHINE_DEPLOYING,
            format!("MAAS is deploying {} ({})", metal.hostname, metal.id),
        );
        // MAAS was killed between the two halves of a deployment: it never turns the machine on, and never gives up.
        if since >= DEPLOY_POWER && self.observed.power == Some(Power::Off) && self.record.turned_on.is_none() {
            self.record.turned_on = Some(TurnedOn { at: whole_seconds(self.now), times: 1 });
            return Step::say(said, after(30))
                .recording(self.record)
                .telling(
                    true,
                    reasons::MACHINE_POWERED_OFF,
                    format!("{} is off in the middle of its deployment; it is turned on", metal.id),
                )
                .doing(Effect::PowerOn { machine: metal.id.clone() });
        }
        Step::say(said, after(60)).recording(self.record)
    }

    /// The machine failed and was never of use: kept away from others, released, and another is tried.
    fn failed(mut self, metal: &Metal, power: bool, why: &str) -> Step {
        if self.provisioned {
            return left_alone(reasons::MACHINE_DEPLOY_FAILED, why);
        }
        let image = self.metal.image.clone();
        self.record.failed.push(Failure { machine: metal.id.clone(), image, power });
        let said = Said::not_yet(Severity::Warning, reasons::MACHINE_DEPLOY_FAILED, why);
        let effect = Effect::Quarantine { machine: metal.id.clone(), tag: quarantine_tags(self.now)[0].clone() };
        Step::say(said, after(0))
            .recording(self.record)
            .telling(true, reasons::MACHINE_DEPLOY_FAILED, why)
            .doing(effect)
    }

    /// A machine that is not going to be used: on its way back to MAAS.
    fn giving_back(self, metal: &Metal) -> Step {
        let id = &metal.id;
        let said =
            Said::not_yet(Severity::Warning, reasons::MACHINE_DEPLOY_FAILED, format!("{id} is given back to MAAS"));
        match metal.state {
            State::Releasing | State::DiskErasing => Step::say(said, after(20)).recording(self.record),
            State::Ready | State::New => self.begin_anew(&format!("{id} was released; another machine is asked for")),
            state if state.is_releasable() && !metal.locked => {
                let mut record = self.record.sending(Write::Release, self.now);
                record.released = Some(id.clone());
                let erase = self.metal.erase;
                Step::say(said, after(2)).recording(record).doing(Effect::Release { machine: id.clone(), erase })
            }
            _ => unplanned(metal),
        }
    }
}

/// A state that nobody planned for is left alone (S8).
pub(super) fn unplanned(metal: &Metal) -> Step {
    let message =
        format!("{} is {} in MAAS; it is left alone, bring it back or delete the Machine", metal.id, metal.state_name);
    left_alone(reasons::MACHINE_STATE_UNDEFINED, message)
}
