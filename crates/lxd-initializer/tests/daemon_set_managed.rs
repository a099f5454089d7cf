//! The shipped manifest in managed mode, on the oldest Kubernetes, which serves no admission policies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use capmaas_testbed::KubernetesVersion;
use kube::ResourceExt;
use lxd_initializer::names;
use support::daemon_set::scene;

#[tokio::test]
async fn a_certificate_from_the_manager_makes_a_node_a_host_and_leaving_stops_it() {
    let scene = scene(KubernetesVersion::V1_29).await;
    scene.apply_manifest().await;
    scene
        .until_logged("n1", "or for the manager's certificate in ConfigMap capmaas-system/lxd-initializer-trust")
        .await;

    let pair = rcgen::generate_simple_self_signed(["manager".to_owned()]).unwrap();
    let file = scene.folder.path().join("n1.crt");
    std::fs::write(&file, pair.cert.pem()).unwrap();
    let from = format!("--from-file=n1.crt={}", file.display());
    let map = ["create", "configmap", names::TRUST_CONFIG_MAP, "--namespace", "capmaas-system", &from];
    scene.testbed.kubectl(map).await.unwrap();
    scene.until_ready("n1").await;

    let node = scene.node("n1").await;
    let server = scene.lxd.client().server().await.unwrap();
    assert_eq!(node.labels()[names::LABEL_INITIALIZED], "true");
    let said = node.annotations();
    assert_eq!((said[names::STATE].as_str(), said[names::MODE].as_str()), ("Ready", "managed"));
    assert_eq!(said[names::FINGERPRINT], server.environment.certificate_fingerprint);
    assert_eq!((said[names::INSTANCES].as_str(), said[names::ADDRESS].as_str()), ("[]", scene.lxd.address().as_str()));

    let leave = format!("{}=true", names::LEAVE);
    scene.testbed.kubectl(["annotate", "node", "n1", &leave]).await.unwrap();
    scene.until_logged("n1", "asks the agent to leave").await;
    scene.player.stop().await;
    scene.testbed.stop().await;
}
