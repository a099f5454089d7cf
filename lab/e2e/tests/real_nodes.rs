//! Clusters whose machines really boot: cloud-init, kubeadm, kubelet and etcd are real, on machines that a simulated
//! MAAS deploys.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use capmaas_e2e::eventually_within;
use capmaas_e2e::maas::image;
use capmaas_e2e::real_nodes::{Flavor, RealScene};
use capmaas_e2e::scene::Scene;
use capmaas_testbed::nodes::{KUBERNETES, OLDER_KUBERNETES};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(300);

#[tokio::test]
async fn real_nodes_run_a_workload_survive_a_power_cut_and_leave_nothing_behind() {
    let real = RealScene::start().await.unwrap();
    let start = Instant::now();
    real.create("c1", 1, 1).await.unwrap();
    println!("both Nodes Ready after {} s", start.elapsed().as_secs());
    let nodes = real.nodes("c1").await.unwrap();
    for node in &nodes {
        assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "v1.36.4");
        assert!(node["spec"]["providerID"].as_str().unwrap().starts_with("maas://az"), "{node}");
    }
    real.run_a_workload("c1").await.unwrap();
    println!("the workload answers after {} s", start.elapsed().as_secs());

    // The control plane loses its power. The manager powers it on again, and etcd and the API server start from its
    // disk.
    let control_plane = real.control_plane("c1").await.unwrap();
    let cut = Instant::now();
    real.cut_power(&control_plane).await.unwrap();
    real.wait_ready("c1", 2).await.unwrap();
    real.run_a_workload("c1").await.unwrap();
    println!("back {} s after the power cut", cut.elapsed().as_secs());

    real.delete("c1").await.unwrap();
    assert_eq!(real.scene.secrets_seen().await.unwrap(), Vec::<String>::new());
    real.stop().await;
}

#[tokio::test]
async fn what_cloud_init_reports_of_bad_user_data_is_in_the_condition_within_seconds() {
    let real = RealScene::start().await.unwrap();
    let mut objects = real.generate("c1", 1, 0).await.unwrap();
    let control_plane = objects.iter_mut().find(|object| object["kind"] == "KubeadmControlPlane").unwrap();
    // kubeadm never runs.
    control_plane["spec"]["kubeadmConfigSpec"]["preKubeadmCommands"] = json!(["exit 3"]);
    real.scene.testbed.apply_objects(objects).await.unwrap();
    let reported = eventually_within(PATIENCE, "a report of cloud-init", || async {
        let said = real.scene.maas.control().with_model(|model| {
            model.db.machines.values().find_map(|machine| {
                machine.status_message.clone().filter(|said| said.starts_with("Node post-installation failure"))
            })
        });
        said.context("MAAS has heard of no failure")
    });
    let reported = real.scene.explain(reported.await).await.unwrap();
    let heard = Instant::now();
    let machines = real.maas_machines().unwrap();
    let said = eventually_within(PATIENCE, "a condition that quotes it", || async {
        let machine = machines.list().await?.pop().context("there is no MaasMachine")?;
        let conditions = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let said = conditions.into_iter().find(|condition| condition["reason"] == "BootstrapFailed");
        said.with_context(|| format!("{}", machine["status"]["conditions"]))
    });
    let said = real.scene.explain(said.await).await.unwrap();
    let after = heard.elapsed();
    println!("{said} {} s after MAAS heard of it", after.as_secs_f32());
    assert!(said["message"].as_str().unwrap().contains("'cloudinit' running "), "{said} instead of {reported}");
    assert!(after < Duration::from_secs(30), "it took {after:?}");
    real.delete("c1").await.unwrap();
    real.stop().await;
}

/// Waits until the members of etcd are exactly the control-plane Nodes.
async fn wait_members(real: &RealScene, wanted: usize) {
    let outcome = eventually_within(PATIENCE, &format!("{wanted} members of etcd"), || async {
        let nodes = real.names("c1", true).await?;
        let members = real.etcd_members(&real.control_plane("c1").await?).await?;
        ensure!(members == nodes && nodes.len() == wanted, "Nodes {nodes:?}, members {members:?}");
        Ok(())
    })
    .await;
    real.scene.explain(outcome).await.unwrap();
}

#[tokio::test]
async fn control_planes_go_from_one_to_three_and_back_with_real_etcd_members() {
    let real = RealScene::start().await.unwrap();
    real.create("c1", 1, 0).await.unwrap();
    wait_members(&real, 1).await;
    for (replicas, machines) in [(3, 3), (1, 1)] {
        let start = Instant::now();
        real.patch("kubeadmcontrolplane/c1-control-plane", json!({"spec": {"replicas": replicas}})).await.unwrap();
        real.wait_ready("c1", machines).await.unwrap();
        wait_members(&real, machines).await;
        println!("{replicas} control planes after {} s", start.elapsed().as_secs());
    }
    real.delete("c1").await.unwrap();
    real.stop().await;
}

