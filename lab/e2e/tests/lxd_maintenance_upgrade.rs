//! A cluster of LXD hosts is upgraded on real components while control planes of other clusters run on them, and the
//! manager is killed repeatedly.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::ensure;
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::eventually_within;
use capmaas_e2e::maas::Expected;
use capmaas_e2e::maintenance::{KILL_EVERY, become_hosts, guest, host_cluster, machines};
use capmaas_e2e::recorder::Recorder;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::{Value, json};

/// Three hosts, one after the other: each needs a new machine first, then three VMs leave it, then it is released.
const PATIENCE: Duration = Duration::from_secs(1800);
const GUESTS: [&str; 3] = ["g1", "g2", "g3"];

fn texts(all: &[Value], pointer: &str) -> BTreeSet<String> {
    all.iter().filter_map(|object| object.pointer(pointer)?.as_str().map(str::to_owned)).collect()
}

/// All hosts are new ones of this version, and all VMs are on them.
async fn is_upgraded(
    scene: &Scene,
    hosts: &ClusterPlan,
    expected: &Expected,
    old: &BTreeSet<String>,
) -> anyhow::Result<()> {
    // Meanwhile the agents of new hosts set them up.
    become_hosts(scene, hosts, expected).await?;
    let status = scene.objects(hosts, "KubeadmControlPlane")?.get("hosts-cp").await?["status"].clone();
    ensure!(status["upToDateReplicas"] == 3 && status["replicas"] == 3, "{status}");
    let all = machines(scene, hosts).await?;
    let names = texts(&all, "/metadata/name");
    ensure!(names.len() == 3 && names.is_disjoint(old), "{names:?}");
    let (new, used): (_, BTreeSet<String>) =
        (texts(&all, "/status/hostname"), scene.maas.vms().into_iter().map(|vm| vm.host).collect());
    ensure!(used.is_subset(&new), "VMs are on {used:?}, the hosts are {new:?}");
    Ok(())
}

#[tokio::test]
async fn s30_a_host_cluster_is_upgraded_while_three_control_planes_run_on_it() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
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
    let reference = json!({"spec": {"infrastructureRef": {"name": "hosts-new"}}});
    let patch = json!({"spec": {"version": hosts.version, "machineTemplate": reference}});
    scene.objects(&hosts, "KubeadmControlPlane").unwrap().merge("hosts-cp", patch).await.unwrap();
    let upgraded = eventually_within(PATIENCE, "all hosts are new", || is_upgraded(&scene, &hosts, &below, &old));
    let upgraded = scene.kill_during(usize::MAX, KILL_EVERY, upgraded).await;
    scene.explain(upgraded).await.unwrap();
    scene.wait_running(&hosts, &below).await.unwrap();
    for (plan, expected) in &guests {
        scene.wait_running(plan, expected).await.unwrap();
    }
    // Each of the nine VMs is replaced once, on a host that stays. A manager that has just started may place one before it knows
    // which hosts leave, and that one is replaced again.
    let replaced = recorder.machines_seen() - 9;
    assert!((9..=12).contains(&replaced), "{replaced} Machines were replaced");
    let each_one = GUESTS.map(|name| (name.to_owned(), 1));
    assert_eq!(recorder.end().await.unwrap(), BTreeMap::from(each_one), "what control planes missed at the same time");
    assert_eq!(scene.maas.vms().len(), 9);

    for (plan, _) in &guests {
        scene.objects(plan, "Cluster").unwrap().delete(&plan.name).await.unwrap();
    }
    for (plan, _) in &guests {
        scene.wait_gone(plan).await.unwrap();
    }
    scene.delete(&hosts).await.unwrap();
    scene.stop().await;
}
