//! The benchmark as a program.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use capmaas_bench::capi::Kind;
use capmaas_bench::compare::Comparison;
use capmaas_bench::maas::{Latency, Speed};
use capmaas_bench::run::{Plan, measure};
use capmaas_bench::{budgets, floor, provider, report, situations, soak, targets, tell, tenants};
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
    /// Lets machines come and go while MAAS fails and the provider is killed; at the end everything must agree.
    Soak(SoakArgs),
    /// Brings a provider into the situations that were recorded of the Go original, and shows both.
    Situations {
        /// The provider's command line; our manager, built beside this program, if absent.
        #[arg(long)]
        provider: Option<String>,
        /// The folder with the provider's CRDs.
        #[arg(long, default_value = "config/crd")]
        crds: PathBuf,
        /// Where the report goes.
        #[arg(long, default_value = "target/bench")]
        out: PathBuf,
    },
    /// Measures how long machines of one tenant take beside those of another one whose MAAS hangs.
    Tenants(TenantsArgs),
    /// Measures what the API server alone takes for machines and for the writes of a provider, without any provider.
    Floor(FloorArgs),
}

#[derive(Args)]
struct TenantsArgs {
    /// The provider's command line; our manager, built beside this program, if absent.
    #[arg(long)]
    provider: Option<String>,
    /// The folder with the provider's CRDs.
    #[arg(long, default_value = "config/crd")]
    crds: PathBuf,
    /// How many machines of the tenant whose MAAS hangs.
    #[arg(long, default_value_t = 200)]
    hanging: usize,
    /// How many machines of the other one, twice.
    #[arg(long, default_value_t = 20)]
    machines: usize,
    /// Where the report goes.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

#[derive(Args)]
struct SoakArgs {
    /// The provider's command line; our manager, built beside this program, if absent.
    #[arg(long)]
    provider: Option<String>,
    /// The folder with the provider's CRDs.
    #[arg(long, default_value = "config/crd")]
    crds: PathBuf,
    /// For how long there is trouble.
    #[arg(long, default_value_t = 1800)]
    seconds: u64,
    /// Where the choices come from; any if absent.
    #[arg(long)]
    seed: Option<u64>,
    /// How many machines there are at most.
    #[arg(long, default_value_t = 30)]
    machines: usize,
    /// How many seconds it may take to put everything in order afterwards.
    #[arg(long, default_value_t = 600)]
    patience: u64,
}

#[derive(Args)]
struct FloorArgs {
    /// The folder with the CRDs.
    #[arg(long, default_value = "config/crd")]
    crds: PathBuf,
    /// How many machines.
    #[arg(long, default_value_t = 1000)]
    machines: usize,
    /// How many changes of each MaasMachine; as many as our manager makes if absent, and so for the others.
    #[arg(long, default_value_t = 5)]
    patches: usize,
    /// How many statuses of each.
    #[arg(long, default_value_t = 2)]
    statuses: usize,
    /// How many events about each.
    #[arg(long, default_value_t = 3)]
    events: usize,
    /// How many machines are written about at once.
    #[arg(long, default_value_t = 50)]
    at_once: usize,
    /// After how many seconds without any progress it is given up.
    #[arg(long, default_value_t = 900)]
    patience: u64,
}

#[derive(Args)]
struct RunArgs {
    /// The provider's command line, split at spaces; our manager, built beside this program, if absent. It finds KUBECONFIG,
    /// MAAS_ENDPOINT and MAAS_API_KEY in its environment.
    #[arg(long)]
    provider: Option<String>,
    /// The folder with the provider's CRDs.
    #[arg(long, default_value = "config/crd")]
    crds: PathBuf,
    /// The command line of another provider, which is measured in turns with the first, and shown beside it.
    #[arg(long, requires = "against_crds")]
    against: Option<String>,
    /// The folder with that one's CRDs.
    #[arg(long)]
    against_crds: Option<PathBuf>,
    /// How often each of the two is measured.
    #[arg(long, default_value_t = 3)]
    runs: usize,
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
    /// How many machines are created and deleted in a second; all at once if absent. All at once shows what the provider, the API
    /// server and MAAS get through together; a pace that they bear shows what the provider alone adds.
    #[arg(long)]
    per_second: Option<f64>,
    /// How long nothing happens, to see what that costs.
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,
    /// How long MAAS is away.
    #[arg(long, default_value_t = 30)]
    away_seconds: u64,
    /// How many requests the provider sends to one MAAS at once: time in which so many are under way is not counted as added.
    #[arg(long, default_value_t = 4)]
    limit: usize,
    /// After how many seconds without any progress something that should happen is given up.
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
    // A second installation is not an error.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let done = match Cli::parse().command {
        Command::Run(args) => run(args).await,
        Command::Soak(args) => soak(args).await,
        Command::Situations { provider, crds, out } => show_situations(provider, &crds, &out).await,
        Command::Tenants(args) => show_tenants(args).await,
        Command::Floor(args) => find_floor(args).await,
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn show_situations(provider: Option<String>, crds: &Path, out: &Path) -> anyhow::Result<ExitCode> {
    let provider = provider.map_or_else(provider::our_manager, Ok)?;
    let found = situations::reproduce(&provider, crds).await?;
    let text = situations::markdown(&found);
    std::fs::create_dir_all(out)?;
    std::fs::write(out.join("situations.md"), &text)?;
    std::fs::write(out.join("situations.json"), serde_json::to_string_pretty(&found)?)?;
    print!("{text}");
    let budgets = budgets::measure(&provider, crds).await?;
    let text = budgets::markdown(&budgets);
    std::fs::write(out.join("budgets.md"), &text)?;
    print!("\n{text}");
    Ok(ExitCode::SUCCESS)
}

async fn show_tenants(args: TenantsArgs) -> anyhow::Result<ExitCode> {
    let provider = args.provider.map_or_else(provider::our_manager, Ok)?;
    let measured = tenants::measure(&provider, &args.crds, args.hanging, args.machines).await?;
    std::fs::create_dir_all(&args.out)?;
    std::fs::write(args.out.join("tenants.md"), measured.markdown())?;
    std::fs::write(args.out.join("tenants.json"), serde_json::to_string_pretty(&measured)?)?;
    print!("{}", measured.markdown());
    Ok(ExitCode::SUCCESS)
}

async fn find_floor(args: FloorArgs) -> anyhow::Result<ExitCode> {
    let FloorArgs { crds, machines, patches, statuses, events, at_once, patience } = args;
    let writes = floor::Writes { patches, statuses, events };
    let plan = floor::Plan { crds, machines, writes, at_once, patience: Duration::from_secs(patience) };
    println!("{}", serde_json::to_string(&floor::measure(&plan).await?)?);
    Ok(ExitCode::SUCCESS)
}

async fn soak(args: SoakArgs) -> anyhow::Result<ExitCode> {
    let plan = soak::Plan {
        provider: args.provider.map_or_else(provider::our_manager, Ok)?,
        crds: args.crds,
        trouble: Duration::from_secs(args.seconds),
        seed: args.seed.unwrap_or_else(rand::random),
        machines: args.machines,
        patience: Duration::from_secs(args.patience),
    };
    tell(&format!("{} s of trouble with seed {}", args.seconds, plan.seed));
    let tally = soak::soak(&plan).await?;
    println!(
        "{} machines created and {} deleted, {} kills, {} outages, {} requests struck; the last {} agreed exactly, and all are gone",
        tally.created, tally.deleted, tally.kills, tally.outages, tally.struck, tally.agreed
    );
    Ok(ExitCode::SUCCESS)
}

async fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let ours = args.provider.clone().map_or_else(provider::our_manager, Ok)?;
    if let (Some(against), Some(crds)) = (&args.against, &args.against_crds) {
        return compare(&args, [(ours, args.crds.clone()), (against.clone(), crds.clone())]).await;
    }
    let mut runs = Vec::new();
    for &machines in &args.machines {
        tell(&format!("== {machines} machines"));
        runs.push(measure(&args.plan(machines, &ours, &args.crds)).await?);
        // After each run, so that an aborted benchmark keeps its results.
        report::write(&args.out, &ours, &runs)?;
    }
    print!("{}", report::markdown(&ours, &runs));
    eprintln!("written to {}", args.out.display());
    let missed = runs.iter().flat_map(targets::judge).filter(|target| !target.kept).count();
    Ok(if args.strict && missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Measures two providers alternately.
async fn compare(args: &RunArgs, providers: [(String, PathBuf); 2]) -> anyhow::Result<ExitCode> {
    std::fs::create_dir_all(&args.out)?;
    let (mut all, mut text) = (Vec::new(), String::new());
    for &machines in &args.machines {
        let mut runs = [Vec::new(), Vec::new()];
        for turn in 1..=args.runs {
            for ((provider, crds), runs) in providers.iter().zip(&mut runs) {
                tell(&format!("== {machines} machines, turn {turn} of {}: {provider}", args.runs));
                runs.push(measure(&args.plan(machines, provider, crds)).await?);
            }
        }
        let comparison = Comparison { providers: providers.clone().map(|(provider, _)| provider), runs };
        text = format!("{text}{}\n", comparison.markdown());
        all.push(comparison);
        // After each run, so that an aborted benchmark keeps its results.
        std::fs::write(args.out.join("compared.md"), &text)?;
        std::fs::write(args.out.join("compared.json"), serde_json::to_string_pretty(&all)?)?;
    }
    print!("{text}");
    Ok(ExitCode::SUCCESS)
}

impl RunArgs {
    fn plan(&self, machines: usize, provider: &str, crds: &Path) -> Plan {
        Plan {
            provider: provider.to_owned(),
            crds: crds.to_owned(),
            machines,
            kind: self.kind,
            speed: self.speed,
            latency: self.latency,
            deploy_seconds: self.deploy_seconds,
            per_second: self.per_second,
            idle_seconds: self.idle_seconds,
            away_seconds: self.away_seconds,
            limit: self.limit,
            patience: Duration::from_secs(self.patience),
        }
    }
}
