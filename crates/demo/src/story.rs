//! What the demo shows, in order.

use anyhow::Context as _;
use capmaas_e2e::{Objects, install, manager_player, refusal};
use capmaas_testbed::{CapiVersion, KubernetesVersion, NodePlayer, Testbed};
use serde_json::{Value, json};

use crate::tell::{chapter, quote, say, step};

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const CORE: &str = "cluster.x-k8s.io";
/// Two metal machines and a VM, one a zone.
const MACHINES: [(&str, &str, &str, &str); 3] = [
    ("demo-cp-0", "az1", "maas://az1/abc001", "bare-metal"),
    ("demo-cp-1", "az2", "maas-lxd://az2/abc002", "lxd"),
    ("demo-worker-0", "az3", "maas://az3/abc003", "bare-metal"),
];

/// Tells the whole story; with `keep` it waits at the end until somebody presses Ctrl-C.
pub(crate) async fn run(keep: bool) -> anyhow::Result<()> {
    println!("capmaas demo: real parts, on this machine only.");

    chapter("A management cluster");
    let kubernetes = KubernetesVersion::V1_36;
    let core = CapiVersion::V1_14;
    let testbed =
        step(&format!("etcd, kube-apiserver and kube-controller-manager {kubernetes}, Cluster API {core}"), async {
            Ok(Testbed::builder().kubernetes(kubernetes).cluster_api(Some(core)).start().await?)
        })
        .await?;
    let player =
        step("capmaas from its manifests: CRDs, policy, rights, and the manager's Pod on a played node", async {
            install(&testbed).await?;
            manager_player(&testbed).await
        })
        .await?;

    chapter("You write a Cluster");
    write_cluster(&testbed).await?;
    adopt(&testbed).await?;

    chapter("What the API server refuses, and what it says then");
    refusals(&testbed).await?;

    chapter("Where it stands");
    tables(&testbed).await?;
    next(&testbed, &player, keep).await
}

/// A Cluster as a user writes it, with machines.
async fn write_cluster(testbed: &Testbed) -> anyhow::Result<()> {
    let reference = |kind: &str, name: &str| json!({ "apiGroup": INFRASTRUCTURE, "kind": kind, "name": name });
    let clusters = Objects::of(testbed, CORE, "v1beta2", "Cluster")?;
    let machines = Objects::of(testbed, CORE, "v1beta2", "Machine")?;
    let maas_clusters = Objects::of(testbed, INFRASTRUCTURE, "v1beta1", "MaasCluster")?;
    let maas_machines = Objects::of(testbed, INFRASTRUCTURE, "v1beta1", "MaasMachine")?;
    let secrets = Objects::of(testbed, "", "v1", "Secret")?;

    let zones = MACHINES.map(|(_, zone, _, _)| zone);
    maas_clusters.apply("demo", json!({ "spec": { "dnsDomain": "maas", "failureDomains": zones } })).await?;
    clusters.apply("demo", json!({ "spec": { "infrastructureRef": reference("MaasCluster", "demo") } })).await?;
    let bootstrap = json!({ "type": "cluster.x-k8s.io/secret", "stringData": { "value": "#cloud-config" } });
    secrets.apply("demo-bootstrap", bootstrap).await?;
    for (name, zone, _, mode) in MACHINES {
        maas_machines.apply(name, json!({ "spec": machine_spec(mode) })).await?;
        let spec = json!({
            "clusterName": "demo",
            "failureDomain": zone,
            "bootstrap": { "dataSecretName": "demo-bootstrap" },
            "infrastructureRef": reference("MaasMachine", name),
        });
        machines.apply(name, json!({ "spec": spec })).await?;
    }
    step("Cluster API adopts the MaasCluster and the MaasMachines", async {
        maas_clusters.wait("demo", "/metadata/ownerReferences/0/kind", json!("Cluster")).await?;
        for (name, ..) in MACHINES {
            maas_machines.wait(name, "/metadata/ownerReferences/0/kind", json!("Machine")).await?;
        }
        Ok(())
    })
    .await?;
    step("the manager reports on each of them", async {
        maas_clusters.wait_for_condition("demo", "Paused", "False").await?;
        for (name, ..) in MACHINES {
            maas_machines.wait_for_condition(name, "Paused", "False").await?;
        }
        Ok(())
    })
    .await?;
    step("paused and resumed: the manager sees it on the Cluster", async {
        clusters.merge("demo", json!({ "spec": { "paused": true } })).await?;
        maas_clusters.wait_for_condition("demo", "Paused", "True").await?;
        clusters.merge("demo", json!({ "spec": { "paused": false } })).await?;
        maas_clusters.wait_for_condition("demo", "Paused", "False").await
    })
    .await
}

fn machine_spec(mode: &str) -> Value {
    json!({ "image": "ubuntu/jammy", "minCPU": 4, "minMemory": 8192, "provisioningMode": mode })
}

