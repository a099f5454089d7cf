//! What the outcome of an effect means for the journal, the status and the next pass.

use capmaas_api::lxd_error::{LxdError, LxdErrorKind};
use capmaas_api::{ConditionStatus, MaasMachineStatus, Severity, conditions, reasons};
use jiff::Timestamp;

use super::journal::Journal;
use super::kind::with_change;
use super::vm_journal::{Place, VmStage};
use super::{Effect, Observed, Outcome, Plan, status, vm_status};
use crate::conditions::Verdict;
use crate::plan::{Event, Refusal, Requeue};

#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Conclusion {
    /// The journal to store; `None` if the plan's is still right.
    pub journal: Option<Journal>,
    /// The status to write instead of the plan's.
    pub status: Option<MaasMachineStatus>,
    pub requeue: Requeue,
    pub events: Vec<Event>,
}

/// Interprets the outcome of an effect, starting from the journal that was stored before it.
pub fn conclude(observed: &Observed, plan: &Plan, effect: &Effect, outcome: &Outcome, now: Timestamp) -> Conclusion {
    let stored = plan.journal().or(observed.journal()).cloned();
    let mut journal = stored.clone();
    let mut conclusion =
        Conclusion { journal: None, status: plan.status.clone(), requeue: plan.requeue, events: Vec::new() };
    match outcome {
        Outcome::Done(answered) => {
            let shown = answered.as_ref().is_some_and(|metal| effect.shows_in(metal));
            if let Some(journal) = &mut journal
                && writes(effect, shown)
            {
                journal.in_flight = None;
            }
            if let (Effect::LookAtHost { .. }, Some(note)) =
                (effect, journal.as_mut().and_then(|journal| journal.allocation.as_mut()?.leaving.as_mut()))
            {
                note.refreshed = Some(now);
            }
            conclusion.events.extend(told(effect));
        }
        Outcome::Unknown(why) => {
            conclusion.requeue = Requeue::seconds(10);
            say(&mut conclusion, observed, Severity::Warning, reasons::MAAS_UNAVAILABLE, why, now);
        }
        Outcome::Refused(refusal, why) => {
            if let Some(journal) = &mut journal {
                journal.in_flight = None;
                take_back(journal, effect, *refusal);
            }
            if let (Some(journal), Effect::Compose { place, .. }) = (&mut journal, effect) {
                conclusion.events.extend(refused_vm(journal, place, *refusal, why, now));
                if let Some(error) = lxd_error(place, *refusal, why) {
                    conclusion.requeue = Requeue::seconds(if *refusal == Refusal::Exists { 1 } else { 30 });
                    let severity = Severity::Warning;
                    say(&mut conclusion, observed, severity, error.kind.reason(), &error.to_string(), now);
                    if let Some(status) = &mut conclusion.status {
                        vm_status::put_error(status, &error, observed.object.metadata.generation, now);
                    }
                    conclusion.journal = (Some(&*journal) != stored.as_ref()).then(|| journal.clone());
                    return conclusion;
                }
            }
            let (severity, reason, seconds) = meaning(effect, *refusal);
            conclusion.requeue = Requeue::seconds(seconds);
            if !matches!((effect, refusal), (Effect::DisableSwap { .. }, Refusal::Denied)) {
                say(&mut conclusion, observed, severity, reason, why, now);
            }
        }
    }
    conclusion.journal = (journal != stored).then_some(journal).flatten();
    conclusion
}

/// Whether the answer to a write is stored on its own. Not where the machine shows the result: the next read shows it again. The
/// machine that an allocation returned is stored together with the next effect.
fn writes(effect: &Effect, shown: bool) -> bool {
    match effect {
        Effect::Deploy { .. } | Effect::Release { .. } => !shown,
        Effect::Reclaim { .. } | Effect::Take { .. } | Effect::Compose { .. } => true,
        _ => false,
    }
}

/// Which kind of failure a refused VM is; `None` if it has nothing to do with the host.
fn lxd_error(place: &Place, refusal: Refusal, why: &str) -> Option<LxdError> {
    let kind = match refusal {
        Refusal::NoRoom => LxdErrorKind::InsufficientResources,
        Refusal::HostTrouble => LxdErrorKind::HostUnavailable,
        Refusal::Exists | Refusal::HalfWay | Refusal::Invalid | Refusal::InUse => LxdErrorKind::VmCreationFailed,
        Refusal::NoMatch | Refusal::Denied | Refusal::Passing => return None,
    };
    Some(LxdError::new(kind, format!("{}: {why}", place.host_name)).on_host(place.host_name.clone()))
}

/// The host refused, so the next one is tried. If a VM of that name exists, it is looked for first.
fn refused_vm(journal: &mut Journal, place: &Place, refusal: Refusal, why: &str, now: Timestamp) -> Option<Event> {
    let error = lxd_error(place, refusal, why)?;
    let vm = journal.vm.as_mut()?;
    let unanswered = matches!(vm.stage, VmStage::Unanswered(_));
    let mut message = error.to_string();
    if refusal == Refusal::HostTrouble || unanswered && refusal != Refusal::Exists {
        // MAAS may have lost the host in the middle, now or the time before, and the name is not used again. MAAS does not report
        // that a VM of the name exists where there is no room for another one (880).
        message = format!("{message}; if its LXD has {} nevertheless, remove it there", vm.name);
    }
    if refusal == Refusal::Exists {
        vm.stage.become_at(VmStage::OnlyInLxd);
    } else if refusal == Refusal::HalfWay && !unanswered {
        // As if no answer had come: when the same name is requested again, LXD reports whether it has that VM (S12).
        vm.stage.become_at(VmStage::Unanswered);
        return None;
    } else {
        // Another manager was faster: the next read of the hosts shows what is left. The host itself is not at fault.
        if refusal != Refusal::NoRoom {
            vm.avoid_host(now);
        }
        *journal = journal.clone().without_vm();
    }
    Some(Event::warning(error.kind.reason(), message))
}

