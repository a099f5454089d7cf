//! The other main job on real parts: a control plane of VMs on LXD hosts in three zones comes up through Cluster API, our
//! manager from its manifests and MAAS, and goes without leaving anything in MAAS or LXD.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::lxd_hosts::vm;
use capmaas_e2e::maas::ZONES;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::json;

#[tokio::test]
async fn three_lxd_control_planes_spread_over_three_zones_and_leave_nothing_behind() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    scene.maas.add_hosts(1).unwrap();
    let plan = ClusterPlan {
        control_planes: 3,
        infrastructure: json!({"failureDomains": ZONES}),
        machine: vm(),
        ..ClusterPlan::new(scene.core, "c1")
    };
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();

    let vms = scene.maas.vms();
    let zones: BTreeSet<&str> = vms.iter().map(|vm| vm.zone.as_str()).collect();
    assert_eq!((vms.len(), zones.into_iter().collect::<Vec<_>>()), (3, ZONES.to_vec()), "{vms:?}");
    for object in scene.objects(&plan, "MaasMachine").unwrap().list().await.unwrap() {
        let id = object["spec"]["providerID"].as_str().unwrap();
        let found = vms.iter().find(|vm| id == format!("maas-lxd://{}/{}", vm.zone, vm.system_id));
        let found = found.unwrap_or_else(|| panic!("{id} is none of {vms:?}"));
        assert_eq!(object["status"]["lxdHost"], json!(found.host), "{object}");
    }
    // Each was composed, allocated and deployed once, and the name leads to all of them.
    let counts = ["compose", "allocate", "deploy"].map(|kind| scene.maas.effective(kind));
    assert_eq!(counts, [3, 3, 3]);
    let control_plane = scene.control_plane_addresses(&plan).await.unwrap();
    let records = scene.maas.records();
    assert_eq!(records.values().collect::<Vec<_>>(), [&control_plane], "{records:?}");

    scene.delete(&plan).await.unwrap();
    assert_eq!(scene.maas.effective("compose"), 3);
    assert_eq!(scene.secrets_seen().await.unwrap(), Vec::<String>::new());
    scene.stop().await;
}
