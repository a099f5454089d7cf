//! A MAAS with twelve machines in three zones, on sockets of this machine, whose machines boot.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use capmaas_testbed::{
    BootedMachine, CertificateAuthority, KubernetesVersion, NodePlayerOptions, Role, WorkloadPlayer,
};
use maas_sim::config::{Config, Durations};
use maas_sim::hardware::Hardware;
use maas_sim::ledger::Entry;
use maas_sim::model::db::AllocType;
use maas_sim::model::{Status, statement::Statement};
use maas_sim::{Control, Simulator, http::render::machine::addresses, serve, serve::Running};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::maas_version;

/// The administrator, whose key no manager uses.
const ADMINISTRATOR: &str = "hand:hand:hand-secret";
/// The manager's user.
pub const USER: &str = "capmaas";
/// Unique text, so that a test can search for its last part everywhere.
pub const API_KEY: &str = "capmaasconsumer:capmaastoken:CANARYmaaskeysecret";
/// The domain in which clusters get their DNS names.
pub const DOMAIN: &str = "k8s.example";
/// The zones, four machines each.
pub const ZONES: [&str; 3] = ["az1", "az2", "az3"];
/// Images are named after the Kubernetes version they contain.
const IMAGES: [&str; 4] = ["v1.35.8", "v1.36.4", "v1.33.12", "v1.34.11"];
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The image with a kubelet of this version.
pub fn image(version: &str) -> String {
    format!("custom/k8s-{version}")
}

/// The network of a MAAS and of its machines.
pub struct Network {
    /// The subnet of the machines.
    pub cidr: String,
    pub gateway: Option<Ipv4Addr>,
    /// The first and the last address of the DHCP range.
    pub dynamic: (Ipv4Addr, Ipv4Addr),
    /// Where the API is served.
    pub listen: SocketAddr,
    /// Where DNS is served, on port 53.
    pub name_server: IpAddr,
    /// The hardware of the machines; without it they are simulated.
    pub hardware: Option<Arc<dyn Hardware>>,
}

/// A running MAAS. Stopped on drop.
pub struct Maas {
    control: Control,
    /// The URL of its API, as a user writes it.
    pub endpoint: String,
    /// The DNS server for its names.
    pub name_server: IpAddr,
    orders: mpsc::UnboundedSender<Order>,
    trouble: Arc<Mutex<BTreeMap<String, String>>>,
    _running: Running,
}

/// Requests to the thread that simulates the machines.
enum Order {
    Expect(KubernetesVersion, Option<NodePlayerOptions>, oneshot::Sender<anyhow::Result<Expected>>),
    Nodes(u16, oneshot::Sender<BTreeMap<String, Role>>),
    Config(u16, oneshot::Sender<Option<kube::Config>>),
    EverWritten(u16, oneshot::Sender<anyhow::Result<Option<String>>>),
    Accept(Arc<CertificateAuthority>),
}

/// A workload cluster that machines may join.
pub struct Expected {
    /// The port of its API server, which tells clusters apart.
    pub port: u16,
    /// Certificate and key of its certificate authority, as PEM.
    pub authority: (String, String),
}

/// A machine, seen from outside.
#[derive(Clone, Debug)]
pub struct MachineFacts {
    pub system_id: String,
    pub hostname: String,
    /// The status name that MAAS shows.
    pub status: String,
    pub owner: Option<String>,
    pub zone: String,
    /// Whether it is really powered on.
    pub on: bool,
    pub addresses: Vec<IpAddr>,
    /// The deployed series.
    pub series: String,
    user_data: Option<String>,
}

