//! Hosts that a rollout replaces while VMs run on them and are placed.

use capmaas_manager::evacuation::pass;
use serde_json::json;

use crate::evacuation::{Scene, key};
use crate::neighbours::cluster_of;
use crate::stage::{BOB, Stage};

/// The Machine and the MaasMachine of a host.
fn host_machine(stage: &Stage, host: &str, up_to_date: bool) {
    let labels = json!({ "cluster.x-k8s.io/cluster-name": "c1", "kept": "" });
    let machine = stage.create(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": { "name": host, "namespace": "default", "labels": labels, "finalizers": ["kept"] },
        "spec": {
            "clusterName": "c1",
            "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MaasMachine", "name": host },
        },
    }));
    let conditions = json!([{ "type": "UpToDate", "status": if up_to_date { "True" } else { "False" } }]);
    let status = json!({ "nodeRef": { "name": host }, "conditions": conditions });
    stage.port.set_status("Machine", &key(host), status).unwrap();
    let owner = json!([{
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": host, "uid": machine["metadata"]["uid"],
    }]);
    stage.host_object(host, json!({ "labels": labels, "finalizers": ["kept"], "ownerReferences": owner }));
}

#[tokio::test]
async fn s30_a_manager_that_has_just_started_places_vms_on_hosts_that_stay() {
    let stage = Stage::new();
    host_machine(&stage, "host1", false);
    host_machine(&stage, "host2", true);
    stage.port.delete("Machine", &key("host2"));
    host_machine(&stage, "host3", true);
    for name in ["a", "b"] {
        stage.vm(name);
        stage.until_ready(&[name]).await;
        assert_eq!(stage.object(name)["status"]["lxdHost"], "host3", "{name}");
    }
}

#[tokio::test]
async fn s30_hosts_that_leave_have_vms_where_no_other_host_has_room() {
    let stage = Stage::bare();
    for number in 1..=2 {
        stage.host(number, 2, 16384);
    }
    host_machine(&stage, "host1", false);
    for (name, host) in [("a", "host2"), ("b", "host1")] {
        stage.vm(name);
        stage.until_ready(&[name]).await;
        assert_eq!(stage.object(name)["status"]["lxdHost"], host, "{name}");
    }
}

#[tokio::test]
async fn s30_an_identity_that_sees_fewer_machines_does_not_make_others_forget_which_hosts_leave() {
    let scene = Scene::new(Stage::new(), 1).await;
    let stage = &scene.stage;
    host_machine(stage, "host1", false);
    host_machine(stage, "host2", false);
    cluster_of(stage, "bob", BOB);
    stage.vm("theirs");
    let labels = json!({ "metadata": { "labels": { "cluster.x-k8s.io/cluster-name": "c2" } } });
    stage.port.edit("MaasMachine", &key("theirs"), &labels).unwrap();
    for _ in 0..3 {
        stage.advance(10);
        pass(&scene.context).await.unwrap();
        stage.pass("theirs").await;
    }
    stage.vm("ours");
    stage.until_ready(&["ours"]).await;
    assert_eq!(stage.object("ours")["status"]["lxdHost"], "host3");
}

#[tokio::test]
async fn s30_a_vm_waits_until_the_new_machine_of_a_rollout_is_a_host_and_is_replaced_once() {
    let mut scene = Scene::new(Stage::new(), 3).await;
    for host in ["host1", "host2", "host3"] {
        host_machine(&scene.stage, host, false);
    }
    new_machine(&scene.stage, "host4", "az4");
    scene.stage.port.delete("Machine", &key("host1"));
    scene.rounds(10).await;
    assert_eq!(scene.on("host1").len(), 1, "{:?}", scene.said());
    let (_, message) = scene.said();
    assert!(message.contains("waits until the Machine default/host4 is an LXD host"), "{message}");
    scene.stage.host(4, 8, 16384);
    scene.until_empty("host1").await;
    assert_eq!((scene.on("host4").len(), scene.made()), (1, 4));
    release(&mut scene, "host1");

    // The only host that stays has a machine of the control plane, and another one is coming.
    new_machine(&scene.stage, "host5", "az5");
    scene.stage.port.delete("Machine", &key("host2"));
    scene.rounds(10).await;
    assert_eq!((scene.on("host2").len(), scene.made()), (1, 4), "{:?}", scene.said());
    assert!(scene.said().1.contains("waits until the Machine default/host5 is an LXD host"), "{:?}", scene.said());
    scene.stage.host(5, 8, 16384);
    scene.until_empty("host2").await;
    let on = ["host3", "host4", "host5"].map(|host| scene.on(host).len());
    assert_eq!((on, scene.made()), ([1, 1, 1], 5), "one machine on each host");
}

/// A host that is empty is released and its objects are gone.
fn release(scene: &mut Scene, host: &str) {
    for kind in ["Machine", "MaasMachine"] {
        scene.stage.port.edit(kind, &key(host), &json!({ "metadata": { "finalizers": null } })).unwrap();
        scene.stage.port.delete(kind, &key(host));
    }
}

/// A machine of the rollout that is deployed and no LXD host yet.
fn new_machine(stage: &Stage, host: &str, zone: &str) {
    stage.arrange(json!([
        { "zone": { "name": zone } },
        { "machine": { "hostname": host, "status": "Deployed", "owner": "admin", "power": "on", "zone": zone } },
    ]));
    host_machine(stage, host, true);
}

#[tokio::test]
async fn s30_a_vm_goes_to_a_host_that_leaves_if_the_new_machine_of_the_rollout_is_deleted() {
    let mut scene = Scene::new(Stage::new(), 3).await;
    for host in ["host1", "host2", "host3"] {
        host_machine(&scene.stage, host, false);
    }
    new_machine(&scene.stage, "host4", "az4");
    scene.stage.port.delete("Machine", &key("host1"));
    scene.rounds(3).await;
    assert_eq!(scene.made(), 3);
    scene.stage.port.delete("Machine", &key("host4"));
    scene.until_empty("host1").await;
    assert_eq!(scene.made(), 4);
}
