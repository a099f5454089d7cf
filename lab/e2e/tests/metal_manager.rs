//! The manager as a program while clusters run: its log level, its HTTP endpoints, what it must never log, and an
//! upgrade of Cluster API.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::maas::{API_KEY, ZONES};
use capmaas_e2e::scene::Scene;
use capmaas_e2e::{eventually, repository};
use capmaas_testbed::{CapiOptions, CapiVersion};
use maas_sim::faults::ServerState;
use serde_json::json;

#[tokio::test]
async fn s21_no_secret_comes_out_however_much_the_manager_says_and_whatever_goes_wrong() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    // The highest log level, changed over HTTP while it runs.
    let answer = scene.ask_manager("PUT", "/log-level", "trace").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("trace"), "{answer}");
    let refused = scene.ask_manager("PUT", "/log-level", "everything").await.unwrap();
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");

    let plan = ClusterPlan { workers: 1, ..ClusterPlan::new(scene.core, "c1") };
    // Kubeadm's bootstrap data is secret as a whole; a word of the user is added to it.
    let expected = scene.expect_cluster().await.unwrap();
    let mut objects = plan.objects(&expected);
    for object in &mut objects {
        if object["kind"] == "KubeadmControlPlane" {
            object["spec"]["kubeadmConfigSpec"]["preKubeadmCommands"] = json!(["echo CANARYofbootstrapdata"]);
        }
    }
    scene.testbed.apply_objects(objects).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let log = scene.manager_log().await.unwrap();
    assert!(log.contains(r#""level":"DEBUG""#), "the level was not changed");

    // MAAS down, a key that MAAS refuses, an endpoint that is not MAAS.
    scene.maas.control().set_server(ServerState::Down);
    tokio::time::sleep(Duration::from_secs(8)).await;
    scene.maas.control().set_server(ServerState::Up);
    let wrong = ["wrong:wrong:CANARYwrong", "CANARYnotevenakey"];
    for key in wrong {
        scene.give_credentials(&scene.maas.endpoint, key).await.unwrap();
        scene
            .objects(&plan, "MaasCluster")
            .unwrap()
            .wait_for_condition("c1", "CredentialsValid", "False")
            .await
            .unwrap();
    }
    scene.give_credentials("http://CANARYuser:CANARYpassword@127.0.0.1:1/MAAS", API_KEY).await.unwrap();
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(scene.secrets_seen().await.unwrap(), Vec::<String>::new());

    scene.give_credentials(&scene.maas.endpoint, API_KEY).await.unwrap();
    scene.objects(&plan, "MaasCluster").unwrap().wait_for_condition("c1", "CredentialsValid", "True").await.unwrap();
    // What the metrics cover: reconciles, requests by kind and result, machines by state, time per phase.
    let metrics = scene.metrics().await.unwrap();
    for name in ["reconcile_seconds", "maas_requests", "machines{", "phase_seconds"] {
        assert!(metrics.contains(name), "no {name} in {metrics}");
    }
    scene.delete(&plan).await.unwrap();
    assert_eq!(scene.secrets_seen().await.unwrap(), Vec::<String>::new());
    scene.stop().await;
}

#[tokio::test]
async fn a_cluster_api_that_is_upgraded_under_the_running_manager_is_followed() {
    let mut scene = Scene::start(CapiVersion::V1_10).await.unwrap();
    let mut plan = ClusterPlan {
        workers: 1,
        version: "v1.33.0".into(),
        infrastructure: json!({"failureDomains": ZONES}),
        machine: json!({"image": "custom/k8s-v1.35.8"}),
        ..ClusterPlan::new(scene.core, "c1")
    };
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let maas_clusters = scene.objects(&plan, "MaasCluster").unwrap();
    assert!(maas_clusters.get("c1").await.unwrap()["status"]["failureDomains"].is_object());

    // The new core reads a list, and prefers another version of its own kinds.
    let before = scene.maas.mutations().len();
    scene.testbed.start_cluster_api(&CapiOptions::new(CapiVersion::V1_14)).await.unwrap();
    scene.core = CapiVersion::V1_14;
    plan.core = CapiVersion::V1_14;
    let followed = eventually("the failure domains are a list", || async {
        let domains = maas_clusters.get("c1").await?["status"]["failureDomains"].clone();
        anyhow::ensure!(domains.is_array(), "{domains}");
        Ok(())
    });
    scene.explain(followed.await).await.unwrap();
    assert_eq!(scene.maas.mutations().len(), before);

    plan.workers = 2;
    let deployments = scene.objects(&plan, "MachineDeployment").unwrap();
    deployments.merge("c1-md", json!({"spec": {"replicas": 2}})).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}

#[tokio::test]
async fn a_manager_with_a_watch_filter_takes_only_what_carries_its_label() {
    let mut scene = Scene::without_manager(CapiVersion::V1_14).await.unwrap();
    let manifests = repository().join("config/default");
    let manifests = scene.testbed.kubectl(["kustomize".as_ref(), manifests.as_os_str()]).await.unwrap();
    let mut objects = capmaas_testbed::parse_yaml(&manifests).unwrap();
    for object in &mut objects {
        if let Some(args) = object.pointer_mut("/spec/template/spec/containers/0/args").and_then(|a| a.as_array_mut()) {
            args.push(json!("--watch-filter=blue"));
            args.push(json!("--maas-poll-interval=1s"));
        }
    }
    scene.testbed.apply_objects(objects).await.unwrap();
    scene.start_installed_manager().await.unwrap();
    let plan = ClusterPlan::new(scene.core, "c1");
    let maas_clusters = scene.objects(&plan, "MaasCluster").unwrap();
    let clusters = scene.objects(&plan, "Cluster").unwrap();
    for (name, colour) in [("blue", "blue"), ("red", "red")] {
        let labels = json!({"cluster.x-k8s.io/watch-filter": colour});
        let reference = json!({"apiGroup": capmaas_e2e::INFRASTRUCTURE, "kind": "MaasCluster", "name": name});
        let object = json!({"metadata": {"labels": labels}, "spec": {"dnsDomain": "k8s.example"}});
        maas_clusters.apply(name, object).await.unwrap();
        let object = json!({"metadata": {"labels": labels}, "spec": {"infrastructureRef": reference}});
        clusters.apply(name, object).await.unwrap();
    }
    maas_clusters.wait("blue", "/status/initialization/provisioned", json!(true)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let red = maas_clusters.get("red").await.unwrap();
    assert!(red["status"].get("conditions").is_none() && red["metadata"].get("finalizers").is_none(), "{red}");
    scene.stop().await;
}
