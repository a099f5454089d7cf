//! What the demo shows, in order.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::eventually_within;
use capmaas_e2e::maas::{Expected, Maas, ZONES};
use capmaas_e2e::real_lxd::{LxdHosts, TAG};
use capmaas_e2e::scene::Scene;
use capmaas_testbed::{CapiVersion, Clusterctl, KubernetesVersion};
use serde_json::json;

use crate::board::look;
use crate::show::{refusals, tables, where_to_play};
use crate::tell::{chapter, say, step, watched_step};

/// One machine in each zone becomes an LXD host.
const HOSTS: [&str; 3] = ["m01", "m02", "m03"];
const PATIENCE: Duration = Duration::from_secs(240);

/// Everything that the demo starts, in drop order.
struct Stage {
    scene: Scene,
    clusterctl: Clusterctl,
    lxd: LxdHosts,
}

/// Runs the whole demo; with `keep` it waits for Ctrl-C before it cleans up.
pub(crate) async fn run(keep: bool) -> anyhow::Result<()> {
    chapter(
        "Second part: LXD hosts and VMs. API servers, LXD and agents are real; that kubeadm ran on a node is simulated",
    );

    chapter("A management cluster, a MAAS, and capmaas installed by clusterctl");
    let stage = set_up().await?;
    let Stage { scene, clusterctl, lxd } = &stage;

    chapter("You apply a Cluster of metal whose nodes become LXD hosts (lxdControlPlaneCluster: true)");
    let metal = metal(scene);
    become_hosts(scene, lxd, &metal).await?;

    chapter("You apply a second Cluster: three control planes in VMs over three zones (dynamicLXD: true)");
    scene.testbed.kubectl(["create", "namespace", "tenants"]).await?;
    let vms = vms(scene);
    let inside = step("Cluster, MaasCluster, KubeadmControlPlane", scene.create(&vms)).await?;
    live_in_vms(scene, &vms, &inside).await?;

    chapter("Where it runs");
    tables(scene, clusterctl, &[&metal, &vms]).await?;
    spread(scene, lxd)?;

    chapter("What the API server refuses, and with which message");
    refusals(scene, &metal).await?;

    if keep {
        chapter("It runs");
        where_to_play(scene)?;
        std::future::pending::<()>().await;
    }

    chapter("You delete both Clusters at once: no host is released before the VMs on it are deleted");
    for plan in [&metal, &vms] {
        scene.objects(plan, "Cluster")?.delete(&plan.name).await?;
    }
    let gone = async {
        scene.wait_gone(&vms).await?;
        scene.wait_nothing_left(&metal).await
    };
    let what = "every VM deleted, every host unregistered, every machine released and off, both names gone";
    watched_step(what, async || look(scene, &[&metal, &vms]).await, gone).await?;
    ensure!(lxd.vms()?.values().all(Vec::is_empty), "LXD still has VMs: {:?}", lxd.vms()?);
    stage.scene.stop().await;

    chapter("Where to look next");
    say("make demo KEEP=1      leaves all of it running, with a kubeconfig for experiments");
    say("docs/quick-start.md   the same in your own cluster, with your MAAS");
    say("docs/workflow.md      who creates which object; docs/troubleshooting.md: when something is stuck");
    say("ARCHITECTURE.md       the design; docs/safety.md: the rules that it is built on");
    Ok(())
}

async fn set_up() -> anyhow::Result<Stage> {
    let (kubernetes, core) = (KubernetesVersion::default(), CapiVersion::V1_14);
    let maas = Arc::new(Maas::start()?);
    let what =
        format!("API server {kubernetes}; clusterctl init: Cluster API {core} and our release; the manager's Pod");
    let (scene, clusterctl) = step(&what, Box::pin(Scene::start_by_clusterctl(maas))).await?;
    let lxd = step("a real LXD on one machine of each zone", LxdHosts::start(&scene.maas, &HOSTS)).await?;
    Ok(Stage { scene, clusterctl, lxd })
}

