//! The manager runs from the shipped manifests: its Deployment, flags and probes, and only the permissions of its
//! ServiceAccount.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;

use capmaas_e2e::manager::{DIAGNOSTICS, manager_address, reader_token, scrape};
use capmaas_e2e::{Objects, install, manager_player, refusal};
use capmaas_testbed::{CapiVersion, Testbed};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

#[tokio::test]
async fn the_shipped_deployment_keeps_paused_true_with_the_shipped_rights() {
    let testbed = Testbed::builder().cluster_api(Some(CapiVersion::V1_14)).start().await.unwrap();
    install(&testbed).await.unwrap();
    let player = manager_player(&testbed).await.unwrap();

    let clusters = Objects::of(&testbed, "cluster.x-k8s.io", "v1beta2", "Cluster").unwrap();
    let maas_clusters = Objects::of(&testbed, INFRASTRUCTURE, "v1beta1", "MaasCluster").unwrap();
    let maas_machines = Objects::of(&testbed, INFRASTRUCTURE, "v1beta1", "MaasMachine").unwrap();
    let reference = json!({ "apiGroup": INFRASTRUCTURE, "kind": "MaasCluster", "name": "c1" });
    maas_clusters.apply("c1", json!({ "spec": { "dnsDomain": "maas" } })).await.unwrap();
    clusters.apply("c1", json!({ "spec": { "infrastructureRef": reference } })).await.unwrap();
    let machine = json!({
        "metadata": { "labels": { "cluster.x-k8s.io/cluster-name": "c1" } },
        "spec": { "image": "ubuntu/jammy", "minCPU": 2, "minMemory": 4096 },
    });
    maas_machines.apply("m1", machine).await.unwrap();
    // Before Cluster API has adopted it, a MaasCluster belongs to no Cluster.
    maas_clusters.wait("c1", "/metadata/ownerReferences/0/kind", json!("Cluster")).await.unwrap();
    maas_clusters.wait_for_condition("c1", "Paused", "False").await.unwrap();
    maas_machines.wait_for_condition("m1", "Paused", "False").await.unwrap();

    // The Cluster pauses everything that belongs to it; an annotation pauses one object.
    clusters.merge("c1", json!({ "spec": { "paused": true } })).await.unwrap();
    maas_clusters.wait_for_condition("c1", "Paused", "True").await.unwrap();
    maas_machines.wait_for_condition("m1", "Paused", "True").await.unwrap();
    clusters.merge("c1", json!({ "spec": { "paused": false } })).await.unwrap();
    maas_machines.wait_for_condition("m1", "Paused", "False").await.unwrap();
    let annotation = json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": "" } } });
    maas_machines.merge("m1", annotation).await.unwrap();
    maas_machines.wait_for_condition("m1", "Paused", "True").await.unwrap();

    // Nothing is written when nothing changes.
    let before = maas_machines.get("m1").await.unwrap()["metadata"]["resourceVersion"].clone();
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(maas_machines.get("m1").await.unwrap()["metadata"]["resourceVersion"], before);

    // Its metrics need authorization by Kubernetes.
    let address = manager_address(&testbed, &player, DIAGNOSTICS).await.unwrap();
    let (status, told) = scrape(&address, None).await.unwrap();
    assert_eq!(status, 401, "{told}");
    let (status, told) = scrape(&address, Some("CANARY")).await.unwrap();
    assert_eq!((status, told.as_str()), (401, "Kubernetes does not accept this token"));
    testbed.kubectl(["create", "serviceaccount", "-n", "default", "somebody"]).await.unwrap();
    let token = testbed.service_account_token("default", "somebody").await.unwrap();
    let (status, told) = scrape(&address, Some(&token)).await.unwrap();
    assert_eq!(status, 403, "{told}");
    assert!(told.contains("bind the ClusterRole capmaas-metrics-reader"), "{told}");
    let token = reader_token(&testbed).await.unwrap();
    let (status, metrics) = scrape(&address, Some(&token)).await.unwrap();
    assert!(status == 200 && metrics.contains("capmaas_reconciles_total"), "{status}: {metrics}");

    // The ServiceAccount has no other permissions.
    let client = testbed.service_account_client("capmaas-system", "capmaas-manager").await.unwrap();
    let secrets = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"));
    let secrets: Api<DynamicObject> = Api::namespaced_with(client, "default", &secrets);
    let sentence = refusal(secrets.list(&ListParams::default()).await.map_err(Into::into)).unwrap();
    assert!(sentence.contains("secrets is forbidden"), "{sentence}");

    // It stops on request, within its grace period.
    testbed
        .kubectl(["scale", "-n", "capmaas-system", "deployment/capmaas-controller-manager", "--replicas=0"])
        .await
        .unwrap();
    let gone = [
        "wait",
        "-n",
        "capmaas-system",
        "--for=delete",
        "pod",
        "-l",
        "control-plane=controller-manager",
        "--timeout=60s",
    ];
    testbed.kubectl(gone).await.unwrap();

    player.stop().await;
    testbed.stop().await;
}

