//! The control plane endpoint: one that the user provides, and addresses of preferred subnets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::IpAddr;

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::{Value, json};

#[tokio::test]
async fn an_endpoint_that_the_user_brings_is_taken_and_no_record_is_made() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    let expected = scene.expect_cluster().await.unwrap();
    // A user's load balancer forwards to the control plane: here a name that we do not manage.
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
    let published = || scene.maas.records().into_values().flatten().collect::<Vec<IpAddr>>();
    assert_eq!(published().len(), 1, "{:?}", published());
    assert!(published()[0].to_string().starts_with(&format!("127.{network}.")), "{:?}", published());

    // The spec takes precedence over the ConfigMap, and applies to a running cluster.
    let all = scene.maas.taken().remove(0).addresses;
    let first = all.iter().find(|address| !address.to_string().starts_with(&format!("127.{network}."))).unwrap();
    let patch = json!({"spec": {"preferredSubnets": [format!("{first}/32")]}});
    scene.objects(&plan, "MaasCluster").unwrap().merge("c1", patch).await.unwrap();
    let changed = capmaas_e2e::eventually("the record follows the spec", || async {
        anyhow::ensure!(published() == [*first], "{:?}", published());
        Ok(())
    });
    scene.explain(changed.await).await.unwrap();
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}

/// The object of a kind among those of a cluster.
fn of_kind<'a>(objects: &'a mut [Value], kind: &str) -> &'a mut Value {
    objects.iter_mut().find(|object| object["kind"] == kind).unwrap()
}

#[tokio::test]
async fn both_ways_to_bring_an_endpoint_with_a_port_of_its_own_leave_dns_alone() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    scene.maas.arrange(json!([{"domain": {"name": "somewhere.example"}}])).unwrap();
    // As in the Go provider: an annotation next to the endpoint, whose name may even be in MAAS's domain.
    let annotated = ClusterPlan::new(scene.core, "c1");
    let first = scene.expect_cluster().await.unwrap();
    let mut objects = annotated.objects(&first);
    let host = "c1-api.k8s.example";
    let maas_cluster = of_kind(&mut objects, "MaasCluster");
    maas_cluster["metadata"]["annotations"] = json!({"spectrocloud.com/custom-dns-provided": "true"});
    maas_cluster["spec"]["controlPlaneEndpoint"] = json!({"host": host, "port": first.port});
    scene.testbed.apply_objects(objects).await.unwrap();
    let address = scene.first_address().await.unwrap();
    scene.maas.arrange(json!([{"dns": {"fqdn": host, "ip_addresses": [address]}}])).unwrap();
    scene.wait_running(&annotated, &first).await.unwrap();

    // As in Cluster API: the endpoint is in the Cluster.
    let plain = ClusterPlan::new(scene.core, "c2");
    let second = scene.expect_cluster().await.unwrap();
    let mut objects = plain.objects(&second);
    let endpoint = json!({"host": "lb.somewhere.example", "port": second.port});
    of_kind(&mut objects, "Cluster")["spec"]["controlPlaneEndpoint"] = endpoint.clone();
    scene.testbed.apply_objects(objects).await.unwrap();
    let maas_clusters = scene.objects(&plain, "MaasCluster").unwrap();
    maas_clusters.wait("c2", "/status/initialization/provisioned", json!(true)).await.unwrap();
    // Its one machine is the second running one.
    let address = capmaas_e2e::eventually("a second machine that runs", || async {
        let running = scene.maas.taken().into_iter().filter(|machine| machine.status == "Deployed" && machine.on);
        let new = running.flat_map(|machine| machine.addresses).find(|found| *found != address);
        new.ok_or_else(|| anyhow::anyhow!("there is one"))
    });
    let address = scene.explain(address.await).await.unwrap();
    scene.maas.arrange(json!([{"dns": {"fqdn": "lb.somewhere.example", "ip_addresses": [address]}}])).unwrap();
    let alone = scene.objects(&plain, "Machine").unwrap();
    let running = capmaas_e2e::eventually("the Machine of c2 is Running", || async {
        let all = alone.list().await?;
        let mut of_c2 = all.iter().filter(|machine| machine["spec"]["clusterName"] == "c2");
        anyhow::ensure!(of_c2.any(|machine| machine["status"]["phase"] == "Running"), "{all:?}");
        Ok(())
    });
    scene.explain(running.await).await.unwrap();

    let endpoints = |cluster: Value| cluster["spec"]["controlPlaneEndpoint"].clone();
    let clusters = scene.objects(&plain, "Cluster").unwrap();
    assert_eq!(endpoints(clusters.get("c1").await.unwrap()), json!({"host": host, "port": first.port}));
    assert_eq!(endpoints(clusters.get("c2").await.unwrap()), endpoint);
    for name in ["c1", "c2"] {
        clusters.delete(name).await.unwrap();
    }
    scene.wait_gone(&plain).await.unwrap();
    // Both records belong to the user: they are never written or deleted.
    let records: Vec<String> = scene.maas.records().into_keys().collect();
    assert_eq!(records, [host, "lb.somewhere.example"]);
    let dns = scene.maas.mutations().into_iter().filter(|entry| entry.kind.starts_with("dnsresource")).count();
    assert_eq!(dns, 0);
    scene.stop().await;
}
