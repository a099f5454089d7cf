//! The second main use case on real components: a control plane of VMs on LXD hosts in three zones comes up through
//! Cluster API, our manager from its manifests and MAAS, and is deleted without leaving anything in MAAS or LXD.
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
    // Each was composed, allocated and deployed once, and the name resolves to all of them.
    let counts = ["compose", "allocate", "deploy"].map(|kind| scene.maas.effective(kind));
    assert_eq!(counts, [3, 3, 3]);
    let control_plane = scene.control_plane_addresses(&plan).await.unwrap();
    let records = scene.maas.records();
    assert_eq!(records.values().collect::<Vec<_>>(), [&control_plane], "{records:?}");

    told_by_the_plugin(&scene).await;

    scene.delete(&plan).await.unwrap();
    assert_eq!(scene.maas.effective("compose"), 3);
    assert_eq!(scene.secrets_seen().await.unwrap(), Vec::<String>::new());
    scene.stop().await;
}

/// `kubectl maas` shows the hosts by zone with their utilization, the VMs on them, and why each VM is where it is.
async fn told_by_the_plugin(scene: &Scene) {
    let dead = json!({"name": "dead", "power_address": "10.99.0.9:8443", "zone": "az2", "discovered": false});
    scene.maas.arrange(json!([{"vm_host": dead}])).unwrap();
    let hosts = scene.plugin(&["hosts"]).await.unwrap();
    for zone in ZONES {
        let (_, shown) = hosts.split_once(&format!("zone {zone}\n")).unwrap_or_else(|| panic!("{zone}: {hosts}"));
        let host = shown.lines().find(|line| line.starts_with(&format!("host-{zone}-1"))).unwrap();
        assert!(host.contains("█░") && host.contains(" 2/32 ") && host.contains(" 2/16 "), "{host}");
    }
    assert!(hosts.lines().any(|line| line.starts_with("dead ") && line.contains("never reached its LXD")), "{hosts}");
    let machines = scene.plugin(&["machines"]).await.unwrap();
    assert_eq!(machines.lines().filter(|line| line.ends_with("nothing")).count(), 3, "{machines}");
    let first = machines.lines().nth(1).unwrap();
    let words: Vec<&str> = first.split_whitespace().collect();
    let (name, zone, host) = (words[0], words[3], words[4]);
    assert_eq!(host, format!("host-{zone}-1"), "{machines}");
    let explained = scene.plugin(&["explain", name]).await.unwrap();
    assert!(explained.contains(&format!("LXD host    {host}\n")), "{explained}");
    assert!(explained.contains(&format!("{host}: chosen: ")), "why it was chosen: {explained}");
    assert_eq!(explained.matches("is in zone").count(), 2, "why the others were not: {explained}");
    let doctor = scene.plugin(&["doctor"]).await.unwrap();
    assert!(doctor.contains("[ ok ] Zones        MAAS has all that are requested: az1, az2, az3\n"), "{doctor}");
    assert!(doctor.contains("[FAIL] LXD hosts    dead: MAAS has never reached its LXD"), "{doctor}");
}
