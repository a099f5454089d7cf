//! The life of clusters with VMs on real parts: one VM, metal and VMs side by side.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;

use anyhow::ensure;
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::eventually;
use capmaas_e2e::lxd_hosts::vm;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::json;

#[tokio::test]
async fn one_lxd_control_plane_with_metal_workers_and_one_metal_control_plane_with_lxd_workers_side_by_side() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    scene.maas.add_hosts(1).unwrap();
    let lxd = ClusterPlan { workers: 1, machine: vm(), worker: Some(json!({})), ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&lxd).await.unwrap();
    scene.wait_running(&lxd, &expected).await.unwrap();
    assert_eq!((scene.maas.vms().len(), scene.maas.taken().len()), (1, 2));
    // A second control-plane machine and a third that are metal: one control plane of both.
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
