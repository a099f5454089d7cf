//! Whether a host can take a VM: the checks, in order.

use crate::Lookup;
use crate::intent::Attach;
use crate::maas::{Power, State};

use super::host::{Host, MAAS_PROFILE, Port, StoragePool};
use super::verdict::{Attachment, Choice, Why};
use super::{Demand, Promised, bytes};

/// What placing the VM here would mean.
pub(super) struct Fits<'a> {
    host: &'a Host,
    pool: &'a StoragePool,
    interfaces: Vec<Attachment>,
    /// How many more such VMs there would be room for afterwards.
    pub(super) more: i64,
}

impl Fits<'_> {
    pub(super) fn choice(self) -> Choice {
        let host = self.host;
        Choice {
            host: host.id,
            name: host.name.clone(),
            system_id: host.system_id.clone(),
            zone: host.zone.clone(),
            pool: host.pool.clone(),
            project: match &host.project {
                Lookup::Found(project) => Some(project.clone()),
                Lookup::Absent | Lookup::Unknown(_) => None,
            },
            storage_pool: self.pool.name.clone(),
            interfaces: self.interfaces,
        }
    }
}

pub(super) fn fit<'a>(demand: &Demand<'_>, host: &'a Host, promised: Promised<'_>) -> Result<Fits<'a>, Why> {
    named(demand, host)?;
    project(demand, host)?;
    profile(demand, host)?;
    healthy(demand, host)?;
    let interfaces = attachments(demand, host)?;
    let (pool, disks) = storage(demand, host, promised)?;
    let (cores, memory) = room(demand, host, promised)?;
    Ok(Fits { host, pool, interfaces, more: cores.min(memory).min(disks) })
}

/// Whether the host matches the requested name, zone, pool and tags.
pub(super) fn named(demand: &Demand<'_>, host: &Host) -> Result<(), Why> {
    let vm = demand.vm;
    if let Some(wanted) = vm.host.as_deref() {
        let is = host.name == wanted || host.system_id.as_deref() == Some(wanted) || wanted.parse() == Ok(host.id);
        if !is {
            return Err(Why::NotNamed);
        }
    }
    let zone = host.zone.as_ref().map(|zone| zone.name.as_str());
    if demand.zone.is_some() && demand.zone != zone {
        return Err(Why::OtherZone(zone.map(str::to_owned)));
    }
    let pool = host.pool.as_ref().map(|pool| pool.name.as_str());
    if vm.pool.is_some() && vm.pool.as_deref() != pool {
        return Err(Why::OtherPool(pool.map(str::to_owned)));
    }
    let machine = match &host.machine {
        Lookup::Found(machine) => Some(&machine.tags),
        Lookup::Absent | Lookup::Unknown(_) => None,
    };
    let carries = |tag: &str| host.tags.contains(tag) || machine.is_some_and(|tags| tags.contains(tag));
    match vm.tags.iter().find(|tag| !carries(tag)) {
        Some(tag) => Err(Why::LacksTag(tag.clone())),
        None => Ok(()),
    }
}

fn project(demand: &Demand<'_>, host: &Host) -> Result<(), Why> {
    let Some(wanted) = demand.vm.project.as_deref() else { return Ok(()) };
    match &host.project {
        Lookup::Found(project) if project == wanted => Ok(()),
        Lookup::Found(project) => Err(Why::OtherProject(Some(project.clone()))),
        Lookup::Absent => Err(Why::OtherProject(None)),
        Lookup::Unknown(why) => Err(Why::ProjectUnknown(why.clone())),
    }
}

/// MAAS accepts no profile for a VM: it gives every VM the one named `maas`, if the project has that. MAAS does not show whether
/// it does: a profile that the agent does not report counts as missing.
fn profile(demand: &Demand<'_>, host: &Host) -> Result<(), Why> {
    let Some(wanted) = demand.vm.profile.as_deref() else { return Ok(()) };
    if wanted != MAAS_PROFILE {
        return Err(Why::ProfileNotGiven);
    }
    match &host.profiles {
        Some(profiles) if profiles.contains(wanted) => Ok(()),
        Some(_) => Err(Why::NoProfile),
        None => Err(Why::ProfilesNotReported),
    }
}

