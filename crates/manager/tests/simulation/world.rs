//! One simulated world: Kubernetes in memory, a simulated MAAS in process, a driven clock, and a manager that may die.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capmaas_api::MaasMachine;
use capmaas_api::names::CONTROL_PLANE_LABEL;
use capmaas_core::cluster::observed::Contract;
use capmaas_core::cluster::plan::Requeue as ClusterRequeue;
use capmaas_core::machine::Requeue;
use capmaas_manager::clock::{Clock, Driver};
use capmaas_manager::cluster;
use capmaas_manager::identity::{Connect, Credentials, Identities, MemoryKeeper, Settings};
use capmaas_manager::lease::Fence;
use capmaas_manager::lxd_hosts::LxdHosts;
use capmaas_manager::machine::{self, fingerprint};
use capmaas_manager::metrics::Metrics;
use capmaas_manager::port::{Key, MemoryPort, Node};
use jiff::Timestamp;
use maas_client::transport::in_process;
use maas_client::{Client, Environment, RetryPolicy};
use maas_sim::{Config, Simulator};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::crash::{Crash, Mortal};
use crate::law::{self, Seen};
use crate::objects::cluster_key;

pub(crate) const ADMIN: &str = "consumer:token:CANARYsecret";
const START: i64 = 1_794_772_800;
/// Passes of one seed. More means that something runs in circles.
const MOST_PASSES: u32 = 20_000;
/// Stands in for the change feed and the slow resync.
const WAKE_ALL: i64 = 90_000;

/// The computer's clock, by which the simulated MAAS judges signatures, and numbers that were not seen before.
struct Driven {
    counter: AtomicU64,
}

impl Environment for Driven {
    fn unix_seconds(&self) -> u64 {
        maas_client::SystemEnvironment.unix_seconds()
    }

    fn random(&self) -> u128 {
        u128::from(self.counter.fetch_add(1, Ordering::SeqCst))
    }
}

/// Who lives in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cast {
    /// Metal alone.
    Metal,
    /// VMs on LXD hosts, and some metal beside them.
    Vms,
}

/// What is looked after.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Cluster(Key),
    Machine(Key),
}

/// When to look again.
enum Next {
    OnChange,
    After(i64),
}

/// One life of the manager.
#[derive(Clone)]
struct Manager {
    machines: machine::Context,
    clusters: cluster::Context,
    /// What the last pass over each machine left for one that follows at once. Here all kinds of things happen in between.
    known: Arc<Mutex<BTreeMap<Key, machine::Known>>>,
}

impl Manager {
    async fn pass(&self, subject: &Subject) -> capmaas_manager::port::Result<Next> {
        Ok(match subject {
            Subject::Machine(key) => {
                let mut known = self.known.lock().unwrap().remove(key).unwrap_or_default();
                match machine::reconcile_knowing(&self.machines, key, &mut known).await? {
                    Requeue::OnChange => Next::OnChange,
                    Requeue::After(wait) => {
                        if wait.is_zero() {
                            self.known.lock().unwrap().insert(key.clone(), known);
                        }
                        Next::After(i64::try_from(wait.as_millis()).unwrap())
                    }
                }
            }
            Subject::Cluster(key) => match cluster::reconcile(&self.clusters, key).await? {
                ClusterRequeue::OnChange => Next::OnChange,
                ClusterRequeue::Now => Next::After(0),
                ClusterRequeue::After(wait) => Next::After(i64::try_from(wait.as_millis()).unwrap()),
            },
        })
    }
}

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) cast: Cast,
    pub(crate) chance: Chance,
    pub(crate) port: MemoryPort,
    pub(crate) maas: Simulator,
    pub(crate) crashes: u32,
    pub(crate) trace: Vec<String>,
    clock: Clock,
    driver: Driver,
    crash: Crash,
    manager: Manager,
    /// A MAAS that knows nothing of ours.
    pub(crate) elsewhere: Simulator,
    /// Nodes that have joined.
    nodes: BTreeMap<String, Vec<String>>,
    pub(crate) after_last_pass: Seen,
    /// MAAS itself did what a law forbids: it was restored from a backup, or a change of its DNS came late.
    pub(crate) lenient: bool,
    keeper: Arc<MemoryKeeper>,
    nonces: u64,
    /// When each is looked at next, in milliseconds of the driven clock.
    due: BTreeMap<Subject, i64>,
    seen: BTreeMap<Key, Option<u64>>,
    wake_all: i64,
    passes: u32,
    /// The share of passes in which the manager dies, in percent.
    pub(crate) mortality: u64,
    /// The share of passes before which the watch falls behind or catches up, in percent.
    pub(crate) sluggishness: u64,
}

