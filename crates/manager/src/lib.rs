//! The controller manager: watches what users and Cluster API write, gathers, lets `capmaas-core` decide, applies.

pub mod args;
pub mod clock;
pub mod health;
pub mod paused;
pub mod port;
pub mod served;

use anyhow::Context as _;
use capmaas_api::{MaasCluster, MaasMachine};
use kube::{Client, Config};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::args::Args;
use crate::health::Readiness;
use crate::paused::Context;

/// Runs until SIGTERM or SIGINT, or until something fails that a restart may mend.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let config = Config::infer().await.context("found neither a ServiceAccount of a Pod nor a kubeconfig")?;
    let client = Client::try_from(config).context("cannot make a client of the API server")?;

    let readiness = Readiness::default();
    readiness.waits_for("kinds", "waiting for the API server to answer");
    let health = health::serve(args.health_addr, readiness.clone());
    let stop = stop_signal()?;

    tokio::select! {
        result = health => result,
        () = reconcile(&args, client, &readiness, stop) => {
            tracing::info!("stopped");
            Ok(())
        }
    }
}

/// Waits for the kinds, then runs every controller until `stop`.
async fn reconcile(args: &Args, client: Client, readiness: &Readiness, stop: watch::Receiver<bool>) {
    let cluster = tokio::select! {
        cluster = served::wait_for_kinds(&client, readiness) => cluster,
        () = stopped(stop.clone()) => return,
    };
    tracing::info!(version = %cluster.version, "reading Clusters");
    let context =
        Context { client, cluster, namespace: args.namespace.clone(), watch_filter: args.watch_filter.clone() };
    tokio::join!(
        paused::run::<MaasCluster>(context.clone(), stopped(stop.clone())),
        paused::run::<MaasMachine>(context, stopped(stop)),
    );
}

/// True from the first SIGTERM or SIGINT on.
fn stop_signal() -> anyhow::Result<watch::Receiver<bool>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop: finishing what is under way");
        sender.send_replace(true);
        // Kept alive, so that a receiver made later still sees the value.
        std::future::pending::<()>().await;
    });
    Ok(receiver)
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // An error means that the sender is gone, which happens only when the runtime ends: stop as well.
    let _ = stop.wait_for(|stopped| *stopped).await;
}
