//! The lifecycle of clusters with VMs on real components: one VM, metal and VMs side by side, scaling, upgrades,
//! filters, a full zone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::eventually;
use capmaas_e2e::lxd_hosts::vm;
use capmaas_e2e::maas::ZONES;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::{Value, json};

/// A VM with additional fields in its spec.
fn vm_with(more: &Value) -> Value {
    let mut spec = vm();
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

#[tokio::test]
async fn one_lxd_control_plane_with_metal_workers_and_one_metal_control_plane_with_lxd_workers_side_by_side() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    scene.maas.add_hosts(1).unwrap();
    let lxd = ClusterPlan { workers: 1, machine: vm(), worker: Some(json!({})), ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&lxd).await.unwrap();
    scene.wait_running(&lxd, &expected).await.unwrap();
    assert_eq!((scene.maas.vms().len(), scene.maas.taken().len()), (1, 2));
    // Two more control-plane machines that are metal: one control plane of both kinds.
    let control_planes = scene.objects(&lxd, "KubeadmControlPlane").unwrap();
    let metal = ClusterPlan { machine: json!({}), ..ClusterPlan::new(scene.core, "c1") };
    scene.testbed.apply_objects(vec![metal.template("c1-metal", &metal.version)]).await.unwrap();
    let reference = json!({"spec": {"infrastructureRef": {"name": "c1-metal"}}});
    let patch = json!({"spec": {"replicas": 3, "machineTemplate": reference}});
    control_planes.merge("c1-cp", patch).await.unwrap();
    let mixed = eventually("metal and VMs in one control plane", || async {
        let records = scene.maas.records();
        let published: BTreeSet<_> = records.values().flatten().copied().collect();
        let of_vms = scene.maas.vms().into_iter().flat_map(|vm| vm.addresses).filter(|ip| published.contains(ip));
        let both = of_vms.count() > 0 && published.len() > 1;
        ensure!(both, "{records:?}");
        Ok(())
    });
    scene.explain(mixed.await).await.unwrap();
    let rolled = ClusterPlan { control_planes: 3, workers: 1, ..ClusterPlan::new(scene.core, "c1") };
    scene.wait_running(&rolled, &expected).await.unwrap();
    let gone = eventually("the VM that was replaced is gone", || async {
        ensure!(scene.maas.vms().is_empty() && scene.maas.instances().is_empty(), "{:?}", scene.maas.vms());
        Ok(())
    });
    scene.explain(gone.await).await.unwrap();
    scene.delete(&rolled).await.unwrap();

    let metal = ClusterPlan { workers: 2, worker: Some(vm()), ..ClusterPlan::new(scene.core, "c2") };
    let expected = scene.create(&metal).await.unwrap();
    scene.wait_running(&metal, &expected).await.unwrap();
    assert_eq!((scene.maas.vms().len(), scene.maas.taken().len()), (2, 3));
    scene.delete(&metal).await.unwrap();
    scene.stop().await;
}

