//! Hosts with VMs of two clusters that use one MAAS with different identities.

use std::sync::Arc;

use async_trait::async_trait;
use capmaas_api::capi::Machine;
use capmaas_manager::evacuation::pass;
use capmaas_manager::kubernetes::{Guard, Key, MemoryKubernetes, Owners, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use crate::evacuation::{Scene, TAG, control_plane, is_well, key, member};
use crate::stage::{ELSEWHERE, Stage};

/// A second cluster, with its own identity for the same MAAS. Returns its control plane of three, without machines.
fn empty_neighbour(stage: &Stage) -> Value {
    const CAROL: &str = "cc:tc:CANARYcarol";
    stage.arrange(json!([{ "user": { "name": "carol", "admin": true, "key": CAROL } }]));
    cluster_of(stage, "carol", CAROL);
    control_plane(stage, "dp", 3)
}

/// The cluster `c2` of a user of the same MAAS.
pub(crate) fn cluster_of(stage: &Stage, user: &str, api_key: &str) {
    let data = json!({ "apiKey": api_key, "maasEndpoint": "http://maas.test:5240/MAAS" });
    let metadata = json!({ "name": user, "namespace": "default" });
    stage.create(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data }));
    for kind in ["Cluster", "MaasCluster"] {
        let mut like = stage.port.object(kind, &key("c1")).unwrap();
        like["metadata"] = json!({
            "name": "c2", "namespace": "default", "labels": { "cluster.x-k8s.io/cluster-name": "c2" },
            "annotations": like["metadata"]["annotations"], "ownerReferences": like["metadata"]["ownerReferences"],
        });
        if kind == "Cluster" {
            like["spec"]["infrastructureRef"]["name"] = json!("c2");
        } else {
            let made = stage.port.object("Cluster", &key("c2")).unwrap();
            like["metadata"]["ownerReferences"][0]["name"] = json!("c2");
            like["metadata"]["ownerReferences"][0]["uid"] = made["metadata"]["uid"].clone();
            like["spec"]["identityRef"] = json!({ "name": user });
        }
        stage.create(like);
    }
    let status = json!({ "initialization": { "infrastructureProvisioned": true } });
    stage.port.set_status("Cluster", &key("c2"), status).unwrap();
}

/// The same with its machines, `dp-0` to `dp-2`.
pub(crate) async fn neighbour(stage: &Stage) {
    let owner = empty_neighbour(stage);
    for name in ["dp-0", "dp-1", "dp-2"] {
        member(stage, name, "c2", &owner);
        stage.until_ready(&[name]).await;
        is_well(stage, name);
    }
}

/// An API server that is slow to delete.
#[derive(Debug)]
struct Slow(MemoryKubernetes);

#[async_trait]
impl Owners for Slow {
    async fn machines(&self, cluster: &Key) -> Result<Vec<Machine>> {
        self.0.machines(cluster).await
    }

    async fn owner(&self, namespace: &str, owner: &OwnerReference) -> Result<Option<Value>> {
        self.0.owner(namespace, owner).await
    }

    async fn delete_machine(&self, key: &Key, uid: &str, guard: &Guard) -> Result<()> {
        for _ in 0..2_000 {
            tokio::task::yield_now().await;
        }
        self.0.delete_machine(key, uid, guard).await
    }
}

