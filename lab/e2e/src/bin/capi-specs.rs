//! Runs Cluster API's own end-to-end specs against capmaas: `make test-capi`.

use std::path::PathBuf;
use std::process::ExitCode;

use capmaas_e2e::capi_specs::run;
use clap::Parser;

#[derive(Parser)]
struct Arguments {
    /// Only the specs whose name matches this regular expression.
    #[arg(long)]
    focus: Option<String>,
    /// Where logs and dumps of objects go.
    #[arg(long)]
    artifacts: PathBuf,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("another TLS provider was installed before main()"))?;
    let arguments = Arguments::parse();
    std::fs::create_dir_all(&arguments.artifacts)?;
    let artifacts = arguments.artifacts.canonicalize()?;
    let passed = run(arguments.focus.as_deref(), &artifacts).await?;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
