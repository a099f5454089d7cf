//! Disturbances that the manager must tolerate: it is killed in the middle of its work and made to reconcile
//! repeatedly.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::cluster::ClusterPlan;
use crate::eventually;
use crate::scene::Scene;

/// How often to check whether MAAS was changed.
const POLL: Duration = Duration::from_millis(20);
/// After this time a request of a killed manager has either reached MAAS or never will.
const LANDED: Duration = Duration::from_secs(1);
/// Has no meaning; changing it triggers a reconcile, as any user edit does.
const RECONCILE_ANNOTATION: &str = "capmaas.example/reconcile";

impl Scene {
    /// Runs `work` to its end and, up to `times` times, kills the manager this long `after` it has changed something in
    /// MAAS. So each kill interrupts work in progress, and each manager makes progress before it is killed, however
    /// long its node waits before it restarts it.
    pub async fn kill_during<T>(
        &self,
        times: usize,
        after: Duration,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let mut work = std::pin::pin!(work);
        let (mut kills, mut changes, mut at_work) = (0, self.maas.mutations().len(), None);
        while kills < times {
            tokio::select! {
                done = &mut work => {
                    ensure!(done.is_err() || kills > 1, "the manager was killed {kills} times");
                    return done;
                }
                () = tokio::time::sleep(POLL) => {}
            }
            if self.maas.mutations().len() > changes && at_work.get_or_insert_with(Instant::now).elapsed() >= after {
                self.kill_manager().await?;
                kills += 1;
                // Requests in flight when the manager was killed must not be counted as the next manager's.
                tokio::time::sleep(LANDED).await;
                (changes, at_work) = (self.maas.mutations().len(), None);
            }
        }
        work.await
    }

    /// Makes the manager reconcile every object of a cluster three more times. What it has not done by then, it will
    /// not do.
    pub async fn reconcile_again(&self, plan: &ClusterPlan) -> anyhow::Result<()> {
        for look in 0..3 {
            for kind in ["MaasCluster", "MaasMachine"] {
                let objects = self.objects(plan, kind)?;
                let names: Vec<String> =
                    objects.list().await?.iter().map(|it| it["metadata"]["name"].to_string()).collect();
                let before = self.passes(kind).await?;
                for name in &names {
                    let annotations = json!({ (RECONCILE_ANNOTATION): look.to_string() });
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

    /// The number of completed reconciles of a kind since the manager started.
    async fn passes(&self, kind: &str) -> anyhow::Result<usize> {
        let name = format!("capmaas_reconciles_total{{controller=\"{}\",", kind.to_lowercase());
        let metrics = self.metrics().await?;
        let counts = metrics.lines().filter(|line| line.starts_with(&name));
        counts.map(|line| Ok(line.rsplit(' ').next().context("a metric has no value")?.parse::<usize>()?)).sum()
    }
}
