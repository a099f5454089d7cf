//! The deletion of a `MaasCluster`: machines first, then the record, then the addresses that it left reserved, then the
//! finalizer.

use std::collections::BTreeSet;

use capmaas_api::{ConditionStatus, Severity, conditions, reasons};
use jiff::Timestamp;

use super::dns::{self, ASK_AGAIN, Step, until};
use super::endpoint;
use super::journal::Source;
use super::observed::{Observed, Owner, Record};
use super::plan::{Effect, Plan};
use super::proof::{Whose, whose};
use super::provenance::Doubt;
use super::status::Draft;
use super::steps::identity_note;
use crate::Lookup;
use crate::conditions::Verdict;
use crate::credentials::IDENTITY_ANNOTATION;
use crate::plan::{Event, Finalizer, IN_FLIGHT, Requeue};

/// Nothing waits for us while machines remain: their record is kept in sync meanwhile, so that their addresses can leave it (in
/// the Go provider the two controllers waited for each other here).
pub(super) fn decide(observed: &Observed, draft: Draft<'_>, now: Timestamp) -> Plan {
    let object = &observed.object;
    let nobody = Owner::default();
    let owner = match &observed.owner {
        Lookup::Found(owner) => owner,
        Lookup::Absent | Lookup::Unknown(_) => &nobody,
    };
    if let Some(what) = unreadable(observed) {
        return wait(draft, reasons::UNREADABLE_SPEC, what, Requeue::OnChange, now);
    }
    // Machines that are deleted have to be believed absent, so a changed identity may prove itself here too (S5).
    let identity_changed = matches!(&observed.identity, Ok(known) if !known.standing.may_believe_absence());
    if identity_changed && identity_note(observed) != object.journal.identity {
        let mut step = idle(observed);
        step.journal.identity = identity_note(observed);
        step.requeue = Requeue::NOW;
        return step.plan(observed, "the changed identity has access to what is ours");
    }
    let source = endpoint::source(object, owner);
    let name = endpoint::name(object, owner);
    if endpoint::is_found_again(object, owner) {
        let mut step = idle(observed);
        (step.journal.source, step.journal.name, step.journal.asked) = (Some(source), name, Some(now));
        step.requeue = Requeue::NOW;
        return step.plan(observed, "storing the lost name again");
    }
    match &observed.machines {
        Lookup::Unknown(why) => wait(draft, reasons::MACHINES_REMAIN, why.clone(), ASK_AGAIN, now),
        Lookup::Found(machines) if !machines.is_empty() => {
            let names: Vec<&str> = machines.iter().map(|machine| machine.name.as_str()).collect();
            let machines = if names.len() == 1 { "machine" } else { "machines" };
            let message = format!("waiting for {} {machines} to be released: {}", names.len(), shortened(&names));
            let step = name.map(|name| dns::step(observed, source, &name, now));
            machines_remain(observed, draft, step, message, now)
        }
        Lookup::Found(_) | Lookup::Absent => match (source, name) {
            (Source::User, _) | (_, None) => finish(observed, &BTreeSet::new(), draft, now),
            (source, Some(name)) => record(observed, source, &name, draft, now),
        },
    }
}

/// A copy is simply let go: its journal describes what belongs to another object (S25).
pub(super) fn copy(doubt: &Doubt) -> Plan {
    let mut plan = Plan::nothing(Requeue::OnChange, doubt.message.clone());
    plan.finalizer = Finalizer::Remove;
    plan.events.push(Event::normal("CopyLetGo", format!("nothing in MAAS was touched: {}", doubt.message)));
    plan
}

/// It is not clear whether the journal describes what belongs to this object. Its machines, which have journals of their own, are
/// awaited; then the object is let go, and an event reports what may be left.
pub(super) fn doubtful(observed: &Observed, doubt: &Doubt, draft: Draft<'_>, now: Timestamp) -> Plan {
    match &observed.machines {
        Lookup::Found(machines) if machines.is_empty() => {
            let mut plan = copy(doubt);
            plan.events = vec![Event::warning("DNSRecordLeft", doubt.message.clone())];
            plan
        }
        Lookup::Found(_) | Lookup::Absent | Lookup::Unknown(_) => {
            wait(draft, doubt.reason, doubt.message.clone(), Requeue::seconds(60), now)
        }
    }
}

