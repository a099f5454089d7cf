//! The manager runs from the manifests that we ship: its Deployment, its flags and probes, and the rights of its
//! ServiceAccount, nothing more.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use capmaas_e2e::{Objects, install, manager_player, refusal};
use capmaas_testbed::{CapiVersion, Testbed};
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use serde_json::json;

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

#[tokio::test]
async fn the_shipped_deployment_keeps_paused_true_with_the_shipped_rights() {
    let testbed = Testbed::builder().cluster_api(Some(CapiVersion::V1_14)).start().await.unwrap();
    install(&testbed).await.unwrap();
    let player = manager_player(&testbed).await.unwrap();

    let clusters = Objects::of(&testbed, "cluster.x-k8s.io", "v1beta2", "Cluster").unwrap();
    let maas_clusters = Objects::of(&testbed, INFRASTRUCTURE, "v1beta1", "MaasCluster").unwrap();
    let maas_machines = Objects::of(&testbed, INFRASTRUCTURE, "v1beta1", "MaasMachine").unwrap();
    let reference = json!({ "apiGroup": INFRASTRUCTURE, "kind": "MaasCluster", "name": "c1" });
    maas_clusters.apply("c1", json!({ "spec": { "dnsDomain": "maas" } })).await.unwrap();
    clusters.apply("c1", json!({ "spec": { "infrastructureRef": reference } })).await.unwrap();
    let machine = json!({
        "metadata": { "labels": { "cluster.x-k8s.io/cluster-name": "c1" } },
        "spec": { "image": "ubuntu/jammy", "minCPU": 2, "minMemory": 4096 },
    });
    maas_machines.apply("m1", machine).await.unwrap();
    // Before Cluster API has adopted it, a MaasCluster belongs to no Cluster.
    maas_clusters.wait("c1", "/metadata/ownerReferences/0/kind", json!("Cluster")).await.unwrap();
    maas_clusters.wait_for_condition("c1", "Paused", "False").await.unwrap();
    maas_machines.wait_for_condition("m1", "Paused", "False").await.unwrap();

    // The Cluster pauses everything that belongs to it; an annotation pauses one object.
    clusters.merge("c1", json!({ "spec": { "paused": true } })).await.unwrap();
    maas_clusters.wait_for_condition("c1", "Paused", "True").await.unwrap();
    maas_machines.wait_for_condition("m1", "Paused", "True").await.unwrap();
    clusters.merge("c1", json!({ "spec": { "paused": false } })).await.unwrap();
    maas_machines.wait_for_condition("m1", "Paused", "False").await.unwrap();
    let annotation = json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": "" } } });
    maas_machines.merge("m1", annotation).await.unwrap();
    maas_machines.wait_for_condition("m1", "Paused", "True").await.unwrap();

    // Nothing is written when nothing changes.
    let before = maas_machines.get("m1").await.unwrap()["metadata"]["resourceVersion"].clone();
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(maas_machines.get("m1").await.unwrap()["metadata"]["resourceVersion"], before);

    // What the ServiceAccount may not do, it cannot do.
    let client = testbed.service_account_client("capmaas-system", "capmaas-manager").await.unwrap();
    let secrets = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"));
    let secrets: Api<DynamicObject> = Api::namespaced_with(client, "default", &secrets);
    let sentence = refusal(secrets.list(&ListParams::default()).await.map_err(Into::into)).unwrap();
    assert!(sentence.contains("secrets is forbidden"), "{sentence}");

    // It stops when it is told to, within its grace period.
    testbed
        .kubectl(["scale", "-n", "capmaas-system", "deployment/capmaas-controller-manager", "--replicas=0"])
        .await
        .unwrap();
    let gone = [
        "wait",
        "-n",
        "capmaas-system",
        "--for=delete",
        "pod",
        "-l",
        "control-plane=controller-manager",
        "--timeout=60s",
    ];
    testbed.kubectl(gone).await.unwrap();

    player.stop().await;
    testbed.stop().await;
}
