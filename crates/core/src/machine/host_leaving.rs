//! A machine that is a VM host: the steps before its release (S11).

use capmaas_api::{Severity, reasons};
use jiff::Timestamp;

use super::decide::{Step, after, unseen};
use super::journal::Journal;
use super::status::Progress;
use super::{Effect, Observed};
use crate::conditions::whole_seconds;
use crate::hosts::leaving::{ASKED_ANNOTATION, AsHost, LeavingStep, Note, step};
use crate::maas;
use crate::maas::State;
use crate::plan::IN_FLIGHT;

/// The next step before the release, if any.
pub(super) fn before_release(
    observed: &Observed,
    journal: &Journal,
    metal: &maas::Machine,
    now: Timestamp,
) -> Option<Step> {
    let host = match &observed.as_host {
        AsHost::Host(host) => host,
        AsHost::NotAsked if metal.state != State::Deployed || metal.is_vm() => return None,
        AsHost::NotAsked => return Some(unseen("whether the machine is a VM host was not checked")),
        AsHost::Unknown(why) => return Some(unseen(why)),
        // It was a VM host and is none any more.
        AsHost::NoHost if journal.allocation.as_ref().is_some_and(|it| it.leaving.is_some()) => return None,
        AsHost::NoHost => return registration_may_land(observed, now),
    };
    let mut journal = journal.clone();
    let begun = Note { since: whole_seconds(now), clear: false, refreshed: None };
    let next = step(host, journal.allocation_of(&metal.id).leaving.get_or_insert(begun), now);
    let (machine, vm_host) = (metal.id.clone(), host.id);
    let busy = |message: &str| {
        let message = format!("{} ({}) is a VM host: {message}", metal.hostname, metal.id);
        Step::say(Progress::not_yet(Severity::Info, reasons::LEAVING_HOST, message), after(1))
    };
    let step = match next {
        LeavingStep::Mark => busy("it takes no more VMs").doing(Effect::MarkHost { machine, vm_host }),
        LeavingStep::Tell(node) => busy("its agent is told to stop").doing(Effect::TellAgent { node }),
        LeavingStep::Refresh => busy("MAAS refreshes it once more").doing(Effect::LookAtHost { machine, vm_host }),
        LeavingStep::Unregister => {
            let message = format!("VM host {} ({vm_host}) on {machine} is empty and is unregistered", host.name);
            let told = message.clone();
            busy(&message).telling(false, "HostUnregistered", told).doing(Effect::Unregister { machine, vm_host })
        }
        LeavingStep::Held(why) => {
            // No event shows when a VM of another cluster is gone. And this cluster's API server goes away with its other hosts:
            // after that nobody can ask the agent to stop.
            let progress = Progress::not_yet(Severity::Warning, reasons::WAITING_FOR_VMS_TO_LEAVE, why);
            Step::say(progress, after(5))
        }
        LeavingStep::Wait(why) => Step::say(Progress::not_yet(Severity::Info, reasons::LEAVING_HOST, why), after(15)),
        LeavingStep::Stuck(why) => Step::say(Progress::not_yet(Severity::Error, reasons::LEAVING_HOST, why), after(60)),
    };
    Some(step.writing(journal))
}

/// A registration that was sent a moment ago may still make it a VM host (S2).
fn registration_may_land(observed: &Observed, now: Timestamp) -> Option<Step> {
    let asked = observed.object.metadata.annotations.as_ref()?.get(ASKED_ANNOTATION)?;
    // A time in the future, and one that cannot be read, is replaced in this pass.
    let landed = asked.parse::<Timestamp>().is_ok_and(|asked| now.duration_since(asked) >= IN_FLIGHT);
    (!landed).then(|| {
        let message = format!(
            "its registration as a VM host was requested ({ASKED_ANNOTATION}) and may still take effect; waiting for that"
        );
        Step::say(Progress::not_yet(Severity::Info, reasons::LEAVING_HOST, message), after(15))
    })
}
