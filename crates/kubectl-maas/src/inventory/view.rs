//! An inventory in the planner's types.

use std::collections::BTreeSet;

use capmaas_core::Lookup;
use capmaas_core::forecast::{self, Candidate};
use capmaas_core::maas::{Power, State};
use capmaas_core::placement::{Host, HostMachine, Named, Port, Room, SubnetRef};
use maas_client::MachineStatus;

use super::{DEFAULT, Disk, Inventory, Lxd, Machine, NameOrId, VmHost};

/// maas-sim's defaults for a machine of which a file has only the name.
const MADE_UP: (i64, i64, i64) = (4, 8192, 40_000_000_000);

pub fn view(inventory: &Inventory) -> forecast::Inventory {
    let names = |all: &[super::Name]| all.iter().map(|it| it.name.clone()).chain([DEFAULT.to_owned()]).collect();
    let hosts = inventory.vm_hosts.iter().enumerate();
    let lxd = hosts.filter(|(_, host)| host.kind.as_deref().is_none_or(|kind| kind == "lxd"));
    forecast::Inventory {
        machines: inventory.machines.iter().enumerate().map(|(n, machine)| candidate(inventory, n, machine)).collect(),
        hosts: lxd.map(|(index, host)| self::host(inventory, number(host, index), host)).collect(),
        zones: names(&inventory.zones),
        pools: names(&inventory.pools),
    }
}

/// The ID of a host; a handwritten file may omit it.
fn number(host: &VmHost, index: usize) -> i64 {
    host.id.unwrap_or_else(|| i64::try_from(index + 1).unwrap_or(i64::MAX))
}

/// The identity of a machine. In a handwritten file it may have only a name.
fn id(machine: &Machine, index: usize) -> String {
    machine.system_id.clone().or_else(|| machine.hostname.clone()).unwrap_or_else(|| format!("machine-{index}"))
}

fn candidate(inventory: &Inventory, index: usize, machine: &Machine) -> Candidate {
    let (cores, memory, size) = MADE_UP;
    let id = id(machine, index);
    let or_default = |name: &Option<String>| name.clone().unwrap_or_else(|| DEFAULT.to_owned());
    Candidate {
        hostname: machine.hostname.clone().unwrap_or_else(|| id.clone()),
        id,
        state: state(machine),
        owned: machine.owner.is_some(),
        zone: or_default(&machine.zone),
        pool: or_default(&machine.pool),
        cores: machine.cpu_count.unwrap_or(cores),
        memory: machine.memory.unwrap_or(memory),
        disks: match &machine.disks {
            None => vec![forecast::Disk { size, storage_pool: None }],
            Some(disks) => {
                disks.iter().map(|it| forecast::Disk { size: it.size(), storage_pool: it.pool().cloned() }).collect()
            }
        },
        tags: machine.tags.iter().cloned().collect(),
        vm_host: machine.vm_host.as_ref().map(|host| host_number(inventory, host)),
    }
}

/// The ID of the host that a VM names. With an unknown host it is still a VM.
fn host_number(inventory: &Inventory, wanted: &NameOrId) -> i64 {
    let mut hosts = inventory.vm_hosts.iter().enumerate();
    match wanted {
        NameOrId::Id(id) => *id,
        NameOrId::Name(name) => {
            let found = hosts.find(|(_, host)| host.name.as_ref() == Some(name));
            found.map_or(-1, |(index, host)| number(host, index))
        }
    }
}

fn state(machine: &Machine) -> State {
    match &machine.status {
        None => State::Ready,
        Some(name) => MachineStatus::from_name(name).map_or(State::Unknown, |status| State::from_code(status.code())),
    }
}

