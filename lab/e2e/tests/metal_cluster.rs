//! The main use case on real components: a metal cluster comes up through Cluster API, our manager from its manifests
//! and MAAS, and is deleted without leaving anything.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use serde_json::json;

#[tokio::test]
async fn a_metal_cluster_with_a_worker_runs_and_leaves_nothing_behind() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    let worker = json!({"nodeLabels": {"topology.kubernetes.io/region": "north", "example.com/rack": "r7"}});
    let plan = ClusterPlan { workers: 1, worker: Some(worker), ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();

    let nodes: Api<Node> = Api::all(scene.maas.workload(expected.port).await.unwrap());
    let asked = ListParams::default().labels("topology.kubernetes.io/region=north,example.com/rack=r7");
    assert_eq!(nodes.list(&asked).await.unwrap().items.len(), 1, "the worker's labels, on the worker alone");

    // Each machine was allocated once and deployed once, and the name resolves to the control plane.
    assert_eq!((scene.maas.effective("allocate"), scene.maas.effective("deploy")), (2, 2));
    let control_plane = scene.control_plane_addresses(&plan).await.unwrap();
    let records = scene.maas.records();
    assert_eq!(records.values().collect::<Vec<_>>(), [&control_plane], "{records:?}");

    scene.delete(&plan).await.unwrap();
    assert_eq!(scene.maas.effective("allocate"), 2);
    assert_eq!(scene.secrets_seen().await.unwrap(), Vec::<String>::new());
    scene.stop().await;
}
