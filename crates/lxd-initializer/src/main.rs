//! The program `lxd-initializer`.

use std::{net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context;
use clap::Parser;
use lxd_initializer::{
    agent::Agent,
    cluster::KubeCluster,
    health::{self, Status},
    settings::{Action, Arguments},
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lxd-initializer: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// kube's client is always off: its warnings quote whole answers that it could not parse, Secrets included (S21), and
/// the agent itself reports what its errors are about.
fn filter(wanted: &str) -> anyhow::Result<EnvFilter> {
    Ok(EnvFilter::try_new(wanted).context("LOG")?.add_directive("kube_client=off".parse()?))
}

async fn run() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let action = arguments.action();
    let (settings, given) = arguments.settle()?;
    tracing_subscriber::fmt().with_env_filter(filter(&settings.log)?).with_target(false).with_ansi(false).init();
    // One crypto provider for kube, MAAS and LXD. If it is already installed, that is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();

    let cluster = Arc::new(KubeCluster::new(&settings));
    // Without both MAAS variables nothing can be done before Kubernetes answers.
    if given.api_key.is_none() || given.endpoint.is_none() {
        cluster.client().await?;
    }

    let status = Arc::new(Status::default());
    if action == Some(Action::Unregister) {
        let said = Agent::new(settings, given, cluster, status).unregister().await?;
        println!("{said}");
        return Ok(());
    }
    let listener = TcpListener::bind(settings.health_address)
        .await
        .with_context(|| format!("cannot listen on HEALTH_ADDRESS {}", settings.health_address))?;
    let (tell, stop) = watch::channel(false);
    let mut stop_serving = stop.clone();
    let service = health::router(&status).into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, service).with_graceful_shutdown(async move {
        let _ = stop_serving.wait_for(|stop| *stop).await;
    });
    let server = tokio::spawn(server.into_future());

    tracing::info!(node = settings.node_name, version = env!("CARGO_PKG_VERSION"), "lxd-initializer starts");
    let agent = tokio::spawn(Agent::new(settings, given, cluster, status).run(stop));
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
    }
    let _ = tell.send(true);
    // A probe that keeps its connection open must not delay the shutdown.
    let ended = async { (agent.await, server.await) };
    let _ = tokio::time::timeout(Duration::from_secs(5), ended).await;
    Ok(())
}
