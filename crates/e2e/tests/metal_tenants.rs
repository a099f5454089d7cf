//! Two managers side by side, each for one namespace, each with a MAAS user of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::ffi::OsStr;

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::maas::USER;
use capmaas_e2e::repository;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::{CapiVersion, parse_yaml};
use serde_json::{Value, json};

const SECOND: &str = "capmaas-second";

/// Our manifests once more, in another namespace and for another team.
fn for_another_team(mut object: Value) -> Option<Value> {
    let rename = |value: &mut Value| {
        if *value == json!("capmaas-system") {
            *value = json!(SECOND);
        }
    };
    match object["kind"].as_str()? {
        "CustomResourceDefinition" | "ClusterRole" => return None,
        "Namespace" => rename(&mut object["metadata"]["name"]),
        "ClusterRoleBinding" => object["metadata"]["name"] = json!(SECOND),
        _ => rename(&mut object["metadata"]["namespace"]),
    }
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        rename(&mut subject["namespace"]);
    }
    Some(scoped_to(object, "team-b"))
}

fn scoped_to(mut object: Value, namespace: &str) -> Value {
    if let Some(args) = object.pointer_mut("/spec/template/spec/containers/0/args").and_then(Value::as_array_mut) {
        args.push(json!(format!("--namespace={namespace}")));
    }
    object
}

#[tokio::test]
async fn two_managers_for_two_namespaces_leave_each_others_clusters_alone() {
    let mut scene = Scene::without_manager(CapiVersion::V1_14).await.unwrap();
    let config = repository().join("config/default");
    let manifests = scene.testbed.kubectl([OsStr::new("kustomize"), config.as_os_str()]).await.unwrap();
    let manifests = parse_yaml(&manifests).unwrap();
    let second: Vec<Value> = manifests.iter().cloned().filter_map(for_another_team).collect();
    let first = manifests.into_iter().map(|object| scoped_to(object, "team-a")).collect();
    scene.testbed.apply_objects(first).await.unwrap();
    scene.testbed.apply_objects(second).await.unwrap();
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    scene.testbed.apply_objects(vec![namespace("team-a"), namespace("team-b")]).await.unwrap();
    let key = "secondconsumer:secondtoken:CANARYsecondsecret";
    scene.maas.arrange(json!([{"user": {"name": "second", "admin": true, "key": key}}])).unwrap();
    let metadata = |name: &str| json!({"name": name, "namespace": SECOND});
    let credentials = vec![
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("maas-credentials"),
               "stringData": {"apiKey": key}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("capmaas-config"),
               "data": {"maasEndpoint": scene.maas.endpoint}}),
    ];
    scene.testbed.apply_objects(credentials).await.unwrap();
    scene.start_installed_manager().await.unwrap();

    let plan = |namespace: &str, name: &str| ClusterPlan {
        namespace: namespace.into(),
        ..ClusterPlan::new(CapiVersion::V1_14, name)
    };
    let (a, b) = (plan("team-a", "a1"), plan("team-b", "b1"));
    let (expected_a, expected_b) = (scene.create(&a).await.unwrap(), scene.create(&b).await.unwrap());
    scene.wait_running(&a, &expected_a).await.unwrap();
    scene.wait_running(&b, &expected_b).await.unwrap();
    let owners: BTreeSet<Option<String>> = scene.maas.taken().into_iter().map(|machine| machine.owner).collect();
    assert_eq!(owners, BTreeSet::from([Some(USER.to_owned()), Some("second".to_owned())]));

    scene.objects(&a, "Cluster").unwrap().delete("a1").await.unwrap();
    scene.wait_gone(&a).await.unwrap();
    assert_eq!(scene.maas.taken().len(), 1, "{:?}", scene.maas.taken());
    scene.delete(&b).await.unwrap();
    scene.stop().await;
}
