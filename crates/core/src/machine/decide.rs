//! The decision about one machine: whether it is reconciled at all, then provisioning or release.

use capmaas_api::lxd_error::LxdError;
use capmaas_api::names::{
    CONTROL_PLANE_LABEL, DELETE_FOR_MOVE_ANNOTATION, HOST_EVACUATION_FINALIZER, MACHINE_FINALIZER, MANAGED_BY,
    PAUSED_ANNOTATION,
};
use capmaas_api::{Severity, reasons};
use jiff::Timestamp;

use super::journal::{JOURNAL_ANNOTATION, Journal};
use super::status::{self, Progress};
use super::{Access, Effect, Observed, Patch, Plan, SpecPatch, ownership, provisioning, releasing};
use crate::Lookup;
use crate::conditions::whole_seconds;
use crate::credentials::{IDENTITY_ANNOTATION, Name};
use crate::hosts::leaving::ASKED_ANNOTATION;
use crate::origin::WrittenFor;
use crate::pause;
use crate::plan::{Event, Finalizer, Requeue};

/// When to retry a read that failed.
pub(super) const ASK_AGAIN: Requeue = Requeue::seconds(15);

/// One step of a machine, before the status is derived from it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    pub(super) effect: Option<Effect>,
    pub(super) journal: Option<Journal>,
    pub(super) spec: SpecPatch,
    pub(super) finalizer: Finalizer,
    pub(super) progress: Progress,
    /// What is wrong with the VM or its host, for the VM's own conditions.
    pub(super) lxd: Option<LxdError>,
    /// Why the VM was placed where it is, or nowhere.
    pub(super) explained: Option<String>,
    pub(super) events: Vec<Event>,
    pub(super) requeue: Requeue,
}

impl Step {
    pub(super) fn say(progress: Progress, requeue: Requeue) -> Self {
        Self {
            effect: None,
            journal: None,
            spec: SpecPatch::default(),
            finalizer: Finalizer::Keep,
            progress,
            lxd: None,
            explained: None,
            events: Vec::new(),
            requeue,
        }
    }

    pub(super) fn doing(mut self, effect: Effect) -> Self {
        self.effect = Some(effect);
        self
    }

    pub(super) fn writing(mut self, journal: Journal) -> Self {
        self.journal = Some(journal);
        self
    }

    pub(super) fn telling(mut self, warning: bool, reason: &'static str, message: impl Into<String>) -> Self {
        self.events.push(Event { warning, reason, message: message.into() });
        self
    }

    pub(super) fn failing(mut self, error: LxdError) -> Self {
        self.lxd = Some(error);
        self
    }

    pub(super) fn explaining(mut self, sentence: String) -> Self {
        self.explained = Some(sentence);
        self
    }

    pub(super) fn letting_go(mut self) -> Self {
        self.finalizer = Finalizer::Remove;
        self
    }
}

pub(super) fn after(seconds: u64) -> Requeue {
    Requeue::seconds(seconds)
}

/// The plan for a machine that is not reconciled, whatever MAAS shows; `None` if it is reconciled.
pub fn idle(observed: &Observed, now: Timestamp) -> Option<Plan> {
    let metadata = &observed.object.metadata;
    let labelled = metadata.labels.as_ref().is_some_and(|map| map.contains_key(MANAGED_BY));
    // What we allocated is released by us or by nobody, whoever manages the object now (S13).
    let ours_to_end = metadata.deletion_timestamp.is_some() && observed.has_annotation(JOURNAL_ANNOTATION);
    if (labelled || observed.has_annotation(MANAGED_BY)) && !ours_to_end {
        return Some(Plan::nothing(
            Requeue::OnChange,
            "the object is externally managed (cluster.x-k8s.io/managed-by)",
        ));
    }
    // Being moved: the other management cluster has the object already (S15).
    if observed.has_annotation(DELETE_FOR_MOVE_ANNOTATION) {
        return Some(Plan::nothing(Requeue::OnChange, "the object is being moved"));
    }
    let annotated = observed.has_annotation(PAUSED_ANNOTATION);
    match pause::is_paused(annotated, observed.cluster.as_ref().and_then(pause::of_cluster)) {
        Lookup::Unknown(why) => Some(Plan::nothing(ASK_AGAIN, why)),
        Lookup::Found(true) => Some(paused(observed, now)),
        Lookup::Found(false) | Lookup::Absent => None,
    }
}

/// Decides about one machine. Total: every observation yields a plan, without a panic.
pub fn decide(observed: &Observed, now: Timestamp) -> Plan {
    if let Some(plan) = idle(observed, now) {
        return plan;
    }
    let deleting = observed.object.metadata.deletion_timestamp.is_some();
    if deleting && !holds(observed) {
        return Plan::nothing(Requeue::OnChange, "the object is being deleted and has none of our finalizers");
    }
    if let Some(step) = ownership::foreign(observed) {
        return for_another(observed, step, now);
    }
    if observed.is_made_elsewhere() {
        let mut observed = observed.clone();
        if let Access::Granted { identity_changed, .. } = &mut observed.access {
            *identity_changed = true;
        }
        return serve(&observed, now);
    }
    serve(observed, now)
}

/// Whether the object has one of our finalizers.
pub(super) fn holds(observed: &Observed) -> bool {
    let mut finalizers = observed.object.metadata.finalizers.iter().flatten();
    finalizers.any(|name| name == MACHINE_FINALIZER || name == HOST_EVACUATION_FINALIZER)
}

fn serve(observed: &Observed, now: Timestamp) -> Plan {
    let deleting = observed.object.metadata.deletion_timestamp.is_some();
    let step = if deleting { releasing::step(observed, now) } else { provisioning::step(observed, now) };
    plan(observed, step, now)
}

