//! LXD hosts as MAAS shows them, and what is promised on them.
//!
//! A choice is kept in two places: in the object's record, where every manager that reads the object sees it, and here, because
//! the watch that tells about the record is a moment late. Two managers that do not see each other's objects are kept apart by
//! MAAS itself: it refuses to compose beyond the host's room, and the refused one goes elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use capmaas_api::MaasMachine;
use capmaas_api::names::{CLUSTER_NAME_LABEL, CONTROL_PLANE_LABEL};
use capmaas_core::Lookup;
use capmaas_core::intent::Vm;
use capmaas_core::machine::{HostSight, Observed, Record};
use capmaas_core::placement::{
    Claim, Demand, Host, HostMachine, LEAVING_TAG, Named, Placement, Port, Room, Sibling, StoragePool, SubnetRef, place,
};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use maas_client::{Client, Machine, VmHost, VmHostResources};

use super::Context;
use super::gather::metal;
use crate::identity::Identity;

/// Label of the MachineSet that a machine belongs to.
const SET_LABEL: &str = "cluster.x-k8s.io/set-name";
/// A choice that never came into a record is forgotten after this.
const KEPT: SignedDuration = SignedDuration::from_secs(60);

/// Choices of this process that the watch may not have told yet, by the uid of their object.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    made: Arc<Mutex<BTreeMap<String, Chosen>>>,
}

#[derive(Clone, Debug)]
struct Chosen {
    group: Option<String>,
    claim: Claim,
    zone: Option<String>,
    at: Timestamp,
}

/// Machines that should be spread: a control plane, or a MachineSet.
fn group(machine: &MaasMachine) -> Option<String> {
    let labels = machine.labels();
    let cluster = labels.get(CLUSTER_NAME_LABEL)?;
    let set = if labels.contains_key(CONTROL_PLANE_LABEL) { "" } else { labels.get(SET_LABEL)?.as_str() };
    Some(format!("{}/{cluster}/{set}", machine.namespace().unwrap_or_default()))
}

/// Where the VM can be.
pub(super) async fn placement(
    context: &Context,
    identity: &Identity,
    observed: &Observed,
    (record, vm): (&Record, &Vm),
    all: &[Arc<MaasMachine>],
) -> Lookup<Placement> {
    let hosts = match hosts(&identity.client, vm).await {
        Ok(hosts) => hosts,
        Err(error) => return Lookup::Unknown(error.to_string()),
    };
    let now = context.clock.now();
    let of_machine = match &observed.machine {
        Lookup::Found(machine) => machine.failure_domain().map(str::to_owned),
        _ => None,
    };
    let zone = of_machine.or_else(|| vm.zone.clone());
    let failed: BTreeSet<i64> = record.vm.iter().flat_map(|vm| vm.avoids(now)).collect();
    let demand = Demand { vm, zone: zone.as_deref(), failed: &failed };
    Lookup::Found(context.choices.place(&observed.object, all, &demand, &hosts, now))
}

impl Choices {
    /// Chooses and remembers, in one go: nobody chooses in between.
    fn place(
        &self,
        object: &MaasMachine,
        all: &[Arc<MaasMachine>],
        demand: &Demand<'_>,
        hosts: &[Host],
        now: Timestamp,
    ) -> Placement {
        let uid = object.uid().unwrap_or_default();
        let ours = group(object);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|_, chosen| now.duration_since(chosen.at) < KEPT);
        made.remove(&uid);
        let (mut claims, mut siblings) = (Vec::new(), Vec::new());
        for other in all.iter().filter(|other| other.uid().as_deref() != Some(uid.as_str())) {
            let record = Record::read(other.metadata.annotations.as_ref()).ok().flatten();
            let place = record.as_ref().and_then(Record::place);
            let there = record.as_ref().is_some_and(|record| record.machine.is_some());
            if place.is_some() || there {
                // The watch has caught up.
                made.remove(&other.uid().unwrap_or_default());
            }
            if let (Some(place), false) = (place, there) {
                let (cores, memory, disk) = (place.cores, place.memory, place.disk);
                claims.push(Claim { host: place.host, cores, memory, disk, storage_pool: place.storage_pool.clone() });
            }
            if ours.is_some() && group(other) == ours && other.metadata.deletion_timestamp.is_none() {
                let seen = other.status.as_ref().and_then(|status| status.failure_domain.clone());
                let zone = place.map(|place| place.zone.clone()).or(seen);
                if zone.is_some() {
                    siblings.push(Sibling { host: place.map(|place| place.host), zone });
                }
            }
        }
        for chosen in made.values() {
            claims.push(chosen.claim.clone());
            if ours.is_some() && chosen.group == ours {
                siblings.push(Sibling { host: Some(chosen.claim.host), zone: chosen.zone.clone() });
            }
        }
        let placement = place(demand, hosts, &claims, &siblings);
        if let Ok(choice) = &placement.choice {
            let vm = demand.vm;
            let claim = Claim {
                host: choice.host,
                cores: vm.cores,
                memory: vm.memory,
                disk: vm.disk,
                storage_pool: Some(choice.storage_pool.clone()),
            };
            let zone = choice.zone.as_ref().map(|zone| zone.name.clone());
            made.insert(uid, Chosen { group: ours, claim, zone, at: now });
        }
        placement
    }
}

