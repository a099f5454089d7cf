//! VMs in trouble on real parts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::lxd_hosts::vm;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::json;

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
    // What was stolen stays the thief's.
    assert_eq!(stolen(&scene), ["Allocated"]);
    assert_eq!(scene.maas.vms().len(), 1);
    scene.stop().await;
}
