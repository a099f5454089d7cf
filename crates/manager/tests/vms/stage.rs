//! One cluster, three LXD hosts in three zones, and VM machines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use capmaas_core::plan::Requeue;
use capmaas_manager::backoff::Backoff;
use capmaas_manager::clock::{Clock, Driver};
use capmaas_manager::identity::{Connect, Credentials, Identities, MemoryCredentialCopies, Settings};
use capmaas_manager::kubernetes::{Key, MemoryKubernetes};
use capmaas_manager::lease::Fence;
use capmaas_manager::lxd_hosts::LxdHosts;
use capmaas_manager::machine::{Context, reconcile};
use capmaas_manager::metrics::Metrics;
use jiff::Timestamp;
use maas_client::transport::{BoxError, Transport, in_process};
use maas_client::{Client, Environment, RetryPolicy};
use maas_sim::{Config, Simulator};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::crash::{Crash, Mortal};
use crate::lxd_host::lxd_host;

pub(crate) const ADMIN: &str = "consumer:token:CANARYsecret";
/// The endpoint of the second MAAS.
pub(crate) const ELSEWHERE: &str = "http://other.test:5240/MAAS";
/// The key of a user who cannot see the machines of others.
pub(crate) const BOB: &str = "cb:tb:CANARYbob";
const START: i64 = 1_794_772_800;
/// The number of passes after which a machine must have reached its goal.
const MOST_PASSES: usize = 120;

/// MAAS only refuses old timestamps, and tests let hours pass.
struct Ahead;

impl Environment for Ahead {
    fn unix_seconds(&self) -> u64 {
        maas_client::SystemEnvironment.unix_seconds() + 100_000
    }

