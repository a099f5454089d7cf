//! Journals on objects that they were not written for: copies, moves, backups and forgeries (S25).

use capmaas_manager::kubernetes::Key;
use serde_json::{Value, json};

use crate::stage::Stage;

const RECORD: &str = "infrastructure.cluster.x-k8s.io/maas-record";

fn with_metal(names: &[&str]) -> Stage {
    let stage = Stage::new();
    for name in names {
        stage.arrange(json!([{"machine": {"hostname": name, "zone": "az1", "cpu_count": 4, "memory": 8192}}]));
    }
    stage
}

fn key(name: &str) -> Key {
    Key::new("default", name)
}

/// The MAAS state of a machine.
fn state(stage: &Stage, name: &str) -> String {
    stage.maas.control().with_model(|model| {
        let machine = model.db.machines.values().find(|machine| machine.hostname == name).unwrap();
        machine.status.name().to_owned()
    })
}

/// An exported object as an API server stores it when it is created again under this key.
fn export(stage: &Stage, from: &Key, to: &Key) -> Value {
    let mut object = stage.port.object("MaasMachine", from).unwrap();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "ownerReferences", "deletionTimestamp"] {
        metadata.remove(field);
    }
    metadata.insert("name".into(), json!(to.name));
    metadata.insert("namespace".into(), json!(to.namespace));
    object
}

/// As the previous release wrote it: without the object that it is for.
fn forget_for_whom(stage: &Stage, name: &str) {
    let mut journal = stage.record(name);
    journal.as_object_mut().unwrap().remove("writtenFor");
    let note = json!({ "metadata": { "annotations": { RECORD: journal.to_string() } } });
    stage.port.edit("MaasMachine", &key(name), &note).unwrap();
}

fn said(stage: &Stage, of: &Key) -> Value {
    let object = stage.port.object("MaasMachine", of).unwrap();
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == "MachineDeployed").unwrap_or(Value::Null)
}

/// A running machine, and the number of changes that MAAS has seen by then.
async fn running(stage: &Stage) -> usize {
    stage.machine("m", json!({}));
    stage.until_ready(&["m"]).await;
    stage.pass("m").await;
    assert_eq!(stage.record("m")["writtenFor"]["uid"], stage.object("m")["metadata"]["uid"]);
    stage.mutations().len()
}

#[tokio::test]
async fn s25_a_copy_touches_nothing_goes_freely_and_does_not_disturb_the_original() {
    for recorded in [true, false] {
        for (copy, finalizer) in [
            (key("m-copy"), true),
            (key("m-copy"), false),
            (Key::new("restored", "m"), true),
            (Key::new("restored", "m"), false),
        ] {
            let stage = with_metal(&["bm01"]);
            let before = running(&stage).await;
            if !recorded {
                forget_for_whom(&stage, "m");
            }
            let mut object = export(&stage, &key("m"), &copy);
            if !finalizer {
                object["metadata"].as_object_mut().unwrap().remove("finalizers");
            }
            stage.create(object);
            stage.some_passes(&copy, 3, 30).await;
            stage.some_passes(&key("m"), 3, 30).await;
            let context = format!("{copy}, with a finalizer: {finalizer}, recorded: {recorded}");
            assert_eq!(stage.object("m")["status"]["ready"], true, "{context}");
            assert_eq!(stage.reason("m", "MachineDeployed"), "MachineDeployed", "{context}");
            assert_eq!(said(&stage, &copy)["reason"], "CopiedJournal", "{context}");
            let message = said(&stage, &copy)["message"].to_string();
            assert!(message.contains("default/m"), "{context}: {message}");
            let stored = stage.port.object("MaasMachine", &copy).unwrap();
            assert_eq!(stored["metadata"]["finalizers"].is_array(), finalizer, "{context}");
            stage.port.delete("MaasMachine", &copy);
            stage.some_passes(&copy, 2, 15).await;
            assert!(stage.port.object("MaasMachine", &copy).is_none(), "{context}");
            let told = stage.port.events().iter().any(|told| told.message.contains("nothing was released"));
            assert_eq!(told, finalizer, "{context}");
            stage.some_passes(&key("m"), 2, 15).await;
            assert_eq!((state(&stage, "bm01").as_str(), stage.mutations().len()), ("Deployed", before), "{context}");
            stage.until_gone(&["m"]).await;
            assert_eq!(state(&stage, "bm01"), "Ready", "{context}: the original is released as ever");
        }
    }
}

