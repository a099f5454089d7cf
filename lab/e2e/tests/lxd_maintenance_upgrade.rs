//! A cluster of LXD hosts is upgraded on real components while control planes of other clusters run on them, and the
//! manager is killed repeatedly.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::ensure;
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::eventually_within;
use capmaas_e2e::maas::Expected;
use capmaas_e2e::maintenance::{KILL_EVERY, are_replaced, guest, host_cluster, hosts_of, machines, texts};
use capmaas_e2e::recorder::Recorder;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::json;

/// Three hosts, one after the other: each needs a new machine first, then three VMs leave it, then it is released.
const PATIENCE: Duration = Duration::from_secs(1800);
const GUESTS: [&str; 3] = ["g1", "g2", "g3"];

/// All hosts are new ones of this version, and all VMs are on them.
async fn is_upgraded(
    scene: &Scene,
    hosts: &ClusterPlan,
    expected: &Expected,
    old: &BTreeSet<String>,
) -> anyhow::Result<()> {
    are_replaced(scene, hosts, expected, old).await?;
    let status = scene.objects(hosts, "KubeadmControlPlane")?.get("hosts-cp").await?["status"].clone();
    let new = [&status["upToDateReplicas"], &status["updatedReplicas"]].into_iter().find(|count| !count.is_null());
    ensure!(new == Some(&json!(3)) && status["replicas"] == 3, "{status}");
    Ok(())
}

#[tokio::test]
async fn s30_a_host_cluster_is_upgraded_while_three_control_planes_run_on_it() {
    a_host_cluster_is_upgraded(CapiVersion::V1_14).await;
}

#[tokio::test]
async fn s30_a_host_cluster_is_upgraded_under_the_old_contract() {
    a_host_cluster_is_upgraded(CapiVersion::V1_10).await;
}

async fn a_host_cluster_is_upgraded(core: CapiVersion) {
    let scene = Scene::start(core).await.unwrap();
    let (mut hosts, below) = host_cluster(&scene, 3, 0).await.unwrap();
    let mut guests = Vec::new();
    for name in GUESTS {
        let plan = guest(&scene, name, 3).await.unwrap();
        let expected = scene.create(&plan).await.unwrap();
        guests.push((plan, expected));
    }
    for (plan, expected) in &guests {
        scene.wait_running(plan, expected).await.unwrap();
    }
    let old = texts(&machines(&scene, &hosts).await.unwrap(), "/metadata/name");
    let plans: Vec<&ClusterPlan> = guests.iter().map(|(plan, _)| plan).collect();
    let recorder = Recorder::start(&scene, &plans).unwrap();

    hosts.version = "v1.36.4".into();
    scene.testbed.apply_objects(vec![hosts.template("hosts-new", &hosts.version)]).await.unwrap();
    let patch = hosts.control_plane_upgrade("hosts-new");
    scene.objects(&hosts, "KubeadmControlPlane").unwrap().merge("hosts-cp", patch).await.unwrap();
    let upgraded = eventually_within(PATIENCE, "all hosts are new", || is_upgraded(&scene, &hosts, &below, &old));
    let upgraded = scene.kill_during(usize::MAX, KILL_EVERY, upgraded).await;
    scene.explain(upgraded).await.unwrap();
    scene.wait_running(&hosts, &below).await.unwrap();
    for (plan, expected) in &guests {
        scene.wait_running(plan, expected).await.unwrap();
    }
    assert_eq!(recorder.machines_seen() - 9, 9, "each VM is replaced once, on a host that stays");
    let each_one = GUESTS.map(|name| (name.to_owned(), 1));
    assert_eq!(recorder.end().await.unwrap(), BTreeMap::from(each_one), "what control planes missed at the same time");
    assert_eq!(scene.maas.vms().len(), 9);
    for (plan, _) in &guests {
        let on = hosts_of(&scene, plan).await.unwrap();
        assert_eq!(on.len(), 3, "each machine of {} is on a host of its own: {on:?}", plan.name);
    }

    for (plan, _) in &guests {
        scene.objects(plan, "Cluster").unwrap().delete(&plan.name).await.unwrap();
    }
    for (plan, _) in &guests {
        scene.wait_gone(plan).await.unwrap();
    }
    scene.delete(&hosts).await.unwrap();
    scene.stop().await;
}