fn host(inventory: &Inventory, number: i64, host: &VmHost) -> Host {
    let daemon = inventory.lxd.iter().find(|lxd| Some(&lxd.address) == host.power_address.as_ref());
    let beneath = host.host.clone().or_else(|| daemon.and_then(|lxd| lxd.host.clone()));
    let named = |machine: &&Machine| machine.system_id == beneath || machine.hostname == beneath;
    let machine = beneath.as_ref().and_then(|_| inventory.machines.iter().find(named));
    let reached = host.discovered != Some(false);
    let measured = reached && host.counted != Some(false);
    let total = match daemon.filter(|_| measured) {
        Some(lxd) => Room { cores: lxd.cores.unwrap_or(0), memory: lxd.memory.unwrap_or(0) },
        None => Room::default(),
    };
    let vms: Vec<&Machine> = inventory
        .machines
        .iter()
        .filter(|machine| machine.vm_host.as_ref().is_some_and(|wanted| host_number(inventory, wanted) == number))
        .collect();
    let used = used(&vms, daemon);
    let named = |name: &Option<String>| Some(Named { id: 0, name: name.clone().unwrap_or_else(|| DEFAULT.to_owned()) });
    Host {
        id: number,
        name: host.name.clone().unwrap_or_else(|| number.to_string()),
        zone: named(&host.zone),
        pool: named(&host.pool),
        tags: host.tags.iter().flatten().cloned().collect(),
        project: match &host.project {
            Some(project) => Lookup::Found(project.clone()),
            None => Lookup::Unknown("its project was not read".into()),
        },
        reached,
        total,
        free: Room {
            cores: Room::left(total.cores, host.cpu_over_commit_ratio, used.cores),
            memory: Room::left(total.memory, host.memory_over_commit_ratio, used.memory),
        },
        pools: if reached { storage_pools(&vms, daemon) } else { Vec::new() },
        ports: machine.and_then(|machine| Some(ports(inventory, machine.interfaces.as_deref()?))),
        profiles: None,
        departing: false,
        machine: match (machine, &beneath) {
            (Some(machine), _) => Lookup::Found(host_machine(machine)),
            (None, Some(id)) => Lookup::Unknown(format!("MAAS does not show {id}, the machine that it runs on")),
            (None, None) => Lookup::Absent,
        },
        system_id: machine.and_then(|machine| machine.system_id.clone().or(machine.hostname.clone())).or(beneath),
    }
}

fn used(vms: &[&Machine], daemon: Option<&Lxd>) -> Room {
    let (cores, memory, _) = MADE_UP;
    let others = daemon.map(|lxd| lxd.instances.as_slice()).unwrap_or_default();
    Room {
        cores: vms.iter().map(|vm| vm.cpu_count.unwrap_or(cores)).sum::<i64>()
            + others.iter().map(|it| it.cores.unwrap_or(1)).sum::<i64>(),
        memory: vms.iter().map(|vm| vm.memory.unwrap_or(memory)).sum::<i64>()
            + others.iter().map(|it| it.memory.unwrap_or(2048)).sum::<i64>(),
    }
}

fn storage_pools(vms: &[&Machine], daemon: Option<&Lxd>) -> Vec<capmaas_core::placement::StoragePool> {
    let Some(daemon) = daemon else { return Vec::new() };
    let pools = daemon.storage_pools.iter().flatten().enumerate();
    pools
        .map(|(index, pool)| {
            let lies_here = |disk: &&Disk| disk.pool().map_or(index == 0, |name| *name == pool.name);
            let of_vms: i64 =
                vms.iter().flat_map(|vm| vm.disks.iter().flatten()).filter(lies_here).map(Disk::size).sum();
            let of_others: i64 = daemon.instances.iter().flat_map(|it| it.disks.iter().flatten()).sum();
            let used = of_vms + if index == 0 { of_others } else { 0 };
            let free = pool.total.unwrap_or(0).saturating_sub(used);
            capmaas_core::placement::StoragePool { name: pool.name.clone(), free, default: index == 0 }
        })
        .collect()
}

fn host_machine(machine: &Machine) -> HostMachine {
    let power = match machine.power.as_deref() {
        Some("on") => Power::On,
        Some("off") => Power::Off,
        _ => Power::Unknown,
    };
    HostMachine { state: state(machine), power, tags: machine.tags.iter().cloned().collect::<BTreeSet<String>>() }
}

fn ports(inventory: &Inventory, interfaces: &[super::Interface]) -> Vec<Port> {
    let boot = interfaces.first().map(|interface| &interface.name);
    let port = |interface: &super::Interface| {
        let vlan = interface.vlan?;
        let here = inventory.subnets.iter().filter(|subnet| subnet.vlan == Some(vlan));
        let subnets = here.map(|subnet| SubnetRef {
            name: subnet.name.clone().unwrap_or_else(|| subnet.cidr.clone()),
            cidr: subnet.cidr.clone(),
        });
        Some(Port {
            name: interface.name.clone(),
            bridge: interface.kind.as_deref() == Some("bridge"),
            boot: boot.is_some_and(|boot| *boot == interface.name || interface.parents.contains(boot)),
            vlan,
            subnets: subnets.collect(),
        })
    };
    interfaces.iter().filter_map(port).collect()
}
