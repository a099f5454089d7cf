//! The record in MAAS's DNS: created once, then kept in sync (S18).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use capmaas_api::{ConditionStatus, Conditions as _, Severity, conditions, reasons};
use jiff::Timestamp;

use super::addresses::{is_up, published};
use super::journal::{Journal, Source};
use super::observed::{Machine, Observed, Record, Reserved, Stamp};
use super::plan::{Effect, Patch, Plan};
use super::proof::{Whose, whose};
use crate::Lookup;
use crate::backoff::Trouble;
use crate::conditions::Verdict;
use crate::plan::{Event, Requeue};

/// When to query MAAS again after it did not answer.
pub(super) const ASK_AGAIN: Requeue = Requeue::seconds(15);
/// When to check again what a person has to resolve.
pub(super) const PERSON: Requeue = Requeue::seconds(300);

/// What happens to the record in this pass.
pub(super) struct Step {
    /// Stored before the effect.
    pub(super) journal: Journal,
    pub(super) effect: Option<Effect>,
    pub(super) events: Vec<Event>,
    /// The verdict for `LoadBalancerReady`; `None` leaves it as it is.
    pub(super) verdict: Option<Verdict>,
    pub(super) requeue: Requeue,
}

/// Brings the record one step closer to the desired state.
///
/// While the object is being deleted, a missing record is not created again.
pub(super) fn step(observed: &Observed, source: Source, name: &str, now: Timestamp) -> Step {
    let object = &observed.object;
    let mut step = Step {
        journal: object.journal.clone(),
        effect: None,
        events: Vec::new(),
        verdict: None,
        requeue: Requeue::OnChange,
    };
    let known = match &observed.identity {
        Ok(known) => known,
        Err(refusal) => return step.silent(observed, refusal.reason, &refusal.message),
    };
    match &observed.record {
        Lookup::Unknown(why) => return step.silent(observed, reasons::MAAS_UNAVAILABLE, why),
        Lookup::Found(record) => match whose(observed, source, record, known.standing.may_believe_absence(), name) {
            Whose::Ours if object.journal.record.is_none() => {
                step.journal = noted(&object.journal, source, name, record);
                step.requeue = Requeue::NOW;
            }
            Whose::Ours => keep_in_step(observed, record, name, &mut step),
            Whose::Foreign(message) => {
                step.verdict = Some(Verdict::fault(
                    conditions::LOAD_BALANCER_READY,
                    Severity::Error,
                    reasons::DNS_NAME_TAKEN,
                    message,
                ));
                step.requeue = PERSON;
            }
            Whose::Unstamped(why) => {
                let status = ConditionStatus::Undetermined;
                step.verdict =
                    Some(Verdict::new(conditions::LOAD_BALANCER_READY, status, reasons::NOT_OUR_MACHINE, why));
                // No event reports the stamp.
                step.requeue = ASK_AGAIN;
            }
            Whose::Unclear(Some(why)) => return step.silent(observed, reasons::MAAS_UNAVAILABLE, &why),
            Whose::Unclear(None) => {
                let message = known.standing.problem(&known.name).unwrap_or_default();
                return step.silent(observed, reasons::IDENTITY_CHANGED, &message);
            }
        },
        Lookup::Absent if !known.standing.may_believe_absence() => {
            let message = known.standing.problem(&known.name).unwrap_or_default();
            return step.silent(observed, reasons::IDENTITY_CHANGED, &message);
        }
        Lookup::Absent if object.deleting => {}
        Lookup::Absent => {
            let addresses = published(observed).wanted.given(&BTreeSet::new());
            step.journal = Journal {
                // From here on it is ours, even if another provider created the one that is gone.
                source: Some(Source::Dns),
                name: Some(name.to_owned()),
                record: None,
                asked: Some(now),
                owed: owed(observed, &addresses),
                ..step.journal
            };
            step.events.push(Event::normal("DNSRecordCreated", format!("created the DNS record {name} in MAAS")));
            step.effect = Some(Effect::CreateDnsRecord { name: name.to_owned(), addresses });
            step.requeue = Requeue::NOW;
        }
    }
    step.held_back(observed, now)
}

/// The journal once a record has been proven to be ours: with its ID, so that the proof is not needed again.
pub(super) fn noted(journal: &Journal, source: Source, name: &str, record: &Record) -> Journal {
    Journal { source: Some(source), name: Some(name.to_owned()), record: Some(record.id), ..journal.clone() }
}

fn keep_in_step(observed: &Observed, record: &Record, name: &str, step: &mut Step) {
    let published = published(observed);
    let addresses = published.wanted.given(&record.addresses);
    if addresses != record.addresses || record.dangling.iter().any(|holders| !is_awaited(observed, holders)) {
        step.journal.owed = owed(observed, &addresses);
        step.events.push(Event::normal("DNSRecordUpdated", format!("{name} now resolves to {}", listed(&addresses))));
        step.effect = Some(Effect::UpdateDnsRecord { id: record.id, addresses });
        step.requeue = Requeue::NOW;
        return;
    }
    let message = published.remark.unwrap_or_default();
    step.verdict = Some(Verdict::new(
        conditions::LOAD_BALANCER_READY,
        ConditionStatus::True,
        reasons::LOAD_BALANCER_READY,
        message,
    ));
    give_back(observed, &record.addresses, step);
}

