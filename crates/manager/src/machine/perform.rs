//! All writes of a pass: journal first, then the one effect, then the status.

use std::time::Duration;

use capmaas_api::names::{HOST_EVACUATION_FINALIZER, MACHINE_FINALIZER};
use capmaas_api::{Condition, MaasMachine, MaasMachineStatus, Severity};
use capmaas_core::Lookup;
use capmaas_core::backoff::Request;
use capmaas_core::machine::{Effect, JOURNAL_ANNOTATION, Journal, Observed, Plan, conclude};
use capmaas_core::plan::{Event, Finalizer, Outcome, Requeue};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::effects;
use super::observe::Session;
use super::pending_status::Unwritten;
use super::{Context, Seen};
use crate::kubernetes::{self, Error, ErrorKind, Guard, Key, Kind, Kubernetes, Result};
use crate::reconcile::{self, patch_of, while_waiting};
use capmaas_core::maas;

/// The finalizer that we add; the other one is the Go provider's and is removed together with it.
const FINALIZERS: &[&str] = &[MACHINE_FINALIZER, HOST_EVACUATION_FINALIZER];

/// The result of performing a plan.
pub(super) struct Performed {
    pub(super) requeue: Requeue,
    /// The object as it was last written.
    pub(super) object: MaasMachine,
    /// The journal, including what is not stored yet.
    pub(super) journal: Option<Journal>,
    pub(super) unwritten: Option<Unwritten>,
    /// The machine as MAAS last showed it, if nothing has changed it since.
    pub(super) machine: Option<maas::Machine>,
}

/// Performs a plan. A write that conflicts with another version of the object ends the pass.
pub(super) async fn perform(context: &Context, key: &Key, seen: &Seen, mut plan: Plan) -> Result<Performed> {
    let (observed, session, mut outdated) = (&seen.observed, seen.session.as_ref(), seen.outdated);
    let kubernetes = context.kubernetes.as_ref();
    let mut object = observed.object.clone();
    let uid = object.uid().unwrap_or_default();
    let request = asked(&plan, session);
    warn(context, key, &uid, &mut plan.events).await;
    // Even with nothing to journal, an effect applies only to the exact object that was observed (S15).
    let patch = patch_of(&object, &plan, FINALIZERS);
    let just_written = patch.is_some();
    if let Some(patch) = patch {
        object = store(kubernetes, key, &object, patch).await?;
        if let Some(status) = &mut plan.status {
            carry_over(status, observed.object.metadata.generation, object.metadata.generation);
        }
    }
    if plan.finalizer == Finalizer::Remove {
        context.backoff.forget(key);
        publish(context, key, &uid, &plan.events).await;
        return Ok(Performed { requeue: Requeue::OnChange, object, journal: None, unwritten: None, machine: None });
    }
    let mut journal = plan.journal().or(observed.journal()).cloned();
    let mut machine = match &observed.in_journal {
        Lookup::Found(machine) => Some(machine.clone()),
        Lookup::Absent | Lookup::Unknown(_) => None,
    };
    if let (Some(effect), Some(session)) = (plan.effect.take(), session) {
        if effect.is_destructive() && !is_still_wanted(context, key, observed, &object, just_written).await? {
            return Ok(Performed {
                requeue: Requeue::After(Duration::from_secs(1)),
                object,
                journal: None,
                unwritten: None,
                machine: None,
            });
        }
        // The MAAS client checks again when it sends; effects outside MAAS are checked here (S23).
        context.fence.check().map_err(|error| {
            Error::new(ErrorKind::Denied, format!("{} for {key}", effect.name()), error.to_string())
        })?;
        let performing = effects::perform(context, key, observed, &effect, session);
        let outcome =
            while_waiting(kubernetes, key, &mut object, plan.status.as_ref(), &mut outdated, performing).await;
        tracing::info!(machine = %key, effect = effect.name(), system_id = effect.machine(), ?outcome, "done");
        let mut conclusion = conclude(observed, &plan, &effect, &outcome, context.clock.now());
        warn(context, key, &uid, &mut conclusion.events).await;
        if let Some(concluded) = conclusion.journal {
            object = remember(kubernetes, key, object, &concluded).await?;
            journal = Some(concluded);
        }
        plan.status = conclusion.status;
        plan.requeue = context.backoff.conclude(key, request, &outcome, conclusion.requeue, context.clock.now());
        plan.events.extend(conclusion.events);
        // With more than one machine under our key, the allocation's answer proves nothing until all of them are
        // observed.
        let alone = !matches!(&observed.by_key, Lookup::Found(found) if !found.is_empty());
        let counts =
            |machine: &maas::Machine| effect.shows_in(machine) && (alone || !matches!(effect, Effect::Allocate { .. }));
        machine = match outcome {
            Outcome::Done(answered) => answered.map(|machine| *machine).filter(counts),
            Outcome::Refused(..) | Outcome::Unknown(_) => None,
        };
    }
    let news = plan.status.filter(|status| object.status.as_ref() != Some(status));
    let (news, unwritten): (Option<_>, Option<_>) = match news {
        Some(status) if is_passing(&status, plan.requeue) => {
            (None, Some(Unwritten { status, since: outdated.unwrap_or_else(Instant::now) }))
        }
        news => (news, None),
    };
    if let Some(status) = news {
        let value = serde_json::to_value(&status).unwrap_or_default();
        let version = kubernetes.apply_status(Kind::MaasMachine, key, &Guard::of(&object), value).await?;
        object.metadata.resource_version = Some(version.resource_version);
        object.status = Some(status);
    }
    publish(context, key, &uid, &plan.events).await;
    Ok(Performed { requeue: plan.requeue, object, journal, unwritten, machine })
}

