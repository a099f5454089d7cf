//! A simulated MAAS with as many machines as requested, behind a counter that sees every request, answered or not.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::{Router, body::Body};
use http::Request;
use jiff::Timestamp;
use maas_sim::config::{Config, Durations, LatencyMode, TimeMode};
use maas_sim::ledger::Entry;
use maas_sim::model::{Status, statement::Statement};
use maas_sim::{Control, Simulator, serve, serve::Running};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// The administrator, whose key no provider uses.
const ADMINISTRATOR: &str = "hand:hand:hand-secret";
/// The provider's key.
pub const API_KEY: &str = "benchconsumer:benchtoken:benchsecret";
/// The provider's user.
const USER: &str = "bench";
/// The domain in which clusters get their DNS names.
pub const DOMAIN: &str = "bench.example";
/// The image of every machine.
pub const IMAGE: &str = "custom/k8s";
const ZONES: [&str; 3] = ["az1", "az2", "az3"];
/// How often MAAS's clock is advanced, and thus the precision of its timestamps.
const TICK: Duration = Duration::from_millis(25);
/// The speed-up of a driven MAAS's clock.
const DRIVEN_SPEED: f64 = 60.0;
/// Threads of MAAS. A request is counted from its arrival, so none may wait unobserved while another one is answered:
/// with fewer threads than the provider's concurrent requests, time in which the provider is at its limit would be
/// attributed to the provider.
const AT_ONCE: usize = 8;
/// The VM capacity of a host in the inventory: ten small VMs.
const VMS_PER_HOST: usize = 10;

/// Who moves MAAS's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Speed {
    /// It runs sixty times as fast: a deployment of a minute takes a second.
    Driven,
    /// It is the computer's.
    Real,
}

/// How long MAAS takes for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Latency {
    /// No longer than the simulator needs.
    None,
    /// As measured on a real MAAS 3.4.10 with one region process. Needs real speed.
    Real,
}

/// The inventory and speed of a MAAS.
#[derive(Clone, Copy, Debug)]
pub struct Stock {
    /// Machines that can be allocated.
    pub machines: usize,
    /// VMs that fit on its hosts.
    pub vms: usize,
    /// The duration of a deployment, by MAAS's clock.
    pub deploy_seconds: f64,
    /// What drives its clock.
    pub speed: Speed,
    /// How slowly it answers.
    pub latency: Latency,
}

/// A request as observed on the wire.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When it arrived, by the system clock.
    pub at: Timestamp,
    /// Until its answer.
    pub took: Duration,
    /// What it requested, as far as the URL shows.
    pub target: String,
    /// The status of the answer.
    pub status: u16,
}

impl Seen {
    /// When it was answered.
    pub fn ended(&self) -> Timestamp {
        self.at.checked_add(self.took).unwrap_or(self.at)
    }
}

/// A request of the ledger with its times on the wire.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// MAAS's ledger entry.
    pub entry: Entry,
    /// When it arrived.
    pub at: Timestamp,
    /// When it was answered.
    pub ended: Timestamp,
}

impl Exchange {
    /// Whether it changed something.
    pub fn is_mutation(&self) -> bool {
        self.entry.method != "GET" && !self.entry.effects.is_empty()
    }

    /// Whether it polled the event log, which a provider may do continually.
    pub fn is_heartbeat(&self) -> bool {
        self.entry.kind.starts_with("events.")
    }
}

/// When machines changed, by the system clock.
#[derive(Clone, Debug, Default)]
pub struct Moments {
    /// When they last became Deployed.
    pub deployed: BTreeMap<String, Timestamp>,
    /// When they last became Ready (or were deleted, if VMs).
    pub freed: BTreeMap<String, Timestamp>,
}

/// A running MAAS. Stopped on drop.
pub struct Maas {
    control: Control,
    pub endpoint: String,
    /// The DNS server for its names.
    pub name_server: IpAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    moments: Arc<Mutex<Moments>>,
    _running: Running,
}

