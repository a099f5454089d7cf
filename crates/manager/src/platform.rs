//! What all reconcilers share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use capmaas_api::capi::{Cluster, Machine};
use capmaas_api::names::WATCH_FILTER_LABEL;
use capmaas_api::{MaasCluster, MaasMachine};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::feed::Waker;
use crate::health::Liveness;
use crate::identity::{CONFIG_MAPS, CredentialCopies, Identities, SECRETS};
use crate::kubernetes::{Kubernetes, Owners, says_absent};
use crate::lease::Fence;
use crate::lxd_hosts::LxdHosts;
use crate::machine_index::MachineIndex;
use crate::metrics::Metrics;
use crate::watch::{Change, Selection, Watch};

/// Which objects this manager reconciles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// The only namespace, if there is one.
    pub namespace: Option<String>,
    /// The only value of the watch-filter label, if there is one.
    pub watch_filter: Option<String>,
}

/// The watched kinds. One list and one watch each, however many reconcilers listen.
#[derive(Clone)]
pub struct Watches {
    /// Within the scope.
    pub maas_clusters: Watch<MaasCluster>,
    /// Within the scope.
    pub maas_machines: Watch<MaasMachine>,
    /// The machine index; never behind the watch.
    pub machine_index: MachineIndex,
    pub clusters: Watch<Cluster>,
    pub machines: Watch<Machine>,
}

impl Watches {
    /// Starts the watches, with Cluster API's kinds in this version.
    pub fn start(client: &Client, scope: &Scope, core_version: &str, liveness: &Liveness) -> Self {
        let filter = scope.watch_filter.as_ref().map(|value| format!("{WATCH_FILTER_LABEL}={value}"));
        let ours = Selection::labels(filter);
        let (cluster, machine) = (Cluster::api_resource(core_version), Machine::api_resource(core_version));
        let namespace = scope.namespace.as_deref();
        let (maas_clusters, maas_machines, clusters, machines) = match namespace {
            Some(namespace) => (
                Api::namespaced(client.clone(), namespace),
                Api::namespaced(client.clone(), namespace),
                Api::namespaced_with(client.clone(), namespace, &cluster),
                Api::namespaced_with(client.clone(), namespace, &machine),
            ),
            None => (
                Api::all(client.clone()),
                Api::all(client.clone()),
                Api::all_with(client.clone(), &cluster),
                Api::all_with(client.clone(), &machine),
            ),
        };
        let machine_index = MachineIndex::default();
        let indexed = machine_index.clone();
        let index = Box::new(move |change: Change<'_, MaasMachine>| indexed.apply(&change));
        Self {
            maas_clusters: Watch::start("MaasCluster", maas_clusters, (), ours.clone(), liveness),
            maas_machines: Watch::start_with("MaasMachine", maas_machines, (), ours, liveness, index),
            machine_index,
            clusters: Watch::start("Cluster", clusters, cluster, Selection::default(), liveness),
            machines: Watch::start("Machine", machines, machine, Selection::default(), liveness),
        }
    }

    /// Waits until every initial list is complete. Before that, absence from a cache means nothing.
    pub async fn synced(&self) {
        tokio::join!(
            self.maas_clusters.synced(),
            self.maas_machines.synced(),
            self.clusters.synced(),
            self.machines.synced()
        );
    }

    /// The number of machines per MAAS state.
    pub fn machines_by_state(&self) -> BTreeMap<String, i64> {
        let mut counts = BTreeMap::new();
        for machine in self.maas_machines.store().state() {
            let state = machine.status.as_ref().and_then(|status| status.machine_state.clone());
            *counts.entry(state.unwrap_or_else(|| "None".to_owned())).or_default() += 1;
        }
        counts
    }
}

#[derive(Clone)]
pub struct Platform {
    pub client: Client,
    pub kubernetes: Arc<dyn Kubernetes>,
    pub owners: Arc<dyn Owners>,
    /// The version in which Cluster API's kinds are read. The reconcilers are restarted when it changes.
    pub core_version: watch::Receiver<String>,
    pub scope: Scope,
    pub watches: Watches,
    pub identities: Identities,
    /// Wakes machines that MAAS's event log names.
    pub waker: Waker,
    /// Wakes clusters whose credentials have changed.
    pub cluster_waker: Waker<MaasCluster>,
    /// Checked right before every write to MAAS (S23).
    pub fence: Fence,
    pub metrics: Metrics,
    pub clock: Clock,
    /// The image of the agent that turns machines into LXD hosts.
    pub agent_image: Option<String>,
    /// The LXD hosts, shared by all reconcilers.
    pub lxd_hosts: LxdHosts,
    /// How many MaasClusters are reconciled at the same time.
    pub cluster_concurrency: u16,
    /// How many MaasMachines are reconciled at the same time.
    pub machine_concurrency: u16,
}

/// Reads the manager's own credentials again whenever they change, and logs the result.
pub async fn follow_own_credentials(client: Client, namespace: String, identities: Identities, liveness: Liveness) {
    use futures::StreamExt as _;
    // Metadata only: the values are read when they are needed and not cached here.
    let mut changes = futures::stream::SelectAll::new();
    for name in SECRETS {
        let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), &namespace);
        let watch = Watch::start(name, api, (), Selection::name(name), &liveness);
        changes.push(keeping(watch.clone(), watch.subscribe().map(|_| ())));
    }
    for name in CONFIG_MAPS {
        let api: Api<PartialObjectMeta<ConfigMap>> = Api::namespaced(client.clone(), &namespace);
        let watch = Watch::start(name, api, (), Selection::name(name), &liveness);
        changes.push(keeping(watch.clone(), watch.subscribe().map(|_| ())));
    }
    loop {
        if let Err(problem) = identities.of_manager().await {
            tracing::warn!("{problem}");
        }
        if changes.next().await.is_none() {
            return;
        }
        // A Secret and a ConfigMap are usually written together.
        tokio::time::sleep(Duration::from_millis(200)).await;
        identities.changed();
    }
}

