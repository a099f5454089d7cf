//! When a cluster is looked at: whenever it or its Cluster changes, whenever one of its control plane machines changes (so that
//! an address is published within seconds of Deployed), when its credentials change, and when it asked to be looked at again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use capmaas_api::capi::Cluster;
use capmaas_api::names::{CLUSTER_NAME_LABEL, CONTROL_PLANE_LABEL};
use capmaas_api::{MaasCluster, MaasMachine};
use capmaas_core::cluster::plan::Requeue;
use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::runtime::controller::{Action, Config, Controller, Error as ControllerError};
use kube::runtime::reflector::{ObjectRef, Store};
use rand::RngExt as _;

use super::gather::cluster_name;
use super::{Context, Memory, contract_of, reconcile};
use crate::platform::Platform;
use crate::port::{Error, ErrorKind, Key};

/// After an error that is not MAAS's (those are decided upon).
const AFTER_ERROR: Duration = Duration::from_secs(10);
/// A pass that takes longer hangs: every call in it has a deadline of its own that is far shorter.
const DEADLINE: Duration = Duration::from_secs(600);

/// Takes care of every cluster until `stop`.
pub async fn run(platform: Platform, stop: impl Future<Output = ()> + Send + Sync + 'static) {
    let version = platform.core_version.borrow().clone();
    let context = Arc::new(Context {
        kubernetes: platform.kubernetes.clone(),
        identities: platform.identities.clone(),
        clock: platform.clock.clone(),
        fence: platform.fence.clone(),
        metrics: platform.metrics.clone(),
        contract: contract_of(&version),
        memory: Memory::default(),
        agent_image: platform.agent_image.clone(),
        reports: platform.lxd_hosts.reports.clone(),
    });
    let watches = &platform.watches;
    let store = watches.maas_clusters.store();
    let (of_cluster, of_machine) = (store.clone(), store.clone());
    Controller::for_shared_stream(watches.maas_clusters.subscribe(), store)
        .with_config(Config::default().concurrency(platform.cluster_concurrency))
        .watches_shared_stream_with(
            watches.clusters.subscribe(),
            move |cluster: Arc<Cluster>| of_name(&of_cluster, cluster.namespace(), &cluster.name_any()),
            Cluster::api_resource(&version),
        )
        .watches_shared_stream(watches.maas_machines.subscribe(), move |machine: Arc<MaasMachine>| {
            // Of workers only their end is of interest.
            let matters =
                machine.labels().contains_key(CONTROL_PLANE_LABEL) || machine.metadata.deletion_timestamp.is_some();
            let name = machine.labels().get(CLUSTER_NAME_LABEL).filter(|_| matters);
            name.map(|name| of_name(&of_machine, machine.namespace(), name)).unwrap_or_default()
        })
        .reconcile_on(platform.cluster_waker.subscribe())
        .graceful_shutdown_on(stop)
        .run(pass, on_error, context)
        .for_each(|result| async move {
            match result {
                // The second: an event about an object that is gone already.
                Ok(_) | Err(ControllerError::ObjectNotFound(_)) => {}
                Err(error) => tracing::warn!(error = %chain(&error), "a cluster could not be looked after"),
            }
        })
        .await;
}

fn of_name(store: &Store<MaasCluster>, namespace: Option<String>, cluster: &str) -> Vec<ObjectRef<MaasCluster>> {
    let ours = |object: &Arc<MaasCluster>| object.namespace() == namespace && cluster_name(object) == cluster;
    store.state().iter().filter(|object| ours(object)).map(|object| ObjectRef::from_obj(object.as_ref())).collect()
}

async fn pass(object: Arc<MaasCluster>, context: Arc<Context>) -> Result<Action, Error> {
    let (key, began) = (Key::of(object.as_ref()), Instant::now());
    let result = tokio::time::timeout(DEADLINE, reconcile(&context, &key)).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Unavailable, format!("look after MaasCluster {key}"), "it took too long"))
    });
    context.metrics.reconciled("maascluster", result.is_ok(), began.elapsed());
    Ok(match result? {
        Requeue::Now => Action::requeue(Duration::ZERO),
        Requeue::OnChange => Action::await_change(),
        Requeue::After(wait) => Action::requeue(spread(wait.unsigned_abs())),
    })
}

fn on_error(_: Arc<MaasCluster>, _: &Error, _: Arc<Context>) -> Action {
    Action::requeue(spread(AFTER_ERROR))
}

/// A fifth more or less, so that many clusters do not ask in step.
fn spread(wait: Duration) -> Duration {
    wait.mul_f64(rand::rng().random_range(0.8..1.2))
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
