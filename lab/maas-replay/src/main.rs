//! The replay as a program.

use std::process::ExitCode;

use clap::Parser;
use maas_replay::ReplayArgs;

/// Replays recorded exchanges with a real MAAS against a simulator and says what differs.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    replay: ReplayArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    // A second installation is not an error.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match Cli::parse().replay.run(&mut std::io::stdout()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
