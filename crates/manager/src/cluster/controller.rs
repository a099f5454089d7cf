//! Triggers for a pass over a MaasCluster: a change to it or to its Cluster, a change to one of its control plane
//! machines (so that an address is published within seconds of Deployed), the deletion of a worker that it waits for, a
//! change to its credentials, and its own requeue.

use std::sync::Arc;

use capmaas_api::capi::Cluster;
use capmaas_api::names::{CLUSTER_NAME_LABEL, CONTROL_PLANE_LABEL};
use capmaas_api::{MaasCluster, MaasMachine};
use capmaas_core::cluster::Journal;
use capmaas_core::hosts;
use futures::StreamExt as _;
use futures::stream::{iter, select_all};
use kube::ResourceExt as _;
use kube::runtime::reflector::{ObjectRef, Store};

use super::{Context, Memory, contract_of};
use crate::belonging::{cluster_name, tenant};
use crate::kubernetes::Key;
use crate::platform::Platform;
use crate::reconcile::change_filter::{news, of_own_cluster};
use crate::reconcile::{self, SchedulingClass};

/// Reconciles all MaasClusters until `stop`.
pub async fn run(platform: Platform, stop: impl Future<Output = ()> + Send + Sync + 'static) {
    let version = platform.core_version.borrow().clone();
    let context = Context {
        kubernetes: platform.kubernetes.clone(),
        identities: platform.identities.clone(),
        clock: platform.clock.clone(),
        fence: platform.fence.clone(),
        metrics: platform.metrics.clone(),
        contract: contract_of(&version),
        memory: Memory::default(),
        agent_image: platform.agent_image.clone(),
        reports: platform.lxd_hosts.reports.clone(),
    };
    let watches = &platform.watches;
    let store = watches.maas_clusters.store();
    let (of_cluster, of_machine, of_turn) = (store.clone(), store.clone(), store.clone());
    let keys = |objects: Vec<Arc<MaasCluster>>| iter(objects.into_iter().map(|object| Key::of(object.as_ref())));
    let own = news(watches.maas_clusters.subscribe(), store, (), of_own_cluster);
    let asked = select_all([
        own.map(|object| Key::of(object.as_ref())).boxed(),
        watches
            .clusters
            .subscribe()
            .flat_map(move |cluster: Arc<Cluster>| {
                keys(of_name(&of_cluster, cluster.namespace(), &cluster.name_any()).collect())
            })
            .boxed(),
        watches.maas_machines.subscribe().flat_map(move |machine| keys(concerned(&of_machine, &machine))).boxed(),
        platform
            .cluster_waker
            .subscribe()
            .map(|object| Key::new(object.namespace.unwrap_or_default(), object.name))
            .boxed(),
    ]);
    let class = move |object: &Key| {
        let found = of_turn.get(&ObjectRef::new(&object.name).within(&object.namespace))?;
        Some(SchedulingClass { tenant: tenant(&found), cluster: object.to_string(), is_newcomer: false })
    };
    reconcile::run(context, asked, platform.cluster_concurrency, class, stop).await;
}

/// The clusters that a change to this machine may affect. A pass reads all machines of its cluster, so a pass for every
/// step of every worker would make the deletion of a large cluster cost the square of its size.
fn concerned(store: &Store<MaasCluster>, machine: &MaasMachine) -> Vec<Arc<MaasCluster>> {
    let control_plane = machine.labels().contains_key(CONTROL_PLANE_LABEL);
    let leaves = machine.metadata.deletion_timestamp.is_some();
    let name = machine.labels().get(CLUSTER_NAME_LABEL).filter(|_| control_plane || leaves);
    let clusters = name.into_iter().flat_map(|name| of_name(store, machine.namespace(), name));
    clusters.filter(|cluster| control_plane || awaits_workers(cluster)).collect()
}

/// Whether the deletion of a worker affects the cluster: the cluster is being deleted and must outlive its machines
/// (S16), its workers may be VM hosts, or it still has to give back addresses that a machine may still use. A cluster
/// that starts to wait for workers later gets a pass then, because it has changed itself.
fn awaits_workers(cluster: &MaasCluster) -> bool {
    cluster.metadata.deletion_timestamp.is_some()
        || !matches!(hosts::desired(&cluster.spec), Ok(None))
        || !Journal::of(cluster.annotations()).owed.is_empty()
}

fn of_name(
    store: &Store<MaasCluster>,
    namespace: Option<String>,
    cluster: &str,
) -> impl Iterator<Item = Arc<MaasCluster>> {
    let ours = move |object: &Arc<MaasCluster>| object.namespace() == namespace && cluster_name(object) == cluster;
    store.state().into_iter().filter(ours)
}

#[cfg(test)]
mod tests {
    use capmaas_api::names::DNS_OWED_ANNOTATION;
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;

    fn machine(labels: Value, deleted: Option<&str>) -> MaasMachine {
        let metadata = json!({
            "name": "m1", "namespace": "team", "uid": "u", "labels": labels, "deletionTimestamp": deleted,
        });
        serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine", "metadata": metadata, "spec": {},
        }))
        .unwrap()
    }

    /// How many clusters are reconciled because of a control plane machine, a worker, and a worker that is being
    /// deleted.
    fn looked_at(metadata: Value, spec: Value) -> [usize; 3] {
        let mut cluster = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster",
            "metadata": { "name": "c1", "namespace": "team" }, "spec": spec,
        });
        cluster["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        let mut writer = Writer::default();
        writer.apply_watcher_event(&Event::Apply(serde_json::from_value::<MaasCluster>(cluster).unwrap()));
        let store = writer.as_reader();
        let (worker, control_plane) =
            (json!({CLUSTER_NAME_LABEL: "c1"}), json!({CLUSTER_NAME_LABEL: "c1", CONTROL_PLANE_LABEL: ""}));
        let now = Some("2026-11-16T12:00:00Z");
        [machine(control_plane, None), machine(worker.clone(), None), machine(worker, now)]
            .map(|machine| concerned(&store, &machine).len())
    }

    #[test]
    fn a_worker_that_goes_wakes_its_cluster_only_if_that_waits_for_it() {
        let dns = json!({"dnsDomain": "maas"});
        assert_eq!(looked_at(json!({}), dns.clone()), [1, 0, 0]);
        assert_eq!(looked_at(json!({"deletionTimestamp": "2026-11-16T12:00:00Z"}), dns.clone()), [1, 0, 1]);
        assert_eq!(looked_at(json!({"annotations": {DNS_OWED_ANNOTATION: "10.0.0.9"}}), dns), [1, 0, 1]);
        let hosts = json!({"dnsDomain": "maas", "lxdControlPlaneCluster": true});
        assert_eq!(looked_at(json!({}), hosts), [1, 0, 1]);
        let unclear = json!({"dnsDomain": "maas", "lxdControlPlaneCluster": "perhaps"});
        assert_eq!(looked_at(json!({}), unclear), [1, 0, 1], "what cannot be read may be hosts");
        let other = json!({"labels": {CLUSTER_NAME_LABEL: "c2"}});
        assert_eq!(looked_at(other, json!({"dnsDomain": "maas", "lxdControlPlaneCluster": true})), [0, 0, 0]);
    }
}
