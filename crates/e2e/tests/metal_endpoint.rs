//! Where a cluster's API server is reached: an endpoint that the user brings, and addresses of the subnets that they prefer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::IpAddr;

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::json;

#[tokio::test]
async fn an_endpoint_that_the_user_brings_is_taken_and_no_record_is_made() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    let expected = scene.expect_cluster().await.unwrap();
    // A load balancer of the user leads to the control plane: here a name that is none of ours.
    let host = "lb.somewhere.example";
    let plan = ClusterPlan {
        infrastructure: json!({"controlPlaneEndpoint": {"host": host, "port": expected.port}}),
        ..ClusterPlan::new(scene.core, "c1")
    };
    scene.maas.arrange(json!([{"domain": {"name": "somewhere.example"}}])).unwrap();
    scene.testbed.apply_objects(plan.objects(&expected)).await.unwrap();
    let address = scene.first_address().await.unwrap();
    scene.maas.arrange(json!([{"dns": {"fqdn": host, "ip_addresses": [address]}}])).unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let cluster = scene.objects(&plan, "Cluster").unwrap().get("c1").await.unwrap();
    assert_eq!(cluster["spec"]["controlPlaneEndpoint"], json!({"host": host, "port": expected.port}));
    let records: Vec<String> = scene.maas.records().into_keys().collect();
    assert_eq!(records, [host]);
    scene.objects(&plan, "Cluster").unwrap().delete("c1").await.unwrap();
    scene.wait_gone(&plan).await.unwrap();
    assert!(scene.maas.records().contains_key(host), "the user's record was deleted");
    scene.stop().await;
}

#[tokio::test]
async fn only_addresses_of_preferred_subnets_are_published() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    // Every machine has a second network, which is the one that users reach.
    let network = 50 + rand::random_range(0..40u8);
    let cidr = format!("127.{network}.0.0/16");
    let mut statements = vec![json!({"subnet": {"cidr": cidr}})];
    for (index, machine) in scene.maas.machines().iter().enumerate() {
        let link = json!({"mode": "static", "subnet": cidr, "ip_address": format!("127.{network}.0.{}", index + 10)});
        statements.push(json!({"interface": {"machine": machine.system_id, "name": "eth1", "links": [link]}}));
    }
    scene.maas.arrange(json!(statements)).unwrap();
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "maas-preferred-subnet", "namespace": "default"},
        "data": {"preferredSubnets": format!("203.0.113.0/24,{cidr}")},
    });
    scene.testbed.apply_objects(vec![config_map]).await.unwrap();
    let plan = ClusterPlan::new(scene.core, "c1");
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let published: Vec<IpAddr> = scene.maas.records().into_values().flatten().collect();
    assert_eq!(published.len(), 1, "{published:?}");
    assert!(published[0].to_string().starts_with(&format!("127.{network}.")), "{published:?}");
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}
