//! One run: a provider with N machines, from the first creation to the last deletion.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use capmaas_testbed::Testbed;
use jiff::Timestamp;
use maas_sim::faults::ServerState;
use serde::Serialize;

use crate::audit::{self, AuditLog};
use crate::capi::{ClusterApi, Kind, Life};
use crate::kinds::install_kinds;
use crate::maas::{Exchange, Latency, Maas, Speed, Stock};
use crate::phases::{self, Excluded, Phase, Spread};
use crate::processors::Others;
use crate::provider::{Provider, Running, Usage};
use crate::tell;

/// A provider is steady when it has sent nothing to MAAS and the API server for this long.
const QUIET: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(250);
/// How many machines are created while MAAS is down, to measure when its recovery is noticed.
const NEWCOMERS: usize = 5;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The provider's command line.
    pub provider: String,
    /// The folder with its CRDs.
    pub crds: PathBuf,
    pub machines: usize,
    pub kind: Kind,
    /// What drives MAAS's clock.
    pub speed: Speed,
    /// How slowly MAAS answers.
    pub latency: Latency,
    /// The duration of a deployment, by MAAS's clock.
    pub deploy_seconds: f64,
    /// How many machines are created and deleted per second; all at once if absent.
    pub per_second: Option<f64>,
    /// How long to measure the idle cost.
    pub idle_seconds: u64,
    /// How long MAAS is down.
    pub away_seconds: u64,
    /// How many requests MAAS accepts at once; more wait in the provider.
    pub limit: usize,
    /// The timeout without any progress.
    pub patience: Duration,
}

/// Requests and writes of a time span.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Traffic {
    /// Its duration.
    pub seconds: f64,
    /// CPU time of the provider in it.
    pub cpu_seconds: f64,
    /// CPU time of everything else.
    pub others: Others,
    /// Requests to MAAS by kind.
    pub maas_requests: BTreeMap<String, usize>,
    /// How many of these changed something.
    pub maas_mutations: usize,
    /// Reads from Kubernetes by kind, except watches.
    pub kubernetes_reads: BTreeMap<String, usize>,
    /// Writes to Kubernetes by kind, except leases.
    pub kubernetes_writes: BTreeMap<String, usize>,
    /// How long the API server took for one of these, in seconds: it is part of the time that the provider adds.
    pub kubernetes_write: Spread,
}

impl Traffic {
    /// All requests to MAAS.
    pub fn requests(&self) -> usize {
        self.maas_requests.values().sum()
    }

    /// All writes to Kubernetes.
    pub fn writes(&self) -> usize {
        self.kubernetes_writes.values().sum()
    }

    /// All reads from Kubernetes.
    pub fn reads(&self) -> usize {
        self.kubernetes_reads.values().sum()
    }

    /// A progress line: the table only appears at the end, and a long run may be aborted.
    fn in_words(&self) -> String {
        format!(
            "{:.1} s with {:.2} s of CPU, {} MAAS requests, {} of them mutations, and {} Kubernetes writes",
            self.seconds,
            self.cpu_seconds,
            self.requests(),
            self.maas_mutations,
            self.writes()
        )
    }
}

/// A provider that was killed and restarted.
#[derive(Clone, Debug, Serialize)]
pub struct Restart {
    /// From the start to the last activity before it was steady.
    pub steady_seconds: f64,
    /// What it did until then.
    pub traffic: Traffic,
    /// Peak memory until then.
    pub rss_peak_mib: f64,
}

