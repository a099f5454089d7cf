//! The shipped manifest on a real API server with the real DaemonSet controller: the commands of the documentation in
//! order, and the real program under its own ServiceAccount.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use capmaas_testbed::KubernetesVersion;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use lxd_initializer::{manifest, names};
use serde_json::json;
use support::{
    daemon_set::scene,
    sim::{CANARY, Maas, key},
};

#[tokio::test]
async fn the_commands_of_the_documents_make_a_node_a_vm_host() {
    let scene = scene(KubernetesVersion::V1_36).await;
    let maas = Maas::start("3.4", &scene.lxd).await;

    scene.apply_manifest().await;
    let policy = scene.folder.path().join("policy.yaml");
    std::fs::write(&policy, manifest::NODE_PATCH_POLICY).unwrap();
    scene.testbed.kubectl(["apply", "-f", policy.to_str().unwrap()]).await.unwrap();
    scene.until_logged("n1", "waiting for Secret capmaas-system/maas-credentials and ConfigMap").await;
    scene.until_logged("n2", "there is no LXD on this node").await;

    let key = format!("--from-literal=apiKey={}", key());
    let endpoint = format!("--from-literal=maasEndpoint={}", maas.endpoint);
    let secret = ["create", "secret", "generic", "maas-credentials", "--namespace", "capmaas-system", &key];
    scene.testbed.kubectl(secret).await.unwrap();
    let map = ["create", "configmap", "capmaas-config", "--namespace", "capmaas-system", &endpoint];
    scene.testbed.kubectl(map).await.unwrap();

    scene.until_ready("n1").await;
    let node = scene.node("n1").await;
    assert_eq!(node.labels().get(names::LABEL_INITIALIZED).map(String::as_str), Some("true"));
    assert_eq!(node.annotations()[names::STATE], "Ready");
    assert_eq!(node.annotations()[names::ADDRESS], scene.lxd.address());
    assert_eq!(maas.only_host().host.as_deref(), Some("abc123"));
    let other = scene.node("n2").await;
    assert_eq!(other.labels().get(names::LABEL_INITIALIZED), None);
    assert_eq!(other.annotations()[names::STATE], "Waiting");

    // What the agent's ServiceAccount may not do, despite its permissions on Nodes.
    let agent = scene.testbed.service_account_client("capmaas-system", "lxd-initializer").await.unwrap();
    let nodes: Api<Node> = Api::all(agent.clone());
    let patch = json!({"metadata": {"labels": {names::LABEL_INITIALIZED: "true"}}});
    let refused = nodes.patch("n2", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap_err();
    assert!(refused.to_string().contains("may change only the Node that it runs on"), "{refused}");
    assert!(nodes.list(&ListParams::default()).await.is_err(), "nor list them");
    let pods: Api<Pod> = Api::namespaced(agent, "capmaas-system");
    assert!(pods.list(&ListParams::default()).await.is_err());

    // SIGTERM ends it gracefully, and nothing that it wrote contains a secret.
    let pod = scene.pod("n1").await.unwrap().name_any();
    scene.testbed.kubectl(["delete", "pod", &pod, "--namespace", "capmaas-system"]).await.unwrap();
    let log = scene.player.logs("capmaas-system", &pod);
    assert!(log.contains("SIGTERM: stopping") && log.contains("stopped"), "{log}");
    scene.until_ready("n1").await;
    let told = format!("{log}{}{}{node:?}", scene.log("n1").await, scene.log("n2").await);
    assert!(!told.contains(CANARY) && !told.contains("PRIVATE KEY"));
    assert_eq!(maas.sim.control().effective("vm-hosts.create"), 1, "one registration, also after the restart");
    maas.only_host();
    scene.player.stop().await;
    scene.testbed.stop().await;
}