#[tokio::test]
async fn s25_a_copy_that_is_left_behind_does_not_keep_the_original_from_being_released() {
    let stage = with_metal(&["bm01"]);
    running(&stage).await;
    stage.create(export(&stage, &key("m"), &key("m-copy")));
    stage.some_passes(&key("m-copy"), 2, 15).await;
    stage.until_gone(&["m"]).await;
    assert_eq!(state(&stage, "bm01"), "Ready");
    let released = stage.mutations().len();
    stage.some_passes(&key("m-copy"), 5, 60).await;
    assert_eq!(
        (said(&stage, &key("m-copy"))["reason"].as_str(), stage.mutations().len()),
        (Some("CopiedJournal"), released)
    );
}

#[tokio::test]
async fn s25_a_journal_of_the_release_before_is_completed_by_one_write_and_no_change_in_maas() {
    let stage = with_metal(&["bm01"]);
    let before = running(&stage).await;
    forget_for_whom(&stage, "m");
    stage.pass("m").await;
    let stored = stage.object("m");
    assert_eq!(stage.record("m")["writtenFor"]["name"], "m");
    stage.pass("m").await;
    assert_eq!((stage.object("m"), stage.mutations().len()), (stored, before));
}

/// Deletes the object behind the manager's back and recreates it with another UID, as a move or a backup does; with the
/// Machine that owns it, or without any.
fn renew(stage: &Stage, recorded: bool, owned: bool) {
    if !recorded {
        forget_for_whom(stage, "m");
    }
    let mut object = export(stage, &key("m"), &key("m"));
    let strip = json!({ "metadata": { "finalizers": null } });
    stage.port.edit("MaasMachine", &key("m"), &strip).unwrap();
    stage.port.delete("MaasMachine", &key("m"));
    let mut machine = stage.port.object("Machine", &key("m")).unwrap();
    stage.port.delete("Machine", &key("m"));
    if owned {
        let machine = {
            machine["metadata"].as_object_mut().unwrap().remove("uid");
            stage.create(machine)
        };
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m", "uid": machine["metadata"]["uid"],
        }]);
    }
    stage.create(object);
}

#[tokio::test]
async fn s25_a_moved_or_restored_object_goes_on_without_a_change_in_maas() {
    for recorded in [true, false] {
        let mut stage = with_metal(&["bm01"]);
        let before = running(&stage).await;
        renew(&stage, recorded, true);
        stage.restart();
        stage.until_ready(&["m"]).await;
        stage.some_passes(&key("m"), 3, 30).await;
        assert_eq!(stage.record("m")["writtenFor"]["uid"], stage.object("m")["metadata"]["uid"]);
        assert_eq!(stage.mutations().len(), before, "recorded: {recorded}");
        stage.until_gone(&["m"]).await;
        assert_eq!(state(&stage, "bm01"), "Ready", "recorded: {recorded}");
    }
}

#[tokio::test]
async fn s25_a_restored_object_that_is_deleted_at_once_is_released() {
    let mut stage = with_metal(&["bm01"]);
    running(&stage).await;
    renew(&stage, true, true);
    stage.restart();
    stage.until_gone(&["m"]).await;
    assert_eq!(state(&stage, "bm01"), "Ready");
}

#[tokio::test]
async fn s25_a_recreated_object_without_its_machine_is_left_alone_and_kept_until_it_is_given_up() {
    for recorded in [true, false] {
        let stage = with_metal(&["bm01"]);
        let before = running(&stage).await;
        let id = stage.record("m")["machine"].as_str().unwrap().to_owned();
        renew(&stage, recorded, false);
        stage.some_passes(&key("m"), 3, 30).await;
        assert_eq!(stage.reason("m", "MachineDeployed"), "UnprovenJournal");
        stage.port.delete("MaasMachine", &key("m"));
        stage.some_passes(&key("m"), 10, 60).await;
        let message = stage.condition("m", "MachineDeployed")["message"].to_string();
        assert!(message.contains(&format!("abandon-machine: {id}")), "{message}");
        let give_up =
            json!({ "metadata": { "annotations": { "infrastructure.cluster.x-k8s.io/abandon-machine": id } } });
        stage.port.edit("MaasMachine", &key("m"), &give_up).unwrap();
        stage.some_passes(&key("m"), 2, 15).await;
        assert!(stage.object("m").is_null());
        assert_eq!(
            (state(&stage, "bm01").as_str(), stage.mutations().len()),
            ("Deployed", before),
            "recorded: {recorded}"
        );
    }
}

