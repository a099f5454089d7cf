//! LXD hosts and VMs: the inventory, the faults, and the invariants.

use std::collections::{BTreeMap, BTreeSet};

use capmaas_api::reasons;
use capmaas_core::machine::DEBTS_ANNOTATION;
use maas_sim::control::MachineFault;
use maas_sim::ledger::{Effect, MachineChange};
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::chaos::bob;
use crate::law;
use crate::lxd_host::{address, lxd_host};
use crate::sight::Held;
use crate::torments::Torment;
use crate::world::World;

/// Requests about VMs that are worth losing.
pub(crate) const KINDS: [&str; 7] = [
    "vm-host.compose",
    "vm-host.compose",
    "vm-hosts.read",
    "vm-host.read",
    "machine.delete",
    "interface.link_subnet",
    "interface.unlink_subnet",
];

const HOSTS: u32 = 4;
/// Room for two VMs, so that they have to be spread.
const CORES: u32 = 4;
const MEMORY: u32 = 8192;
/// What a VM takes.
pub(crate) const VM_CORES: i64 = 2;
/// A VM that somebody composed by hand and nobody has allocated yet.
pub(crate) const FOREIGN: &str = "database";
/// An address that several machines ask for.
const FIXED: &str = "10.0.0.150";

pub(crate) fn inventory(world: &World) {
    // Guests need more, and sometimes there is still too little.
    let times = if world.guests.is_none() { 1 } else { 2 + u32::from(!world.seed.is_multiple_of(3)) };
    for number in 1..=HOSTS {
        world.arrange(lxd_host(number, &format!("az{number}"), (CORES * times, MEMORY * times)));
    }
    if Torment::NamedVms.is_on() {
        world.arrange(json!([{"machine": {"hostname": FOREIGN, "vm_host": "host1", "cpu_count": 1, "memory": 1024}}]));
    }
}

