//! The recorded situations of the Go original (v0.9, with Cluster API 1.14 and a real MAAS 3.4.10), by name, and what a
//! provider does in them here.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use capmaas_testbed::Testbed;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::capi::{CONTROL_PLANE, ClusterApi, Kind};
use crate::kinds::install_kinds;
use crate::maas::{Exchange, Latency, Maas, Speed, Stock};
use crate::provider::{Provider, Running};
use crate::run::fraction;
use crate::tell;

#[derive(Clone, Debug, Serialize)]
pub struct Situation {
    pub name: &'static str,
    /// What was recorded of the Go original.
    pub recorded: &'static str,
    /// What was measured now.
    pub measured: String,
}

/// A provider that polls every five minutes needs that long, and more.
const PATIENCE: Duration = Duration::from_secs(900);
const POLL: Duration = Duration::from_millis(100);
const IDLE: Duration = Duration::from_secs(60);
const LOOP: Duration = Duration::from_secs(30);

/// The situations as a table.
pub fn markdown(situations: &[Situation]) -> String {
    let row = |it: &Situation| format!("| {} | {} | {} |\n", it.name, it.recorded, it.measured);
    let rows: String = situations.iter().map(row).collect();
    format!("| situation | Go original, recorded | here |\n|---|---|---|\n{rows}")
}

/// Reproduces every situation with a provider.
pub async fn reproduce(provider: &str, crds: &Path) -> anyhow::Result<Vec<Situation>> {
    let stock = Stock { machines: 8, vms: 0, deploy_seconds: 120.0, speed: Speed::Driven, latency: Latency::None };
    let maas = Maas::start(stock)?;
    let testbed = Testbed::builder().name_server(maas.name_server).start().await?;
    install_kinds(&testbed, crds).await?;
    let provider = Provider::prepare(&testbed, provider, &maas.endpoint).await?;
    let core = ClusterApi::start(&testbed)?;
    let mut stage = Stage { maas: &maas, core: &core, found: Vec::new() };
    let running = provider.start(&testbed)?;
    core.create_cluster(PATIENCE).await?;
    stage.small_cluster().await?;
    stage.idle(&running).await?;
    stage.hot_loop(&testbed).await?;
    stage.nothing_found().await?;
    let running = stage.killed_after_allocate(&testbed, &provider, running).await?;
    stage.deletion().await?;
    let found = stage.found;
    running.stop().await;
    drop(core);
    testbed.stop().await;
    Ok(found)
}

struct Stage<'a> {
    maas: &'a Maas,
    core: &'a ClusterApi,
    found: Vec<Situation>,
}

fn cluster() -> Vec<String> {
    vec![format!("{CONTROL_PLANE}0"), "worker-0".to_owned(), "worker-1".to_owned()]
}

