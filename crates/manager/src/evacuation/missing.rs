//! VMs that are still going to be requested: Machines are gone or on their way out, and their replacements are not observed yet.

use std::collections::BTreeSet;

use capmaas_api::MaasMachine;
use capmaas_api::capi::Machine;
use capmaas_core::Lookup;
use capmaas_core::evacuation::{Demanded, Group, GroupMember, Observed, Unsettled, Whose};
use kube::ResourceExt as _;

use super::gather::{demanded, model};
use super::{Context, Tenant, World, owners};
use crate::kubernetes::Key;
use crate::lxd_hosts::siblings;

/// What control planes and MachineDeployments in this MAAS are still going to request, beyond what was observed. This reads every
/// cluster, so it is done only before a Machine is deleted. If anything cannot be read, nothing is known (S1).
pub(super) async fn missing(
    context: &Context,
    world: &World,
    tenant: &Tenant,
    observed: &Observed,
) -> Result<Vec<Demanded>, String> {
    let counted = counted(observed);
    let mut all = Vec::new();
    for cluster in &tenant.neighbours {
        let unknown = |why: String| format!("how much room the cluster {cluster} still needs: {why}");
        let machines = context.owners.machines(cluster).await.map_err(|error| unknown(error.to_string()))?;
        let stored = context.kubernetes.cluster(cluster).await.map_err(|error| unknown(error.to_string()))?;
        let Some(stored) = stored.map(Lookup::Found) else { continue };
        let (mut asked, mut seen) = (BTreeSet::new(), BTreeSet::new());
        for machine in &machines {
            if !asked.insert(owners::controller(&machine.metadata).map(|owner| &owner.uid)) {
                continue;
            }
            match owners::group(context.owners.as_ref(), machine, &machines, &stored).await {
                // A MachineDeployment has several MachineSets.
                Lookup::Found(group) if seen.insert(group.name.clone()) => {
                    all.extend(of_group(world, (cluster, &machines), &group, &counted));
                }
                Lookup::Found(_) | Lookup::Absent => {}
                Lookup::Unknown(why) => return Err(unknown(why)),
            }
        }
    }
    Ok(all)
}

/// UIDs of the Machines being deleted whose VMs are still on hosts that are being evacuated: room is kept for their replacements
/// already.
fn counted(observed: &Observed) -> BTreeSet<&str> {
    let guests = observed.hosts.iter().filter_map(|host| host.guests.found()).flatten();
    let leaving = guests.filter_map(|guest| match &guest.whose {
        Whose::Ours(member) => member.replacement().and(member.machine.found()),
        Whose::Foreign(_) => None,
    });
    leaving.map(|machine| machine.uid.as_str()).collect()
}

fn of_group(
    world: &World,
    (cluster, machines): (&Key, &[Machine]),
    group: &Group,
    counted: &BTreeSet<&str>,
) -> Vec<Demanded> {
    if group.unsettled == Some(Unsettled::Deleting) {
        return Vec::new();
    }
    let object = |member: &GroupMember| {
        let machine = machines.iter().find(|machine| machine.name_any() == member.name)?;
        let reference = machine.spec.infrastructure_ref.as_ref().filter(|it| it.is_ours("MaasMachine"))?;
        world.machines.get(&cluster.beside(&reference.name)).map(AsRef::as_ref)
    };
    // One whose MaasMachine has been created since the others were observed is neither on a host nor among those that wait.
    let (leaving, staying): (Vec<&GroupMember>, Vec<_>) = group.members.iter().partition(|member| member.deleting);
    let unobserved = staying.iter().filter(|member| object(member).is_none());
    let mut zones: Vec<Vec<String>> = unobserved.map(|it| it.failure_domain.iter().cloned().collect()).collect();
    let replaced = leaving.iter().filter(|member| counted.contains(member.uid.as_str())).count();
    let missing = group.desired.unwrap_or(0).saturating_sub(staying.len() + replaced);
    zones.extend(group.next_domains(None, missing));

    // Like one from the current template; as long as there is none, like any other.
    let observed: Vec<(&MaasMachine, &str)> =
        group.members.iter().filter_map(|member| Some((object(member)?, member.name.as_str()))).collect();
    let current = observed.iter().filter_map(|(own, name)| Some((*own, model(world, own, group, name).ok()?)));
    let demands = |(own, model): (&MaasMachine, &MaasMachine)| {
        let each = zones.iter().map(|zones| demanded(model, siblings(own, &world.index), zones.clone()));
        each.collect::<Result<Vec<_>, _>>().ok()
    };
    current.chain(observed.iter().map(|(own, _)| (*own, *own))).find_map(demands).unwrap_or_default()
}
