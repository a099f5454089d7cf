//! The controller manager: watches the objects of users and Cluster API, observes, lets `capmaas-core` decide,
//! performs.

pub mod answering;
pub mod args;
pub mod backoff;
mod belonging;
pub mod clock;
pub mod cluster;
mod coalesced_reads;
pub mod credential_rotation;
pub mod diagnostics;
pub mod discovery;
pub mod evacuation;
pub mod feed;
pub mod fenced;
pub mod health;
pub mod hosts;
pub mod identity;
pub mod joining;
mod key;
pub mod kubernetes;
pub mod lease;
pub mod links;
pub mod log_level;
pub mod lxd_hosts;
pub mod machine;
pub mod machine_index;
pub mod metrics;
pub mod phases;
pub mod platform;
pub mod quarantine;
pub mod reconcile;
mod stamp;
pub mod vm_claims;
pub mod watch;

use std::sync::Arc;

use anyhow::Context as _;
use capmaas_api::capi::Machine;
use kube::{Client, Config};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch as channel;

use crate::args::Args;
use crate::clock::Clock;
use crate::credential_rotation::Rotation;
use crate::feed::{Feeds, Pace, Waker};
use crate::health::{Health, Liveness, Readiness};
use crate::identity::{
    AllowedEndpoints, CredentialCopies, EnvironmentCredentials, Identities, KubeCredentialCopies, over_network,
};
use crate::joining::Joining;
use crate::kubernetes::{KubeClient, Kubernetes, Owners};
use crate::lease::{Election, Fence};
use crate::log_level::LogLevel;
use crate::metrics::Metrics;
use crate::platform::{Platform, Scope, Watches, follow_own_credentials, sweep_kept_credentials};

/// Runs until SIGTERM or SIGINT, or until an error that a restart may fix.
pub async fn run(args: Args, log_level: LogLevel) -> anyhow::Result<()> {
    let config = Config::infer().await.context("found neither a ServiceAccount of a Pod nor a kubeconfig")?;
    let metrics = Metrics::new();
    let health = Health { readiness: Readiness::default(), liveness: Liveness::default(), log_level };
    health.readiness.waits_for("kinds", "waiting for the API server to answer");
    let stop = stop_signal()?;

    let show_metrics = async {
        let Some(address) = args.diagnostics_address.0 else { return std::future::pending().await };
        let protection = diagnostics::Protection::new(&args, &config)?;
        diagnostics::serve(address, metrics::router(metrics.clone()), protection).await
    };
    tokio::select! {
        result = health::serve(args.health_addr, health.clone()) => result,
        result = show_metrics => result,
        result = lead(&args, config.clone(), &health, &metrics, stop) => {
            result?;
            tracing::info!("stopped");
            Ok(())
        }
    }
}

/// Works while this manager leads. Losing the Lease is an error that ends the process immediately (S23).
async fn lead(
    args: &Args,
    config: Config,
    health: &Health,
    metrics: &Metrics,
    stop: channel::Receiver<bool>,
) -> anyhow::Result<()> {
    if !args.leader_elect {
        metrics.leads(true);
        let client = fenced::client(config, Fence::open()).context("cannot create a client for the API server")?;
        work(args, client, health, metrics, Fence::open(), stop).await;
        return Ok(());
    }
    let client = Client::try_from(config.clone()).context("cannot create a client for the API server")?;
    let timing = capmaas_core::lease::Timing::default();
    let mut election = Election::new(client, &args.pod_namespace, &args.leader_election_id, timing);
    // A standby manager is ready, and logs which manager leads.
    health.readiness.has("kinds");
    tokio::select! {
        () = election.win() => metrics.leads(true),
        () = stopped(stop.clone()) => return Ok(()),
    }
    let fence = election.fence();
    let client = fenced::client(config, fence.clone()).context("cannot create a client for the API server")?;
    tokio::select! {
        lost = election.keep() => Err(lost).context("stopping immediately"),
        () = work(args, client, health, metrics, fence, stop) => {
            metrics.leads(false);
            election.give_up().await;
            Ok(())
        }
    }
}

