//! What a user would inspect, with the tools that a user has.

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::maas::API_KEY;
use capmaas_e2e::scene::Scene;
use capmaas_e2e::{program, refusal};
use capmaas_testbed::tools::ToolSet;
use capmaas_testbed::{CapiVersion, Clusterctl, KubernetesVersion};
use serde_json::json;

use crate::tell::{quote, say};

/// The clusters, the machines, the hosts, and the names in MAAS.
pub(crate) async fn tables(scene: &Scene, clusterctl: &Clusterctl, plans: &[&ClusterPlan]) -> anyhow::Result<()> {
    for plan in plans {
        let arguments = ["describe", "cluster", &plan.name, "--namespace", &plan.namespace, "--grouping=false"];
        say(&format!("$ clusterctl {}", arguments.join(" ")));
        quote(&clusterctl.run(arguments).await?);
        println!();
    }
    for arguments in [["machines", "--all-namespaces"].as_slice(), &["hosts"]] {
        say(&format!("$ kubectl maas {}", arguments.join(" ")));
        quote(&scene.plugin(arguments).await?);
        println!();
    }
    say("the names of the API servers in MAAS:");
    for (name, addresses) in scene.maas.records() {
        quote(&format!("{name} resolves to {addresses:?}"));
    }
    println!();
    Ok(())
}

/// Invalid input is refused with an explanation.
pub(crate) async fn refusals(scene: &Scene, plan: &ClusterPlan) -> anyhow::Result<()> {
    let both = json!({"image": "ubuntu/jammy", "minCPU": 4, "minMemory": 8192, "provisioningMode": "bare-metal", "dynamicLXD": true});
    say("a machine that is metal and a VM at once:");
    quote(&refusal(scene.objects(plan, "MaasMachine")?.apply("both", json!({ "spec": both })).await)?);

    say("another DNS domain for a running cluster:");
    let elsewhere = json!({ "spec": { "dnsDomain": "other" } });
    quote(&refusal(scene.objects(plan, "MaasCluster")?.merge(&plan.name, elsewhere).await)?);

    say("a template changed in place:");
    let bigger = json!({ "spec": { "template": { "spec": { "minCPU": 8 } } } });
    let template = format!("{}-cp", plan.name);
    quote(&refusal(scene.objects(plan, "MaasMachineTemplate")?.merge(&template, bigger).await)?);
    Ok(())
}

/// How to continue by hand in another terminal.
pub(crate) fn where_to_play(scene: &Scene) -> anyhow::Result<()> {
    let folder =
        |program: std::path::PathBuf| program.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
    let tools = [
        folder(ToolSet::Kubernetes(KubernetesVersion::V1_36).ensure()?.program("kubectl")),
        folder(ToolSet::ClusterApi(CapiVersion::V1_14).ensure()?.program("clusterctl")),
        folder(program("kubectl-maas")?),
    ];
    say("in another terminal:");
    quote(&format!("export KUBECONFIG={}", scene.testbed.kubeconfig_path().display()));
    quote(&format!("export PATH={}:$PATH", tools.join(":")));
    quote(&format!("export MAAS_ENDPOINT={} MAAS_API_KEY={API_KEY}   # made up for this demo", scene.maas.endpoint));
    say("then, for instance:");
    quote("kubectl maas machines -A; kubectl maas hosts; kubectl maas doctor -A");
    quote("kubectl scale kubeadmcontrolplane/vms-cp -n tenants --replicas 5; kubectl maas machines -n tenants");
    quote("kubectl delete cluster vms -n tenants; kubectl delete cluster metal");
    say("Ctrl-C stops it and removes everything.");
    Ok(())
}
