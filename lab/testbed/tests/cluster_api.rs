//! The newest Cluster API managers run here with the permissions of their own manifests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cluster_api_checks;

use capmaas_testbed::{CapiVersion, KubernetesVersion};

#[tokio::test]
async fn the_managers_of_v1_14_become_ready_and_are_forbidden_nothing() {
    cluster_api_checks::managers_work(CapiVersion::V1_14, KubernetesVersion::V1_36).await;
}
