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

use anyhow::bail;
use capmaas_core::forecast::{self, Action, Fate, Forecast, Group, Impact, Lost};
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
}

impl Answer {
    /// Whether everything fits, and everything that is lost recovers by itself. `None`: unknown, because something is not
    /// planned. What is missing already is missing in any case.
    pub fn fits(&self) -> Option<bool> {
        let comes_back = |impact: &Impact| matches!(impact.fate, Fate::Untouched | Fate::Recovers);
        let fits = self.forecast.fits() && self.impacts.iter().all(comes_back);
        if fits && !self.unplanned.is_empty() { None } else { Some(fits) }
    }
}

pub fn answer(
    inventory: &forecast::Inventory,
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
    // The other groups change nothing, but machines that they still wait for count as demand.
    for group in desired.groups.iter_mut().filter(|group| !is_asked(group)) {
        group.replicas = group.members.iter().filter(|member| !member.leaving).count();
        for member in &mut group.members {
            member.outdated = false;
        }
    }
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
        let forecast = forecast::forecast(inventory, &desired.groups, now);
        desired.unplanned.extend(evacuations(&forecast));
        return Ok(Answer { forecast, impacts: Vec::new(), notes: desired.notes, unplanned: desired.unplanned });
    }
    let lost = match Lost::all(inventory, &question.without) {
        Ok(lost) => lost,
        Err(name) => bail!(
            "--without {name}: MAAS has no zone, VM host or machine of that name; kubectl maas hosts shows zones and hosts"
        ),
    };
    let mut impacts = forecast::without(inventory, &desired.groups, &desired.checks, &lost, now);
    impacts.retain(|impact| desired.groups.iter().any(|group| is_asked(group) && group.cluster == impact.cluster));
    if let Some(why) = &desired.checks_unread {
        desired.unplanned.extend(impacts.iter().map(|impact| Unplanned {
            cluster: impact.cluster.clone(),
            why: format!("{}: whether anything replaces its lost machines is unknown: {why}", impact.cluster),
        }));
    }
    Ok(Answer { forecast: Forecast::default(), impacts, notes: desired.notes, unplanned: desired.unplanned })
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
