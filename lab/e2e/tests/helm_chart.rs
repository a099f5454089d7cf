//! The Helm chart, linted and installed by the real helm.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use capmaas_e2e::{Objects, manager_player, repository};
use capmaas_testbed::tools::ToolSet;
use capmaas_testbed::{CapiVersion, Testbed, parse_yaml};
use serde_json::{Value, json};

const REGISTRY: &str = "registry.example/capmaas";
const TAG: &str = "v1";

/// Runs helm. Returns whether it succeeded, and its output.
async fn helm(testbed: &Testbed, arguments: &[&str]) -> (bool, String) {
    let program = tokio::task::spawn_blocking(|| ToolSet::Helm.ensure()).await.unwrap().unwrap().program("helm");
    let home = testbed.sandbox().dir().join("helm");
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .current_dir(repository())
        .env("KUBECONFIG", testbed.kubeconfig_path())
        .env("HELM_CACHE_HOME", home.join("cache"))
        .env("HELM_CONFIG_HOME", home.join("config"))
        .env("HELM_DATA_HOME", home.join("data"))
        .output()
        .await
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), said)
}

/// Objects by kind, namespace and name, without the kinds that are not among the chart's templates.
fn by_name(yaml: &str) -> BTreeMap<String, Value> {
    let name = |object: &Value| {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        format!("{} {}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
    };
    let objects = parse_yaml(yaml).unwrap().into_iter().filter(Value::is_object);
    let is_part =
        |object: &Value| !["Namespace", "CustomResourceDefinition"].contains(&object["kind"].as_str().unwrap());
    objects.filter(is_part).map(|object| (name(&object), object)).collect()
}

/// The output of kustomize for folders of config, with the images of this test.
async fn shipped(testbed: &Testbed, folders: &[&str]) -> BTreeMap<String, Value> {
    let mut all = String::new();
    for folder in folders {
        let folder = repository().join("config").join(folder).display().to_string();
        all.push_str(&testbed.kubectl(["kustomize", &folder]).await.unwrap());
        all.push_str("\n---\n");
    }
    let images = [("manager", "manager"), ("lxd-initializer", "lxd-initializer")];
    for (name, image) in images {
        all = all.replace(&format!("registry.invalid/capmaas/{name}:unset"), &format!("{REGISTRY}/{image}:{TAG}"));
    }
    by_name(&all.replace("watched-namespace", "team-a"))
}

fn options<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["capmaas", "charts/capmaas", "--namespace", "capmaas-system"];
    all.extend(["--set", "image.registry=registry.example/capmaas", "--set", "image.tag=v1"]);
    all.extend(more);
    all
}

#[tokio::test]
async fn helm_installs_what_config_holds_upgrades_rolls_back_and_leaves_objects() {
    let testbed = Testbed::builder().cluster_api(Some(CapiVersion::V1_14)).start().await.unwrap();

    // Without a registry nothing is installed, and a message explains why.
    let (done, said) = helm(&testbed, &["install", "capmaas", "charts/capmaas", "--dry-run=client"]).await;
    assert!(!done && said.contains("image.registry is missing: say where the images are"), "{said}");

    // For one namespace: the same Roles, and no ClusterRole.
    let arguments = options(&["--kube-version", "1.36.4", "--set", "watchNamespace=team-a"]);
    let (done, said) = helm(&testbed, &[&["template"], arguments.as_slice()].concat()).await;
    assert!(done, "{said}");
    assert_eq!(by_name(&said), shipped(&testbed, &["namespaced"]).await);

    let maas = ["--create-namespace", "--set", "maas.endpoint=http://127.0.0.1:1/MAAS", "--set", "maas.apiKey=a:b:c"];
    let (done, said) = helm(&testbed, &[&["install"], options(&maas).as_slice()].concat()).await;
    assert!(done && said.contains("is installed in capmaas-system"), "{said}");
    let (done, manifest) = helm(&testbed, &["get", "manifest", "capmaas", "--namespace", "capmaas-system"]).await;
    assert!(done, "{manifest}");
    let mut installed = by_name(&manifest);
    let secret = installed.remove("Secret capmaas-system/maas-credentials").unwrap();
    assert_eq!(secret["stringData"]["apiKey"], "a:b:c");
    assert!(installed.remove("ConfigMap capmaas-system/capmaas-config").is_some());
    assert_eq!(installed, shipped(&testbed, &["default", "policy"]).await);

    // The manager runs and works.
    let player = manager_player(&testbed).await.unwrap();
    let machines = Objects::of(&testbed, "infrastructure.cluster.x-k8s.io", "v1beta1", "MaasMachine").unwrap();
    let machine = json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "c1"}, "annotations": {"cluster.x-k8s.io/paused": ""}},
                         "spec": {"image": "ubuntu/noble", "minCPU": 1, "minMemory": 1024}});
    machines.apply("m1", machine).await.unwrap();
    machines.wait_for_condition("m1", "Paused", "True").await.unwrap();

    // Another setting and back; the manager runs each time.
    let arguments = || async {
        let path = "jsonpath={.items[*].spec.template.spec.containers[*].args}";
        testbed.kubectl(["get", "deployments", "-n", "capmaas-system", "-o", path]).await.unwrap()
    };
    let upgrade = ["upgrade", "capmaas", "charts/capmaas", "--namespace", "capmaas-system", "--reuse-values"];
    let more = ["--set", "extraArgs={--sync-period=1h}", "--wait", "--timeout", "2m"];
    let (done, said) = helm(&testbed, &[&upgrade[..], &more[..]].concat()).await;
    assert!(done, "{said}");
    assert!(arguments().await.contains("--sync-period=1h"));
    let back = ["rollback", "capmaas", "1", "--namespace", "capmaas-system", "--wait", "--timeout", "2m"];
    let (done, said) = helm(&testbed, &back).await;
    assert!(done, "{said}");
    assert!(!arguments().await.contains("--sync-period=1h"));

    let (done, said) = helm(&testbed, &["uninstall", "capmaas", "--namespace", "capmaas-system", "--wait"]).await;
    assert!(done, "{said}");
    assert!(machines.get("m1").await.is_ok(), "objects stay: nobody would release their machines");
    player.stop().await;
    testbed.stop().await;
}
