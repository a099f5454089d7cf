//! Two managers on one MAAS: each for one namespace, from the same manifests, with a MAAS user of its own.

use std::ffi::OsStr;

use capmaas_testbed::{CapiVersion, parse_yaml};
use serde_json::{Value, json};

use crate::repository;
use crate::scene::Scene;

/// The namespace of the second manager.
const SECOND: &str = "capmaas-second";
const SECOND_KEY: &str = "secondconsumer:secondtoken:CANARYsecondsecret";
/// The MAAS user of the second manager. The first uses the user of every scene.
pub const SECOND_USER: &str = "second";
/// The namespaces of the two teams, in the order of their managers.
pub const TEAMS: [&str; 2] = ["team-a", "team-b"];

/// Our manifests, changed to another namespace and another team.
fn for_another_team(mut object: Value) -> Option<Value> {
    let rename = |value: &mut Value| {
        if *value == json!("capmaas-system") {
            *value = json!(SECOND);
        }
    };
    match object["kind"].as_str()? {
        "CustomResourceDefinition" | "ClusterRole" => return None,
        "Namespace" => rename(&mut object["metadata"]["name"]),
        "ClusterRoleBinding" => {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            object["metadata"]["name"] = json!(format!("{name}-{SECOND}"));
        }
        _ => rename(&mut object["metadata"]["namespace"]),
    }
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        rename(&mut subject["namespace"]);
    }
    Some(scoped_to(object, TEAMS[1]))
}

fn scoped_to(mut object: Value, namespace: &str) -> Value {
    if let Some(args) = object.pointer_mut("/spec/template/spec/containers/0/args").and_then(Value::as_array_mut) {
        args.push(json!(format!("--namespace={namespace}")));
    }
    object
}

/// A scene in which two managers run, each for the namespace of one team.
pub async fn two_managers(core: CapiVersion) -> anyhow::Result<Scene> {
    let mut scene = Scene::without_manager(core).await?;
    let config = repository().join("config/default");
    let manifests = scene.testbed.kubectl([OsStr::new("kustomize"), config.as_os_str()]).await?;
    let manifests = parse_yaml(&manifests)?;
    let second: Vec<Value> = manifests.iter().cloned().filter_map(for_another_team).collect();
    let first = manifests.into_iter().map(|object| scoped_to(object, TEAMS[0])).collect();
    scene.testbed.apply_objects(first).await?;
    scene.testbed.apply_objects(second).await?;
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    scene.testbed.apply_objects(TEAMS.map(namespace).to_vec()).await?;
    scene.maas.arrange(json!([{"user": {"name": SECOND_USER, "admin": true, "key": SECOND_KEY}}]))?;
    let metadata = |name: &str| json!({"name": name, "namespace": SECOND});
    let credentials = vec![
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("maas-credentials"),
               "stringData": {"apiKey": SECOND_KEY}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("capmaas-config"),
               "data": {"maasEndpoint": scene.maas.endpoint}}),
    ];
    scene.testbed.apply_objects(credentials).await?;
    scene.start_installed_manager().await?;
    Ok(scene)
}
