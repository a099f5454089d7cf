//! What scenarios do to a manager that has to bear it: it is killed in the middle of its work, and made to look again and again.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::cluster::ClusterPlan;
use crate::eventually;
use crate::scene::Scene;

/// How often it is looked whether MAAS was changed.
const GLANCE: Duration = Duration::from_millis(20);
/// After this a request of a killed manager has landed or never will.
const LANDED: Duration = Duration::from_secs(1);
/// Nobody reads it; a change of it calls for a pass, as whatever a person writes does.
const LOOK_ANNOTATION: &str = "capmaas.example/look";

impl Scene {
    /// Kills the manager as soon as it has changed something in MAAS, up to `times` times, while `work` goes on, and lets that end. So each kill hits
    /// work under way; whoever takes over waits for the Lease first.
    pub async fn kill_during<T>(
        &self,
        times: usize,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let mut work = std::pin::pin!(work);
        let (mut kills, mut changes) = (0, self.maas.mutations().len());
        while kills < times {
            tokio::select! {
                done = &mut work => {
                    ensure!(done.is_err() || kills > 1, "the manager was killed {kills} times");
                    return done;
                }
                () = tokio::time::sleep(GLANCE) => {}
            }
            let now = self.maas.mutations().len();
            if now > changes {
                self.kill_manager().await?;
                kills += 1;
                // What was on its way to MAAS when it was killed is none of the next one's.
                tokio::time::sleep(LANDED).await;
                changes = self.maas.mutations().len();
            }
        }
        work.await
    }

    /// Has the manager look at everything of a cluster three times more. What it has not done after that, it does not do.
    pub async fn look_again(&self, plan: &ClusterPlan) -> anyhow::Result<()> {
        for look in 0..3 {
            for kind in ["MaasCluster", "MaasMachine"] {
                let objects = self.objects(plan, kind)?;
                let names: Vec<String> =
                    objects.list().await?.iter().map(|it| it["metadata"]["name"].to_string()).collect();
                let before = self.passes(kind).await?;
                for name in &names {
                    let annotations = json!({ (LOOK_ANNOTATION): look.to_string() });
                    objects
                        .merge(name.trim_matches('"'), json!({ "metadata": { "annotations": annotations } }))
                        .await?;
                }
                let what = format!("{} further passes over a {kind}", names.len());
                let looked = eventually(&what, || async {
                    let passes = self.passes(kind).await? - before;
                    ensure!(passes >= names.len(), "{passes} passes over {names:?}");
                    Ok(())
                });
                self.explain(looked.await).await?;
            }
        }
        Ok(())
    }

    /// How many passes over objects of a kind the manager has ended since it was started.
    async fn passes(&self, kind: &str) -> anyhow::Result<usize> {
        let name = format!("capmaas_reconciles_total{{controller=\"{}\",", kind.to_lowercase());
        let metrics = self.metrics().await?;
        let counts = metrics.lines().filter(|line| line.starts_with(&name));
        counts.map(|line| Ok(line.rsplit(' ').next().context("a metric has no value")?.parse::<usize>()?)).sum()
    }
}
