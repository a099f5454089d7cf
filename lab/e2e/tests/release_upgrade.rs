//! A running cluster of the shipped template through the lifecycle of its provider: installed by clusterctl, described,
//! upgraded from the release of one series to that of the next, rolled back, deleted, uninstalled.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::maas::{API_KEY, DOMAIN, Maas, image};
use capmaas_e2e::release::{NEW_CONTRACT, OLD_CONTRACT, judge, release_of};
use capmaas_e2e::scene::Scene;
use capmaas_e2e::{Objects, eventually};
use capmaas_testbed::parse_yaml;
use serde_json::json;

/// The version of the kubeadm that validates.
const VERSION: &str = "v1.36.4";

#[tokio::test]
async fn an_upgrade_of_the_provider_leaves_a_running_cluster_as_it_is() {
    let maas = Arc::new(Maas::start().unwrap());
    let (scene, clusterctl) = Scene::start_release(maas.clone(), OLD_CONTRACT).await.unwrap();
    let expected = scene.expect_cluster().await.unwrap();
    let mut plan = ClusterPlan::new(scene.core, "c1");
    (plan.control_planes, plan.workers) = (2, 1);
    let mut secrets = plan.secrets(&expected);
    for secret in &mut secrets {
        // Of an external etcd, machines know the certificate authority but not its key.
        if secret["metadata"]["name"] == "c1-etcd" {
            secret["data"].as_object_mut().unwrap().remove("tls.key");
        }
    }
    scene.testbed.apply_objects(secrets).await.unwrap();

    let mut command = clusterctl.command();
    command
        .args(["generate", "cluster", "c1", "--kubernetes-version", VERSION, "--worker-machine-count", "1"])
        .args(["--infrastructure", &format!("maas:{}", release_of(OLD_CONTRACT).unwrap())])
        .env("MAAS_DNS_DOMAIN", DOMAIN)
        .env("API_SERVER_PORT", expected.port.to_string())
        .env("CONTROL_PLANE_MACHINE_IMAGE", image(VERSION))
        .env("WORKER_MACHINE_IMAGE", image(VERSION));
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut objects = parse_yaml(&String::from_utf8(output.stdout).unwrap()).unwrap();
    // The simulated API servers have one external etcd, so two control-plane machines are allowed; the rest is as in
    // the template.
    let control_plane = objects.iter_mut().find(|object| object["kind"] == "KubeadmControlPlane").unwrap();
    control_plane["spec"]["replicas"] = json!(2);
    control_plane["spec"]["machineTemplate"]["metadata"] =
        json!({"annotations": {"machine.cluster.x-k8s.io/certificates-expiry": "2036-01-01T00:00:00Z"}});
    control_plane["spec"]["kubeadmConfigSpec"]["clusterConfiguration"] = json!({"etcd": {"external": {
        "endpoints": ["https://127.0.0.1:2379"],
        "caFile": "/etc/kubernetes/pki/etcd/ca.crt",
        "certFile": "/etc/kubernetes/pki/apiserver-etcd-client.crt",
        "keyFile": "/etc/kubernetes/pki/apiserver-etcd-client.key",
    }}});
    scene.testbed.apply_objects(objects).await.unwrap();

    let machines = scene.objects(&plan, "Machine").unwrap();
    let running = || async {
        let all = machines.list().await?;
        let running = all.iter().filter(|machine| machine["status"]["phase"] == "Running").count();
        ensure!(running == 3 && all.len() == 3, "{running} of {} Machines are Running", all.len());
        Ok(())
    };
    let patience = std::time::Duration::from_secs(300);
    let up = capmaas_e2e::eventually_within(patience, "two control planes and a worker", running).await;
    scene.explain(up).await.unwrap();

    // The first control-plane machine, the one that joins and the worker: each with its kubeadm configuration.
    let secrets = Objects::of(&scene.testbed, "", "v1", "Secret").unwrap();
    let mut kinds = Vec::new();
    for machine in machines.list().await.unwrap() {
        let name = machine["spec"]["bootstrap"]["dataSecretName"].as_str().unwrap().to_owned();
        let user_data = judge(&scene.testbed, &name, &secrets.get(&name).await.unwrap()).await.unwrap();
        let joins_control_plane = user_data.contains("controlPlane:");
        kinds.push((user_data.contains("InitConfiguration"), joins_control_plane));
    }
    kinds.sort_unstable();
    assert_eq!(kinds, [(false, false), (false, true), (true, false)], "a worker, a second and a first control plane");
    let described = clusterctl.run(["describe", "cluster", "c1", "--show-conditions", "all"]).await.unwrap();
    assert!(described.contains("MaasCluster default/c1"), "{described}");

    let before = maas.mutations().len();
    let planned = clusterctl.run(["upgrade", "plan"]).await.unwrap();
    assert!(planned.contains("infrastructure-maas"), "{planned}");
    let newer = release_of(NEW_CONTRACT).unwrap();
    let wanted = format!("capmaas-system/maas:{newer}");
    clusterctl.run(["upgrade", "apply", "--infrastructure", &wanted]).await.unwrap();
    let upgraded = eventually("the provider of the newer series, running", || async {
        let inventory = scene
            .testbed
            .kubectl(["get", "providers", "-n", "capmaas-system", "-o", "jsonpath={.items[*].version}"])
            .await?;
        ensure!(inventory == newer, "the inventory says {inventory}");
        let available =
            ["get", "deployment", "-n", "capmaas-system", "-o", "jsonpath={.items[*].status.availableReplicas}"];
        let available = scene.testbed.kubectl(available).await?;
        ensure!(available == "1", "{available:?} managers are available");
        Ok(())
    });
    scene.explain(upgraded.await).await.unwrap();
    // The new manager has had time to do something wrong.
    tokio::time::sleep(std::time::Duration::from_secs(15)).await;
    running().await.unwrap();
    assert_eq!(maas.mutations().len(), before, "{:#?}", &maas.mutations()[before..]);

    // And back: the provider is deleted, its CRDs and objects stay, and the older release takes them over again.
    clusterctl.run(["delete", "--infrastructure", "maas"]).await.unwrap();
    let older = release_of(OLD_CONTRACT).unwrap();
    clusterctl.run(["init", "--infrastructure", &format!("maas:{older}")]).await.unwrap();
    let rolled_back = eventually("the provider of the older series, running", || async {
        let available =
            ["get", "deployment", "-n", "capmaas-system", "-o", "jsonpath={.items[*].status.availableReplicas}"];
        let available = scene.testbed.kubectl(available).await?;
        ensure!(available == "1", "{available:?} managers are available");
        Ok(())
    });
    scene.explain(rolled_back.await).await.unwrap();
    scene.give_credentials(&maas.endpoint, API_KEY).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(15)).await;
    running().await.unwrap();
    assert_eq!(maas.mutations().len(), before, "{:#?}", &maas.mutations()[before..]);

    scene.delete(&plan).await.unwrap();
    clusterctl.run(["delete", "--infrastructure", "maas"]).await.unwrap();
    let left = scene.testbed.kubectl(["get", "deployments", "-n", "capmaas-system", "-o", "name"]).await;
    assert_eq!(left.context("the Deployments").unwrap(), "", "the manager is gone");
    let kinds = scene.testbed.kubectl(["get", "crds", "-o", "name"]).await.unwrap();
    assert!(kinds.contains("maasmachines.infrastructure"), "the kinds, and with them everybody's objects, stay");
    scene.stop().await;
}
