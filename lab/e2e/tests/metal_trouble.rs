//! Metal clusters with failures on real components: the manager killed, MAAS down, failing deployments, images that do
//! not exist.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::scene::Scene;
use capmaas_e2e::{eventually, eventually_within};
use capmaas_testbed::CapiVersion;
use maas_sim::faults::ServerState;
use serde_json::json;

#[tokio::test]
async fn a_manager_that_is_killed_all_the_time_takes_no_machine_twice_and_leaves_none() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    let plan = ClusterPlan { workers: 2, ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&plan).await.unwrap();
    scene.kill_during(4, Duration::ZERO, scene.wait_running(&plan, &expected)).await.unwrap();
    assert_eq!(scene.maas.taken().len(), 3, "{:?}", scene.maas.taken());
    assert_eq!(scene.maas.effective("deploy"), 3);

    scene.kill_during(3, Duration::ZERO, scene.delete(&plan)).await.unwrap();
    scene.stop().await;
}

#[tokio::test]
async fn a_maas_that_goes_away_in_the_middle_stops_nothing_for_good_and_takes_nothing_back() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    let plan = ClusterPlan { workers: 1, ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&plan).await.unwrap();
    eventually("the first machine is taken", || async {
        anyhow::ensure!(!scene.maas.taken().is_empty(), "none is");
        Ok(())
    })
    .await
    .unwrap();
    scene.maas.control().set_server(ServerState::Down);
    tokio::time::sleep(Duration::from_secs(20)).await;
    scene.maas.control().set_server(ServerState::Up);
    scene.wait_running(&plan, &expected).await.unwrap();
    assert_eq!(scene.maas.effective("deploy"), 2);

    // Down again: what runs stays Ready for Cluster API, and a deletion waits.
    scene.maas.control().set_server(ServerState::Down);
    let machines = scene.objects(&plan, "MaasMachine").unwrap();
    let clusters = scene.objects(&plan, "Cluster").unwrap();
    scene.reconcile_again(&plan).await.unwrap();
    for machine in machines.list().await.unwrap() {
        assert_eq!(machine["status"]["initialization"]["provisioned"], json!(true), "{machine}");
    }
    clusters.delete("c1").await.unwrap();
    scene.reconcile_again(&plan).await.unwrap();
    assert!(!machines.list().await.unwrap().is_empty(), "machines went while MAAS could not be asked");
    scene.maas.control().set_server(ServerState::Up);
    scene.wait_nothing_left(&plan).await.unwrap();
    scene.stop().await;
}

#[tokio::test]
async fn a_deployment_that_fails_is_given_back_and_another_machine_is_tried() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    // Whichever machine is allocated first will fail.
    let fail = |outcome: &str| {
        let all = scene.maas.machines();
        let statement = |id: &String| json!({"machine": {"system_id": id, "next": {"deploy": outcome}}});
        scene.maas.arrange(json!(all.iter().map(|m| statement(&m.system_id)).collect::<Vec<_>>())).unwrap();
    };
    fail("fail");
    let plan = ClusterPlan::new(scene.core, "c1");
    let expected = scene.create(&plan).await.unwrap();
    let failed = eventually("a deployment failed", || async {
        let failed = scene.maas.machines().into_iter().find(|machine| machine.status == "Failed deployment");
        failed.ok_or_else(|| anyhow::anyhow!("none did: {:?}", scene.maas.taken()))
    })
    .await
    .unwrap();
    fail("pass");
    scene.wait_running(&plan, &expected).await.unwrap();
    let taken = scene.maas.taken();
    assert_eq!(taken.len(), 1, "{taken:?}");
    assert_ne!(taken[0].system_id, failed.system_id);
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}

#[tokio::test]
async fn an_image_that_does_not_exist_is_said_and_not_tried_on_machine_after_machine() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    let plan = ClusterPlan { machine: json!({"image": "custom/no-such-image"}), ..ClusterPlan::new(scene.core, "c1") };
    scene.create(&plan).await.unwrap();
    let machines = scene.objects(&plan, "MaasMachine").unwrap();
    let said = eventually("a condition that names the image", || async {
        let all = machines.list().await?;
        let texts: Vec<String> = all.iter().map(|machine| machine["status"]["conditions"].to_string()).collect();
        let found = texts.iter().find(|text| text.contains("no-such-image")).cloned();
        found.ok_or_else(|| anyhow::anyhow!("the conditions are {texts:?}"))
    });
    let said = scene.explain(said.await).await.unwrap();
    assert!(said.contains("\"status\":\"False\""), "{said}");
    scene.reconcile_again(&plan).await.unwrap();
    assert!(scene.maas.effective("allocate") <= 2, "{} machines were tried", scene.maas.effective("allocate"));
    let within = Duration::from_secs(120);
    scene.objects(&plan, "Cluster").unwrap().delete("c1").await.unwrap();
    let gone = eventually_within(within, "the cluster is gone", || async { scene.wait_nothing_left(&plan).await });
    gone.await.unwrap();
    scene.stop().await;
}