/// All permissions of a client in a namespace, one line each: `verb group/resource name`.
async fn rights(client: &Client, namespace: &str) -> BTreeSet<String> {
    let kind = GroupVersionKind::gvk("authorization.k8s.io", "v1", "SelfSubjectRulesReview");
    let resource = ApiResource::from_gvk_with_plural(&kind, "selfsubjectrulesreviews");
    let reviews: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let question = DynamicObject::new("", &resource).data(json!({ "spec": { "namespace": namespace } }));
    let answer = reviews.create(&PostParams::default(), &question).await.unwrap();
    assert!(answer.labels().is_empty());
    let texts = |value: &Value| -> Vec<String> {
        let texts = value.as_array().cloned().unwrap_or_default();
        texts.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let mut rights = BTreeSet::new();
    for rule in answer.data["status"]["resourceRules"].as_array().unwrap() {
        let mut names = texts(&rule["resourceNames"]);
        if names.is_empty() {
            names.push("*".to_owned());
        }
        for verb in texts(&rule["verbs"]) {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    rights.extend(names.iter().map(|name| format!("{verb} {group}/{resource} {name}")));
                }
            }
        }
    }
    rights
}

#[tokio::test]
async fn the_manager_has_these_rights_and_no_others() {
    let testbed = Testbed::builder().start().await.unwrap();
    install(&testbed).await.unwrap();
    let manager = testbed.service_account_client("capmaas-system", "capmaas-manager").await.unwrap();
    testbed.kubectl(["create", "serviceaccount", "-n", "default", "nobody"]).await.unwrap();
    let nobody = testbed.service_account_client("default", "nobody").await.unwrap();
    let of_everybody = rights(&nobody, "default").await;
    let expand = |verbs: &str, things: &str| -> Vec<String> {
        verbs.split(' ').flat_map(|verb| things.split(", ").map(move |thing| format!("{verb} {thing}"))).collect()
    };

    let ours = "infrastructure.cluster.x-k8s.io";
    let mut anywhere: BTreeSet<String> = BTreeSet::new();
    anywhere.extend(expand("get list watch patch", &format!("{ours}/maasclusters *, {ours}/maasmachines *")));
    anywhere.extend(expand("patch", &format!("{ours}/maasclusters/status *, {ours}/maasmachines/status *")));
    anywhere.extend(expand("get list watch", "cluster.x-k8s.io/clusters *, cluster.x-k8s.io/machines *"));
    anywhere.extend(expand("get", "/secrets *, /configmaps maas-preferred-subnet"));
    anywhere.extend(expand("write-journal", &format!("{ours}/maasclusters *, {ours}/maasmachines *")));
    anywhere.extend(expand("create patch", "events.k8s.io/events *"));
    let reviews = "authentication.k8s.io/tokenreviews *, authorization.k8s.io/subjectaccessreviews *";
    anywhere.extend(expand("create", reviews));
    let owners = "cluster.x-k8s.io/machinedeployments *, cluster.x-k8s.io/machinesets *";
    anywhere.extend(expand("get", &format!("{owners}, controlplane.cluster.x-k8s.io/kubeadmcontrolplanes *")));
    anywhere.extend(expand("delete", "cluster.x-k8s.io/machines *"));
    let found = rights(&manager, "default").await;
    assert_eq!(found.difference(&of_everybody).cloned().collect::<BTreeSet<_>>(), anywhere);

    let mut at_home = anywhere;
    at_home.extend(expand("get list watch create patch delete", "/secrets *"));
    at_home.extend(expand("get list watch", "/configmaps capmaas-config"));
    at_home.extend(expand("create", "coordination.k8s.io/leases *"));
    at_home.extend(expand("get update", "coordination.k8s.io/leases controller-leader-election-capmaas"));
    let found = rights(&manager, "capmaas-system").await;
    assert_eq!(found.difference(&of_everybody).cloned().collect::<BTreeSet<_>>(), at_home);
    testbed.stop().await;
}
