//! The simulator as a program.

use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use maas_sim::{
    Simulator,
    config::{ApiKey, Config, Durations, LatencyMode, TimeMode, Version},
    dns_server,
    hardware::BootHook,
    model::inventory::{Inventory, generate},
    serve,
};

/// A MAAS server for tests that behaves like the real one.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Writes an inventory of many machines.
    Generate {
        /// How many.
        #[arg(long, default_value_t = 10)]
        machines: usize,
    },
}

#[derive(Args)]
struct ServeArgs {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:5240")]
    listen: SocketAddr,
    /// Key of the administrator, CONSUMER:TOKEN:SECRET.
    #[arg(long, env = "MAAS_SIM_API_KEY", hide_env_values = true)]
    api_key: Option<ApiKey>,
    /// What there is, in YAML (see ARRANGE.md).
    #[arg(long)]
    inventory: Option<PathBuf>,
    /// Which MAAS to play, 3.0 to 3.8.
    #[arg(long, default_value = "3.4")]
    maas_version: Version,
    /// Where to serve the names of all domains, over UDP and TCP.
    #[arg(long)]
    dns: Option<SocketAddr>,
    /// A port of its own for the control API, which then is not on the other one.
    #[arg(long)]
    control: Option<SocketAddr>,
    /// Where ids, names and decisions about faults come from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Who moves the clock.
    #[arg(long, value_enum, default_value = "real")]
    time: TimeMode,
    /// How long requests take.
    #[arg(long, value_enum, default_value = "none")]
    latency: LatencyMode,
    /// Commissioning, deploying and the rest take about a second.
    #[arg(long)]
    quick: bool,
    /// Address of a real LXD daemon, besides those on loopback, that may be connected to.
    #[arg(long = "real-lxd")]
    real_lxd: Vec<String>,
    /// Make up an LXD daemon for every unknown address that is registered.
    #[arg(long)]
    invent_lxd: bool,
    /// Program that boots machines: started with power-on, power-off, power-cycle, deploy, erase or release, and the machine as JSON on
    /// its standard input (see BOOT.md). Machines are then Deployed when they fetch their user data.
    #[arg(long)]
    boot_hook: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()))
        .with_writer(std::io::stderr)
        .init();
    // A second installation, by a test that runs main in process, is not an error.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run(Cli::parse()).await {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Some(Command::Generate { machines }) => {
            print!("{}", generate(machines));
            Ok(ExitCode::SUCCESS)
        }
        None => serve_forever(cli.serve).await,
    }
}

async fn serve_forever(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let api_key = args.api_key.context("give the administrator's key: --api-key CONSUMER:TOKEN:SECRET")?;
    let config = Config {
        version: args.maas_version,
        seed: args.seed,
        time: args.time,
        latency: args.latency,
        durations: if args.quick { Durations::quick() } else { Durations::default() },
        real_lxd: args.real_lxd.into_iter().collect::<BTreeSet<String>>(),
        invent_lxd: args.invent_lxd,
        control: args.control.is_none(),
        ..Config::new(api_key)
    };
    let simulator = match args.boot_hook {
        Some(command) => Simulator::with_hardware(config, Arc::new(BootHook::new(command))),
        None => Simulator::new(config),
    };
    if let Some(path) = &args.inventory {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let inventory = Inventory::parse(&text).with_context(|| path.display().to_string())?;
        simulator.control().load(&inventory).with_context(|| path.display().to_string())?;
    }
    let (listener, bound) =
        serve::listen(args.listen).await.with_context(|| format!("listening on {}", args.listen))?;
    tracing::info!("MAAS {} on http://{bound}/MAAS/", args.maas_version);
    if let Some(address) = args.control {
        let (listener, bound) = serve::listen(address).await.with_context(|| format!("listening on {address}"))?;
        tracing::info!("control API on http://{bound}/_sim/");
        tokio::spawn(serve::serve_router(simulator.control_router(), listener));
    }
    if let Some(address) = args.dns {
        let (bound, _) = dns_server::serve(simulator.clone(), address)
            .await
            .with_context(|| format!("serving names on {address}"))?;
        tracing::info!("names on {bound}, UDP and TCP");
    }
    serve::serve(simulator, listener).await?;
    Ok(ExitCode::SUCCESS)
}