/// The object carries another object's journal: its status reports that, and it may be deleted. Nothing is written to its
/// metadata (S25).
fn for_another(observed: &Observed, step: Step, now: Timestamp) -> Plan {
    Plan {
        status: Some(status::of(observed, &step, now)),
        finalizer: step.finalizer,
        events: step.events,
        ..Plan::nothing(step.requeue, step.progress.message)
    }
}

/// Writes only the condition `Paused`.
fn paused(observed: &Observed, now: Timestamp) -> Plan {
    let status = Some(status::paused(observed, now));
    Plan { status, ..Plan::nothing(Requeue::OnChange, "the object or its Cluster is paused") }
}

fn plan(observed: &Observed, mut step: Step, now: Timestamp) -> Plan {
    let metadata = &observed.object.metadata;
    let has_finalizer = metadata.finalizers.iter().flatten().any(|name| name == MACHINE_FINALIZER);
    // Also if somebody stripped it from an object that holds a machine.
    if step.finalizer == Finalizer::Keep
        && !has_finalizer
        && metadata.deletion_timestamp.is_none()
        && !matches!(observed.machine, Lookup::Absent)
    {
        step.finalizer = Finalizer::Add;
    }
    let noted = metadata.annotations.as_ref().and_then(|map| map.get(IDENTITY_ANNOTATION));
    let stored = observed.journal();
    let identity = match (&observed.access, step.journal.is_some() || stored.is_some()) {
        (Access::Granted { name, identity_changed: false, .. }, true) => (noted != Some(name)).then(|| name.clone()),
        _ => None,
    };
    let status = status::of(observed, &step, now);
    if identity.is_some() {
        step.journal = step.journal.or_else(|| stored.cloned());
    }
    if let Some(journal) = &mut step.journal {
        journal.written_for = Some(WrittenFor::of(metadata));
        // The machines allocated so far belong to that user in MAAS.
        let user_of = |name: &String| Name::parts(name).map(|(_, user)| user.to_owned());
        if let (Some(before), Some(after)) = (noted.and_then(user_of), identity.as_ref().and_then(user_of))
            && before != after
            && !journal.earlier_users.contains(&before)
        {
            journal.earlier_users.push(before);
        }
    }
    step.journal = step.journal.filter(|journal| stored != Some(journal));
    let held = has_finalizer || step.finalizer == Finalizer::Add;
    let mut patch = Patch {
        journal: None,
        recalled: None,
        identity,
        asked: asked_anew(observed, now),
        control_plane: held && says_nothing_of_its_control_plane(observed),
        spec: step.spec,
    };
    // A pass without an effect that requeues at once must store its journal: a manager that lost a recalled one would repeat the
    // pass forever.
    let moves = step.effect.is_some() || step.requeue != Requeue::NOW;
    let alone = moves && patch == Patch::default() && step.finalizer == Finalizer::Keep;
    match step.journal {
        Some(journal) if alone && stored.is_some_and(|stored| journal.is_observable_beyond(stored)) => {
            patch.recalled = Some(journal);
        }
        journal => patch.journal = journal,
    }
    Plan {
        patch,
        finalizer: step.finalizer,
        effect: step.effect,
        status: Some(status),
        events: step.events,
        requeue: step.requeue,
        why: step.progress.message,
    }
}

/// Whether a control plane machine lacks the label that its Machine has.
fn says_nothing_of_its_control_plane(observed: &Observed) -> bool {
    let labelled = observed.object.metadata.labels.as_ref().is_some_and(|map| map.contains_key(CONTROL_PLANE_LABEL));
    let granted = matches!(observed.access, Access::Granted { .. });
    granted && observed.is_control_plane() && !labelled
}

/// Whether this may be another MAAS than the one in which the machine was created: a machine with the same ID that carries
/// neither our idempotency key nor our stamp need not be the same machine (S5). Another user of the same MAAS sees the same
/// machines.
pub(super) fn is_elsewhere(observed: &Observed) -> bool {
    let Access::Granted { name, identity_changed: true, .. } = &observed.access else { return false };
    let recorded = observed.object.metadata.annotations.as_ref().and_then(|map| map.get(IDENTITY_ANNOTATION));
    let endpoint = |name: &str| Name::parts(name).map(|(endpoint, _)| endpoint.to_owned());
    recorded.is_none_or(|recorded| endpoint(recorded).is_none() || endpoint(recorded) != endpoint(name))
}

/// The time to write instead of a registration time that may be any, because it cannot be read or a fast clock wrote it: now, so
/// that the wait for it ends (S2).
fn asked_anew(observed: &Observed, now: Timestamp) -> Option<Timestamp> {
    let asked = observed.object.metadata.annotations.as_ref()?.get(ASKED_ANNOTATION)?;
    let known = asked.parse::<Timestamp>().is_ok_and(|asked| asked <= now);
    (!known).then(|| whole_seconds(now))
}

/// A step that only reports that something is not known.
pub(super) fn unknown(reason: &'static str, message: impl Into<String>) -> Step {
    Step::say(Progress::unknown(reason, message), ASK_AGAIN)
}

/// A step that only reports that something else must come first.
pub(super) fn waiting(reason: &'static str, message: impl Into<String>) -> Step {
    Step::say(Progress::not_yet(Severity::Info, reason, message), Requeue::OnChange)
}

/// A step that leaves everything alone until a person acts.
pub(super) fn left_alone(reason: &'static str, message: impl Into<String>) -> Step {
    Step::say(Progress::not_yet(Severity::Error, reason, message), after(300))
}

/// The machine could not be read.
pub(super) fn unseen(why: &str) -> Step {
    unknown(reasons::MAAS_UNAVAILABLE, why)
}
