//! `make demo`: what there is of the main job so far, on real parts, on this machine only.

mod story;
mod tell;

use anyhow::anyhow;
use clap::Parser;

/// Shows the main job end to end on embedded parts.
#[derive(Parser)]
#[command(name = "capmaas-demo")]
struct Args {
    /// Leave everything running until Ctrl-C, with a kubeconfig to play with.
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS provider was installed before main()"))?;
    let args = Args::parse();
    tokio::select! {
        result = story::run(args.keep) => result,
        _ = tokio::signal::ctrl_c() => {
            println!("\nstopped; everything that was started is cleared away");
            Ok(())
        }
    }
}