/// The request that the plan sends to MAAS.
pub(super) fn asked(plan: &Plan, session: Option<&Session>) -> Option<Request> {
    Some(plan.effect.as_ref()?.request(&session?.identity.name.to_string()))
}

/// Journals the result of an effect. Somebody may have changed or deleted the object in the meantime; as long as its
/// journal is the one written before the effect, the result still applies. If it were lost, the next pass would have to
/// wait until the answered write can no longer land (S2).
async fn remember(
    kubernetes: &dyn Kubernetes,
    key: &Key,
    object: MaasMachine,
    journal: &Journal,
) -> Result<MaasMachine> {
    let patch = json!({ "metadata": { "annotations": { JOURNAL_ANNOTATION: journal.text() } } });
    let error = match store(kubernetes, key, &object, patch.clone()).await {
        Err(error) if error.kind == ErrorKind::Conflict => error,
        done => return done,
    };
    let noted = |object: &MaasMachine| object.annotations().get(JOURNAL_ANNOTATION).cloned();
    match kubernetes.maas_machine(key).await? {
        Some(now) if now.uid() == object.uid() && noted(&now) == noted(&object) => {
            store(kubernetes, key, &now, patch).await
        }
        _ => Err(error),
    }
}

/// Other passes see at once what the object claims now.
async fn store(kubernetes: &dyn Kubernetes, key: &Key, object: &MaasMachine, patch: Value) -> Result<MaasMachine> {
    let stored = kubernetes::patch(kubernetes, key, &Guard::of(object), patch).await?;
    if let Ok(index) = kubernetes.machine_index().await {
        index.stored(&stored);
    }
    Ok(stored)
}

/// A plan takes its own change to the spec into account, so its status already holds for the generation that this
/// change creates. Otherwise the next pass would write the same status again.
fn carry_over(status: &mut MaasMachineStatus, before: Option<i64>, after: Option<i64>) {
    for condition in status.conditions.iter_mut().filter(|condition| condition.observed_generation == before) {
        condition.observed_generation = after;
    }
}

/// Whether a status shows only an intermediate step and the next pass follows immediately: that pass writes its own
/// status, or this one if it has to wait. Problems are always written.
fn is_passing(status: &MaasMachineStatus, requeue: Requeue) -> bool {
    let trouble = |condition: &Condition| matches!(condition.severity, Some(Severity::Warning | Severity::Error));
    requeue == Requeue::NOW && !status.ready && !status.conditions.iter().any(trouble)
}

/// Reads the object and its Cluster again, right before a machine may lose something (S15). An object that has just been
/// written is not read: the write applied only to the version that was observed, and its answer is a live read.
async fn is_still_wanted(
    context: &Context,
    key: &Key,
    observed: &Observed,
    object: &MaasMachine,
    just_written: bool,
) -> Result<bool> {
    let cluster = match &observed.cluster {
        Lookup::Found(cluster) => Some(key.beside(cluster.name_any())),
        Lookup::Absent => None,
        Lookup::Unknown(_) => return Ok(false),
    };
    let kubernetes = context.kubernetes.as_ref();
    let now = if just_written { Some(object.clone()) } else { kubernetes.maas_machine(key).await? };
    reconcile::is_still_wanted(kubernetes, object, now, cluster.as_ref()).await
}

/// Publishes warnings before the journal records the matter as closed: a crash in between publishes them twice. In the
/// other order they would be lost (S12).
async fn warn(context: &Context, key: &Key, uid: &str, events: &mut Vec<Event>) {
    let (warnings, others) = std::mem::take(events).into_iter().partition::<Vec<_>, _>(|event| event.warning);
    *events = others;
    publish(context, key, uid, &warnings).await;
}

async fn publish(context: &Context, key: &Key, uid: &str, events: &[Event]) {
    for _ in events.iter().filter(|event| event.reason == "MachineAbandoned") {
        context.metrics.abandoned();
    }
    reconcile::publish(context.kubernetes.as_ref(), Kind::MaasMachine, key, uid, events).await;
}

#[cfg(test)]
mod tests {
    use capmaas_core::machine::Allocation;

    use super::super::fixture::remembering;
    use super::*;
    use crate::clock::Clock;
    use crate::kubernetes::MemoryKubernetes;

    #[tokio::test]
    async fn what_an_effect_led_to_is_remembered_also_of_an_object_that_somebody_changed_meanwhile() {
        let (clock, _driver) = Clock::driven(jiff::Timestamp::UNIX_EPOCH);
        let (port, key, before) = (MemoryKubernetes::new(clock), Key::new("n", "m"), Journal::new("u"));
        port.create(remembering("m", &before)).unwrap();
        let seen = port.maas_machine(&key).await.unwrap().unwrap();
        port.edit("MaasMachine", &key, &json!({ "metadata": { "labels": { "a": "b" } } })).unwrap();
        let after = Journal { allocation: Some(Allocation::of("abc123")), ..before };
        let stored = remember(&port, &key, seen.clone(), &after).await.unwrap();
        assert_eq!(stored.annotations().get(JOURNAL_ANNOTATION), Some(&after.text()));
        assert!(stored.labels().contains_key("a"));
        // The journal itself has changed: what was observed does not apply to it.
        let error = remember(&port, &key, seen, &Journal::new("u")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Conflict);
    }

    #[test]
    fn a_status_is_skipped_only_where_a_pass_follows_immediately() {
        let status = MaasMachineStatus::default();
        assert!(is_passing(&status, Requeue::NOW));
        assert!(!is_passing(&status, Requeue::seconds(1)));
        assert!(!is_passing(&status, Requeue::OnChange));
    }
}
