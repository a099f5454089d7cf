//! A host fails with part of a running cluster on it, on real components: Cluster API replaces the VM elsewhere, the
//! cluster's DNS name follows, and the VM on the host is removed when the host comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::lxd_hosts::{VmFacts, vm, vm_in_two_networks};
use capmaas_e2e::maas::ZONES;
use capmaas_e2e::scene::Scene;
use capmaas_e2e::{eventually, eventually_within};
use capmaas_testbed::CapiVersion;
use maas_sim::faults::FaultRule;
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(300);
const DEBTS: &str = "infrastructure.cluster.x-k8s.io/vm-debts";

/// The addresses of VMs in the network that users reach, sorted.
fn reached<'a>(vms: impl IntoIterator<Item = &'a VmFacts>, network: &str) -> Vec<IpAddr> {
    let prefix = network.trim_end_matches("0.0/16");
    let all = vms.into_iter().flat_map(|vm| &vm.addresses);
    let mut found: Vec<IpAddr> = all.filter(|address| address.to_string().starts_with(prefix)).copied().collect();
    found.sort();
    found
}

fn published(scene: &Scene) -> Vec<IpAddr> {
    scene.maas.records().into_values().flatten().collect()
}

/// Waits until this many VMs run that are not on the failed host.
async fn replaced(scene: &Scene, lost: &VmFacts, count: usize) -> Vec<VmFacts> {
    let replaced = eventually_within(PATIENCE, "another VM in its place", || async {
        let vms = scene.maas.vms();
        let others: Vec<VmFacts> =
            vms.iter().filter(|vm| vm.system_id != lost.system_id && vm.status == "Deployed").cloned().collect();
        ensure!(others.len() == count, "{vms:?}");
        Ok(others)
    });
    let others = scene.explain(replaced.await).await.unwrap();
    assert!(others.iter().all(|vm| vm.host != lost.host), "a VM was made on a dead host: {others:?}");
    others
}

/// The VM on the failed host is still to be removed; the host comes back, and the VM is deleted.
async fn debt_is_paid(scene: &Scene, plan: &ClusterPlan, lost: &VmFacts) {
    let clusters = scene.objects(plan, "MaasCluster").unwrap();
    let owed = clusters.get(&plan.name).await.unwrap()["metadata"]["annotations"][DEBTS].clone();
    assert!(owed.as_str().is_some_and(|owed| owed.contains(&lost.system_id)), "{owed}");
    assert!(scene.maas.instances().contains(&lost.hostname), "nobody can remove what is on a dead host");
    let before = scene.maas.vms().len();
    scene.maas.switch_host_on(&lost.host).unwrap();
    let paid = eventually_within(PATIENCE, "the debt is paid", || async {
        let vms = scene.maas.vms();
        ensure!(vms.len() == before - 1 && !scene.maas.instances().contains(&lost.hostname), "{vms:?}");
        let owed = clusters.get(&plan.name).await?["metadata"]["annotations"][DEBTS].clone();
        ensure!(owed.is_null(), "still owed: {owed}");
        Ok(())
    });
    scene.explain(paid.await).await.unwrap();
}

#[tokio::test]
async fn s16_a_host_dies_with_a_control_plane_on_it_which_comes_up_elsewhere_and_the_debt_is_paid_when_it_returns() {
    // The newest release whose KubeadmControlPlane replaces machines of a cluster with external etcd: 1.14 first asks
    // for the members of a stacked etcd, and waits forever where there is none.
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
    assert_eq!(published(&scene), reached(&vms, &networks[1]), "created");

    let check = plan.health_check(("cluster.x-k8s.io/control-plane", ""));
    scene.testbed.apply_objects(vec![check]).await.unwrap();
    let lost = vms[0].clone();
    scene.maas.switch_host_off(&lost.host).unwrap();
    let others = replaced(&scene, &lost, 3).await;
    let follows = eventually("the name leads to those that serve", || async {
        ensure!(published(&scene) == reached(&others, &networks[1]), "{:?}", published(&scene));
        Ok(())
    });
    scene.explain(follows.await).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    debt_is_paid(&scene, &plan, &lost).await;
    assert_eq!(published(&scene), reached(&scene.maas.vms(), &networks[1]), "the host is back");
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}

#[tokio::test]
async fn s16_a_host_dies_with_a_worker_on_it_which_comes_up_elsewhere_and_the_debt_is_paid_when_it_returns() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    scene.maas.add_hosts(1).unwrap();
    let plan = ClusterPlan { workers: 2, machine: vm(), ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let name = published(&scene);
    // The workers are on two hosts; the control plane is on at most one of these.
    let (control_plane, workers): (Vec<VmFacts>, Vec<VmFacts>) =
        scene.maas.vms().into_iter().partition(|vm| vm.addresses.iter().any(|address| name.contains(address)));
    let lost = workers.into_iter().find(|worker| worker.host != control_plane[0].host).unwrap();
    scene.testbed.apply_objects(vec![plan.health_check(("pool", "c1-md"))]).await.unwrap();
    scene.maas.switch_host_off(&lost.host).unwrap();
    replaced(&scene, &lost, 3).await;
    scene.wait_running(&plan, &expected).await.unwrap();
    debt_is_paid(&scene, &plan, &lost).await;
    assert_eq!(published(&scene), name, "a worker is no part of the name");
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}

#[tokio::test]
async fn s16_a_host_dies_before_its_vm_is_of_use_and_another_one_takes_over_without_anybody_elses_help() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    scene.maas.add_hosts(1).unwrap();
    // MAAS accepts no deployment until the host has failed, so that the VM is allocated to us but not yet deployed.
    let busy = json!({"match": {"kind": "machine.deploy"}, "do": "status", "status": 503, "times": 0});
    scene.maas.control().add_fault(serde_json::from_value::<FaultRule>(busy).unwrap());
    let plan = ClusterPlan { machine: vm(), ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&plan).await.unwrap();
    let lost = eventually("a VM that is ours", || async {
        let vms = scene.maas.vms();
        vms.iter().find(|vm| vm.status == "Allocated").cloned().with_context(|| format!("{vms:?}"))
    });
    let lost = scene.explain(lost.await).await.unwrap();
    scene.maas.switch_host_off(&lost.host).unwrap();
    scene.maas.control().remove_fault(None);
    replaced(&scene, &lost, 1).await;
    scene.wait_running(&plan, &expected).await.unwrap();
    debt_is_paid(&scene, &plan, &lost).await;
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}
