//! Evacuation of hosts that are being deleted or under maintenance: gather, let `capmaas_core::evacuation` decide,
//! apply.
//!
//! One pass covers everything, because what may be evacuated depends on more than one object: on the other machines of
//! its control plane, and on the capacity that others need. Each MAAS is visited separately: one that does not answer
//! fails only its own visit, and delays the pass by no more than the deadline of a read (S29).

mod controller;
mod gather;
mod hosts;
mod memory;
mod missing;
mod owners;
mod report;
mod successors;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use capmaas_api::names::{MAINTENANCE_ANNOTATION, MAINTENANCE_TAGGED_ANNOTATION};
use capmaas_api::{Condition, Conditions as _, MaasCluster, MaasMachine, conditions, reasons};
use capmaas_core::Lookup;
use capmaas_core::credentials::Standing;
use capmaas_core::evacuation::{Machine, Plan, Refusal, decide, still_goes};
use capmaas_core::plan::Requeue;
use futures::future::join_all;
use kube::ResourceExt as _;

use crate::belonging::cluster_name;
use crate::clock::Clock;
use crate::identity::{Fingerprint, Identities, Identity};
use crate::kubernetes::{Error, ErrorKind, Guard, Key, Kubernetes, Owners, Result};
use crate::lease::Fence;
use crate::lxd_hosts::{LxdHosts, Objects};
use crate::machine_index::MachineIndex;
use crate::metrics::Metrics;
use crate::stamp::Stamp;

pub use controller::run;
pub use memory::Memory;

/// Seconds between passes while hosts are being evacuated.
const BUSY: u64 = 5;
/// Tags in MAAS trigger no event, so they are polled. Without VMs MAAS is not asked.
const IDLE: u64 = 60;

#[derive(Clone)]
pub struct Context {
    pub kubernetes: Arc<dyn Kubernetes>,
    /// Machines and their owners.
    pub owners: Arc<dyn Owners>,
    pub identities: Identities,
    pub clock: Clock,
    /// Checked right before every write to MAAS (S23).
    pub fence: Fence,
    pub metrics: Metrics,
    /// The LXD hosts, shared by all reconcilers.
    pub lxd_hosts: LxdHosts,
    /// State that can be lost at any time.
    pub memory: Memory,
}

/// The objects that this manager reconciles, from the watches.
struct World {
    machines: BTreeMap<Key, Arc<MaasMachine>>,
    /// By their Cluster.
    clusters: BTreeMap<Key, Arc<MaasCluster>>,
    index: MachineIndex,
}

impl World {
    async fn read(kubernetes: &dyn Kubernetes) -> Result<Self> {
        let machines = kubernetes.maas_machines(None).await?;
        let clusters = kubernetes.maas_clusters().await?;
        Ok(Self {
            machines: machines.into_iter().map(|machine| (Key::of(machine.as_ref()), machine)).collect(),
            clusters: clusters
                .into_iter()
                .map(|cluster| (Key::of(cluster.as_ref()).beside(cluster_name(&cluster)), cluster))
                .collect(),
            index: kubernetes.machine_index().await?,
        })
    }

    /// Clusters whose MAAS has to be visited: they have VMs, or hosts with a maintenance annotation, or a condition that
    /// speaks of an evacuation and has to be ended.
    fn concerned(&self) -> BTreeSet<Key> {
        let mut concerned = self.index.clusters_with_vms();
        let tells = |conditions: &[Condition]| {
            let said = conditions.condition(conditions::EVACUATING);
            said.is_some_and(|said| said.reason.as_deref() != Some(reasons::NOT_EVACUATING))
        };
        for (cluster, object) in &self.clusters {
            if object.status.as_ref().is_some_and(|status| tells(&status.conditions)) {
                concerned.insert(cluster.clone());
            }
        }
        for machine in self.machines.values() {
            let annotations = machine.annotations();
            let said = [MAINTENANCE_ANNOTATION, MAINTENANCE_TAGGED_ANNOTATION];
            let told = machine.status.as_ref().is_some_and(|status| tells(&status.conditions));
            if told || said.iter().any(|name| annotations.contains_key(*name)) {
                concerned.insert(cluster_of(machine));
            }
        }
        concerned
    }

    fn objects<'a>(&'a self, context: &'a Context) -> Objects<'a> {
        Objects { kubernetes: context.kubernetes.as_ref(), index: &self.index }
    }

