//! LXD hosts in maintenance, on real parts: Cluster API replaces the machines of control planes on other hosts, one at a time, while the
//! manager is killed again and again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::eventually_within;
use capmaas_e2e::lxd_hosts::vm;
use capmaas_e2e::maas::Expected;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(600);
const TAG: &str = "maas-lxd-host-maintenance";

/// A control plane of VMs in a namespace of its own.
async fn control_plane(scene: &Scene, name: &str, machines: u32) -> ClusterPlan {
    scene.testbed.kubectl(["create", "namespace", name]).await.unwrap();
    let namespace = name.to_owned();
    ClusterPlan { namespace, control_planes: machines, machine: vm(), ..ClusterPlan::new(scene.core, name) }
}

/// What an object says about evacuation: reason and message.
async fn said(scene: &Scene, plan: &ClusterPlan, kind: &str, name: &str) -> anyhow::Result<(String, String)> {
    let object = scene.objects(plan, kind)?.get(name).await?;
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let condition = conditions.into_iter().find(|it| it["type"] == "Evacuating").unwrap_or(Value::Null);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok((text(&condition["reason"]), text(&condition["message"])))
}

async fn wait_said(scene: &Scene, plan: &ClusterPlan, kind: &str, name: &str, reason: &str, words: &str) {
    let what = format!("{kind} {name} says {reason}: {words}");
    let told = eventually_within(PATIENCE, &what, || async {
        let said = said(scene, plan, kind, name).await?;
        ensure!(said.0 == reason && said.1.contains(words), "{said:?}");
        Ok(())
    });
    scene.explain(told.await).await.unwrap();
}