fn unreadable(observed: &Observed) -> Option<String> {
    let object = &observed.object;
    if !object.journal.unreadable.is_empty() {
        return Some(format!("cannot read the annotations {}", object.journal.unreadable.join(", ")));
    }
    let undecided = object.journal.source.is_none() && !object.spec.unreadable.is_empty();
    undecided.then(|| format!("cannot read spec: {}", object.spec.unreadable.join(", ")))
}

fn machines_remain(
    observed: &Observed,
    mut draft: Draft<'_>,
    step: Option<Step>,
    message: String,
    now: Timestamp,
) -> Plan {
    let Some(step) = step else {
        return wait(draft, reasons::MACHINES_REMAIN, message, Requeue::seconds(60), now);
    };
    if step.effect.is_some() || step.journal != observed.object.journal {
        return step.plan(observed, "updating the DNS record while machines remain");
    }
    if let Some(verdict) = step.verdict {
        draft.say(verdict);
    }
    wait(draft, reasons::MACHINES_REMAIN, message, step.requeue.min(Requeue::seconds(60)), now)
}

/// No machine is left.
fn record(observed: &Observed, source: Source, name: &str, draft: Draft<'_>, now: Timestamp) -> Plan {
    let journal = &observed.object.journal;
    let nothing_made = journal.record.is_none() && journal.asked.is_none() && source != Source::Adopted;
    if nothing_made {
        return finish(observed, &BTreeSet::new(), draft, now);
    }
    let known = match &observed.identity {
        Ok(known) => known,
        Err(refusal) => {
            let message = format!("the DNS record {name} cannot be deleted: {}", refusal.message);
            return wait(draft, refusal.reason, message, ASK_AGAIN, now);
        }
    };
    let doubt = |draft| {
        let message = format!(
            "whether the DNS record {name} is gone cannot be determined: {}; if you know that it is, remove the \
             annotation {}",
            known.standing.problem(&known.name).unwrap_or_default(),
            IDENTITY_ANNOTATION
        );
        wait(draft, reasons::IDENTITY_CHANGED, message, ASK_AGAIN, now)
    };
    let trusted = known.standing.may_believe_absence();
    match &observed.record {
        Lookup::Unknown(why) => wait(draft, reasons::MAAS_UNAVAILABLE, why.clone(), ASK_AGAIN, now),
        Lookup::Absent if !trusted => doubt(draft),
        Lookup::Absent if journal.record.is_none() && journal.asked.is_some_and(|asked| asked > now) => {
            // A fast clock wrote it: the wait starts now, as for any other request.
            let mut step = idle(observed);
            step.journal.asked = Some(now);
            step.requeue = Requeue::NOW;
            step.plan(observed, "storing again when the record was requested")
        }
        Lookup::Absent => match journal.asked.map(|asked| asked.saturating_add(IN_FLIGHT).unwrap_or(asked)) {
            // A record that was just requested counts as in flight, not as absent (S2).
            Some(deadline) if journal.record.is_none() && now < deadline => {
                let message = format!("the DNS record {name} was just requested and may still appear");
                wait(draft, reasons::DELETING, message, until(deadline, now), now)
            }
            _ => finish(observed, &BTreeSet::new(), draft, now),
        },
        Lookup::Found(record) => match whose(observed, source, record, trusted, name) {
            Whose::Unclear(None) => doubt(draft),
            Whose::Unstamped(why) => wait(draft, reasons::NOT_OUR_MACHINE, why, ASK_AGAIN, now),
            Whose::Unclear(Some(why)) => wait(draft, reasons::MAAS_UNAVAILABLE, why, ASK_AGAIN, now),
            // S18: only a record that is proven to be ours is emptied, and only one that we created is deleted.
            Whose::Foreign(why) => {
                let mut plan = finish(observed, &record.addresses, draft, now);
                if plan.finalizer == Finalizer::Remove {
                    plan.events.push(Event::normal("DNSRecordLeft", why));
                }
                plan
            }
            Whose::Ours if journal.record.is_none() => {
                let mut step = idle(observed);
                step.journal = dns::noted(journal, source, name, record);
                step.requeue = Requeue::NOW;
                step.plan(observed, "storing the ID of the record")
            }
            Whose::Ours if source == Source::Adopted => empty(observed, name, record, draft, now),
            Whose::Ours => {
                let mut step = idle(observed);
                step.effect = Some(Effect::DeleteDnsRecord { id: record.id });
                step.events.push(Event::normal("DNSRecordDeleted", format!("deleted the DNS record {name} in MAAS")));
                step.requeue = Requeue::NOW;
                try_out(observed, step, draft, "deleting the DNS record", now)
            }
        },
    }
}

