//! What is lost with a host or a zone, and what recovers by itself.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{Group, Inventory, Member, Missing, Role, forecast};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lost {
    /// Machines by their system ID, VMs included.
    pub machines: BTreeSet<String>,
    /// LXD hosts by their ID.
    pub hosts: BTreeSet<i64>,
    pub zones: BTreeSet<String>,
}

impl Lost {
    /// Resolves a name: a zone, an LXD host (by name or ID), or a machine (by host name or system ID) with the LXD host on it. A
    /// VM is lost with its host. `None`: MAAS has nothing of that name.
    pub fn named(inventory: &Inventory, name: &str) -> Option<Self> {
        let mut lost = Self::default();
        let is_zone = inventory.zones.contains(name);
        if is_zone {
            lost.zones.insert(name.to_owned());
        }
        for machine in &inventory.machines {
            let is_lost = if is_zone { machine.zone == name } else { machine.id == name || machine.hostname == name };
            if is_lost {
                lost.machines.insert(machine.id.clone());
            }
        }
        for host in &inventory.hosts {
            let with_zone = is_zone && host.zone.as_ref().is_some_and(|zone| zone.name == name);
            let named = !is_zone && (host.name == name || host.id.to_string() == name);
            let beneath = host.system_id.as_ref().is_some_and(|id| lost.machines.contains(id));
            if with_zone || named || beneath {
                lost.hosts.insert(host.id);
                lost.machines.extend(host.system_id.clone());
            }
        }
        let hosted = inventory.machines.iter().filter(|it| it.vm_host.is_some_and(|host| lost.hosts.contains(&host)));
        let hosted: Vec<String> = hosted.map(|machine| machine.id.clone()).collect();
        lost.machines.extend(hosted);
        (lost != Self::default()).then_some(lost)
    }