    fn random(&self) -> u128 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        u128::from(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

pub(crate) struct Stage {
    pub(crate) port: MemoryKubernetes,
    pub(crate) maas: Simulator,
    /// Another MAAS, at [`ELSEWHERE`].
    pub(crate) other: Simulator,
    pub(crate) context: Context,
    driver: Driver,
    pub(crate) clock: Clock,
    keeper: Arc<MemoryCredentialCopies>,
    pub(crate) crash: Crash,
}

fn context(
    clock: &Clock,
    port: &MemoryKubernetes,
    (maas, other): (&Simulator, &Simulator),
    keeper: &Arc<MemoryCredentialCopies>,
    crash: &Crash,
) -> Context {
    let (here, elsewhere) = (maas.router(), other.router());
    let mortal = crash.clone();
    let connect: Connect = Arc::new(move |credentials: &Credentials| {
        let router = if credentials.endpoint == ELSEWHERE { &elsewhere } else { &here };
        let inner = in_process(router.clone(), 1 << 20);
        let transport = Transport::new(tower::service_fn(move |request: http::Request<bytes::Bytes>| {
            let inner = inner.clone();
            async move {
                let answer = inner.oneshot(request).await?;
                if answer.extensions().get::<maas_sim::ConnectionReset>().is_some() {
                    return Err(BoxError::from("connection reset by peer"));
                }
                Ok(answer)
            }
        }));
        Client::builder(&credentials.endpoint, credentials.key.expose_secret())
            .transport(mortal.on_the_way(transport))
            .environment(Ahead)
            .retry(RetryPolicy::never())
            .build()
    });
    let kubernetes = Arc::new(Mortal { port: port.clone(), crash: crash.clone() });
    let settings = Settings { namespace: "capmaas-system".into(), ..Settings::default() };
    let identities = Identities::new(kubernetes.clone(), keeper.clone(), clock.clone(), settings, connect);
    Context {
        kubernetes,
        identities,
        clock: clock.clone(),
        fence: Fence::open(),
        metrics: Metrics::new(),
        lxd_hosts: LxdHosts::default(),
        backoff: Backoff::default(),
    }
}

impl Stage {
    /// Hosts of 8 cores and 16 GB, one in each of three zones.
    pub(crate) fn new() -> Self {
        let stage = Self::bare();
        for number in 1..=3 {
            stage.host(number, 8, 16384);
        }
        stage
    }

    /// No host at all.
    pub(crate) fn bare() -> Self {
        let (clock, driver) = Clock::driven(Timestamp::from_second(START).unwrap());
        let maas = Simulator::new(Config::driven(ADMIN.parse().unwrap()));
        let other = Simulator::new(Config::driven(ADMIN.parse().unwrap()));
        let port = MemoryKubernetes::new(clock.clone());
        let keeper = Arc::new(MemoryCredentialCopies::default());
        let crash = Crash::default();
        let context = context(&clock, &port, (&maas, &other), &keeper, &crash);
        let stage = Self { port, maas, other, context, driver, clock, keeper, crash };
        stage.arrange(json!([
            {"user": {"name": "bob", "admin": false, "key": BOB}},
            {"fabric": {"name": "fabric-0", "id": 0}}, {"vlan": {"fabric": "fabric-0", "vid": 0, "dhcp_on": true}},
            {"subnet": {"cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.1"}},
            {"ip_range": {"start_ip": "10.0.0.200", "end_ip": "10.0.0.250", "type": "dynamic"}},
            {"image": {"name": "ubuntu/jammy"}},
        ]));
        stage.cluster();
        stage
    }

    pub(crate) fn host(&self, number: u32, cores: u32, memory: u32) {
        self.host_in(number, &format!("az{number}"), (cores, memory));
    }

    /// A host in a zone, with this many cores and this much memory.
    pub(crate) fn host_in(&self, number: u32, zone: &str, size: (u32, u32)) {
        self.arrange(lxd_host(number, zone, size));
    }

    pub(crate) fn arrange(&self, statements: Value) {
        self.maas.control().arrange(&serde_json::from_value::<Vec<_>>(statements).unwrap()).unwrap();
    }

    pub(crate) fn fault(&self, rule: Value) {
        self.maas.control().add_fault(serde_json::from_value(rule).unwrap());
    }

    fn cluster(&self) {
        let in_system = |name: &str| json!({ "name": name, "namespace": "capmaas-system" });
        self.create(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": in_system("maas-credentials"), "stringData": { "apiKey": ADMIN } }));
        let data = json!({ "maasEndpoint": "http://maas.test:5240/MAAS" });
        self.create(
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": in_system("capmaas-config"), "data": data }),
        );
        let cluster = self.create(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": { "name": "c1", "namespace": "default" },
            "spec": { "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MaasCluster", "name": "c1" } },
        }));
        let key = Key::new("default", "c1");
        let status = json!({ "initialization": { "infrastructureProvisioned": true } });
        self.port.set_status("Cluster", &key, status).unwrap();
        self.create(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster",
            "metadata": {
                "name": "c1", "namespace": "default", "annotations": { "spectrocloud.com/custom-dns-provided": "" },
                "labels": { "cluster.x-k8s.io/cluster-name": "c1" },
                "ownerReferences": [{
                    "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1",
                    "uid": cluster["metadata"]["uid"],
                }],
            },
            "spec": { "dnsDomain": "maas", "controlPlaneEndpoint": { "host": "10.0.0.250", "port": 6443 } },
        }));
    }

    pub(crate) fn create(&self, object: Value) -> Value {
        self.port.create(object).unwrap()
    }

    /// A MaasMachine with this metadata for the machine of a host, whose stamp that carries in MAAS.
    pub(crate) fn host_object(&self, host: &str, mut metadata: Value) {
        let (id, zone) =
            (self.maas.control().with_model(|model| model.db.by_hostname[host].clone()), host.replace("host", "az"));
        metadata["name"] = json!(host);
        metadata["namespace"] = json!("default");
        let made = self.create(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine", "metadata": metadata,
            "spec": { "image": "ubuntu/jammy", "minCPU": 1, "minMemory": 1024, "providerID": format!("maas://{zone}/{id}") },
        }));
        let uid = made["metadata"]["uid"].as_str().unwrap();
        let stamp = format!("capmaas-{uid}");
        let written_for = json!({ "namespace": "default", "name": host, "uid": uid });
        let journal = json!({ "key": stamp, "machine": id, "writtenFor": written_for }).to_string();
        let annotations = json!({ "infrastructure.cluster.x-k8s.io/maas-record": journal });
        let patch = json!({ "metadata": { "annotations": annotations } });
        self.port.edit("MaasMachine", &Key::new("default", host), &patch).unwrap();
        let annotations = json!({ "capmaas-key": stamp, "capmaas-machine": format!("default/{host}") });
        self.arrange(json!([{ "machine": { "hostname": host, "annotations": annotations } }]));
    }

    /// A control plane Machine, its bootstrap data and its MaasMachine, with these fields in the spec.
    pub(crate) fn machine(&self, name: &str, spec: Value) {
        self.create(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": "default" },
            "stringData": { "value": "#cloud-config\n# CANARYbootstrap" },
        }));
        let made = self.create(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": { "name": name, "namespace": "default" },
            "spec": {
                "clusterName": "c1", "bootstrap": { "dataSecretName": name },
                "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MaasMachine", "name": name },
            },
        }));
        let mut asked = json!({ "image": "ubuntu/jammy", "minCPU": 2, "minMemory": 2048, "minDiskSize": 20 });
        asked.as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap_or_default());
        self.create(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
            "metadata": {
                "name": name, "namespace": "default",
                "labels": { "cluster.x-k8s.io/cluster-name": "c1", "cluster.x-k8s.io/control-plane": "" },
                "ownerReferences": [{
                    "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name, "uid": made["metadata"]["uid"],
                }],
            },
            "spec": asked,
        }));
    }

    pub(crate) fn vm(&self, name: &str) {
        self.machine(name, json!({ "provisioningMode": "lxd" }));
    }

    pub(crate) async fn pass(&self, name: &str) -> Requeue {
        reconcile(&self.context, &Key::new("default", name)).await.unwrap()
    }

    /// One pass; returns whether the manager survived it.
    pub(crate) async fn lives(&self, name: &str) -> bool {
        tokio::select! {
            biased;
            _ = self.pass(name) => true,
            () = self.crash.happens() => false,
        }
    }

    /// The manager dies: everything that it kept in memory is gone.
    pub(crate) fn restart(&mut self) {
        let both = (&self.maas, &self.other);
        self.context = context(&self.clock, &self.port, both, &self.keeper, &self.crash);
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.driver.advance(i64::try_from(seconds).unwrap() * 1000);
        self.maas.advance(Duration::from_secs(seconds));
        self.other.advance(Duration::from_secs(seconds));
    }

    /// Runs passes over these machines in turn, with the requested delays, until `reached` holds.
    pub(crate) async fn until(&self, names: &[&str], what: &str, mut reached: impl FnMut(&Self) -> bool) {
        for _ in 0..MOST_PASSES {
            if reached(self) {
                return;
            }
            let mut wait = 30;
            for name in names {
                if let Requeue::After(asked) = self.pass(name).await {
                    wait = wait.min(asked.as_secs().max(1));
                }
            }
            self.advance(wait);
        }
        let objects: Vec<Value> = names.iter().map(|name| self.object(name)).collect();
        panic!("{what} never happens: {objects:#?}\n{:#?}", self.mutations());
    }

    pub(crate) async fn until_ready(&self, names: &[&str]) {
        self.until(names, "ready", |stage| names.iter().all(|name| stage.object(name)["status"]["ready"] == true))
            .await;
    }

    pub(crate) async fn until_gone(&self, names: &[&str]) {
        for name in names {
            self.port.delete("MaasMachine", &Key::new("default", *name));
        }
        self.until(names, "gone", |stage| names.iter().all(|name| stage.object(name).is_null())).await;
    }

    pub(crate) fn object(&self, name: &str) -> Value {
        self.port.object("MaasMachine", &Key::new("default", name)).unwrap_or(Value::Null)
    }

    pub(crate) fn condition(&self, name: &str, type_: &str) -> Value {
        let conditions = self.object(name)["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == type_).unwrap_or(Value::Null)
    }

    pub(crate) fn reason(&self, name: &str, type_: &str) -> String {
        self.condition(name, type_)["reason"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn record(&self, name: &str) -> Value {
        let text = self.object(name)["metadata"]["annotations"]["infrastructure.cluster.x-k8s.io/maas-record"].clone();
        serde_json::from_str(text.as_str().unwrap_or("null")).unwrap()
    }

    /// Gives the manager another key.
    pub(crate) fn use_key(&self, key: &str) {
        let secret = Key::new("capmaas-system", "maas-credentials");
        self.port.edit("Secret", &secret, &json!({ "data": null, "stringData": { "apiKey": key } })).unwrap();
    }

    /// Has the manager use the MAAS at another address.
    pub(crate) fn use_endpoint(&self, endpoint: &str) {
        let config = Key::new("capmaas-system", "capmaas-config");
        self.port.edit("ConfigMap", &config, &json!({ "data": { "maasEndpoint": endpoint } })).unwrap();
    }

    /// Passes over one machine, this many seconds apart, as long as it exists.
    pub(crate) async fn some_passes(&self, key: &Key, times: usize, seconds: u64) {
        for _ in 0..times {
            if self.port.object("MaasMachine", key).is_none() {
                return;
            }
            reconcile(&self.context, key).await.unwrap();
            self.advance(seconds);
        }
    }

    /// Powers the host of a VM off, with its LXD, or on again.
    pub(crate) fn power_of_host(&self, host: &str, power: &str) {
        let address = crate::lxd_host::address(host.trim_start_matches("host").parse().unwrap());
        self.arrange(json!([
            {"machine": {"hostname": host, "power": power}}, {"lxd": {"address": address, "reachable": power == "on"}},
        ]));
    }

    /// The debts of the MaasCluster.
    pub(crate) fn debts(&self) -> String {
        let object = self.port.object("MaasCluster", &Key::new("default", "c1")).unwrap();
        let owed = &object["metadata"]["annotations"]["infrastructure.cluster.x-k8s.io/vm-debts"];
        owed.as_str().unwrap_or_default().to_owned()
    }

    /// Runs this many passes over the MaasCluster, a minute apart.
    pub(crate) async fn cluster_passes(&self, times: usize) {
        self.cluster_passes_every(60, times).await;
    }

    /// The same with this many seconds in between.
    pub(crate) async fn cluster_passes_every(&self, seconds: u64, times: usize) {
        let context = capmaas_manager::cluster::Context {
            kubernetes: self.context.kubernetes.clone(),
            identities: self.context.identities.clone(),
            clock: self.clock.clone(),
            fence: Fence::open(),
            metrics: Metrics::new(),
            contract: capmaas_core::cluster::observed::Contract::List,
            memory: capmaas_manager::cluster::Memory::default(),
            agent_image: None,
            reports: self.context.lxd_hosts.reports.clone(),
        };
        for _ in 0..times {
            capmaas_manager::cluster::reconcile(&context, &Key::new("default", "c1")).await.unwrap();
            self.advance(seconds);
        }
    }

    /// Requests that changed something, by kind.
    pub(crate) fn mutations(&self) -> Vec<String> {
        let ledger = self.maas.control().ledger(None);
        ledger.iter().filter(|entry| !entry.effects.is_empty()).map(|entry| entry.kind.clone()).collect()
    }

    /// Names of the VMs that LXD has.
    pub(crate) fn in_lxd(&self) -> Vec<String> {
        self.maas.control().with_model(|model| {
            let daemons = model.world.lxds.values();
            daemons.flat_map(|lxd| lxd.instances.keys().map(|(_, name)| name.clone())).collect()
        })
    }

    /// Names of the VMs that MAAS has.
    pub(crate) fn in_maas(&self) -> Vec<String> {
        let hosts = ["host1", "host2", "host3", "host4"];
        self.maas.control().with_model(|model| {
            let names = model.db.machines.values().map(|machine| machine.hostname.clone());
            names.filter(|name| !hosts.contains(&name.as_str())).collect()
        })
    }
}