fn healthy(demand: &Demand<'_>, host: &Host) -> Result<(), Why> {
    if let Some(tag) = host.closed_by() {
        return Err(Why::Closed(tag.to_owned()));
    }
    if demand.failed.contains(&host.id) {
        return Err(Why::FailedBefore);
    }
    match &host.machine {
        Lookup::Found(machine) if machine.state != State::Deployed => return Err(Why::NotDeployed),
        Lookup::Found(machine) if machine.power == Power::Off => return Err(Why::Off),
        Lookup::Unknown(why) => return Err(Why::HealthUnknown(why.clone())),
        Lookup::Found(_) | Lookup::Absent => {}
    }
    if !host.reached {
        return Err(Why::NotReached);
    }
    if host.total.cores <= 0 || host.total.memory <= 0 {
        return Err(Why::NotMeasured);
    }
    Ok(())
}

/// The subnets to which MAAS attaches the NICs. MAAS accepts no bridge name: a subnet of its VLAN is equivalent, unless the host
/// has another bridge there.
fn attachments(demand: &Demand<'_>, host: &Host) -> Result<Vec<Attachment>, Why> {
    let nics = &demand.vm.nics;
    if nics.iter().all(|nic| nic.to == Attach::Boot) && nics.len() <= 1 {
        return Ok(Vec::new());
    }
    let ports = host.ports.as_deref().ok_or(Why::NetworksUnknown)?;
    let mut attachments = Vec::with_capacity(nics.len());
    for nic in nics {
        let cidr = match &nic.to {
            Attach::Boot => first_subnet(ports.iter().filter(|port| port.boot)).ok_or(Why::NoBootNetwork)?,
            Attach::Bridge(name) => bridge(ports, name)?,
            Attach::Subnet(name) => {
                let all = ports.iter().flat_map(|port| &port.subnets);
                let found = all.filter(|subnet| subnet.name == *name || subnet.cidr == *name).min_by_key(|it| &it.cidr);
                found.map(|subnet| subnet.cidr.as_str()).ok_or_else(|| Why::NoSubnet(name.clone()))?
            }
        };
        attachments.push(Attachment { name: nic.name.clone(), subnet: cidr.to_owned() });
    }
    Ok(attachments)
}

fn bridge<'a>(ports: &'a [Port], name: &str) -> Result<&'a str, Why> {
    let Some(bridge) = ports.iter().find(|port| port.bridge && port.name == name) else {
        return Err(Why::NoBridge(name.to_owned()));
    };
    if ports.iter().any(|port| port.bridge && port.name != name && port.vlan == bridge.vlan) {
        return Err(Why::BridgeNotAlone(name.to_owned()));
    }
    first_subnet([bridge].into_iter()).ok_or_else(|| Why::BridgeWithoutSubnet(name.to_owned()))
}

fn first_subnet<'a>(ports: impl Iterator<Item = &'a Port>) -> Option<&'a str> {
    ports.flat_map(|port| &port.subnets).map(|subnet| subnet.cidr.as_str()).min()
}

/// The storage pool, and how many more such disks it would hold.
fn storage<'a>(demand: &Demand<'_>, host: &'a Host, promised: Promised<'_>) -> Result<(&'a StoragePool, i64), Why> {
    let vm = demand.vm;
    let pool = if let Some(name) = vm.storage_pool.as_deref() {
        host.pools.iter().find(|pool| pool.name == name).ok_or_else(|| Why::NoStoragePool(name.into()))?
    } else {
        // As MAAS does: the default one, otherwise the first.
        host.pools.iter().find(|pool| pool.default).or(host.pools.first()).ok_or(Why::NoStoragePools)?
    };
    let need = bytes(vm.disk).max(1);
    let free = pool.free.saturating_sub(promised.bytes(&pool.name));
    if free < need {
        return Err(Why::TooLittleDisk { pool: pool.name.clone(), free: free.max(0) / bytes(1) });
    }
    Ok((pool, (free - need) / need))
}

/// How many more such VMs the cores and the memory would suffice for.
fn room(demand: &Demand<'_>, host: &Host, promised: Promised<'_>) -> Result<(i64, i64), Why> {
    let (cores, memory) = (i64::from(demand.vm.cores.max(1)), i64::from(demand.vm.memory.max(1)));
    let free_cores = host.free.cores.saturating_sub(promised.cores());
    let free_memory = host.free.memory.saturating_sub(promised.memory());
    if cores > free_cores || cores > host.total.cores {
        return Err(Why::TooFewCores { free: free_cores.max(0) });
    }
    if memory > free_memory || memory > host.total.memory {
        return Err(Why::TooLittleMemory { free: free_memory.max(0) });
    }
    Ok(((free_cores - cores) / cores, (free_memory - memory) / memory))
}