/// Names of the Machines that are being deleted.
pub(crate) fn leaving(scene: &Scene) -> Vec<String> {
    let machines = scene.machines();
    let leaving = machines.iter().filter(|it| !it["metadata"]["deletionTimestamp"].is_null());
    leaving.map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// A host to be evacuated with one VM of each cluster on it, and room for one elsewhere.
async fn one_room_for_two() -> Scene {
    let stage = Stage::bare();
    for number in 1..=3 {
        stage.host(number, 4, 16384);
    }
    let scene = Scene::new(stage, 3).await;
    neighbour(&scene.stage).await;
    assert_eq!(["host1", "host2", "host3"].map(|host| scene.on(host).len()), [2, 2, 2]);
    scene.stage.host(4, 2, 16384);
    scene.tag("host1", &[TAG]);
    scene.stage.advance(10);
    scene
}

#[tokio::test]
async fn s30_two_identities_of_one_maas_do_not_give_the_same_room_to_two() {
    let mut scene = one_room_for_two().await;
    scene.context.owners = Arc::new(Slow(scene.stage.port.clone()));
    for _ in 0..3 {
        pass(&scene.context).await.unwrap();
        assert_eq!(leaving(&scene).len(), 1, "{:?}", leaving(&scene));
        scene.stage.advance(5);
    }
}

#[tokio::test]
async fn s30_room_is_kept_for_a_machine_that_is_gone_and_not_made_anew_yet() {
    let scene = one_is_gone().await;
    for _ in 0..3 {
        pass(&scene.context).await.unwrap();
        assert_eq!(leaving(&scene), Vec::<String>::new());
        scene.stage.advance(5);
    }
}

/// The same, after the Machine of the first cluster is gone and before its control plane creates another one.
async fn one_is_gone() -> Scene {
    let scene = one_room_for_two().await;
    pass(&scene.context).await.unwrap();
    let first = leaving(&scene).remove(0);
    scene.stage.until_gone(&[&first]).await;
    scene.stage.port.edit("Machine", &key(&first), &json!({ "metadata": { "finalizers": null } })).unwrap();
    assert_eq!(scene.machines().len(), 5);
    scene
}

#[tokio::test]
async fn s30_room_is_kept_for_a_machine_that_is_gone_and_alone_depends_on_a_project() {
    let scene = one_is_gone().await;
    for name in ["cp-0", "cp-1", "cp-2"].map(key) {
        if scene.stage.port.object("MaasMachine", &name).is_some() {
            let project = json!({ "spec": { "lxdConfig": { "project": "maas" } } });
            scene.stage.port.edit("MaasMachine", &name, &project).unwrap();
        }
    }
    for _ in 0..3 {
        pass(&scene.context).await.unwrap();
        assert_eq!(leaving(&scene), Vec::<String>::new());
        scene.stage.advance(5);
    }
}

#[tokio::test]
async fn s30_no_room_is_kept_for_machines_of_a_control_plane_that_is_being_deleted() {
    let scene = one_is_gone().await;
    let kept = json!({ "metadata": { "finalizers": ["kept"] } });
    scene.stage.port.edit("KubeadmControlPlane", &key("cp"), &kept).unwrap();
    scene.stage.port.delete("KubeadmControlPlane", &key("cp"));
    pass(&scene.context).await.unwrap();
    let second = leaving(&scene);
    assert!(second.len() == 1 && second[0].starts_with("dp-"), "{second:?}");
}

#[tokio::test]
async fn s01_a_vm_that_waits_for_what_is_not_known_about_another_cluster_names_that_cluster() {
    let scene = one_room_for_two().await;
    let odd = json!({ "failureDomains": "odd" });
    scene.stage.port.set_status("Cluster", &key("c2"), odd).unwrap();
    pass(&scene.context).await.unwrap();
    assert_eq!(leaving(&scene), Vec::<String>::new());
    let (_, message) = scene.said();
    assert!(message.contains("this is not known: how much room the cluster default/c2 still needs"), "{message}");
    assert!(!message.contains("no room"), "{message}");
}

#[tokio::test]
async fn s31_maintenance_ends_for_the_vms_although_the_cluster_of_the_host_is_paused() {
    let mut scene = Scene::new(Stage::new(), 3).await;
    neighbour(&scene.stage).await;
    let labels = json!({ "cluster.x-k8s.io/cluster-name": "c2", "kept": "" });
    scene.stage.host_object("host1", json!({ "labels": labels, "finalizers": ["kept"] }));
    scene.annotate("host1", Some("new fans"));
    for _ in 0..2 {
        pass(&scene.context).await.unwrap();
        scene.stage.advance(5);
    }
    assert_eq!((scene.tags_of("host1"), leaving(&scene).len()), (vec![TAG.to_owned()], 0));
    scene.stage.port.edit("Cluster", &key("c2"), &json!({ "spec": { "paused": true } })).unwrap();
    scene.annotate("host1", None);
    for _ in 0..3 {
        pass(&scene.context).await.unwrap();
        scene.stage.advance(10);
        assert_eq!(leaving(&scene), Vec::<String>::new());
    }
    assert_eq!(scene.tags_of("host1"), [TAG], "it stays until the cluster is not paused any more");
    scene.stage.port.edit("Cluster", &key("c2"), &json!({ "spec": { "paused": false } })).unwrap();
    scene.rounds(3).await;
    assert_eq!(scene.tags_of("host1"), Vec::<String>::new());
}

#[tokio::test]
async fn s30_room_is_kept_for_a_machine_that_has_lost_its_vm_and_is_not_gone_yet() {
    let scene = one_room_for_two().await;
    pass(&scene.context).await.unwrap();
    let first = leaving(&scene).remove(0);
    scene.stage.until_gone(&[&first]).await;
    assert_eq!(scene.machines().len(), 6, "Cluster API still holds it");
    for _ in 0..3 {
        pass(&scene.context).await.unwrap();
        assert_eq!(leaving(&scene), [first.as_str()]);
        scene.stage.advance(5);
    }
}

#[tokio::test]
async fn s31_what_a_host_says_ends_with_its_maintenance_though_its_own_cluster_has_no_vms() {
    const CAROL: &str = "cc:tc:CANARYcarol";
    let mut scene = Scene::new(Stage::new(), 3).await;
    scene.stage.arrange(json!([{ "user": { "name": "carol", "admin": true, "key": CAROL } }]));
    cluster_of(&scene.stage, "carol", CAROL);
    let labels = json!({ "cluster.x-k8s.io/cluster-name": "c2", "kept": "" });
    scene.stage.host_object("host1", json!({ "labels": labels, "finalizers": ["kept"] }));
    scene.tag("host1", &[TAG]);
    scene.until_empty("host1").await;
    scene.rounds(2).await;
    assert_eq!(scene.stage.reason("host1", "Evacuating"), "Evacuated");
    scene.tag("host1", &[]);
    scene.rounds(3).await;
    assert_eq!(scene.stage.reason("host1", "Evacuating"), "NotEvacuating");
}

#[tokio::test]
async fn s30_a_machine_that_has_to_wait_for_a_tag_on_another_host_is_not_said_to_be_replaced() {
    let scene = Scene::new(Stage::new(), 3).await;
    scene.stage.host_object(
        "host2",
        json!({
            "labels": { "cluster.x-k8s.io/cluster-name": "c1", "kept": "" }, "finalizers": ["kept"],
            "annotations": { "infrastructure.cluster.x-k8s.io/lxd-host-maintenance": "new fans" },
        }),
    );
    scene.tag("host1", &[TAG]);
    scene.stage.advance(10);
    pass(&scene.context).await.unwrap();
    assert_eq!(leaving(&scene), Vec::<String>::new());
    let (_, message) = scene.said();
    assert!(message.contains("is replaced soon") && !message.contains("is being replaced"), "{message}");
}

#[tokio::test]
async fn s30_room_is_kept_for_a_cluster_none_of_whose_vms_has_a_place_yet() {
    let stage = Stage::bare();
    for number in 1..=3 {
        stage.host(number, 2, 16384);
    }
    let scene = Scene::new(stage, 3).await;
    let owner = empty_neighbour(&scene.stage);
    member(&scene.stage, "dp-0", "c2", &owner);
    for _ in 0..3 {
        scene.stage.pass("dp-0").await;
        scene.stage.advance(5);
    }
    assert!(scene.stage.object("dp-0")["status"]["lxdHost"].is_null(), "all hosts are full");
    scene.stage.host(4, 2, 16384);
    scene.tag("host1", &[TAG]);
    for _ in 0..3 {
        pass(&scene.context).await.unwrap();
        assert_eq!(leaving(&scene), Vec::<String>::new());
        scene.stage.advance(5);
    }
}

#[tokio::test]
async fn s05_a_machine_is_not_deleted_through_the_identity_of_another_cluster() {
    let mut scene = Scene::new(Stage::new(), 3).await;
    neighbour(&scene.stage).await;
    scene.tag("host1", &[TAG]);
    // No Machine of the first cluster can be replaced until somebody fixes its credentials.
    scene.stage.use_endpoint(ELSEWHERE);
    scene.restart();
    for _ in 0..4 {
        pass(&scene.context).await.unwrap();
        scene.stage.advance(5);
    }
    let gone = leaving(&scene);
    assert!(gone.len() == 1 && gone[0].starts_with("dp-"), "{gone:?}");
}
