//! Converts MAAS's answers about a host to the input of placement.

use std::collections::BTreeSet;

use capmaas_core::Lookup;
use capmaas_core::maas::{Power, State};
use capmaas_core::placement::{Host, HostMachine, Named, Port, Room, StoragePool, SubnetRef};
use maas_client::{Machine, PowerState, Subnet, VmHost, VmHostResources};

pub(super) fn host(host: &VmHost, machine: Option<&Machine>, subnets: &[Subnet]) -> Host {
    let (total, used) = (room(host.total.as_ref()), room(host.used.as_ref()));
    let reference = host.host.as_ref().map(|machine| machine.system_id.clone()).filter(|id| !id.is_empty());
    Host {
        id: host.id,
        name: host.name.clone().unwrap_or_else(|| host.id.to_string()),
        zone: host.zone.as_ref().and_then(|zone| Some(Named { id: zone.id?, name: zone.name.clone() })),
        pool: host.pool.as_ref().and_then(|pool| Some(Named { id: pool.id?, name: pool.name.clone() })),
        tags: host.tags.iter().cloned().collect(),
        project: Lookup::Unknown("its project was not read".into()),
        reached: host.is_reached(),
        total,
        free: Room {
            cores: Room::left(total.cores, host.cpu_over_commit_ratio, used.cores),
            memory: Room::left(total.memory, host.memory_over_commit_ratio, used.memory),
        },
        pools: host.storage_pools.iter().filter_map(storage_pool).collect(),
        ports: machine.map(|machine| ports(machine, subnets)),
        profiles: None,
        departing: false,
        machine: match (machine, &reference) {
            (Some(machine), _) => Lookup::Found(host_machine(machine)),
            (None, Some(id)) => Lookup::Unknown(format!("MAAS does not show {id}, the machine that it runs on")),
            (None, None) => Lookup::Absent,
        },
        system_id: reference,
    }
}

fn room(resources: Option<&VmHostResources>) -> Room {
    let amount = |of: fn(&VmHostResources) -> Option<i64>| resources.and_then(of).unwrap_or(0);
    Room { cores: amount(|it| it.cores), memory: amount(|it| it.memory) }
}

fn storage_pool(pool: &maas_client::StoragePool) -> Option<StoragePool> {
    let free = pool.available.unwrap_or(0);
    Some(StoragePool { name: pool.name.clone()?, free, default: pool.default == Some(true) })
}

fn host_machine(machine: &Machine) -> HostMachine {
    HostMachine {
        state: machine.status.map_or(State::Unknown, |status| State::from_code(status.code())),
        power: match machine.power_state {
            Some(PowerState::On) => Power::On,
            Some(PowerState::Off) => Power::Off,
            _ => Power::Unknown,
        },
        tags: machine.tag_names.iter().cloned().collect::<BTreeSet<String>>(),
    }
}

fn ports(machine: &Machine, subnets: &[Subnet]) -> Vec<Port> {
    let boot = machine.boot_interface.as_ref().and_then(|interface| interface.name.clone());
    let port = |interface: &maas_client::Interface| {
        let (name, vlan) = (interface.name.clone()?, interface.vlan.as_ref()?.id);
        let here = |subnet: &&Subnet| subnet.vlan.as_ref().is_some_and(|of| of.id == vlan);
        let refer = |subnet: &Subnet| {
            let cidr = subnet.cidr.clone()?;
            Some(SubnetRef { name: subnet.name.clone().unwrap_or_default(), cidr })
        };
        Some(Port {
            bridge: interface.is_bridge(),
            boot: boot.as_ref().is_some_and(|boot| *boot == name || interface.parents.contains(boot)),
            vlan,
            subnets: subnets.iter().filter(here).filter_map(refer).collect(),
            name,
        })
    };
    machine.interface_set.iter().filter_map(port).collect()
}
