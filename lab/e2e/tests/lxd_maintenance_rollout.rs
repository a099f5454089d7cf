//! A MachineDeployment of LXD hosts is rolled out on real components while a control plane of another cluster runs on
//! them, and the manager is killed meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::time::Duration;

use capmaas_e2e::eventually_within;
use capmaas_e2e::maintenance::{are_replaced, guest, host_cluster, machines, texts};
use capmaas_e2e::recorder::Recorder;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::json;

/// Two hosts, one after the other.
const PATIENCE: Duration = Duration::from_secs(1200);
/// It is over before a manager that is killed as seldom as in other scenarios has been killed twice.
const KILL_EVERY: Duration = Duration::from_secs(10);

#[tokio::test]
async fn s30_hosts_of_a_machine_deployment_are_rolled_out_while_a_control_plane_runs_on_them() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    let (hosts, below) = host_cluster(&scene, 1, 2).await.unwrap();
    let plan = guest(&scene, "g1", 3).await.unwrap();
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let mut old = machines(&scene, &hosts).await.unwrap();
    old.retain(|machine| machine["metadata"]["labels"].get("cluster.x-k8s.io/control-plane").is_none());
    let (old, leaving) = (texts(&old, "/metadata/name"), texts(&old, "/status/hostname"));
    let to_replace = scene.maas.vms().iter().filter(|vm| leaving.contains(&vm.host)).count();
    assert_eq!((old.len(), to_replace), (2, 2), "the control plane has a VM on each host");
    let recorder = Recorder::start(&scene, &[&plan]).unwrap();

    scene.testbed.apply_objects(vec![hosts.worker_template("hosts-md-new", &hosts.version)]).await.unwrap();
    let patch = json!({"spec": {"template": {"spec": {"infrastructureRef": {"name": "hosts-md-new"}}}}});
    scene.objects(&hosts, "MachineDeployment").unwrap().merge("hosts-md", patch).await.unwrap();
    let replaced = eventually_within(PATIENCE, "the hosts are new", || are_replaced(&scene, &hosts, &below, &old));
    let replaced = scene.kill_during(usize::MAX, KILL_EVERY, replaced).await;
    scene.explain(replaced).await.unwrap();
    scene.wait_running(&hosts, &below).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    assert_eq!(recorder.machines_seen() - 3, to_replace, "each VM is replaced once, on a host that stays");
    let missed = recorder.end().await.unwrap();
    assert_eq!(missed, BTreeMap::from([("g1".to_owned(), 1)]), "what the control plane missed at the same time");

    scene.objects(&plan, "Cluster").unwrap().delete("g1").await.unwrap();
    scene.wait_gone(&plan).await.unwrap();
    scene.delete(&hosts).await.unwrap();
    scene.stop().await;
}
