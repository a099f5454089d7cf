//! Which changes of other objects call for a look at a machine. Cluster API writes the status of a Cluster with every machine
//! that comes or goes; if each of these writes woke all machines of the cluster, a large cluster would look at itself for ever.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

use capmaas_api::capi::{Cluster, Machine};
use capmaas_api::{MaasCluster, MaasMachine};
use futures::{Stream, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource, ResourceExt as _};

/// The changes of what `worth` looks at, and every deletion.
pub(super) fn news<K>(
    changes: impl Stream<Item = Arc<K>> + Send + 'static,
    store: Store<K>,
    kind: K::DynamicType,
    worth: fn(&K) -> u64,
) -> impl Stream<Item = Arc<K>> + Send + 'static
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Hash + Eq + Clone + Send + Sync,
{
    let mut seen: HashMap<String, u64> = HashMap::new();
    changes.filter(move |object| {
        let uid = object.uid().unwrap_or_default();
        let there = store.get(&ObjectRef::from_obj_with(object.as_ref(), kind.clone()));
        let is_news = if there.is_some_and(|there| there.uid() == object.uid()) {
            let worth = worth(object);
            seen.insert(uid, worth) != Some(worth)
        } else {
            seen.remove(&uid);
            true
        };
        std::future::ready(is_news)
    })
}

/// Everything of a machine that may call for a pass: all but the status, which we write ourselves. A pass that woke itself by
/// what it said about a MAAS in trouble would ask that MAAS again at once.
pub fn fingerprint(machine: &MaasMachine) -> u64 {
    hash(&machine.metadata, &machine.metadata.generation)
}

/// Of a Cluster: whether it is paused, what it is made of, and how far it is.
pub(super) fn of_cluster(cluster: &Cluster) -> u64 {
    let status = &cluster.status;
    hash(&cluster.metadata, &printed(&(&cluster.spec, status.infrastructure_ready, &status.initialization)))
}

/// Of a Machine: what it wants, and whether its Node was found.
pub(super) fn of_machine(machine: &Machine) -> u64 {
    hash(&machine.metadata, &printed(&(&machine.spec, &machine.status.node_ref)))
}

/// Of a MaasCluster: all but the status; of that only the name in DNS.
pub(super) fn of_maas_cluster(cluster: &MaasCluster) -> u64 {
    let dns_name = cluster.status.as_ref().and_then(|status| status.network.as_ref()?.dns_name.clone());
    hash(&cluster.metadata, &(cluster.metadata.generation, dns_name))
}

/// Views have no generation that counts only what they show, and no hash of their own.
fn printed(value: &impl Debug) -> String {
    format!("{value:?}")
}

fn hash(metadata: &ObjectMeta, more: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&metadata.labels, &metadata.annotations, &metadata.finalizers).hash(&mut hasher);
    metadata.deletion_timestamp.is_some().hash(&mut hasher);
    for owner in metadata.owner_references.iter().flatten() {
        (&owner.kind, &owner.name, &owner.uid).hash(&mut hasher);
    }
    more.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;
    use kube::runtime::reflector;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;

    fn cluster(spec: Value, status: Value) -> Cluster {
        let metadata = json!({"name": "c1", "namespace": "team", "uid": "u1"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    #[tokio::test]
    async fn a_cluster_that_only_counts_its_machines_wakes_none_of_them() {
        let (tell, told) = mpsc::unbounded();
        let kind = Cluster::api_resource("v1beta2");
        let mut writer = reflector::store::Writer::new(kind.clone());
        let mut woken = Box::pin(news(told, writer.as_reader(), kind, of_cluster));
        let mut say = |event: Event<Cluster>| {
            writer.apply_watcher_event(&event);
            let (Event::Apply(object) | Event::Delete(object)) = event else { return };
            tell.unbounded_send(Arc::new(object)).unwrap();
        };
        let counting =
            |count: u32| json!({"conditions": [{"type": "Ready", "status": "True", "message": count.to_string()}]});
        say(Event::Apply(cluster(json!({}), counting(1))));
        say(Event::Apply(cluster(json!({}), counting(2))));
        say(Event::Apply(cluster(json!({"paused": true}), counting(3))));
        assert_eq!(woken.next().await.unwrap().spec.paused, None);
        assert_eq!(woken.next().await.unwrap().spec.paused, Some(true), "the second one was no news");
        say(Event::Delete(cluster(json!({"paused": true}), counting(3))));
        assert!(woken.next().await.is_some(), "that it is gone is news, although nothing of it has changed");
    }
}