impl Maas {
    pub fn start() -> anyhow::Result<Self> {
        // Tests may run concurrently, so each gets its own addresses.
        let network: u8 = rand::random_range(20..50);
        Self::start_with(Network {
            cidr: format!("127.{network}.0.0/16"),
            gateway: None,
            dynamic: (Ipv4Addr::new(127, network, 200, 1), Ipv4Addr::new(127, network, 200, 250)),
            listen: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0),
            name_server: IpAddr::V4(Ipv4Addr::new(127, 53, rand::random(), rand::random_range(1..255))),
            hardware: None,
        })
    }

    /// Starts it in a network, with real hardware or simulated machines.
    pub fn start_with(network: Network) -> anyhow::Result<Self> {
        let key = ADMINISTRATOR.parse().map_err(anyhow::Error::new)?;
        let version = maas_version::wanted()?;
        let config = Config { version, durations: Durations::quick(), ..Config::new(key) };
        let (name_server, address, played) = (network.name_server, network.listen, network.hardware.is_none());
        let inventory: Vec<Statement> = serde_json::from_value(inventory(&network))?;
        let simulator = match network.hardware {
            Some(hardware) => Simulator::with_hardware(config, hardware),
            None => Simulator::new(config),
        };
        let control = simulator.control();
        control.arrange(&inventory)?;
        let (orders, received) = mpsc::unbounded_channel();
        let trouble = Arc::<Mutex<BTreeMap<String, String>>>::default();
        let machines = Machines {
            control: control.clone(),
            clusters: Vec::new(),
            begun: Vec::new(),
            accepted: None,
            trouble: trouble.clone(),
            played,
        };
        let runtime = tokio::runtime::Builder::new_current_thread();
        let places = (address, SocketAddr::new(name_server, 53));
        let running = Running::start(simulator.clone(), runtime, places, |listener| async move {
            tokio::select! {
                _ = serve::serve(simulator, listener) => {}
                () = machines.play(received) => {}
            }
        })
        .context("start MAAS, whose name server takes root")?;
        Ok(Self { control, endpoint: running.endpoint.clone(), name_server, orders, trouble, _running: running })
    }

    /// What no client of MAAS can do: set its state, inject failures, inspect its internals.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Puts it into a state (lab/maas-sim/ARRANGE.md).
    pub fn arrange(&self, statements: Value) -> anyhow::Result<()> {
        let statements: Vec<Statement> = serde_json::from_value(statements)?;
        self.control.arrange(&statements)?;
        Ok(())
    }

    pub fn machines(&self) -> Vec<MachineFacts> {
        machines(&self.control)
    }

    /// The machines owned by a manager. The administrator's machines are LXD hosts.
    pub fn taken(&self) -> Vec<MachineFacts> {
        let somebodys = |machine: &MachineFacts| machine.owner.as_deref().is_some_and(|owner| owner != "admin");
        self.machines().into_iter().filter(somebodys).collect()
    }

    /// The manager's requests that changed something.
    pub fn mutations(&self) -> Vec<Entry> {
        let changed = |entry: &Entry| entry.user != "admin" && entry.method != "GET" && !entry.effects.is_empty();
        self.control.ledger(None).into_iter().filter(changed).collect()
    }

    /// The number of requests of a kind that changed something.
    pub fn effective(&self, kind: &str) -> usize {
        self.control.effective(kind)
    }

    /// The names under [`DOMAIN`] that MAAS has DNS records for, with their addresses.
    pub fn records(&self) -> BTreeMap<String, Vec<IpAddr>> {
        self.control.with_model(|model| {
            let ips = |ids: &mut dyn Iterator<Item = &i64>| -> Vec<IpAddr> {
                let mut found: Vec<IpAddr> =
                    ids.filter_map(|id| model.db.addresses.get(id)).filter_map(|row| row.ip).collect();
                found.sort();
                found
            };
            model.db.dns.values().map(|dns| (model.dns_fqdn(dns), ips(&mut dns.addresses.iter()))).collect()
        })
    }

    /// What a deleted cluster has left behind, as sentences: owned or running machines, VMs, DNS records, reserved
    /// addresses.
    pub fn leftovers(&self) -> Vec<String> {
        let mut left: Vec<String> = Vec::new();
        for machine in self.machines().into_iter().filter(|machine| machine.owner.as_deref() != Some("admin")) {
            if machine.owner.is_some() || machine.status != Status::Ready.name() || machine.on {
                left.push(format!(
                    "{} is {}, owner {:?}, on: {}",
                    machine.hostname, machine.status, machine.owner, machine.on
                ));
            }
        }
        left.extend(self.vms().into_iter().map(|vm| format!("the VM {} on {}", vm.hostname, vm.host)));
        left.extend(self.instances().into_iter().map(|name| format!("the instance {name} in LXD")));
        left.extend(self.records().into_iter().map(|(name, addresses)| format!("{name} leads to {addresses:?}")));
        left.extend(self.control.with_model(|model| {
            let reserved = model.db.addresses.values().filter(|row| row.alloc == AllocType::UserReserved);
            reserved.map(|row| format!("the address {:?} is reserved", row.ip)).collect::<Vec<_>>()
        }));
        left
    }

    /// Prepares a workload cluster for machines to join.
    pub async fn expect_cluster(&self, kubernetes: KubernetesVersion) -> anyhow::Result<Expected> {
        self.ask(|reply| Order::Expect(kubernetes, None, reply)).await?
    }

    /// The same with nodes that run Pods.
    pub async fn expect_cluster_with_pods(
        &self,
        kubernetes: KubernetesVersion,
        pods: NodePlayerOptions,
    ) -> anyhow::Result<Expected> {
        self.ask(|reply| Order::Expect(kubernetes, Some(pods), reply)).await?
    }

    /// From now on machines can join a cluster that was not prepared: its first control-plane machine creates it, and
    /// it ends with its last machine. All such clusters trust one authority, which their owner passes to Cluster API.
    pub fn accept_clusters(&self, authority: Arc<CertificateAuthority>) -> anyhow::Result<()> {
        let accepted = self.orders.send(Order::Accept(authority));
        accepted.map_err(|_| anyhow::anyhow!("the thread that plays the machines has ended"))
    }

    /// The running machines that have joined the cluster on this port.
    pub async fn nodes(&self, port: u16) -> anyhow::Result<BTreeMap<String, Role>> {
        self.ask(|reply| Order::Nodes(port, reply)).await
    }

    /// A client of the workload cluster on this port.
    pub async fn workload(&self, port: u16) -> anyhow::Result<kube::Client> {
        let config = self.ask(|reply| Order::Config(port, reply)).await?;
        let config = config.context("no control-plane machine of this cluster has booted yet")?;
        Ok(kube::Client::try_from(config)?)
    }

    /// All text that was ever written to the API server of the workload cluster on this port.
    pub async fn ever_written(&self, port: u16) -> anyhow::Result<String> {
        let written = self.ask(|reply| Order::EverWritten(port, reply)).await??;
        written.context("no control-plane machine of this cluster has booted yet")
    }

    /// Why machines have not joined, keyed by machine name.
    pub fn trouble(&self) -> BTreeMap<String, String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn ask<T>(&self, order: impl FnOnce(oneshot::Sender<T>) -> Order) -> anyhow::Result<T> {
        let (reply, answer) = oneshot::channel();
        if self.orders.send(order(reply)).is_err() {
            bail!("the thread that plays the machines has ended");
        }
        answer.await.context("the thread that plays the machines did not answer")
    }
}

