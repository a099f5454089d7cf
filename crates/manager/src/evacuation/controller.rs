//! When hosts are observed: when a MaasMachine with a maintenance annotation changes, when a MaasMachine or a Machine
//! is being deleted, every few seconds while hosts are being evacuated, and once a minute for tags in MAAS, which
//! trigger no event.

use std::time::{Duration, Instant};

use capmaas_api::names::{MAINTENANCE_ANNOTATION, MAINTENANCE_TAGGED_ANNOTATION};
use capmaas_core::plan::Requeue;
use futures::StreamExt as _;
use futures::stream::select;
use kube::ResourceExt as _;
use tracing::Instrument as _;

use super::{Context, Memory, pass};
use crate::platform::Platform;

/// The longest interval between two passes.
const IDLE: Duration = Duration::from_secs(60);
/// The shortest: many changes arrive at once when a cluster rolls.
const CALM: Duration = Duration::from_secs(1);
/// A pass that takes longer hangs: every call in it has its own, far shorter deadline.
const DEADLINE: Duration = Duration::from_secs(600);

/// Evacuates hosts until `stop`.
pub async fn run(platform: Platform, stop: impl Future<Output = ()> + Send + 'static) {
    let context = Context {
        kubernetes: platform.kubernetes.clone(),
        owners: platform.owners.clone(),
        identities: platform.identities.clone(),
        clock: platform.clock.clone(),
        fence: platform.fence.clone(),
        metrics: platform.metrics.clone(),
        lxd_hosts: platform.lxd_hosts.clone(),
        memory: Memory::default(),
    };
    let said = platform.watches.maas_machines.subscribe().filter(|machine| {
        let annotations = machine.annotations();
        let told = [MAINTENANCE_ANNOTATION, MAINTENANCE_TAGGED_ANNOTATION];
        let news = machine.metadata.deletion_timestamp.is_some() || told.iter().any(|it| annotations.contains_key(*it));
        std::future::ready(news)
    });
    let going = platform.watches.machines.subscribe().filter(|machine| {
        let news = machine.metadata.deletion_timestamp.is_some();
        std::future::ready(news)
    });
    let mut news = std::pin::pin!(select(said.map(|_| ()), going.map(|_| ())));
    let mut stop = std::pin::pin!(stop);
    loop {
        let wait = timed_pass(&context).instrument(tracing::info_span!("evacuation")).await;
        tokio::select! {
            () = &mut stop => return,
            () = tokio::time::sleep(wait) => {}
            () = async {
                // A watch that has ended delivers nothing more; then only the timer triggers passes.
                if news.next().await.is_none() {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(CALM).await;
            } => {}
        }
    }
}

async fn timed_pass(context: &Context) -> Duration {
    let began = Instant::now();
    let result = tokio::time::timeout(DEADLINE, pass(context)).await;
    context.metrics.reconciled("evacuation", matches!(result, Ok(Ok(_))), began.elapsed());
    match result {
        Ok(Ok(Requeue::After(wait))) => wait.min(IDLE),
        Ok(Ok(Requeue::OnChange)) => IDLE,
        Ok(Err(error)) => {
            tracing::warn!(%error, "LXD hosts could not be observed");
            IDLE
        }
        Err(_) => {
            tracing::warn!("observing LXD hosts took too long");
            IDLE
        }
    }
}
