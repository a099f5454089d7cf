//! One simulated world: Kubernetes in memory, a simulated MAAS in process, a driven clock, and a manager that may die.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use capmaas_api::MaasMachine;
use capmaas_core::machine::Requeue;
use capmaas_manager::clock::{Clock, Driver};
use capmaas_manager::identity::{Connect, Credentials, EnvironmentCredentials, Identities, MemoryKeeper, Settings};
use capmaas_manager::lease::Fence;
use capmaas_manager::lxd_hosts::LxdHosts;
use capmaas_manager::machine::{Context, fingerprint, reconcile};
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

const ADMIN: &str = "consumer:token:CANARYsecret";
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

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) chance: Chance,
    pub(crate) port: MemoryPort,
    pub(crate) maas: Simulator,
    pub(crate) crashes: u32,
    pub(crate) trace: Vec<String>,
    clock: Clock,
    driver: Driver,
    crash: Crash,
    context: Context,
    keeper: Arc<MemoryKeeper>,
    nonces: u64,
    /// When each machine is looked at next, in milliseconds of the driven clock.
    due: BTreeMap<Key, i64>,
    seen: BTreeMap<Key, Option<u64>>,
    wake_all: i64,
    passes: u32,
    /// The share of passes in which the manager dies, in percent.
    pub(crate) mortality: u64,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let (clock, driver) = Clock::driven(Timestamp::from_second(START).unwrap());
        let config = Config { seed, ..Config::driven(ADMIN.parse().unwrap()) };
        let maas = Simulator::new(config);
        let port = MemoryPort::new(clock.clone());
        let crash = Crash::default();
        let keeper = Arc::new(MemoryKeeper::default());
        let context = manager(&clock, &port, &maas, &crash, &keeper, 0);
        Self {
            seed,
            chance: Chance::new(seed),
            port,
            maas,
            crashes: 0,
            trace: Vec::new(),
            driver,
            crash,
            context,
            keeper,
            nonces: 0,
            due: BTreeMap::new(),
            seen: BTreeMap::new(),
            wake_all: clock.now().as_millisecond(),
            clock,
            passes: 0,
            mortality: 0,
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
        self.maas.advance(Duration::from_millis(u64::try_from(milliseconds).unwrap_or_default()));
    }

    fn die(&mut self) {
        self.crashes += 1;
        self.nonces += 1;
        self.context = manager(&self.clock, &self.port, &self.maas, &self.crash, &self.keeper, self.nonces);
        // A restart lists everything.
        let back = self.clock.now().as_millisecond() + 3_000;
        for key in self.machines() {
            self.due.insert(key, back);
        }
    }

    /// Names of all MaasMachines.
    pub(crate) fn machines(&self) -> Vec<Key> {
        let key = |object: &Value| {
            let metadata = &object["metadata"];
            Key::new(metadata["namespace"].as_str().unwrap(), metadata["name"].as_str().unwrap())
        };
        self.port.objects("MaasMachine").iter().map(key).collect()
    }

    /// Looks after machines until the driven clock has moved by so many seconds.
    pub(crate) async fn run_for(&mut self, seconds: i64) {
        let end = self.clock.now().as_millisecond() + seconds * 1000;
        loop {
            self.hear();
            let now = self.clock.now().as_millisecond();
            let next = self.due.iter().map(|(key, at)| (*at, key.clone())).min();
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
                    let due = self.due.entry(key).or_insert(soon);
                    *due = soon.min(*due);
                }
                self.boot_nodes();
                continue;
            }
            if let Some((_, key)) = next {
                self.pass(&key).await;
            }
        }
    }

    /// What watches would deliver.
    fn hear(&mut self) {
        let soon = self.clock.now().as_millisecond() + 50;
        for (kind, key) in self.port.take_changes() {
            let concerned: Vec<Key> = match kind.as_str() {
                // Our own writes of the status wake nobody, as in the controller.
                "MaasMachine" if !self.heeded(&key) => continue,
                "MaasMachine" => vec![key],
                _ => self.machines(),
            };
            for key in concerned {
                let due = self.due.entry(key).or_insert(soon);
                *due = soon.min(*due);
            }
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

    async fn pass(&mut self, key: &Key) {
        self.passes += 1;
        if self.passes > MOST_PASSES {
            self.fail("runs in circles");
        }
        self.due.remove(key);
        if self.chance.percent(self.mortality) {
            self.crash.light(u32::try_from(self.chance.below(22)).unwrap(), self.chance.percent(50));
        }
        let began = tokio::time::Instant::now();
        let (context, crash) = (self.context.clone(), self.crash.clone());
        let result = tokio::select! {
            biased;
            result = reconcile(&context, key) => Some(result),
            () = crash.happens() => None,
        };
        self.crash.put_out();
        // Waiting for answers that never come takes time, too.
        let waited = i64::try_from(began.elapsed().as_millis()).unwrap();
        self.let_time_pass(waited);
        let now = self.clock.now().as_millisecond();
        let said = match &result {
            None => "died".to_owned(),
            Some(Ok(requeue)) => format!("{requeue:?}"),
            Some(Err(error)) => format!("failed: {error}"),
        };
        self.trace.push(format!("{:>6}s {} {said} | {}", self.now(), key.name, self.story(key)));
        if std::env::var_os("CAPMAAS_SEED").is_some() {
            println!("{}", self.trace.last().unwrap());
        }
        match result {
            None => self.die(),
            Some(Ok(Requeue::OnChange)) => {}
            Some(Ok(Requeue::After(wait))) => {
                let wait = i64::try_from(wait.as_millis()).unwrap();
                let jitter = i64::try_from(self.chance.below(100)).unwrap();
                self.schedule(key, now + wait + wait * jitter / 500 + 20);
            }
            Some(Err(_)) => self.schedule(key, now + 10_000),
        }
    }

    fn schedule(&mut self, key: &Key, at: i64) {
        let due = self.due.entry(key.clone()).or_insert(at);
        *due = at.min(*due);
    }

    /// A machine that MAAS has deployed joins as a Node, as kubeadm would do it.
    fn boot_nodes(&self) {
        let cluster = Key::new("default", "c1");
        let deployed: Vec<(String, Vec<String>)> = self
            .port
            .objects("MaasMachine")
            .iter()
            .filter(|object| object["status"]["machineState"] == "Deployed")
            .filter_map(|object| {
                let addresses = object["status"]["addresses"].as_array()?;
                let ips = addresses.iter().filter(|address| address["type"] == "InternalIP");
                let ips = ips.filter_map(|address| address["address"].as_str().map(str::to_owned)).collect();
                Some((object["status"]["hostname"].as_str()?.to_owned(), ips))
            })
            .collect();
        for (name, addresses) in deployed {
            let provider_id = None;
            self.port.put_node(&cluster, Node { name, provider_id, addresses, ..Node::default() });
        }
    }

    /// The condition of a machine, for the trace.
    fn story(&self, key: &Key) -> String {
        let Some(object) = self.port.object("MaasMachine", key) else { return "gone".into() };
        let record = object["metadata"]["annotations"]["infrastructure.cluster.x-k8s.io/maas-record"].clone();
        let (reason, message) = deployed_condition(&object);
        format!("{reason}: {message} {record}")
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

    /// What must hold at every moment.
    pub(crate) fn check(&self) {
        let mut named = BTreeSet::new();
        for object in self.port.objects("MaasMachine") {
            if let Some(id) = object["spec"]["providerID"].as_str()
                && !named.insert(id.to_owned())
            {
                self.fail(&format!("{id} was given twice"));
            }
        }
    }
}

/// A machine in MAAS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) state: String,
    pub(crate) owner: Option<i64>,
    pub(crate) stamp: Option<String>,
    pub(crate) on: bool,
}

pub(crate) fn deployed_condition(object: &Value) -> (String, String) {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == "MachineDeployed").unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&found["reason"]), text(&found["message"]))
}

