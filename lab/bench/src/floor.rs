//! The cost without any provider: how long the API server alone takes for machines and for a provider's writes about
//! them. No provider that makes these writes can be faster when all machines are created at once, so this is the
//! baseline.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use capmaas_testbed::Testbed;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;

use crate::capi::{ClusterApi, Kind};
use crate::kinds::install_kinds;
use crate::tell;

/// What is written about each machine.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Writes {
    /// Changes of its annotations and, with the last one, of its spec.
    pub patches: usize,
    /// Complete statuses, by server-side apply.
    pub statuses: usize,
    /// Events about it.
    pub events: usize,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The folder with the CRDs.
    pub crds: PathBuf,
    pub machines: usize,
    /// What is written about each.
    pub writes: Writes,
    /// How many machines are written about concurrently.
    pub at_once: usize,
    /// The timeout without any progress.
    pub patience: Duration,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Floor {
    pub machines: usize,
    pub writes: Writes,
    /// Until the last of them was provisioned, as far as the API server is concerned.
    pub seconds: f64,
}

pub async fn measure(plan: &Plan) -> anyhow::Result<Floor> {
    // As in a run: the API server has the same additional work.
    let testbed = Testbed::builder().audit().start().await?;
    install_kinds(&testbed, &plan.crds).await?;
    let core = ClusterApi::start(&testbed)?;
    let names: Vec<String> = (0..plan.machines).map(|index| format!("bench-{index:05}")).collect();
    tell(&format!("{} machines without a provider, {:?}", names.len(), plan.writes));
    let began = Instant::now();
    let spec = Kind::Metal.spec();
    let done: anyhow::Result<()> = async {
        stream::iter(&names)
            .map(Ok)
            .try_for_each_concurrent(plan.at_once, |name| async {
                core.create_machines(std::slice::from_ref(name), &spec).await?;
                core.write_as_a_provider(name, plan.writes).await
            })
            .await?;
        core.wait_machines(plan.patience, "it is provisioned", &names, |life| life.provisioned.is_some()).await
    }
    .await;
    let seconds = began.elapsed().as_secs_f64();
    drop(core);
    testbed.stop().await;
    done.map(|()| Floor { machines: plan.machines, writes: plan.writes, seconds })
}
