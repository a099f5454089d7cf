//! The condition `Paused` of both kinds: the three verbs on the smallest job there is.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use capmaas_api::capi::{Cluster, owner};
use capmaas_api::names::{CLUSTER_NAME_LABEL, PAUSED_ANNOTATION, WATCH_FILTER_LABEL};
use capmaas_api::tolerant::WHOLE_VALUE;
use capmaas_api::{Condition, MaasCluster, MaasMachine};
use capmaas_core::Lookup;
use capmaas_core::pause::{self, Observed};
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::{ApiResource, Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;

/// Reconciles at the same time, per kind.
const CONCURRENCY: u16 = 10;
/// When to ask again what could not be found out.
const ASK_AGAIN: Duration = Duration::from_secs(15);
/// Objects of one page of a list: a small page costs little memory, and streaming lists are refused by Kubernetes 1.29.
const PAGE: u32 = 50;
/// Who owns the fields that we write, in the words of server-side apply.
const FIELD_MANAGER: &str = "capmaas-manager/paused";

/// What every reconcile needs.
#[derive(Clone)]
pub struct Context {
    /// The API server.
    pub client: Client,
    /// How a Cluster is read here.
    pub cluster: ApiResource,
    /// The only namespace to look at, if there is one.
    pub namespace: Option<String>,
    /// The only value of the watch-filter label to look at, if there is one.
    pub watch_filter: Option<String>,
}

/// A kind that belongs to a Cluster and has conditions.
pub trait Pausable: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope> {
    /// The conditions as stored.
    fn conditions(&self) -> &[Condition];
}

impl Pausable for MaasCluster {
    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }
}

impl Pausable for MaasMachine {
    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }
}

/// Keeps the condition of every object of one kind true until `stop`.
pub async fn run<K>(context: Context, stop: impl Future<Output = ()> + Send + Sync + 'static)
where
    K: Pausable + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let config = watcher::Config { page_size: Some(PAGE), ..watcher::Config::default() };
    let own_config = match &context.watch_filter {
        Some(value) => config.clone().labels(&format!("{WATCH_FILTER_LABEL}={value}")),
        None => config.clone(),
    };
    let controller = Controller::new(context.api::<K>(), own_config)
        .with_config(kube::runtime::controller::Config::default().concurrency(CONCURRENCY));
    let store = controller.store();
    let belongs = move |cluster: Cluster| -> Vec<ObjectRef<K>> {
        let (name, namespace) = (cluster.name_any(), cluster.namespace());
        let ours = |object: &Arc<K>| object.namespace() == namespace && cluster_name(object.as_ref()) == Some(&name);
        store.state().iter().filter(|object| ours(object)).map(|object| ObjectRef::from_obj(object.as_ref())).collect()
    };
    controller
        .watches_with(context.clusters(None), context.cluster.clone(), config, belongs)
        .graceful_shutdown_on(stop)
        .run(reconcile::<K>, on_error::<K>, Arc::new(context))
        .for_each(|result| async move {
            match result {
                // The second: an event about an object that is gone already.
                Ok(_) | Err(kube::runtime::controller::Error::ObjectNotFound(_)) => {}
                Err(error) => tracing::warn!(kind = %K::kind(&()), error = %chain(&error), "reconcile failed"),
            }
        })
        .await;
}

async fn reconcile<K>(object: Arc<K>, context: Arc<Context>) -> Result<Action, kube::Error>
where
    K: Pausable + Clone + Debug + DeserializeOwned,
{
    let observed = gather(&context, object.as_ref()).await;
    let plan = pause::decide(&observed, Timestamp::now());
    apply(&context, object.as_ref(), plan).await
}

fn on_error<K: Pausable>(_: Arc<K>, _: &kube::Error, _: Arc<Context>) -> Action {
    Action::requeue(ASK_AGAIN)
}

