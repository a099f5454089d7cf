//! Everything in one run: metal machines become LXD hosts through the real agent on real LXD daemons, a second cluster
//! runs in VMs on them, and both are deleted, in the right order and in the wrong one, without losing a VM or a server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::maas::{API_KEY, ZONES};
use capmaas_e2e::real_lxd::{LxdHosts, TAG};
use capmaas_e2e::scene::Scene;
use capmaas_e2e::{eventually_within, maas::Expected};
use capmaas_testbed::{CapiVersion, KubernetesVersion};
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

/// Three machines are LXD hosts, and three control-plane machines run in VMs on them.
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

/// S22: the MAAS key and the private key of the VM hosts were never on the workload cluster, not even for a moment:
/// nothing that was ever written to it contains them. The same search finds both on the management cluster, where they
/// belong.
async fn no_key_was_ever_there(scene: &Scene, workload: &Expected) {
    let label = "infrastructure.cluster.x-k8s.io/host-keys";
    let key = "jsonpath={.items[0].data.tls\\.key}";
    let arguments = ["get", "secrets", "-n", "capmaas-system", "-l", label, "-o", key];
    let pem = BASE64_STANDARD.decode(scene.testbed.kubectl(arguments).await.unwrap().trim()).unwrap();
    let pem = String::from_utf8(pem).unwrap();
    assert!(pem.starts_with("-----BEGIN PRIVATE KEY-----"), "the pair is not where it was");
    let (private, maas) = (pem.lines().nth(1).unwrap(), API_KEY.rsplit(':').next().unwrap());
    let home = scene.testbed.ever_written().unwrap();
    let away = scene.maas.ever_written(workload.port).await.unwrap();
    assert!(away.contains("lxdhost.cluster.com/state") && away.contains("BEGIN CERTIFICATE"), "the agents are there");
    for (whose, secret) in [("the MAAS key", maas), ("the private key of the VM hosts", private)] {
        assert!(home.contains(secret), "the search does not find {whose} where it is");
        for spelling in spellings(secret) {
            assert!(!away.contains(&spelling), "{whose} was in the workload cluster");
        }
    }
}

/// A text as it is, and as it looks inside a longer base64-encoded text.
fn spellings(text: &str) -> Vec<String> {
    let inside = (0..3).map(|before| {
        let whole = BASE64_STANDARD_NO_PAD.encode([&vec![0; before], text.as_bytes()].concat());
        // The characters at both ends depend on the adjacent text.
        whole.get(4..whole.len() - 4).unwrap_or_default().to_owned()
    });
    std::iter::once(text.to_owned()).chain(inside).collect()
}

#[test]
fn a_secret_is_found_in_base64_wherever_it_stands() {
    for before in ["", "a", "ab", "abc", "user:"] {
        let hidden = BASE64_STANDARD.encode(format!("{before}CANARYmaaskeysecret and more"));
        assert!(spellings("CANARYmaaskeysecret").iter().any(|spelling| hidden.contains(spelling)), "{before}");
    }
    assert!(spellings("CANARYmaaskeysecret").iter().all(|spelling| spelling.len() > 12));
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

    // Each machine is one VM host that MAAS really reached; each has one VM, and every zone has one.
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

    scene.objects(&vms, "Cluster").unwrap().delete(&vms.name).await.unwrap();
    scene.wait_gone(&vms).await.unwrap();
    assert!(lxd.vms().unwrap().values().all(Vec::is_empty), "no VM is left in LXD");
    assert_eq!(vm_hosts(&scene).len(), 3);
    no_key_was_ever_there(&scene, &workload).await;
    scene.delete(&metal).await.unwrap();
    assert!(vm_hosts(&scene).is_empty());
    assert_eq!(scene.secrets_seen().await.unwrap(), Vec::<String>::new());
    scene.stop().await;
}

#[tokio::test]
async fn s11_hosts_that_are_deleted_first_wait_for_the_vms_of_the_other_cluster() {
    let Story { scene, lxd, metal, vms, workload } = told_so_far().await;
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
    no_key_was_ever_there(&scene, &workload).await;

    scene.objects(&vms, "Cluster").unwrap().delete(&vms.name).await.unwrap();
    scene.wait_gone(&vms).await.unwrap();
    scene.wait_nothing_left(&metal).await.unwrap();
    assert!(lxd.vms().unwrap().values().all(Vec::is_empty));
    assert!(vm_hosts(&scene).is_empty());
    scene.stop().await;
}