/// Reverts what the journal recorded in advance and what did not happen.
fn take_back(journal: &mut Journal, effect: &Effect, refusal: Refusal) {
    let Some(allocation) = &mut journal.allocation else { return };
    match effect {
        Effect::Deploy { .. } => allocation.deploy_began = None,
        Effect::DisableSwap { .. } if refusal == Refusal::Denied => allocation.swap_denied = true,
        // Somebody else took it meanwhile: its power is theirs to manage.
        Effect::Reclaim { machine, .. } if refusal == Refusal::NoMatch && allocation.machine == *machine => {
            allocation.released = None;
        }
        _ => {}
    }
}

fn meaning(effect: &Effect, refusal: Refusal) -> (Severity, &'static str, u64) {
    match (effect, refusal) {
        (Effect::Allocate { .. }, Refusal::NoMatch) => (Severity::Warning, reasons::NO_MACHINE_AVAILABLE, 30),
        (Effect::Allocate { .. }, Refusal::Invalid) => (Severity::Error, reasons::NO_MACHINE_AVAILABLE, 120),
        (Effect::Compose { .. }, Refusal::Denied) => (Severity::Error, reasons::CREDENTIALS_INVALID, 60),
        (Effect::Compose { .. } | Effect::RefreshHost { .. }, _) => {
            (Severity::Warning, reasons::VM_CREATION_FAILED, 30)
        }
        // Taken by somebody, or not free yet: the next read shows which.
        (Effect::Take { .. }, _) => (Severity::Info, reasons::VM_CREATING, 1),
        (Effect::DeleteVm { .. }, _) => (Severity::Warning, reasons::MACHINE_RELEASE_FAILED, 30),
        (Effect::Reclaim { .. }, _) => (Severity::Info, reasons::MACHINE_RELEASING, 5),
        (Effect::DisableSwap { .. }, Refusal::Denied) => (Severity::Info, reasons::MACHINE_DEPLOY_STARTED, 0),
        (Effect::ChangeLink { .. }, _) => (Severity::Warning, reasons::STATIC_IP_FAILED, 30),
        (Effect::MarkHost { .. } | Effect::LookAtHost { .. } | Effect::Unregister { .. }, _) => {
            (Severity::Warning, reasons::LEAVING_HOST, 30)
        }
        (Effect::Owe(_), _) => (Severity::Warning, reasons::HOST_UNAVAILABLE, 5),
        (Effect::TellAgent { .. }, _) => (Severity::Info, reasons::LEAVING_HOST, 15),
        (Effect::CreateBridge { .. }, _) => (Severity::Warning, reasons::BRIDGE_FAILED, 60),
        (Effect::Deploy { .. }, Refusal::Invalid) => (Severity::Error, reasons::MACHINE_DEPLOY_FAILED, 120),
        (Effect::Deploy { .. }, _) => (Severity::Warning, reasons::MACHINE_DEPLOY_FAILED, 30),
        (Effect::Release { .. }, Refusal::InUse) => (Severity::Warning, reasons::WAITING_FOR_VMS_TO_LEAVE, 60),
        (Effect::Release { .. } | Effect::AbortErase { .. }, _) => {
            (Severity::Warning, reasons::MACHINE_RELEASE_FAILED, 20)
        }
        // Without the tag the machine is still released; the journal remembers the failure.
        (Effect::Quarantine { .. }, _) => (Severity::Warning, reasons::MACHINE_DEPLOY_FAILED, 1),
        (Effect::PowerOn { .. }, _) => (Severity::Warning, reasons::MACHINE_POWERED_OFF, 60),
        (_, Refusal::Denied) => (Severity::Error, reasons::CREDENTIALS_INVALID, 60),
        _ => (Severity::Warning, reasons::MAAS_UNAVAILABLE, 15),
    }
}

fn told(effect: &Effect) -> Option<Event> {
    let (reason, message) = match effect {
        Effect::Deploy { machine, image, .. } => {
            ("MachineDeploying", format!("{machine} is being deployed with {image}"))
        }
        Effect::Quarantine { machine, tag } => {
            ("MachineQuarantined", format!("{machine} carries the tag {tag} for a day or two"))
        }
        _ => return None,
    };
    Some(Event::normal(reason, message))
}

/// Replaces the conditions about the machine, and nothing else in the status.
fn say(
    conclusion: &mut Conclusion,
    observed: &Observed,
    severity: Severity,
    reason: &'static str,
    why: &str,
    now: Timestamp,
) {
    let Some(status) = &mut conclusion.status else { return };
    // A Node without its provider ID does not make the machine less deployed.
    if status.ready {
        return;
    }
    let deleting = observed.object.metadata.deletion_timestamp.is_some();
    let generation = observed.object.metadata.generation;
    let why = if deleting { why.to_owned() } else { with_change(observed, why) };
    let false_ = |type_| Verdict::fault(type_, severity.clone(), reason, why.clone());
    status::put(status, false_(conditions::MACHINE_DEPLOYED), generation, now);
    if deleting {
        status::put(status, Verdict { reason: reasons::DELETING, ..false_(conditions::READY) }, generation, now);
        let deleting =
            Verdict { status: ConditionStatus::True, reason: reasons::DELETING, ..false_(conditions::DELETING) };
        status::put(status, deleting, generation, now);
    } else {
        status::put(status, false_(conditions::READY), generation, now);
    }
}