impl Maas {
    pub fn start(stock: Stock) -> anyhow::Result<Self> {
        anyhow::ensure!(
            stock.latency == Latency::None || stock.speed == Speed::Real,
            "the latency of a real MAAS goes with real speed only: add --speed real"
        );
        let durations = Durations { deploy: stock.deploy_seconds, commission: 10.0, test: 5.0, ..Durations::default() };
        let config = Config {
            durations,
            time: if stock.speed == Speed::Real { TimeMode::Real } else { TimeMode::Driven },
            latency: if stock.latency == Latency::Real { LatencyMode::Real } else { LatencyMode::None },
            ..Config::new(ADMINISTRATOR.parse()?)
        };
        let simulator = Simulator::new(config);
        let control = simulator.control();
        let statements: Vec<Statement> = serde_json::from_value(inventory(stock))?;
        control.arrange(&statements)?;
        let name_server = IpAddr::V4(Ipv4Addr::new(127, 53, rand::random(), rand::random_range(1..255)));
        let (seen, moments) = (Arc::<Mutex<Vec<Seen>>>::default(), Arc::<Mutex<Moments>>::default());
        let (router, followed, clock) = (counted(simulator.router(), seen.clone()), moments.clone(), control.clone());
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.worker_threads(AT_ONCE);
        let places = (SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0), SocketAddr::new(name_server, 53));
        let running = Running::start(simulator.clone(), runtime, places, move |listener| async move {
            tokio::select! {
                _ = serve::serve_router(router, listener) => {}
                () = run_clock(&simulator, &clock, stock.speed, &followed) => {}
            }
        })
        .context("start MAAS, whose name server takes root")?;
        Ok(Self { control, endpoint: running.endpoint.clone(), name_server, seen, moments, _running: running })
    }

    /// What no client of MAAS can do.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Every request since a time, answered or not.
    pub fn seen_since(&self, since: Timestamp) -> Vec<Seen> {
        lock(&self.seen).iter().filter(|seen| seen.at >= since).cloned().collect()
    }

    /// When the last request arrived that was not a poll of the event log.
    pub fn last_request(&self) -> Option<Timestamp> {
        let seen = lock(&self.seen);
        seen.iter().rev().find(|seen| !seen.target.contains("/events/")).map(|seen| seen.at)
    }

    /// The provider's requests that MAAS accepted, with their times on the wire.
    pub fn exchanges(&self) -> Vec<Exchange> {
        let mut by_target: BTreeMap<String, std::collections::VecDeque<Seen>> = BTreeMap::new();
        for seen in lock(&self.seen).iter() {
            by_target.entry(seen.target.clone()).or_default().push_back(seen.clone());
        }
        // Both lists are in the order of answers, so that the first of a target in one is the first in the other.
        // Requests that MAAS did not accept are not in its ledger, and no entry has their status (502).
        let mut exchanges = Vec::new();
        for entry in self.control.ledger(None) {
            let Some(candidates) = by_target.get_mut(&target(&entry.method, &entry.path, &entry.query)) else {
                continue;
            };
            let fits = |seen: &Seen| entry.status.is_none_or(|status| status == seen.status);
            let Some(index) = candidates.iter().position(fits) else { continue };
            let Some(seen) = candidates.remove(index) else { continue };
            if entry.user == USER {
                exchanges.push(Exchange { at: seen.at, ended: seen.ended(), entry });
            }
        }
        exchanges.sort_by_key(|exchange| exchange.at);
        exchanges
    }

    pub fn moments(&self) -> Moments {
        lock(&self.moments).clone()
    }

    /// How many machines the provider owns.
    pub fn taken(&self) -> usize {
        self.owned().len()
    }

    /// The machines that the provider owns, with their statuses.
    pub fn owned(&self) -> BTreeMap<String, String> {
        self.control.with_model(|model| {
            let owned = model.db.machines.iter().filter(|(_, machine)| model.user_name(machine.owner) == USER);
            owned.map(|(id, machine)| (id.clone(), machine.status.name().to_owned())).collect()
        })
    }

    /// The number of DNS records.
    pub fn records(&self) -> usize {
        self.control.with_model(|model| model.db.dns.len())
    }

    /// The number of VMs, known to MAAS or not.
    pub fn vms(&self) -> usize {
        self.control.with_model(|model| model.world.lxds.values().map(|lxd| lxd.instances.len()).sum())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn target(method: &str, path: &str, query: &str) -> String {
    format!("{method} {path}?{query}")
}

/// The server behind a counter.
fn counted(router: Router, seen: Arc<Mutex<Vec<Seen>>>) -> Router {
    Router::new().fallback(move |request: Request<Body>| {
        let (router, seen) = (router.clone(), seen.clone());
        async move {
            let uri = request.uri();
            let target = target(request.method().as_str(), uri.path(), uri.query().unwrap_or_default());
            let (at, began) = (Timestamp::now(), Instant::now());
            let response = match router.oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            let status = response.status().as_u16();
            lock(&seen).push(Seen { at, took: began.elapsed(), target, status });
            response
        }
    })
}

/// Advances the clock, and records when machines change.
async fn run_clock(simulator: &Simulator, control: &Control, speed: Speed, moments: &Mutex<Moments>) {
    // Checked forty times a second, for every machine.
    let mut states: HashMap<String, Status> = HashMap::new();
    let mut last = Instant::now();
    loop {
        tokio::time::sleep(TICK).await;
        if speed == Speed::Driven {
            control.advance(last.elapsed().as_secs_f64() * DRIVEN_SPEED);
        }
        last = Instant::now();
        simulator.tick().await;
        let now = Timestamp::now();
        let mut moments = lock(moments);
        control.with_model(|model| {
            for (id, machine) in &model.db.machines {
                let Some(before) = states.get_mut(id) else {
                    states.insert(id.clone(), machine.status);
                    continue;
                };
                let changed = std::mem::replace(before, machine.status) != machine.status;
                if changed && machine.status == Status::Deployed {
                    moments.deployed.insert(id.clone(), now);
                }
                if changed && machine.status == Status::Ready {
                    moments.freed.insert(id.clone(), now);
                }
            }
            // All existing ones are recorded by now.
            if states.len() > model.db.machines.len() {
                states.retain(|id, status| {
                    let there = model.db.machines.contains_key(id);
                    if !there && *status != Status::Ready {
                        moments.freed.insert(id.clone(), now);
                    }
                    there
                });
            }
        });
    }
}

fn inventory(stock: Stock) -> Value {
    let cidr = "127.20.0.0/16";
    let mut all = vec![
        json!({"user": {"name": USER, "admin": true, "key": API_KEY}}),
        json!({"domain": {"name": DOMAIN, "ttl": 5}}),
        json!({"subnet": {"cidr": cidr, "dhcp": true}}),
        json!({"ip_range": {"type": "dynamic", "start_ip": "127.20.250.1", "end_ip": "127.20.250.250", "subnet": cidr}}),
        json!({"image": {"name": IMAGE}}),
    ];
    all.extend(ZONES.map(|zone| json!({"zone": {"name": zone}})));
    for index in 0..stock.machines {
        let zone = ZONES[index % ZONES.len()];
        let hostname = format!("m{index:05}");
        all.push(json!({"machine": {"hostname": hostname, "zone": zone, "cpu_count": 8, "memory": 16384}}));
    }
    for index in 0..stock.vms.div_ceil(VMS_PER_HOST) {
        let (name, zone) = (format!("host{index:04}"), ZONES[index % ZONES.len()]);
        let address = format!("10.99.{}.{}:8443", index / 250, index % 250 + 1);
        let disks = json!([{"name": "default", "driver": "dir", "total": 1_000_000_000_000_u64}]);
        let size = json!({"cores": 64, "memory": VMS_PER_HOST * 2304});
        all.push(json!({"machine": {"hostname": name, "zone": zone, "status": "Deployed", "owner": "admin",
                                    "cpu_count": size["cores"], "memory": size["memory"]}}));
        all.push(json!({"lxd": {"address": address, "cores": size["cores"], "memory": size["memory"],
                                "storage_pools": disks, "host": name}}));
        all.push(json!({"vm_host": {"name": name, "power_address": address, "project": "maas", "zone": zone,
                                    "pool": "default", "counted": true}}));
    }
    json!(all)
}
