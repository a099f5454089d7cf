//! What the demo shows, in order.

use anyhow::{Context as _, ensure};
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::maas::{Expected, ZONES};
use capmaas_e2e::scene::Scene;
use capmaas_e2e::{INFRASTRUCTURE, Objects, eventually, refusal};
use capmaas_testbed::{CapiVersion, KubernetesVersion};
use serde_json::json;

use crate::tell::{chapter, quote, say, step};

/// Tells the whole story; with `keep` it waits before the end until somebody presses Ctrl-C.
pub(crate) async fn run(keep: bool) -> anyhow::Result<()> {
    println!("capmaas demo: real parts and a simulated MAAS, on this machine only.");

    chapter("A management cluster and a MAAS");
    let (kubernetes, core) = (KubernetesVersion::default(), CapiVersion::V1_14);
    let what = format!("API server {kubernetes}, Cluster API {core}, and a MAAS with 12 machines in three zones");
    let mut scene = step(&what, Scene::without_manager(core)).await?;
    let what = "capmaas from its manifests: CRDs, policy, rights, MAAS key, and the manager's Pod on a played node";
    step(what, scene.start_manager()).await?;

    chapter("You write a Cluster");
    let mut plan = ClusterPlan {
        workers: 2,
        infrastructure: json!({ "failureDomains": ZONES }),
        ..ClusterPlan::new(core, "demo")
    };
    let expected = step("Cluster, MaasCluster, KubeadmControlPlane, MachineDeployment", scene.create(&plan)).await?;
    come_up(&scene, &plan, &expected).await?;

    chapter("Where it stands");
    tables(&scene).await?;

    chapter("What the API server refuses, and what it says then");
    refusals(&scene).await?;

    chapter("The manager is killed while the cluster grows");
    plan.workers = 3;
    let deployments = scene.objects(&plan, "MachineDeployment")?;
    deployments.merge("demo-md", json!({ "spec": { "replicas": 3 } })).await?;
    step("kill -9, and the third worker comes all the same", async {
        scene.kill_manager().await?;
        scene.wait_running(&plan, &expected).await
    })
    .await?;
    let (allocated, deployed) = (scene.maas.effective("allocate"), scene.maas.effective("deploy"));
    say(&format!("for four machines MAAS was asked to allocate {allocated} times and to deploy {deployed} times"));

    if keep {
        chapter("It runs");
        say(&format!("export KUBECONFIG={}", scene.testbed.kubeconfig_path().display()));
        say("kubectl get cluster-api -A; kubectl explain maascluster.spec");
        say("the manager's log so far:");
        quote(&scene.manager_log().await?);
        say("Ctrl-C ends it and clears everything away.");
        std::future::pending::<()>().await;
    }

    chapter("You delete the Cluster");
    step("every machine is released and off, the name is gone, nothing is left", scene.delete(&plan)).await?;
    scene.stop().await;

    chapter("Next");
    say("make demo KEEP=1 leaves the cluster running with a kubeconfig to play with.");
    say("ARCHITECTURE.md shows the house, docs/safety.md the rules that it is built on.");
    Ok(())
}

/// From the Cluster to Running, one line for each thing that a person would look for.
async fn come_up(scene: &Scene, plan: &ClusterPlan, expected: &Expected) -> anyhow::Result<()> {
    let maas_clusters = scene.objects(plan, "MaasCluster")?;
    step("the manager makes the API server's name in MAAS", async {
        let made = maas_clusters.wait(&plan.name, "/status/initialization/provisioned", json!(true));
        scene.explain(made.await).await
    })
    .await?;
    let host = maas_clusters.get(&plan.name).await?["spec"]["controlPlaneEndpoint"]["host"].clone();
    say(&format!("the endpoint is {}, port {}", host.as_str().context("there is no endpoint")?, expected.port));
    step("MAAS deploys the first machine, and kubeadm init makes a control plane of it", async {
        let joined = eventually("the first node", || async {
            ensure!(!scene.maas.nodes(expected.port).await?.is_empty(), "none has joined: {:?}", scene.maas.trouble());
            Ok(())
        });
        scene.explain(joined.await).await
    })
    .await?;
    step("the workers follow, every Node gets its provider ID, every Machine is Running", async {
        scene.wait_running(plan, expected).await
    })
    .await
}

/// Bad input gets a sentence.
async fn refusals(scene: &Scene) -> anyhow::Result<()> {
    let maas_clusters = Objects::of(&scene.testbed, INFRASTRUCTURE, "v1beta1", "MaasCluster")?;
    let maas_machines = Objects::of(&scene.testbed, INFRASTRUCTURE, "v1beta1", "MaasMachine")?;
    let templates = Objects::of(&scene.testbed, INFRASTRUCTURE, "v1beta1", "MaasMachineTemplate")?;

    let mut contradiction =
        json!({ "image": "ubuntu/jammy", "minCPU": 4, "minMemory": 8192, "provisioningMode": "bare-metal" });
    contradiction["dynamicLXD"] = json!(true);
    say("a machine that is metal and a VM at once:");
    quote(&refusal(maas_machines.apply("both", json!({ "spec": contradiction })).await)?);

    say("another DNS domain for a cluster that runs:");
    quote(&refusal(maas_clusters.merge("demo", json!({ "spec": { "dnsDomain": "other" } })).await)?);

    let bigger = json!({ "spec": { "template": { "spec": { "minCPU": 8 } } } });
    say("a template changed in place:");
    quote(&refusal(templates.merge("demo-cp", bigger).await)?);
    Ok(())
}

/// What a person would look at.
async fn tables(scene: &Scene) -> anyhow::Result<()> {
    for kinds in ["clusters,machines", "maasclusters", "maasmachines"] {
        say(&format!("$ kubectl get {kinds}"));
        quote(&scene.testbed.kubectl(["get", kinds]).await?);
        println!();
    }
    say("in MAAS:");
    for machine in scene.maas.taken() {
        let addresses: Vec<String> = machine.addresses.iter().map(ToString::to_string).collect();
        quote(&format!("{}  {}  {}  {}", machine.hostname, machine.zone, machine.status, addresses.join(" ")));
    }
    for (name, addresses) in scene.maas.records() {
        quote(&format!("{name} leads to {addresses:?}"));
    }
    Ok(())
}
