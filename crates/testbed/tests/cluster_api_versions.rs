//! The older Cluster API managers run here too, on both ends of the Kubernetes versions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cluster_api_checks;

use capmaas_testbed::{CapiVersion, KubernetesVersion};

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