/// Whether an entry without an address may stay: a control plane machine that is up has lost the address, and MAAS itself completes
/// the entry once it is back. Any write would remove the entry. That of another machine would follow it to its next owner.
fn is_awaited(observed: &Observed, holders: &BTreeSet<String>) -> bool {
    let is_ours = |machine: &Machine| {
        let is_anothers = matches!(machine.stamp, Stamp::Missing | Stamp::OwnedBy(_) | Stamp::Anothers);
        machine.system_id.as_ref().is_some_and(|id| holders.contains(id))
            && !is_anothers
            && machine.control_plane
            && !machine.deleting
            && is_up(machine)
    };
    match &observed.machines {
        Lookup::Found(machines) => machines.iter().any(is_ours),
        Lookup::Absent => false,
        Lookup::Unknown(_) => true,
    }
}

/// Whether an address that is owed is in use no more: neither in our record nor on a machine of ours.
pub fn is_due(observed: &Observed, in_record: &BTreeSet<IpAddr>, address: &IpAddr) -> bool {
    let in_use = match &observed.machines {
        Lookup::Found(machines) => machines.iter().any(|machine| machine.addresses.contains(address)),
        Lookup::Absent | Lookup::Unknown(_) => true,
    };
    !in_record.contains(address) && !in_use
}

/// Releases one address that no record and no machine of ours has any more. Returns whether any is still owed.
pub(super) fn give_back(observed: &Observed, in_record: &BTreeSet<IpAddr>, step: &mut Step) -> bool {
    let due = observed.object.journal.owed.iter().filter(|address| is_due(observed, in_record, address));
    let mut left = false;
    for address in due {
        match observed.reserved.get(address).filter(|_| observed.identity.is_ok()) {
            Some(Lookup::Found(Reserved::ForUs)) => {
                left = true;
                if step.effect.is_none() {
                    step.events.push(Event::normal("AddressGivenBack", format!("released {address} in MAAS")));
                    step.effect = Some(Effect::ReleaseAddress { address: *address });
                    step.requeue = Requeue::NOW;
                }
            }
            // An annotation must not free what a person reserved, and nothing tells that from what an earlier life left.
            Some(Lookup::Found(Reserved::Before)) => {
                let message = format!(
                    "{address} was in a DNS record of this cluster and stays reserved in MAAS: it was reserved before this \
                     object was created, as after a move or a restore; if nothing else uses it, release it in MAAS"
                );
                step.events.push(Event::warning("AddressLeft", message));
                step.journal.owed.remove(address);
                step.requeue = Requeue::NOW;
            }
            Some(Lookup::Absent) => {
                step.journal.owed.remove(address);
                step.requeue = Requeue::NOW;
            }
            Some(Lookup::Unknown(_)) | None => {
                left = true;
                step.requeue = step.requeue.min(ASK_AGAIN);
            }
        }
    }
    left
}

/// The addresses owed once these are written: MAAS reserves an address that it does not know.
fn owed(observed: &Observed, addresses: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
    let new = addresses.intersection(&observed.unknown_to_maas);
    observed.object.journal.owed.iter().chain(new).copied().collect()
}

fn listed(addresses: &BTreeSet<IpAddr>) -> String {
    if addresses.is_empty() {
        return "no address".to_owned();
    }
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The time left until something may be tried again.
pub(super) fn until(then: Timestamp, now: Timestamp) -> Requeue {
    let left = Duration::try_from(then.duration_since(now)).unwrap_or_default();
    Requeue::After(left.max(Duration::from_secs(1)))
}

/// The failure to wait out before the same effect is tried again.
pub(super) fn waiting<'a>(observed: &'a Observed, effect: Option<&Effect>, now: Timestamp) -> Option<&'a Trouble> {
    let failed = observed.troubles.iter().find(|(failed, _)| Some(failed) == effect);
    failed.map(|(_, trouble)| trouble).filter(|trouble| trouble.holds(now))
}

impl Step {
    /// The plan for this step, without a status before it is done.
    pub(super) fn plan(self, observed: &Observed, why: &str) -> Plan {
        let annotations = observed.object.journal.difference(&self.journal);
        Plan {
            patch: Patch { annotations, ..Patch::default() },
            effect: self.effect,
            events: self.events,
            ..Plan::nothing(self.requeue, why)
        }
    }

    /// Nothing could be read: what was known stays. That the name is waited for is no knowledge about the record.
    fn silent(mut self, observed: &Observed, reason: &'static str, why: &str) -> Self {
        let told = observed.object.status.conditions.condition(conditions::LOAD_BALANCER_READY);
        if told.is_none_or(|told| told.reason.as_deref() == Some(reasons::WAIT_FOR_DNS_NAME)) {
            self.verdict =
                Some(Verdict::new(conditions::LOAD_BALANCER_READY, ConditionStatus::Undetermined, reason, why));
        }
        self.requeue = ASK_AGAIN;
        self
    }

    /// An effect that failed a moment ago is not tried again at once.
    fn held_back(mut self, observed: &Observed, now: Timestamp) -> Self {
        if let Some(trouble) = waiting(observed, self.effect.as_ref(), now) {
            self.journal = observed.object.journal.clone();
            self.effect = None;
            self.events.clear();
            self.verdict = Some(Verdict::fault(
                conditions::LOAD_BALANCER_READY,
                Severity::Warning,
                reasons::LOAD_BALANCER_FAILED,
                trouble.message.clone(),
            ));
            self.requeue = until(trouble.retry_at, now);
        }
        self
    }
}