    /// Among the objects that claim a machine, the one whose stamp it carries.
    fn proven_holder(&self, tenant: &Tenant, system_id: &str, stamp: &Stamp) -> Option<&Arc<MaasMachine>> {
        let claims = self.index.holders(tenant.identity.endpoint(), system_id);
        claims.iter().filter_map(|(key, _)| self.machines.get(key)).find(|object| stamp.is_of(object))
    }
}

/// The Cluster that a machine is labelled with.
fn cluster_of(machine: &MaasMachine) -> Key {
    let label = machine.labels().get(capmaas_api::names::CLUSTER_NAME_LABEL).cloned();
    Key::of(machine).beside(label.unwrap_or_default())
}

/// A MAAS as seen by one identity, and the Clusters that use this identity.
struct Tenant {
    identity: Identity,
    clusters: BTreeSet<Key>,
    /// These and all other clusters in the same MAAS.
    neighbours: BTreeSet<Key>,
}

/// Each MAAS in which a Machine was deleted in this pass. Two identities of one MAAS see the same free capacity at the
/// same time; the second one waits until the effect of the first one is visible.
type Turns = tokio::sync::Mutex<BTreeSet<String>>;

/// The result of a visit.
struct Visit {
    plan: Plan,
    /// Something was changed: the next pass observes more.
    acted: bool,
}

/// One pass over everything. If a crash interrupts it, the next pass observes the result and continues.
pub async fn pass(context: &Context) -> Result<Requeue> {
    let world = World::read(context.kubernetes.as_ref()).await?;
    let tenants = tenants(context, &world).await;
    let turns = Turns::default();
    let visits = join_all(tenants.iter().map(|tenant| visit(context, &world, tenant, &turns))).await;
    let (mut plan, mut acted, mut looked_at) = (Plan { delete: None, hosts: Vec::new() }, false, BTreeSet::new());
    for (tenant, visit) in tenants.iter().zip(visits) {
        match visit {
            Ok(visit) => {
                acted |= visit.acted;
                report::merge(&mut plan, visit.plan);
                looked_at.extend(tenant.clusters.iter().cloned());
            }
            Err(error) => tracing::warn!(maas = tenant.identity.endpoint(), %error, "LXD hosts could not be observed"),
        }
    }
    report::report(context, &world, &plan, &looked_at).await;
    Ok(match (acted, plan.hosts.is_empty()) {
        (true, _) => Requeue::seconds(1),
        (false, false) => Requeue::seconds(BUSY),
        (false, true) => Requeue::seconds(IDLE),
    })
}

/// The tenants to visit. A cluster with a changed identity is skipped until the identity is proven (S5).
async fn tenants(context: &Context, world: &World) -> Vec<Tenant> {
    let mut tenants: BTreeMap<Fingerprint, Tenant> = BTreeMap::new();
    let mut by_maas: BTreeMap<String, BTreeSet<Key>> = BTreeMap::new();
    for cluster in world.concerned() {
        let Some(object) = world.clusters.get(&cluster) else { continue };
        match context.identities.check(object).await {
            Ok(identity) if matches!(identity.standing, Standing::Changed { .. }) => {}
            Ok(identity) => {
                let (fingerprint, maas) = (identity.fingerprint, identity.endpoint().to_owned());
                let (clusters, neighbours) = (BTreeSet::new(), BTreeSet::new());
                let tenant = tenants.entry(fingerprint).or_insert(Tenant { identity, clusters, neighbours });
                tenant.clusters.insert(cluster.clone());
                by_maas.entry(maas).or_default().insert(cluster);
            }
            Err(problem) => tracing::debug!(%cluster, %problem, "its LXD hosts cannot be observed"),
        }
    }
    for tenant in tenants.values_mut() {
        tenant.neighbours = by_maas.get(tenant.identity.endpoint()).cloned().unwrap_or_default();
    }
    tenants.into_values().collect()
}

