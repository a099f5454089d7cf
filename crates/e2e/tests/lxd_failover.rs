//! A host dies with a part of a running control plane on it, on real parts: the cluster replaces the VM elsewhere, its name
//! follows, and what was on the host is cleared away when it comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::IpAddr;
use std::time::Duration;

use anyhow::ensure;
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::lxd_hosts::{VmFacts, vm_in_two_networks};
use capmaas_e2e::maas::ZONES;
use capmaas_e2e::scene::Scene;
use capmaas_e2e::{eventually, eventually_within};
use capmaas_testbed::CapiVersion;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(300);
const DEBTS: &str = "infrastructure.cluster.x-k8s.io/vm-debts";

/// Replaces control planes whose Node is not heard of for a while.
fn health_check(plan: &ClusterPlan) -> Value {
    let unhealthy = ["False", "Unknown"].map(|status| json!({"type": "Ready", "status": status, "timeout": "5s"}));
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "MachineHealthCheck",
        "metadata": {"name": plan.name, "namespace": plan.namespace},
        "spec": {
            "clusterName": plan.name,
            "selector": {"matchLabels": {"cluster.x-k8s.io/control-plane": ""}},
            "nodeStartupTimeout": "0s",
            "unhealthyConditions": unhealthy,
        },
    })
}

/// The addresses of VMs in the network that users reach, sorted.
fn reached<'a>(vms: impl IntoIterator<Item = &'a VmFacts>, network: &str) -> Vec<IpAddr> {
    let prefix = network.trim_end_matches("0.0/16");
    let all = vms.into_iter().flat_map(|vm| &vm.addresses);
    let mut found: Vec<IpAddr> = all.filter(|address| address.to_string().starts_with(prefix)).copied().collect();
    found.sort();
    found
}

#[tokio::test]
async fn s16_a_host_dies_with_a_control_plane_on_it_which_comes_up_elsewhere_and_the_debt_is_paid_when_it_returns() {
    // The newest release whose KubeadmControlPlane replaces machines of a cluster with an etcd outside: 1.14 asks for the
    // members of an etcd of its own first, and waits for ever where there is none.
    let scene = Scene::start(CapiVersion::V1_10).await.unwrap();
    scene.maas.add_hosts(2).unwrap();
    let networks = scene.maas.add_second_network().unwrap();
    let plan = ClusterPlan {
        control_planes: 3,
        infrastructure: json!({"failureDomains": ZONES, "preferredSubnets": [networks[1]]}),
        machine: vm_in_two_networks([&networks[0], &networks[1]]),
        ..ClusterPlan::new(scene.core, "c1")
    };
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let vms = scene.maas.vms();
    assert_eq!(reached(&vms, &networks[1]).len(), 3, "{vms:?}");
    let published = || scene.maas.records().into_values().flatten().collect::<Vec<IpAddr>>();
    assert_eq!(published(), reached(&vms, &networks[1]), "created");
    scene.testbed.apply_objects(vec![health_check(&plan)]).await.unwrap();

    // The host loses its power, and everything on it with it. Its BMC still answers, the LXD on it does not.
    let lost = vms[0].clone();
    scene.maas.reach_host(&lost.host, false).unwrap();
    let off = json!([
        {"machine": {"hostname": lost.host, "power": "off"}},
        {"machine": {"system_id": lost.system_id, "power": "off", "power_known": "error"}},
    ]);
    scene.maas.arrange(off).unwrap();
    let replaced = eventually_within(PATIENCE, "another VM in its place", || async {
        let vms = scene.maas.vms();
        let others: Vec<&VmFacts> =
            vms.iter().filter(|vm| vm.system_id != lost.system_id && vm.status == "Deployed").collect();
        ensure!(others.len() == 3, "{vms:?}");
        ensure!(others.iter().all(|vm| vm.host != lost.host), "a VM was made on a dead host: {vms:?}");
        ensure!(published() == reached(others.iter().copied(), &networks[1]), "the name leads to {:?}", published());
        Ok(())
    });
    scene.explain(replaced.await).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let clusters = scene.objects(&plan, "MaasCluster").unwrap();
    let owed = clusters.get("c1").await.unwrap()["metadata"]["annotations"][DEBTS].clone();
    assert!(owed.as_str().is_some_and(|owed| owed.contains(&lost.system_id)), "{owed}");
    assert!(scene.maas.instances().contains(&lost.hostname), "nobody can remove what is on a dead host");

    // It comes back: the VM that nobody wants any more goes, and the three that serve stay.
    scene.maas.reach_host(&lost.host, true).unwrap();
    scene.maas.arrange(json!([{"machine": {"hostname": lost.host, "power": "on"}}])).unwrap();
    let paid = eventually_within(PATIENCE, "the debt is paid", || async {
        let vms = scene.maas.vms();
        ensure!(vms.len() == 3 && !scene.maas.instances().contains(&lost.hostname), "{vms:?}");
        let owed = clusters.get("c1").await?["metadata"]["annotations"][DEBTS].clone();
        ensure!(owed.is_null(), "still owed: {owed}");
        Ok(())
    });
    scene.explain(paid.await).await.unwrap();
    let served = eventually("the name leads to those that serve", || async {
        ensure!(published() == reached(&scene.maas.vms(), &networks[1]), "{:?}", published());
        Ok(())
    });
    scene.explain(served.await).await.unwrap();
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}
