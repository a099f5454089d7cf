//! Reads an inventory from MAAS. Nothing here changes anything: lists only, and never `allocate`, which composes VMs
//! even in a dry run.

use std::collections::{BTreeMap, BTreeSet};

use maas_client::{Client, MachineFilter, PowerState};

use super::{Disk, Fabric, Image, Instance, Interface, Inventory, Lxd, Machine, Name, NameOrId, Range};
use super::{StoragePool, Subnet, Vlan, VmHost};

/// Whether networks and addresses are included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addresses {
    /// As they are.
    Kept,
    /// Replaced by made-up ones.
    MadeUp,
}

/// Reads everything that is visible with this key.
pub async fn read(client: &Client, addresses: Addresses) -> maas_client::Result<Inventory> {
    let machines = client.machines().list(&MachineFilter::default()).await?;
    let hosts = client.vm_hosts().list().await?;
    let zones = client.zones().list().await?;
    let pools = client.pools().list().await?;
    let domains = client.domains().list().await?;
    let images = client.boot_resources().list(None).await?;
    let fabrics = client.fabrics().list().await?;
    let subnets = client.subnets().list().await?;
    let ranges = match addresses {
        Addresses::Kept => client.ip_ranges().list().await?,
        Addresses::MadeUp => Vec::new(),
    };
    let owners: BTreeSet<&str> = machines.iter().filter_map(|machine| machine.owner.as_deref()).collect();
    let (subnets, made_up) = networks(&subnets, addresses);
    let kept = ranges.iter().filter_map(|range| {
        Some(Range { kind: range.kind.clone()?, start_ip: range.start_ip.clone()?, end_ip: range.end_ip.clone()? })
    });
    let mut lxd = Vec::new();
    let mut vm_hosts = Vec::new();
    for host in &hosts {
        let address = format!("{}:8443", documentation_address(vm_hosts.len()));
        lxd.push(daemon(host, &machines, &address));
        vm_hosts.push(vm_host(host, address));
    }
    Ok(Inventory {
        users: owners.into_iter().filter(|name| !name.is_empty()).map(Name::from).collect(),
        zones: zones.iter().map(|zone| zone.name.as_str().into()).collect(),
        pools: pools.iter().map(|pool| pool.name.as_str().into()).collect(),
        domains: domains.iter().filter_map(|domain| domain.name.as_deref()).map(Name::from).collect(),
        vlans: fabrics.iter().flat_map(|fabric| fabric.vlans.iter().map(|vlan| self::vlan(fabric.id, vlan))).collect(),
        fabrics: fabrics.iter().map(fabric).collect(),
        subnets,
        ip_ranges: kept.chain(made_up).collect(),
        images: images.iter().filter_map(image).collect(),
        machines: machines.iter().map(machine).collect(),
        lxd,
        vm_hosts,
    })
}

/// Reads the LXD projects of VM hosts, which only an administrator may see. The answer contains a private key, which is
/// dropped.
pub async fn read_projects(client: &Client, inventory: &mut Inventory) -> maas_client::Result<()> {
    for host in &mut inventory.vm_hosts {
        if let Some(id) = host.id {
            host.project = client.vm_hosts().parameters(id).await?.project;
        }
    }
    Ok(())
}

fn machine(machine: &maas_client::Machine) -> Machine {
    let boot = machine.boot_interface.as_ref().and_then(|interface| interface.name.as_ref());
    let mut interfaces: Vec<Interface> = machine.interface_set.iter().filter_map(interface).collect();
    interfaces.sort_by_key(|interface| (Some(&interface.name) != boot, !interface.parents.is_empty()));
    Machine {
        system_id: Some(machine.system_id.clone()),
        hostname: machine.hostname.clone(),
        status: machine.status.map(|status| status.name().to_owned()),
        owner: machine.owner.clone().filter(|owner| !owner.is_empty()),
        power: match machine.power_state {
            Some(PowerState::On) => Some("on".to_owned()),
            Some(PowerState::Off) => Some("off".to_owned()),
            _ => None,
        },
        zone: machine.zone.as_ref().map(|zone| zone.name.clone()),
        pool: machine.pool.as_ref().map(|pool| pool.name.clone()),
        tags: machine.tag_names.clone(),
        architecture: machine.architecture.clone().filter(|it| !it.is_empty()),
        cpu_count: machine.cpu_count,
        memory: machine.memory,
        disks: Some(
            machine
                .blockdevice_set
                .iter()
                .filter(|disk| disk.kind.as_deref() != Some("virtual"))
                .filter_map(|disk| {
                    let size = disk.size?;
                    Some(match disk.storage_pool.clone().filter(|pool| !pool.is_empty()) {
                        Some(pool) => Disk::InPool { size, pool: Some(pool) },
                        None => Disk::Size(size),
                    })
                })
                .collect(),
        ),
        interfaces: Some(interfaces),
        vm_host: machine.pod.as_ref().map(|pod| NameOrId::Id(pod.id)),
    }
}

fn interface(interface: &maas_client::Interface) -> Option<Interface> {
    Some(Interface {
        name: interface.name.clone()?,
        kind: interface.kind.clone(),
        vlan: interface.vlan.as_ref().map(|vlan| vlan.id),
        parents: interface.parents.clone(),
    })
}

fn vm_host(host: &maas_client::VmHost, address: String) -> VmHost {
    VmHost {
        id: Some(host.id),
        name: host.name.clone(),
        power_address: Some(address),
        project: None,
        kind: host.kind.clone(),
        zone: host.zone.as_ref().map(|zone| zone.name.clone()),
        pool: host.pool.as_ref().map(|pool| pool.name.clone()),
        tags: Some(host.tags.clone()),
        cpu_over_commit_ratio: host.cpu_over_commit_ratio,
        memory_over_commit_ratio: host.memory_over_commit_ratio,
        host: beneath(host),
        discovered: (!host.is_reached()).then_some(false),
        counted: (!host.is_measured()).then_some(false),
    }
}

