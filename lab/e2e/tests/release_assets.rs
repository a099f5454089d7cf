//! clusterctl installs what `make release` builds, and cloud-init and kubeadm accept what its templates produce on a
//! machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use anyhow::Context as _;
use capmaas_e2e::maas::{API_KEY, DOMAIN, Maas, image};
use capmaas_e2e::release::{FLAVORS, NEW_CONTRACT, OLD_CONTRACT, judge, release_of};
use capmaas_e2e::scene::Scene;
use capmaas_e2e::{INFRASTRUCTURE, Objects, eventually, repository};
use capmaas_testbed::parse_yaml;
use serde_json::{Value, json};

/// The version of the kubeadm that validates.
const VERSION: &str = "v1.36.4";

/// The cluster that clusterctl generates from a flavor: one control plane, one worker.
async fn generate(
    clusterctl: &capmaas_testbed::Clusterctl,
    name: &str,
    flavor: &str,
    contract: &str,
    stock: bool,
) -> Vec<Value> {
    let mut command = clusterctl.command();
    let provider = format!("maas:{}", release_of(contract).unwrap());
    command.args(["generate", "cluster", name, "--infrastructure", &provider, "--kubernetes-version", VERSION]);
    command.args(["--control-plane-machine-count", "1", "--worker-machine-count", "1"]);
    if !flavor.is_empty() {
        command.args(["--flavor", flavor]);
    }
    let version = if flavor == "clusterclass" { "{version}" } else { VERSION };
    command.env("MAAS_DNS_DOMAIN", DOMAIN).env("CONTROL_PLANE_MACHINE_IMAGE", image(version));
    if !stock {
        command.env("IMAGE_HAS_KUBERNETES", "true").env("CONTROL_PLANE_MACHINE_TAGS", "[fast, dry]");
    }
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{flavor}: {}", String::from_utf8_lossy(&output.stderr));
    parse_yaml(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

#[tokio::test]
async fn every_flavor_installs_and_its_user_data_is_accepted_by_cloud_init_and_kubeadm() {
    let maas = Arc::new(Maas::start().unwrap());
    let (scene, clusterctl) = Scene::start_release(maas, NEW_CONTRACT).await.unwrap();
    for (number, flavor) in FLAVORS.into_iter().enumerate() {
        // Every second one has an image that already contains Kubernetes.
        let mut objects = generate(&clusterctl, &format!("c{number}"), flavor, NEW_CONTRACT, number % 2 == 0).await;
        assert!(objects.len() >= 2, "{flavor}: {objects:?}");
        // A user's own ClusterClass asks for more.
        for object in objects.iter_mut().filter(|object| object["metadata"]["name"] == "maas-control-plane") {
            object["spec"]["template"]["spec"]["resourcePool"] = json!("fast");
        }
        scene.testbed.apply_objects(objects).await.unwrap();
    }
    let configs = Objects::of(&scene.testbed, "bootstrap.cluster.x-k8s.io", NEW_CONTRACT, "KubeadmConfig").unwrap();
    let secrets = Objects::of(&scene.testbed, "", "v1", "Secret").unwrap();
    for (number, flavor) in FLAVORS.into_iter().enumerate() {
        let cluster = format!("c{number}");
        let what = format!("user data of a control plane of flavor {flavor:?}");
        let made = eventually(&what, || async {
            let all = configs.list().await?;
            let mine = all.iter().find(|config| {
                let labels = &config["metadata"]["labels"];
                labels["cluster.x-k8s.io/cluster-name"] == cluster.as_str()
                    && labels.get("cluster.x-k8s.io/control-plane").is_some()
            });
            let name = mine.and_then(|config| config["status"]["dataSecretName"].as_str());
            secrets.get(name.context("there is none yet")?).await
        });
        let made = scene.explain(made.await).await.unwrap();
        let user_data = judge(&scene.testbed, &cluster, &made).await.unwrap();
        assert!(user_data.contains("/usr/local/sbin/prepare-node v1.36.4"), "{flavor}");
        assert!(user_data.contains(if number % 2 == 0 { "v1.36.4 false" } else { "v1.36.4 true" }), "{flavor}");
        assert_eq!(
            user_data.contains("5.21/stable"),
            flavor == "hcp",
            "LXD is installed on nodes that become hosts: {flavor}"
        );
    }
    let machines = Objects::of(&scene.testbed, INFRASTRUCTURE, "v1beta1", "MaasMachine").unwrap().list().await.unwrap();
    let of_class =
        FLAVORS.iter().position(|flavor| *flavor == "clusterclass").map(|number| json!(format!("c{number}")));
    let is_its_control_plane = |labels: &Value| {
        Some(&labels["cluster.x-k8s.io/cluster-name"]) == of_class.as_ref()
            && labels.get("cluster.x-k8s.io/control-plane").is_some()
    };
    let machine = machines.iter().find(|machine| is_its_control_plane(&machine["metadata"]["labels"])).unwrap();
    let spec = &machine["spec"];
    assert_eq!((&spec["resourcePool"], &spec["image"]), (&json!("fast"), &json!(image(VERSION))), "{spec}");

    let described = clusterctl.run(["describe", "cluster", "c0"]).await.unwrap();
    assert!(described.contains("MaasCluster default/c0"), "{described}");

    // The plugin reports the same, and reads MAAS with the user's own key.
    let plugin = async |arguments: &[&str]| scene.plugin(arguments).await.unwrap();
    let machines = plugin(&["machines"]).await;
    assert!(machines.contains("WAITS FOR") && machines.contains("c0-control-plane-"), "{machines}");
    let name = machines.split_whitespace().find(|word| word.starts_with("c0-control-plane-")).unwrap().to_owned();
    let explained = plugin(&["explain", &name]).await;
    assert!(explained.contains("waits for") && explained.contains("MachineDeployed"), "{explained}");
    assert_eq!(plugin(&["hosts", "--json"]).await, "[]\n");
    let doctor = plugin(&["doctor"]).await;
    for right in ["[ ok ] Manager      it runs", "[ ok ] DNS domains", "[ ok ] Clock", "[ ok ] Credentials"] {
        assert!(doctor.contains(right), "{right} is missing:\n{doctor}");
    }
    assert!(!doctor.contains(API_KEY.rsplit(':').next().unwrap()), "{doctor}");

    // Clusters of the older series, as the API server and Cluster API's webhooks would accept them.
    for flavor in FLAVORS {
        let objects = generate(&clusterctl, "old", flavor, OLD_CONTRACT, true).await;
        let newer = objects.iter().find(|object| object["apiVersion"].as_str().unwrap().ends_with("/v1beta2"));
        assert_eq!(newer, None, "{flavor}");
        let file = scene.testbed.sandbox().dir().join("old.json");
        std::fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()).unwrap();
        let file = file.display().to_string();
        let accepted = scene.testbed.kubectl(["apply", "--server-side", "--dry-run=server", "-f", &file]).await;
        assert!(accepted.is_ok(), "{flavor}: {accepted:?}");
    }

    // The templates of the checkout, as they are.
    for folder in ["templates", "templates/v1beta1"] {
        let template = repository().join(folder).join("cluster-template.yaml").display().to_string();
        let mut command = clusterctl.command();
        command.args(["generate", "cluster", "c9", "--from", &template, "--kubernetes-version", VERSION]);
        command.env("MAAS_DNS_DOMAIN", DOMAIN);
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{folder}: {}", String::from_utf8_lossy(&output.stderr));
        let file = scene.testbed.sandbox().dir().join("from.yaml");
        std::fs::write(&file, &output.stdout).unwrap();
        let file = file.display().to_string();
        let accepted = scene.testbed.kubectl(["apply", "--server-side", "--dry-run=server", "-f", &file]).await;
        assert!(accepted.is_ok(), "{folder}: {accepted:?}");
    }
    scene.stop().await;
}
