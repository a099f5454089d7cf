//! Triggers for a pass over a MaasMachine: a change to it, its Machine, its Cluster or its MaasCluster, an entry about
//! it in MAAS's event log, and its own requeue.

use std::sync::Arc;

use capmaas_api::capi::{Cluster, Machine};
use capmaas_api::names::CLUSTER_NAME_LABEL;
use capmaas_api::{MaasCluster, MaasMachine};
use capmaas_core::credentials::IDENTITY_ANNOTATION;
use capmaas_core::machine::Journal;
use futures::StreamExt as _;
use futures::stream::{iter, select_all};
use kube::ResourceExt as _;
use kube::runtime::reflector::{ObjectRef, Store};

use super::Context;
use crate::backoff::Backoff;
use crate::belonging::{cluster_name, tenant};
use crate::kubernetes::Key;
use crate::platform::Platform;
use crate::reconcile::change_filter::{self, fingerprint, news};
use crate::reconcile::{self, SchedulingClass};

/// Reconciles all MaasMachines until `stop`.
pub async fn run(platform: Platform, stop: impl Future<Output = ()> + Send + Sync + 'static) {
    let context = Context {
        kubernetes: platform.kubernetes.clone(),
        identities: platform.identities.clone(),
        clock: platform.clock.clone(),
        fence: platform.fence.clone(),
        metrics: platform.metrics.clone(),
        lxd_hosts: platform.lxd_hosts.clone(),
        backoff: Backoff::default(),
    };
    let watches = &platform.watches;
    let store = watches.maas_machines.store();
    let version = platform.core_version.borrow().clone();
    let (cluster_kind, machine_kind) = (Cluster::api_resource(&version), Machine::api_resource(&version));
    let (of_clusters, of_machines, of_maas_clusters) = (store.clone(), store.clone(), store.clone());
    let own = news(watches.maas_machines.subscribe(), store.clone(), (), fingerprint);
    let clusters =
        news(watches.clusters.subscribe(), watches.clusters.store(), cluster_kind, change_filter::of_cluster);
    let machines =
        news(watches.machines.subscribe(), watches.machines.store(), machine_kind, change_filter::of_machine);
    let maas_clusters =
        news(watches.maas_clusters.subscribe(), watches.maas_clusters.store(), (), change_filter::of_maas_cluster);
    let asked = select_all([
        own.map(|machine| Key::of(machine.as_ref())).boxed(),
        clusters
            .flat_map(move |cluster| iter(machines_of(&of_clusters, cluster.namespace(), &cluster.name_any())))
            .boxed(),
        machines.filter_map(move |machine| std::future::ready(infrastructure_of(&of_machines, &machine))).boxed(),
        maas_clusters
            .flat_map(move |cluster| iter(machines_of(&of_maas_clusters, cluster.namespace(), &cluster_name(&cluster))))
            .boxed(),
        platform.waker.subscribe().map(|machine| Key::new(machine.namespace.unwrap_or_default(), machine.name)).boxed(),
    ]);
    let of_machine = watches.maas_clusters.store();
    let class = move |machine: &Key| stored(&store, machine).map(|machine| class(&machine, &of_machine));
    reconcile::run(context, asked, platform.machine_concurrency, class, stop).await;
}

fn stored(store: &Store<MaasMachine>, machine: &Key) -> Option<Arc<MaasMachine>> {
    store.get(&ObjectRef::new(&machine.name).within(&machine.namespace))
}

/// The scheduling class of a machine. By convention a MaasCluster has the name of its Cluster. Without a MaasCluster,
/// the identity in the machine's own journal counts.
fn class(machine: &MaasMachine, clusters: &Store<MaasCluster>) -> SchedulingClass {
    let namespace = machine.namespace().unwrap_or_default();
    let name = machine.labels().get(CLUSTER_NAME_LABEL).cloned().unwrap_or_default();
    let found = clusters.get(&ObjectRef::new(&name).within(&namespace));
    let cluster = format!("{namespace}/{name}");
    let recorded = || machine.annotations().get(IDENTITY_ANNOTATION).cloned();
    let tenant = found.map(|cluster| tenant(&cluster)).or_else(recorded).unwrap_or_else(|| cluster.clone());
    SchedulingClass { tenant, cluster, is_newcomer: is_newcomer(machine) }
}

/// MAAS holds nothing for it yet.
fn is_newcomer(machine: &MaasMachine) -> bool {
    let journal = Journal::read(machine.metadata.annotations.as_ref()).ok().flatten();
    machine.spec.provider_id().is_none() && journal.is_none_or(|journal| journal.allocation.is_none())
}

fn machines_of(store: &Store<MaasMachine>, namespace: Option<String>, cluster: &str) -> Vec<Key> {
    let ours = |machine: &Arc<MaasMachine>| {
        machine.namespace() == namespace && machine.labels().get(CLUSTER_NAME_LABEL).is_some_and(|name| name == cluster)
    };
    store.state().iter().filter(|machine| ours(machine)).map(|machine| Key::of(machine.as_ref())).collect()
}

fn infrastructure_of(store: &Store<MaasMachine>, machine: &Machine) -> Option<Key> {
    let reference = machine.spec.infrastructure_ref.as_ref().filter(|reference| reference.is_ours("MaasMachine"))?;
    let object = Key::new(machine.metadata.namespace.clone().unwrap_or_default(), &reference.name);
    stored(store, &object).map(|_| object)
}

#[cfg(test)]
mod tests {
    use capmaas_core::machine::Allocation;

    use super::super::fixture::remembering;
    use super::*;

    #[test]
    fn a_newcomer_is_one_for_which_maas_holds_nothing_yet() {
        let is = |journal: &Journal| is_newcomer(&serde_json::from_value(remembering("m", journal)).unwrap());
        assert!(is(&Journal::new("u")));
        assert!(!is(&Journal { allocation: Some(Allocation::of("abc123")), ..Journal::new("u") }));
    }

    #[test]
    fn s29_machines_of_one_maas_are_one_tenants_whatever_is_written_on_them() {
        let machine: MaasMachine = serde_json::from_value(serde_json::json!({
            "metadata": {
                "name": "m", "namespace": "team", "labels": {CLUSTER_NAME_LABEL: "c"},
                "annotations": {IDENTITY_ANNOTATION: "http://maas#me"},
            },
            "spec": {},
        }))
        .unwrap();
        let of = |cluster: Option<serde_json::Value>| {
            let mut writer = kube::runtime::reflector::store::Writer::default();
            if let Some(spec) = cluster {
                let object = serde_json::json!({"metadata": {"name": "c", "namespace": "team"}, "spec": spec});
                let object: MaasCluster = serde_json::from_value(object).unwrap();
                writer.apply_watcher_event(&kube::runtime::watcher::Event::Apply(object));
            }
            class(&machine, &writer.as_reader()).tenant
        };
        assert_eq!(of(Some(serde_json::json!({"identityRef": {"name": "key"}}))), "Secret team/key");
        assert_eq!(of(Some(serde_json::json!({}))), "manager");
        assert_eq!(of(None), "http://maas#me", "its cluster is gone");
    }
}
