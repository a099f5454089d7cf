//! What holds for every version of Cluster API.

use std::time::{Duration, Instant};

use capmaas_testbed::{CapiProvider, CapiVersion, KubernetesVersion, Testbed};

/// Starts all managers of a version, has them reconcile a Cluster and checks their logs.
pub(crate) async fn managers_work(version: CapiVersion, kubernetes: KubernetesVersion) {
    let testbed = Testbed::builder().kubernetes(kubernetes).cluster_api(Some(version)).start().await.unwrap();
    testbed.apply_yaml(include_str!("../manifests/cluster.yaml")).await.unwrap();
    // Core's webhook defaults the Cluster and its controller adds a finalizer: both work with the API server.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let finalizers = testbed
            .kubectl(["get", "clusters.cluster.x-k8s.io", "first", "-o", "jsonpath={.metadata.finalizers}"])
            .await
            .unwrap();
        if finalizers.contains("cluster.cluster.x-k8s.io") {
            break;
        }
        assert!(Instant::now() < deadline, "core did not touch the Cluster; its log:\n{}", testbed.log("core"));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for provider in CapiProvider::ALL {
        let log = testbed.log(provider.as_str());
        let forbidden: Vec<&str> = log.lines().filter(|line| line.contains("forbidden")).collect();
        assert!(forbidden.is_empty(), "{} {version} lacks rights: {forbidden:#?}", provider.as_str());
    }
    testbed.stop().await;
}