/// Runs the reconcilers until `stop`, and restarts them whenever the served version of Cluster API's kinds changes.
async fn work(
    args: &Args,
    client: Client,
    health: &Health,
    metrics: &Metrics,
    fence: Fence,
    stop: channel::Receiver<bool>,
) {
    let scope = Scope { namespace: args.namespace.clone(), watch_filter: args.watch_filter.clone() };
    let keeper: Arc<dyn CredentialCopies> = Arc::new(KubeCredentialCopies::new(client.clone(), &args.pod_namespace));
    while !*stop.borrow() {
        let version = tokio::select! {
            version = discovery::wait_for_kinds(&client, &health.readiness) => version,
            () = stopped(stop.clone()) => return,
        };
        tracing::info!(version, "reading Cluster API's kinds");
        let (_, core_version) = channel::channel(version.to_owned());
        let watches = Watches::start(&client, &scope, version, &health.liveness);
        let counted = watches.clone();
        metrics.count_machines_by(move || counted.machines_by_state());
        let phases = phases::follow(watches.maas_machines.subscribe(), metrics.clone());
        let port = Arc::new(
            KubeClient::new(client.clone(), core_version.clone())
                .in_namespace(scope.namespace.clone())
                .with_machines(watches.maas_machines.store(), watches.machine_index.clone())
                .with_clusters(watches.maas_clusters.store())
                .with_core_machines(watches.machines.store()),
        );
        let kubernetes: Arc<dyn Kubernetes> = port.clone();
        let owners: Arc<dyn Owners> = port.clone();
        let settings = identity::Settings {
            namespace: args.pod_namespace.clone(),
            identity_namespaces: args.identity_namespaces.iter().cloned().collect(),
            environment: EnvironmentCredentials::of_process(),
            allowed_endpoints: AllowedEndpoints::new(args.allowed_maas_endpoints.clone()),
        };
        let clock = Clock::system();
        let quarantine_clock = clock.clone();
        let connect = over_network(args.maas_concurrency, metrics.clone(), fence.clone());
        let identities = Identities::new(kubernetes.clone(), keeper.clone(), clock.clone(), settings, connect);
        let waker = Waker::default();
        let feeds = Feeds {
            identities: identities.clone(),
            machines: watches.maas_machines.store(),
            machine_index: watches.machine_index.clone(),
            waker: waker.clone(),
            pace: Pace { interval: args.maas_poll_interval, resync: args.sync_period },
            metrics: metrics.clone(),
            clock: clock.clone(),
        };
        let joining = Joining {
            nodes: port,
            maas_machines: watches.maas_machines.store(),
            machines: watches.machines.store(),
            machine_kind: Machine::api_resource(version),
            waker: waker.clone(),
        };
        let cluster_waker = Waker::default();
        let rotation = Rotation {
            identities: identities.clone(),
            clusters: watches.maas_clusters.store(),
            machines: watches.maas_machines.store(),
            cluster_waker: cluster_waker.clone(),
            machine_waker: waker.clone(),
        };
        let platform = Platform {
            client: client.clone(),
            kubernetes,
            owners,
            core_version,
            scope: scope.clone(),
            watches,
            identities: identities.clone(),
            waker,
            cluster_waker,
            fence: fence.clone(),
            metrics: metrics.clone(),
            clock,
            agent_image: args.lxd_initializer_image.clone().filter(|image| !image.is_empty()),
            lxd_hosts: lxd_hosts::LxdHosts::default(),
            cluster_concurrency: args.cluster_concurrency,
            machine_concurrency: args.machine_concurrency,
        };
        // The reconcilers finish running passes; tasks that only listen are dropped with them.
        let (end, ended) = channel::channel(false);
        let reconcilers = reconcile(platform, ended);
        let helpers = async {
            tokio::join!(
                feeds.run(),
                joining.run(),
                rotation.run(),
                phases,
                Box::pin(quarantine::run(identities.clone(), quarantine_clock, fence.clone())),
                follow_own_credentials(client.clone(), args.pod_namespace.clone(), identities, health.liveness.clone()),
                sweep_kept_credentials(client.clone(), scope.clone(), keeper.clone(), fence.clone()),
                Box::pin(hosts::sweep_pairs(client.clone(), &args.pod_namespace, fence.clone())),
            );
        };
        let until = async {
            tokio::select! {
                () = stopped(stop.clone()) => {}
                now = discovery::wait_for_another_version(&client, version, &health.liveness) => {
                    tracing::info!(before = version, now, "Cluster API's kinds are served in another version: restarting controllers");
                }
            }
            end.send_replace(true);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = reconcilers => {}
            () = helpers => {}
            () = until => {}
        }
    }
}

/// Runs all reconcilers until `stop`.
async fn reconcile(platform: Platform, stop: channel::Receiver<bool>) {
    tokio::select! {
        () = platform.watches.synced() => {}
        () = stopped(stop.clone()) => return,
    }
    let clusters = Box::pin(cluster::run(platform.clone(), stopped(stop.clone())));
    let evacuation = Box::pin(evacuation::run(platform.clone(), stopped(stop.clone())));
    let machines = Box::pin(machine::run(platform, stopped(stop)));
    tokio::join!(clusters, evacuation, machines);
}

/// True from the first SIGTERM or SIGINT on.
fn stop_signal() -> anyhow::Result<channel::Receiver<bool>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let (sender, receiver) = channel::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: waiting for running passes");
        sender.send_replace(true);
        // Kept alive, so that a receiver created later still sees the value.
        std::future::pending::<()>().await;
    });
    Ok(receiver)
}

pub async fn stopped(mut stop: channel::Receiver<bool>) {
    // An error means that the sender is gone, which happens only at shutdown: stop as well.
    let _ = stop.wait_for(|stopped| *stopped).await;
}