/// A MAAS that was down.
#[derive(Clone, Debug, Serialize)]
pub struct Away {
    pub seconds: f64,
    /// Requests per second that were sent nevertheless.
    pub requests_per_second: f64,
    /// How often the Ready condition of a machine that had been Ready changed.
    pub flips: usize,
    /// From its recovery until the machines that were created meanwhile were allocated.
    pub recovered_seconds: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub machines: usize,
    pub kind: Kind,
    /// What drove MAAS's clock.
    pub speed: Speed,
    /// How slowly MAAS answered.
    pub latency: Latency,
    /// The duration of a deployment, by MAAS's clock.
    pub deploy_seconds: f64,
    /// How many machines were created and deleted per second, if not all at once.
    pub per_second: Option<f64>,
    /// From the first creation until the last machine was provisioned.
    pub deployed_seconds: f64,
    /// The traffic until then.
    pub coming: Traffic,
    /// The highest number of mutating requests for one machine until then.
    pub most_mutations: usize,
    /// Where the time went.
    pub phases: Vec<Phase>,
    /// While idle.
    pub idle: Traffic,
    /// Memory while idle.
    pub rss_idle_mib: f64,
    /// Peak memory, from the first start to the last deletion.
    pub rss_peak_mib: f64,
    /// After `kill -9`.
    pub restart: Restart,
    /// While MAAS was down.
    pub away: Away,
    /// Until every machine was deleted.
    pub going: Traffic,
    /// What was left in MAAS at the end, as sentences.
    pub left_over: Vec<String>,
}

/// The start of a time span.
struct Mark {
    at: Timestamp,
    usage: Usage,
    others: Others,
}

struct Bench<'a> {
    plan: &'a Plan,
    maas: Maas,
    testbed: Testbed,
    core: ClusterApi,
    audit: AuditLog,
}

pub async fn measure(plan: &Plan) -> anyhow::Result<Measured> {
    let room = plan.machines + NEWCOMERS;
    let (machines, vms) = match plan.kind {
        Kind::Metal => (room + room.div_ceil(10), 0),
        Kind::Vm => (0, room + room.div_ceil(5)),
    };
    let Plan { deploy_seconds, speed, latency, .. } = *plan;
    let maas = Maas::start(Stock { machines, vms, deploy_seconds, speed, latency })?;
    let testbed = Testbed::builder().audit().name_server(maas.name_server).start().await?;
    install_kinds(&testbed, &plan.crds).await?;
    let provider = Provider::prepare(&testbed, &plan.provider, &maas.endpoint).await?;
    let audit = AuditLog::open(&testbed.audit_log(), &Provider::user())?;
    let core = ClusterApi::start(&testbed)?;
    let mut bench = Bench { plan, maas, testbed, core, audit };
    let measured = bench.go(&provider).await;
    let measured = measured.map_err(|error| {
        let log = bench.testbed.log("provider");
        let end: Vec<&str> = log.lines().rev().take(15).collect();
        let end: Vec<&str> = end.into_iter().rev().collect();
        error.context(format!("the provider's log ends with:\n{}", end.join("\n")))
    });
    let Bench { core, testbed, .. } = bench;
    drop(core);
    testbed.stop().await;
    measured
}

