//! The program `kubectl-maas`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use jiff::Timestamp;
use kubectl_maas::cluster::{Access, Cluster};
use kubectl_maas::completion::{Candidates, Names};
use kubectl_maas::doctor::{Report, check_kubernetes, check_maas, judge_clock};
use kubectl_maas::hosts::Host;
use kubectl_maas::inventory::{self, Addresses, Inventory};
use kubectl_maas::maintenance::{self, Maintenance};
use kubectl_maas::output::{Format, print, watch};
use kubectl_maas::plan::{self, Objects, Question};
use kubectl_maas::{completion, explain, hosts, machines, ui};
use maas_client::Client;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

/// The polling interval of Kubernetes with `--watch`.
const KUBERNETES_EVERY: Duration = Duration::from_secs(2);
/// The same for MAAS, which takes longer to answer.
const MAAS_EVERY: Duration = Duration::from_secs(15);

/// The exit code if a question has no answer.
const UNKNOWN: u8 = 2;

/// Shows what machines wait for, how full hosts are, what is wrong and whether a change fits. Only maintenance changes anything.
#[derive(Parser)]
#[command(name = "kubectl-maas", bin_name = "kubectl maas", version)]
struct Cli {
    #[command(flatten)]
    access: Access,
    /// Objects of all namespaces.
    #[arg(short = 'A', long, global = true)]
    all_namespaces: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t, global = true)]
    output: Format,
    /// The same as -o json.
    #[arg(long, global = true, conflicts_with = "output")]
    json: bool,
    #[command(flatten)]
    maas: Maas,
    #[command(subcommand)]
    command: What,
}

/// The MAAS of the user, with the user's own key.
#[derive(Args)]
struct Maas {
    /// Address of MAAS, such as http://maas.example:5240/MAAS
    #[arg(long = "maas-endpoint", env = "MAAS_ENDPOINT", global = true)]
    endpoint: Option<String>,
    /// Your API key. On the command line every user of this machine can read it; the variable hides it.
    #[arg(long = "maas-api-key", env = "MAAS_API_KEY", hide_env_values = true, global = true)]
    api_key: Option<SecretString>,
    /// File with the CA certificates (PEM) of MAAS, besides the system's.
    #[arg(long = "maas-ca-file", env = "MAAS_CA_FILE", global = true)]
    ca_file: Option<std::path::PathBuf>,
}

