//! Objects that users already have: of the Go provider, and as the documents show them.

use futures::{StreamExt, stream};
use serde_json::{Map, Value, json};

use crate::server::{Server, documents, kind_of};

const GO_0_9: [&str; 3] = [
    "crates/api/tests/fixtures/go-provider-v0.9/maasclusters.yaml",
    "crates/api/tests/fixtures/go-provider-v0.9/maasmachines.yaml",
    "crates/api/tests/fixtures/go-provider-v0.9/maasmachinetemplates.yaml",
];

/// The object without what the API server fills in itself, under another name.
fn as_new(object: &Value, name: &str) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in [
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        metadata.remove(field);
    }
    metadata.insert("name".into(), name.into());
    object
}

/// Creates the object with its status, sees both stored letter by letter, then patches nothing but metadata, to the point
/// where the object could go.
async fn fault(server: &Server, name: String, object: &Value) -> Option<String> {
    let kind = kind_of(object);
    let steps = async {
        let created = server.create(&as_new(object, &name)).await.map_err(|error| format!("create: {error}"))?;
        if created["spec"] != object["spec"] {
            return Err(format!("the spec was stored as {}", created["spec"]));
        }
        if let Some(status) = object.get("status") {
            let stored = server.merge_status(kind, &name, status).await.map_err(|error| format!("status: {error}"))?;
            if stored["status"] != *status {
                return Err(format!("the status was stored as {}", stored["status"]));
            }
        }
        let metadata =
            json!({"metadata": {"labels": {"patched": "yes"}, "annotations": {"patched": "yes"}, "finalizers": null}});
        server.merge(kind, &name, &metadata).await.map_err(|error| format!("metadata: {error}"))?;
        Ok(())
    };
    steps.await.err().map(|error| format!("{kind} {}: {error}", object["metadata"]))
}

async fn every_object_is_stored_and_can_be_let_go(namespace: &str, files: &[&str]) -> usize {
    let server = Server::with_namespace(namespace).await;
    let objects: Vec<Value> = files.iter().flat_map(|file| documents(file)).collect();
    let faults: Vec<String> = stream::iter(objects.iter().enumerate())
        .map(|(number, object)| fault(&server, format!("object-{number}"), object))
        .buffer_unordered(8)
        .filter_map(async |fault| fault)
        .collect()
        .await;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    objects.len()
}

#[tokio::test]
async fn s24_every_revision_of_the_go_provider_0_9_is_stored_with_its_status_and_takes_a_metadata_patch() {
    assert_eq!(every_object_is_stored_and_can_be_let_go("go-v0-9", &GO_0_9).await, 240);
}

#[tokio::test]
async fn s24_the_shapes_of_the_go_provider_4_6_are_stored_with_their_status_and_take_a_metadata_patch() {
    every_object_is_stored_and_can_be_let_go("go-v4-6", &["crates/api/tests/fixtures/go-provider-schemas/v4.6.yaml"])
        .await;
}

#[tokio::test]
async fn s24_whatever_the_schemas_of_the_go_provider_let_through_can_still_be_let_go() {
    every_object_is_stored_and_can_be_let_go(
        "go-extremes",
        &["crates/api/tests/fixtures/go-provider-schemas/extremes.yaml"],
    )
    .await;
}

#[tokio::test]
async fn every_example_of_the_documents_applies() {
    let files =
        ["001-integration", "004-design"].map(|name| format!("crates/api/tests/fixtures/documents/{name}.yaml"));
    every_object_is_stored_and_can_be_let_go("documents", &files.each_ref().map(String::as_str)).await;
}

/// A manager of the Go provider may still run, or run again, while our definitions are installed.
#[tokio::test]
async fn s24_each_step_that_the_go_provider_made_can_still_be_made() {
    let server = Server::with_namespace("go-steps").await;
    for file in GO_0_9 {
        let mut before: Option<Value> = None;
        for (number, revision) in documents(file).into_iter().enumerate() {
            let kind = kind_of(&revision);
            let name =
                format!("{}-{}", revision["metadata"]["namespace"], revision["metadata"]["name"]).replace('"', "");
            let same = before.as_ref().is_some_and(|before| before["metadata"]["uid"] == revision["metadata"]["uid"]);
            let step = if same {
                let change =
                    json!({"spec": difference(before.as_ref().map(|before| &before["spec"]), &revision["spec"])});
                server.merge(kind, &name, &change).await
            } else {
                server.create(&as_new(&revision, &name)).await
            };
            let stored = step.unwrap_or_else(|error| panic!("{file}, revision {number}: {error}"));
            assert_eq!(stored["spec"], revision["spec"], "{file}, revision {number}");
            before = Some(revision);
        }
    }
}

/// The merge patch that makes `new` out of `old`, as the Go provider computes it.
fn difference(old: Option<&Value>, new: &Value) -> Value {
    let (Some(Value::Object(old)), Value::Object(new)) = (old, new) else { return new.clone() };
    let mut change = Map::new();
    for (name, value) in new.iter().filter(|(name, value)| old.get(*name) != Some(*value)) {
        change.insert(name.clone(), difference(old.get(name), value));
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        change.insert(name.clone(), Value::Null);
    }
    Value::Object(change)
}

#[tokio::test]
async fn failure_domains_are_stored_as_a_map_and_as_a_list_and_one_can_replace_the_other() {
    let server = Server::with_namespace("failure-domains").await;
    let cluster = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster", "metadata": {"name": "c"},
        "spec": {"dnsDomain": "maas"},
    });
    server.create(&cluster).await.unwrap();
    let list = json!([{"name": "az1", "controlPlane": true}, {"name": "az2", "controlPlane": false, "attributes": {"a": "b"}}]);
    let map = json!({"az1": {"controlPlane": true}, "az2": {"controlPlane": false, "attributes": {"a": "b"}}});
    for domains in [&list, &map, &list] {
        let status = json!({"ready": true, "initialization": {"provisioned": true}, "failureDomains": domains});
        let stored = server.merge_status("MaasCluster", "c", &status).await.unwrap();
        assert_eq!(stored["status"], status);
    }
}
