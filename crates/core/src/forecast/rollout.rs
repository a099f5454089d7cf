//! The steps that Cluster API would take, one machine at a time.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::failure_domain::{self, Placed};
use crate::intent::Intent;
use crate::machine::Constraints;
use crate::placement::Sibling;

use super::stock::Stock;
use super::{Action, Forecast, Group, Inventory, Missing, Role, Server, Step, Supply, candidate, words};

/// Computes every step, in the order of `groups`: what is waiting already, then each group's rollout and scale-up. Cluster API
/// begins with the control plane, so the groups of one cluster must be in that order.
pub fn forecast(inventory: &Inventory, groups: &[Group], now: Timestamp) -> Forecast {
    let mut run =
        Run { stock: Stock::new(inventory), inventory, now, forecast: Forecast::default(), short: Vec::new() };
    let before: Vec<_> = groups.iter().map(|group| run.metal_of(group).map(|it| run.stock.free(&it))).collect();
    let mut all: Vec<Vec<Live>> = groups.iter().map(|group| run.members(group)).collect();
    for (group, live) in groups.iter().zip(&mut all) {
        run.serve_waiting(group, live);
    }
    for (group, live) in groups.iter().zip(&mut all) {
        run.roll(group, live);
    }
    for ((group, live), before) in groups.iter().zip(&all).zip(&before) {
        let supply = run.supply(group, live, before.as_ref());
        run.forecast.groups.push(supply);
    }
    run.finish()
}

/// A machine of a group at some step.
struct Live {
    name: String,
    machine: Option<String>,
    zone: Option<String>,
    host: Option<i64>,
    outdated: bool,
    /// MAAS has something for it.
    served: bool,
}

/// A machine that got nothing.
struct Short {
    cluster: String,
    group: String,
    zone: Option<String>,
    intent: Intent,
    count: usize,
    why: String,
}

struct Run<'a> {
    stock: Stock,
    inventory: &'a Inventory,
    now: Timestamp,
    forecast: Forecast,
    short: Vec<Short>,
}