/// A VM with these additional fields in its spec.
fn vm(more: &Value) -> Value {
    let mut spec = json!({ "minCPU": VM_CORES, "minMemory": 2048, "minDiskSize": 20 });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// A VM without special demands.
pub(crate) fn plain() -> Value {
    vm(&json!({ "provisioningMode": "lxd" }))
}

/// What a machine asks for: mostly a VM, in one of several spec styles.
pub(crate) fn spec(chance: &mut Chance) -> Value {
    match chance.below(10) {
        0 => json!({}),
        1 | 2 => vm(&json!({ "provisioningMode": "lxd", "staticIP": FIXED })),
        3 | 4 => vm(&json!({ "lxd": { "enabled": true, "vmConfig": { "interfaceLinkModes": { "eth0": "static" } } } })),
        _ => plain(),
    }
}

pub(crate) fn is_host(machine: &Held) -> bool {
    machine.hostname.starts_with("host") && !machine.is_vm
}

/// One fault of hosts or VMs.
pub(crate) fn blow(world: &mut World) {
    let number = 1 + u32::try_from(world.chance.below(u64::from(HOSTS))).unwrap();
    match world.chance.below(8) {
        0 => {
            let reachable = world.chance.percent(50);
            world.tell(format!("LXD of host{number} is reachable: {reachable}"));
            world.arrange(json!([{"lxd": {"address": address(number), "reachable": reachable}}]));
        }
        1 => {
            world.tell(format!("host{number} dies"));
            power(world, number, false);
        }
        2 => {
            world.tell(format!("host{number} comes back"));
            power(world, number, true);
        }
        3 => {
            world.tell("bob takes the next VM".to_owned());
            world.maas.control().hurt(None, &MachineFault::Steal, Some("bob")).unwrap();
        }
        4 => {
            let words = *world.chance.one_of(&[
                "Failed talking to pod: Failed to connect to the LXD REST API.",
                "Unable to compose machine because: No host network to attach VM interfaces to",
            ]);
            world.tell(format!("a VM is going to be refused: {words}"));
            let rule = json!({
                "match": { "kind": "vm-host.compose" }, "do": "status", "status": 503, "content_type": "text/plain", "body": words,
            });
            world.maas.control().add_fault(serde_json::from_value(rule).unwrap());
        }
        5 => {
            let rule = json!({ "match": { "kind": "vm-host.compose" }, "do": "kill", "down_seconds": 20 });
            world.tell("MAAS is going to die while it makes a VM".to_owned());
            world.maas.control().add_fault(serde_json::from_value(rule).unwrap());
        }
        _ => {
            let vms: Vec<String> = world.inventory().into_iter().filter(|(_, it)| it.is_vm).map(|(id, _)| id).collect();
            if vms.is_empty() {
                return;
            }
            let id = world.chance.one_of(&vms).clone();
            world.tell(format!("the next deployment of {id} is going to fail"));
            world.arrange(json!([{"machine": {"system_id": id, "next": {"deploy": "fail"}}}]));
        }
    }
}

fn power(world: &World, number: u32, on: bool) {
    // A released host is a machine like any other.
    if !rooms(world).contains_key(&format!("host{number}")) {
        return;
    }
    let power = if on { "on" } else { "off" };
    world.arrange(json!([
        {"machine": {"hostname": format!("host{number}"), "power": power}},
        {"lxd": {"address": address(number), "reachable": on}},
    ]));
}

pub(crate) fn heal(world: &World) {
    for number in 1..=HOSTS {
        power(world, number, true);
    }
    world.maas.control().with_model(|model| model.world.vm_thief = None);
}

/// Final states of a VM that only a person can resolve: its address belongs to another, or there is no room.
pub(crate) fn is_end(world: &World, object: &Value, reason: &str) -> bool {
    match reason {
        reasons::STATIC_IP_FAILED => object["spec"]["staticIP"] == FIXED && holds_fixed(world) == Some(true),
        reasons::INSUFFICIENT_RESOURCES => {
            let zone = object["metadata"]["name"].as_str().and_then(|name| {
                let machine = world.port.object("Machine", &capmaas_manager::kubernetes::Key::new("default", name))?;
                machine["spec"]["failureDomain"].as_str().map(str::to_owned)
            });
            !rooms(world).iter().any(|(host, left)| {
                let there = zone.as_ref().is_none_or(|zone| *zone == host.replace("host", "az"));
                there && *left >= VM_CORES
            })
        }
        _ => false,
    }
}

/// Whether somebody has the address that several ask for.
fn holds_fixed(world: &World) -> Option<bool> {
    world.maas.control().with_model(|model| {
        let mut rows = model.db.addresses.values();
        Some(rows.any(|row| row.on.is_some() && row.ip.is_some_and(|ip| ip.to_string() == FIXED)))
    })
}

/// Free cores of each host, as MAAS counts them.
pub(crate) fn rooms(world: &World) -> BTreeMap<String, i64> {
    world.maas.control().with_model(|model| {
        let left = |host: &maas_sim::model::db::VmHost| host.cores - host.vms.iter().map(|vm| vm.cores).sum::<i64>();
        model.db.vm_hosts.values().map(|host| (host.name.clone(), left(host))).collect()
    })
}

/// The debts of a MaasCluster.
pub(crate) fn owed(cluster: &Value) -> Option<String> {
    let owed = cluster["metadata"]["annotations"][DEBTS_ANNOTATION].as_str()?;
    (!owed.is_empty() && owed != "[]").then(|| owed.to_owned())
}

/// Names of the VMs that LXD has, by host.
pub(crate) fn in_lxd(world: &World) -> Vec<(String, String)> {
    world.maas.control().with_model(|model| {
        let of = |(address, lxd): (&String, &maas_sim::model::world::Lxd)| {
            lxd.instances.keys().map(|(_, name)| (address.clone(), name.clone())).collect::<Vec<_>>()
        };
        model.world.lxds.iter().flat_map(of).collect()
    })
}

/// Holds after every pass: no host is overcommitted, nobody's VM is touched, and no address is on two machines.
pub(crate) fn after_a_pass(world: &World) {
    foreign_is_untouched(world);
    if let Some((host, left)) = rooms(world).into_iter().find(|(_, left)| *left < 0) {
        world.fail(&format!("{host} carries more than it has: {left} cores are left"));
    }
    let mut given: BTreeMap<String, String> = BTreeMap::new();
    for object in world.originals() {
        let Some(id) = law::held(&object).filter(|_| object["status"]["ready"] == true) else { continue };
        for address in law::addresses(&object) {
            if let Some(other) = given.insert(address.to_owned(), id.clone()) {
                world.fail(&format!("{address} was given to {other} and to {id}"));
            }
        }
    }
}

/// Somebody's VM that is not allocated is neither allocated nor removed.
fn foreign_is_untouched(world: &World) {
    if !Torment::NamedVms.is_on() {
        return;
    }
    let there = world.maas.control().with_model(|model| {
        let id = model.db.by_hostname.get(FOREIGN)?;
        let machine = model.db.machines.get(id)?;
        let in_lxd = model.world.lxds.values().any(|lxd| lxd.instances.keys().any(|(_, name)| name == FOREIGN));
        (machine.owner.is_none() && in_lxd).then(|| format!("{:?}", machine.status))
    });
    if there.as_deref() != Some("Ready") {
        world.fail(&format!("{FOREIGN} is not ours, and was touched: {there:?}"));
    }
}

/// Every VM is in MAAS and in LXD, or in neither; where only LXD has it, a message named it (S12).
pub(crate) fn nothing_left(world: &World) {
    let known: BTreeSet<String> = world.inventory().into_values().map(|machine| machine.hostname).collect();
    let told: Vec<String> = world.port.events().into_iter().filter(|it| it.warning).map(|it| it.message).collect();
    for (host, name) in in_lxd(world) {
        if !known.contains(&name) && !told.iter().any(|message| message.contains(&name)) {
            world.fail(&format!("{name} is left in LXD at {host}, and nobody was told"));
        }
    }
    let there: BTreeSet<String> = in_lxd(world).into_iter().map(|(_, name)| name).collect();
    for (id, machine) in world.inventory().into_iter().filter(|(_, machine)| machine.is_vm) {
        if !there.contains(&machine.hostname) {
            world.fail(&format!("{id} is in MAAS and not in LXD"));
        }
        if machine.owner == Some(bob(world)) && machine.state != "Allocated" {
            world.fail(&format!("bob's VM {id} was touched (S10)"));
        }
    }
}

/// Once everything is deleted: every VM that was composed was removed, except those that bob took.
pub(crate) fn all_accounted_for(world: &World) {
    let of = |kind: &str, is: fn(&Effect) -> bool| {
        let entries = world.maas.control().ledger(Some(kind));
        entries.iter().flat_map(|entry| &entry.effects).filter(|effect| is(effect)).count()
    };
    let made = of("vm-host.compose", |effect| matches!(effect, Effect::Composed { .. }));
    let removed =
        of("machine.delete", |effect| matches!(effect, Effect::Machine { change: MachineChange::Deleted, .. }));
    let stolen = world.inventory().values().filter(|machine| machine.is_vm && machine.hostname != FOREIGN).count();
    if made != removed + stolen {
        world.fail(&format!("{made} VMs were made, {removed} removed, and {stolen} are bob's"));
    }
}