/// A handwritten journal: for its own object, with the idempotency key and the machine of another one.
fn forge(stage: &Stage, name: &str) {
    let victim = stage.object("m");
    let mut object = export(stage, &key("m"), &Key::new("evil", name));
    let mut journal = stage.record("m");
    journal.as_object_mut().unwrap().remove("writtenFor");
    object["metadata"]["annotations"][RECORD] = journal.to_string().into();
    object["metadata"]["labels"] = victim["metadata"]["labels"].clone();
    let stored = stage.create(object);
    journal["writtenFor"] = json!({ "namespace": "evil", "name": name, "uid": stored["metadata"]["uid"] });
    let note = json!({ "metadata": { "annotations": { RECORD: journal.to_string() } } });
    stage.port.edit("MaasMachine", &Key::new("evil", name), &note).unwrap();
}

#[tokio::test]
async fn s25_a_forged_journal_harms_nobody() {
    // The key of a victim that was moved does not contain its current UID: then the stamp in MAAS decides.
    for moved in [false, true] {
        let stage = with_metal(&["bm01"]);
        let before = running(&stage).await;
        if moved {
            renew(&stage, true, true);
            stage.until_ready(&["m"]).await;
        }
        let forged = Key::new("evil", "f");
        forge(&stage, "f");
        stage.some_passes(&forged, 5, 30).await;
        stage.some_passes(&key("m"), 3, 30).await;
        assert_eq!(stage.object("m")["status"]["ready"], true, "moved: {moved}");
        stage.port.delete("MaasMachine", &forged);
        stage.some_passes(&forged, 10, 30).await;
        assert_eq!((state(&stage, "bm01").as_str(), stage.mutations().len()), ("Deployed", before), "moved: {moved}");
        // It stays as long as its cluster has no credentials, and the victim is released nevertheless.
        stage.until_gone(&["m"]).await;
        assert_eq!(state(&stage, "bm01"), "Ready", "moved: {moved}");
    }
}

#[tokio::test]
async fn s25_a_forged_journal_in_the_same_cluster_neither_deploys_nor_releases_what_is_being_prepared() {
    let stage = with_metal(&["bm01"]);
    stage.machine("m", json!({}));
    stage.until(&["m"], "allocated", |stage| stage.record("m")["machine"].is_string()).await;
    let mut object = export(&stage, &key("m"), &key("f"));
    let machine = stage.port.object("Machine", &key("m")).unwrap();
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m", "uid": machine["metadata"]["uid"],
    }]);
    let stored = stage.create(object);
    let mut journal = stage.record("m");
    journal["writtenFor"] = json!({ "namespace": "default", "name": "f", "uid": stored["metadata"]["uid"] });
    let note = json!({ "metadata": { "annotations": { RECORD: journal.to_string() } } });
    stage.port.edit("MaasMachine", &key("f"), &note).unwrap();
    let before = stage.mutations().len();
    stage.some_passes(&key("f"), 5, 1).await;
    stage.port.delete("MaasMachine", &key("f"));
    stage.some_passes(&key("f"), 5, 1).await;
    assert_eq!(stage.mutations().len(), before);
    stage.until_ready(&["m"]).await;
}

#[tokio::test]
async fn s25_a_watch_that_is_behind_makes_no_copy_of_a_restored_object() {
    let stage = with_metal(&["bm01"]);
    running(&stage).await;
    stage.port.let_index_lag(true);
    renew(&stage, true, true);
    stage.some_passes(&key("m"), 3, 15).await;
    assert_eq!(stage.reason("m", "MachineDeployed"), "MachineDeployed");
    stage.until_gone(&["m"]).await;
    assert_eq!(state(&stage, "bm01"), "Ready");
}

#[tokio::test]
async fn s25_nobody_is_a_copy_of_an_object_that_is_gone() {
    let stage = with_metal(&["bm01"]);
    running(&stage).await;
    forget_for_whom(&stage, "m");
    let object = export(&stage, &key("m"), &key("m-copy"));
    stage.some_passes(&key("m"), 1, 15).await;
    stage.port.let_index_lag(true);
    stage.port.edit("MaasMachine", &key("m"), &json!({ "metadata": { "finalizers": null } })).unwrap();
    stage.port.delete("MaasMachine", &key("m"));
    stage.create(object);
    stage.port.delete("MaasMachine", &key("m-copy"));
    stage.some_passes(&key("m-copy"), 5, 15).await;
    assert_eq!(said(&stage, &key("m-copy"))["reason"], "UnprovenJournal", "it may be the last trace of the machine");
}
