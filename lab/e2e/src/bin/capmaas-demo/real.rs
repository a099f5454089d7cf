//! The first part: a cluster whose machines really boot.

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::real_nodes::RealScene;
use capmaas_testbed::nodes::{KUBERNETES, NodeImage};

use crate::board::look;
use crate::tell::{chapter, quote, say, step, watched_step};

const NAME: &str = "real";

pub(crate) async fn run() -> anyhow::Result<()> {
    chapter("First part: machines that boot. Simulated are MAAS, and the node that the manager runs on");
    say(
        "Each machine is a system container: systemd, cloud-init, containerd, kubelet. MAAS is simulated and deploys them.",
    );
    // The first run takes minutes and reports its progress; later runs use the cache.
    tokio::task::spawn_blocking(|| NodeImage::ensure(KUBERNETES)).await??;
    let real = step("a management cluster, a MAAS with machines, capmaas installed by clusterctl", RealScene::start());
    let real = Box::pin(real).await?;
    let plan = ClusterPlan::new(real.scene.core, NAME);
    let watch = async || look(&real.scene, &[&plan]).await;

    chapter("You apply what clusterctl generates from our template: one control plane and one worker of metal");
    let objects = real.generate(NAME, 1, 1).await?;
    step("clusterctl generate cluster real | kubectl apply -f -", async {
        Ok(real.scene.testbed.apply_objects(objects).await?)
    })
    .await?;
    let what = "MAAS deploys the first machine, cloud-init runs kubeadm init, you apply a network plugin";
    watched_step(what, watch, real.give_network(NAME)).await?;
    watched_step("kubeadm join on the second; both Nodes Ready", watch, real.wait_ready(NAME, 2)).await?;
    nodes(&real).await?;
    let pods =
        step("a Deployment of two Pods behind a Service, queried on every Node", real.run_a_workload(NAME)).await?;
    quote(&format!("answered by {}", pods.into_iter().collect::<Vec<_>>().join(" and ")));

    chapter("Somebody pulls the plug of the control plane");
    let control_plane = real.control_plane(NAME).await?;
    step(&format!("{control_plane} is off"), real.cut_power(&control_plane)).await?;
    let back = async {
        real.wait_ready(NAME, 2).await?;
        real.run_a_workload(NAME).await
    };
    watched_step("the manager turns it on again, etcd is as it was, and the Service answers", watch, back).await?;

    chapter("You delete the Cluster");
    watched_step("both machines released and off, the name of the API server gone", watch, real.delete(NAME)).await?;
    real.stop().await;
    Ok(())
}

async fn nodes(real: &RealScene) -> anyhow::Result<()> {
    let columns = "custom-columns=NAME:.metadata.name,VERSION:.status.nodeInfo.kubeletVersion,\
                   RUNTIME:.status.nodeInfo.containerRuntimeVersion,\
                   ZONE:.metadata.labels.topology\\.kubernetes\\.io/zone,PROVIDER:.spec.providerID";
    for arguments in
        [&["get", "nodes"][..], &["get", "nodes", "--output", columns], &["get", "pods", "--all-namespaces"]]
    {
        say(&format!("$ kubectl {}", arguments.join(" ")));
        quote(&real.kubectl(NAME, arguments).await?);
    }
    Ok(())
}