#[tokio::test]
async fn vms_are_scaled_and_rolled_to_a_new_version_and_the_name_follows() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    scene.maas.add_hosts(2).unwrap();
    let mut plan = ClusterPlan {
        control_planes: 3,
        workers: 1,
        infrastructure: json!({"failureDomains": ZONES}),
        machine: vm(),
        ..ClusterPlan::new(scene.core, "c1")
    };
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let deployments = scene.objects(&plan, "MachineDeployment").unwrap();
    for workers in [3, 1] {
        plan.workers = workers;
        deployments.merge("c1-md", json!({"spec": {"replicas": workers}})).await.unwrap();
        scene.wait_running(&plan, &expected).await.unwrap();
    }
    let before: BTreeSet<String> = scene.maas.vms().into_iter().map(|vm| vm.system_id).collect();
    let version = "v1.36.4";
    plan.version = version.into();
    let templates = ["c1-cp-new", "c1-md-new"].map(|name| plan.template(name, version)).to_vec();
    scene.testbed.apply_objects(templates).await.unwrap();
    let control_planes = scene.objects(&plan, "KubeadmControlPlane").unwrap();
    let reference = json!({"spec": {"infrastructureRef": {"name": "c1-cp-new"}}});
    control_planes.merge("c1-cp", json!({"spec": {"version": version, "machineTemplate": reference}})).await.unwrap();
    let worker = json!({"version": version, "infrastructureRef": {"name": "c1-md-new"}});
    deployments.merge("c1-md", json!({"spec": {"template": {"spec": worker}}})).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let follows = eventually("the old VMs are gone and the name leads to the new ones", || async {
        let vms = scene.maas.vms();
        ensure!(vms.len() == 4 && vms.iter().all(|vm| !before.contains(&vm.system_id)), "{vms:?}");
        let zones: BTreeMap<String, usize> = vms.into_iter().fold(BTreeMap::new(), |mut zones, vm| {
            *zones.entry(vm.zone).or_default() += 1;
            zones
        });
        ensure!(zones.len() == 3, "{zones:?}");
        let control_plane = scene.control_plane_addresses(&plan).await?;
        let records = scene.maas.records();
        ensure!(records.values().collect::<Vec<_>>() == [&control_plane], "{records:?}");
        Ok(())
    });
    scene.explain(follows.await).await.unwrap();
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}

#[tokio::test]
async fn pools_and_failure_domains_bind_and_a_full_zone_is_said_until_there_is_room() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    scene.maas.add_hosts(1).unwrap();
    scene.maas.add_host("host-of-the-team", "az2", "team").unwrap();
    // Only one host is in the pool, whatever capacity the others have.
    let pool = ClusterPlan { machine: vm_with(&json!({"resourcePool": "team"})), ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&pool).await.unwrap();
    scene.wait_running(&pool, &expected).await.unwrap();
    let vms = scene.maas.vms();
    assert_eq!((vms[0].host.as_str(), vms[0].pool.as_str()), ("host-of-the-team", "team"));
    scene.delete(&pool).await.unwrap();

    // A zone is full: another user's VM takes all its memory. The others have capacity but are not requested.
    scene
        .maas
        .arrange(json!([{"machine": {"hostname": "somebodys", "vm_host": "host-az1-1", "cpu_count": 1, "memory": 15872,
                                           "status": "Deployed", "owner": "admin"}}]))
        .unwrap();
    let full = ClusterPlan {
        infrastructure: json!({"failureDomains": ["az1"]}),
        machine: vm(),
        ..ClusterPlan::new(scene.core, "c2")
    };
    let expected = scene.create(&full).await.unwrap();
    let machines = scene.objects(&full, "MaasMachine").unwrap();
    let said = eventually("the condition says why no host is taken", || async {
        let all = machines.list().await?;
        let conditions = all.first().map(|machine| machine["status"]["conditions"].clone()).unwrap_or_default();
        let conditions = conditions.as_array().cloned().unwrap_or_default();
        let selected = conditions.iter().find(|condition| condition["type"] == "LXDHostSelected").cloned();
        let selected = selected.unwrap_or_default();
        ensure!(
            selected["status"] == "False"
                && selected["message"].as_str().is_some_and(|said| said.contains("InsufficientResources")),
            "{conditions:?}"
        );
        Ok(())
    });
    scene.explain(said.await).await.unwrap();
    assert_eq!(scene.maas.vms().iter().filter(|vm| vm.hostname != "somebodys").count(), 0);
    // Another host in that zone is found within half a minute.
    scene.maas.add_host("host-az1-2", "az1", "default").unwrap();
    scene.wait_running(&full, &expected).await.unwrap();
    assert!(scene.maas.vms().iter().any(|vm| vm.host == "host-az1-2"), "{:?}", scene.maas.vms());
    scene.objects(&full, "Cluster").unwrap().delete("c2").await.unwrap();
    scene.wait_gone(&full).await.unwrap();
    let left: Vec<String> = scene.maas.vms().into_iter().map(|vm| vm.hostname).collect();
    assert_eq!(left, ["somebodys"]);
    scene.stop().await;
}
