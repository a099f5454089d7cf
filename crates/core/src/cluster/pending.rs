//! What the status says while MAAS takes long to answer the reads of a pass, or its effect.

use capmaas_api::{Condition, ConditionStatus, Conditions as _, MaasClusterStatus, Severity, conditions, reasons};
use jiff::Timestamp;

use super::addresses::published;
use super::journal::Source;
use super::observed::{Observed, Owner};
use super::plan::Effect;
use super::status::Draft;
use super::steps::{any_up, credentials, unreadable};
use super::{endpoint, failure_domains, let_go, lxd};
use crate::conditions::Verdict;
use crate::{Lookup, pause};

/// The status to write while MAAS is being read, if the stored one tells of something that is over. What MAAS showed before
/// stays until it shows something else. The identity is only considered once it is known.
pub fn while_reading(observed: &Observed, now: Timestamp) -> Option<MaasClusterStatus> {
    let object = &observed.object;
    let mut draft = Draft::new(object);
    draft.say(pause::verdict(object.paused, false));
    if object.deleting {
        if object.finalizer && (told(observed, conditions::DELETING).is_none() || was_last_machine(observed)) {
            let message = "MAAS is being read, to see what has to be deleted there".to_owned();
            let_go::tell(&mut draft, reasons::DELETING, message);
        }
        return draft.finish(now);
    }
    let Lookup::Found(owner) = &observed.owner else { return None };
    if unreadable(observed).is_some() {
        return None;
    }
    if observed.identity.is_ok() {
        draft.say(credentials(observed));
    }
    let source = endpoint::source(object, owner);
    let beginning = beginning(observed, source, owner);
    if let Some(message) = beginning.as_ref().filter(|_| source != Source::User && has_no_record_yet(observed)) {
        draft.say(no_record_yet(message.clone()));
    }
    let not_probed = not_probed_yet(observed, endpoint::name(object, owner));
    if beginning.is_some() || not_probed.is_some() {
        if let Some(verdict) = not_probed {
            draft.say(verdict);
        }
        let reading = |message| Verdict::fault(conditions::READY, Severity::Info, reasons::NOT_READY, message);
        draft.sum_up(beginning.map(reading), false);
    }
    draft.finish(now)
}

/// The status to write while MAAS performs an effect; `None` if the stored one, or that of the plan, is true meanwhile.
pub fn while_doing(observed: &Observed, effect: &Effect, now: Timestamp) -> Option<MaasClusterStatus> {
    let object = &observed.object;
    let nobody = Owner::default();
    let name = || endpoint::name(object, observed.owner.found().unwrap_or(&nobody)).unwrap_or_default();
    let message = match effect {
        Effect::CreateDnsRecord { name, .. } => format!("waiting for MAAS to create the DNS record {name}"),
        Effect::UpdateDnsRecord { .. } => format!("waiting for MAAS to change the DNS record {}", name()),
        Effect::DeleteDnsRecord { .. } => format!("waiting for MAAS to delete the DNS record {}", name()),
        Effect::ReleaseAddress { address } => format!("waiting for MAAS to release the address {address}"),
        Effect::Hosts(_) => return None,
    };
    let mut draft = Draft::new(object);
    draft.say(pause::verdict(object.paused, false));
    if object.deleting {
        let awaits_machines = reason(observed, conditions::DELETING) == Some(reasons::MACHINES_REMAIN);
        if !awaits_machines || was_last_machine(observed) {
            let_go::tell(&mut draft, reasons::DELETING, message);
        }
        return draft.finish(now);
    }
    draft.say(credentials(observed));
    match effect {
        Effect::CreateDnsRecord { .. } => draft.say(no_record_yet(message.clone())),
        Effect::UpdateDnsRecord { .. } if draft.is_true(conditions::LOAD_BALANCER_READY) => draft.say(Verdict::new(
            conditions::LOAD_BALANCER_READY,
            ConditionStatus::True,
            reasons::LOAD_BALANCER_READY,
            published(observed).remark.unwrap_or_default(),
        )),
        Effect::UpdateDnsRecord { .. } if has_no_record_yet(observed) => draft.say(no_record_yet(message.clone())),
        _ => {}
    }
    if let Some(verdict) = not_probed_yet(observed, Some(name())) {
        draft.say(verdict);
    }
    draft.sum_up(failure_domains::problem(observed), lxd::step(observed, now).counts);
    draft.finish(now)
}

/// What MAAS is being read for, if Ready still reports something that is over.
fn beginning(observed: &Observed, source: Source, owner: &Owner) -> Option<String> {
    let name = endpoint::name(&observed.object, owner);
    let is_over = match reason(observed, conditions::READY) {
        // Both are reported without reading MAAS.
        None | Some(reasons::WAITING_FOR_OWNER | reasons::UNREADABLE_SPEC) => true,
        Some(reasons::WAIT_FOR_DNS_NAME) => name.is_some(),
        Some(reasons::CREDENTIALS_INVALID) => observed.identity.is_ok(),
        Some(_) => false,
    };
    is_over.then(|| match (source, name) {
        (Source::User, _) => "MAAS is being read".to_owned(),
        (_, None) => "MAAS is being read, to choose a name for the API server".to_owned(),
        (_, Some(name)) => format!("MAAS is being read, to see the DNS record {name}"),
    })
}

fn told<'a>(observed: &'a Observed, type_: &str) -> Option<&'a Condition> {
    observed.object.status.conditions.condition(type_)
}

fn reason<'a>(observed: &'a Observed, type_: &str) -> Option<&'a str> {
    told(observed, type_)?.reason.as_deref()
}

fn was_last_machine(observed: &Observed) -> bool {
    let none_is_left = matches!(&observed.machines, Lookup::Found(machines) if machines.is_empty());
    none_is_left && reason(observed, conditions::DELETING) == Some(reasons::MACHINES_REMAIN)
}

/// Whether nothing was reported about the record so far but that it is not there yet.
fn has_no_record_yet(observed: &Observed) -> bool {
    let reason = reason(observed, conditions::LOAD_BALANCER_READY);
    reason.is_none_or(|reason| [reasons::WAIT_FOR_DNS_NAME, reasons::CREDENTIALS_INVALID].contains(&reason))
}

fn no_record_yet(message: String) -> Verdict {
    Verdict::fault(conditions::LOAD_BALANCER_READY, Severity::Info, reasons::WAIT_FOR_DNS_NAME, message)
}

/// The verdict about an API server that has a machine since, and was not probed yet. While that is so, it is only waited for, without
/// a warning.
fn not_probed_yet(observed: &Observed, name: Option<String>) -> Option<Verdict> {
    let told = told(observed, conditions::API_SERVER_AVAILABLE)?;
    if told.severity != Some(Severity::Info) || !any_up(observed) {
        return None;
    }
    let message = format!("it is probed once {} resolves to a control plane machine", name?);
    Some(Verdict::fault(conditions::API_SERVER_AVAILABLE, Severity::Info, reasons::API_SERVER_NOT_READY, message))
}