impl Run<'_> {
    fn members(&self, group: &Group) -> Vec<Live> {
        let stays = group.members.iter().filter(|member| !member.leaving);
        stays
            .map(|member| {
                let seen = self.inventory.machines.iter().find(|it| Some(&it.id) == member.machine.as_ref());
                Live {
                    name: member.name.clone(),
                    machine: member.machine.clone(),
                    zone: member.zone.clone().or_else(|| seen.map(|machine| machine.zone.clone())),
                    host: seen.and_then(|machine| machine.vm_host),
                    outdated: member.outdated && group.rolls,
                    served: member.machine.is_some(),
                }
            })
            .collect()
    }

    /// Machines that exist in Kubernetes and have nothing in MAAS come first: they are requesting already.
    fn serve_waiting(&mut self, group: &Group, live: &mut [Live]) {
        for index in 0..live.len() {
            let Some(waiting) = live.get(index).filter(|it| !it.served) else { continue };
            let (name, zone) = (waiting.name.clone(), waiting.zone.clone());
            match self.create(group, live, &name, zone.as_deref()) {
                Ok(made) => {
                    if let Some(slot) = live.get_mut(index) {
                        *slot = Live { outdated: slot.outdated, ..made };
                    }
                }
                Err(short) => self.short.extend(short.map(|short| *short)),
            }
        }
    }

    fn roll(&mut self, group: &Group, live: &mut Vec<Live>) {
        let wanted = group.replicas;
        let mut made = 0;
        loop {
            let (total, fresh) = (live.len(), live.iter().filter(|it| !it.outdated).count());
            let outdated = total - fresh;
            let room = if outdated > 0 { wanted + group.surge } else { wanted };
            if fresh < wanted && total < room {
                made += 1;
                let (name, zone) = (format!("{}-new-{made}", group.name), zone_of(group, live));
                match self.create(group, live, &name, zone.as_deref()) {
                    Ok(new) => live.push(new),
                    // It waits for the old machine that is deleted next.
                    Err(_) if outdated > 0 && total > wanted.saturating_sub(group.unavailable) => {
                        self.forecast.steps.pop();
                        made -= 1;
                        self.delete_one(group, live);
                    }
                    Err(short) if outdated > 0 => {
                        // Freed resources are used again, so one machine to begin with is enough, plus what the group grows by.
                        let count = wanted.saturating_sub(total) + usize::from(group.unavailable == 0);
                        self.short.extend(short.map(|short| Short { count: count.max(1), ..*short }));
                        return;
                    }
                    Err(short) => {
                        self.short.extend(short.map(|short| *short));
                        live.push(Live { name, machine: None, zone, host: None, outdated: false, served: false });
                    }
                }
            } else if outdated > 0 && total > wanted.saturating_sub(group.unavailable) || total > wanted {
                self.delete_one(group, live);
            } else {
                return;
            }
        }
    }

    /// Finds something for a new machine and records the step. The error is what it lacks; `None` if the template is to blame.
    fn create(
        &mut self,
        group: &Group,
        live: &[Live],
        name: &str,
        zone: Option<&str>,
    ) -> Result<Live, Option<Box<Short>>> {
        let intent = match &group.intent {
            Ok(intent) => intent.clone(),
            Err(problem) => {
                self.note(group, name, Action::Create(nothing(problem.message.clone(), None)));
                self.blame(group, problem.message.clone());
                return Err(None);
            }
        };
        let server = match &intent {
            Intent::Metal(metal) => {
                let constraints = Constraints::of(metal, zone, self.now);
                self.stock.allocate(&constraints).unwrap_or_else(|| nothing(self.why_no_metal(&constraints), None))
            }
            Intent::Vm(vm) => {
                let zone = zone.or(vm.zone.as_deref());
                let placement = self.stock.place(vm, zone, &siblings(group, live));
                self.stock.compose(vm, &placement);
                match &placement.choice {
                    Ok(_) => Server::Vm(Box::new(placement)),
                    Err(error) => nothing(error.message.clone(), Some(Box::new(placement))),
                }
            }
        };
        let (machine, found_zone, host, why) = match &server {
            Server::Metal { id, zone, .. } => (Some(id.clone()), Some(zone.clone()), None, None),
            Server::Vm(placement) => {
                let choice = placement.choice.as_ref().ok();
                let zone = choice.and_then(|choice| choice.zone.as_ref()).map(|zone| zone.name.clone());
                (None, zone, choice.map(|choice| choice.host), None)
            }
            Server::Nothing { why, .. } => (None, None, None, Some(why.clone())),
        };
        self.note(group, name, Action::Create(server));
        match why {
            None => Ok(Live { name: name.to_owned(), machine, zone: found_zone, host, outdated: false, served: true }),
            Some(why) => Err(Some(Box::new(Short {
                cluster: group.cluster.clone(),
                group: group.name.clone(),
                zone: zone.map(str::to_owned),
                intent,
                count: 1,
                why,
            }))),
        }
    }

    fn why_no_metal(&self, constraints: &Constraints) -> String {
        let unknown = |name: &Option<String>, all: &std::collections::BTreeSet<String>| {
            name.clone().filter(|name| !all.is_empty() && !all.contains(name))
        };
        if let Some(zone) = unknown(&constraints.zone, &self.inventory.zones) {
            return format!("MAAS has no zone {zone}");
        }
        if let Some(pool) = unknown(&constraints.pool, &self.inventory.pools) {
            return format!("MAAS has no resource pool {pool}");
        }
        candidate::tally(&self.stock.machines, constraints)
    }

    /// Deletes a machine as Cluster API would: an outdated one first, from the zone that has most of them, the oldest of those.
    fn delete_one(&mut self, group: &Group, live: &mut Vec<Live>) {
        let mut in_zone: BTreeMap<Option<&str>, usize> = BTreeMap::new();
        for machine in live.iter().filter(|it| it.outdated) {
            *in_zone.entry(machine.zone.as_deref()).or_default() += 1;
        }
        let spread = group.role == Role::ControlPlane && !group.failure_domains.is_empty();
        let crowd =
            |machine: &Live| if spread { in_zone.get(&machine.zone.as_deref()).copied().unwrap_or(0) } else { 0 };
        // Of equal elements `max_by_key` takes the last, and the oldest is the first.
        let oldest = live.iter().enumerate().rev().max_by_key(|(_, it)| (it.outdated, !it.served, crowd(it)));
        let Some(index) = oldest.map(|(index, _)| index) else { return };
        let gone = live.remove(index);
        let hosted_vms = gone.machine.as_deref().map_or(0, |id| self.stock.hosted_vms(id));
        if let Some(id) = &gone.machine {
            self.stock.give_back(id);
        }
        self.note(group, &gone.name, Action::Delete { hosted_vms });
    }

    fn note(&mut self, group: &Group, machine: &str, action: Action) {
        self.forecast.steps.push(Step {
            cluster: group.cluster.clone(),
            group: group.name.clone(),
            machine: machine.to_owned(),
            action,
        });
    }

    fn blame(&mut self, group: &Group, what: String) {
        let (cluster, group) = (group.cluster.clone(), group.name.clone());
        let known = self.forecast.missing.iter_mut().find(|it| it.cluster == cluster && it.group == group);
        if let Some(missing) = known {
            missing.count += 1;
        } else {
            let what = format!("a template that can be acted upon: {what}");
            self.forecast.missing.push(Missing { cluster, group, count: 1, what, why: String::new() });
        }
    }

    /// The bare-metal constraints of a group, in whichever zone.
    fn metal_of(&self, group: &Group) -> Option<Constraints> {
        match &group.intent {
            Ok(Intent::Metal(metal)) => Some(Constraints::of(metal, group.failure_domain.as_deref(), self.now)),
            _ => None,
        }
    }

    fn supply(&self, group: &Group, live: &[Live], before: Option<&BTreeMap<(String, String), usize>>) -> Supply {
        let metal = match (before, self.metal_of(group)) {
            (Some(before), Some(constraints)) => self.stock.compare(before, &constraints),
            _ => Vec::new(),
        };
        let next_vm = match &group.intent {
            Ok(Intent::Vm(vm)) => {
                let zone = group.failure_domain.as_deref().or(vm.zone.as_deref());
                Some(Box::new(self.stock.place(vm, zone, &siblings(group, live))))
            }
            _ => None,
        };
        Supply { cluster: group.cluster.clone(), group: group.name.clone(), metal, next_vm }
    }

    /// Merges equal shortages.
    fn finish(mut self) -> Forecast {
        let mut together: Vec<Short> = Vec::new();
        for short in self.short {
            let same = |it: &&mut Short| {
                (&it.cluster, &it.group, &it.zone, &it.intent)
                    == (&short.cluster, &short.group, &short.zone, &short.intent)
            };
            match together.iter_mut().find(same) {
                Some(known) => known.count += short.count,
                None => together.push(short),
            }
        }
        self.forecast.missing.extend(together.into_iter().map(|short| {
            let what = match &short.intent {
                Intent::Metal(metal) => {
                    words::machines(short.count, &Constraints::of(metal, short.zone.as_deref(), self.now))
                }
                Intent::Vm(vm) => words::room(short.count, vm, short.zone.as_deref().or(vm.zone.as_deref())),
            };
            Missing { cluster: short.cluster, group: short.group, count: short.count, what, why: short.why }
        }));
        self.forecast
    }
}

fn nothing(why: String, placement: Option<Box<crate::placement::Placement>>) -> Server {
    Server::Nothing { why, placement }
}

/// The zone in which a new machine is requested: the group's own, or the one that a control plane chooses.
fn zone_of(group: &Group, live: &[Live]) -> Option<String> {
    if group.failure_domain.is_some() || group.role == Role::Workers {
        return group.failure_domain.clone();
    }
    let placed = live.iter().map(|it| Placed { failure_domain: it.zone.as_deref(), up_to_date: !it.outdated });
    failure_domain::next(&group.failure_domains, &placed.collect::<Vec<_>>()).map(str::to_owned)
}

/// Where the machines are that a new one is spread against, as the manager sees it: those of its control plane, or of its
/// MachineSet, which a rollout creates anew.
fn siblings(group: &Group, live: &[Live]) -> Vec<Sibling> {
    let counts = |it: &&Live| it.served && it.zone.is_some() && (group.role == Role::ControlPlane || !it.outdated);
    live.iter().filter(counts).map(|it| Sibling { host: it.host, zone: it.zone.clone() }).collect()
}
