//! Machines that cannot be deleted, and replacements that would come where there is no room.

use std::sync::Arc;

use async_trait::async_trait;
use capmaas_api::capi::Machine;
use capmaas_manager::evacuation::pass;
use capmaas_manager::kubernetes::{Error, ErrorKind, Guard, Key, MemoryKubernetes, Owners, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use crate::evacuation::{Scene, TAG, key};
use crate::neighbours::{leaving, neighbour};
use crate::stage::Stage;

/// An API server that does not delete some Machines.
#[derive(Debug)]
struct Picky {
    port: MemoryKubernetes,
    /// How their names begin.
    names: &'static str,
    answer: (ErrorKind, &'static str),
}

#[async_trait]
impl Owners for Picky {
    async fn machines(&self, cluster: &Key) -> Result<Vec<Machine>> {
        self.port.machines(cluster).await
    }

    async fn owner(&self, namespace: &str, owner: &OwnerReference) -> Result<Option<Value>> {
        self.port.owner(namespace, owner).await
    }

    async fn delete_machine(&self, key: &Key, uid: &str, guard: &Guard) -> Result<()> {
        if key.name.starts_with(self.names) {
            return Err(Error::new(self.answer.0, format!("delete the Machine {key}"), self.answer.1));
        }
        self.port.delete_machine(key, uid, guard).await
    }
}

/// A host with a VM of each of two clusters is evacuated. What the cluster reports whose Machines are not deleted.
async fn refused(answer: (ErrorKind, &'static str)) -> String {
    let mut scene = Scene::new(Stage::new(), 3).await;
    neighbour(&scene.stage).await;
    let port = scene.stage.port.clone();
    scene.context.owners = Arc::new(Picky { port, names: "cp-", answer });
    scene.tag("host1", &[TAG]);
    scene.stage.advance(10);
    for _ in 0..4 {
        pass(&scene.context).await.unwrap();
        scene.stage.advance(1);
    }
    let gone = leaving(&scene);
    assert!(gone.len() == 1 && gone[0].starts_with("dp-"), "the other cluster goes on: {gone:?}");
    scene.said().1
}

#[tokio::test]
async fn s30_a_machine_that_a_webhook_protects_does_not_stop_the_evacuation_of_others() {
    let why = "admission webhook \"freeze.example.com\" denied the request: frozen until Monday";
    for kind in [ErrorKind::Denied, ErrorKind::Refused, ErrorKind::Unavailable, ErrorKind::Conflict] {
        let said = refused((kind, why)).await;
        assert!(said.contains("frozen until Monday") && !said.contains("ClusterRole"), "{said}");
    }
}

#[tokio::test]
async fn s30_only_a_missing_right_is_blamed_on_the_cluster_role() {
    let why = "machines.cluster.x-k8s.io \"cp-0\" is forbidden: User \"system:serviceaccount:capmaas-system:manager\" \
               cannot delete resource \"machines\" in API group \"cluster.x-k8s.io\" in the namespace \"default\"";
    let said = refused((ErrorKind::Denied, why)).await;
    assert!(said.contains("may not delete the Machine default/cp-") && said.contains("ClusterRole"), "{said}");
}

#[tokio::test]
async fn s30_room_must_be_in_the_zone_that_the_control_plane_chooses_next() {
    let stage = Stage::new();
    stage.host_in(4, "az1", (8, 16384));
    let scene = Scene::new(stage, 3).await;
    let from = if scene.on("host1").is_empty() { "host4" } else { "host1" };
    for machine in scene.machines() {
        let patch = json!({ "spec": { "failureDomain": "az1" } });
        scene.stage.port.edit("Machine", &key(machine["metadata"]["name"].as_str().unwrap()), &patch).unwrap();
    }
    let publish = |zones: &[&str]| {
        let mut status = scene.stage.port.object("Cluster", &key("c1")).unwrap()["status"].clone();
        let named = zones.iter().map(|zone| json!({ "name": zone, "controlPlane": true }));
        status["failureDomains"] = named.collect();
        scene.stage.port.set_status("Cluster", &key("c1"), status).unwrap();
    };
    publish(&["az1", "az9"]);
    scene.tag(from, &[TAG]);
    scene.stage.advance(10);
    for _ in 0..3 {
        pass(&scene.context).await.unwrap();
        assert_eq!(leaving(&scene), Vec::<String>::new(), "the next one would come to az9");
        scene.stage.advance(5);
    }
    assert!(scene.said().1.contains("no room"), "{:?}", scene.said());
    publish(&["az1"]);
    pass(&scene.context).await.unwrap();
    assert_eq!(leaving(&scene).len(), 1);
}

#[tokio::test]
async fn s31_a_tag_on_the_machine_of_a_host_is_seen_right_before_a_vm_is_created() {
    let stage = Stage::new();
    stage.vm("m");
    let place = |stage: &Stage| stage.record("m")["vm"]["place"]["hostName"].as_str().map(str::to_owned);
    stage.until(&["m"], "a place", |stage| place(stage).is_some()).await;
    let host = place(&stage).unwrap();
    assert!(stage.in_lxd().is_empty(), "chosen, and not created yet");
    stage.arrange(json!([{ "machine": { "hostname": host, "tags": [TAG] } }]));
    stage.until_ready(&["m"]).await;
    assert_ne!(stage.object("m")["status"]["lxdHost"], json!(host));
}
