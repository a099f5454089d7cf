//! What a user with write access to an object can and cannot do with it. The table in docs/security.md names these
//! tests.

use capmaas_manager::kubernetes::Key;
use serde_json::{Value, json};

use crate::stage::Stage;

fn with_metal(statement: Value) -> Stage {
    let stage = Stage::new();
    let mut whole = json!({"hostname": "bm01", "system_id": "aaaaa1", "zone": "az1", "cpu_count": 4, "memory": 8192});
    whole.as_object_mut().unwrap().extend(statement.as_object().cloned().unwrap());
    stage.arrange(json!([{ "machine": whole }]));
    stage
}

async fn passes(stage: &Stage, times: usize) {
    for _ in 0..times {
        stage.pass("m").await;
        stage.advance(60);
    }
}

fn status(stage: &Stage) -> (String, Option<i64>) {
    stage.maas.control().with_model(|model| {
        let machine = model.db.machines.values().find(|machine| machine.hostname == "bm01").unwrap();
        (machine.status.name().to_owned(), machine.owner)
    })
}

#[tokio::test]
async fn s28_a_machine_of_another_maas_user_is_neither_taken_nor_released_by_naming_it() {
    for spec in [json!({ "systemID": "aaaaa1" }), json!({ "providerID": "maas://az1/aaaaa1" })] {
        let stage = with_metal(json!({"status": "Deployed", "owner": "bob"}));
        let before = status(&stage);
        stage.machine("m", spec.clone());
        passes(&stage, 10).await;
        stage.port.delete("MaasMachine", &Key::new("default", "m"));
        passes(&stage, 10).await;
        assert_eq!(status(&stage), before, "{spec}");
        let sent = stage.mutations();
        assert!(!sent.iter().any(|kind| kind == "machine.release" || kind == "machine.deploy"), "{spec}: {sent:?}");
    }
}

#[tokio::test]
async fn s28_an_unmarked_machine_of_the_same_maas_user_is_taken_over_by_naming_it_and_then_released() {
    let stage = with_metal(json!({"status": "Deployed", "owner": "admin"}));
    stage.machine("m", json!({ "providerID": "maas://az1/aaaaa1" }));
    passes(&stage, 10).await;
    assert_eq!(status(&stage).0, "Deployed", "a take-over wipes nothing");
    stage.until_gone(&["m"]).await;
    assert_eq!(status(&stage), ("Ready".to_owned(), None));
}

#[tokio::test]
async fn s28_bootstrap_data_is_read_in_the_machines_own_namespace_and_nowhere_else() {
    let stage = with_metal(json!({}));
    stage.machine("m", json!({}));
    stage.port.delete("Secret", &Key::new("default", "m"));
    let metadata = json!({ "name": "m", "namespace": "capmaas-system" });
    let values = json!({ "value": "CANARY" });
    stage
        .port
        .create(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values }))
        .unwrap();
    passes(&stage, 10).await;
    assert!(!stage.mutations().iter().any(|kind| kind == "machine.deploy"), "{:?}", stage.mutations());
}

#[tokio::test]
async fn s13_a_machine_that_is_handed_to_another_manager_and_deleted_is_released_by_whoever_allocated_it() {
    let stage = with_metal(json!({}));
    stage.machine("m", json!({}));
    stage.until_ready(&["m"]).await;
    let key = Key::new("default", "m");
    stage
        .port
        .edit("MaasMachine", &key, &json!({ "metadata": { "annotations": { "cluster.x-k8s.io/managed-by": "" } } }))
        .unwrap();
    let before = stage.object("m");
    passes(&stage, 5).await;
    assert_eq!(stage.object("m"), before, "while it lives it is somebody else's");
    stage.until_gone(&["m"]).await;
    assert_eq!(status(&stage), ("Ready".to_owned(), None));
}