impl Bench<'_> {
    async fn go(&mut self, provider: &Provider) -> anyhow::Result<Measured> {
        let plan = self.plan;
        let running = provider.start(&self.testbed)?;
        self.core.create_cluster(plan.patience).await?;
        self.core.initialize_control_plane().await?;
        let names: Vec<String> = (0..plan.machines).map(|index| format!("bench-{index:05}")).collect();

        tell(&format!("{} machines are created", names.len()));
        let began = self.mark(running.usage()?)?;
        let mut beat = self.beat();
        for group in self.groups(&names) {
            beat.tick().await;
            self.core.create_machines(group, &plan.kind.spec()).await?;
        }
        self.watched(&running, plan, "it is provisioned", &names, |life| life.provisioned.is_some()).await?;
        let coming = self.traffic(&began, &running)?;
        let deployed_seconds = coming.seconds;
        let lives = self.lives(&names);
        let exchanges = since(self.maas.exchanges(), began.at);
        let excluded = Excluded::new(&self.maas.seen_since(began.at), &exchanges, plan.limit);
        let mut phases = phases::coming(&lives, &exchanges, &self.maas.moments(), &excluded);
        let most_mutations = most_mutations(&exchanges);
        tell(&format!("all are provisioned after {}; waiting until it is quiet", coming.in_words()));
        self.quiet(Timestamp::now()).await?;

        tell(&format!("idle for {} s", plan.idle_seconds));
        let began = self.mark(running.usage()?)?;
        tokio::time::sleep(Duration::from_secs(plan.idle_seconds)).await;
        let idle = self.traffic(&began, &running)?;
        let Usage { rss_mib: rss_idle_mib, rss_peak_mib: first_peak, .. } = running.usage()?;
        tell(&format!("{}; {rss_idle_mib:.1} MiB, at most {first_peak:.1}", idle.in_words()));

        tell("the provider is killed and started again");
        running.kill();
        let began = self.mark(Usage::default())?;
        let running = provider.start(&self.testbed)?;
        let steady = self.quiet(began.at).await?;
        let traffic = self.traffic(&began, &running)?;
        let peak = running.usage()?.rss_peak_mib;
        tell(&format!("it is steady after {steady:.1} s: {}; at most {peak:.1} MiB", traffic.in_words()));
        let restart = Restart { steady_seconds: steady, traffic, rss_peak_mib: peak };

        let away = self.away(&running).await?;
        let Away { requests_per_second, flips, recovered_seconds, .. } = away;
        tell(&format!(
            "{requests_per_second:.1} requests a second, {flips} flips; newcomers are taken {recovered_seconds:.1} s after its return"
        ));
        let newcomers = newcomers();
        self.watched(&running, plan, "it is provisioned", &newcomers, |life| life.provisioned.is_some()).await?;

        tell("all are deleted");
        let everybody: Vec<String> = names.iter().chain(&newcomers).cloned().collect();
        let began = self.mark(running.usage()?)?;
        let mut beat = self.beat();
        for group in self.groups(&everybody) {
            beat.tick().await;
            self.core.delete_machines(group).await?;
        }
        self.watched(&running, plan, "it is gone", &everybody, |life| life.gone.is_some()).await?;
        let going = self.traffic(&began, &running)?;
        let second_peak = running.usage()?.rss_peak_mib;
        tell(&format!("all are gone after {}; at most {second_peak:.1} MiB", going.in_words()));
        let exchanges = since(self.maas.exchanges(), began.at);
        let excluded = Excluded::new(&self.maas.seen_since(began.at), &exchanges, plan.limit);
        phases.extend(phases::going(&self.lives(&names), &exchanges, &self.maas.moments(), &excluded));
        self.core.forget_machines(&everybody).await?;
        self.core.delete_cluster(plan.patience).await?;
        running.stop().await;
        Ok(Measured {
            machines: plan.machines,
            kind: plan.kind,
            speed: plan.speed,
            latency: plan.latency,
            deploy_seconds: plan.deploy_seconds,
            per_second: plan.per_second,
            deployed_seconds,
            coming,
            most_mutations,
            phases,
            idle,
            rss_idle_mib,
            rss_peak_mib: first_peak.max(second_peak),
            restart,
            away,
            going,
            left_over: self.left_over(),
        })
    }

    /// One by one if a rate is set, otherwise all at once.
    fn groups<'n>(&self, names: &'n [String]) -> std::slice::Chunks<'n, String> {
        names.chunks(if self.plan.per_second.is_some() { 1 } else { names.len().max(1) })
    }

    fn beat(&self) -> tokio::time::Interval {
        tokio::time::interval(Duration::from_secs_f64(1.0 / self.plan.per_second.unwrap_or(1.0).max(0.001)))
    }

    /// Waits for machines, and fails at once when the provider exits.
    async fn watched(
        &self,
        running: &Running,
        plan: &Plan,
        what: &str,
        names: &[String],
        fits: impl Fn(&Life) -> bool,
    ) -> anyhow::Result<()> {
        let died = async {
            loop {
                if let Err(error) = running.check() {
                    return error;
                }
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::select! {
            waited = self.core.wait_machines(plan.patience, what, names, fits) => waited,
            error = died => Err(error),
        }
    }

    async fn away(&mut self, running: &Running) -> anyhow::Result<Away> {
        tell(&format!("MAAS is away for {} s", self.plan.away_seconds));
        let flips = |core: &ClusterApi| core.lives().values().map(|life| life.flips).sum::<usize>();
        let (began, before) = (Timestamp::now(), flips(&self.core));
        self.maas.control().set_server(ServerState::Down);
        let newcomers = newcomers();
        self.core.create_machines(&newcomers, &self.plan.kind.spec()).await?;
        tokio::time::sleep(Duration::from_secs(self.plan.away_seconds)).await;
        let requests = self.maas.seen_since(began).len();
        let seconds = Timestamp::now().duration_since(began).as_secs_f64();
        let back = Instant::now();
        self.maas.control().set_server(ServerState::Up);
        let everybody = self.plan.machines + newcomers.len();
        while self.maas.taken() < everybody {
            running.check()?;
            anyhow::ensure!(back.elapsed() < self.plan.patience, "the provider did not notice that MAAS is back");
            tokio::time::sleep(POLL).await;
        }
        Ok(Away {
            seconds,
            requests_per_second: fraction(requests) / seconds,
            flips: flips(&self.core) - before,
            recovered_seconds: back.elapsed().as_secs_f64(),
        })
    }

    /// Waits until the provider is quiet. Returns when it was last active, in seconds from a time.
    async fn quiet(&mut self, from: Timestamp) -> anyhow::Result<f64> {
        let began = Instant::now();
        loop {
            let calls = self.audit.since(from)?;
            let last_write = calls.iter().rfind(|call| !call.is_read).map(|call| call.at);
            let last = last_write.max(self.maas.last_request()).unwrap_or(from).max(from);
            let still = Timestamp::now().duration_since(last).as_secs_f64();
            if still > QUIET.as_secs_f64() || began.elapsed() > self.plan.patience {
                return Ok(last.duration_since(from).as_secs_f64());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn lives(&self, names: &[String]) -> Vec<Life> {
        let all = self.core.lives();
        names.iter().filter_map(|name| all.get(name).cloned()).collect()
    }

    /// The current time, with the provider's usage so far.
    fn mark(&self, usage: Usage) -> anyhow::Result<Mark> {
        Ok(Mark { at: Timestamp::now(), usage, others: Others::now(&self.testbed)? })
    }

    fn traffic(&mut self, began: &Mark, running: &Running) -> anyhow::Result<Traffic> {
        // Taken before the following reads add to it.
        let (now, used, others) = (Timestamp::now(), running.usage()?, Others::now(&self.testbed)?);
        let exchanges = since(self.maas.exchanges(), began.at);
        let mut maas_requests = BTreeMap::new();
        for exchange in &exchanges {
            *maas_requests.entry(exchange.entry.kind.clone()).or_default() += 1;
        }
        let (reads, writes): (Vec<_>, Vec<_>) = self.audit.since(began.at)?.into_iter().partition(|call| call.is_read);
        Ok(Traffic {
            seconds: now.duration_since(began.at).as_secs_f64(),
            cpu_seconds: used.cpu_seconds - began.usage.cpu_seconds,
            others: others.since(began.others),
            maas_requests,
            maas_mutations: exchanges.iter().filter(|exchange| exchange.is_mutation()).count(),
            kubernetes_reads: audit::count(&reads),
            kubernetes_writes: audit::count(&writes),
            kubernetes_write: Spread::of(writes.iter().map(|write| write.seconds).collect()),
        })
    }

    fn left_over(&self) -> Vec<String> {
        let mut left: Vec<String> =
            self.maas.owned().into_iter().map(|(id, state)| format!("machine {id} is {state}")).collect();
        if self.maas.vms() > 0 {
            left.push(format!("{} VMs", self.maas.vms()));
        }
        if self.maas.records() > 0 {
            left.push(format!("{} DNS records", self.maas.records()));
        }
        left
    }
}

fn newcomers() -> Vec<String> {
    (0..NEWCOMERS).map(|index| format!("newcomer-{index}")).collect()
}

fn since(exchanges: Vec<Exchange>, from: Timestamp) -> Vec<Exchange> {
    exchanges.into_iter().filter(|exchange| exchange.at >= from).collect()
}

/// Exact, because counts are small.
#[allow(clippy::cast_precision_loss)]
pub fn fraction(count: usize) -> f64 {
    count as f64
}

fn most_mutations(exchanges: &[Exchange]) -> usize {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for exchange in exchanges.iter().filter(|exchange| exchange.is_mutation()) {
        for id in phases::machines_of(exchange) {
            *counts.entry(id).or_default() += 1;
        }
    }
    counts.into_values().max().unwrap_or_default()
}