/// All LXD hosts with the machines that they run on.
async fn hosts(client: &Client, vm: &Vm) -> maas_client::Result<Vec<Host>> {
    let listed: Vec<VmHost> =
        client.vm_hosts().list().await?.into_iter().filter(|host| host.kind.as_deref() == Some("lxd")).collect();
    let ids: Vec<&str> =
        listed.iter().filter_map(|host| host.host.as_ref().map(|machine| machine.system_id.as_str())).collect();
    let machines = client.machines().by_ids(&ids).await?;
    let subnets = client.subnets().list().await?;
    let mut hosts = Vec::with_capacity(listed.len());
    for host in &listed {
        let project = if vm.project.is_some() {
            match client.vm_hosts().parameters(host.id).await {
                Ok(parameters) => parameters.project.map_or(Lookup::Absent, Lookup::Found),
                Err(error) => Lookup::Unknown(error.to_string()),
            }
        } else {
            Lookup::Unknown("nobody asked".into())
        };
        let machine = host
            .host
            .as_ref()
            .and_then(|reference| machines.iter().find(|machine| machine.system_id == reference.system_id));
        hosts.push(convert(host, machine, project, &subnets));
    }
    Ok(hosts)
}

fn convert(host: &VmHost, machine: Option<&Machine>, project: Lookup<String>, subnets: &[maas_client::Subnet]) -> Host {
    let (total, used) = (host.total.as_ref(), host.used.as_ref());
    let cores = |of: Option<&VmHostResources>| of.and_then(|of| of.cores).unwrap_or(0);
    let memory = |of: Option<&VmHostResources>| of.and_then(|of| of.memory).unwrap_or(0);
    // As MAAS judges a compose: what there is times the ratio, less what is used.
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "cores and MiB are small numbers")]
    let room = |all: i64, ratio: Option<f64>, used: i64| ((all as f64) * ratio.unwrap_or(1.0)).floor() as i64 - used;
    let named = |id: Option<i64>, name: &str| Some(Named { id: id?, name: name.to_owned() });
    Host {
        id: host.id,
        name: host.name.clone().unwrap_or_default(),
        system_id: host.host.as_ref().map(|machine| machine.system_id.clone()),
        zone: host.zone.as_ref().and_then(|zone| named(zone.id, &zone.name)),
        pool: host.pool.as_ref().and_then(|pool| named(pool.id, &pool.name)),
        tags: host.tags.iter().cloned().collect(),
        project,
        reached: host.is_reached(),
        total: Room { cores: cores(total), memory: memory(total) },
        free: Room {
            cores: room(cores(total), host.cpu_over_commit_ratio, cores(used)),
            memory: room(memory(total), host.memory_over_commit_ratio, memory(used)),
        },
        pools: host
            .storage_pools
            .iter()
            .filter_map(|pool| {
                let free = pool.available.unwrap_or(0);
                Some(StoragePool { name: pool.name.clone()?, free, default: pool.default == Some(true) })
            })
            .collect(),
        ports: machine.map(|machine| ports(machine, subnets)),
        profiles: None,
        machine: match (machine, &host.host) {
            (Some(machine), _) => {
                let seen = metal(machine);
                Lookup::Found(HostMachine {
                    state: seen.state,
                    power: seen.power,
                    tags: machine.tag_names.iter().cloned().collect(),
                })
            }
            (None, Some(_)) => Lookup::Unknown("MAAS does not show the machine under it".into()),
            (None, None) => Lookup::Absent,
        },
    }
}

fn ports(machine: &Machine, subnets: &[maas_client::Subnet]) -> Vec<Port> {
    let boot = machine.boot_interface.as_ref().and_then(|interface| interface.name.clone());
    machine
        .interface_set
        .iter()
        .filter_map(|interface| {
            let (name, vlan) = (interface.name.clone()?, interface.vlan.as_ref()?.id);
            let on_boot = boot.as_ref().is_some_and(|boot| *boot == name || interface.parents.contains(boot));
            let of_vlan = subnets.iter().filter(|subnet| subnet.vlan.as_ref().is_some_and(|of| of.id == vlan));
            let refer = |subnet: &maas_client::Subnet| {
                let cidr = subnet.cidr.clone()?;
                Some(SubnetRef { name: subnet.name.clone().unwrap_or_default(), cidr })
            };
            Some(Port {
                bridge: interface.is_bridge(),
                boot: on_boot,
                vlan,
                subnets: of_vlan.filter_map(refer).collect(),
                name,
            })
        })
        .collect()
}

/// The host on record, right before a VM is made there.
pub(super) async fn sight(client: &Client, id: i64) -> Lookup<HostSight> {
    let host = match client.vm_hosts().read(id).await {
        Ok(host) => host,
        Err(error) if error.is_not_found() => return Lookup::Absent,
        Err(error) => return Lookup::Unknown(error.to_string()),
    };
    let usable = if !host.is_reached() {
        Err("MAAS does not reach its LXD".to_owned())
    } else if !host.is_measured() {
        Err("MAAS does not know yet how much it has".to_owned())
    } else if host.tags.iter().any(|tag| tag == LEAVING_TAG) {
        Err("it is being taken out of use".to_owned())
    } else {
        Ok(())
    };
    let project = match client.vm_hosts().parameters(id).await {
        Ok(parameters) => parameters.project,
        Err(_) => None,
    };
    let others_known = Lookup::Unknown("no agent on the host counts its VMs".to_owned());
    Lookup::Found(HostSight { usable, project, others_known, power: None })
}
