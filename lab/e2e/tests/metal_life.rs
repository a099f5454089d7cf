//! The lifecycle of metal clusters on real components: three zones, scaling, upgrades, pauses, deletions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::eventually;
use capmaas_e2e::maas::ZONES;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::{CapiVersion, Role};
use serde_json::json;

#[tokio::test]
async fn three_control_planes_spread_over_three_zones_then_scale_and_roll_to_a_new_version() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    let mut plan = ClusterPlan {
        control_planes: 3,
        workers: 1,
        infrastructure: json!({"failureDomains": ZONES}),
        ..ClusterPlan::new(scene.core, "c1")
    };
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let joined = scene.maas.nodes(expected.port).await.unwrap();
    let is_control_plane = |name: &String| joined.get(name).is_some_and(|role| *role != Role::Worker);
    let zones: BTreeSet<String> =
        scene.maas.taken().into_iter().filter(|machine| is_control_plane(&machine.hostname)).map(|m| m.zone).collect();
    assert_eq!(zones.into_iter().collect::<Vec<_>>(), ZONES);

    // Scale up and down.
    let deployments = scene.objects(&plan, "MachineDeployment").unwrap();
    for workers in [3, 1] {
        plan.workers = workers;
        deployments.merge("c1-md", json!({"spec": {"replicas": workers}})).await.unwrap();
        scene.wait_running(&plan, &expected).await.unwrap();
    }
    eventually("workers given back", || async {
        let taken = scene.maas.taken();
        anyhow::ensure!(taken.len() == 4, "{} machines are taken", taken.len());
        Ok(())
    })
    .await
    .unwrap();

    // A new version: every machine is replaced, and the DNS name follows.
    let before: BTreeSet<String> = scene.maas.taken().into_iter().map(|machine| machine.system_id).collect();
    let version = "v1.36.4";
    plan.version = version.into();
    let templates = ["c1-cp-new", "c1-md-new"].map(|name| plan.template(name, version)).to_vec();
    scene.testbed.apply_objects(templates).await.unwrap();
    let reference = |name: &str| json!({"infrastructureRef": {"name": name}});
    let control_planes = scene.objects(&plan, "KubeadmControlPlane").unwrap();
    let patch = json!({"spec": {"version": version, "machineTemplate": {"spec": reference("c1-cp-new")}}});
    control_planes.merge("c1-cp", patch).await.unwrap();
    let patch =
        json!({"spec": {"template": {"spec": {"version": version, "infrastructureRef": {"name": "c1-md-new"}}}}});
    deployments.merge("c1-md", patch).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let series: BTreeSet<String> = scene.maas.taken().into_iter().map(|machine| machine.series).collect();
    assert_eq!(series, BTreeSet::from([format!("k8s-{version}")]), "{before:?}");
    let control_plane = scene.control_plane_addresses(&plan).await.unwrap();
    eventually("the name leads to the new control plane", || async {
        let records = scene.maas.records();
        anyhow::ensure!(records.values().collect::<Vec<_>>() == [&control_plane], "{records:?}");
        Ok(())
    })
    .await
    .unwrap();

    scene.delete(&plan).await.unwrap();
    assert_eq!(scene.secrets_seen().await.unwrap(), Vec::<String>::new());
    scene.stop().await;
}

#[tokio::test]
async fn a_paused_cluster_makes_no_change_in_maas_and_deleting_its_whole_namespace_leaves_nothing() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    let plan = ClusterPlan { workers: 1, namespace: "team-a".into(), ..ClusterPlan::new(scene.core, "c1") };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}});
    scene.testbed.apply_objects(vec![namespace]).await.unwrap();
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();

    let clusters = scene.objects(&plan, "Cluster").unwrap();
    let maas_machines = scene.objects(&plan, "MaasMachine").unwrap();
    clusters.merge("c1", json!({"spec": {"paused": true}})).await.unwrap();
    for object in maas_machines.list().await.unwrap() {
        maas_machines.wait_for_condition(object["metadata"]["name"].as_str().unwrap(), "Paused", "True").await.unwrap();
    }
    let before = scene.maas.mutations().len();
    // Changes to paused objects wait until they are resumed.
    let names = maas_machines.list().await.unwrap().into_iter();
    let mut names = names.map(|object| object["metadata"]["name"].as_str().unwrap().to_owned());
    let worker = names.find(|name| name.starts_with("c1-md")).unwrap();
    maas_machines.delete(&worker).await.unwrap();
    scene.reconcile_again(&plan).await.unwrap();
    assert_eq!(scene.maas.mutations().len(), before);
    assert!(maas_machines.get(&worker).await.is_ok(), "a paused machine has lost its finalizer");
    clusters.merge("c1", json!({"spec": {"paused": false}})).await.unwrap();
    eventually("the deleted machine is given back", || async {
        anyhow::ensure!(maas_machines.get(&worker).await.is_err(), "{worker} is still there");
        Ok(())
    })
    .await
    .unwrap();

    scene.testbed.kubectl(["delete", "namespace", "team-a", "--wait=false"]).await.unwrap();
    scene.wait_nothing_left(&plan).await.unwrap();
    scene.testbed.kubectl(["wait", "--for=delete", "namespace/team-a", "--timeout=120s"]).await.unwrap();
    scene.stop().await;
}
