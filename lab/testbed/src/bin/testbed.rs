//! The testbed as a command.

use std::process::ExitCode;

use anyhow::Context as _;
use capmaas_testbed::{
    CapiVersion, KubernetesVersion, LxdDaemon, LxdOptions, Testbed, clean_leftovers,
    nodes::{Machine, NodeHost, NodeImage},
    tools::{ToolSet, ensure_packages},
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
    /// Build every tool that the cache lacks and install the Debian packages.
    Tools {
        /// Only these sets, for instance kubernetes-v1.36.4; `packages` stands for the Debian packages.
        #[arg(long = "set", value_name = "NAME")]
        sets: Vec<String>,
    },
    /// Make the image of nodes that really boot, unless the cache has it.
    NodeImage,
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
        Command::Tools { sets } => tools(&sets),
        Command::NodeImage => {
            println!("the node image: ready in {}", NodeImage::ensure()?.path().display());
            Ok(())
        }
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
    let image = tokio::task::spawn_blocking(NodeImage::ensure).await.context("the image was not made")??;
    let host = NodeHost::start(&image).await?;
    let machine = Machine { name: "node".to_owned(), mac: "00:16:3e:00:00:02".to_owned(), files: Vec::new() };
    host.deploy(machine).await?;
    Ok(host)
}

fn tools(wanted: &[String]) -> anyhow::Result<()> {
    const PACKAGES: &str = "packages";
    let sets = ToolSet::all();
    let name = |set: &ToolSet| set.to_string().replace(' ', "-");
    for wanted in wanted {
        if wanted != PACKAGES && !sets.iter().any(|set| name(set) == *wanted) {
            let known: Vec<String> = sets.iter().map(name).collect();
            anyhow::bail!("there is no set {wanted:?}: choose from {PACKAGES}, {}", known.join(", "));
        }
    }
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    if is_wanted(PACKAGES) {
        ensure_packages()?;
        println!("Debian packages: ready");
    }
    for set in sets.into_iter().filter(|set| is_wanted(&name(set))) {
        let tools = set.ensure()?;
        println!("{set}: ready in {}", tools.dir().display());
    }
    Ok(())
}