fn manager(
    clock: &Clock,
    port: &MemoryPort,
    maas: &Simulator,
    crash: &Crash,
    keeper: &Arc<MemoryKeeper>,
    life: u64,
) -> Context {
    let (router, way) = (maas.router(), crash.clone());
    let lives = AtomicU64::new(life << 32);
    let connect: Connect = Arc::new(move |credentials: &Credentials| {
        let counter = AtomicU64::new(lives.fetch_add(1 << 24, Ordering::SeqCst));
        Client::builder(&credentials.endpoint, credentials.key.expose_secret())
            .transport(way.on_the_way(in_process(router.clone(), 1 << 22)))
            .environment(Driven { counter })
            .retry(RetryPolicy::never())
            .build()
    });
    let kubernetes = Arc::new(Mortal { port: port.clone(), crash: crash.clone() });
    let settings = Settings {
        namespace: "capmaas-system".into(),
        identity_namespaces: BTreeSet::new(),
        environment: EnvironmentCredentials::default(),
    };
    let identities = Identities::new(kubernetes.clone(), keeper.clone(), clock.clone(), settings, connect);
    Context {
        kubernetes,
        identities,
        clock: clock.clone(),
        fence: Fence::open(),
        metrics: Metrics::new(),
        lxd_hosts: LxdHosts::default(),
    }
}

/// Objects of one cluster with its own endpoint, and the credentials.
pub(crate) fn cluster(world: &World) {
    world.port.create(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "maas-credentials", "namespace": "capmaas-system" },
        "stringData": { "apiKey": ADMIN },
    })).unwrap();
    world.port.create(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "capmaas-config", "namespace": "capmaas-system" },
        "data": { "maasEndpoint": "http://maas.example:5240/MAAS" },
    })).unwrap();
    world.port.create(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": { "name": "c1", "namespace": "default" },
        "spec": { "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MaasCluster", "name": "c1" } },
    })).unwrap();
    let key = Key::new("default", "c1");
    world.port.set_status("Cluster", &key, json!({ "initialization": { "infrastructureProvisioned": true } })).unwrap();
    world
        .port
        .create(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster",
            "metadata": {
                "name": "c1", "namespace": "default",
                "annotations": { "spectrocloud.com/custom-dns-provided": "" },
            },
            "spec": { "dnsDomain": "maas", "controlPlaneEndpoint": { "host": "10.0.0.250", "port": 6443 } },
        }))
        .unwrap();
    world.port.workload_answers(&key, true);
}

/// A Machine, its start-up data and its MaasMachine.
pub(crate) fn machine(world: &World, name: &str, zone: Option<&str>) {
    world
        .port
        .create(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": "default" },
            "stringData": { "value": "#cloud-config\n# CANARYbootstrap" },
        }))
        .unwrap();
    let made = world.port.create(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "clusterName": "c1", "bootstrap": { "dataSecretName": name }, "failureDomain": zone,
            "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MaasMachine", "name": name },
        },
    })).unwrap();
    world.port.create(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
        "metadata": {
            "name": name, "namespace": "default", "labels": { "cluster.x-k8s.io/cluster-name": "c1" },
            "ownerReferences": [{
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name, "uid": made["metadata"]["uid"],
            }],
        },
        "spec": { "image": "ubuntu/jammy", "minCPU": 1, "minMemory": 1024 },
    })).unwrap();
}