impl World {
    pub(crate) fn new(seed: u64, cast: Cast) -> Self {
        let (clock, driver) = Clock::driven(Timestamp::from_second(START).unwrap());
        let config = Config { seed, ..Config::driven(ADMIN.parse().unwrap()) };
        let maas = Simulator::new(config.clone());
        let elsewhere = Simulator::new(config);
        let port = MemoryPort::new(clock.clone());
        let crash = Crash::default();
        let keeper = Arc::new(MemoryKeeper::default());
        let ways = ways(seed, cast, &maas, &elsewhere);
        let manager = manager(&clock, &port, &ways, &crash, &keeper, 0);
        Self {
            seed,
            cast,
            chance: Chance::new(seed),
            port,
            maas,
            crashes: 0,
            trace: Vec::new(),
            driver,
            crash,
            manager,
            elsewhere,
            nodes: BTreeMap::new(),
            after_last_pass: Seen::default(),
            lenient: false,
            keeper,
            nonces: 0,
            due: BTreeMap::new(),
            seen: BTreeMap::new(),
            wake_all: clock.now().as_millisecond(),
            clock,
            passes: 0,
            mortality: 0,
            sluggishness: 0,
        }
    }

    pub(crate) fn arrange(&self, statements: Value) {
        let statements: Vec<_> = serde_json::from_value(statements).unwrap();
        self.maas.control().arrange(&statements).unwrap();
    }

    /// Seconds since the beginning.
    pub(crate) fn now(&self) -> i64 {
        self.clock.now().as_second() - START
    }

    fn let_time_pass(&self, milliseconds: i64) {
        self.driver.advance(milliseconds);
        let passed = Duration::from_millis(u64::try_from(milliseconds).unwrap_or_default());
        self.maas.advance(passed);
        self.elsewhere.advance(passed);
    }

    /// Where MAAS answers. Each seed has a server of its own: the client bounds the requests to one server, for all threads.
    pub(crate) fn endpoint(&self) -> String {
        endpoint(self.seed, self.cast, "maas")
    }

    /// Where a MAAS answers that knows nothing of ours.
    pub(crate) fn empty_endpoint(&self) -> String {
        endpoint(self.seed, self.cast, "empty")
    }

    /// Another process.
    pub(crate) fn restart(&mut self) {
        self.nonces += 1;
        let ways = ways(self.seed, self.cast, &self.maas, &self.elsewhere);
        self.manager = manager(&self.clock, &self.port, &ways, &self.crash, &self.keeper, self.nonces);
        // A restart lists everything.
        self.port.let_census_lag(false);
        let back = self.clock.now().as_millisecond() + 3_000;
        self.due = self.subjects().into_iter().map(|subject| (subject, back)).collect();
    }

    /// Everything that is looked after.
    pub(crate) fn subjects(&self) -> Vec<Subject> {
        let clusters = self.keys("MaasCluster").into_iter().map(Subject::Cluster);
        clusters.chain(self.machines().into_iter().map(Subject::Machine)).collect()
    }

    pub(crate) fn keys(&self, kind: &str) -> Vec<Key> {
        let key = |object: &Value| {
            let metadata = &object["metadata"];
            Key::new(metadata["namespace"].as_str().unwrap(), metadata["name"].as_str().unwrap())
        };
        self.port.objects(kind).iter().map(key).collect()
    }