#[derive(Subcommand)]
enum What {
    /// VM hosts by zone, and how full they are (reads MAAS).
    Hosts {
        /// Print again whenever something changes.
        #[arg(short, long)]
        watch: bool,
    },
    /// Every MaasMachine and what it waits for.
    Machines {
        /// Print again whenever something changes.
        #[arg(short, long)]
        watch: bool,
    },
    /// One MaasMachine: placement, conditions, events, what to do.
    Explain {
        /// Its name.
        machine: String,
    },
    /// Puts LXD hosts into maintenance, and shows what is left on them.
    #[command(subcommand)]
    Maintenance(Maintenance),
    /// Checks credentials, permissions, zones, pools, images, DNS domains, LXD hosts and clocks.
    Doctor {
        /// The namespace of the manager.
        #[arg(long, default_value = "capmaas-system")]
        system_namespace: String,
    },
    /// Checks whether a change fits, machine by machine, before you apply it. Exits with 1 if it does not, with 2 if that is unknown.
    Plan(PlanArgs),
    /// Writes what MAAS has as an inventory for plan --inventory and maas-sim: no secrets, made-up networks.
    Export {
        /// Include networks, gateways and address ranges unchanged.
        #[arg(long)]
        addresses: bool,
    },
    /// One page that shows clusters, machines, hosts and metal live, served to this machine only.
    Ui {
        /// The port; by default any free one.
        #[arg(long, default_value_t = 0)]
        port: u16,
        /// Where to listen; loopback only.
        #[arg(long, default_value = "127.0.0.1")]
        address: std::net::IpAddr,
        /// Only print the URL; open no browser.
        #[arg(long)]
        no_browser: bool,
    },
    /// Prints a shell completion script; for kubectl, put it on the PATH as kubectl_complete-maas.
    Completion {
        /// The shell, or kubectl.
        shell: CompletionFor,
    },
    /// Completes these words for kubectl.
    #[command(name = "__complete", hide = true)]
    Complete {
        /// The words; the last is incomplete.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum CompletionFor {
    Bash,
    Fish,
    Powershell,
    Zsh,
    Kubectl,
}

#[derive(Args)]
struct PlanArgs {
    /// Existing clusters; without any, and without a file, all of the namespace.
    clusters: Vec<String>,
    /// Manifests to plan, as kubectl apply would take them: files or folders; - is standard input.
    #[arg(short, long, value_hint = clap::ValueHint::AnyPath)]
    filename: Vec<String>,
    /// Replace every machine, as an upgrade does.
    #[arg(long)]
    upgrade: bool,
    /// Scale a group: md-0=5, or cluster/md-0=5.
    #[arg(long, value_name = "GROUP=REPLICAS")]
    scale: Vec<String>,
    /// Simulate the loss of a VM host, a machine or a zone: which clusters lose quorum, which recover.
    #[arg(long, value_name = "HOST|ZONE", conflicts_with_all = ["upgrade", "scale", "filename"])]
    without: Vec<String>,
    /// Plan against this inventory instead of MAAS.
    #[arg(long, value_name = "FILE")]
    inventory: Option<std::path::PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    // Set for every TLS connection of the process. A second call would be our mistake, and harmless.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = Cli::parse();
    match run(&cli).await {
        Ok(Some(true)) => ExitCode::SUCCESS,
        Ok(Some(false)) => ExitCode::FAILURE,
        Ok(None) => ExitCode::from(UNKNOWN),
        Err(error) => {
            eprintln!("kubectl maas: {error:#}");
            // As with kubectl diff, "no" is 1 and an error is more.
            let judges = matches!(cli.command, What::Plan(_) | What::Doctor { .. });
            ExitCode::from(if judges { UNKNOWN } else { 1 })
        }
    }
}

/// Runs the command and returns whether everything is right; `None` if that is unknown.
async fn run(cli: &Cli) -> anyhow::Result<Option<bool>> {
    let format = cli.format();
    match &cli.command {
        What::Hosts { watch: again } => {
            let client = cli.maas.client()?.ok_or_else(no_maas)?;
            let ask = || async {
                let vm_hosts = client.vm_hosts().list().await.map_err(with_hint)?;
                let machines = hosts::machines(&client, &vm_hosts).await.map_err(with_hint)?;
                let all = Host::all(&vm_hosts, &machines);
                format.text(|_| hosts::render(&all), || hosts::to_json(&all))
            };
            show(format, again.then_some(MAAS_EVERY), hosts::NONE, ask).await?;
        }
        What::Machines { watch: again } => {
            let cluster = Cluster::connect(&cli.access).await?;
            let ask = || async {
                let all = cluster.ours("MaasMachine", cli.all_namespaces).await?;
                format.text(|wide| machines::render(&all, cli.all_namespaces, wide), || machines::to_json(&all))
            };
            let none = format!("No MaasMachines found in {}.", cluster.place(cli.all_namespaces));
            show(format, again.then_some(KUBERNETES_EVERY), &none, ask).await?;
        }
        What::Explain { machine } => {
            let cluster = Cluster::connect(&cli.access).await?;
            let found = cluster.machine(machine).await?;
            let events = cluster.events(machine).await.unwrap_or_else(|error| {
                eprintln!("kubectl maas: {error:#}");
                Vec::new()
            });
            print(format, &format.text(|_| explain::render(&found, &events), || found.clone())?)?;
        }
        What::Maintenance(about) => maintain(cli, about).await?,
        What::Doctor { system_namespace } => return doctor(cli, system_namespace).await.map(Some),
        What::Plan(arguments) => return plan(cli, arguments).await,
        What::Export { addresses } => {
            let client = cli.maas.client()?.ok_or_else(no_maas)?;
            let addresses = if *addresses { Addresses::Kept } else { Addresses::MadeUp };
            let inventory = inventory::read(&client, addresses).await.map_err(with_hint)?;
            let text = if format == Format::Json { inventory.to_json()? } else { inventory.to_yaml()? };
            print(Format::Yaml, &text)?;
        }
        What::Ui { port, address, no_browser } => {
            let cluster = Cluster::connect(&cli.access).await?;
            let options =
                ui::Options { address: *address, port: *port, open: !no_browser, all_namespaces: cli.all_namespaces };
            ui::serve(cluster, cli.maas.client()?, options).await?;
        }
        What::Completion { shell } => print_completion(*shell)?,
        What::Complete { words } => print(Format::Json, &complete(words).await)?,
    }
    Ok(Some(true))
}

async fn maintain(cli: &Cli, about: &Maintenance) -> anyhow::Result<()> {
    let (cluster, format) = (Cluster::connect(&cli.access).await?, cli.format());
    let (host, reason) = match about {
        Maintenance::Start { host, reason } => (host, Some(reason.as_str())),
        Maintenance::Stop { host } => (host, None),
        Maintenance::Status { watch: again } => {
            let ask = || async {
                let machines = cluster.ours("MaasMachine", cli.all_namespaces).await?;
                let clusters = cluster.ours("MaasCluster", cli.all_namespaces).await?;
                format
                    .text(|_| maintenance::render(&machines, &clusters), || maintenance::to_json(&machines, &clusters))
            };
            return show(format, again.then_some(KUBERNETES_EVERY), maintenance::NONE, ask).await;
        }
    };
    let maas = cli.maas.client()?;
    print(format, &maintenance::set(&cluster, maas.as_ref(), cli.all_namespaces, host, reason).await?)
}

/// Prints an answer once, or again whenever it changes. As with kubectl, an empty table is not printed, and standard
/// error says why.
async fn show<F>(format: Format, every: Option<Duration>, none: &str, mut ask: impl FnMut() -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<String>>,
{
    if let Some(every) = every {
        return watch(format, every, ask).await;
    }
    let text = ask().await?;
    if text.is_empty() {
        eprintln!("{none}");
    }
    print(format, &text)
}

async fn doctor(cli: &Cli, system_namespace: &str) -> anyhow::Result<bool> {
    let mut report = Report::default();
    let cluster = Cluster::connect(&cli.access).await?;
    let asked = check_kubernetes(&cluster, system_namespace, cli.all_namespaces, &mut report).await;
    if let Some(client) = cli.maas.client()? {
        check_maas(&client, &asked, &mut report).await;
        let date = cli.maas.date().await;
        judge_clock(&mut report, date.as_deref(), Timestamp::now());
    } else {
        eprintln!("kubectl maas: {}; MAAS is skipped", no_maas());
    }
    let format = cli.format();
    print(format, &format.text(|_| report.render(), || report.to_json())?)?;
    Ok(report.is_good())
}

/// What to plan with: the objects of Kubernetes, overlaid with those of files.
async fn planned_objects(cli: &Cli, filename: &[String]) -> anyhow::Result<Objects> {
    let cluster = Cluster::connect(&cli.access).await;
    if filename.is_empty() {
        return Objects::of_cluster(&cluster?, cli.all_namespaces, None).await;
    }
    let namespace = match &cluster {
        Ok(cluster) => cluster.namespace().to_owned(),
        Err(_) => cli.access.namespace.clone().unwrap_or_else(|| "default".to_owned()),
    };
    let file = Objects::read(filename, &namespace)?;
    // What runs already would be taken for free, so a cluster that cannot be read is not one without machines.
    let there = match cluster {
        Ok(cluster) => Objects::of_cluster(&cluster, cli.all_namespaces, Some(&file))
            .await
            .context("KUBECONFIG=/dev/null plans as if nothing were there yet; Kubernetes cannot be read")?,
        Err(error) if cli.access.leads_nowhere() => {
            eprintln!("kubectl maas: {error:#}; planning as if Kubernetes had no machines yet");
            Objects::default()
        }
        Err(error) => return Err(error),
    };
    Ok(there.overlaid(&file))
}

async fn plan(cli: &Cli, arguments: &PlanArgs) -> anyhow::Result<Option<bool>> {
    let desired = plan::desired(&planned_objects(cli, &arguments.filename).await?);
    let inventory = if let Some(path) = &arguments.inventory {
        Inventory::read(path)?
    } else {
        let client = cli.maas.client()?.ok_or_else(no_maas)?;
        let mut inventory = inventory::read(&client, Addresses::Kept).await.map_err(with_hint)?;
        if plan::asks_for_projects(&desired) {
            inventory::read_projects(&client, &mut inventory).await.map_err(with_hint)?;
        }
        inventory
    };
    let question = Question {
        clusters: arguments.clusters.clone(),
        upgrade: arguments.upgrade,
        scale: arguments.scale.clone(),
        without: arguments.without.clone(),
    };
    let answer = plan::answer(&inventory::view(&inventory), desired, &question, Timestamp::now())?;
    let format = cli.format();
    print(format, &format.text(|wide| plan::render(&answer, wide), || plan::to_json(&answer))?)?;
    Ok(answer.fits())
}

/// What can follow these words. A completion must not take long.
async fn complete(words: &[String]) -> String {
    const PATIENCE: Duration = Duration::from_secs(2);
    let candidates = Candidates::after(&Cli::command(), words);
    let Some(names) = candidates.names else { return candidates.render(Vec::new()) };
    let so_far = std::iter::once("kubectl-maas").chain(words.iter().map(String::as_str));
    let flags = Cli::command().ignore_errors(true).try_get_matches_from(so_far).ok();
    let access = flags.and_then(|flags| Access::from_arg_matches(&flags).ok()).unwrap_or_default();
    if names == Names::Contexts {
        return candidates.render(access.contexts());
    }
    let ask = async {
        let cluster = Cluster::connect(&access).await.ok()?;
        match names {
            Names::Machines => cluster.ours("MaasMachine", false).await.ok(),
            Names::Hosts => {
                let mut machines = cluster.ours("MaasMachine", false).await.ok()?;
                machines.retain(maintenance::is_metal);
                Some(machines)
            }
            Names::Clusters => cluster.any_version("cluster.x-k8s.io", "Cluster", false, None).await.ok(),
            Names::Namespaces => cluster.namespaces().await.ok(),
            Names::Contexts => None,
        }
    };
    let found = tokio::time::timeout(PATIENCE, ask).await.ok().flatten().unwrap_or_default();
    let name = |object: &Value| Some(object["metadata"]["name"].as_str()?.to_owned());
    candidates.render(found.iter().filter_map(name).collect())
}

fn print_completion(shell: CompletionFor) -> anyhow::Result<()> {
    use clap_complete::Shell;
    let shell = match shell {
        CompletionFor::Kubectl => return print(Format::Json, completion::KUBECTL),
        CompletionFor::Bash => Shell::Bash,
        CompletionFor::Fish => Shell::Fish,
        CompletionFor::Powershell => Shell::PowerShell,
        CompletionFor::Zsh => Shell::Zsh,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command().bin_name("kubectl-maas"), "kubectl-maas", &mut script);
    print(Format::Json, &String::from_utf8_lossy(&script))
}

fn with_hint(error: maas_client::Error) -> anyhow::Error {
    anyhow!("{error}; {}", error.advice())
}

fn no_maas() -> anyhow::Error {
    anyhow!("set MAAS_ENDPOINT and MAAS_API_KEY to your MAAS and your own key (the manager's is not read)")
}

impl Cli {
    fn format(&self) -> Format {
        if self.json { Format::Json } else { self.output }
    }
}

impl Maas {
    fn authority(&self) -> anyhow::Result<Option<Vec<u8>>> {
        let read = |file: &std::path::PathBuf| {
            std::fs::read(file).with_context(|| format!("--maas-ca-file {}", file.display()))
        };
        self.ca_file.as_ref().map(read).transpose()
    }

    /// `None` if neither endpoint nor key is given; one without the other is an error.
    fn client(&self) -> anyhow::Result<Option<Client>> {
        let (endpoint, key) = match (&self.endpoint, &self.api_key) {
            (Some(endpoint), Some(key)) => (endpoint, key),
            (None, None) => return Ok(None),
            _ => return Err(no_maas()),
        };
        let mut builder = Client::builder(endpoint, key.expose_secret()).unlimited_answers();
        if let Some(pem) = self.authority()? {
            builder = builder.certificate_authority(pem);
        }
        Ok(Some(builder.build()?))
    }

    /// The current time of MAAS. Needs no key.
    async fn date(&self) -> Option<String> {
        let mut builder = reqwest::Client::builder().timeout(std::time::Duration::from_secs(10));
        if let Some(pem) = self.authority().ok()? {
            builder = builder.add_root_certificate(reqwest::Certificate::from_pem(&pem).ok()?);
        }
        let url = format!("{}/api/2.0/version/", self.endpoint.as_ref()?.trim_end_matches('/'));
        let answer = builder.build().ok()?.get(url).send().await.ok()?;
        Some(answer.headers().get("date")?.to_str().ok()?.to_owned())
    }
}
