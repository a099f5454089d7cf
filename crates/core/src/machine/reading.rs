//! What the status says while MAAS takes long to answer the reads of a pass.

use capmaas_api::{Conditions as _, MaasMachineStatus, Severity, conditions, reasons};
use jiff::Timestamp;

use super::decide::{Step, holds};
use super::provisioning::prerequisites;
use super::status::{self, Progress};
use super::{Observed, wanted};
use crate::Lookup;
use crate::plan::Requeue;

/// What is waited for before MAAS is read for a machine.
const BEFORE_MAAS: [&str; 4] = [
    reasons::WAITING_FOR_OWNER,
    reasons::WAITING_FOR_CLUSTER_INFRASTRUCTURE,
    reasons::WAITING_FOR_BOOTSTRAP_DATA,
    reasons::WAITING_FOR_STATIC_IP,
];

/// The status to write while MAAS is being read, if the stored one tells of something that is over. What MAAS showed
/// before stays until it shows something else.
pub fn while_reading(observed: &Observed, now: Timestamp) -> Option<MaasMachineStatus> {
    observed.journal.as_ref().ok()?;
    let progress =
        if observed.object.metadata.deletion_timestamp.is_some() { deleting(observed)? } else { beginning(observed)? };
    Some(status::of(observed, &Step::say(progress, Requeue::NOW), now))
}

fn deleting(observed: &Observed) -> Option<Progress> {
    let told = observed.object.status.as_ref()?.conditions.condition(conditions::DELETING).is_some();
    let message = "MAAS is being read, to see what is to be released";
    (!told && holds(observed)).then(|| Progress::not_yet(Severity::Info, reasons::DELETING, message))
}

fn beginning(observed: &Observed) -> Option<Progress> {
    let (object, journal) = (&observed.object, observed.journal());
    let ready = object.status.as_ref().is_some_and(|status| status.ready);
    if ready || object.spec.provider_id().is_some() || !matches!(observed.machine, Lookup::Found(_)) {
        return None;
    }
    let told = object.status.as_ref().and_then(|status| status.conditions.condition(conditions::MACHINE_DEPLOYED));
    let is_over = told.is_none_or(|told| told.reason.as_deref().is_none_or(|reason| BEFORE_MAAS.contains(&reason)));
    let intent = wanted(object, journal).ok()?.intent;
    let message = match journal.and_then(|journal| journal.machine()) {
        Some(id) => format!("MAAS is being read, to see {id}"),
        None if prerequisites(observed, &intent).is_some() => return None,
        None => "MAAS is being read, before a machine is requested".to_owned(),
    };
    is_over.then(|| Progress::not_yet(Severity::Info, reasons::MACHINE_ALLOCATING, message))
}
