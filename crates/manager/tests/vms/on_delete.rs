//! VMs of a MachineDeployment that replaces only what somebody deletes, and whose template has changed since.

use capmaas_manager::evacuation::pass;
use serde_json::{Value, json};

use crate::evacuation::{Scene, TAG, is_well, key};
use crate::neighbours::leaving;
use crate::stage::Stage;

/// The MachineDeployment, with its MachineSet.
fn deployment(stage: &Stage) -> Value {
    let made = stage.create(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
        "metadata": { "name": "md", "namespace": "default" },
        "spec": {
            "replicas": 2, "rollout": { "strategy": { "type": "OnDelete" } },
            "template": { "spec": { "infrastructureRef": { "kind": "MaasMachineTemplate", "name": "large" } } },
        },
        "status": { "observedGeneration": 1, "replicas": 2, "upToDateReplicas": 0 },
    }));
    stage.create(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet",
        "metadata": { "name": "md-1", "namespace": "default", "ownerReferences": [owner(&made)] }, "spec": {},
    }))
}

fn owner(object: &Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"], "controller": true,
    })
}

/// A VM of the MachineDeployment, created from this template.
async fn worker(stage: &Stage, name: &str, set: &Value, (template, cores): (&str, u32)) {
    stage.machine(name, json!({ "provisioningMode": "lxd", "minCPU": cores }));
    let labels = json!({ "cluster.x-k8s.io/cluster-name": "c1", "cluster.x-k8s.io/deployment-name": "md" });
    let patch = json!({
        "metadata": { "labels": labels, "ownerReferences": [owner(set)], "finalizers": ["machine.cluster.x-k8s.io"] },
    });
    stage.port.edit("Machine", &key(name), &patch).unwrap();
    let from = json!({ "cluster.x-k8s.io/cloned-from-name": template });
    let labels = json!({ "cluster.x-k8s.io/control-plane": null });
    let patch = json!({ "metadata": { "annotations": from, "labels": labels } });
    stage.port.edit("MaasMachine", &key(name), &patch).unwrap();
    stage.until_ready(&[name]).await;
    is_well(stage, name);
}

async fn passes(scene: &Scene) -> Vec<String> {
    for _ in 0..3 {
        scene.stage.advance(10);
        pass(&scene.context).await.unwrap();
    }
    leaving(scene)
}

#[tokio::test]
async fn s30_room_is_for_a_machine_of_the_template_that_replaces_a_machine_not_of_the_one_it_came_from() {
    let stage = Stage::bare();
    stage.host(1, 4, 16384);
    let scene = Scene::new(stage, 1).await;
    let set = deployment(&scene.stage);
    worker(&scene.stage, "md-a", &set, ("small", 2)).await;
    scene.stage.host(2, 4, 16384);
    worker(&scene.stage, "md-b", &set, ("small", 2)).await;
    assert_eq!(
        [scene.on("host1"), scene.on("host2")],
        [vec!["cp-0".to_owned(), "md-a".to_owned()], vec!["md-b".to_owned()]]
    );

    scene.tag("host1", &[TAG]);
    assert_eq!(passes(&scene).await, Vec::<String>::new());
    let (_, message) = scene.said();
    assert!(message.contains("no MaasMachine has been created from large yet"), "{message}");

    scene.stage.host(3, 4, 16384);
    scene.stage.port.edit("MachineDeployment", &key("md"), &json!({ "spec": { "replicas": 3 } })).unwrap();
    let status = json!({ "observedGeneration": 2, "replicas": 3, "upToDateReplicas": 1 });
    scene.stage.port.set_status("MachineDeployment", &key("md"), status).unwrap();
    worker(&scene.stage, "md-c", &set, ("large", 4)).await;
    assert_eq!(passes(&scene).await, Vec::<String>::new(), "{:?}", scene.said());
    assert!(scene.said().1.contains("4 cores"), "{:?}", scene.said());

    scene.stage.host(4, 4, 16384);
    assert_eq!(passes(&scene).await, ["md-a"]);
}