    /// Resolves all names together. The error is a name that resolves to nothing.
    pub fn all<'a>(inventory: &Inventory, names: &'a [String]) -> Result<Self, &'a str> {
        let mut all = Self::default();
        for name in names {
            let lost = Self::named(inventory, name).ok_or(name.as_str())?;
            all.machines.extend(lost.machines);
            all.hosts.extend(lost.hosts);
            all.zones.extend(lost.zones);
        }
        Ok(all)
    }

    fn takes(&self, member: &Member) -> bool {
        match &member.machine {
            Some(id) => {
                self.machines.contains(id) || member.zone.as_ref().is_some_and(|zone| self.zones.contains(zone))
            }
            None => false,
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct HealthCheck {
    pub name: String,
    /// Namespace and name of its Cluster.
    pub cluster: String,
    /// The names of the machines that it checks and may replace.
    pub machines: BTreeSet<String>,
    /// With fewer unhealthy machines than this it does nothing.
    pub least_unhealthy: usize,
    /// With more unhealthy machines than this it does nothing.
    pub most_unhealthy: Option<usize>,
}

impl HealthCheck {
    /// The bound that keeps it from doing anything about so many unhealthy machines.
    fn idle(&self, unhealthy: usize) -> Option<String> {
        if unhealthy < self.least_unhealthy {
            return Some(format!("fewer than {}", self.least_unhealthy));
        }
        self.most_unhealthy.filter(|most| unhealthy > *most).map(|most| format!("more than {most}"))
    }
}

/// What happens to a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It loses nothing.
    Untouched,
    /// It replaces what it lost by itself.
    Recovers,
    /// It keeps running, but a person has to replace what it lost.
    NeedsPerson { why: String },
    /// It keeps running, but there is nothing to replace what it lost with.
    CannotReplace {
        /// What is missing.
        missing: Vec<Missing>,
    },
    /// More than half of its etcd members are lost: its API server is down until they are back or etcd is restored.
    LosesQuorum,
}

#[derive(Debug, Clone)]
pub struct Impact {
    pub cluster: String,
    /// The size of its control plane.
    pub control_planes: usize,
    /// Lost control plane machines, by name.
    pub lost_control_planes: Vec<String>,
    /// Other control plane machines that do not work already, by name.
    pub unhealthy_control_planes: Vec<String>,
    /// Lost workers, by name.
    pub lost_workers: Vec<String>,
    pub fate: Fate,
}

/// What every cluster loses, and whether it recovers. Assumes that etcd runs on the control plane's machines.
pub fn without(
    inventory: &Inventory,
    groups: &[Group],
    checks: &[HealthCheck],
    lost: &Lost,
    now: Timestamp,
) -> Vec<Impact> {
    let mut rest = inventory.clone();
    rest.machines.retain(|machine| !lost.machines.contains(&machine.id));
    rest.hosts.retain(|host| !lost.hosts.contains(&host.id));
    let survivors: Vec<Group> = groups.iter().map(|group| survivors(group, lost)).collect();
    let replacing = forecast(&rest, &survivors, now);
    let clusters: BTreeSet<&str> = groups.iter().map(|group| group.cluster.as_str()).collect();
    clusters
        .into_iter()
        .map(|cluster| {
            let missing = replacing.missing.iter().filter(|missing| missing.cluster == cluster).cloned().collect();
            let (control_plane, workers) =
                (Toll::of(groups, cluster, Role::ControlPlane, lost), Toll::of(groups, cluster, Role::Workers, lost));
            Impact {
                cluster: cluster.to_owned(),
                fate: fate(cluster, &control_plane, &workers, checks, missing),
                control_planes: control_plane.size,
                lost_control_planes: control_plane.lost,
                unhealthy_control_planes: control_plane.unhealthy,
                lost_workers: workers.lost,
            }
        })
        .collect()
}

/// The machines of one role in one cluster.
struct Toll {
    size: usize,
    lost: Vec<String>,
    /// Of the others, those that do not work already.
    unhealthy: Vec<String>,
}

impl Toll {
    fn of(groups: &[Group], cluster: &str, role: Role, lost: &Lost) -> Self {
        let mine = groups.iter().filter(|group| group.cluster == cluster && group.role == role);
        let members: Vec<&Member> = mine.flat_map(|group| &group.members).filter(|it| !it.leaving).collect();
        let names = |of: &dyn Fn(&Member) -> bool| -> Vec<String> {
            members.iter().filter(|member| of(member)).map(|member| member.name.clone()).collect()
        };
        Self {
            size: members.len(),
            lost: names(&|member| lost.takes(member)),
            unhealthy: names(&|member| member.unhealthy && !lost.takes(member)),
        }
    }
}

/// The group as it would be, with nothing else to do than to replace what it lost.
fn survivors(group: &Group, lost: &Lost) -> Group {
    let mut group = group.clone();
    let had = group.members.iter().filter(|member| !member.leaving).count();
    group.members.retain(|member| !lost.takes(member));
    for member in &mut group.members {
        member.outdated = false;
    }
    group.replicas = had;
    group
}

fn fate(cluster: &str, control_plane: &Toll, workers: &Toll, checks: &[HealthCheck], missing: Vec<Missing>) -> Fate {
    let lost: Vec<&String> = control_plane.lost.iter().chain(&workers.lost).collect();
    if lost.is_empty() {
        return Fate::Untouched;
    }
    let left = control_plane.size - control_plane.lost.len() - control_plane.unhealthy.len();
    if !control_plane.lost.is_empty() && left < control_plane.size / 2 + 1 {
        return Fate::LosesQuorum;
    }
    let down: Vec<&String> = lost.iter().copied().chain(&control_plane.unhealthy).chain(&workers.unhealthy).collect();
    let checks: Vec<&HealthCheck> = checks.iter().filter(|check| check.cluster == cluster).collect();
    for name in &lost {
        let looked_after: Vec<&&HealthCheck> = checks.iter().filter(|check| check.machines.contains(*name)).collect();
        let Some(first) = looked_after.first() else {
            return Fate::NeedsPerson { why: format!("no MachineHealthCheck replaces {name}") };
        };
        let idle = |check: &HealthCheck| check.idle(down.iter().filter(|it| check.machines.contains(**it)).count());
        if let (true, Some(bound)) = (looked_after.iter().all(|check| idle(check).is_some()), idle(first)) {
            let name = &first.name;
            let why = format!("the MachineHealthCheck {name} does nothing while {bound} of its machines are unhealthy");
            return Fate::NeedsPerson { why };
        }
    }
    if missing.is_empty() { Fate::Recovers } else { Fate::CannotReplace { missing } }
}