#[tokio::test]
async fn three_control_planes_answer_while_one_has_no_power_and_take_it_back() {
    let real = RealScene::start().await.unwrap();
    real.create("c1", 3, 0).await.unwrap();
    wait_members(&real, 3).await;
    let nodes = real.names("c1", true).await.unwrap();
    let before = real.scene.maas.mutations().len();

    let down = real.control_plane("c1").await.unwrap();
    let cut = Instant::now();
    let silence = real.longest_silence("c1", async {
        real.cut_power(&down).await.unwrap();
        // As reported by its own etcd: the others consider it a member, and its Node Ready, for a while without power.
        wait_members(&real, 3).await;
        real.wait_ready("c1", 3).await.unwrap();
    });
    let silence = silence.await;
    println!("{down} is back after {} s, silence of {silence:?} at most", cut.elapsed().as_secs());
    // Until its address is removed from DNS, one of three attempts may reach it.
    assert!(silence < Duration::from_secs(30), "no answer for {silence:?}");
    assert_eq!(real.names("c1", true).await.unwrap(), nodes);
    let after = real.scene.maas.mutations().split_off(before);
    let changes: BTreeSet<&str> = after.iter().map(|entry| entry.kind.as_str()).collect();
    assert!(changes.contains("machine.power_on"), "{changes:?}");
    let taken_away = ["machine.release", "machine.power_off", "machine.deploy", "machine.delete", "machines.allocate"];
    assert!(taken_away.iter().all(|kind| !changes.contains(kind)), "{changes:?}");
    real.delete("c1").await.unwrap();
    real.stop().await;
}

/// The versions of all kubelets of c1.
async fn kubelets(real: &RealScene) -> anyhow::Result<Vec<String>> {
    let nodes = real.nodes("c1").await?;
    let version = |node: &Value| node["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap_or_default().to_owned();
    Ok(nodes.iter().map(version).collect())
}

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
    assert_eq!(kubelets(&real).await.unwrap(), [old, old]);
    real.run_a_workload("c1").await.unwrap();

    let start = Instant::now();
    real.patch("cluster/c1", json!({"spec": {"topology": {"version": new}}})).await.unwrap();
    let outcome = eventually_within(2 * PATIENCE, "two machines of the new version and no other", || async {
        let (kubelets, installed) = (kubelets(&real).await?, real.host.installed()?);
        ensure!(kubelets == [new, new] && installed.len() == 2, "{kubelets:?} on {installed:?}");
        Ok(())
    })
    .await;
    real.scene.explain(outcome).await.unwrap();
    real.wait_ready("c1", 2).await.unwrap();
    println!("{new} after {} s", start.elapsed().as_secs());
    wait_members(&real, 1).await;
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
async fn workers_are_rolled_out_and_a_move_leaves_real_nodes_alone() {
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

    let maas = real.scene.maas.clone();
    let (to, clusterctl) = Scene::start_by_clusterctl(maas.clone()).await.unwrap();
    let mutations = maas.mutations().len();
    let kubeconfig = to.testbed.kubeconfig_path().display().to_string();
    real.clusterctl.run(["move", "--to-kubeconfig", &kubeconfig]).await.unwrap();
    let from = real.move_to(to, clusterctl);
    real.wait_ready("c1", 2).await.unwrap();
    real.run_a_workload("c1").await.unwrap();
    // Both managers have had time to do something wrong.
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(maas.mutations().len(), mutations, "{:#?}", &maas.mutations()[mutations..]);
    from.stop().await;
    real.delete("c1").await.unwrap();
    real.stop().await;
}

#[tokio::test]
async fn a_health_check_replaces_a_worker_whose_bootstrap_failed() {
    let real = RealScene::start().await.unwrap();
    let mut objects = real.generate("c1", 1, 1).await.unwrap();
    let template = objects.iter_mut().find(|object| object["kind"] == "KubeadmConfigTemplate").unwrap();
    let good = template.clone();
    template["spec"]["template"]["spec"]["preKubeadmCommands"] = json!(["exit 3"]);
    real.scene.testbed.apply_objects(objects).await.unwrap();
    real.give_network("c1").await.unwrap();
    let machines = real.maas_machines().unwrap();
    let failed = eventually_within(PATIENCE, "a worker whose bootstrap failed", || async {
        let failed = machines.list().await?.into_iter().find(|machine| {
            let conditions = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|condition| condition["reason"] == "BootstrapFailed")
        });
        failed.context("no MaasMachine says so")
    });
    let failed = real.scene.explain(failed.await).await.unwrap();

    // A user who reads the condition fixes the template; that does not repair the failed machine.
    let check = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck",
        "metadata": {"name": "c1", "namespace": "default"},
        "spec": {"clusterName": "c1", "checks": {"nodeStartupTimeoutSeconds": 30},
                 "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": "c1-md-0"}}},
    });
    real.scene.testbed.apply_objects(vec![good, check]).await.unwrap();
    let name = &failed["metadata"]["name"];
    let condemned = eventually_within(PATIENCE, "the deletion of the failed machine", || async {
        let machines = machines.list().await?;
        let failed = machines.iter().find(|machine| machine["metadata"]["name"] == *name);
        ensure!(failed.is_none_or(|it| it["metadata"]["deletionTimestamp"].is_string()), "it is not deleted yet");
        Ok(())
    });
    real.scene.explain(condemned.await).await.unwrap();
    // On a busy computer its replacement needs longer than that to join, and would be replaced in turn.
    real.patch("machinehealthcheck/c1", json!({"spec": {"checks": {"nodeStartupTimeoutSeconds": 600}}})).await.unwrap();
    let gone = eventually_within(PATIENCE, "the failed machine given back", || async {
        let left = machines.list().await?;
        ensure!(left.iter().all(|machine| machine["metadata"]["name"] != *name), "it is there");
        Ok(())
    });
    real.scene.explain(gone.await).await.unwrap();
    real.wait_ready("c1", 2).await.unwrap();
    real.delete("c1").await.unwrap();
    real.stop().await;
}