/// The manager does not speak to MAAS yet, so its part is written by hand.
async fn adopt(testbed: &Testbed) -> anyhow::Result<()> {
    let clusters = Objects::of(testbed, CORE, "v1beta2", "Cluster")?;
    let machines = Objects::of(testbed, CORE, "v1beta2", "Machine")?;
    let maas_clusters = Objects::of(testbed, INFRASTRUCTURE, "v1beta1", "MaasCluster")?;
    let maas_machines = Objects::of(testbed, INFRASTRUCTURE, "v1beta1", "MaasMachine")?;
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Ready", "message": "written by the demo",
        "lastTransitionTime": "2026-11-15T00:00:00Z",
    });

    say("(the manager does not speak to MAAS yet: the demo writes by hand what it will find there)");
    step("the MaasCluster says that it is provisioned: the Cluster follows", async {
        let endpoint = json!({ "host": "demo.maas", "port": 6443 });
        maas_clusters.merge("demo", json!({ "spec": { "controlPlaneEndpoint": endpoint } })).await?;
        let zones: Vec<Value> =
            MACHINES.iter().map(|(_, zone, ..)| json!({ "name": zone, "controlPlane": true })).collect();
        let status = json!({
            "ready": true, "initialization": { "provisioned": true }, "failureDomains": zones, "conditions": [ready],
        });
        maas_clusters.apply_status("demo", status).await?;
        clusters.wait("demo", "/status/phase", json!("Provisioned")).await
    })
    .await?;
    for (name, zone, provider_id, mode) in MACHINES {
        step(&format!("{name} is deployed in {zone}: its Machine follows"), async {
            maas_machines.merge(name, json!({ "spec": { "providerID": provider_id, "failureDomain": zone } })).await?;
            let mut status = json!({
                "ready": true, "initialization": { "provisioned": true }, "failureDomain": zone,
                "machineState": "Deployed", "machinePowered": true, "hostname": name, "provisioningMode": mode,
                "conditions": [ready],
            });
            if mode == "lxd" {
                status["lxdHost"] = json!("lxd-host-1");
                status["vmResourceUsage"] =
                    json!({ "allocatedCores": 4, "allocatedMemory": 8192, "allocatedDisk": 60 });
            }
            maas_machines.apply_status(name, status).await?;
            machines.wait(name, "/status/phase", json!("Provisioned")).await
        })
        .await?;
    }
    Ok(())
}

/// Bad input gets a sentence.
async fn refusals(testbed: &Testbed) -> anyhow::Result<()> {
    let maas_clusters = Objects::of(testbed, INFRASTRUCTURE, "v1beta1", "MaasCluster")?;
    let maas_machines = Objects::of(testbed, INFRASTRUCTURE, "v1beta1", "MaasMachine")?;
    let templates = Objects::of(testbed, INFRASTRUCTURE, "v1beta1", "MaasMachineTemplate")?;

    let mut contradiction = machine_spec("bare-metal");
    contradiction["dynamicLXD"] = json!(true);
    say("a machine that is metal and a VM at once:");
    quote(&refusal(maas_machines.apply("both", json!({ "spec": contradiction })).await)?);

    say("another DNS domain for a cluster that runs:");
    quote(&refusal(maas_clusters.merge("demo", json!({ "spec": { "dnsDomain": "other" } })).await)?);

    templates.apply("demo-cp", json!({ "spec": { "template": { "spec": machine_spec("lxd") } } })).await?;
    let bigger = json!({ "spec": { "template": { "spec": { "minCPU": 8 } } } });
    say("a template changed in place:");
    quote(&refusal(templates.merge("demo-cp", bigger).await)?);
    Ok(())
}

async fn tables(testbed: &Testbed) -> anyhow::Result<()> {
    for kinds in ["clusters,machines", "maasclusters", "maasmachines"] {
        say(&format!("$ kubectl get {kinds}"));
        quote(&testbed.kubectl(["get", kinds]).await?);
        println!();
    }
    say("$ kubectl explain maasmachine.spec.provisioningMode");
    quote(&testbed.kubectl(["explain", "maasmachine.spec.provisioningMode"]).await?);
    Ok(())
}

/// Where a person goes from here.
async fn next(testbed: &Testbed, player: &NodePlayer, keep: bool) -> anyhow::Result<()> {
    chapter("Next");
    if keep {
        let pods = testbed.kubectl(["get", "pods", "-n", "capmaas-system", "-o", "name"]).await?;
        let pod = pods.trim().strip_prefix("pod/").context("the manager has no Pod")?;
        say(&format!("export KUBECONFIG={}", testbed.kubeconfig_path().display()));
        say("kubectl get cluster-api -A; kubectl explain maascluster.spec");
        say("the manager's log so far:");
        quote(&player.logs("capmaas-system", pod));
        say("Ctrl-C ends it and clears everything away.");
        std::future::pending::<()>().await;
    }
    say("make demo KEEP=1 leaves it running with a kubeconfig to play with.");
    say("ARCHITECTURE.md shows the house, docs/safety.md the rules that it is built on.");
    Ok(())
}