fn beneath(host: &maas_client::VmHost) -> Option<String> {
    host.host.as_ref().map(|machine| machine.system_id.clone()).filter(|id| !id.is_empty())
}

/// The daemon of a host. What MAAS counts as used beyond the VMs of the list, because this key does not show them or
/// because they are not machines, is kept as one instance, and subtracted from the storage pools.
fn daemon(host: &maas_client::VmHost, machines: &[maas_client::Machine], address: &str) -> Lxd {
    let is_here = |machine: &&maas_client::Machine| machine.pod.as_ref().is_some_and(|pod| pod.id == host.id);
    let vms: Vec<&maas_client::Machine> = machines.iter().filter(is_here).collect();
    let sum = |of: fn(&maas_client::Machine) -> Option<i64>| vms.iter().filter_map(|vm| of(vm)).sum::<i64>();
    let (total, used) = (host.total.as_ref(), host.used.as_ref());
    let cores = used.and_then(|used| used.cores).unwrap_or(0) - sum(|vm| vm.cpu_count);
    let memory = used.and_then(|used| used.memory).unwrap_or(0) - sum(|vm| vm.memory);
    let default = host.storage_pools.iter().find(|pool| pool.default == Some(true)).or(host.storage_pools.first());
    let default = default.and_then(|pool| pool.name.clone());
    let mut in_pool: BTreeMap<String, i64> = BTreeMap::new();
    for disk in vms.iter().flat_map(|vm| &vm.blockdevice_set).filter(|disk| disk.kind.as_deref() != Some("virtual")) {
        if let Some(pool) = disk.storage_pool.clone().filter(|pool| !pool.is_empty()).or_else(|| default.clone()) {
            *in_pool.entry(pool).or_default() += disk.size.unwrap_or(0);
        }
    }
    let mut pools: Vec<StoragePool> = host
        .storage_pools
        .iter()
        .filter_map(|pool| {
            let name = pool.name.clone()?;
            let total = pool.available.unwrap_or(0) + in_pool.get(&name).copied().unwrap_or(0);
            Some(StoragePool { name, driver: pool.kind.clone(), total: Some(total) })
        })
        .collect();
    pools.sort_by_key(|pool| Some(&pool.name) != default.as_ref());
    let others = Instance {
        project: Some("not-exported".to_owned()),
        name: "others".to_owned(),
        cores: Some(cores.max(0)),
        memory: Some(memory.max(0)),
        disks: Some(Vec::new()),
    };
    Lxd {
        address: address.to_owned(),
        version: host.version.clone().filter(|version| !version.is_empty()),
        cores: total.and_then(|total| total.cores),
        memory: total.and_then(|total| total.memory),
        storage_pools: (!pools.is_empty()).then_some(pools),
        host: beneath(host),
        instances: if cores > 0 || memory > 0 { vec![others] } else { Vec::new() },
    }
}

fn fabric(fabric: &maas_client::Fabric) -> Fabric {
    let untagged = fabric.vlans.iter().find(|vlan| vlan.vid == Some(0)).map(|vlan| vlan.id);
    Fabric { id: Some(fabric.id), name: fabric.name.clone(), vlan_id: untagged }
}

fn vlan(fabric: i64, vlan: &maas_client::Vlan) -> Vlan {
    Vlan { id: Some(vlan.id), fabric: Some(NameOrId::Id(fabric)), vid: vlan.vid, dhcp_on: vlan.dhcp_on }
}

fn image(image: &maas_client::BootResource) -> Option<Image> {
    let name = image.name.clone()?;
    let name = if name.contains('/') { name } else { format!("custom/{name}") };
    Some(Image { name, architecture: image.architecture.clone() })
}

/// Subnets, and for made-up ones a DHCP range.
fn networks(subnets: &[maas_client::Subnet], addresses: Addresses) -> (Vec<Subnet>, Vec<Range>) {
    let (mut all, mut ranges) = (Vec::new(), Vec::new());
    for (index, subnet) in subnets.iter().enumerate() {
        let Some(cidr) = subnet.cidr.clone() else { continue };
        let name = subnet.name.clone().filter(|name| *name != cidr);
        let vlan = subnet.vlan.as_ref().map(|vlan| vlan.id);
        if addresses == Addresses::Kept {
            all.push(Subnet { cidr, name, vlan, gateway_ip: subnet.gateway_ip.clone() });
            continue;
        }
        // A name may also be an address.
        let name = name.filter(|name| !name.contains(['.', ':', '/']));
        if cidr.contains(':') {
            all.push(Subnet { cidr: format!("fd00:{index:x}::/64"), name, vlan, gateway_ip: None });
            continue;
        }
        // Room for four thousand machines each, and for as many subnets.
        let at = |third: usize, fourth: u8| format!("10.{}.{}.{fourth}", index / 16, index % 16 * 16 + third);
        all.push(Subnet { cidr: format!("{}/20", at(0, 0)), name, vlan, gateway_ip: Some(at(15, 254)) });
        ranges.push(Range { kind: "dynamic".to_owned(), start_ip: at(15, 1), end_ip: at(15, 250) });
    }
    (all, ranges)
}

/// An address reserved for documentation (RFC 5737), and the following ones.
fn documentation_address(index: usize) -> String {
    format!("198.{}.{}.{}", 51 + index / 50_000, 100 + index / 250 % 100, 1 + index % 250)
}
