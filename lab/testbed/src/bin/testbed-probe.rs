//! A small program for the tests of the node player: it does what one of our Pods does, and nothing else.
//!
//! It prints its arguments and environment, makes two API calls in-cluster with its ServiceAccount's permissions,
//! serves `/healthz` on `--port`, becomes unhealthy after a request to `/sicken`, and exits with success on SIGTERM.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::Context as _;
use clap::Parser;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client, Config, api::ListParams};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

#[derive(Parser)]
struct Cli {
    /// The port of /healthz.
    #[arg(long)]
    port: u16,
    /// Files whose content is printed.
    #[arg(long)]
    show: Vec<String>,
    /// Ends at once with this code.
    #[arg(long)]
    fail: Option<u8>,
}

static SICK: AtomicBool = AtomicBool::new(false);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<std::process::ExitCode> {
    let cli = Cli::parse();
    for (name, value) in std::env::vars() {
        println!("env {name}={value}");
    }
    for file in &cli.show {
        println!("file {file}: {}", std::fs::read_to_string(file).unwrap_or_else(|e| e.to_string()));
    }
    println!("user {}", rustix::process::geteuid().as_raw());
    if let Some(code) = cli.fail {
        return Ok(code.into());
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let listener =
        TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, cli.port))).await.context("cannot listen")?;
    ask_the_api_server().await?;
    loop {
        tokio::select! {
            _ = terminate.recv() => {
                println!("asked to end");
                return Ok(std::process::ExitCode::SUCCESS);
            }
            connection = listener.accept() => answer(connection?.0).await?,
        }
    }
}

/// ConfigMaps in our own namespace are allowed, Secrets are not.
async fn ask_the_api_server() -> anyhow::Result<()> {
    let config = Config::incluster().context("cannot read the ServiceAccount's files")?;
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config)?;
    let allowed = Api::<ConfigMap>::namespaced(client.clone(), &namespace).list(&ListParams::default()).await;
    println!("configmaps in {namespace}: {}", allowed.map_or_else(|e| e.to_string(), |_| "listed".into()));
    let refused = Api::<Secret>::namespaced(client, &namespace).list(&ListParams::default()).await;
    println!("secrets in {namespace}: {}", refused.map_or_else(|e| e.to_string(), |_| "listed".into()));
    Ok(())
}

async fn answer(mut connection: tokio::net::TcpStream) -> anyhow::Result<()> {
    let mut request = [0; 1024];
    let read = connection.read(&mut request).await.unwrap_or(0);
    if request[..read].starts_with(b"GET /sicken ") {
        SICK.store(true, Ordering::Relaxed);
    }
    let status = if SICK.load(Ordering::Relaxed) { "500 Sick" } else { "200 OK" };
    let reply = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let _ = connection.write_all(reply.as_bytes()).await;
    Ok(())
}
