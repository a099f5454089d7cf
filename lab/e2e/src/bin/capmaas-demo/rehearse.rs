//! `make demo INVENTORY=… CLUSTER=…`: a user's cluster on a user's inventory.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::maas::Maas;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;

use crate::board::look;
use crate::show::where_to_play;
use crate::tell::{chapter, quote, say, step, watched_step};

/// Plans the cluster, brings it up, shows where its machines are, and deletes it.
pub(crate) async fn run(inventory: &Path, cluster: &Path, keep: bool) -> anyhow::Result<()> {
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()));
    let (site, manifests) = (read(inventory)?, read(cluster)?);
    let core = CapiVersion::V1_14;
    let plan = ClusterPlan::like(&manifests, core)?;

    chapter(
        "A rehearsal: your inventory in a simulated MAAS; Kubernetes and Cluster API are real, nodes are simulated",
    );
    let maas = Arc::new(Maas::rehearsal(&site)?);
    let scene = step("a management cluster, Cluster API and the manager", Box::pin(Scene::before(core, maas))).await?;
    let file = |path: &Path| path.display().to_string();
    let arguments = ["plan", "--inventory", &file(inventory), "-f", &file(cluster)];
    say(&format!("$ kubectl maas {}", arguments.join(" ")));
    quote(&scene.plugin(&arguments).await?);

    chapter("The cluster comes up");
    let expected = step("Cluster, MaasCluster, KubeadmControlPlane", scene.create(&plan)).await?;
    let what = "its machines, allocated or composed, deployed, and joined (simulated)";
    watched_step(what, async || look(&scene, &[&plan]).await, scene.wait_running(&plan, &expected)).await?;
    for arguments in [["machines"], ["hosts"]] {
        say(&format!("$ kubectl maas {}", arguments.join(" ")));
        quote(&scene.plugin(&arguments).await?);
    }
    if keep {
        chapter("It runs");
        where_to_play(&scene)?;
        std::future::pending::<()>().await;
    }
    chapter("And is deleted");
    step("every machine released, every VM deleted", async {
        scene.objects(&plan, "Cluster")?.delete(&plan.name).await?;
        scene.wait_gone(&plan).await
    })
    .await?;
    scene.stop().await;
    Ok(())
}
