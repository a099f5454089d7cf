//! `make deploy` and `make undeploy` in a user's own cluster.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use capmaas_e2e::{Objects, manager_player, repository};
use capmaas_testbed::tools::ToolSet;
use capmaas_testbed::{CapiVersion, KubernetesVersion, Testbed};
use serde_json::json;

/// Runs a script of hack/ with variables, as make does. Returns whether it succeeded, and its output.
async fn hack(testbed: &Testbed, script: &str, variables: &[(&str, &str)]) -> (bool, String) {
    let tools =
        tokio::task::spawn_blocking(|| ToolSet::Kubernetes(KubernetesVersion::V1_36).ensure()).await.unwrap().unwrap();
    let path = format!("{}:{}", tools.dir().display(), std::env::var("PATH").unwrap());
    let output = tokio::process::Command::new(repository().join("hack").join(script))
        .env("PATH", path)
        .env("KUBECONFIG", testbed.kubeconfig_path())
        .envs(variables.iter().copied())
        .output()
        .await
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), said)
}

#[tokio::test]
async fn deployed_for_one_namespace_the_manager_needs_no_cluster_role() {
    let testbed = Testbed::builder().cluster_api(Some(CapiVersion::V1_14)).start().await.unwrap();
    let scope = [("NAMESPACE", "team-a"), ("TIMEOUT", "0"), ("IMAGE", "registry.example/capmaas/manager:v9")];
    let (deployed, said) = hack(&testbed, "deploy", &scope).await;
    assert!(deployed, "{said}");
    assert!(said.contains("waits for the credentials of a MAAS"), "{said}");
    assert!(said.contains("kubectl create secret generic maas-credentials --namespace capmaas-system"), "{said}");
    let roles = testbed.kubectl(["get", "clusterroles,clusterrolebindings", "-o", "name"]).await.unwrap();
    assert!(!roles.contains("capmaas"), "{roles}");
    let image = [
        "get",
        "deployment",
        "-n",
        "capmaas-system",
        "-o",
        "jsonpath={.items[*].spec.template.spec.containers[*].image}",
    ];
    assert_eq!(testbed.kubectl(image).await.unwrap(), "registry.example/capmaas/manager:v9");

    // The manager runs: Ready, and working in its namespace, but not in another.
    let player = manager_player(&testbed).await.unwrap();
    let of = |namespace: &str| {
        Objects::within(&testbed, namespace, "infrastructure.cluster.x-k8s.io", "v1beta1", "MaasMachine").unwrap()
    };
    let machine = json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "c1"}, "annotations": {"cluster.x-k8s.io/paused": ""}},
                         "spec": {"image": "ubuntu/noble", "minCPU": 1, "minMemory": 1024}});
    let (ours, theirs) = (of("team-a"), of("default"));
    theirs.apply("m1", machine.clone()).await.unwrap();
    ours.apply("m1", machine).await.unwrap();
    ours.wait_for_condition("m1", "Paused", "True").await.unwrap();
    assert!(theirs.get("m1").await.unwrap().get("status").is_none(), "another namespace's object is not looked at");

    // Nothing is removed while something might be left behind in MAAS.
    let (removed, said) = hack(&testbed, "undeploy", &[("NAMESPACE", "team-a")]).await;
    assert!(!removed && said.contains("nobody would release their machines"), "{said}");
    ours.merge("m1", json!({"metadata": {"finalizers": null}})).await.unwrap();
    ours.delete("m1").await.unwrap();
    let (removed, said) = hack(&testbed, "undeploy", &[("NAMESPACE", "team-a")]).await;
    assert!(removed, "{said}");
    let left = testbed.kubectl(["get", "deployments,roles,rolebindings", "-A", "-o", "name"]).await.unwrap();
    assert!(!left.contains("capmaas"), "{left}");
    let kinds = testbed.kubectl(["get", "crds", "-o", "name"]).await.unwrap();
    assert!(kinds.contains("maasmachines"), "the CRDs and the objects stay: {kinds}");

    player.stop().await;
    testbed.stop().await;
}

#[tokio::test]
async fn kubernetes_1_29_gets_everything_but_the_policies_that_it_does_not_serve() {
    let testbed =
        Testbed::builder().kubernetes(KubernetesVersion::V1_29).controller_manager(true).start().await.unwrap();
    let (deployed, said) =
        hack(&testbed, "deploy", &[("TIMEOUT", "0"), ("IMAGE", "registry.example/capmaas/manager:v9")]).await;
    assert!(deployed, "{said}");
    assert!(said.contains("does not serve ValidatingAdmissionPolicy"), "{said}");
    assert!(said.contains("Cluster API is not installed here yet"), "{said}");
    testbed
        .kubectl([
            "create",
            "secret",
            "generic",
            "maas-credentials",
            "-n",
            "capmaas-system",
            "--from-literal=apiKey=a:b:c",
        ])
        .await
        .unwrap();
    testbed
        .kubectl([
            "create",
            "configmap",
            "capmaas-config",
            "-n",
            "capmaas-system",
            "--from-literal=maasEndpoint=http://127.0.0.1:1/MAAS",
        ])
        .await
        .unwrap();
    // Another release, with the same command.
    let (again, said) =
        hack(&testbed, "deploy", &[("TIMEOUT", "0"), ("IMAGE", "registry.example/capmaas/manager:v10")]).await;
    assert!(again && said.contains("has its MAAS credentials"), "{said}");
    let deployed = testbed.kubectl(["get", "deployments", "-n", "capmaas-system", "-o", "yaml"]).await.unwrap();
    for image in ["manager", "lxd-initializer"] {
        assert!(deployed.contains(&format!(": registry.example/capmaas/{image}:v10\n")), "{deployed}");
    }
    let (nameless, said) = hack(&testbed, "deploy", &[("TIMEOUT", "0")]).await;
    assert!(!nameless && said.contains("IMAGE is missing: say which image"), "{said}");
    let (removed, said) = hack(&testbed, "undeploy", &[]).await;
    assert!(removed, "{said}");
    testbed.stop().await;
}
