//! Machines whose requests MAAS refuses wait for their back-off, on a real API server with real watches (S26).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::eventually;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::{Value, json};

const HALF_A_MINUTE: Duration = Duration::from_secs(30);

fn reason(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == "MachineDeployed").unwrap_or_default();
    found["reason"].as_str().unwrap_or_default().to_owned()
}

/// How often MAAS receives this request and how often the object is written in half a minute, once a machine reports
/// that it waits.
async fn while_it_waits(machine: Value, because: &str, kind: &str) -> (usize, usize) {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    let plan = ClusterPlan { machine, ..ClusterPlan::new(scene.core, "c1") };
    scene.create(&plan).await.unwrap();
    let machines = scene.objects(&plan, "MaasMachine").unwrap();
    let said = eventually("the machine says what it waits for", || async {
        let reasons: Vec<String> = machines.list().await?.iter().map(reason).collect();
        anyhow::ensure!(reasons.iter().any(|reason| reason == because), "the reasons are {reasons:?}");
        Ok(())
    });
    scene.explain(said.await).await.unwrap();
    let before = scene.maas.control().ledger(Some(kind)).len();
    let mut versions = std::collections::BTreeSet::new();
    let began = tokio::time::Instant::now();
    while began.elapsed() < HALF_A_MINUTE {
        let all = machines.list().await.unwrap();
        versions.extend(all.iter().map(|object| object["metadata"]["resourceVersion"].to_string()));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let asked = scene.maas.control().ledger(Some(kind)).len() - before;
    scene.stop().await;
    (asked, versions.len())
}

#[tokio::test]
async fn s26_a_machine_that_waits_for_hardware_asks_for_it_every_half_minute_and_not_more() {
    let (asked, versions) = while_it_waits(json!({"minCPU": 4000}), "NoMachineAvailable", "machines.allocate").await;
    assert!(asked <= 3, "{asked} allocations in half a minute");
    assert!(versions <= 10, "{versions} versions of the object in half a minute");
}

#[tokio::test]
async fn s26_a_machine_whose_image_maas_does_not_have_tries_every_two_minutes_and_not_more() {
    let wanted = json!({"image": "custom/no-such-image"});
    let (asked, versions) = while_it_waits(wanted, "MachineDeployFailed", "machine.deploy").await;
    assert!(asked <= 3, "{asked} deployments in half a minute");
    assert!(versions <= 10, "{versions} versions of the object in half a minute");
}
