//! `kubectl maas plan`: does a change fit, and what is lost with a rack?

mod groups;
mod objects;
mod render;
#[cfg(test)]
mod tests;

use anyhow::bail;
use capmaas_core::forecast::{self, Fate, Forecast, Group, Impact, Lost};
use capmaas_core::intent::Intent;
use jiff::Timestamp;

pub use groups::{Desired, desired, system_id};
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
    /// Messages about what could not be planned.
    pub notes: Vec<String>,
}

impl Answer {
    /// Whether everything fits, and everything that is lost recovers by itself.
    pub fn is_good(&self) -> bool {
        let comes_back = |impact: &Impact| matches!(impact.fate, Fate::Untouched | Fate::Recovers);
        self.forecast.fits() && self.impacts.iter().all(comes_back)
    }
}

pub fn answer(
    inventory: &forecast::Inventory,
    mut desired: Desired,
    question: &Question,
    now: Timestamp,
) -> anyhow::Result<Answer> {
    if desired.groups.is_empty() && desired.notes.is_empty() {
        bail!("there is no cluster to plan here: give manifests with -f, another namespace with -n, or all with -A");
    }
    for scaling in &question.scale {
        groups::scale(&mut desired.groups, scaling)?;
    }
    let is_asked = |group: &Group| {
        let short = group.cluster.split_once('/').map_or("", |(_, name)| name);
        question.clusters.is_empty() || question.clusters.iter().any(|name| name == short || *name == group.cluster)
    };
    for name in &question.clusters {
        let is = |group: &Group| group.cluster == *name || group.cluster.ends_with(&format!("/{name}"));
        if !desired.groups.iter().any(is) {
            bail!("there is no cluster {name} with machines to plan; name one as kubectl get clusters shows it");
        }
    }
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
        let forecast = forecast::forecast(inventory, &desired.groups, now);
        return Ok(Answer { forecast, impacts: Vec::new(), notes: desired.notes });
    }
    let lost = match Lost::all(inventory, &question.without) {
        Ok(lost) => lost,
        Err(name) => bail!(
            "--without {name}: MAAS has no zone, VM host or machine of that name; kubectl maas hosts shows zones and hosts"
        ),
    };
    let mut impacts = forecast::without(inventory, &desired.groups, &desired.checks, &lost, now);
    impacts.retain(|impact| desired.groups.iter().any(|group| is_asked(group) && group.cluster == impact.cluster));
    Ok(Answer { forecast: Forecast::default(), impacts, notes: desired.notes })
}

/// Whether any VM names an LXD project, which costs a read per host from MAAS.
pub fn asks_for_projects(desired: &Desired) -> bool {
    let named = |group: &Group| matches!(&group.intent, Ok(Intent::Vm(vm)) if vm.project.is_some());
    desired.groups.iter().any(named)
}