    /// Names of all MaasMachines.
    pub(crate) fn machines(&self) -> Vec<Key> {
        self.keys("MaasMachine")
    }

    /// Looks after everything until the driven clock has moved by so many seconds.
    pub(crate) async fn run_for(&mut self, seconds: i64) {
        let end = self.clock.now().as_millisecond() + seconds * 1000;
        loop {
            self.hear();
            let now = self.clock.now().as_millisecond();
            let next = self.due.iter().map(|(subject, at)| (*at, subject.clone())).min();
            let at = next.as_ref().map_or(i64::MAX, |(at, _)| *at).min(self.wake_all);
            if at >= end {
                self.let_time_pass((end - now).max(0));
                return;
            }
            self.let_time_pass((at - now).max(0));
            if self.wake_all <= at {
                self.wake_all = at + WAKE_ALL;
                for key in self.machines() {
                    let soon = at + i64::try_from(self.chance.below(2_000)).unwrap();
                    self.schedule(Subject::Machine(key), soon);
                }
                self.boot_nodes();
                continue;
            }
            if let Some((_, subject)) = next {
                self.pass(&subject).await;
            }
        }
    }

    /// What watches would deliver.
    fn hear(&mut self) {
        self.play_cluster_api();
        let now = self.clock.now().as_millisecond();
        let mut concerned = BTreeSet::new();
        for (kind, key) in self.port.take_changes() {
            match kind.as_str() {
                "MaasMachine" => {
                    // Of workers only their end is of interest to a cluster.
                    let matters = self.port.object("MaasMachine", &key).is_none_or(|object| {
                        object["metadata"]["labels"].get(CONTROL_PLANE_LABEL).is_some() || law::is_leaving(&object)
                    });
                    if matters {
                        concerned.insert(Subject::Cluster(cluster_key()));
                    }
                    // Our own writes of the status wake no machine, as in the controller.
                    if self.heeded(&key) {
                        concerned.insert(Subject::Machine(key));
                    }
                }
                "MaasCluster" | "Cluster" => {
                    concerned.insert(Subject::Cluster(cluster_key()));
                    concerned.extend(self.machines().into_iter().map(Subject::Machine));
                }
                "Machine" => drop(concerned.insert(Subject::Machine(key))),
                "Secret" | "ConfigMap" if key.namespace == "capmaas-system" => {
                    self.manager.machines.identities.changed();
                    // As `Rotation` does: a quiet cluster would notice half an hour later.
                    concerned.insert(Subject::Cluster(cluster_key()));
                    concerned.extend(self.machines().into_iter().map(Subject::Machine));
                }
                _ => {}
            }
        }
        // Any of them may be first.
        for subject in concerned {
            let soon = now + 10 + i64::try_from(self.chance.below(400)).unwrap();
            self.schedule(subject, soon);
        }
    }

    /// Cluster API lets machines begin once the infrastructure of the cluster is ready, and takes over its endpoint.
    fn play_cluster_api(&self) {
        let key = cluster_key();
        let (Some(cluster), Some(ours)) = (self.port.object("Cluster", &key), self.port.object("MaasCluster", &key))
        else {
            return;
        };
        if cluster["spec"]["paused"] == true || ours["status"]["ready"] != true {
            return;
        }
        let endpoint = &ours["spec"]["controlPlaneEndpoint"];
        if cluster["spec"]["controlPlaneEndpoint"] != *endpoint {
            self.port.edit("Cluster", &key, &json!({ "spec": { "controlPlaneEndpoint": endpoint } })).unwrap();
        }
        if cluster["status"]["initialization"]["infrastructureProvisioned"] != true {
            let status = json!({ "initialization": { "infrastructureProvisioned": true } });
            self.port.set_status("Cluster", &key, status).unwrap();
        }
    }

    /// Whether anything but the status changed.
    fn heeded(&mut self, key: &Key) -> bool {
        let now = self.port.object("MaasMachine", key).map(|object| {
            let object: MaasMachine = serde_json::from_value(object).unwrap();
            fingerprint(&object)
        });
        self.seen.insert(key.clone(), now) != Some(now)
    }

