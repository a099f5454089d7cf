//! A cluster whose machines really boot: it runs a workload, loses power, and its bootstrap fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use capmaas_e2e::eventually_within;
use capmaas_e2e::real_nodes::RealScene;
use serde_json::json;

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