/// A record that another provider created stays, but is emptied: its machines get other owners.
fn empty(observed: &Observed, name: &str, record: &Record, draft: Draft<'_>, now: Timestamp) -> Plan {
    let mut step = idle(observed);
    let left = Event::normal(
        "DNSRecordLeft",
        format!(
            "the DNS record {name} ({}) stays in MAAS without addresses: it was created by another provider",
            record.id
        ),
    );
    step.events.push(left);
    if record.addresses.is_empty() && record.dangling.is_empty() {
        let mut plan = finish(observed, &BTreeSet::new(), draft, now);
        if plan.finalizer == Finalizer::Remove {
            plan.events.extend(step.events);
        }
        return plan;
    }
    step.events.clear();
    step.effect = Some(Effect::UpdateDnsRecord { id: record.id, addresses: BTreeSet::new() });
    step.requeue = Requeue::NOW;
    try_out(observed, step, draft, "emptying the DNS record of another provider", now)
}

/// Releases what is still reserved, then removes the finalizer.
fn finish(observed: &Observed, in_record: &BTreeSet<std::net::IpAddr>, draft: Draft<'_>, now: Timestamp) -> Plan {
    let mut step = idle(observed);
    let left = dns::give_back(observed, in_record, &mut step);
    if step.effect.is_some() {
        return try_out(observed, step, draft, "releasing an address", now);
    }
    if left {
        let why = match &observed.identity {
            Ok(_) => "MAAS does not show whether the addresses that its DNS record had are free".to_owned(),
            Err(refusal) => refusal.message.clone(),
        };
        return wait(draft, reasons::DELETING, why, ASK_AGAIN, now);
    }
    let mut plan = Plan::nothing(Requeue::OnChange, "nothing of ours is left in MAAS");
    plan.finalizer = Finalizer::Remove;
    plan.events = step.events;
    plan
}

fn idle(observed: &Observed) -> Step {
    Step {
        journal: observed.object.journal.clone(),
        effect: None,
        events: Vec::new(),
        verdict: None,
        requeue: Requeue::OnChange,
    }
}

/// Performs the step, unless its effect failed a moment ago.
fn try_out(observed: &Observed, step: Step, draft: Draft<'_>, why: &str, now: Timestamp) -> Plan {
    match dns::waiting(observed, step.effect.as_ref(), now) {
        Some(trouble) => {
            wait(draft, reasons::LOAD_BALANCER_FAILED, trouble.message.clone(), until(trouble.retry_at, now), now)
        }
        None => step.plan(observed, why),
    }
}

/// Reports what the deletion waits for.
pub(super) fn tell(draft: &mut Draft<'_>, reason: &'static str, message: String) {
    draft.say(Verdict::new(conditions::DELETING, ConditionStatus::True, reason, message.clone()));
    draft.say(Verdict::fault(conditions::READY, Severity::Info, reasons::DELETING, message));
}

fn wait(mut draft: Draft<'_>, reason: &'static str, message: String, requeue: Requeue, now: Timestamp) -> Plan {
    tell(&mut draft, reason, message.clone());
    let mut plan = Plan::nothing(requeue, message);
    plan.status = draft.finish(now);
    plan
}

fn shortened(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown}, …") } else { shown }
}
