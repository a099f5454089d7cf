//! How many requests a provider may send to a MAAS that answers as slowly as a real one, and how many it does send.
//!
//! No Node ever joins here, and the cluster's API server does not answer until the last measurement, as in those on a
//! real MAAS. The event log is one for all machines: reading it counts for the cluster as a whole and where nothing else
//! happens, and not for a single machine.

use std::path::Path;
use std::time::Duration;

use capmaas_testbed::Testbed;
use jiff::Timestamp;
use serde::Serialize;

use crate::capi::{CONTROL_PLANE, ClusterApi, Kind};
use crate::kinds::install_kinds;
use crate::maas::{Exchange, Latency, Maas, Speed, Stock};
use crate::provider::{ACCOUNT, NAMESPACE, Provider};
use crate::tell;

const PATIENCE: Duration = Duration::from_secs(300);
const SETTLE: Duration = Duration::from_secs(15);
const IDLE: Duration = Duration::from_secs(60);
/// The number of machines must not affect the requests of an idle minute.
const MORE_MACHINES: usize = 21;

/// One budget, and what was spent.
#[derive(Clone, Debug, Serialize)]
pub struct Budget {
    /// What the requests are for.
    pub what: &'static str,
    /// What the Go original (v0.9) spent on a real MAAS 3.4.10.
    pub go: &'static str,
    /// The maximum number of requests.
    pub limit: usize,
    /// The requests that were sent.
    pub spent: Vec<String>,
}

impl Budget {
    /// Whether the budget was kept.
    pub fn is_kept(&self) -> bool {
        self.spent.len() <= self.limit
    }
}

/// The budgets as a table.
pub fn markdown(budgets: &[Budget]) -> String {
    let row = |it: &Budget| format!("| {} | {} | {} | {} |\n", it.what, it.go, it.spent.len(), it.limit);
    let rows: String = budgets.iter().map(row).collect();
    format!("| MAAS requests | Go original, recorded | here | at most |\n|---|---|---|---|\n{rows}")
}

pub async fn measure(provider: &str, crds: &Path) -> anyhow::Result<Vec<Budget>> {
    let stock =
        Stock { machines: 4 + MORE_MACHINES, vms: 0, deploy_seconds: 15.0, speed: Speed::Real, latency: Latency::Real };
    let maas = Maas::start(stock)?;
    let testbed = Testbed::builder().name_server(maas.name_server).start().await?;
    install_kinds(&testbed, crds).await?;
    let provider = Provider::prepare(&testbed, provider, &maas.endpoint).await?;
    let core = ClusterApi::start_without_nodes(&testbed)?;
    let running = provider.start(&testbed)?;
    let mut spender = Spender { maas: &maas, core: &core, budgets: Vec::new() };
    let spent = spender.spend(&testbed).await;
    let budgets = spent.map(|()| spender.budgets);
    running.stop().await;
    drop(core);
    testbed.stop().await;
    budgets
}

struct Spender<'a> {
    maas: &'a Maas,
    core: &'a ClusterApi,
    budgets: Vec<Budget>,
}

impl Spender<'_> {
    async fn spend(&mut self, testbed: &Testbed) -> anyhow::Result<()> {
        let began = Timestamp::now();
        let three = [format!("{CONTROL_PLANE}0"), "worker-0".to_owned(), "worker-1".to_owned()];
        self.core.create_cluster(PATIENCE).await?;
        self.provision(&three).await?;
        self.note("a cluster of three until Deployed", "244", 50, began, |_| true);
        self.note("the same without the event log", "244", 30, began, is_no_news);
        self.idle("idle for a minute, no Node, 3 machines").await?;
        self.delete(&three[2..]).await?;

        let began = Timestamp::now();
        self.provision(&["worker-2".to_owned()]).await?;
        self.note("a worker until Deployed", "14–15", 9, began, is_no_news);

        let began = Timestamp::now();
        self.provision(&[format!("{CONTROL_PLANE}1")]).await?;
        self.note("a control plane machine until Deployed, without the cluster's DNS record", "20", 11, began, |it| {
            is_no_news(it) && !it.entry.kind.starts_with("dnsresource")
        });

        let more: Vec<String> = (0..MORE_MACHINES).map(|number| format!("more-{number}")).collect();
        self.provision(&more).await?;
        self.idle("idle for a minute, no Node, 25 machines").await?;

        let began = Timestamp::now();
        self.delete(&more[..1]).await?;
        self.note("deletion of a worker", "4 (it does not wait)", 6, began, is_no_news);

        // Any API server without Nodes works; this one is available.
        let kubeconfig = testbed.service_account_kubeconfig(NAMESPACE, ACCOUNT).await?;
        self.core.give_kubeconfig(&std::fs::read_to_string(kubeconfig)?).await?;
        self.idle("idle for a minute, API server without Nodes, 24 machines").await
    }

    async fn provision(&self, names: &[String]) -> anyhow::Result<()> {
        self.core.create_machines(names, &Kind::Metal.spec()).await?;
        self.core.wait_machines(PATIENCE, "it is provisioned", names, |life| life.provisioned.is_some()).await
    }

    async fn delete(&self, names: &[String]) -> anyhow::Result<()> {
        self.core.delete_machines(names).await?;
        self.core.wait_machines(PATIENCE, "it is gone", names, |life| life.gone.is_some()).await?;
        self.core.forget_machines(names).await
    }

    async fn idle(&mut self, what: &'static str) -> anyhow::Result<()> {
        tokio::time::sleep(SETTLE).await;
        let began = Timestamp::now();
        tokio::time::sleep(IDLE).await;
        self.note(what, "2.5 with Nodes", 16, began, |_| true);
        Ok(())
    }

    fn note(
        &mut self,
        what: &'static str,
        go: &'static str,
        limit: usize,
        since: Timestamp,
        counts: impl Fn(&Exchange) -> bool,
    ) {
        let spent = self.maas.exchanges().into_iter().filter(|exchange| exchange.at >= since && counts(exchange));
        let spent: Vec<String> = spent.map(|exchange| exchange.entry.kind).collect();
        tell(&format!("{what}: {} requests, at most {limit}", spent.len()));
        self.budgets.push(Budget { what, go, limit, spent });
    }
}

fn is_no_news(exchange: &Exchange) -> bool {
    !exchange.is_heartbeat()
}
