//! The testbed as a command.

use std::process::ExitCode;

use anyhow::Context as _;
use capmaas_testbed::{
    CapiVersion, KubernetesVersion, LxdDaemon, LxdOptions, Testbed, clean_leftovers,
    nodes::{KUBERNETES, Machine, NodeHost, NodeImage},
    tools::Supply,
};
use clap::{Args, Parser, Subcommand};

/// Starts a cluster of real parts on this machine: etcd, kube-apiserver, Cluster API, LXD.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a testbed, print where its kubeconfig is, and end it at Ctrl-C.
    Up(Up),
    /// Bring all that tests start and this machine lacks: build it, install Debian packages.
    Tools {
        /// Only these, for instance kubernetes-v1.36.4 or lxd-packages.
        #[arg(long = "set", value_name = "NAME")]
        sets: Vec<String>,
        /// Only what the demo starts.
        #[arg(long, conflicts_with = "sets")]
        demo: bool,
        /// What the scenarios of make test-e2e start, as well.
        #[arg(long, conflicts_with_all = ["sets", "demo"])]
        scenarios: bool,
    },
    /// Clear away what testbeds left behind whose guard was killed as well.
    Clean,
}

#[derive(Args)]
struct Up {
    /// Kubernetes version.
    #[arg(long, env = capmaas_testbed::KUBERNETES_VARIABLE, default_value_t)]
    kubernetes: KubernetesVersion,
    /// Cluster API version; none is started when absent.
    #[arg(long)]
    cluster_api: Option<CapiVersion>,
    /// Start an LXD daemon as well.
    #[arg(long)]
    lxd: bool,
    /// Boot a machine from the node image as well.
    #[arg(long)]
    node: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Up(options) => tokio::runtime::Runtime::new().context("cannot start a runtime")?.block_on(up(options)),
        Command::Tools { sets, demo, scenarios } => tools(&sets, demo, scenarios),
        Command::Clean => {
            println!("cleared {} leftover testbeds away", clean_leftovers()?);
            Ok(())
        }
    }
}

async fn up(options: Up) -> anyhow::Result<()> {
    let testbed = Testbed::builder()
        .kubernetes(options.kubernetes)
        .controller_manager(true)
        .cluster_api(options.cluster_api)
        .start()
        .await?;
    println!("export KUBECONFIG={}", testbed.kubeconfig_path().display());
    let lxd = if options.lxd { Some(LxdDaemon::start(LxdOptions::default()).await?) } else { None };
    if let Some(lxd) = &lxd {
        println!("export LXD_DIR={}", lxd.dir().display());
    }
    let nodes = if options.node { Some(boot_a_node().await?) } else { None };
    if let Some(nodes) = &nodes {
        println!("export NODES_DIR={}", nodes.dir().display());
    }
    println!("# logs: {}; Ctrl-C ends everything", testbed.sandbox().logs().display());
    tokio::signal::ctrl_c().await.context("cannot wait for Ctrl-C")?;
    if let Some(lxd) = lxd {
        lxd.stop().await;
    }
    testbed.stop().await;
    Ok(())
}

async fn boot_a_node() -> anyhow::Result<NodeHost> {
    let made = tokio::task::spawn_blocking(|| NodeImage::ensure(KUBERNETES)).await;
    let image = made.context("the image was not made")??;
    let host = NodeHost::start(&image).await?;
    let (name, mac) = ("node".to_owned(), "00:16:3e:00:00:02".to_owned());
    let machine = Machine { name, kubernetes: KUBERNETES, mac, files: Vec::new() };
    host.deploy(machine).await?;
    Ok(host)
}

fn tools(wanted: &[String], demo: bool, scenarios: bool) -> anyhow::Result<()> {
    let known: Vec<Supply> = Supply::of_gate().into_iter().chain(Supply::of_scenarios()).collect();
    if let Some(unknown) = wanted.iter().find(|wanted| !known.iter().any(|supply| supply.to_string() == **wanted)) {
        let known: Vec<String> = known.iter().map(Supply::to_string).collect();
        anyhow::bail!("there is no set {unknown:?}: choose from {}", known.join(", "));
    }
    let chosen = match (demo, wanted) {
        (true, _) => Supply::of_demo(),
        (false, []) if scenarios => known,
        (false, []) => Supply::of_gate(),
        _ => known.into_iter().filter(|supply| wanted.contains(&supply.to_string())).collect(),
    };
    let mut missing = Vec::new();
    for supply in chosen {
        if !supply.is_there()? {
            missing.push(supply);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = missing.iter().map(Supply::to_string).collect();
    let minutes: u32 = missing.iter().map(|supply| supply.minutes()).sum();
    println!("{} will be made ready, once: about {minutes} min on two free cores", names.join(", "));
    for supply in missing {
        supply.ensure()?;
        println!("{supply}: ready");
    }
    Ok(())
}
