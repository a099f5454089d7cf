//! The older Cluster API managers run here too, on the oldest and the newest Kubernetes version.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cluster_api_checks;

use capmaas_testbed::{CapiOptions, CapiVersion, KubernetesVersion, Testbed};

#[tokio::test]
async fn the_managers_of_v1_10_become_ready_and_are_forbidden_nothing() {
    cluster_api_checks::managers_work(CapiVersion::V1_10, KubernetesVersion::V1_36).await;
}

#[tokio::test]
async fn the_managers_of_v1_5_become_ready_and_are_forbidden_nothing() {
    cluster_api_checks::managers_work(CapiVersion::V1_5, KubernetesVersion::V1_36).await;
}

#[tokio::test]
async fn the_older_managers_work_on_the_oldest_kubernetes() {
    for version in [CapiVersion::V1_10, CapiVersion::V1_5] {
        cluster_api_checks::managers_work(version, KubernetesVersion::V1_29).await;
    }
}

#[tokio::test]
async fn an_upgrade_takes_stored_objects_along() {
    let mut testbed = Testbed::builder().cluster_api(Some(CapiVersion::V1_10)).start().await.unwrap();
    testbed.apply_yaml(include_str!("manifests/cluster.yaml")).await.unwrap();
    testbed.start_cluster_api(&CapiOptions::new(CapiVersion::V1_14)).await.unwrap();
    // Stored in the old version, so the new manager's webhook has to convert it.
    let name = testbed
        .kubectl([
            "get",
            "clusters.v1beta2.cluster.x-k8s.io",
            "first",
            "-o",
            "jsonpath={.spec.infrastructureRef.apiGroup}",
        ])
        .await
        .unwrap();
    assert_eq!(name, "infrastructure.cluster.x-k8s.io");
    testbed.check().unwrap();
    testbed.stop().await;
}

#[tokio::test]
async fn cluster_classes_can_be_turned_on_in_every_version() {
    for version in CapiVersion::ALL {
        let options = CapiOptions { features: &["ClusterTopology"], ..CapiOptions::new(version) };
        let testbed = Testbed::builder().cluster_api_options(options).start().await.unwrap();
        testbed.apply_yaml(include_str!("manifests/cluster-class.yaml")).await.unwrap();
        testbed.stop().await;
    }
}
