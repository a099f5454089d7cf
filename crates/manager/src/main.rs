//! The controller manager of capmaas.

use anyhow::anyhow;
use capmaas_manager::args::Args;
use capmaas_manager::log_level::LogLevel;
use clap::Parser as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Set for every TLS connection of the process, before the first client is created.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS provider was installed before main()"))?;

    let args = Args::parse();
    let (log_level, filter) = LogLevel::new(&args.log_level).map_err(|sentence| anyhow!("--log-level: {sentence}"))?;
    let lines = tracing_subscriber::fmt::layer().json().with_writer(std::io::stderr);
    tracing_subscriber::registry().with(filter).with(lines).init();
    if let Err(error) = Box::pin(capmaas_manager::run(args, log_level)).await {
        tracing::error!("{error:#}");
        // Immediately, without waiting for running passes: another manager may already lead.
        std::process::exit(1);
    }
    Ok(())
}
