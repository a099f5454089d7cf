//! Who the manager is to MAAS, while clusters run: keys that change, a MAAS that is another one, a MAAS from a backup.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::eventually;
use capmaas_e2e::maas::{API_KEY, Maas, USER};
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::json;

#[tokio::test]
async fn s05_a_new_key_is_picked_up_and_an_empty_maas_is_not_believed() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    let mut plan = ClusterPlan { workers: 1, ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();

    // Another key of the same user, the old one revoked: work goes on.
    let key = "newconsumer:newtoken:CANARYnewkeysecret";
    scene.maas.arrange(json!([{"user": {"name": USER, "keys": [key]}}])).unwrap();
    scene.give_credentials(&scene.maas.endpoint, key).await.unwrap();
    let deployments = scene.objects(&plan, "MachineDeployment").unwrap();
    plan.workers = 2;
    deployments.merge("c1-md", json!({"spec": {"replicas": 2}})).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();

    // Another MAAS, which knows none of our machines: nothing is taken there, nothing is believed to be gone.
    let other = Maas::start().unwrap();
    scene.give_credentials(&other.endpoint, API_KEY).await.unwrap();
    deployments.merge("c1-md", json!({"spec": {"replicas": 3}})).await.unwrap();
    let machines = scene.objects(&plan, "MaasMachine").unwrap();
    let extra = eventually("a fourth MaasMachine", || async {
        let all = machines.list().await?;
        let new = all.iter().find(|machine| machine["spec"]["providerID"].is_null());
        new.cloned().ok_or_else(|| anyhow::anyhow!("there are {}", all.len()))
    })
    .await
    .unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(other.mutations().len(), 0, "{:?}", other.mutations());
    for machine in machines.list().await.unwrap() {
        if machine["metadata"]["name"] != extra["metadata"]["name"] {
            assert_eq!(machine["status"]["initialization"]["provisioned"], json!(true), "{machine}");
        }
    }
    assert_eq!(scene.maas.taken().len(), 3);

    // The right MAAS again: the waiting machine comes.
    scene.give_credentials(&scene.maas.endpoint, key).await.unwrap();
    plan.workers = 3;
    scene.wait_running(&plan, &expected).await.unwrap();
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}

#[tokio::test]
async fn s06_a_maas_restored_from_a_backup_loses_no_running_node() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    let plan = ClusterPlan { workers: 1, ..ClusterPlan::new(scene.core, "c1") };
    scene.maas.control().backup("before");
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let before = scene.maas.mutations().len();

    // MAAS believes that all machines are free; two of them run nodes.
    scene.maas.control().restore("before").unwrap();
    let machines = scene.objects(&plan, "MaasMachine").unwrap();
    let told = eventually("the machines are reported", || async {
        let all = machines.list().await?;
        let ready = |machine: &serde_json::Value| {
            let conditions = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        };
        anyhow::ensure!(!all.iter().any(ready), "some are still called Ready");
        Ok(())
    });
    scene.explain(told.await).await.unwrap();
    assert_eq!(scene.maas.mutations().len(), before, "{:?}", scene.maas.mutations().last());
    let running = scene.maas.machines().into_iter().filter(|machine| machine.on).count();
    assert_eq!(running, 2, "nodes were switched off");
    scene.stop().await;
}
