//! Ownership of journals and of records in MAAS's DNS: copies, forged annotations, names that look right.

use capmaas_manager::cluster::reconcile;
use capmaas_manager::kubernetes::Key;
use serde_json::{Value, json};

use crate::stage::{Stage, key};

const THEIRS: &str = "c1-0abc12.k8s.example";
const ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/";

/// A record of somebody unknown to this manager, with a MAAS machine behind it.
fn record_of_a_stranger(stage: &Stage) -> (String, Vec<String>) {
    stage
        .arrange(json!([{"machine": {"hostname": "stranger", "status": "Deployed", "owner": "carol", "power": "on"}}]));
    let address = stage.maas.control().with_model(|model| {
        let machine = model.db.machines.get(&model.machine_named("stranger").unwrap()).unwrap();
        maas_sim::http::render::machine::addresses(model, machine)[0].clone()
    });
    stage.arrange(json!([{"dns": {"fqdn": THEIRS, "ip_addresses": [address]}}]));
    (THEIRS.to_owned(), vec![address])
}

fn endpoint() -> Value {
    json!({ "controlPlaneEndpoint": { "host": THEIRS, "port": 6443 } })
}

/// What a backup or exported YAML makes of the object, under another key.
fn copy(stage: &Stage, to: &Key) {
    let mut object = stage.object();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "ownerReferences"] {
        metadata.remove(field);
    }
    metadata.insert("namespace".into(), json!(to.namespace));
    metadata.insert("name".into(), json!(to.name));
    object.as_object_mut().unwrap().remove("status");
    stage.create(object);
}

async fn passes(stage: &Stage, key: &Key) {
    for _ in 0..6 {
        reconcile(&stage.context, key).await.unwrap();
        stage.advance(5);
    }
}

fn edit(stage: &Stage, annotations: Value) {
    stage.port.edit("MaasCluster", &key(), &json!({ "metadata": { "annotations": annotations } })).unwrap();
}

/// Somebody replaces the whole object by its original manifest: the journal, the finalizer and the endpoint are gone.
/// Cluster API restores its own fields; the status stays, because a replace does not touch it.
fn replace(stage: &Stage) {
    let names = stage.object()["metadata"]["annotations"].as_object().unwrap().clone();
    let none: serde_json::Map<String, Value> = names.keys().map(|name| (name.clone(), Value::Null)).collect();
    let patch =
        json!({ "metadata": { "annotations": none, "finalizers": null }, "spec": { "controlPlaneEndpoint": null } });
    stage.port.edit("MaasCluster", &key(), &patch).unwrap();
}

#[tokio::test]
async fn s18_a_replaced_object_keeps_its_record_and_deletes_it_in_the_end() {
    // All combinations: the Cluster has taken over the endpoint or not, machines are up or not, the status has the name
    // or not.
    for case in 0..8 {
        let (adopted, up, told) = (case & 1 > 0, case & 2 > 0, case & 4 > 0);
        let stage = Stage::new();
        stage.plain_cluster();
        if up {
            stage.control_plane("cp1");
        }
        stage.rest().await;
        let records = stage.records();
        assert_eq!(records.len(), 1);
        let endpoint = stage.object()["spec"]["controlPlaneEndpoint"].clone();
        if adopted {
            stage.port.edit("Cluster", &key(), &json!({ "spec": { "controlPlaneEndpoint": endpoint } })).unwrap();
        }
        if !told {
            stage.port.set_status("MaasCluster", &key(), json!({})).unwrap();
        }
        let writes = stage.writes().len();
        replace(&stage);
        stage.rest().await;
        assert_eq!((stage.records(), stage.writes().len()), (records, writes), "case {case}: MAAS is not changed");
        assert_eq!(stage.object()["spec"]["controlPlaneEndpoint"], endpoint, "case {case}");
        assert_eq!(stage.object()["status"]["ready"], true, "case {case}");
        stage.port.delete("MaasCluster", &key());
        if up {
            stage.gone("cp1");
        }
        stage.rest().await;
        assert!(stage.object().is_null() && stage.records().is_empty(), "case {case}: {:?}", stage.records());
    }
}