/// Observes one MAAS and takes at most one action: closing a host comes before evacuating it.
async fn visit(context: &Context, world: &World, tenant: &Tenant, turns: &Turns) -> Result<Visit, maas_client::Error> {
    let closing = hosts::closing(context, world, tenant).await?;
    let mut acted = hosts::close(context, world, tenant, &closing).await;
    let mut gathered = gather::gather(context, world, tenant, closing).await?;
    let mut plan = decide(&gathered.observed);
    if plan.delete.is_some() && !acted {
        let observed = &mut gathered.observed;
        match missing::missing(context, world, tenant, observed).await {
            Ok(missing) => {
                observed.unplaced.extend(missing);
                let demands = gather::demands(&observed.hosts).chain(&observed.unplaced);
                observed.site = Lookup::Found(gather::site(context, world, tenant, demands).await?);
            }
            Err(why) => observed.site = Lookup::Unknown(why),
        }
        plan = decide(observed);
    }
    if acted {
        plan.postpone("hosts are closed and opened first");
    }
    if let Some(machine) = plan.delete.clone()
        && let Some(object) = gathered.objects.get(&machine.object)
    {
        let (mut turns, maas) = (turns.lock().await, tenant.identity.endpoint());
        if turns.contains(maas) {
            plan.postpone("another Machine in this MAAS was just deleted");
            return Ok(Visit { plan, acted });
        }
        match delete(context, world, tenant, object, &machine).await {
            Deletion::Done => acted = true,
            Deletion::Failed(refusal) => {
                acted = true;
                gathered.observed.refusals.insert(machine.uid, refusal);
                plan = decide(&gathered.observed);
                plan.postpone("the deletion of another Machine just failed");
            }
            Deletion::Dropped => plan.postpone("something has just changed and is read again"),
        }
        if acted {
            turns.insert(maas.to_owned());
        }
    }
    Ok(Visit { plan, acted })
}

/// The result of a deletion.
#[derive(Debug, PartialEq, Eq)]
enum Deletion {
    Done,
    Failed(Refusal),
    /// Something has changed since the decision, which is made again.
    Dropped,
}

/// Deletes the Machine of a VM, unless anything about it or its control plane has changed since the decision: all of
/// that is read again (S15). If the Machine itself was changed in the meantime, the deletion is refused.
///
/// After a crash the deletion shows in what its owner is missing: a control plane that is not complete, or a
/// MachineDeployment with as many Machines missing as it allows, loses no further Machine.
async fn delete(context: &Context, world: &World, tenant: &Tenant, object: &Key, machine: &Machine) -> Deletion {
    let kubernetes = context.kubernetes.as_ref();
    let stored = match kubernetes.maas_machine(object).await {
        Ok(Some(stored)) => stored,
        Ok(None) => return Deletion::Dropped,
        Err(error) => {
            tracing::warn!(machine = %object, %error, "not deleted");
            return Deletion::Dropped;
        }
    };
    let member = gather::member(context, world, tenant, &stored, &mut BTreeMap::new()).await;
    if !still_goes(&member, machine) || context.fence.check().is_err() {
        return Deletion::Dropped;
    }
    let key = Key::new(&machine.object.namespace, &machine.object.name);
    let guard = Guard { resource_version: machine.version.clone() };
    match context.owners.delete_machine(&key, &machine.uid, &guard).await {
        Ok(()) => {
            tracing::info!(machine = %key, "deleted, so that its owner replaces it on another LXD host");
            context.metrics.evacuated();
            report::deleted(context, &stored, &key).await;
            Deletion::Done
        }
        Err(error) => {
            let now = context.clock.now();
            let lasting = error.kind == ErrorKind::Conflict && context.memory.is_conflict_lasting(&machine.uid, now);
            let Some(refusal) = refusal(&error, lasting) else {
                tracing::info!(machine = %key, %error, "not deleted; the next pass tries again");
                return Deletion::Dropped;
            };
            tracing::warn!(machine = %key, %error, "not deleted; others come first for a while");
            context.memory.deletion_failed(&machine.uid, refusal.clone(), now);
            Deletion::Failed(refusal)
        }
    }
}

/// What a failed deletion means for the next passes; `None` if the Machine only has to be read again. A webhook may refuse with
/// a conflict, too, which is `lasting`.
fn refusal(error: &Error, lasting: bool) -> Option<Refusal> {
    match error.kind {
        ErrorKind::Conflict if lasting => Some(Refusal::Refused(error.to_string())),
        ErrorKind::NotFound | ErrorKind::Conflict => None,
        // RBAC's words; webhooks and admission policies refuse in others.
        ErrorKind::Denied if error.to_string().contains("cannot delete resource \"machines\"") => {
            Some(Refusal::NoRight)
        }
        ErrorKind::Denied | ErrorKind::Refused => Some(Refusal::Refused(error.to_string())),
        ErrorKind::Unavailable => Some(Refusal::Unanswered(error.to_string())),
    }
}
