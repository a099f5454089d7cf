//! When a machine is looked at: whenever it, its Machine, its Cluster or its MaasCluster changes, whenever MAAS's event log
//! names it, and when it asked to be looked at again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use capmaas_api::capi::{Cluster, Machine};
use capmaas_api::names::CLUSTER_NAME_LABEL;
use capmaas_api::{MaasCluster, MaasMachine};
use capmaas_core::machine::Requeue;
use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::runtime::controller::{Action, Config, Controller, Error as ControllerError};
use kube::runtime::reflector::{ObjectRef, Store};
use rand::RngExt as _;
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::news::{self, fingerprint, news};
use super::turns::Turns;
use super::{Context, Known, reconcile_knowing};
use crate::platform::Platform;
use crate::port::{Error, ErrorKind, Key};

/// After an error that is not MAAS's (those are decided upon).
const AFTER_ERROR: Duration = Duration::from_secs(10);
/// A pass that takes longer hangs: every call in it has a deadline of its own that is far shorter.
const DEADLINE: Duration = Duration::from_secs(600);
/// So many passes follow each other at most when each asks for the next one at once; then it is others' turn.
const IN_A_ROW: usize = 8;

/// Takes care of every machine until `stop`.
pub async fn run(platform: Platform, stop: impl Future<Output = ()> + Send + Sync + 'static) {
    let context = Arc::new(Context {
        kubernetes: platform.kubernetes.clone(),
        identities: platform.identities.clone(),
        clock: platform.clock.clone(),
        fence: platform.fence.clone(),
        metrics: platform.metrics.clone(),
        lxd_hosts: platform.lxd_hosts.clone(),
    });
    let turns = Arc::new(Turns::new(platform.machine_concurrency));
    let last_turns = turns.clone();
    let watches = &platform.watches;
    let store = watches.maas_machines.store();
    let version = platform.core_version.borrow().clone();
    let (of_cluster, of_machine, of_maas_cluster) = (store.clone(), store.clone(), store.clone());
    let changes = news(watches.maas_machines.subscribe(), store.clone(), (), fingerprint);
    let maas_clusters =
        news(watches.maas_clusters.subscribe(), watches.maas_clusters.store(), (), news::of_maas_cluster);
    let (cluster, machine) = (Cluster::api_resource(&version), Machine::api_resource(&version));
    Controller::for_shared_stream(changes, store)
        // Without a limit of its own: who comes first is decided here.
        .with_config(Config::default().concurrency(0))
        .watches_shared_stream_with(
            news(watches.clusters.subscribe(), watches.clusters.store(), cluster.clone(), news::of_cluster),
            move |cluster: Arc<Cluster>| machines_of(&of_cluster, cluster.namespace(), &cluster.name_any()),
            cluster,
        )
        .watches_shared_stream_with(
            news(watches.machines.subscribe(), watches.machines.store(), machine.clone(), news::of_machine),
            move |machine: Arc<Machine>| infrastructure_of(&of_machine, &machine),
            machine,
        )
        .watches_shared_stream(maas_clusters, move |cluster: Arc<MaasCluster>| {
            let name = cluster.labels().get(CLUSTER_NAME_LABEL).cloned();
            let owner = capmaas_api::capi::owner(&cluster.metadata, "Cluster").map(|owner| owner.name.clone());
            machines_of(&of_maas_cluster, cluster.namespace(), &name.or(owner).unwrap_or_else(|| cluster.name_any()))
        })
        .reconcile_on(platform.waker.subscribe())
        .graceful_shutdown_on(async move {
            stop.await;
            last_turns.end();
        })
        .run(move |object, context| pass(object, context, turns.clone()), on_error, context)
        .for_each(|result| async move {
            match result {
                // The second: an event about an object that is gone already.
                Ok(_) | Err(ControllerError::ObjectNotFound(_)) => {}
                Err(error) => tracing::warn!(error = %chain(&error), "a machine could not be looked after"),
            }
        })
        .await;
}

fn machines_of(store: &Store<MaasMachine>, namespace: Option<String>, cluster: &str) -> Vec<ObjectRef<MaasMachine>> {
    let ours = |machine: &Arc<MaasMachine>| {
        machine.namespace() == namespace && machine.labels().get(CLUSTER_NAME_LABEL).is_some_and(|name| name == cluster)
    };
    store.state().iter().filter(|machine| ours(machine)).map(|machine| ObjectRef::from_obj(machine.as_ref())).collect()
}

fn infrastructure_of(store: &Store<MaasMachine>, machine: &Machine) -> Option<ObjectRef<MaasMachine>> {
    let reference = machine.spec.infrastructure_ref.as_ref().filter(|reference| reference.is_ours("MaasMachine"))?;
    let object = ObjectRef::new(&reference.name).within(&machine.metadata.namespace.clone().unwrap_or_default());
    store.get(&object).map(|_| object)
}

/// In a task of its own: whenever anything in the controller's own task goes on, it asks every machine that waits, and thousands
/// may.
async fn pass(object: Arc<MaasMachine>, context: Arc<Context>, turns: Arc<Turns>) -> Result<Action, Error> {
    let turn = async move {
        let Some(_turn) = turns.of(&object).await else { return Ok(Action::await_change()) };
        // On the heap: only those that have their turn need room for a pass.
        Box::pin(passes(&context, &Key::of(object.as_ref()))).await
    };
    match AbortOnDropHandle::new(tokio::spawn(turn.in_current_span())).await.map_err(JoinError::try_into_panic) {
        Ok(result) => result,
        // As if it had happened here.
        Err(Ok(cause)) => std::panic::resume_unwind(cause),
        // Everything ends.
        Err(Err(_)) => Ok(Action::await_change()),
    }
}

async fn passes(context: &Context, key: &Key) -> Result<Action, Error> {
    let mut known = Known::default();
    let mut result = once(context, key, &mut known).await;
    // One after the other instead of back to the end of the queue, where a machine that is half prepared waits for all others.
    for _ in 1..IN_A_ROW {
        if !matches!(result, Ok(Requeue::After(Duration::ZERO))) {
            break;
        }
        result = once(context, key, &mut known).await;
    }
    Ok(match result? {
        Requeue::OnChange => Action::await_change(),
        Requeue::After(wait) => Action::requeue(spread(wait)),
    })
}

async fn once(context: &Context, key: &Key, known: &mut Known) -> Result<Requeue, Error> {
    let began = Instant::now();
    let result = tokio::time::timeout(DEADLINE, reconcile_knowing(context, key, known))
        .await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, format!("look after {key}"), "it took too long")));
    context.metrics.reconciled("maasmachine", result.is_ok(), began.elapsed());
    result
}

fn on_error(_: Arc<MaasMachine>, _: &Error, _: Arc<Context>) -> Action {
    Action::requeue(spread(AFTER_ERROR))
}

/// A fifth more or less, so that many machines do not ask in step.
fn spread(wait: Duration) -> Duration {
    wait.mul_f64(rand::rng().random_range(0.8..1.2))
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
