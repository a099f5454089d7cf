//! `make demo`: the main use case end to end, on real components, on this machine only.

mod board;
mod real;
mod rehearse;
mod show;
mod story;
mod tell;

use anyhow::anyhow;
use clap::Parser;

/// Shows the main job end to end on embedded parts.
#[derive(Parser)]
#[command(name = "capmaas-demo")]
struct Args {
    /// Leave everything running until Ctrl-C, with a kubeconfig for experiments.
    #[arg(long)]
    keep: bool,
    /// Rehearse on this inventory, which kubectl maas export wrote, instead.
    #[arg(long, requires = "cluster")]
    inventory: Option<std::path::PathBuf>,
    /// The cluster to rehearse, in manifests as kubectl apply takes them.
    #[arg(long, requires = "inventory")]
    cluster: Option<std::path::PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS provider was installed before main()"))?;
    let args = Args::parse();
    tokio::select! {
        result = tell(&args) => result.map_err(shortened),
        _ = tokio::signal::ctrl_c() => {
            println!("\nstopped; everything that was started is removed");
            Ok(())
        }
    }
}

async fn tell(args: &Args) -> anyhow::Result<()> {
    match (&args.inventory, &args.cluster) {
        (Some(inventory), Some(cluster)) => Box::pin(rehearse::run(inventory, cluster, args.keep)).await,
        _ => tell_both(args.keep).await,
    }
}

/// First the cluster of machines that boot, then the one with LXD hosts and VMs, whose nodes are simulated.
async fn tell_both(keep: bool) -> anyhow::Result<()> {
    println!("capmaas demo: real Kubernetes, Cluster API and LXD, and a simulated MAAS, on this machine only.");
    Box::pin(real::run()).await?;
    Box::pin(story::run(keep)).await
}

/// Shortens a failure to a few lines and writes the full error to a file.
fn shortened(error: anyhow::Error) -> anyhow::Error {
    let whole = format!("{error:#}");
    let Some((first, _)) = whole.split_once("\n\n") else { return error };
    let file = std::env::temp_dir().join(format!("capmaas-demo-{}.txt", std::process::id()));
    match std::fs::write(&file, &whole) {
        Ok(()) => anyhow!("{first}\nAll objects and the end of the manager's log are in {}", file.display()),
        Err(_) => error,
    }
}