    pub(crate) async fn pass(&mut self, subject: &Subject) {
        self.passes += 1;
        if self.passes > MOST_PASSES {
            self.fail("runs in circles");
        }
        self.due.remove(subject);
        if self.chance.percent(self.sluggishness) {
            let behind = self.chance.percent(70);
            self.port.let_census_lag(behind);
        }
        if self.chance.percent(self.mortality) {
            self.crash.light(u32::try_from(self.chance.below(22)).unwrap(), self.chance.percent(50));
        }
        let began = tokio::time::Instant::now();
        let (manager, crash) = (self.manager.clone(), self.crash.clone());
        let result = tokio::select! {
            biased;
            result = manager.pass(subject) => Some(result),
            () = crash.happens() => None,
        };
        self.crash.put_out();
        // Waiting for answers that never come takes time, too.
        let waited = i64::try_from(began.elapsed().as_millis()).unwrap();
        self.let_time_pass(waited);
        let now = self.clock.now().as_millisecond();
        let said = match &result {
            None => "died".to_owned(),
            Some(Ok(Next::OnChange)) => "rests".to_owned(),
            Some(Ok(Next::After(wait))) => format!("again in {wait} ms"),
            Some(Err(error)) => format!("failed: {error}"),
        };
        self.tell(format!("{said} | {}", self.story(subject)));
        self.after_last_pass = law::after_a_pass(self, &self.after_last_pass, matches!(subject, Subject::Cluster(_)));
        match result {
            None => {
                self.crashes += 1;
                self.restart();
            }
            Some(Ok(Next::OnChange)) => {}
            Some(Ok(Next::After(wait))) => {
                let jitter = i64::try_from(self.chance.below(100)).unwrap();
                self.schedule(subject.clone(), now + wait + wait * jitter / 500 + 20);
            }
            Some(Err(_)) => self.schedule(subject.clone(), now + 10_000),
        }
    }

    /// One more line of the trace.
    pub(crate) fn tell(&mut self, line: String) {
        let line = format!("{:>6}s {line}", self.now());
        if std::env::var_os("CAPMAAS_SEED").is_some() {
            println!("{line}");
        }
        self.trace.push(line);
    }

    fn schedule(&mut self, subject: Subject, at: i64) {
        let due = self.due.entry(subject).or_insert(at);
        *due = at.min(*due);
    }

    /// A machine that MAAS has deployed joins as a Node, as kubeadm would do it.
    fn boot_nodes(&mut self) {
        for object in self.port.objects("MaasMachine") {
            let Some(name) = object["status"]["hostname"].as_str() else { continue };
            let addresses: Vec<String> = law::addresses(&object).map(str::to_owned).collect();
            if object["status"]["machineState"] != "Deployed" || self.nodes.get(name) == Some(&addresses) {
                continue;
            }
            self.nodes.insert(name.to_owned(), addresses.clone());
            let node = Node { name: name.to_owned(), addresses, ..Node::default() };
            self.port.put_node(&cluster_key(), node);
        }
    }

    /// What an object says about itself, for the trace.
    fn story(&self, subject: &Subject) -> String {
        let (kind, condition, key) = match subject {
            Subject::Cluster(key) => ("MaasCluster", "Ready", key),
            Subject::Machine(key) => ("MaasMachine", "MachineDeployed", key),
        };
        let Some(object) = self.port.object(kind, key) else { return format!("{kind} {} is gone", key.name) };
        let (reason, message) = self::condition(&object, condition);
        format!("{kind} {} {reason}: {message} {}", key.name, object["metadata"]["annotations"])
    }

    /// A fingerprint of everything that happened.
    pub(crate) fn fingerprint(&self) -> Vec<String> {
        let ledger = self.maas.control().ledger(None);
        let asked =
            ledger.iter().map(|entry| format!("{} {} {:?} {:?}", entry.at, entry.kind, entry.machine, entry.effects));
        self.trace.iter().cloned().chain(asked).collect()
    }

