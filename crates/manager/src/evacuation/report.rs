//! The condition `Evacuating` on hosts and clusters, events and metrics.

use std::collections::{BTreeMap, BTreeSet};

use capmaas_api::names::{DELETE_FOR_MOVE_ANNOTATION, PAUSED_ANNOTATION};
use capmaas_api::{Condition, Conditions as _, MaasMachine, conditions, reasons};
use capmaas_core::Lookup;
use capmaas_core::conditions::{Verdict, replace};
use capmaas_core::evacuation::{Fate, Plan, Waiting, cluster_verdicts, ended, host_verdict};
use capmaas_core::text::beginning;
use kube::ResourceExt as _;
use serde_json::Value;

use super::gather::name;
use super::{Context, World, cluster_of};
use crate::kubernetes::{Guard, Key, Kind, ObjectEvent, Result};

/// The longest message of the condition. `kubectl maas maintenance status` prints it whole.
const LONGEST: usize = 4096;

/// Merges what was observed through another identity. Two identities of one MAAS see the same hosts, but perhaps not
/// the same VMs, and only one of them knows what happens to a given VM.
pub(super) fn merge(plan: &mut Plan, other: Plan) {
    for host in other.hosts {
        let same = plan.hosts.iter_mut().find(|it| it.object == host.object && it.name == host.name);
        match (same, host.guests) {
            (Some(seen), Lookup::Found(guests)) => match &mut seen.guests {
                Lookup::Found(all) => {
                    for guest in guests {
                        match all.iter_mut().find(|old| old.name == guest.name) {
                            None => all.push(guest),
                            Some(old) if matches!(old.fate, Fate::Waits(Waiting::OtherIdentity(_))) => *old = guest,
                            Some(_) => {}
                        }
                    }
                }
                other => *other = Lookup::Found(guests),
            },
            (Some(_), _) => {}
            (None, guests) => plan.hosts.push(capmaas_core::evacuation::HostOutlook { guests, ..host }),
        }
    }
}

/// Writes to every affected object what happens to its VMs, and to objects that were affected before that it is over.
/// `looked_at` are the Clusters whose MAAS has answered: nothing is known about others.
pub(super) async fn report(context: &Context, world: &World, plan: &Plan, looked_at: &BTreeSet<Key>) {
    count(context, plan);
    let hosts: BTreeMap<_, _> =
        plan.hosts.iter().filter_map(|host| Some((host.object.clone()?, host_verdict(host)))).collect();
    for (key, machine) in &world.machines {
        let said = machine.status.as_ref().and_then(|status| status.conditions.condition(conditions::EVACUATING));
        let verdict = match hosts.get(&name(key)) {
            Some(verdict) => verdict.clone(),
            None if said.is_some() && looked_at.contains(&cluster_of(machine)) => ended(),
            None => continue,
        };
        log_failure(report_machine(context, key, machine, verdict).await, key);
    }
    let mut clusters = cluster_verdicts(plan);
    for (cluster, object) in &world.clusters {
        let said = object.status.as_ref().and_then(|status| status.conditions.condition(conditions::EVACUATING));
        let verdict = match clusters.remove(&name(cluster)) {
            Some(verdict) => verdict,
            None if said.is_some() && looked_at.contains(cluster) => ended(),
            None => continue,
        };
        log_failure(report_cluster(context, &Key::of(object.as_ref()), verdict).await, cluster);
    }
}

fn log_failure(result: Result<()>, key: &Key) {
    if let Err(error) = result {
        tracing::debug!(object = %key, %error, "the condition Evacuating was not written; the next pass tries again");
    }
}

async fn report_machine(context: &Context, key: &Key, seen: &MaasMachine, verdict: Verdict) -> Result<()> {
    let seen = seen.status.as_ref().map_or(&[][..], |status| &status.conditions);
    if shows(seen, &verdict) {
        return Ok(());
    }
    let Some(object) = context.kubernetes.maas_machine(key).await? else { return Ok(()) };
    let mut status = object.status.clone().unwrap_or_default();
    if !may_write(object.annotations(), &status.conditions) || !status.unreadable.is_empty() {
        return Ok(());
    }
    if !put(context, &mut status.conditions, verdict, object.metadata.generation) {
        return Ok(());
    }
    let status = serde_json::to_value(status).unwrap_or(Value::Null);
    context.kubernetes.apply_status(Kind::MaasMachine, key, &Guard::of(&object), status).await.map(drop)
}

async fn report_cluster(context: &Context, key: &Key, verdict: Verdict) -> Result<()> {
    let Some(object) = context.kubernetes.maas_cluster(key).await? else { return Ok(()) };
    let mut status = object.status.clone().unwrap_or_default();
    if !may_write(object.annotations(), &status.conditions) || !status.unreadable.is_empty() {
        return Ok(());
    }
    if shows(&status.conditions, &verdict) || !put(context, &mut status.conditions, verdict, object.metadata.generation)
    {
        return Ok(());
    }
    let status = serde_json::to_value(status).unwrap_or(Value::Null);
    context.kubernetes.apply_status(Kind::MaasCluster, key, &Guard::of(&object), status).await.map(drop)
}

/// Whether the object already shows exactly this.
fn shows(conditions: &[Condition], verdict: &Verdict) -> bool {
    conditions.condition(conditions::EVACUATING).is_some_and(|said| {
        said.status == verdict.status
            && said.reason.as_deref() == Some(verdict.reason)
            && said.message.as_deref().unwrap_or_default() == beginning(&verdict.message, LONGEST)
    })
}

/// An object that is paused or being moved is not written (S15).
fn may_write(annotations: &BTreeMap<String, String>, conditions: &[Condition]) -> bool {
    ![PAUSED_ANNOTATION, DELETE_FOR_MOVE_ANNOTATION].iter().any(|name| annotations.contains_key(*name))
        && !conditions.is_true(conditions::PAUSED)
}

fn put(context: &Context, all: &mut Vec<Condition>, mut verdict: Verdict, generation: Option<i64>) -> bool {
    verdict.message.truncate(beginning(&verdict.message, LONGEST).len());
    let settled = verdict.settle(all, generation, context.clock.now());
    let new = settled.is_some();
    if let Some(condition) = settled {
        replace(all, condition);
    }
    new
}

fn count(context: &Context, plan: &Plan) {
    let mut counts: BTreeMap<&'static str, i64> = BTreeMap::new();
    for guest in plan.hosts.iter().filter_map(|host| host.guests.found()).flatten() {
        let state = match &guest.fate {
            Fate::Goes | Fate::Leaves => "Leaving",
            Fate::Waits(waiting) => waiting.word(),
        };
        *counts.entry(state).or_default() += 1;
    }
    context.metrics.evacuating(&counts);
}

/// Publishes that the Machine of an object was deleted.
pub(super) async fn deleted(context: &Context, object: &MaasMachine, machine: &Key) {
    let host = object.status.as_ref().and_then(|status| status.lxd_host.clone()).unwrap_or_default();
    let event = ObjectEvent {
        kind: Kind::MaasMachine,
        key: Key::of(object),
        uid: object.uid().unwrap_or_default(),
        warning: false,
        reason: reasons::EVACUATING.to_owned(),
        message: format!(
            "the Machine {machine} is deleted, because the LXD host {host} is being evacuated; its owner replaces it"
        ),
    };
    if let Err(error) = context.kubernetes.publish(&event).await {
        tracing::debug!(%error, "an event could not be published");
    }
}