/// Every read. An object without a Cluster yet is paused by its annotation only.
async fn gather<K: Pausable>(context: &Context, object: &K) -> Observed {
    let cluster = match cluster_name(object) {
        None => Lookup::Absent,
        Some(name) => match context.clusters(object.namespace().as_deref()).get_opt(name).await {
            Ok(Some(cluster)) => cluster_pause(&cluster),
            Ok(None) => Lookup::Absent,
            Err(error) => Lookup::Unknown(format!("cannot read the Cluster {name}: {error}")),
        },
    };
    Observed {
        annotated: object.annotations().contains_key(PAUSED_ANNOTATION),
        cluster,
        conditions: object.conditions().to_vec(),
        generation: object.meta().generation,
    }
}

/// A pause that cannot be read is not "not paused".
fn cluster_pause(cluster: &Cluster) -> Lookup<bool> {
    match cluster.spec.unreadable.iter().find(|path| ["paused", WHOLE_VALUE].contains(&path.as_str())) {
        Some(_) => Lookup::Unknown(format!("cannot read spec.paused of the Cluster {}", cluster.name_any())),
        None => Lookup::Found(cluster.is_paused()),
    }
}

/// Writes the condition, if there is one to write. Server-side apply is repeated without harm: after a crash gather sees the
/// condition as it was stored, and the decision is made again.
async fn apply<K>(context: &Context, object: &K, plan: pause::Plan) -> Result<Action, kube::Error>
where
    K: Pausable + Clone + Debug + DeserializeOwned,
{
    if let Some(condition) = plan.condition {
        let body = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": { "name": object.name_any() },
            "status": { "conditions": [condition] },
        });
        let namespace = object.namespace().unwrap_or_default();
        let api: Api<K> = Api::namespaced(context.client.clone(), &namespace);
        match api
            .patch_status(&object.name_any(), &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&body))
            .await
        {
            // Deleted meanwhile: there is nothing left to say anything about.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            result => {
                result?;
            }
        }
    }
    Ok(match plan.unknown {
        Some(why) => {
            tracing::warn!(object = %object.name_any(), "{why}");
            Action::requeue(ASK_AGAIN)
        }
        None => Action::await_change(),
    })
}

/// The Cluster that an object belongs to: by its label, or, before Cluster API has set that, by its owner.
fn cluster_name<K: Pausable>(object: &K) -> Option<&String> {
    object.labels().get(CLUSTER_NAME_LABEL).or_else(|| owner(object.meta(), "Cluster").map(|owner| &owner.name))
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl Context {
    fn api<K: Pausable>(&self) -> Api<K> {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    /// Clusters of one namespace; without one, of those that the manager looks at.
    fn clusters(&self, namespace: Option<&str>) -> Api<Cluster> {
        match namespace.or(self.namespace.as_deref()) {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &self.cluster),
            None => Api::all_with(self.client.clone(), &self.cluster),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(spec: serde_json::Value) -> Cluster {
        serde_json::from_value(json!({ "metadata": { "name": "c1" }, "spec": spec })).unwrap()
    }

    #[test]
    fn s01_a_pause_that_cannot_be_read_is_unknown() {
        assert_eq!(cluster_pause(&cluster(json!({ "paused": true }))), Lookup::Found(true));
        assert_eq!(cluster_pause(&cluster(json!({}))), Lookup::Found(false));
        assert!(matches!(cluster_pause(&cluster(json!({ "paused": "maybe" }))), Lookup::Unknown(_)));
        assert!(matches!(cluster_pause(&cluster(json!("nonsense"))), Lookup::Unknown(_)));
    }

    #[test]
    fn an_object_belongs_to_the_cluster_of_its_label_or_owner() {
        let machine: MaasMachine = serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
            "metadata": { "name": "m", "labels": { "cluster.x-k8s.io/cluster-name": "c1" } }, "spec": {},
        }))
        .unwrap();
        assert_eq!(cluster_name(&machine).map(String::as_str), Some("c1"));
        let owner = json!([{ "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "name": "c2", "uid": "u" }]);
        let cluster: MaasCluster = serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster",
            "metadata": { "name": "m", "ownerReferences": owner }, "spec": {},
        }))
        .unwrap();
        assert_eq!(cluster_name(&cluster).map(String::as_str), Some("c2"));
    }
}