    pub(crate) fn fail(&self, why: &str) -> ! {
        let last = self.trace.iter().rev().take(60).rev().cloned().collect::<Vec<_>>().join("\n");
        let inventory = self.inventory();
        panic!(
            "seed {}: {why}\nreplay it with: make simulate SEED={}\nMAAS: {inventory:#?}\nthe last passes:\n{last}",
            self.seed, self.seed
        );
    }

    /// Every machine in MAAS: state, owner, key, whether it really is on.
    pub(crate) fn inventory(&self) -> BTreeMap<String, Held> {
        self.maas.control().with_model(|model| {
            let on = |id: &str| model.world.bodies.get(id).is_some_and(|body| body.bmc.on);
            let machines = model.db.machines.values();
            machines
                .map(|machine| {
                    let held = Held {
                        hostname: machine.hostname.clone(),
                        is_vm: machine.vm.is_some(),
                        state: format!("{:?}", machine.status),
                        owner: machine.owner,
                        stamp: machine.annotations.get("capmaas-key").cloned(),
                        on: on(&machine.system_id),
                    };
                    (machine.system_id.clone(), held)
                })
                .collect()
        })
    }
}

/// A machine in MAAS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) hostname: String,
    pub(crate) is_vm: bool,
    pub(crate) state: String,
    pub(crate) owner: Option<i64>,
    pub(crate) stamp: Option<String>,
    pub(crate) on: bool,
}

pub(crate) fn condition(object: &Value, type_: &str) -> (String, String) {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&found["reason"]), text(&found["message"]))
}

fn endpoint(seed: u64, cast: Cast, which: &str) -> String {
    let who = if cast == Cast::Vms { "vms" } else { "metal" };
    format!("http://{which}-{who}-{seed}.example:5240/MAAS")
}

/// The way to each MAAS, by its endpoint.
fn ways(seed: u64, cast: Cast, maas: &Simulator, elsewhere: &Simulator) -> BTreeMap<String, Simulator> {
    BTreeMap::from([(endpoint(seed, cast, "maas"), maas.clone()), (endpoint(seed, cast, "empty"), elsewhere.clone())])
}

fn manager(
    clock: &Clock,
    port: &MemoryPort,
    ways: &BTreeMap<String, Simulator>,
    crash: &Crash,
    keeper: &Arc<MemoryKeeper>,
    life: u64,
) -> Manager {
    let (ways, crashing) = (ways.clone(), crash.clone());
    let lives = AtomicU64::new(life << 32);
    let connect: Connect = Arc::new(move |credentials: &Credentials| {
        let counter = AtomicU64::new(lives.fetch_add(1 << 24, Ordering::SeqCst));
        let router = ways[&credentials.endpoint].router();
        Client::builder(&credentials.endpoint, credentials.key.expose_secret())
            .transport(crashing.on_the_way(in_process(router, 1 << 22)))
            .environment(Driven { counter })
            .retry(RetryPolicy::never())
            .build()
    });
    let kubernetes = Arc::new(Mortal { port: port.clone(), crash: crash.clone() });
    let settings = Settings { namespace: "capmaas-system".into(), ..Settings::default() };
    let identities = Identities::new(kubernetes.clone(), keeper.clone(), clock.clone(), settings, connect);
    let (clock, fence, metrics) = (clock.clone(), Fence::open(), Metrics::new());
    let lxd_hosts = LxdHosts::default();
    let reports = lxd_hosts.reports.clone();
    Manager {
        known: Arc::default(),
        machines: machine::Context {
            kubernetes: kubernetes.clone(),
            identities: identities.clone(),
            clock: clock.clone(),
            fence: fence.clone(),
            metrics: metrics.clone(),
            lxd_hosts,
            backoff: capmaas_manager::backoff::Backoff::default(),
        },
        clusters: cluster::Context {
            kubernetes,
            identities,
            clock,
            fence,
            metrics,
            contract: Contract::List,
            memory: cluster::Memory::default(),
            agent_image: None,
            reports,
        },
    }
}
