//! Two tenants with a MAAS each, one of which stops answering: the effect on the other one (S29).

use std::path::Path;
use std::time::Duration;

use capmaas_testbed::Testbed;
use maas_sim::faults::ServerState;
use serde::Serialize;

use crate::capi::{ClusterApi, Kind};
use crate::kinds::install_kinds;
use crate::maas::{Latency, Maas, Speed, Stock};
use crate::phases::Spread;
use crate::provider::Provider;
use crate::tell;

const PATIENCE: Duration = Duration::from_secs(300);
/// The time for the hanging machines to take every slot that they can get.
const SETTLING: Duration = Duration::from_secs(20);

/// How long the machines of the tenant with the working MAAS took, from creation until provisioned.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Machines of the tenant whose MAAS hangs.
    pub hanging: usize,
    /// Seconds while both answered.
    pub before: Spread,
    /// Seconds while the other tenant's MAAS did not answer.
    pub beside: Spread,
    /// The provider's peak memory.
    pub rss_peak_mib: f64,
}

impl Measured {
    pub fn markdown(&self) -> String {
        let row = |what: &str, it: &Spread| format!("| {what} | {:.1} s | {:.1} s |\n", it.p50, it.p99);
        format!(
            "| a machine, created until provisioned | median | 99 % |\n|---|---|---|\n{}{}\nmost memory: {:.0} MiB\n",
            row("both MAASes answer", &self.before),
            row(&format!("beside {} machines of a MAAS that hangs", self.hanging), &self.beside),
            self.rss_peak_mib
        )
    }
}

pub async fn measure(provider: &str, crds: &Path, hanging: usize, machines: usize) -> anyhow::Result<Measured> {
    let start = |machines| {
        Maas::start(Stock { machines, vms: 0, deploy_seconds: 60.0, speed: Speed::Driven, latency: Latency::None })
    };
    let (ours, theirs) = (start(2 * machines)?, start(hanging)?);
    let testbed = Testbed::builder().name_server(ours.name_server).start().await?;
    install_kinds(&testbed, crds).await?;
    let provider = Provider::prepare(&testbed, provider, &ours.endpoint).await?;
    let running = provider.start(&testbed)?;
    let core = ClusterApi::start(&testbed)?;
    let other = ClusterApi::start_tenant(&testbed, "other", &theirs.endpoint).await?;
    core.create_cluster(PATIENCE).await?;
    other.create_cluster(PATIENCE).await?;
    let before = took(&core, "before", machines).await?;
    theirs.control().set_server(ServerState::Silent);
    let names: Vec<String> = (0..hanging).map(|number| format!("hangs-{number}")).collect();
    other.create_machines(&names, &Kind::Metal.spec()).await?;
    tell(&format!("{hanging} machines of a MAAS that hangs"));
    tokio::time::sleep(SETTLING).await;
    let beside = took(&core, "beside", machines).await?;
    let rss_peak_mib = running.usage()?.rss_peak_mib;
    running.stop().await;
    drop((core, other));
    testbed.stop().await;
    Ok(Measured { hanging, before, beside, rss_peak_mib })
}

async fn took(core: &ClusterApi, prefix: &str, machines: usize) -> anyhow::Result<Spread> {
    let names: Vec<String> = (0..machines).map(|number| format!("{prefix}-{number}")).collect();
    core.create_machines(&names, &Kind::Metal.spec()).await?;
    core.wait_machines(PATIENCE, "it is provisioned", &names, |life| life.provisioned.is_some()).await?;
    let lives = core.lives();
    let lasted = |name: &String| {
        let life = lives.get(name)?;
        Some(life.provisioned?.duration_since(life.created?).as_secs_f64())
    };
    let spread = Spread::of(names.iter().filter_map(lasted).collect());
    tell(&format!("{prefix}: {spread:?}"));
    Ok(spread)
}