fn inventory(network: &Network) -> Value {
    let Network { cidr, gateway, dynamic: (start, end), name_server, .. } = network;
    let name_servers = gateway.map(|_| vec![name_server]);
    let mut all = vec![
        json!({"user": {"name": USER, "admin": true, "key": API_KEY}}),
        json!({"domain": {"name": DOMAIN, "ttl": 5}}),
        json!({"subnet": {"cidr": cidr, "gateway_ip": gateway, "dns_servers": name_servers.unwrap_or_default(), "dhcp": true}}),
        json!({"ip_range": {"type": "dynamic", "start_ip": start, "end_ip": end, "subnet": cidr}}),
    ];
    all.extend(ZONES.map(|zone| json!({"zone": {"name": zone}})));
    all.extend(IMAGES.map(|version| json!({"image": {"name": image(version)}})));
    for index in 0..12 {
        let zone = ZONES[index % ZONES.len()];
        let hostname = format!("m{:02}", index + 1);
        all.push(json!({"machine": {"hostname": hostname, "zone": zone, "cpu_count": 8, "memory": 16384}}));
    }
    json!(all)
}

fn machines(control: &Control) -> Vec<MachineFacts> {
    control.with_model(|model| {
        let facts = |(id, machine): (&String, &maas_sim::model::db::Machine)| MachineFacts {
            system_id: id.clone(),
            hostname: machine.hostname.clone(),
            status: machine.status.name().to_owned(),
            owner: machine.owner.map(|owner| model.user_name(Some(owner)).to_owned()),
            zone: model.db.zones.get(&machine.zone).map(|zone| zone.name.clone()).unwrap_or_default(),
            on: model.real_power(id),
            addresses: addresses(model, machine).iter().filter_map(|text| text.parse().ok()).collect(),
            series: machine.distro_series.clone(),
            user_data: model.world.bodies.get(id).and_then(|body| body.user_data.clone()),
        };
        model.db.machines.iter().map(facts).collect()
    })
}

