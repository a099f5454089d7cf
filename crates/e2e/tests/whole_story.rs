//! The whole story in one run: metal becomes LXD hosts by the real agent on real LXD daemons, a second cluster lives in VMs on
//! them, and both go, in the right order and in the wrong one, without a VM or a server being lost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use anyhow::{Context as _, ensure};
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::maas::{API_KEY, ZONES};
use capmaas_e2e::real_lxd::{LxdHosts, TAG};
use capmaas_e2e::scene::Scene;
use capmaas_e2e::{eventually_within, maas::Expected};
use capmaas_testbed::{CapiVersion, KubernetesVersion};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(600);
/// One in each zone.
const MACHINES: [&str; 3] = ["m01", "m02", "m03"];

struct Story {
    scene: Scene,
    lxd: LxdHosts,
    metal: ClusterPlan,
    vms: ClusterPlan,
    workload: Expected,
}

/// Three machines are LXD hosts, and three control planes run in VMs on them.
async fn told_so_far() -> Story {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    let lxd = LxdHosts::start(&scene.maas, &MACHINES).await.unwrap();
    let metal = ClusterPlan {
        control_planes: 3,
        infrastructure: json!({
            "lxdControlPlaneCluster": true,
            "lxdConfig": {"storageBackend": "dir", "storageSize": "20", "networkBridge": "br0"},
        }),
        machine: json!({"tags": [TAG]}),
        ..ClusterPlan::new(scene.core, "metal")
    };
    let pods = lxd.agents(&scene.maas).unwrap();
    let workload = scene.maas.expect_cluster_with_pods(KubernetesVersion::V1_36, pods).await.unwrap();
    scene.testbed.apply_objects(metal.objects(&workload)).await.unwrap();
    scene.wait_running(&metal, &workload).await.unwrap();
    wait_condition(&scene, &metal, "MaasCluster", "metal", "LXDReady", "True").await;
    scene.testbed.kubectl(["create", "namespace", "tenants"]).await.unwrap();
    let vms = ClusterPlan {
        namespace: "tenants".into(),
        control_planes: 3,
        machine: json!({"dynamicLXD": true, "minCPU": 1, "minMemory": 2048, "minDiskSize": 8}),
        ..ClusterPlan::new(scene.core, "vms")
    };
    let inside = scene.create(&vms).await.unwrap();
    scene.wait_running(&vms, &inside).await.unwrap();
    Story { scene, lxd, metal, vms, workload }
}

async fn wait_condition(scene: &Scene, plan: &ClusterPlan, kind: &str, name: &str, condition: &str, status: &str) {
    let objects = scene.objects(plan, kind).unwrap();
    let what = format!("{condition}={status} on {kind} {name}");
    let outcome = eventually_within(PATIENCE, &what, || async {
        let object = objects.get(name).await?;
        let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = all.iter().find(|found| found["type"] == condition).context("there is no such condition")?;
        ensure!(found["status"] == status, "it says {found}");
        Ok(())
    });
    scene.explain(outcome.await).await.unwrap();
}

/// Everything that can hold a secret on an API server, as text.
async fn everything_in(scene: &Scene, workload: &Expected) -> String {
    let client = scene.maas.workload(workload.port).await.unwrap();
    let mut text = String::new();
    for (group, kind) in
        [("", "Secret"), ("", "ConfigMap"), ("", "Pod"), ("", "Node"), ("", "Event"), ("apps", "DaemonSet")]
    {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        for object in all.list(&ListParams::default()).await.unwrap() {
            text.push_str(&serde_json::to_string(&decoded(serde_json::to_value(object).unwrap())).unwrap());
        }
    }
    text
}

/// A Secret with its values in clear.
fn decoded(mut object: Value) -> Value {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    for value in object["data"].as_object_mut().into_iter().flatten().map(|(_, value)| value) {
        if let Some(clear) = value.as_str().and_then(|text| BASE64_STANDARD.decode(text).ok()) {
            *value = json!(String::from_utf8_lossy(&clear));
        }
    }
    object
}

