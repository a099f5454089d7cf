//! Cluster API versions that only implement the old contract can also create and delete a metal cluster.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::maas::ZONES;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::json;

async fn one_cluster_runs_and_goes(core: CapiVersion) {
    let scene = Scene::start(core).await.unwrap();
    let plan = ClusterPlan {
        workers: 1,
        version: "v1.28.0".into(),
        infrastructure: json!({"failureDomains": ZONES}),
        machine: json!({"image": "custom/k8s-v1.35.8"}),
        ..ClusterPlan::new(core, "c1")
    };
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    // These cores read a map.
    let domains = scene.objects(&plan, "Cluster").unwrap().get("c1").await.unwrap()["status"]["failureDomains"].clone();
    assert_eq!(domains["az2"]["controlPlane"], json!(true), "{domains}");
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}

#[tokio::test]
async fn cluster_api_v1_10_10_brings_a_metal_cluster_up_and_down() {
    one_cluster_runs_and_goes(CapiVersion::V1_10).await;
}

#[tokio::test]
async fn cluster_api_v1_5_0_brings_a_metal_cluster_up_and_down() {
    one_cluster_runs_and_goes(CapiVersion::V1_5).await;
}
