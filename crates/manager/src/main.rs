//! The controller manager of capmaas.

use anyhow::anyhow;
use clap::Parser as _;
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Chosen here for every TLS connection of the process, before the first client is made.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS provider was installed before main()"))?;

    let args = capmaas_manager::args::Args::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).json().init();
    capmaas_manager::run(args).await
}
