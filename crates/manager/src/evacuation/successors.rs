//! New machines of a rollout that are about to become LXD hosts.

use std::collections::{BTreeMap, BTreeSet};

use capmaas_api::MaasMachine;
use capmaas_core::evacuation::is_coming;

use super::gather::name;
use super::hosts::{Closing, object_of};
use super::owners::deployment_of;
use super::{Context, Tenant, World, cluster_of};
use crate::kubernetes::Key;
use crate::lxd_hosts::machine_of;

/// The control plane or MachineDeployment of a Machine: its Cluster, and the name of the MachineDeployment.
type Pool = (Key, Option<String>);

/// By VM host that is going to leave: the Machine of the same control plane or MachineDeployment that is not an LXD host
/// yet.
pub(super) async fn find(
    context: &Context,
    world: &World,
    tenant: &Tenant,
    closing: &Closing,
) -> BTreeMap<i64, String> {
    let (mut departing, mut hosts) = (BTreeMap::<i64, Pool>::new(), BTreeSet::new());
    for host in &closing.survey.hosts {
        let Some(object) = object_of(world, tenant, host, &closing.survey) else { continue };
        if host.total.cores > 0 {
            hosts.insert(Key::of(object));
        }
        if host.departing
            && let Some((pool, _)) = of_pool(context, object).await
        {
            departing.insert(host.id, pool);
        }
    }
    if departing.is_empty() {
        return BTreeMap::new();
    }
    let mut coming = BTreeMap::new();
    let clusters: BTreeSet<Key> = departing.values().map(|(cluster, _)| cluster.clone()).collect();
    for (key, object) in &world.machines {
        if !hosts.contains(key)
            && clusters.contains(&cluster_of(object))
            && let Some((pool, true)) = of_pool(context, object).await
        {
            coming.entry(pool).or_insert_with(|| name(key).to_string());
        }
    }
    departing.into_iter().filter_map(|(id, pool)| Some((id, coming.get(&pool)?.clone()))).collect()
}

/// The pool of an object, and whether it is about to be a host there.
async fn of_pool(context: &Context, object: &MaasMachine) -> Option<(Pool, bool)> {
    let machine = machine_of(context.kubernetes.as_ref(), object).await;
    let machine = machine.found()?;
    let pool = (cluster_of(object), deployment_of(machine).cloned());
    Some((pool, object.metadata.deletion_timestamp.is_none() && is_coming(machine, context.clock.now())))
}
