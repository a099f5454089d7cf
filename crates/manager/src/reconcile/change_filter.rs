//! Which changes to other objects trigger a pass over a machine. Cluster API updates the status of a Cluster with every
//! machine that is created or deleted; if each of these updates woke all machines of the cluster, a large cluster would
//! never stop reconciling.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

use capmaas_api::capi::{Cluster, Machine};
use capmaas_api::names::{
    DNS_ASKED_ANNOTATION, DNS_NAME_ANNOTATION, DNS_OWED_ANNOTATION, DNS_RECORD_ANNOTATION, ENDPOINT_SOURCE_ANNOTATION,
    MAINTENANCE_TAGGED_ANNOTATION, WRITTEN_FOR_ANNOTATION,
};
use capmaas_api::{MaasCluster, MaasMachine};
use capmaas_core::cluster;
use capmaas_core::credentials::IDENTITY_ANNOTATION;
use capmaas_core::hosts::leaving::ASKED_ANNOTATION;
use capmaas_core::machine::{JOURNAL_ANNOTATION, Journal};
use futures::{Stream, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource, ResourceExt as _};

/// Changes to the fields that `worth` hashes, and every deletion.
pub(crate) fn news<K>(
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

/// Everything about a machine that may trigger a pass: all fields except those that we write ourselves (S26). A pass
/// that woke itself by its own status or journal would immediately repeat a request that MAAS has just refused.
///
/// People may still tamper with our fields: the removal of a journal or finalizer, and a journal that becomes
/// unreadable or readable again, do trigger a pass.
pub fn fingerprint(machine: &MaasMachine) -> u64 {
    let metadata = &machine.metadata;
    let annotations = metadata.annotations.as_ref();
    let journal = annotations.and_then(|annotations| annotations.get(JOURNAL_ANNOTATION));
    let unreadable = journal.filter(|_| Journal::read(annotations).is_err());
    hash_own(metadata, &(metadata.generation, journal.is_some(), unreadable))
}

/// The same for a MaasCluster that triggers a pass over itself.
pub(crate) fn of_own_cluster(cluster: &MaasCluster) -> u64 {
    let metadata = &cluster.metadata;
    let journal = cluster::Journal::of(cluster.annotations());
    let kept = (journal.source.is_some(), journal.record.is_some(), journal.identity.is_some());
    hash_own(metadata, &(metadata.generation, kept, journal.unreadable))
}

/// Annotations that only we write.
const OURS: [&str; 10] = [
    JOURNAL_ANNOTATION,
    MAINTENANCE_TAGGED_ANNOTATION,
    IDENTITY_ANNOTATION,
    ASKED_ANNOTATION,
    ENDPOINT_SOURCE_ANNOTATION,
    DNS_NAME_ANNOTATION,
    DNS_RECORD_ANNOTATION,
    DNS_ASKED_ANNOTATION,
    DNS_OWED_ANNOTATION,
    WRITTEN_FOR_ANNOTATION,
];

/// Of those, the ones of a MaasCluster that no pass over a machine reads. A refused DNS record changes them with every
/// attempt.
const ONLY_THE_CLUSTERS: [&str; 4] =
    [DNS_RECORD_ANNOTATION, DNS_ASKED_ANNOTATION, DNS_OWED_ANNOTATION, WRITTEN_FOR_ANNOTATION];

/// Of a Cluster: its metadata (so whether it is paused), its spec, its progress, and whether its API server became
/// unavailable.
pub(crate) fn of_cluster(cluster: &Cluster) -> u64 {
    let status = &cluster.status;
    hash(
        &cluster.metadata,
        &printed(&(&cluster.spec, status.infrastructure_ready, &status.initialization, cluster.api_server_is_away())),
    )
}

/// Of a Machine: its desired state, whether it belongs to the control plane, whether its Node was found, and whether
/// the Node stopped reporting. Draining and deletion are Cluster API's concern.
pub(crate) fn of_machine(machine: &Machine) -> u64 {
    let (metadata, mut hasher) = (&machine.metadata, DefaultHasher::new());
    (&metadata.uid, &metadata.labels, printed(&(&machine.spec, &machine.status.node_ref, machine.node_is_silent())))
        .hash(&mut hasher);
    hasher.finish()
}

/// Of a MaasCluster: everything but what only its own passes read, and of the status only the DNS name.
pub(crate) fn of_maas_cluster(cluster: &MaasCluster) -> u64 {
    let dns_name = cluster.status.as_ref().and_then(|status| status.network.as_ref()?.dns_name.clone());
    let counts = |name: &str| !ONLY_THE_CLUSTERS.contains(&name);
    hash_with(&cluster.metadata, counts, &(cluster.metadata.generation, dns_name))
}

/// These partial types have no generation that covers only their own fields, and do not implement `Hash`.
fn printed(value: &impl Debug) -> String {
    format!("{value:?}")
}

/// For an object that others write.
fn hash(metadata: &ObjectMeta, more: &impl Hash) -> u64 {
    hash_with(metadata, |_| true, more)
}

/// For an object that we write ourselves.
fn hash_own(metadata: &ObjectMeta, more: &impl Hash) -> u64 {
    hash_with(metadata, |name| !OURS.contains(&name), more)
}

fn hash_with(metadata: &ObjectMeta, counts: impl Fn(&str) -> bool, more: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&metadata.labels, &metadata.finalizers).hash(&mut hasher);
    let annotations = metadata.annotations.iter().flatten();
    annotations.filter(|(name, _)| counts(name)).for_each(|annotation| annotation.hash(&mut hasher));
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

    #[test]
    fn a_machine_that_is_drained_and_deleted_wakes_nobody() {
        let machine = |metadata: Value, status: Value| -> Machine {
            serde_json::from_value(json!({ "metadata": metadata, "spec": { "clusterName": "c1" }, "status": status }))
                .unwrap()
        };
        let before = of_machine(&machine(json!({ "uid": "u1" }), json!({})));
        let going = json!({
            "uid": "u1", "deletionTimestamp": "2026-11-17T12:00:00Z", "finalizers": ["machine.cluster.x-k8s.io"],
            "annotations": { "pre-drain.delete.hook.machine.cluster.x-k8s.io/a": "" },
        });
        assert_eq!(of_machine(&machine(going, json!({ "phase": "Deleting" }))), before);
        let joined = of_machine(&machine(json!({ "uid": "u1" }), json!({ "nodeRef": { "name": "n1" } })));
        assert_ne!(joined, before);
        let unheard =
            json!({ "nodeRef": { "name": "n1" }, "conditions": [{ "type": "NodeReady", "status": "Unknown" }] });
        assert_ne!(of_machine(&machine(json!({ "uid": "u1" }), unheard)), joined, "its power may be gone");
        assert_ne!(of_machine(&machine(json!({ "uid": "u2" }), json!({}))), before, "another Machine of the same name");
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

    #[test]
    fn s26_what_only_we_write_wakes_nobody_and_what_a_person_does_to_it_is_noticed() {
        let machine = |annotations: Value, status: Value, finalizers: Value| -> u64 {
            let metadata = json!({
                "name": "m", "namespace": "n", "uid": "u", "annotations": annotations, "finalizers": finalizers, "generation": 1,
            });
            fingerprint(&serde_json::from_value(json!({"metadata": metadata, "spec": {}, "status": status})).unwrap())
        };
        let journal = Journal::new("u");
        let sending = journal.clone().sending(capmaas_core::machine::Write::Allocate, jiff::Timestamp::UNIX_EPOCH);
        let ours = json!([capmaas_api::names::MACHINE_FINALIZER]);
        let with = |text: &str| machine(json!({JOURNAL_ANNOTATION: text}), json!({}), ours.clone());
        let before = with(&journal.text());
        assert_eq!(with(&sending.text()), before, "an effect that is going to be sent, or was refused");
        let noted =
            json!({JOURNAL_ANNOTATION: journal.text(), IDENTITY_ANNOTATION: "http://maas#me", ASKED_ANNOTATION: "now"});
        assert_eq!(machine(noted, json!({"ready": true}), ours.clone()), before, "journal and the status");
        assert_ne!(with("{"), before, "somebody broke the journal");
        assert_ne!(with("{"), with("["), "somebody tries to mend it");
        assert_ne!(machine(json!({}), json!({}), ours.clone()), before, "somebody removed it");
        assert_ne!(
            machine(json!({JOURNAL_ANNOTATION: journal.text()}), json!({}), json!([])),
            before,
            "or the finalizer"
        );
        let theirs = json!({JOURNAL_ANNOTATION: journal.text(), "team": "a"});
        assert_ne!(machine(theirs, json!({}), ours.clone()), before, "what others write counts");
    }

    #[test]
    fn s26_the_notes_of_a_cluster_do_not_wake_it_and_its_debts_do() {
        let cluster = |annotations: Value| -> u64 {
            let metadata =
                json!({"name": "c", "namespace": "n", "uid": "u", "annotations": annotations, "generation": 1});
            of_own_cluster(&serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap())
        };
        let asked = |time: &str| json!({ENDPOINT_SOURCE_ANNOTATION: "dns", DNS_ASKED_ANNOTATION: time});
        let before = cluster(asked("2026-11-15T12:00:00Z"));
        assert_eq!(cluster(asked("2026-11-15T12:00:30Z")), before);
        assert_ne!(cluster(asked("yesterday")), before, "somebody made it unreadable");
        let mut owing = asked("2026-11-15T12:00:00Z");
        owing[capmaas_core::machine::DEBTS_ANNOTATION] = "[]".into();
        assert_ne!(cluster(owing), before);
    }

    #[test]
    fn s26_what_a_cluster_journals_for_itself_wakes_none_of_its_machines() {
        let cluster = |annotations: Value| -> u64 {
            let metadata = json!({"name": "c", "namespace": "n", "uid": "u", "annotations": annotations});
            of_maas_cluster(&serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap())
        };
        let before = cluster(json!({DNS_NAME_ANNOTATION: "c.example"}));
        for name in ONLY_THE_CLUSTERS {
            assert_eq!(
                cluster(json!({DNS_NAME_ANNOTATION: "c.example", name: "2026-11-15T12:00:00Z"})),
                before,
                "{name}"
            );
        }
        for name in [DNS_NAME_ANNOTATION, ENDPOINT_SOURCE_ANNOTATION, IDENTITY_ANNOTATION, "team"] {
            assert_ne!(cluster(json!({name: "other"})), before, "{name}: a pass over a machine may read it");
        }
    }
}
