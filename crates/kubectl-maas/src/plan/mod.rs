//! `kubectl maas plan`: does a change fit, and what is lost with a rack?

mod changes;
mod groups;
mod objects;
mod render;
mod scale;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_changes;
#[cfg(test)]
mod tests_of_unlisted;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use capmaas_core::forecast::{self, Action, Fate, Forecast, Group, Impact, Lost, Step};
use capmaas_core::intent::Intent;
use jiff::Timestamp;

pub use groups::{Desired, Unplanned, desired, system_id};
pub use objects::Objects;
pub use render::{render, to_json};

#[derive(Debug, Clone, Default)]
pub struct Question {
    /// Only these clusters, by name; empty: all.
    pub clusters: Vec<String>,
    /// Every machine is replaced.
    pub upgrade: bool,
    /// Groups that get other numbers of machines: `md-0=5`.
    pub scale: Vec<String>,
    /// Hosts, machines or zones that are lost.
    pub without: Vec<String>,
}

#[derive(Debug)]
pub struct Answer {
    pub forecast: Forecast,
    /// What each cluster loses, if requested.
    pub impacts: Vec<Impact>,
    /// What is planned differently than one might expect.
    pub notes: Vec<String>,
    /// What is not planned.
    pub unplanned: Vec<Unplanned>,
    /// Machines go that MAAS does not list, so what they leave is not counted.
    leaves_unlisted: bool,
}

impl Answer {
    /// Whether everything fits, and everything that is lost recovers by itself. `None`: unknown, because something is not
    /// planned. What is missing already is missing in any case, unless machines of unknown size leave something.
    pub fn fits(&self) -> Option<bool> {
        let comes_back = |impact: &Impact| matches!(impact.fate, Fate::Untouched | Fate::Recovers);
        let fits = self.forecast.fits() && self.impacts.iter().all(comes_back);
        let is_known = if fits { self.unplanned.is_empty() } else { !self.leaves_unlisted };
        is_known.then_some(fits)
    }
}

pub fn answer(
    listed: &forecast::Inventory,
    mut desired: Desired,
    question: &Question,
    now: Timestamp,
) -> anyhow::Result<Answer> {
    if desired.groups.is_empty() && desired.notes.is_empty() && desired.unplanned.is_empty() {
        bail!("there is no cluster to plan here: give manifests with -f, another namespace with -n, or all with -A");
    }
    let is = |cluster: &str, name: &str| cluster == name || cluster.split_once('/').is_some_and(|(_, it)| it == name);
    let names = |cluster: &str| question.clusters.is_empty() || question.clusters.iter().any(|name| is(cluster, name));
    let is_asked = |group: &Group| names(&group.cluster);
    for name in &question.clusters {
        let mut clusters =
            desired.groups.iter().map(|it| &it.cluster).chain(desired.unplanned.iter().map(|it| &it.cluster));
        if !clusters.any(|cluster| is(cluster, name)) {
            bail!("there is no cluster {name} with machines to plan; name one as kubectl get clusters shows it");
        }
    }
    for scaling in &question.scale {
        scale::scale(&mut desired, scaling, names)?;
    }
    desired.unplanned.retain(|it| names(&it.cluster));
    let unlisted = unlisted(listed, &desired, names);
    desired.unplanned.extend(unlisted.iter().map(|(cluster, machines)| Unplanned {
        cluster: cluster.clone(),
        why: format!(
            "{cluster}: your key, or the inventory, does not show {}; use an administrator's key, or an inventory that it exported",
            machines.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
        ),
    }));
    let mut inventory = listed.clone();
    inventory.complete(&desired.groups);
    desired.groups.iter_mut().filter(|group| !is_asked(group)).for_each(keep);
    if question.upgrade {
        for member in desired.groups.iter_mut().filter(|group| is_asked(group)).flat_map(|group| &mut group.members) {
            member.outdated = true;
        }
    }
    if question.without.is_empty() {
        let stays = |group: &&Group| !group.rolls && group.members.iter().any(|member| member.outdated);
        desired.notes.extend(desired.groups.iter().filter(stays).map(|group| {
            format!(
                "the machines of {} in {} change only when a person deletes them; they are left as they are",
                group.name, group.cluster
            )
        }));
        let forecast = forecast::forecast(&inventory, &desired.groups, now);
        desired.unplanned.extend(evacuations(&forecast));
        let goes = |step: &Step| matches!(step.action, Action::Delete { .. });
        let is_unlisted = |step: &Step| unlisted.get(&step.cluster).is_some_and(|it| it.contains(&step.machine));
        let leaves_unlisted = forecast.steps.iter().any(|step| goes(step) && is_unlisted(step));
        let Desired { notes, unplanned, .. } = desired;
        return Ok(Answer { forecast, impacts: Vec::new(), notes, unplanned, leaves_unlisted });
    }
    let lost = match Lost::all(&inventory, &question.without) {
        Ok(lost) => lost,
        Err(name) => bail!(
            "--without {name}: MAAS has no zone, VM host or machine of that name; kubectl maas hosts shows zones and hosts"
        ),
    };
    let mut impacts = forecast::without(&inventory, &desired.groups, &desired.checks, &lost, now);
    impacts.retain(|impact| desired.groups.iter().any(|group| is_asked(group) && group.cluster == impact.cluster));
    if let Some(why) = &desired.checks_unread {
        desired.unplanned.extend(impacts.iter().map(|impact| Unplanned {
            cluster: impact.cluster.clone(),
            why: format!("{}: whether anything replaces its lost machines is unknown: {why}", impact.cluster),
        }));
    }
    let Desired { notes, unplanned, .. } = desired;
    Ok(Answer { forecast: Forecast::default(), impacts, notes, unplanned, leaves_unlisted: false })
}

/// Leaves a group that nobody asks about as it is. Machines that it still lacks count as demand.
fn keep(group: &mut Group) {
    let members = group.members.iter().filter(|member| !member.leaving).count();
    group.replicas = group.replicas.max(members);
    for member in &mut group.members {
        member.outdated = false;
    }
}

/// The machines that Kubernetes has and MAAS does not list, by cluster: a key that is no administrator's shows free machines
/// and the user's own. Where they are and what they leave is unknown.
fn unlisted(
    inventory: &forecast::Inventory,
    desired: &Desired,
    is_asked: impl Fn(&str) -> bool,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut unlisted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for group in desired.groups.iter().filter(|group| is_asked(&group.cluster)) {
        let stays = group.members.iter().filter(|member| !member.leaving);
        for member in stays.filter(|it| it.machine.as_ref().is_some_and(|id| !inventory.lists(id))) {
            unlisted.entry(group.cluster.clone()).or_default().insert(member.name.clone());
        }
    }
    unlisted
}

/// LXD hosts that are deleted with VMs on them. Their VMs are replaced on other hosts, among them the new ones, whose
/// capacity nobody knows yet.
fn evacuations(forecast: &Forecast) -> impl Iterator<Item = Unplanned> {
    forecast.steps.iter().filter_map(|step| {
        let Action::Delete { hosted_vms: 1.. } = step.action else { return None };
        let why = format!("where the VMs on {} are replaced is not planned", step.machine);
        Some(Unplanned { cluster: step.cluster.clone(), why })
    })
}

/// Whether any VM names an LXD project, which costs a read per host from MAAS.
pub fn asks_for_projects(desired: &Desired) -> bool {
    let named = |group: &Group| matches!(&group.intent, Ok(Intent::Vm(vm)) if vm.project.is_some());
    desired.groups.iter().any(named)
}
