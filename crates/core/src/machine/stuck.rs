//! A release that does not end. MAAS gives up by itself after five minutes, unless it was killed in the middle: then nothing in
//! MAAS remembers the release, and the machine stays as it is forever.

use capmaas_api::{Severity, reasons};
use jiff::{SignedDuration, Timestamp};

use super::Observed;
use super::decide::{Step, after};
use super::effect::Effect;
use super::journal::{ABANDON_ANNOTATION, Journal};
use super::status::Progress;
use crate::conditions::whole_seconds;
use crate::maas::{self, Power, State};

/// After this time a release is not expected to end by itself.
const RELEASE_DEADLINE: SignedDuration = SignedDuration::from_mins(15);

/// Large disks take hours, and a machine that wipes its disks is on; after this time a person should look.
const WIPE_DEADLINE: SignedDuration = SignedDuration::from_hours(6);

/// Whether the release takes too long. From then on the power driver is queried, because it shows whether anything still works on
/// the machine.
pub(super) fn is_overdue(journal: &Journal, now: Timestamp) -> bool {
    let began = journal.allocation.as_ref().and_then(|allocation| allocation.release_began);
    began.is_some_and(|began| now.duration_since(began) >= RELEASE_DEADLINE)
}

/// What to report or do about the machine in the journal while MAAS is releasing it; `None` while it is within its time.
pub(super) fn step(observed: &Observed, journal: &mut Journal, metal: &maas::Machine, now: Timestamp) -> Option<Step> {
    if !matches!(metal.state, State::Releasing | State::DiskErasing) {
        return None;
    }
    // Begun by somebody else, or before this was recorded: the deadline counts from now.
    let began = *journal.allocation_of(&metal.id).release_began.get_or_insert(whole_seconds(now));
    if !is_overdue(journal, now) {
        return None;
    }
    let id = &metal.id;
    let told = |message: String| {
        Step::say(Progress::not_yet(Severity::Error, reasons::MACHINE_RELEASE_FAILED, message), after(120))
            .writing(journal.clone())
    };
    let power = match observed.power {
        Some(Power::On) => "on",
        Some(Power::Off) => "off",
        Some(Power::Unknown) | None => "in an unknown power state",
    };
    if metal.state == State::Releasing {
        return Some(told(format!(
            "{id} has been Releasing in MAAS for more than 15 minutes and is {power}; MAAS gives up after 5 unless it \
             was restarted meanwhile: check the machine's power settings, mark it as broken in MAAS and release it \
             from there, or abandon it with the annotation {ABANDON_ANNOTATION}: {id}"
        )));
    }
    match observed.power {
        Some(Power::On) if now.duration_since(began) < WIPE_DEADLINE => None,
        Some(Power::Off) if metal.stamp.as_ref() == Some(&journal.key) && observed.is_ours(journal, metal) => {
            let message = format!("{id} is off although its disks are being erased; erasing is aborted and retried");
            let progress = Progress::not_yet(Severity::Warning, reasons::MACHINE_RELEASE_FAILED, message.clone());
            let effect = Effect::AbortErase { machine: id.clone() };
            // Requested at most once per such period.
            let mut journal = journal.clone();
            journal.allocation_of(id).release_began = Some(whole_seconds(now));
            Some(
                Step::say(progress, after(30))
                    .writing(journal)
                    .telling(true, reasons::MACHINE_RELEASE_FAILED, message)
                    .doing(effect),
            )
        }
        Some(_) | None => Some(told(format!(
            "MAAS has been erasing the disks of {id} for too long and the machine is {power}; if nothing happens on \
             its console, abort the erasing in MAAS and release the machine there, or abandon it with the annotation \
             {ABANDON_ANNOTATION}: {id}"
        ))),
    }
}