impl Stage<'_> {
    fn note(&mut self, name: &'static str, recorded: &'static str, measured: String) {
        tell(&format!("{name}: {measured}"));
        self.found.push(Situation { name, recorded, measured });
    }

    fn since(&self, from: Timestamp) -> Vec<Exchange> {
        self.maas.exchanges().into_iter().filter(|exchange| exchange.at >= from).collect()
    }

    async fn provisioned(&self, names: &[String]) -> anyhow::Result<()> {
        self.core.wait_machines(PATIENCE, "it is provisioned", names, |life| life.provisioned.is_some()).await
    }

    async fn create(&self, names: &[String], spec: &Value) -> anyhow::Result<()> {
        self.core.create_machines(names, spec).await
    }

    async fn small_cluster(&mut self) -> anyhow::Result<()> {
        let (began, names) = (Timestamp::now(), cluster());
        self.create(&names, &Kind::Metal.spec()).await?;
        self.provisioned(&names).await?;
        let requests = self.since(began);
        let each = fraction(requests.len()) / fraction(names.len());
        self.note(
            "a cluster of three, until Deployed: MAAS requests",
            "244 (81 a machine)",
            format!("{} ({each:.0} a machine)", requests.len()),
        );
        let (lives, moments) = (self.core.lives(), self.maas.moments());
        let late = |name: &String| {
            let life = lives.get(name)?;
            let deployed = moments.deployed.get(life.system_id.as_ref()?)?;
            Some(life.provisioned?.duration_since(*deployed).as_secs_f64())
        };
        let late = names.iter().filter_map(late).fold(0.0, f64::max);
        self.note("Deployed in MAAS, no API server yet: noticed after", "up to 260 s", format!("at most {late:.1} s"));
        Ok(())
    }

    async fn idle(&mut self, running: &Running) -> anyhow::Result<()> {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let (began, before) = (Timestamp::now(), running.usage()?);
        tokio::time::sleep(IDLE).await;
        let (after, requests) = (running.usage()?, self.since(began).len());
        let cpu = (after.cpu_seconds - before.cpu_seconds) / IDLE.as_secs_f64() * 1000.0;
        self.note("three machines, idle: CPU", "1.8 mCPU", format!("{cpu:.1} mCPU"));
        self.note("three machines, idle: memory", "54–56 MiB", format!("{:.0} MiB", after.rss_mib));
        self.note(
            "three machines, idle: MAAS requests in a minute",
            "0 (nothing is noticed for 5 minutes)",
            requests.to_string(),
        );
        Ok(())
    }

    /// The cluster's API server answers, and nothing reports the control plane as initialized.
    async fn hot_loop(&mut self, testbed: &Testbed) -> anyhow::Result<()> {
        // Any API server works; this one is available.
        let mut kubeconfig: Value = serde_json::from_str(&std::fs::read_to_string(testbed.kubeconfig_path())?)?;
        let authority = BASE64_STANDARD.encode(testbed.certificate_authority().certificate_pem());
        // A kubeconfig in a Secret must not reference files.
        let server = kubeconfig["clusters"][0]["cluster"]["server"].clone();
        kubeconfig["clusters"][0]["cluster"] = json!({"server": server, "certificate-authority-data": authority});
        self.core.give_kubeconfig(&kubeconfig.to_string()).await?;
        let began = Timestamp::now();
        tokio::time::sleep(LOOP).await;
        let each = fraction(self.since(began).len()) / LOOP.as_secs_f64();
        self.note(
            "API server reachable, control plane not initialized: MAAS requests a second",
            "19.6, without end",
            format!("{each:.2}"),
        );
        self.core.initialize_control_plane().await
    }

    async fn nothing_found(&mut self) -> anyhow::Result<()> {
        let names = ["giant".to_owned()];
        let mut spec = Kind::Metal.spec();
        spec["minCPU"] = json!(1000);
        let since = Timestamp::now();
        self.create(&names, &spec).await?;
        // Until MAAS has refused, and the provider has had time to record that.
        let began = Instant::now();
        while !self.since(since).iter().any(|exchange| exchange.entry.status == Some(409)) {
            ensure!(began.elapsed() < PATIENCE, "the provider asked for no machine");
            tokio::time::sleep(POLL).await;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        let began = Instant::now();
        self.core.delete_machines(&names).await?;
        self.core.wait_machines(PATIENCE, "it is gone", &names, |life| life.gone.is_some()).await?;
        let took = began.elapsed().as_secs_f64();
        self.core.forget_machines(&names).await?;
        self.note("a machine that never got one: deletion takes", "130–138 s", format!("{took:.1} s"));
        Ok(())
    }

    async fn killed_after_allocate(
        &mut self,
        testbed: &Testbed,
        provider: &Provider,
        running: Running,
    ) -> anyhow::Result<Running> {
        let before = self.maas.taken();
        let slow = json!({"match": {"kind": "allocate"}, "when": "after", "do": "slow", "seconds": 5.0});
        self.maas.control().add_fault(serde_json::from_value(slow)?);
        let names = ["worker-2".to_owned()];
        self.create(&names, &Kind::Metal.spec()).await?;
        let began = Instant::now();
        while self.maas.taken() == before {
            ensure!(began.elapsed() < PATIENCE, "the provider took no machine");
            tokio::time::sleep(POLL).await;
        }
        running.kill();
        let running = provider.start(testbed)?;
        self.provisioned(&names).await?;
        let leaked = self.maas.taken() - before - 1;
        self.note(
            "killed when MAAS has given a machine and before it is written down: machines leaked",
            "1",
            leaked.to_string(),
        );
        Ok(running)
    }

    async fn deletion(&mut self) -> anyhow::Result<()> {
        let mut names = cluster();
        names.push("worker-2".to_owned());
        let worker = ["worker-1".to_owned()];
        let began = Timestamp::now();
        self.core.delete_machines(&worker).await?;
        self.core.wait_machines(PATIENCE, "it is gone", &worker, |life| life.gone.is_some()).await?;
        let requests = self.since(began);
        let asked = requests.iter().filter(|exchange| !exchange.is_heartbeat()).count();
        self.note(
            "deletion of a worker: MAAS requests",
            "4 (it does not wait until the machine is free)",
            format!("{asked}, and {} for news", requests.len() - asked),
        );
        self.core.delete_machines(&names).await?;
        self.core.wait_machines(PATIENCE, "it is gone", &names, |life| life.gone.is_some()).await?;
        self.core.forget_machines(&names).await?;
        self.core.delete_cluster(PATIENCE).await?;
        let (machines, records) = (self.maas.taken(), self.maas.records());
        self.note(
            "everything deleted: left in MAAS",
            "7 DNS records of 5 clusters, tags, a leaked machine",
            format!("{machines} machines, {records} DNS records"),
        );
        Ok(())
    }
}
