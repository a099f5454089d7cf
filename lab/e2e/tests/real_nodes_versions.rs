//! Machines that really boot are replaced by others: a new version, VMs, a roll-out, and a move of their management.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::ensure;
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::eventually_within;
use capmaas_e2e::maas::image;
use capmaas_e2e::real_nodes::{Flavor, RealScene};
use capmaas_e2e::scene::Scene;
use capmaas_testbed::nodes::{KUBERNETES, OLDER_KUBERNETES};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(300);

#[tokio::test]
async fn a_cluster_of_the_class_is_upgraded_by_its_version_alone() {
    let real = RealScene::start().await.unwrap();
    real.add_older_image().await.unwrap();
    let flavor = Flavor { name: "clusterclass", kubernetes: OLDER_KUBERNETES, image: image("{version}") };
    let mut objects = real.generate_of(&flavor, "c1", 1, 1).await.unwrap();
    // Changes by a user to the class's own templates are kept.
    let mut templates = objects.iter_mut().filter(|object| object["metadata"]["name"] == "maas-worker");
    templates.find(|object| object["kind"] == "MaasMachineTemplate").unwrap()["spec"]["template"]["spec"]["resourcePool"] =
        json!("default");
    real.bring_up("c1", objects, 2).await.unwrap();
    let pools: BTreeSet<String> = real
        .maas_machines()
        .unwrap()
        .list()
        .await
        .unwrap()
        .iter()
        .map(|it| it["spec"]["resourcePool"].to_string())
        .collect();
    assert_eq!(pools, BTreeSet::from(["\"default\"".to_owned(), "null".to_owned()]));
    let (old, new) = (OLDER_KUBERNETES.as_str(), KUBERNETES.as_str());
    assert_eq!(real.kubelets("c1").await.unwrap(), [old, old]);
    real.run_a_workload("c1").await.unwrap();

    let start = Instant::now();
    real.patch("cluster/c1", json!({"spec": {"topology": {"version": new}}})).await.unwrap();
    let outcome = eventually_within(2 * PATIENCE, "two machines of the new version and no other", || async {
        let (kubelets, installed) = (real.kubelets("c1").await?, real.host.installed()?);
        ensure!(kubelets == [new, new] && installed.len() == 2, "{kubelets:?} on {installed:?}");
        Ok(())
    })
    .await;
    real.scene.explain(outcome).await.unwrap();
    real.wait_ready("c1", 2).await.unwrap();
    println!("{new} after {} s", start.elapsed().as_secs());
    real.wait_members("c1", 1).await.unwrap();
    real.run_a_workload("c1").await.unwrap();
    real.delete("c1").await.unwrap();
    real.stop().await;
}

#[tokio::test]
async fn vms_of_lxd_hosts_become_nodes_alone_and_beside_metal() {
    let real = RealScene::start().await.unwrap();
    real.scene.maas.add_hosts(1).unwrap();
    // The flavor mixed has one worker more than requested, a VM.
    for (name, nodes, vms) in [("lxd", 2, 2), ("mixed", 3, 2)] {
        let start = Instant::now();
        let objects = real.generate_of(&Flavor { name, ..Flavor::default() }, "c1", 1, 1).await.unwrap();
        real.bring_up("c1", objects, nodes).await.unwrap();
        println!("{name}: {nodes} Nodes Ready after {} s", start.elapsed().as_secs());
        let running = real.scene.maas.vms().into_iter().filter(|vm| vm.status == "Deployed").count();
        assert_eq!(running, vms, "{:?}", real.scene.maas.vms());
        real.run_a_workload("c1").await.unwrap();
        real.delete("c1").await.unwrap();
    }
    real.stop().await;
}

#[tokio::test]
async fn workers_are_rolled_out_and_a_move_there_and_back_leaves_real_nodes_alone() {
    let mut real = RealScene::start().await.unwrap();
    real.create("c1", 1, 1).await.unwrap();
    let before = real.names("c1", false).await.unwrap();
    let start = Instant::now();
    real.clusterctl.run(["alpha", "rollout", "restart", "machinedeployment/c1-md-0"]).await.unwrap();
    let outcome = eventually_within(PATIENCE, "another worker", || async {
        let now = real.names("c1", false).await?;
        ensure!(now.len() == 1 && now.is_disjoint(&before), "the workers are {now:?}, before {before:?}");
        Ok(())
    })
    .await;
    real.scene.explain(outcome).await.unwrap();
    real.wait_ready("c1", 2).await.unwrap();
    println!("another worker after {} s", start.elapsed().as_secs());
    real.run_a_workload("c1").await.unwrap();

    let (maas, plan) = (real.scene.maas.clone(), ClusterPlan::new(real.scene.core, "c1"));
    let mut other = Scene::start_by_clusterctl(maas.clone()).await.unwrap();
    let mutations = maas.mutations().len();
    for direction in ["there", "back"] {
        other = real.move_to(other).await.unwrap();
        real.wait_ready("c1", 2).await.unwrap();
        real.run_a_workload("c1").await.unwrap();
        // The manager there reconciles everything several times; the previous one has nothing left to reconcile.
        real.scene.reconcile_again(&plan).await.unwrap();
        assert_eq!(other.0.objects(&plan, "MaasMachine").unwrap().list().await.unwrap(), Vec::<Value>::new());
        assert_eq!(maas.mutations().len(), mutations, "{direction}: {:#?}", &maas.mutations()[mutations..]);
    }
    other.0.stop().await;
    real.delete("c1").await.unwrap();
    real.stop().await;
}