/// A stream of changes that keeps its watch alive.
fn keeping<W: Send + 'static>(
    watch: W,
    changes: impl futures::Stream<Item = ()> + Send + 'static,
) -> futures::stream::BoxStream<'static, ()> {
    use futures::StreamExt as _;
    changes
        .map(move |()| {
            let _ = &watch;
        })
        .boxed()
}

const SWEEP: Duration = Duration::from_secs(600);

/// Drops kept credentials that no cluster and no machine needs any more.
pub async fn sweep_kept_credentials(client: Client, scope: Scope, keeper: Arc<dyn CredentialCopies>, fence: Fence) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let kept = match keeper.all().await {
            Ok(kept) => kept,
            Err(problem) => {
                tracing::warn!("{problem}");
                continue;
            }
        };
        for kept in kept {
            let ours = scope.namespace.as_ref().is_none_or(|namespace| *namespace == kept.maas_cluster.namespace);
            // Read live and regardless of the watch filter: another manager may have created them.
            if ours && fence.check().is_ok() && is_unused(&client, &kept).await {
                match keeper.forget(&kept.maas_cluster).await {
                    Ok(()) => {
                        tracing::info!(cluster = %kept.maas_cluster, "deleted the stored copy of the MAAS credentials");
                    }
                    Err(problem) => tracing::warn!("{problem}"),
                }
            }
        }
    }
}

/// True only if the API server says so.
async fn is_unused(client: &Client, kept: &crate::identity::Kept) -> bool {
    let namespace = &kept.maas_cluster.namespace;
    let clusters: Api<MaasCluster> = Api::namespaced(client.clone(), namespace);
    if !says_absent(&clusters.get(&kept.maas_cluster.name).await) {
        return false;
    }
    let machines: Api<MaasMachine> = Api::namespaced(client.clone(), namespace);
    let label = format!("{}={}", capmaas_api::names::CLUSTER_NAME_LABEL, kept.cluster.name);
    let params = kube::api::ListParams::default().labels(&label).limit(1);
    machines.list(&params).await.is_ok_and(|list| list.items.is_empty())
}