fn vm_hosts(scene: &Scene) -> Vec<(String, Option<String>, bool)> {
    scene.maas.control().with_model(|model| {
        let hosts = model.db.vm_hosts.values();
        hosts.map(|host| (host.name.clone(), host.host.clone(), host.discovered())).collect()
    })
}

#[tokio::test]
async fn two_clusters_come_and_go_in_the_right_order() {
    let Story { scene, lxd, metal, vms, workload } = told_so_far().await;

    // Each machine is one VM host, reached by MAAS for real; each carries one VM, and every zone has one.
    let hosts = vm_hosts(&scene);
    assert!(hosts.len() == 3 && hosts.iter().all(|(_, machine, reached)| machine.is_some() && *reached), "{hosts:?}");
    let real = lxd.vms().unwrap();
    assert!(real.values().all(|vms| vms.len() == 1), "{real:?}");
    let zones: Vec<String> = scene
        .maas
        .machines()
        .into_iter()
        .filter(|machine| machine.owner.is_some())
        .map(|machine| machine.zone)
        .collect();
    assert!(ZONES.iter().all(|zone| zones.iter().filter(|found| found == zone).count() == 2), "{zones:?}");

    // S22: the workload cluster never sees the key of MAAS, nor the private key of its VM hosts.
    let seen = everything_in(&scene, &workload).await;
    assert!(seen.contains("lxdhost.cluster.com/state") && seen.contains("BEGIN CERTIFICATE"), "the agents are there");
    assert!(!seen.contains(API_KEY.rsplit(':').next().unwrap()), "the MAAS key is in the workload cluster");

    scene.objects(&vms, "Cluster").unwrap().delete(&vms.name).await.unwrap();
    scene.wait_gone(&vms).await.unwrap();
    assert!(lxd.vms().unwrap().values().all(Vec::is_empty), "no VM is left in LXD");
    assert_eq!(vm_hosts(&scene).len(), 3);
    scene.delete(&metal).await.unwrap();
    assert!(vm_hosts(&scene).is_empty());
    assert_eq!(scene.secrets_seen().await.unwrap(), Vec::<String>::new());
    scene.stop().await;
}

#[tokio::test]
async fn s11_hosts_that_are_deleted_first_wait_for_the_vms_of_the_other_cluster() {
    let Story { scene, lxd, metal, vms, .. } = told_so_far().await;
    let before = lxd.vms().unwrap();
    scene.objects(&metal, "Cluster").unwrap().delete(&metal.name).await.unwrap();
    let machines = scene.objects(&metal, "MaasMachine").unwrap();
    let outcome = eventually_within(PATIENCE, "hosts that say which VMs hold them", || async {
        let all = machines.list().await?;
        let leaving: Vec<&Value> =
            all.iter().filter(|machine| machine["metadata"]["deletionTimestamp"].is_string()).collect();
        ensure!(!leaving.is_empty(), "no machine is being deleted yet");
        let said =
            serde_json::to_string(&leaving.iter().map(|machine| &machine["status"]["conditions"]).collect::<Vec<_>>())?;
        ensure!(before.values().flatten().any(|vm| said.contains(vm.as_str())), "they say {said}");
        Ok(())
    });
    scene.explain(outcome.await).await.unwrap();
    assert_eq!(lxd.vms().unwrap(), before, "no VM was touched");
    assert_eq!(vm_hosts(&scene).len(), 3, "no host was unregistered");

    scene.objects(&vms, "Cluster").unwrap().delete(&vms.name).await.unwrap();
    scene.wait_gone(&vms).await.unwrap();
    scene.wait_nothing_left(&metal).await.unwrap();
    assert!(lxd.vms().unwrap().values().all(Vec::is_empty));
    assert!(vm_hosts(&scene).is_empty());
    scene.stop().await;
}