fn metal(scene: &Scene) -> ClusterPlan {
    ClusterPlan {
        control_planes: 3,
        infrastructure: json!({
            "failureDomains": ZONES,
            "lxdControlPlaneCluster": true,
            "lxdConfig": {"storageBackend": "dir", "storageSize": "20", "networkBridge": "br0"},
        }),
        machine: json!({"tags": [TAG]}),
        ..ClusterPlan::new(scene.core, "metal")
    }
}

fn vms(scene: &Scene) -> ClusterPlan {
    ClusterPlan {
        namespace: "tenants".into(),
        control_planes: 3,
        infrastructure: json!({"failureDomains": ZONES}),
        machine: json!({"dynamicLXD": true, "minCPU": 1, "minMemory": 2048, "minDiskSize": 8}),
        ..ClusterPlan::new(scene.core, "vms")
    }
}

/// The metal cluster, from its objects to three VM hosts in MAAS.
async fn become_hosts(scene: &Scene, lxd: &LxdHosts, metal: &ClusterPlan) -> anyhow::Result<()> {
    let agents = lxd.agents(&scene.maas)?;
    let expected = step("Cluster, MaasCluster, KubeadmControlPlane", async {
        let expected = scene.maas.expect_cluster_with_pods(KubernetesVersion::V1_36, agents).await?;
        scene.testbed.apply_objects(metal.objects(&expected)).await?;
        Ok(expected)
    })
    .await?;
    let what = "three machines, one in each zone, deployed by MAAS; their Nodes join (simulated)";
    watched_step(what, async || look(scene, &[metal]).await, scene.wait_running(metal, &expected)).await?;
    let what = "the manager deploys the agent, the agent prepares LXD, MAAS knows each node as a VM host";
    let maas_clusters = scene.objects(metal, "MaasCluster")?;
    let ready = eventually_within(PATIENCE, "LXDReady", || async {
        let cluster = maas_clusters.get(&metal.name).await?;
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == "LXDReady").context("not reported yet")?;
        ensure!(found["status"] == "True", "it is {found}");
        Ok(())
    });
    watched_step(what, async || look(scene, &[metal]).await, async { scene.explain(ready.await).await }).await
}

/// The second cluster comes up although the manager is killed while it does.
async fn live_in_vms(scene: &Scene, vms: &ClusterPlan, inside: &Expected) -> anyhow::Result<()> {
    let before = ["allocate", "deploy"].map(|kind| scene.maas.effective(kind));
    let composed = eventually_within(PATIENCE, "the first VM", || async {
        ensure!(scene.maas.effective("compose") > 0, "MAAS was not asked for any");
        Ok(())
    });
    let what = "a host is chosen for the first VM, and MAAS composes it";
    watched_step(what, async || look(scene, &[vms]).await, async { scene.explain(composed.await).await }).await?;
    step("kill -9 of the manager, in the middle of it", scene.kill_manager()).await?;
    let what = "three VMs composed, deployed and joined (simulated) nevertheless";
    let running = async {
        scene.wait_running(vms, inside).await?;
        let available = scene.objects(vms, "Cluster")?;
        available.wait(&vms.name, "/status/controlPlane/availableReplicas", json!(vms.control_planes)).await
    };
    watched_step(what, async || look(scene, &[vms]).await, running).await?;
    let [allocated, deployed] = ["allocate", "deploy"].map(|kind| scene.maas.effective(kind));
    say(&format!(
        "for three VMs MAAS was asked to compose {} times, to allocate {} and to deploy {} times",
        scene.maas.effective("compose"),
        allocated - before[0],
        deployed - before[1],
    ));
    Ok(())
}

/// The instances that LXD really has, compared with what MAAS reports.
fn spread(scene: &Scene, lxd: &LxdHosts) -> anyhow::Result<()> {
    say("what LXD itself says (lxc list --project maas), machine by machine:");
    for (machine, vms) in lxd.vms()? {
        let zone = scene.maas.machines().into_iter().find(|facts| facts.hostname == machine).map(|facts| facts.zone);
        crate::tell::quote(&format!("{machine}  {}  {}", zone.unwrap_or_default(), vms.join(" ")));
    }
    Ok(())
}