/// The machines of this MAAS as they boot.
struct Machines {
    control: Control,
    /// Clusters that a test prepared.
    clusters: Vec<WorkloadPlayer>,
    /// Clusters created by their first machine.
    begun: Vec<WorkloadPlayer>,
    /// The authority for clusters that were not prepared, if such clusters are accepted.
    accepted: Option<Arc<CertificateAuthority>>,
    trouble: Arc<Mutex<BTreeMap<String, String>>>,
    /// Whether the machines are simulated, without hardware.
    played: bool,
}

impl Machines {
    async fn play(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => self.follow(order),
                    None => return,
                },
                () = tokio::time::sleep(LOOK_EVERY), if self.played => self.look().await,
            }
        }
    }

    fn follow(&mut self, order: Order) {
        // The caller may have given up waiting.
        match order {
            Order::Expect(kubernetes, pods, reply) => {
                let expected = WorkloadPlayer::new(kubernetes).map_err(anyhow::Error::new).map(|cluster| {
                    let cluster = match pods {
                        Some(pods) => cluster.running_pods(pods),
                        None => cluster,
                    };
                    let authority: &CertificateAuthority = cluster.certificate_authority();
                    let pair = (authority.certificate_pem().to_owned(), authority.key_pem().to_owned());
                    let expected = Expected { port: cluster.port(), authority: pair };
                    self.clusters.push(cluster);
                    expected
                });
                let _ = reply.send(expected);
            }
            Order::Nodes(port, reply) => {
                let _ = reply.send(self.cluster(port).map(WorkloadPlayer::joined).unwrap_or_default());
            }
            Order::Config(port, reply) => {
                let _ = reply.send(self.cluster(port).and_then(WorkloadPlayer::config));
            }
            Order::Accept(authority) => self.accepted = Some(authority),
            Order::EverWritten(port, reply) => {
                let written = self.cluster(port).map(WorkloadPlayer::ever_written).transpose();
                let _ = reply.send(written.map(Option::flatten).map_err(anyhow::Error::new));
            }
        }
    }

    fn cluster(&self, port: u16) -> Option<&WorkloadPlayer> {
        self.clusters.iter().find(|cluster| cluster.port() == port)
    }

    async fn look(&mut self) {
        for machine in machines(&self.control) {
            let runs = machine.status == Status::Deployed.name() && machine.on;
            let outcome = if runs { self.boot(&machine).await } else { self.switch_off(&machine).await };
            let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
            match outcome {
                Ok(()) => trouble.remove(&machine.hostname),
                Err(error) => trouble.insert(machine.hostname, format!("{error:#}")),
            };
        }
        for cluster in self.begun.extract_if(.., |cluster| cluster.joined().is_empty()) {
            cluster.stop().await;
        }
    }

    async fn boot(&mut self, machine: &MachineFacts) -> anyhow::Result<()> {
        if self.clusters.iter().chain(&self.begun).any(|cluster| cluster.joined().contains_key(&machine.hostname)) {
            return Ok(());
        }
        let Some(user_data) = &machine.user_data else { bail!("deployed without user data") };
        let user_data = String::from_utf8(BASE64_STANDARD.decode(user_data.trim())?)?;
        let known = self.clusters.iter().chain(&self.begun).any(|cluster| cluster.is_for(&user_data));
        if let (false, Some(authority)) = (known, &self.accepted) {
            self.begun.extend(WorkloadPlayer::begun_by(KubernetesVersion::V1_36, authority.clone(), &user_data));
        }
        let mut clusters = self.clusters.iter_mut().chain(&mut self.begun);
        let Some(cluster) = clusters.find(|cluster| cluster.is_for(&user_data)) else {
            bail!("its user data is for no cluster of this test:\n{user_data}");
        };
        let (_, kubelet) = machine.series.split_once("k8s-").unwrap_or(("", IMAGES[0]));
        let booted = BootedMachine {
            hostname: machine.hostname.clone(),
            addresses: machine.addresses.clone(),
            user_data,
            kubelet: kubelet.to_owned(),
        };
        cluster.boot(&booted).await?;
        Ok(())
    }

    async fn switch_off(&mut self, machine: &MachineFacts) -> anyhow::Result<()> {
        for cluster in self.clusters.iter_mut().chain(&mut self.begun) {
            cluster.switch_off(&machine.hostname).await?;
        }
        Ok(())
    }
}
