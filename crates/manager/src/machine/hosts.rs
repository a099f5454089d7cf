//! LXD hosts from the point of view of one machine.

use std::collections::BTreeSet;

use capmaas_core::Lookup;
use capmaas_core::intent::Vm;
use capmaas_core::maas::Power;
use capmaas_core::machine::{Journal, Observed, ObservedHost};
use capmaas_core::placement::{Demand, MAINTENANCE_TAG, Placement, is_closing};
use maas_client::{Client, PowerState, VmHost};

use super::Context;
use super::orphans::others_known;
use crate::identity::Identity;
use crate::lxd_hosts::Objects;
use crate::machine_index::MachineIndex;

/// The hosts on which the VM can be placed.
pub(super) async fn placement(
    context: &Context,
    identity: &Identity,
    observed: &Observed,
    (journal, vm): (&Journal, &Vm),
    machine_index: &MachineIndex,
) -> Lookup<Placement> {
    let now = context.clock.now();
    let of_machine = match &observed.machine {
        Lookup::Found(machine) => machine.failure_domain().map(str::to_owned),
        _ => None,
    };
    let zone = of_machine.or_else(|| vm.zone.clone());
    let failed: BTreeSet<i64> = journal.vm.iter().flat_map(|vm| vm.avoids(now)).collect();
    let demand = Demand { vm, zone: zone.as_deref(), failed: &failed };
    let objects = Objects { kubernetes: context.kubernetes.as_ref(), index: machine_index };
    context.lxd_hosts.place(identity, now, &demand, &observed.object, objects).await
}

/// The host in the journal, right before a VM is composed or looked up there (`orphan` is the VM's name).
pub(super) async fn session(
    context: &Context,
    identity: &Identity,
    id: i64,
    orphan: Option<&str>,
    machine_index: &MachineIndex,
) -> Lookup<ObservedHost> {
    let client = &identity.client;
    let host = match client.vm_hosts().read(id).await {
        Ok(host) => host,
        Err(error) if error.is_not_found() => return Lookup::Absent,
        Err(error) => return Lookup::Unknown(error.to_string()),
    };
    let closed_by = match closed_by(client, &host).await {
        Ok(closed_by) => closed_by,
        Err(error) => return Lookup::Unknown(error.to_string()),
    };
    let usable = if !host.is_reached() {
        Err("MAAS cannot reach its LXD".to_owned())
    } else if !host.is_measured() {
        Err("MAAS does not know its capacity yet".to_owned())
    } else if let Some(tag) = closed_by {
        Err(format!("it carries the tag {tag}, which keeps new VMs off it"))
    } else {
        Ok(())
    };
    let others_known = match orphan {
        Some(name) => others_known(context, identity, &host, name, machine_index).await,
        None => Lookup::Unknown("not read".to_owned()),
    };
    let project = match client.vm_hosts().parameters(id).await {
        Ok(parameters) => parameters.project,
        Err(_) => None,
    };
    Lookup::Found(ObservedHost { usable, project, others_known, power: None })
}

/// The tag that keeps new VMs off a host: its own, or one of the machine that it runs on.
async fn closed_by(client: &Client, host: &VmHost) -> maas_client::Result<Option<String>> {
    let mut tags = host.tags.clone();
    if let Some(machine) = host.host.as_ref().filter(|machine| !machine.system_id.is_empty()) {
        let machines = client.machines().by_ids(&[&machine.system_id]).await?;
        tags.extend(machines.into_iter().flat_map(|machine| machine.tag_names));
    }
    Ok(tags.into_iter().find(|tag| is_closing(tag)))
}

/// Whether the host of an unresponsive VM is powered on, according to the power driver of the machine that it runs on.
pub(super) async fn health(client: &Client, id: i64) -> Lookup<ObservedHost> {
    let host = match client.vm_hosts().read(id).await {
        Ok(host) => host,
        Err(error) if error.is_not_found() => return Lookup::Absent,
        Err(error) => return Lookup::Unknown(error.to_string()),
    };
    let power = match &host.host {
        None => None,
        Some(machine) => Some(match client.machines().query_power_state(&machine.system_id).await {
            Ok(PowerState::On) => Power::On,
            Ok(PowerState::Off) => Power::Off,
            // Any other answer, or none, does not count as off (S16).
            Ok(_) | Err(_) => Power::Unknown,
        }),
    };
    let others_known = Lookup::Unknown("not read".to_owned());
    let usable = Err("a VM on it does not answer".to_owned());
    Lookup::Found(ObservedHost { usable, project: None, others_known, power })
}

/// Whether the VM host on a machine is tagged for maintenance (S20). That the machine itself is tagged is in MAAS's answer about it.
pub(super) async fn is_in_maintenance(context: &Context, identity: &Identity, machine: &str) -> Lookup<bool> {
    match context.lxd_hosts.now(identity).await {
        Ok(hosts) => Lookup::Found(hosts.iter().any(|host| {
            host.host.as_ref().is_some_and(|of| of.system_id == machine)
                && host.tags.iter().any(|tag| tag == MAINTENANCE_TAG)
        })),
        Err(error) => Lookup::Unknown(error.to_string()),
    }
}