#[tokio::test]
async fn s18_a_replaced_object_that_is_deleted_before_anything_is_noted_again_leaves_no_record() {
    let stage = Stage::new();
    stage.plain_cluster();
    stage.rest().await;
    replace(&stage);
    // Its finalizer and name are restored, but not yet the ID of its record.
    stage.pass().await;
    assert!(stage.object()["metadata"]["annotations"].get(format!("{ANNOTATION}dns-record")).is_none());
    stage.port.delete("MaasCluster", &key());
    stage.rest().await;
    assert!(stage.object().is_null() && stage.records().is_empty());
}

#[tokio::test]
async fn s18_a_name_of_our_form_or_a_finalizer_makes_no_record_ours() {
    for metadata in [json!({}), json!({ "finalizers": ["maascluster.infrastructure.cluster.x-k8s.io"] })] {
        let stage = Stage::new();
        let theirs = record_of_a_stranger(&stage);
        stage.cluster(json!({}), endpoint(), metadata);
        stage.rest().await;
        assert_eq!(stage.reason("LoadBalancerReady"), "DNSNameTaken");
        assert_ne!(stage.object()["status"]["ready"], true);
        stage.control_plane("cp1");
        stage.rest().await;
        stage.port.delete("MaasCluster", &key());
        stage.gone("cp1");
        stage.rest().await;
        assert!(stage.object().is_null());
        assert_eq!((stage.records(), stage.writes()), (vec![theirs], vec![]));
    }
}

#[tokio::test]
async fn s18_forged_annotations_reach_nobody_elses_record() {
    for with_number in [true, false] {
        let stage = Stage::new();
        let theirs = record_of_a_stranger(&stage);
        let id = stage.maas.control().with_model(|model| model.db.dns.values().next().unwrap().id);
        stage.cluster(json!({}), endpoint(), json!({}));
        let forged = json!({
            format!("{ANNOTATION}endpoint-source"): "dns", format!("{ANNOTATION}dns-name"): THEIRS,
            format!("{ANNOTATION}dns-record"): with_number.then(|| id.to_string()),
            format!("{ANNOTATION}dns-record-asked-at"): "2026-11-15T12:00:00Z",
            format!("{ANNOTATION}written-for"):
                json!({ "namespace": "default", "name": "c1", "uid": stage.object()["metadata"]["uid"] }).to_string(),
        });
        edit(&stage, forged);
        stage.rest().await;
        stage.control_plane("cp1");
        stage.rest().await;
        assert_eq!(stage.reason("LoadBalancerReady"), "DNSNameTaken");
        stage.port.delete("MaasCluster", &key());
        stage.rest().await;
        stage.gone("cp1");
        stage.rest().await;
        assert!(stage.object().is_null());
        assert_eq!((stage.records(), stage.writes()), (vec![theirs], vec![]));
    }
}

#[tokio::test]
async fn s18_a_forged_debt_gives_no_address_back_that_was_reserved_before() {
    let stage = Stage::new();
    let admin = stage.identities.of_manager().await.unwrap().client;
    let address = "10.0.0.77".parse().unwrap();
    admin.ip_addresses().reserve(address).await.unwrap();
    stage.advance(60);
    stage.plain_cluster();
    stage.rest().await;
    edit(&stage, json!({ format!("{ANNOTATION}dns-owed-addresses"): "10.0.0.77" }));
    stage.rest().await;
    stage.port.delete("MaasCluster", &key());
    stage.rest().await;
    assert!(stage.object().is_null());
    let left = admin.ip_addresses().list(&maas_client::IpAddressFilter::default()).await.unwrap();
    assert_eq!(left.len(), 1, "{:?}", stage.writes());
}