/// The host that a machine of a cluster is on.
async fn host_of(scene: &Scene, plan: &ClusterPlan) -> String {
    let machines = scene.objects(plan, "MaasMachine").unwrap().list().await.unwrap();
    let mine = machines.iter().find(|it| it["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == plan.name);
    mine.unwrap()["status"]["lxdHost"].as_str().unwrap().to_owned()
}

/// Watches a control plane all the while: how many of its machines were missing at the same time, at most.
struct Watcher {
    most: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Watcher {
    fn start(scene: &Scene, plan: &ClusterPlan) -> Self {
        let (most, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let machines = scene.objects(plan, "Machine").unwrap();
        let (wanted, name) = (plan.control_planes as usize, plan.name.clone());
        let watcher = Self { most: most.clone(), stop: stop.clone() };
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                if let Ok(all) = machines.list().await {
                    let own = all.iter().filter(|it| it["spec"]["clusterName"] == name.as_str());
                    let well = own.filter(|it| {
                        it["metadata"]["deletionTimestamp"].is_null() && !it["status"]["nodeRef"].is_null()
                    });
                    most.fetch_max(wanted.saturating_sub(well.count()), Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        });
        watcher
    }

    fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.most.load(Ordering::Relaxed)
    }
}

/// Waits until no VM of a cluster is on a host and it has all its machines again. The manager is killed as soon as a machine goes, and
/// once more when it leads again: whoever takes over waits for the Lease first.
async fn emptied(scene: &Scene, plan: &ClusterPlan, host: &str) {
    let machines = scene.objects(plan, "MaasMachine").unwrap();
    let kills: Mutex<Vec<Instant>> = Mutex::default();
    let done = eventually_within(PATIENCE, "the host is empty", || {
        let (machines, kills) = (&machines, &kills);
        async move {
            let all = machines.list().await?;
            let own = all.iter().filter(|it| it["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == plan.name);
            let own: Vec<&Value> = own.collect();
            let goes = own.iter().any(|it| !it["metadata"]["deletionTimestamp"].is_null());
            let due = match kills.lock().unwrap().as_slice() {
                [] => goes,
                [first] => first.elapsed() > Duration::from_secs(60),
                _ => false,
            };
            if due {
                scene.kill_manager().await?;
                kills.lock().unwrap().push(Instant::now());
            }
            let there = own.iter().filter(|it| it["status"]["lxdHost"] == host).count();
            let well = own.iter().filter(|it| it["status"]["ready"] == true).count();
            ensure!(there == 0 && well == plan.control_planes as usize, "{there} left, {well} well of {}", own.len());
            Ok(())
        }
    });
    scene.explain(done.await).await.unwrap();
    assert!(!kills.lock().unwrap().is_empty(), "the manager was never killed");
}

async fn a_tag_empties_a_host_but_for_the_only_machine_of_a_control_plane(core: CapiVersion) {
    let scene = Scene::start(core).await.unwrap();
    scene.maas.add_hosts(1).unwrap();
    let (three, one) = (control_plane(&scene, "c1", 3).await, control_plane(&scene, "c2", 1).await);
    let (expected, single) = (scene.create(&three).await.unwrap(), scene.create(&one).await.unwrap());
    scene.wait_running(&three, &expected).await.unwrap();
    scene.wait_running(&one, &single).await.unwrap();
    let host = host_of(&scene, &one).await;
    let before = scene.maas.vms().len();

    let watcher = Watcher::start(&scene, &three);
    scene.maas.arrange(json!([{"machine": {"hostname": host, "tags": [TAG]}}])).unwrap();
    emptied(&scene, &three, &host).await;
    scene.wait_running(&three, &expected).await.unwrap();
    assert_eq!(watcher.end(), 1, "machines of one control plane that were missing at the same time");
    wait_said(&scene, &one, "MaasCluster", "c2", "EvacuationWaiting", "is the only machine of KubeadmControlPlane")
        .await;
    wait_said(&scene, &three, "MaasCluster", "c1", "NotEvacuating", "").await;
    let vms = scene.maas.vms();
    assert_eq!((vms.len(), vms.iter().filter(|vm| vm.host == host).count()), (before, 1), "{vms:?}");
    let hosts = scene.plugin(&["maintenance", "status", "-A"]).await.unwrap();
    assert!(hosts.contains("cluster c2/c2"), "{hosts}");

    // A person takes the tag off: nobody is concerned any more.
    scene.maas.arrange(json!([{"machine": {"hostname": host, "tags": []}}])).unwrap();
    wait_said(&scene, &one, "MaasCluster", "c2", "NotEvacuating", "").await;
    assert_eq!(scene.secrets_seen().await.unwrap(), Vec::<String>::new());
    scene.objects(&three, "Cluster").unwrap().delete("c1").await.unwrap();
    scene.objects(&one, "Cluster").unwrap().delete("c2").await.unwrap();
    scene.wait_gone(&three).await.unwrap();
    scene.wait_gone(&one).await.unwrap();
    scene.stop().await;
}

#[tokio::test]
async fn s30_a_tag_empties_a_host_of_all_but_single_control_planes() {
    a_tag_empties_a_host_but_for_the_only_machine_of_a_control_plane(CapiVersion::V1_14).await;
}

#[tokio::test]
async fn s30_a_tag_empties_a_host_under_the_old_contract() {
    a_tag_empties_a_host_but_for_the_only_machine_of_a_control_plane(CapiVersion::V1_10).await;
}

#[tokio::test]
async fn s30_without_room_consent_or_the_right_nothing_is_deleted_and_it_goes_on_when_there_is() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    // Three hosts with room for one such VM each.
    scene.maas.add_hosts(1).unwrap();
    let mut machine = vm();
    machine["minMemory"] = json!(12288);
    let plan = ClusterPlan { control_planes: 3, machine, ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let host = host_of(&scene, &plan).await;
    let before: Vec<String> = scene.maas.vms().into_iter().map(|vm| vm.system_id).collect();
    scene.maas.arrange(json!([{"machine": {"hostname": host, "tags": [TAG]}}])).unwrap();
    wait_said(&scene, &plan, "MaasCluster", "c1", "EvacuationWaiting", "no room").await;

    // Room comes, but the owner of the cluster does it himself.
    let clusters = scene.objects(&plan, "MaasCluster").unwrap();
    clusters.merge("c1", json!({"spec": {"evacuation": "Manual"}})).await.unwrap();
    scene.maas.add_host("host-new", "az1", "default").unwrap();
    wait_said(&scene, &plan, "MaasCluster", "c1", "EvacuationWaiting", "evacuation: Manual").await;

    // He agrees, and the operator has left the right out.
    scene.testbed.kubectl(["delete", "clusterrolebinding", "capmaas-evacuation"]).await.unwrap();
    clusters.merge("c1", json!({"spec": {"evacuation": null}})).await.unwrap();
    wait_said(&scene, &plan, "MaasCluster", "c1", "EvacuationWaiting", "may not delete the Machine").await;
    let now: Vec<String> = scene.maas.vms().into_iter().map(|vm| vm.system_id).collect();
    assert_eq!(now, before, "nothing was touched");

    let watcher = Watcher::start(&scene, &plan);
    let role = "--clusterrole=capmaas-evacuation";
    let account = "--serviceaccount=capmaas-system:capmaas-manager";
    scene.testbed.kubectl(["create", "clusterrolebinding", "capmaas-evacuation", role, account]).await.unwrap();
    emptied(&scene, &plan, &host).await;
    scene.wait_running(&plan, &expected).await.unwrap();
    assert_eq!(watcher.end(), 1);
    assert!(scene.maas.vms().iter().any(|vm| vm.host == "host-new"), "{:?}", scene.maas.vms());
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}

/// Makes every machine of the host cluster an LXD host, as its agent would: MAAS has it as VM host, and the Node says that all is known.
async fn become_hosts(scene: &Scene, plan: &ClusterPlan, workload: &Expected) -> anyhow::Result<usize> {
    let nodes: Api<Node> = Api::all(scene.maas.workload(workload.port).await?);
    let machines = scene.objects(plan, "MaasMachine")?.list().await?;
    let own = machines.iter().filter(|it| it["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == plan.name);
    let mut hosts = 0;
    for machine in own.filter(|it| it["status"]["ready"] == true && it["metadata"]["deletionTimestamp"].is_null()) {
        let name = machine["status"]["hostname"].as_str().context("it has no name")?;
        if scene.maas.host_id(name).is_err() {
            let zone = machine["status"]["failureDomain"].as_str().context("it has no zone")?;
            scene.maas.make_host(name, zone, "default")?;
        }
        let report = json!({"lxdhost.cluster.com/state": "Left", "lxdhost.cluster.com/instances": "[]"});
        let patch = json!({"metadata": {"annotations": report}});
        nodes.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        hosts += 1;
    }
    Ok(hosts)
}

fn hosts_of_vms(scene: &Scene) -> Vec<String> {
    scene.maas.vms().into_iter().map(|vm| vm.host).collect()
}

#[tokio::test]
async fn s30_a_host_cluster_is_rolled_while_control_planes_run_on_it() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    let metal = ClusterPlan { control_planes: 3, ..ClusterPlan::new(scene.core, "metal") };
    let workload = scene.create(&metal).await.unwrap();
    scene.wait_running(&metal, &workload).await.unwrap();
    assert_eq!(become_hosts(&scene, &metal, &workload).await.unwrap(), 3);
    let (mut guests, mut inside) = (Vec::new(), Vec::new());
    for name in ["g1", "g2"] {
        let guest = control_plane(&scene, name, 3).await;
        inside.push(scene.create(&guest).await.unwrap());
        guests.push(guest);
    }
    for (guest, expected) in guests.iter().zip(&inside) {
        scene.wait_running(guest, expected).await.unwrap();
    }
    let before: Vec<String> = hosts_of_vms(&scene);
    let watchers: Vec<Watcher> = guests.iter().map(|guest| Watcher::start(&scene, guest)).collect();

    scene.testbed.apply_objects(vec![metal.template("metal-new", &metal.version)]).await.unwrap();
    let reference = json!({"spec": {"infrastructureRef": {"name": "metal-new"}}});
    let control_planes = scene.objects(&metal, "KubeadmControlPlane").unwrap();
    control_planes.merge("metal-cp", json!({"spec": {"machineTemplate": reference}})).await.unwrap();
    let mut looks = 0_u32;
    let rolled = eventually_within(Duration::from_secs(1500), "all hosts are new", || {
        looks += 1;
        let kill = looks.is_multiple_of(600);
        let (scene, metal, workload, before, control_planes) = (&scene, &metal, &workload, &before, &control_planes);
        async move {
            if kill {
                scene.kill_manager().await?;
            }
            become_hosts(scene, metal, workload).await?;
            let object = control_planes.get("metal-cp").await?;
            let status = &object["status"];
            let current = hosts_of_vms(scene);
            ensure!(
                status["upToDateReplicas"] == 3
                    && status["replicas"] == 3
                    && current.iter().all(|it| !before.contains(it)),
                "{status} {current:?}"
            );
            Ok(())
        }
    });
    scene.explain(rolled.await).await.unwrap();
    for (guest, expected) in guests.iter().zip(&inside) {
        scene.wait_running(guest, expected).await.unwrap();
    }
    for watcher in watchers {
        assert_eq!(watcher.end(), 1, "machines of one control plane that were missing at the same time");
    }
    assert_eq!(scene.maas.vms().len(), 6);
    for guest in &guests {
        scene.objects(guest, "Cluster").unwrap().delete(&guest.name).await.unwrap();
        scene.wait_gone(guest).await.unwrap();
    }
    scene.delete(&metal).await.unwrap();
    scene.stop().await;
}
