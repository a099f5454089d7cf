//! The real clusterctl installs from local files, and the managers then run on what it installed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use capmaas_testbed::{CapiOptions, CapiProvider, CapiVersion, Clusterctl, InfrastructureProvider, Testbed};

const COMPONENTS: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: capmaas-system, labels: {cluster.x-k8s.io/provider: infrastructure-maas}}
";
const METADATA: &str = "
apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3
kind: Metadata
releaseSeries: [{major: 0, minor: 1, contract: v1beta1}]
";

#[tokio::test]
async fn clusterctl_installs_offline_and_the_managers_take_over() {
    let mut testbed = Testbed::builder().controller_manager(true).start().await.unwrap();
    let provider = InfrastructureProvider {
        version: "v0.1.0".into(),
        components: COMPONENTS.into(),
        metadata: METADATA.into(),
        templates: Vec::new(),
    };
    let clusterctl = Clusterctl::prepare(&testbed, &provider).await.unwrap();
    clusterctl.run(["init", "--infrastructure", "maas"]).await.unwrap();
    let inventory = testbed.kubectl(["get", "providers", "-A", "-o", "name"]).await.unwrap();
    for name in ["cluster-api", "bootstrap-kubeadm", "control-plane-kubeadm", "infrastructure-maas"] {
        assert!(inventory.contains(name), "{inventory}");
    }
    let options = CapiOptions { providers: vec![CapiProvider::Core], ..CapiOptions::new(CapiVersion::V1_14) };
    testbed.start_cluster_api(&options).await.unwrap();
    testbed.apply_yaml(include_str!("manifests/cluster.yaml")).await.unwrap();
    let refused = clusterctl.run(["init", "--infrastructure", "nobody"]).await.unwrap_err().to_string();
    assert!(refused.contains("nobody"), "{refused}");
    testbed.stop().await;
}
