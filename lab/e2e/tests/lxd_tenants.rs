//! Two managers, each for one namespace, place VMs on the LXD hosts of one MAAS at the same time. Neither sees the
//! other's plans; only MAAS knows both.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::net::IpAddr;

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::lxd_hosts::vm_in_two_networks;
use capmaas_e2e::maas::USER;
use capmaas_e2e::scene::Scene;
use capmaas_e2e::tenants::{SECOND_USER, TEAMS, two_managers};
use capmaas_testbed::CapiVersion;
use serde_json::json;

/// The addresses that a cluster's name resolves to.
fn published(scene: &Scene, cluster: &str) -> Vec<IpAddr> {
    let records = scene.maas.records();
    let found: Vec<_> = records.into_iter().filter(|(name, _)| name.starts_with(&format!("{cluster}-"))).collect();
    assert_eq!(found.len(), 1, "the records of {cluster}: {found:?}");
    found.into_iter().flat_map(|(_, addresses)| addresses).collect()
}

#[tokio::test]
async fn two_managers_that_fill_the_same_hosts_at_once_share_no_place_no_name_and_no_address() {
    let scene = two_managers(CapiVersion::V1_14).await.unwrap();
    // Six hosts with capacity for one such VM each, and six VMs: the first to take a host gets it, and all find one.
    scene.maas.add_hosts(2).unwrap();
    let networks = scene.maas.add_second_network().unwrap();
    let mut machine = vm_in_two_networks([&networks[0], &networks[1]]);
    machine["minMemory"] = json!(12288);
    // One team sets the addresses of its clusters in a ConfigMap of its namespace, the other in the spec.
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "maas-preferred-subnet", "namespace": TEAMS[0]},
        "data": {"preferredSubnets": networks[1]},
    });
    scene.testbed.apply_objects(vec![config_map]).await.unwrap();
    let plan = |team: usize, name: &str, subnet: Option<&str>| ClusterPlan {
        namespace: TEAMS[team].into(),
        workers: 2,
        infrastructure: subnet.map_or(json!({}), |subnet| json!({"preferredSubnets": [subnet]})),
        machine: machine.clone(),
        ..ClusterPlan::new(CapiVersion::V1_14, name)
    };
    let (a, b) = (plan(0, "a1", None), plan(1, "b1", Some(&networks[0])));
    let (expected_a, expected_b) = (scene.create(&a).await.unwrap(), scene.create(&b).await.unwrap());
    scene.wait_running(&a, &expected_a).await.unwrap();
    scene.wait_running(&b, &expected_b).await.unwrap();

    let vms = scene.maas.vms();
    let hosts: BTreeSet<&str> = vms.iter().map(|vm| vm.host.as_str()).collect();
    let names: BTreeSet<&str> = vms.iter().map(|vm| vm.hostname.as_str()).collect();
    let addresses: BTreeSet<IpAddr> = vms.iter().flat_map(|vm| vm.addresses.clone()).collect();
    assert_eq!((vms.len(), hosts.len(), names.len(), addresses.len()), (6, 6, 6, 12), "{vms:?}");
    for (user, count) in [(USER, 3), (SECOND_USER, 3)] {
        assert_eq!(vms.iter().filter(|vm| vm.owner.as_deref() == Some(user)).count(), count, "{vms:?}");
    }
    for (cluster, network) in [("a1", &networks[1]), ("b1", &networks[0])] {
        let reached = published(&scene, cluster);
        let prefix = network.trim_end_matches("0.0/16");
        assert_eq!(reached.len(), 1, "{reached:?}");
        assert!(reached[0].to_string().starts_with(prefix), "{cluster} is reached at {reached:?}, not in {network}");
    }

    // Each is deleted by itself, without affecting the other.
    scene.objects(&a, "Cluster").unwrap().delete("a1").await.unwrap();
    scene.wait_gone(&a).await.unwrap();
    let left = scene.maas.vms();
    assert_eq!((left.len(), scene.maas.instances().len()), (3, 3), "{left:?}");
    assert!(left.iter().all(|vm| vm.owner.as_deref() == Some(SECOND_USER) && vm.status == "Deployed"), "{left:?}");
    scene.delete(&b).await.unwrap();
    scene.stop().await;
}
