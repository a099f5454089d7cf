//! The part of the status for a VM only: its host, its resources, and the four conditions of document 004.

use capmaas_api::lxd_error::{LxdError, LxdErrorKind};
use capmaas_api::machine_status::VmResourceUsage;
use capmaas_api::{ConditionStatus, Conditions as _, MaasMachineStatus, Severity, conditions, reasons};
use jiff::Timestamp;

use super::decide::Step;
use super::journal::Journal;
use super::status::{cut, put};
use super::vm_journal::VmJournal;
use super::{Effect, Observed};
use crate::Lookup;
use crate::conditions::Verdict;
use crate::maas::State;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Homeless,
    Placed,
    Made,
    Deploying,
    Deployed,
}

fn stage(observed: &Observed, journal: &Journal, vm: &VmJournal) -> Stage {
    let seen = match (journal.machine(), &observed.in_journal) {
        (Some(id), Lookup::Found(metal)) if metal.id == *id => Some(metal.state),
        _ => None,
    };
    match seen {
        Some(State::Deployed) => Stage::Deployed,
        Some(State::Deploying | State::FailedDeployment) => Stage::Deploying,
        Some(
            State::New | State::Commissioning | State::Testing | State::FailedCommissioning | State::FailedTesting,
        ) => Stage::Placed,
        Some(_) => Stage::Made,
        None if journal.allocation.is_some() => Stage::Made,
        None if vm.stage.place().is_some() => Stage::Placed,
        None => Stage::Homeless,
    }
}

/// Writes everything about the VM into the status.
pub(super) fn show(
    status: &mut MaasMachineStatus,
    observed: &Observed,
    step: &Step,
    journal: &Journal,
    now: Timestamp,
) {
    let Some(vm) = &journal.vm else { return };
    if observed.object.metadata.deletion_timestamp.is_some() {
        return;
    }
    if let Some(place) = vm.stage.place() {
        status.lxd_host = Some(place.host_name.clone());
        status.lxd_project.clone_from(&place.project);
        status.vm_resource_usage = Some(VmResourceUsage {
            allocated_cores: place.cores.into(),
            allocated_memory: place.memory.into(),
            allocated_disk: place.disk.into(),
        });
        status.failure_domain.get_or_insert_with(|| place.zone.clone());
    } else {
        status.lxd_host = None;
        status.lxd_project = None;
        status.vm_resource_usage = None;
    }
    let stage = stage(observed, journal, vm);
    let begins = matches!(step.effect, Some(Effect::Compose { .. }));
    let generation = observed.object.metadata.generation;
    let host = vm.stage.place().map(|place| format!("{} in zone {}", place.host_name, place.zone));
    for (type_, reached, done, going_on) in [
        (conditions::LXD_HOST_SELECTED, Stage::Placed, reasons::HOST_SELECTED, reasons::VM_CREATING),
        (conditions::LXD_RESOURCES_ALLOCATED, Stage::Placed, reasons::RESOURCES_ALLOCATED, reasons::VM_CREATING),
        (conditions::LXD_VM_CREATED, Stage::Made, reasons::VM_CREATED, reasons::VM_CREATING),
        (conditions::LXD_VM_DEPLOYED, Stage::Deployed, reasons::VM_DEPLOYED, reasons::VM_DEPLOYING),
    ] {
        let before = status.conditions.condition(type_);
        let holds = stage >= reached;
        let selected = type_ == conditions::LXD_HOST_SELECTED;
        if let Some(error) = step.lxd.as_ref().filter(|error| !holds && concerns(error.kind).contains(&type_)) {
            fail(status, type_, error, step.explained.as_deref(), generation, now);
            continue;
        }
        let failed_before = before.is_some_and(|before| {
            before.status == ConditionStatus::False
                && LxdErrorKind::ALL.iter().any(|kind| before.reason.as_deref() == Some(kind.reason()))
        });
        // A failure stays until there is news: another VM is being created.
        if !holds && failed_before && !begins && stage < Stage::Placed {
            continue;
        }
        let message = match (holds, &step.explained, before) {
            (true, Some(explained), _) if selected => explained.clone(),
            (true, None, Some(before)) if selected && before.status == ConditionStatus::True => {
                before.message.clone().unwrap_or_default()
            }
            (true, _, _) if selected => host.clone().unwrap_or_default(),
            (true, _, _) => String::new(),
            (false, _, _) => step.progress.message.clone(),
        };
        let (truth, reason) = if holds { (ConditionStatus::True, done) } else { (ConditionStatus::False, going_on) };
        put(status, Verdict::new(type_, truth, reason, message), generation, now);
    }
}

/// The conditions that a failure of this kind affects.
fn concerns(kind: LxdErrorKind) -> &'static [&'static str] {
    match kind {
        LxdErrorKind::HostUnavailable | LxdErrorKind::ProfileNotFound | LxdErrorKind::ProjectNotFound => {
            &[conditions::LXD_HOST_SELECTED]
        }
        LxdErrorKind::InsufficientResources => &[conditions::LXD_HOST_SELECTED, conditions::LXD_RESOURCES_ALLOCATED],
        LxdErrorKind::VmCreationFailed => &[conditions::LXD_VM_CREATED],
        LxdErrorKind::VmDeploymentFailed => &[conditions::LXD_VM_DEPLOYED],
    }
}

fn fail(
    status: &mut MaasMachineStatus,
    type_: &'static str,
    error: &LxdError,
    explained: Option<&str>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let severity = if error.kind.is_retryable() { Severity::Warning } else { Severity::Error };
    let mut message = match explained {
        Some(explained) if !error.message.contains(explained) => format!("{error}; {explained}"),
        _ => error.to_string(),
    };
    cut(&mut message);
    put(status, Verdict::fault(type_, severity, error.kind.reason(), message), generation, now);
}

/// Writes a failure into the conditions that it affects.
pub(super) fn put_error(status: &mut MaasMachineStatus, error: &LxdError, generation: Option<i64>, now: Timestamp) {
    for type_ in concerns(error.kind) {
        fail(status, type_, error, None, generation, now);
    }
}
