//! A host in maintenance by its annotation fails during the evacuation, on real components: replacements in progress
//! continue, other machines are left to the health check, and what is left on the host is deleted when it comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use anyhow::ensure;
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::eventually_within;
use capmaas_e2e::maintenance::{
    ANNOTATION, HOLD, HOOK, PATIENCE, annotate, guest, host_cluster, is_going, machines, object_of, on_host,
    wait_going, wait_left, wait_looks, wait_said,
};
use capmaas_e2e::recorder::Recorder;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::Value;

const DEBTS: &str = "infrastructure.cluster.x-k8s.io/vm-debts";

/// A worker of the host cluster, whose API server continues without it.
async fn worker(scene: &Scene, hosts: &ClusterPlan) -> String {
    let all = machines(scene, hosts).await.unwrap();
    let works = |it: &&Value| it["metadata"]["labels"].get("cluster.x-k8s.io/control-plane").is_none();
    all.iter().find(works).unwrap()["status"]["hostname"].as_str().unwrap().to_owned()
}

async fn debts(scene: &Scene, plan: &ClusterPlan) -> anyhow::Result<Value> {
    let cluster = scene.objects(plan, "MaasCluster")?.get(&plan.name).await?;
    Ok(cluster["metadata"]["annotations"][DEBTS].clone())
}

#[tokio::test]
async fn s16_s30_a_host_dies_while_it_is_emptied_and_its_vms_come_up_elsewhere_all_the_same() {
    // The newest release whose KubeadmControlPlane replaces machines of a cluster with external etcd.
    let scene = Scene::start(CapiVersion::V1_10).await.unwrap();
    let (hosts, _) = host_cluster(&scene, 1, 2).await.unwrap();
    let (first, second) = (guest(&scene, "g1", 3).await.unwrap(), guest(&scene, "g2", 3).await.unwrap());
    for plan in [&first, &second] {
        let expected = scene.create(plan).await.unwrap();
        scene.wait_running(plan, &expected).await.unwrap();
    }
    let host = worker(&scene, &hosts).await;
    let object = object_of(&scene, &hosts, &host).await.unwrap();
    let (going, held) = (on_host(&scene, &first, &host).await.unwrap(), on_host(&scene, &second, &host).await.unwrap());
    let ([going], [held]) = (going.as_slice(), held.as_slice()) else { panic!("on {host}: {going:?}, {held:?}") };
    let lost: Vec<String> = scene.maas.vms().into_iter().filter(|vm| vm.host == host).map(|vm| vm.hostname).collect();

    // One replacement is in progress and blocked; the other machine is held.
    let recorder = Recorder::start(&scene, &[&first, &second]).unwrap();
    annotate(&scene, &first, "Machine", going, (HOOK, Some(""))).await.unwrap();
    annotate(&scene, &second, "Machine", held, (HOLD, Some(""))).await.unwrap();
    let maintenance = format!("{ANNOTATION}=new power supply");
    scene.testbed.kubectl(["annotate", "-n", "hosts", "maasmachine", &object, &maintenance]).await.unwrap();
    wait_said(&scene, &hosts, ("MaasMachine", &object), ("Evacuating", "is held by the annotation")).await.unwrap();
    wait_going(&scene, &first, going).await.unwrap();

    scene.maas.switch_host_off(&host).unwrap();
    annotate(&scene, &first, "Machine", going, (HOOK, None)).await.unwrap();
    annotate(&scene, &second, "Machine", held, (HOLD, None)).await.unwrap();
    wait_left(&scene, &first, &host).await.unwrap();
    // A machine without power is unhealthy, so it is not ours to delete.
    let words = format!("waits because the Machine {held} is not healthy");
    wait_said(&scene, &hosts, ("MaasMachine", &object), ("EvacuationWaiting", &words)).await.unwrap();
    wait_looks(&scene, 3).await.unwrap();
    assert!(!is_going(&scene, &second, held).await.unwrap(), "several passes later it is there");
    let check = second.health_check(("cluster.x-k8s.io/control-plane", ""));
    scene.testbed.apply_objects(vec![check]).await.unwrap();
    wait_left(&scene, &second, &host).await.unwrap();
    let most = BTreeMap::from([("g1".to_owned(), 1), ("g2".to_owned(), 1)]);
    assert_eq!(recorder.end().await.unwrap(), most, "what was missing at the same time");

    // Nothing powers on a host in maintenance, so what was on it still exists and is still to be removed.
    let off = scene.maas.machines().into_iter().find(|machine| machine.hostname == host).unwrap();
    assert!(!off.on, "{off:?}");
    let instances = scene.maas.instances();
    assert!(lost.iter().all(|name| instances.contains(name)), "{instances:?}");
    for plan in [&first, &second] {
        assert!(!debts(&scene, plan).await.unwrap().is_null(), "{} owes nothing", plan.name);
    }
    scene.maas.switch_host_on(&host).unwrap();
    let paid = eventually_within(PATIENCE, "the debts are paid", || async {
        let (vms, instances) = (scene.maas.vms(), scene.maas.instances());
        ensure!(
            vms.len() == 6 && vms.iter().all(|vm| vm.host != host) && instances.len() == 6,
            "{vms:?} {instances:?}"
        );
        let owed = [debts(&scene, &first).await?, debts(&scene, &second).await?];
        ensure!(owed.iter().all(Value::is_null), "still owed: {owed:?}");
        Ok(())
    });
    scene.explain(paid.await).await.unwrap();
    wait_said(&scene, &hosts, ("MaasMachine", &object), ("Evacuated", "and is empty")).await.unwrap();

    annotate(&scene, &hosts, "MaasMachine", &object, (ANNOTATION, None)).await.unwrap();
    wait_said(&scene, &hosts, ("MaasMachine", &object), ("NotEvacuating", "")).await.unwrap();
    for plan in [&first, &second] {
        scene.objects(plan, "Cluster").unwrap().delete(&plan.name).await.unwrap();
        scene.wait_gone(plan).await.unwrap();
    }
    scene.delete(&hosts).await.unwrap();
    scene.stop().await;
}
