//! VMs with failures on real components: hosts that fail and others that take over, a thief, a manager that is killed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use anyhow::{Context as _, ensure};
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::eventually;
use capmaas_e2e::lxd_hosts::vm;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use maas_sim::faults::FaultRule;
use serde_json::json;

/// Makes the first VM in MAAS fail at a step, and returns its host.
async fn fail_first_vm(scene: &Scene, step: &str) -> String {
    let first = eventually("a VM", || async {
        let vm = scene.maas.vms().into_iter().next().context("there is none")?;
        scene.maas.arrange(json!([{"machine": {"system_id": vm.system_id, "next": {step: "fail"}}}]))?;
        Ok(vm.host)
    });
    scene.explain(first.await).await.unwrap()
}

/// The one VM of a cluster, on whichever host.
async fn runs_elsewhere(scene: &Scene, plan: &ClusterPlan, port: &capmaas_e2e::maas::Expected, failed: &str) {
    scene.wait_running(plan, port).await.unwrap();
    let cleaned = eventually("what failed is cleaned up", || async {
        let vms = scene.maas.vms();
        ensure!(vms.len() == 1 && vms[0].host != failed, "failed on {failed}: {vms:?}");
        ensure!(scene.maas.instances().len() == 1, "{:?}", scene.maas.instances());
        Ok(())
    });
    scene.explain(cleaned.await).await.unwrap();
}

#[tokio::test]
async fn hosts_that_refuse_to_compose_are_left_for_one_that_does() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    scene.maas.add_hosts(1).unwrap();
    for host in ["host-az1-1", "host-az2-1"] {
        let id = scene.maas.host_id(host).unwrap();
        let rule = json!({"match": {"kind": "vm-host.compose", "path": format!("/vm-hosts/{id}/")}, "do": "status",
                          "status": 503, "body": "Unable to compose machine because: Failed talking to pod", "times": 0});
        scene.maas.control().add_fault(serde_json::from_value::<FaultRule>(rule).unwrap());
    }
    let plan = ClusterPlan { machine: vm(), ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let vms = scene.maas.vms();
    assert_eq!(vms.iter().map(|vm| vm.host.as_str()).collect::<Vec<_>>(), ["host-az3-1"]);
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}

#[tokio::test]
async fn a_vm_whose_deployment_fails_is_removed_and_another_host_takes_over() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    scene.maas.add_hosts(1).unwrap();
    let plan = ClusterPlan { machine: vm(), ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&plan).await.unwrap();
    let failed = fail_first_vm(&scene, "deploy").await;
    runs_elsewhere(&scene, &plan, &expected, &failed).await;
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}

/// A VM composed by our manager is not commissioned. One that MAAS discovers in LXD after a crash of its own is.
#[tokio::test]
async fn a_vm_that_fails_commissioning_after_maas_died_under_it_is_removed_and_another_host_takes_over() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    scene.maas.add_hosts(1).unwrap();
    let rule = json!({"match": {"kind": "vm-host.compose"}, "do": "kill", "down_seconds": 1.0});
    scene.maas.control().add_fault(serde_json::from_value::<FaultRule>(rule).unwrap());
    let plan = ClusterPlan { machine: vm(), ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&plan).await.unwrap();
    let orphan = eventually("a VM that only LXD knows", || async {
        scene.maas.instances().into_iter().next().context("there is none")
    });
    let orphan = scene.explain(orphan.await).await.unwrap();
    assert!(scene.maas.vms().is_empty(), "{:?}", scene.maas.vms());
    // A user refreshes the hosts in MAAS: it discovers the VM and commissions it.
    for host in ["host-az1-1", "host-az2-1", "host-az3-1"] {
        scene.maas.refresh_host(host).unwrap();
    }
    let failed = scene.maas.vms().remove(0);
    assert_eq!((&failed.hostname, failed.status.as_str()), (&orphan, "Commissioning"));
    let fail = json!([{"machine": {"system_id": failed.system_id, "next": {"commission": "fail"}}}]);
    scene.maas.arrange(fail).unwrap();
    runs_elsewhere(&scene, &plan, &expected, &failed.host).await;
    let told = scene.testbed.kubectl(["get", "events", "-A", "-o", "yaml"]).await.unwrap();
    assert!(told.contains("LXD VMCreationFailed: ") && told.contains("Failed commissioning"), "{told}");
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}

#[tokio::test]
async fn s10_a_vm_that_somebody_takes_first_is_left_to_him_and_another_is_composed() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    scene.maas.add_hosts(1).unwrap();
    scene.maas.arrange(json!([{"user": {"name": "thief", "key": "t:h:ief"}}])).unwrap();
    let steal = serde_json::from_value(json!("steal")).unwrap();
    scene.maas.control().hurt(None, &steal, Some("thief")).unwrap();
    let plan = ClusterPlan { machine: vm(), ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let stolen = |scene: &Scene| {
        let vms = scene.maas.vms().into_iter();
        vms.filter(|vm| vm.owner.as_deref() == Some("thief")).map(|vm| vm.status).collect::<Vec<_>>()
    };
    assert_eq!(stolen(&scene), ["Allocated"]);
    assert_eq!(scene.maas.vms().len(), 2);
    scene.objects(&plan, "Cluster").unwrap().delete("c1").await.unwrap();
    scene.wait_gone(&plan).await.unwrap();
    // A stolen VM stays with the thief.
    assert_eq!(stolen(&scene), ["Allocated"]);
    assert_eq!(scene.maas.vms().len(), 1);
    scene.stop().await;
}

#[tokio::test]
async fn a_manager_that_is_killed_all_the_time_composes_no_vm_twice_and_leaves_none() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    scene.maas.add_hosts(1).unwrap();
    let plan = ClusterPlan { workers: 2, machine: vm(), ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&plan).await.unwrap();
    scene.kill_during(4, Duration::ZERO, scene.wait_running(&plan, &expected)).await.unwrap();
    assert_eq!((scene.maas.vms().len(), scene.maas.instances().len()), (3, 3), "{:?}", scene.maas.vms());
    scene.kill_during(3, Duration::ZERO, scene.delete(&plan)).await.unwrap();
    scene.stop().await;
}
