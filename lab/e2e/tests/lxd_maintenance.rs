//! LXD hosts in maintenance, on real components: Cluster API replaces the control-plane machines on other hosts, one at
//! a time, while the manager is killed repeatedly.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::lxd_hosts::vm;
use capmaas_e2e::maintenance::{TAG, guest, hosts_of, wait_left_while_killed, wait_said};
use capmaas_e2e::recorder::Recorder;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::json;

/// The most that a control plane may be missing at any time.
fn one_of(cluster: &str) -> BTreeMap<String, usize> {
    BTreeMap::from([(cluster.to_owned(), 1)])
}

async fn a_tag_empties_a_host_but_for_the_only_machine_of_a_control_plane(core: CapiVersion) {
    let scene = Scene::start(core).await.unwrap();
    scene.maas.add_hosts(1).unwrap();
    let (three, one) = (guest(&scene, "c1", 3).await.unwrap(), guest(&scene, "c2", 1).await.unwrap());
    let (expected, single) = (scene.create(&three).await.unwrap(), scene.create(&one).await.unwrap());
    scene.wait_running(&three, &expected).await.unwrap();
    scene.wait_running(&one, &single).await.unwrap();
    let host = hosts_of(&scene, &one).await.unwrap().pop_first().unwrap();
    let before = scene.maas.vms().len();

    let recorder = Recorder::start(&scene, &[&three, &one]).unwrap();
    scene.maas.arrange(json!([{"machine": {"hostname": host, "tags": [TAG]}}])).unwrap();
    wait_left_while_killed(&scene, &three, &host).await.unwrap();
    scene.wait_running(&three, &expected).await.unwrap();
    let words = "is the only machine of KubeadmControlPlane";
    wait_said(&scene, &one, ("MaasCluster", "c2"), ("EvacuationWaiting", words)).await.unwrap();
    wait_said(&scene, &three, ("MaasCluster", "c1"), ("NotEvacuating", "")).await.unwrap();
    assert_eq!(recorder.end().await.unwrap(), one_of("c1"), "what each control plane missed at the same time");
    let vms = scene.maas.vms();
    assert_eq!((vms.len(), vms.iter().filter(|vm| vm.host == host).count()), (before, 1), "{vms:?}");
    let hosts = scene.plugin(&["maintenance", "status", "-A"]).await.unwrap();
    assert!(hosts.contains("cluster c2/c2"), "{hosts}");

    // A user removes the tag: the evacuation ends.
    scene.maas.arrange(json!([{"machine": {"hostname": host, "tags": []}}])).unwrap();
    wait_said(&scene, &one, ("MaasCluster", "c2"), ("NotEvacuating", "")).await.unwrap();
    assert_eq!(scene.secrets_seen().await.unwrap(), Vec::<String>::new());
    scene.objects(&three, "Cluster").unwrap().delete("c1").await.unwrap();
    scene.wait_gone(&three).await.unwrap();
    scene.delete(&one).await.unwrap();
    scene.stop().await;
}

#[tokio::test]
async fn s30_a_tag_empties_a_host_of_all_but_single_control_planes() {
    a_tag_empties_a_host_but_for_the_only_machine_of_a_control_plane(CapiVersion::V1_14).await;
}

#[tokio::test]
async fn s30_a_tag_empties_a_host_under_the_old_contract() {
    a_tag_empties_a_host_but_for_the_only_machine_of_a_control_plane(CapiVersion::V1_10).await;
}

#[tokio::test]
async fn s30_without_room_consent_or_the_right_nothing_is_deleted_and_it_goes_on_when_there_is() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    // Three hosts with capacity for one such VM each.
    scene.maas.add_hosts(1).unwrap();
    let mut machine = vm();
    machine["minMemory"] = json!(12288);
    let plan = ClusterPlan { control_planes: 3, machine, ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let host = hosts_of(&scene, &plan).await.unwrap().pop_first().unwrap();
    let before: Vec<String> = scene.maas.vms().into_iter().map(|vm| vm.system_id).collect();
    let recorder = Recorder::start(&scene, &[&plan]).unwrap();
    scene.maas.arrange(json!([{"machine": {"hostname": host, "tags": [TAG]}}])).unwrap();
    let waits = async |words: &str| {
        wait_said(&scene, &plan, ("MaasCluster", "c1"), ("EvacuationWaiting", words)).await.unwrap();
    };
    waits("no room").await;

    // There is capacity, but the cluster's owner evacuates it manually.
    let clusters = scene.objects(&plan, "MaasCluster").unwrap();
    clusters.merge("c1", json!({"spec": {"evacuation": "Manual"}})).await.unwrap();
    scene.maas.add_host("host-new", "az1", "default").unwrap();
    waits("evacuation: Manual").await;

    // The owner agrees, but the operator has not granted the permission.
    scene.testbed.kubectl(["delete", "clusterrolebinding", "capmaas-evacuation"]).await.unwrap();
    clusters.merge("c1", json!({"spec": {"evacuation": null}})).await.unwrap();
    waits("may not delete the Machine").await;
    let now: Vec<String> = scene.maas.vms().into_iter().map(|vm| vm.system_id).collect();
    assert_eq!(now, before, "nothing was touched");
    assert_eq!(recorder.end().await.unwrap(), BTreeMap::new(), "nothing was missing");

    let recorder = Recorder::start(&scene, &[&plan]).unwrap();
    let role = "--clusterrole=capmaas-evacuation";
    let account = "--serviceaccount=capmaas-system:capmaas-manager";
    scene.testbed.kubectl(["create", "clusterrolebinding", "capmaas-evacuation", role, account]).await.unwrap();
    wait_left_while_killed(&scene, &plan, &host).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    assert_eq!(recorder.end().await.unwrap(), one_of("c1"));
    assert!(scene.maas.vms().iter().any(|vm| vm.host == "host-new"), "{:?}", scene.maas.vms());
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}
