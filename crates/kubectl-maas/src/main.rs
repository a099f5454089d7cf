//! The program `kubectl-maas`.

use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use clap::{Args, Parser, Subcommand};
use jiff::Timestamp;
use kubectl_maas::cluster::Cluster;
use kubectl_maas::doctor::{Report, judge_clock, look_at_kubernetes, look_at_maas};
use kubectl_maas::{explain, hosts, machines};
use maas_client::Client;
use secrecy::{ExposeSecret as _, SecretString};

/// What machines wait for, what hosts have left, what is wrong. Changes nothing.
#[derive(Parser)]
#[command(name = "kubectl-maas", bin_name = "kubectl maas", version)]
struct Cli {
    /// Namespace; by default the kubeconfig's.
    #[arg(short, long, global = true)]
    namespace: Option<String>,
    /// Objects of all namespaces.
    #[arg(short = 'A', long, global = true)]
    all_namespaces: bool,
    /// Print JSON.
    #[arg(long, global = true)]
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
    /// VM hosts by zone, and how full they are (asks MAAS).
    Hosts,
    /// Every MaasMachine and what it waits for.
    Machines,
    /// One MaasMachine: placement, conditions, events, what to do.
    Explain {
        /// Its name.
        machine: String,
    },
    /// Credentials, rights, zones, pools, images, DNS domain, LXD hosts, clocks.
    Doctor {
        /// The namespace of the manager.
        #[arg(long, default_value = "capmaas-system")]
        system_namespace: String,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    // Chosen here for every TLS connection of the process. A second choice would be an error of ours, and harmless.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run(Cli::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("kubectl maas: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Does it and answers whether all is well.
async fn run(cli: Cli) -> anyhow::Result<bool> {
    match &cli.command {
        What::Hosts => {
            let client = cli.maas.client()?.ok_or_else(no_maas)?;
            let all = client.vm_hosts().list().await.map_err(|error| anyhow!("{error}; {}", error.advice()))?;
            print(cli.json, || hosts::render(&all), || hosts::to_json(&all));
        }
        What::Machines => {
            let cluster = Cluster::connect(cli.namespace.clone()).await?;
            let all = cluster.ours("MaasMachine", cli.all_namespaces).await?;
            print(cli.json, || machines::render(&all, cli.all_namespaces), || machines::to_json(&all));
        }
        What::Explain { machine } => {
            let cluster = Cluster::connect(cli.namespace.clone()).await?;
            let found = cluster.machine(machine).await?;
            let events = cluster.events(machine).await.unwrap_or_else(|error| {
                eprintln!("kubectl maas: {error:#}");
                Vec::new()
            });
            print(cli.json, || explain::render(&found, &events), || found.clone());
        }
        What::Doctor { system_namespace } => {
            let mut report = Report::default();
            let cluster = Cluster::connect(cli.namespace.clone()).await?;
            let asked = look_at_kubernetes(&cluster, system_namespace, cli.all_namespaces, &mut report).await;
            if let Some(client) = cli.maas.client()? {
                look_at_maas(&client, &asked, &mut report).await;
                let date = cli.maas.date().await;
                judge_clock(&mut report, date.as_deref(), Timestamp::now());
            } else {
                eprintln!("kubectl maas: {}; MAAS is not looked at", no_maas());
            }
            print(cli.json, || report.render(), || report.to_json());
            return Ok(report.is_good());
        }
    }
    Ok(true)
}

fn print(json: bool, words: impl FnOnce() -> String, value: impl FnOnce() -> serde_json::Value) {
    if json {
        println!("{:#}", value());
    } else {
        print!("{}", words());
    }
}

fn no_maas() -> anyhow::Error {
    anyhow!("set MAAS_ENDPOINT and MAAS_API_KEY to your MAAS and your own key (the manager's is not read)")
}

impl Maas {
    fn authority(&self) -> anyhow::Result<Option<Vec<u8>>> {
        let read = |file: &std::path::PathBuf| {
            std::fs::read(file).with_context(|| format!("--maas-ca-file {}", file.display()))
        };
        self.ca_file.as_ref().map(read).transpose()
    }

    /// `None` if neither address nor key is given; half of it is an error.
    fn client(&self) -> anyhow::Result<Option<Client>> {
        let (endpoint, key) = match (&self.endpoint, &self.api_key) {
            (Some(endpoint), Some(key)) => (endpoint, key),
            (None, None) => return Ok(None),
            _ => return Err(no_maas()),
        };
        let mut builder = Client::builder(endpoint, key.expose_secret());
        if let Some(pem) = self.authority()? {
            builder = builder.certificate_authority(pem);
        }
        Ok(Some(builder.build()?))
    }

    /// What time it is for MAAS. Needs no key.
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
