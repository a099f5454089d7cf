//! The benchmark as a program.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use capmaas_bench::capi::Kind;
use capmaas_bench::maas::{Latency, Speed};
use capmaas_bench::run::{Plan, measure};
use capmaas_bench::{report, targets, tell};
use clap::{Args, Parser, Subcommand};

/// Numbers: what a provider costs.
#[derive(Parser)]
#[command(name = "bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures a provider with N machines, from the first to the last, for each N.
    Run(RunArgs),
}

#[derive(Args)]
struct RunArgs {
    /// The provider's command line, split at spaces. It finds KUBECONFIG, MAAS_ENDPOINT and MAAS_API_KEY in its environment.
    #[arg(long)]
    provider: String,
    /// The folder with the provider's CRDs.
    #[arg(long, default_value = "config/crd")]
    crds: PathBuf,
    /// How many machines, several numbers separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "10,100")]
    machines: Vec<usize>,
    /// What they are.
    #[arg(long, value_enum, default_value = "metal")]
    kind: Kind,
    /// How long MAAS takes for an answer.
    #[arg(long, value_enum, default_value = "none")]
    latency: Latency,
    /// Who moves MAAS's clock.
    #[arg(long, value_enum, default_value = "driven")]
    speed: Speed,
    /// What a deployment takes, by MAAS's clock.
    #[arg(long, default_value_t = 60.0)]
    deploy_seconds: f64,
    /// How long nothing happens, to see what that costs.
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,
    /// How long MAAS is away.
    #[arg(long, default_value_t = 30)]
    away_seconds: u64,
    /// How many requests the provider sends to one MAAS at once: time in which so many are under way is not counted as added.
    #[arg(long, default_value_t = 4)]
    limit: usize,
    /// After how many seconds something that should happen is given up.
    #[arg(long, default_value_t = 900)]
    patience: u64,
    /// Where the report goes.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// Fail when a target is missed.
    #[arg(long)]
    strict: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    // A second installation is no error.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let done = match Cli::parse().command {
        Command::Run(args) => run(args).await,
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let mut runs = Vec::new();
    for &machines in &args.machines {
        tell(&format!("== {machines} machines"));
        let plan = Plan {
            provider: args.provider.clone(),
            crds: args.crds.clone(),
            machines,
            kind: args.kind,
            speed: args.speed,
            latency: args.latency,
            deploy_seconds: args.deploy_seconds,
            idle_seconds: args.idle_seconds,
            away_seconds: args.away_seconds,
            limit: args.limit,
            patience: Duration::from_secs(args.patience),
        };
        runs.push(measure(&plan).await?);
        // After each, so that a run that is broken off leaves what it has.
        report::write(&args.out, &args.provider, &runs)?;
    }
    print!("{}", report::markdown(&args.provider, &runs));
    eprintln!("written to {}", args.out.display());
    let missed = runs.iter().flat_map(targets::judge).filter(|target| !target.kept).count();
    Ok(if args.strict && missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
