//! The decision about a `MaasCluster`, from creation to deletion.

use capmaas_api::cluster::NetworkStatus;
use capmaas_api::{ConditionStatus, Conditions as _, Severity, conditions, reasons};
use jiff::Timestamp;

use super::addresses::is_up;
use super::dns::{self, ASK_AGAIN};
use super::journal::{Journal, Source};
use super::observed::{ApiServer, Observed, Owner};
use super::plan::{Patch, Plan};
use super::provenance::{Doubt, Provenance, judge};
use super::status::Draft;
use super::{endpoint, failure_domains, let_go, lxd};
use crate::conditions::Verdict;
use crate::credentials::Standing;
use crate::plan::{Finalizer, Requeue};
use crate::{Lookup, pause};

/// How often everything is checked although nothing seems to have changed.
const DRIFT: Requeue = Requeue::seconds(1800);
/// How often an API server that does not answer yet is probed.
const PROBE: Requeue = Requeue::seconds(30);

/// Decides about one cluster.
///
/// Nothing at all happens to an object that is being moved or that another system manages. While an object is paused, only its
/// condition reports that (S15). What we created before another system took over is cleaned up on deletion like anything of ours.
pub fn decide(observed: &Observed, now: Timestamp) -> Plan {
    let object = &observed.object;
    if object.moving {
        return Plan::nothing(Requeue::OnChange, "being moved to another management cluster");
    }
    if object.managed_elsewhere && !object.deleting {
        return Plan::nothing(Requeue::OnChange, "externally managed");
    }
    if object.deleting && !object.finalizer {
        return Plan::nothing(Requeue::OnChange, "being deleted, and without our finalizer");
    }
    let paused = match pause::is_paused(object.paused, observed.owner.as_ref().map(|owner| owner.paused)) {
        Lookup::Unknown(why) => return Plan::nothing(ASK_AGAIN, why),
        paused => paused == Lookup::Found(true),
    };
    let mut draft = Draft::new(object);
    draft.say(pause::verdict(object.paused, paused));
    if paused {
        let mut plan = Plan::nothing(Requeue::OnChange, "paused");
        plan.status = draft.finish(now);
        return plan;
    }
    // Before anything that depends on the journal (S25). An unreadable journal stops everything below.
    let provenance = judge(observed);
    match (provenance, object.deleting) {
        (Provenance::Copy(doubt) | Provenance::Doubtful(doubt), false) => return copied(draft, doubt, now),
        (Provenance::Copy(doubt), true) => return let_go::copy(&doubt),
        (Provenance::Doubtful(doubt), true) => return let_go::doubtful(observed, &doubt, draft, now),
        (Provenance::Own | Provenance::Unwritten, _) => {}
    }
    if object.deleting {
        return let_go::decide(observed, draft, now);
    }
    match &observed.owner {
        Lookup::Found(owner) if unreadable(observed).is_none() => take_care(observed, owner, draft, now),
        Lookup::Found(_) => {
            let what = unreadable(observed).unwrap_or_default();
            report(draft, Verdict::fault(conditions::READY, Severity::Error, reasons::UNREADABLE_SPEC, what), now)
        }
        _ => {
            let message = "no Cluster owns this object yet";
            report(draft, Verdict::fault(conditions::READY, Severity::Info, reasons::WAITING_FOR_OWNER, message), now)
        }
    }
}

pub(super) fn unreadable(observed: &Observed) -> Option<String> {
    let object = &observed.object;
    let parts: Vec<&str> =
        object.spec.unreadable.iter().chain(&object.journal.unreadable).map(String::as_str).collect();
    (!parts.is_empty()).then(|| format!("cannot read {}; nothing is done", parts.join(", ")))
}

fn copied(draft: Draft<'_>, doubt: Doubt, now: Timestamp) -> Plan {
    let mut plan = report(draft, Verdict::fault(conditions::READY, Severity::Error, doubt.reason, doubt.message), now);
    plan.requeue = dns::PERSON;
    plan
}

fn report(mut draft: Draft<'_>, ready: Verdict, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing(Requeue::OnChange, ready.message.clone());
    draft.say(ready);
    plan.status = draft.finish(now);
    plan
}

