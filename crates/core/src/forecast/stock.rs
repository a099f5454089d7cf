//! What MAAS has while the steps are taken: what one step takes, the next one cannot have.

use std::collections::{BTreeMap, BTreeSet};

use crate::intent::Vm;
use crate::maas::State;
use crate::machine::Constraints;
use crate::placement::{Demand, Host, Placement, Sibling, StoragePool, place};

use super::candidate::Candidate;
use super::{Free, Inventory, Server};

pub(super) struct Stock {
    pub(super) machines: Vec<Candidate>,
    hosts: Vec<Host>,
}

impl Stock {
    pub(super) fn new(inventory: &Inventory) -> Self {
        Self { machines: inventory.machines.clone(), hosts: inventory.hosts.clone() }
    }

    /// Takes a machine as `op=allocate` would.
    pub(super) fn allocate(&mut self, constraints: &Constraints) -> Option<Server> {
        let mut fit: Vec<&mut Candidate> =
            self.machines.iter_mut().filter(|it| it.admits(constraints).is_ok()).collect();
        fit.sort_by(|a, b| a.cheaper(b));
        let choices = fit.iter().map(|machine| machine.hostname.clone()).collect();
        let taken = fit.into_iter().next()?;
        (taken.state, taken.owned) = (State::Allocated, true);
        Some(Server::Metal {
            id: taken.id.clone(),
            hostname: taken.hostname.clone(),
            zone: taken.zone.clone(),
            pool: taken.pool.clone(),
            choices,
        })
    }

    /// Where a VM would be placed.
    pub(super) fn place(&self, vm: &Vm, zone: Option<&str>, siblings: &[Sibling]) -> Placement {
        let demand = Demand { vm, zone, failed: &BTreeSet::new() };
        place(&demand, &self.hosts, &[], siblings)
    }

    /// Takes the resources of a VM that was placed.
    pub(super) fn compose(&mut self, vm: &Vm, placement: &Placement) {
        let Ok(choice) = &placement.choice else { return };
        let Some(host) = self.hosts.iter_mut().find(|host| host.id == choice.host) else { return };
        host.free.cores -= i64::from(vm.cores);
        host.free.memory -= i64::from(vm.memory);
        let bytes = i64::from(vm.disk) * 1_000_000_000;
        in_pool(host, Some(&choice.storage_pool), |pool| pool.free -= bytes);
    }

    pub(super) fn hosted_vms(&self, id: &str) -> usize {
        let hosts: BTreeSet<i64> = self.hosts_of(id).map(|host| host.id).collect();
        self.machines.iter().filter(|machine| machine.vm_host.is_some_and(|host| hosts.contains(&host))).count()
    }

    fn hosts_of<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Host> {
        self.hosts.iter().filter(move |host| host.system_id.as_deref() == Some(id))
    }

    /// A machine is released, or a VM deleted: others can have it, or its resources.
    pub(super) fn give_back(&mut self, id: &str) {
        // It is not an LXD host any more.
        self.hosts.retain(|host| host.system_id.as_deref() != Some(id));
        let Some(index) = self.machines.iter().position(|machine| machine.id == id) else { return };
        let Some(machine) = self.machines.get_mut(index) else { return };
        if let Some(number) = machine.vm_host {
            let gone = self.machines.remove(index);
            if let Some(host) = self.hosts.iter_mut().find(|host| host.id == number) {
                host.free.cores += gone.cores;
                host.free.memory += gone.memory;
                for disk in &gone.disks {
                    in_pool(host, disk.storage_pool.as_ref(), |pool| pool.free += disk.size);
                }
            }
            return;
        }
        (machine.state, machine.owned) = (State::Ready, false);
    }

    /// Free bare-metal machines that meet the constraints, by zone and pool.
    pub(super) fn free(&self, constraints: &Constraints) -> BTreeMap<(String, String), usize> {
        let mut counts = BTreeMap::new();
        for machine in self.machines.iter().filter(|machine| machine.admits(constraints).is_ok()) {
            *counts.entry((machine.zone.clone(), machine.pool.clone())).or_default() += 1;
        }
        counts
    }

    /// The same, next to what was free before.
    pub(super) fn compare(&self, before: &BTreeMap<(String, String), usize>, constraints: &Constraints) -> Vec<Free> {
        let after = self.free(constraints);
        let places: BTreeSet<&(String, String)> = before.keys().chain(after.keys()).collect();
        let count = |of: &BTreeMap<(String, String), usize>, place| of.get(place).copied().unwrap_or(0);
        places
            .into_iter()
            .map(|place| Free {
                zone: place.0.clone(),
                pool: place.1.clone(),
                now: count(before, place),
                left: count(&after, place),
            })
            .collect()
    }
}

/// Changes the pool of this name; without a name, the pool where MAAS puts disks.
fn in_pool(host: &mut Host, name: Option<&String>, change: impl FnOnce(&mut StoragePool)) {
    let by_name = name.and_then(|name| host.pools.iter().position(|pool| pool.name == *name));
    let index = by_name.or_else(|| host.pools.iter().position(|pool| pool.default)).unwrap_or(0);
    if let Some(pool) = host.pools.get_mut(index) {
        change(pool);
    }
}
