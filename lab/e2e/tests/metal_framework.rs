//! What Cluster API's own test framework checks for every provider: nothing is written when nothing happens, and what
//! is stripped is restored.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::time::Duration;

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::eventually;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::{Value, json};

async fn versions(scene: &Scene, plan: &ClusterPlan) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for kind in ["MaasCluster", "MaasMachine", "Machine", "Cluster"] {
        for object in scene.objects(plan, kind).unwrap().list().await.unwrap() {
            let name = format!("{kind} {}", object["metadata"]["name"]);
            all.insert(name, object["metadata"]["resourceVersion"].clone());
        }
    }
    all
}

#[tokio::test]
async fn nothing_is_written_when_idle_and_stripped_finalizers_and_owners_come_back() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    let plan = ClusterPlan { workers: 1, ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();

    // Stable within a minute, and then for half a minute more.
    let stable = eventually("no object changes for thirty seconds", || async {
        let before = versions(&scene, &plan).await;
        let mutations = scene.maas.mutations().len();
        tokio::time::sleep(Duration::from_secs(30)).await;
        anyhow::ensure!(before == versions(&scene, &plan).await, "objects still change: {before:?}");
        anyhow::ensure!(mutations == scene.maas.mutations().len(), "MAAS still changes");
        Ok(())
    });
    scene.explain(stable.await).await.unwrap();

    for (kind, finalizer) in [
        ("MaasCluster", "maascluster.infrastructure.cluster.x-k8s.io"),
        ("MaasMachine", "maasmachine.infrastructure.cluster.x-k8s.io"),
    ] {
        let objects = scene.objects(&plan, kind).unwrap();
        for object in objects.list().await.unwrap() {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            let owners = object["metadata"]["ownerReferences"].as_array().unwrap().len();
            objects.merge(&name, json!({"metadata": {"finalizers": null, "ownerReferences": null}})).await.unwrap();
            let back = eventually("finalizer and owners are back", || async {
                let metadata = objects.get(&name).await?["metadata"].clone();
                let finalizers = metadata["finalizers"].as_array().cloned().unwrap_or_default();
                anyhow::ensure!(finalizers.contains(&json!(finalizer)), "{kind} {name} has {finalizers:?}");
                let found = metadata["ownerReferences"].as_array().map_or(0, Vec::len);
                anyhow::ensure!(found == owners, "{kind} {name} has {found} of {owners} owners");
                Ok(())
            });
            scene.explain(back.await).await.unwrap();
        }
    }
    // Owner references with a changed API version: the same owners to us, and Cluster API corrects them.
    let mutations = scene.maas.mutations().len();
    for kind in ["MaasCluster", "MaasMachine"] {
        let objects = scene.objects(&plan, kind).unwrap();
        for object in objects.list().await.unwrap() {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            let owners = object["metadata"]["ownerReferences"].clone();
            let mut changed = owners.clone();
            for owner in changed.as_array_mut().unwrap() {
                owner["apiVersion"] = json!("cluster.x-k8s.io/v1alpha1");
            }
            objects.merge(&name, json!({"metadata": {"ownerReferences": changed}})).await.unwrap();
            let back = objects.wait(&name, "/metadata/ownerReferences", owners);
            scene.explain(back.await).await.unwrap();
            objects.wait_for_condition(&name, "Ready", "True").await.unwrap();
        }
    }
    assert_eq!(scene.maas.mutations().len(), mutations);
    assert_eq!((scene.maas.effective("allocate"), scene.maas.effective("deploy")), (2, 2));
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}