fn take_care(observed: &Observed, owner: &Owner, mut draft: Draft<'_>, now: Timestamp) -> Plan {
    let object = &observed.object;
    let source = endpoint::source(object, owner);

    // What has to be stored before any effect. One write, so that it is stored as a whole or not at all.
    let mut journal = object.journal.clone();
    journal.source = Some(source);
    journal.written_for = Some(object.itself.clone());
    journal.identity = identity_note(observed);
    journal.name = endpoint::name(object, owner);
    let mut found_again = endpoint::is_found_again(object, owner);
    if let (true, Lookup::Found(candidate)) = (endpoint::needs_name(object, owner), &observed.candidate) {
        journal.name = Some(candidate.clone());
        found_again = matches!(observed.record, Lookup::Found(_));
    }
    if found_again {
        journal.asked = Some(now);
    }
    let wanted = endpoint::wanted(object, owner, journal.name.as_deref());
    let patch = Patch {
        endpoint: wanted.clone().filter(|wanted| object.spec.control_plane_endpoint.as_ref() != Some(wanted)),
        annotations: object.journal.difference(&journal),
    };
    let finalizer = if object.finalizer { Finalizer::Keep } else { Finalizer::Add };
    let noted = Plan { patch, finalizer, ..Plan::nothing(Requeue::NOW, "storing what is going to be done") };
    if !noted.leaves_object() {
        return noted;
    }

    draft.say(credentials(observed));
    let mut requeue = DRIFT;
    match (source, &journal.name) {
        (Source::User, _) if wanted.is_some() => draft.say(Verdict::new(
            conditions::LOAD_BALANCER_READY,
            ConditionStatus::True,
            reasons::CUSTOM_ENDPOINT,
            "the endpoint is provided by the user",
        )),
        (Source::User, _) => draft.say(Verdict::fault(
            conditions::LOAD_BALANCER_READY,
            Severity::Info,
            reasons::WAIT_FOR_DNS_NAME,
            "waiting for spec.controlPlaneEndpoint: the annotation states that the user provides it",
        )),
        (_, None) => {
            draft.say(nameless(observed));
            requeue = ASK_AGAIN;
        }
        (source, Some(name)) => {
            let step = dns::step(observed, source, name, now);
            if step.effect.is_some() || step.journal != object.journal {
                return step.plan(observed, "updating the DNS record");
            }
            if let Some(verdict) = step.verdict {
                draft.say(verdict);
            }
            requeue = requeue.min(step.requeue);
        }
    }
    // Poll while MAAS cannot be accessed or the identity has not yet proved that it sees our machines (S5): no event reports a
    // change.
    if observed.identity.as_ref().map_or(true, |known| !known.standing.may_believe_absence()) {
        requeue = requeue.min(ASK_AGAIN);
    }
    if let Some(verdict) = api_server(observed, &draft) {
        draft.say(verdict);
    }
    if !draft.is_true(conditions::API_SERVER_AVAILABLE) && any_up(observed) {
        requeue = requeue.min(PROBE);
    }
    let lxd = lxd::step(observed, now);
    if let Some(verdict) = lxd.verdict {
        draft.say(verdict);
    }
    requeue = requeue.min(lxd.requeue);
    if wanted.is_some() && (source == Source::User || journal.record.is_some()) {
        draft.provisioned();
    }
    draft.status.network = wanted.map(|endpoint| NetworkStatus { dns_name: Some(endpoint.host) });
    draft.status.failure_domains = failure_domains::publish(observed);
    draft.sum_up(failure_domains::problem(observed), lxd.counts);
    Plan { effect: lxd.effect, status: draft.finish(now), ..Plan::nothing(requeue, "keeping watch") }
}

/// The identity to record. A changed one replaces the recorded one only when it has proved that it sees what is ours (S5): one of
/// the machines, including the VMs that are owed, or, without machines, the very DNS record.
pub(super) fn identity_note(observed: &Observed) -> Option<String> {
    let recorded = observed.object.journal.identity.clone();
    let Ok(known) = &observed.identity else { return recorded };
    let name = known.name.to_string();
    match &known.standing {
        Standing::Same => recorded,
        Standing::First => Some(name),
        Standing::Changed { .. } => {
            let Lookup::Found(machines) = &observed.machines else { return recorded };
            let seen = if observed.object.owes || machines.iter().any(|machine| machine.made) {
                observed.sees_a_machine
            } else {
                record_seen_or_never_made(observed, &observed.object.journal)
            };
            if seen { Some(name) } else { recorded }
        }
    }
}