#[tokio::test]
async fn s25_a_copied_cluster_touches_nothing_goes_freely_and_does_not_disturb_the_original() {
    for to in [Key::new("restored", "c1"), Key::new("default", "c1-copy")] {
        // With a journal of this release, and with one of an earlier release.
        for recorded in [true, false] {
            let stage = Stage::new();
            stage.plain_cluster();
            stage.control_plane("cp1");
            stage.rest().await;
            if !recorded {
                edit(&stage, json!({ format!("{ANNOTATION}written-for"): null }));
            }
            let before = stage.records();
            copy(&stage, &to);
            stage.forget_requests();
            passes(&stage, &to).await;
            stage.rest().await;
            assert_eq!(stage.condition("LoadBalancerReady")["status"], "True", "{to} {recorded}: {:#}", stage.object());
            assert_eq!(stage.reason("Ready"), "APIServerNotReady");
            stage.port.delete("MaasCluster", &to);
            passes(&stage, &to).await;
            assert!(stage.port.object("MaasCluster", &to).is_none(), "{to} {recorded}");
            assert_eq!((stage.records(), stage.writes()), (before.clone(), vec![]), "{to} {recorded}");
        }
    }
}

#[tokio::test]
async fn s25_a_copy_names_itself_and_its_original() {
    let stage = Stage::new();
    stage.plain_cluster();
    stage.rest().await;
    let to = Key::new("default", "c1-copy");
    copy(&stage, &to);
    // It even belongs to its own Cluster.
    let cluster = stage.create(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": { "name": "c1-copy", "namespace": "default" },
        "spec": { "infrastructureRef":
            { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MaasCluster", "name": "c1-copy" } },
    }));
    let owner = json!([{
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1-copy", "uid": cluster["metadata"]["uid"],
    }]);
    stage.port.edit("MaasCluster", &to, &json!({ "metadata": { "ownerReferences": owner } })).unwrap();
    stage.forget_requests();
    passes(&stage, &to).await;
    let copy = stage.port.object("MaasCluster", &to).unwrap();
    let ready =
        copy["status"]["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "Ready").unwrap().clone();
    assert_eq!(ready["reason"], "CopiedJournal");
    assert!(ready["message"].as_str().unwrap().contains("default/c1 "), "{ready}");
    assert_eq!(stage.requests(), 0);
}

#[tokio::test]
async fn s15_after_a_move_the_record_is_kept_and_deleted_like_before() {
    let stage = Stage::new();
    stage.plain_cluster();
    let one = stage.control_plane("cp1");
    stage.rest().await;
    let before = stage.object();
    let annotations = before["metadata"]["annotations"].clone();
    // The same cluster in another management cluster: different UIDs, no status, the same MAAS.
    let mut after = Stage::beside(&stage);
    after.create(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x", "namespace": "default" }, "data": {} }));
    after.cluster(
        json!({}),
        before["spec"].clone(),
        json!({ "annotations": annotations, "finalizers": before["metadata"]["finalizers"] }),
    );
    let id = stage.maas.control().with_model(|model| model.machine_named("cp1").unwrap());
    after.maas_machine("cp1", &id, &[&one]);
    let cp1 = stage.port.object("MaasMachine", &Key::new("default", "cp1")).unwrap();
    after.journal("cp1", cp1["metadata"]["annotations"][format!("{ANNOTATION}maas-record")].as_str().unwrap());
    assert_ne!(after.object()["metadata"]["uid"], before["metadata"]["uid"]);
    stage.forget_requests();
    after.rest().await;
    assert!(stage.writes().is_empty(), "{:?}", stage.writes());
    assert_eq!(after.object()["status"]["ready"], true);
    assert_ne!(after.object()["metadata"]["annotations"], before["metadata"]["annotations"], "whose it is now");
    after.restart();
    let two = after.control_plane("cp2");
    after.rest().await;
    let mut published = stage.records()[0].1.clone();
    published.sort();
    let mut expected = vec![one, two];
    expected.sort();
    assert_eq!(published, expected);
    after.port.delete("MaasCluster", &key());
    for name in ["cp1", "cp2"] {
        after.leaves(name);
    }
    after.rest().await;
    for name in ["cp1", "cp2"] {
        after.gone(name);
    }
    after.rest().await;
    assert!(after.object().is_null() && stage.records().is_empty());
}
