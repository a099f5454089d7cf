//! The manager's identity in MAAS while clusters run: keys that change, a different MAAS, a MAAS restored from a
//! backup.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

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

    // Another key of the same user, the old one revoked: work continues.
    let key = "newconsumer:newtoken:CANARYnewkeysecret";
    scene.maas.arrange(json!([{"user": {"name": USER, "keys": [key]}}])).unwrap();
    scene.give_credentials(&scene.maas.endpoint, key).await.unwrap();
    let deployments = scene.objects(&plan, "MachineDeployment").unwrap();
    plan.workers = 2;
    deployments.merge("c1-md", json!({"spec": {"replicas": 2}})).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();

    // Another MAAS, which knows none of our machines: nothing is allocated there, and nothing is considered gone.
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
    scene.reconcile_again(&plan).await.unwrap();
    assert_eq!(other.mutations().len(), 0, "{:?}", other.mutations());
    for machine in machines.list().await.unwrap() {
        if machine["metadata"]["name"] != extra["metadata"]["name"] {
            assert_eq!(machine["status"]["initialization"]["provisioned"], json!(true), "{machine}");
        }
    }
    assert_eq!(scene.maas.taken().len(), 3);

    // The right MAAS again: the waiting machine is provisioned.
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
    let of_machines = || scene.maas.mutations().into_iter().filter(|entry| entry.machine.is_some()).count();
    let before = of_machines();

    // In MAAS all machines are now free; two of them run nodes.
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
    // The cluster's DNS record, which is lost too, may be restored; no machine is touched.
    assert_eq!(of_machines(), before, "{:?}", scene.maas.mutations().last());
    let running = scene.maas.machines().into_iter().filter(|machine| machine.on).count();
    assert_eq!(running, 2, "nodes were switched off");
    scene.stop().await;
}

#[tokio::test]
async fn s05_a_key_of_another_user_counts_once_that_user_sees_a_machine_of_ours() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    let mut plan = ClusterPlan { workers: 1, ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let deployments = scene.objects(&plan, "MachineDeployment").unwrap();
    let machines = scene.objects(&plan, "MaasMachine").unwrap();

    // A user who may not see other users' machines: none of our machines is visible, and that is no reason to do
    // anything.
    let (stranger, admin) = ("a:b:CANARYstranger", "c:d:CANARYadmin");
    let users = json!([
        {"user": {"name": "stranger", "admin": false, "key": stranger}},
        {"user": {"name": "second", "admin": true, "key": admin}},
    ]);
    scene.maas.arrange(users).unwrap();
    scene.give_credentials(&scene.maas.endpoint, stranger).await.unwrap();
    let before = scene.maas.mutations().len();
    deployments.merge("c1-md", json!({"spec": {"replicas": 2}})).await.unwrap();
    let said = eventually("the new machine says that it does not trust the user", || async {
        let all = machines.list().await?;
        let new = all.into_iter().find(|machine| machine["spec"]["providerID"].is_null());
        let text = new.map(|machine| machine["status"]["conditions"].to_string()).unwrap_or_default();
        anyhow::ensure!(text.contains("IdentityChanged"), "the conditions are {text}");
        Ok(())
    });
    scene.explain(said.await).await.unwrap();
    scene.reconcile_again(&plan).await.unwrap();
    assert_eq!(scene.maas.mutations().len(), before, "{:?}", scene.maas.mutations().last());
    assert_eq!(scene.maas.taken().len(), 2);

    // An administrator sees them all: work continues, and what the first user allocated is released too.
    scene.give_credentials(&scene.maas.endpoint, admin).await.unwrap();
    plan.workers = 2;
    scene.wait_running(&plan, &expected).await.unwrap();
    assert_eq!(scene.maas.effective("deploy"), 3);
    scene.delete(&plan).await.unwrap();
    assert_eq!(scene.secrets_seen().await.unwrap(), Vec::<String>::new());
    scene.stop().await;
}

#[tokio::test]
async fn s13_credentials_of_a_cluster_outlive_its_whole_namespace() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    let key = "e:f:CANARYteam";
    scene.maas.arrange(json!([{"user": {"name": "team", "admin": true, "key": key}}])).unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "maas-of-the-team", "namespace": "team-a"},
        "stringData": {"maasEndpoint": scene.maas.endpoint, "apiKey": key},
    });
    scene.testbed.apply_objects(vec![namespace, secret]).await.unwrap();
    let plan = ClusterPlan {
        workers: 1,
        namespace: "team-a".into(),
        infrastructure: json!({"identityRef": {"name": "maas-of-the-team"}}),
        ..ClusterPlan::new(scene.core, "c1")
    };
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let owners: Vec<Option<String>> = scene.maas.taken().into_iter().map(|machine| machine.owner).collect();
    assert_eq!(owners, [Some("team".to_owned()), Some("team".to_owned())]);

    // Everything at once: Secrets are deleted immediately, machines only after MAAS has released them. The manager
    // restarts in between.
    scene.testbed.kubectl(["delete", "namespace", "team-a", "--wait=false"]).await.unwrap();
    let gone = eventually("the Secret is gone", || async {
        let left = scene.objects(&plan, "Secret")?.list().await?;
        anyhow::ensure!(left.iter().all(|secret| secret["metadata"]["name"] != "maas-of-the-team"), "it is there");
        Ok(())
    });
    gone.await.unwrap();
    scene.kill_manager().await.unwrap();
    scene.wait_nothing_left(&plan).await.unwrap();
    scene.testbed.kubectl(["wait", "--for=delete", "namespace/team-a", "--timeout=120s"]).await.unwrap();
    assert_eq!(scene.secrets_seen().await.unwrap(), Vec::<String>::new());
    scene.stop().await;
}