fn record_seen_or_never_made(observed: &Observed, journal: &Journal) -> bool {
    match (&observed.record, journal.record) {
        (Lookup::Found(record), Some(id)) => record.id == id,
        (_, Some(_)) => false,
        (_, None) => journal.asked.is_none() && journal.source != Some(Source::Adopted),
    }
}

pub(super) fn credentials(observed: &Observed) -> Verdict {
    match &observed.identity {
        Ok(known) => match known.standing.problem(&known.name) {
            None => Verdict::new(
                conditions::CREDENTIALS_VALID,
                ConditionStatus::True,
                reasons::CREDENTIALS_VALID,
                format!("MAAS at {} knows us as {}", known.name.endpoint, known.name.user),
            ),
            Some(problem) => {
                Verdict::fault(conditions::CREDENTIALS_VALID, Severity::Warning, reasons::IDENTITY_CHANGED, problem)
            }
        },
        Err(refusal) if refusal.reason == reasons::CREDENTIALS_INVALID => {
            Verdict::fault(conditions::CREDENTIALS_VALID, Severity::Error, refusal.reason, refusal.message.clone())
        }
        Err(refusal) => Verdict::new(
            conditions::CREDENTIALS_VALID,
            ConditionStatus::Undetermined,
            refusal.reason,
            refusal.message.clone(),
        ),
    }
}

fn nameless(observed: &Observed) -> Verdict {
    let type_ = conditions::LOAD_BALANCER_READY;
    if let Some(why) = endpoint::not_a_domain(&observed.object.spec.dns_domain) {
        return Verdict::fault(type_, Severity::Error, reasons::LOAD_BALANCER_FAILED, why);
    }
    match (&observed.identity, &observed.candidate) {
        (Err(refusal), _) => Verdict::fault(type_, Severity::Info, reasons::WAIT_FOR_DNS_NAME, refusal.message.clone()),
        (_, Lookup::Absent) => Verdict::fault(
            type_,
            Severity::Error,
            reasons::DNS_NAME_TAKEN,
            format!("every name that was tried in {} is taken", observed.object.spec.dns_domain),
        ),
        (_, Lookup::Unknown(why)) => Verdict::fault(type_, Severity::Info, reasons::WAIT_FOR_DNS_NAME, why.clone()),
        (_, Lookup::Found(_)) => Verdict::fault(type_, Severity::Info, reasons::WAIT_FOR_DNS_NAME, "choosing a name"),
    }
}

pub(super) fn any_up(observed: &Observed) -> bool {
    matches!(&observed.machines, Lookup::Found(machines)
        if machines.iter().any(|machine| machine.control_plane && is_up(machine)))
}

/// `None`: nothing new is known.
fn api_server(observed: &Observed, draft: &Draft<'_>) -> Option<Verdict> {
    let type_ = conditions::API_SERVER_AVAILABLE;
    match &observed.api_server {
        ApiServer::Answers => Some(Verdict::new(type_, ConditionStatus::True, reasons::API_SERVER_AVAILABLE, "")),
        ApiServer::Silent(why) => {
            Some(Verdict::fault(type_, Severity::Warning, reasons::API_SERVER_NOT_READY, why.clone()))
        }
        ApiServer::BeingAsked => {
            // An answer, or its absence, is true until the next one. Anything else that was told is over.
            let told = observed.object.status.conditions.condition(type_);
            told.is_none_or(|told| told.severity == Some(Severity::Info)).then(|| {
                let message = "checking whether the API server answers";
                Verdict::fault(type_, Severity::Info, reasons::API_SERVER_NOT_READY, message)
            })
        }
        ApiServer::NotAsked if draft.is_true(type_) || any_up(observed) => None,
        ApiServer::NotAsked => Some(Verdict::fault(
            type_,
            Severity::Info,
            reasons::API_SERVER_NOT_READY,
            "waiting for the first control plane machine",
        )),
    }
}
