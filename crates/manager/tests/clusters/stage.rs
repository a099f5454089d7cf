//! One MaasCluster and its dependencies.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use capmaas_core::cluster::observed::Contract;
use capmaas_core::plan::Requeue;
use capmaas_manager::backoff::Backoff;
use capmaas_manager::clock::{Clock, Driver};
use capmaas_manager::cluster::{Context, Memory, reconcile};
use capmaas_manager::identity::{
    Connect, Credentials, EnvironmentCredentials, Identities, MemoryCredentialCopies, Settings,
};
use capmaas_manager::kubernetes::{Key, MemoryKubernetes};
use capmaas_manager::lease::Fence;
use capmaas_manager::lxd_hosts::{LxdHosts, Reports};
use capmaas_manager::machine;
use capmaas_manager::metrics::Metrics;
use jiff::Timestamp;
use maas_client::transport::{BoxError, Transport, in_process};
use maas_client::{Client, RetryPolicy};
use maas_sim::{Config, Simulator};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::crash::{Crash, Mortal};

pub(crate) const ADMIN: &str = "consumer:token:CANARYadmin";
pub(crate) const CAROL: &str = "cc:tc:CANARYcarol";
pub(crate) const ALICE: &str = "ck:tk:CANARYalice";
const START: i64 = 1_794_772_800;
/// The number of passes after which a cluster must have settled.
const MOST_PASSES: usize = 30;

type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

pub(crate) struct Stage {
    pub(crate) port: MemoryKubernetes,
    pub(crate) maas: Simulator,
    pub(crate) driver: Driver,
    pub(crate) context: Context,
    pub(crate) identities: Identities,
    pub(crate) crash: Crash,
    keeper: Arc<MemoryCredentialCopies>,
    /// Runs once, after MAAS has created a DNS record and before its answer arrives.
    pub(crate) after_create: Hook,
    /// The answer to the next creation of a DNS record is lost.
    pub(crate) lose_answer: Arc<Mutex<bool>>,
}

pub(crate) fn key() -> Key {
    Key::new("default", "c1")
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(Contract::List)
    }

    /// Another management cluster with the same MAAS.
    pub(crate) fn beside(other: &Self) -> Self {
        Self::on(other.maas.clone(), Contract::List)
    }

    /// With this version of MAAS.
    pub(crate) fn of_version(version: &str) -> Self {
        Self::of(Config { version: version.parse().unwrap(), ..Config::driven(ADMIN.parse().unwrap()) }, Contract::List)
    }

    pub(crate) fn with(contract: Contract) -> Self {
        Self::of(Config::driven(ADMIN.parse().unwrap()), contract)
    }

    fn of(config: Config, contract: Contract) -> Self {
        let maas = Simulator::new(config);
        let stage_two = json!([
            {"user": {"name": "carol", "admin": true, "key": CAROL}},
            {"user": {"name": "alice", "admin": false, "key": ALICE}},
            {"zone": {"name": "az1"}}, {"zone": {"name": "az2"}}, {"zone": {"name": "empty"}},
            {"domain": {"name": "k8s.example"}},
            {"fabric": {"name": "fabric-0", "id": 0}}, {"vlan": {"fabric": "fabric-0", "vid": 0, "dhcp_on": true}},
            {"subnet": {"cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.1"}},
            {"ip_range": {"start_ip": "10.0.0.200", "end_ip": "10.0.0.250", "type": "dynamic"}},
        ]);
        maas.control().arrange(&serde_json::from_value::<Vec<_>>(stage_two).unwrap()).unwrap();
        Self::on(maas, contract)
    }

    fn on(maas: Simulator, contract: Contract) -> Self {
        let start = Timestamp::from_second(START).unwrap();
        let (clock, driver) = Clock::driven(start);
        let port = MemoryKubernetes::new(clock.clone());
        let (after_create, lose_answer) = (Hook::default(), Arc::new(Mutex::new(false)));
        let crash = Crash::default();
        let keeper = Arc::new(MemoryCredentialCopies::default());
        let kubernetes = Arc::new(Mortal { port: port.clone(), crash: crash.clone() });
        let connect = connect(&maas, &after_create, &lose_answer, &crash);
        let identities = Identities::new(kubernetes.clone(), keeper.clone(), clock.clone(), settings(), connect);
        let context = Context {
            kubernetes,
            identities: identities.clone(),
            clock,
            fence: Fence::open(),
            metrics: Metrics::new(),
            contract,
            memory: Memory::default(),
            agent_image: None,
            reports: Reports::default(),
        };
        let stage = Self { port, maas, driver, context, identities, crash, keeper, after_create, lose_answer };
        stage.credentials(ADMIN);
        stage
    }

    /// The context for passes over the machines of the cluster.
    pub(crate) fn for_machines(&self) -> machine::Context {
        machine::Context {
            kubernetes: self.context.kubernetes.clone(),
            identities: self.identities.clone(),
            clock: self.context.clock.clone(),
            fence: self.context.fence.clone(),
            metrics: self.context.metrics.clone(),
            lxd_hosts: LxdHosts::default(),
            backoff: Backoff::default(),
        }
    }

    /// A new process: everything that the manager kept in memory is gone.
    pub(crate) fn restart(&mut self) {
        let connect = connect(&self.maas, &self.after_create, &self.lose_answer, &self.crash);
        let (kubernetes, clock) = (self.context.kubernetes.clone(), self.context.clock.clone());
        self.identities = Identities::new(kubernetes, self.keeper.clone(), clock, settings(), connect);
        self.context.identities = self.identities.clone();
        self.context.memory = Memory::default();
        self.context.reports = Reports::default();
    }

    pub(crate) fn credentials(&self, api_key: &str) {
        let (secret, config) =
            (Key::new("capmaas-system", "maas-credentials"), Key::new("capmaas-system", "capmaas-config"));
        self.port.delete("Secret", &secret);
        self.port.delete("ConfigMap", &config);
        let metadata = |key: &Key| json!({ "name": key.name, "namespace": key.namespace });
        self.create(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata(&secret), "stringData": { "apiKey": api_key } }));
        let data = json!({ "maasEndpoint": "http://maas.test:5240/MAAS" });
        self.create(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(&config), "data": data }));
        self.identities.changed();
    }

    pub(crate) fn arrange(&self, statements: Value) {
        self.maas.control().arrange(&serde_json::from_value::<Vec<_>>(statements).unwrap()).unwrap();
    }

    pub(crate) fn create(&self, object: Value) -> Value {
        self.port.create(object).unwrap()
    }

    /// A Cluster and its MaasCluster, with these specs and this metadata on the latter.
    pub(crate) fn cluster(&self, cluster_spec: Value, spec: Value, metadata: Value) {
        let mut cluster_spec = cluster_spec;
        cluster_spec["infrastructureRef"] =
            json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MaasCluster", "name": "c1" });
        let cluster = self.create(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": { "name": "c1", "namespace": "default" }, "spec": cluster_spec,
        }));
        let mut meta = json!({
            "name": "c1", "namespace": "default", "labels": { "cluster.x-k8s.io/cluster-name": "c1" },
            "ownerReferences": [{
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": cluster["metadata"]["uid"],
            }],
        });
        meta.as_object_mut().unwrap().extend(metadata.as_object().cloned().unwrap_or_default());
        let mut spec = spec;
        spec["dnsDomain"] = json!("k8s.example");
        self.create(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster", "metadata": meta, "spec": spec,
        }));
    }

    pub(crate) fn plain_cluster(&self) {
        self.cluster(json!({}), json!({}), json!({}));
    }

    /// A control plane machine that is Deployed in MAAS, and its MaasMachine. Returns its address.
    pub(crate) fn control_plane(&self, name: &str) -> String {
        self.arrange(json!([{"machine": {"hostname": name, "status": "Deployed", "owner": "admin", "zone": "az1", "power": "on"}}]));
        let (id, address) = self.maas.control().with_model(|model| {
            let id = model.machine_named(name).unwrap();
            let machine = model.db.machines.get(&id).unwrap();
            (id, maas_sim::http::render::machine::addresses(model, machine)[0].clone())
        });
        self.maas_machine(name, &id, &[&address]);
        self.stamp(name, &id);
        address
    }

    /// What a pass over the machine leaves behind: a journal, and the stamp in MAAS that proves it.
    pub(crate) fn stamp(&self, name: &str, id: &str) {
        let object = Key::new("default", name);
        let uid = self.port.object("MaasMachine", &object).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
        let key = format!("capmaas-{uid}");
        let journal = json!({
            "key": key, "machine": id, "writtenFor": { "namespace": "default", "name": name, "uid": uid },
        });
        self.journal(name, &journal.to_string());
        let stamp = json!({ "capmaas-key": key, "capmaas-machine": object.to_string() });
        self.arrange(json!([{ "machine": { "system_id": id, "annotations": stamp } }]));
    }

    pub(crate) fn journal(&self, name: &str, journal: &str) {
        let annotations = json!({ "infrastructure.cluster.x-k8s.io/maas-record": journal });
        let patch = json!({ "metadata": { "annotations": annotations } });
        self.port.edit("MaasMachine", &Key::new("default", name), &patch).unwrap();
    }

    pub(crate) fn maas_machine(&self, name: &str, id: &str, addresses: &[&str]) {
        self.create(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
            "metadata": {
                "name": name, "namespace": "default", "finalizers": ["maasmachine.infrastructure.cluster.x-k8s.io"],
                "labels": { "cluster.x-k8s.io/cluster-name": "c1", "cluster.x-k8s.io/control-plane": "" },
            },
            "spec": { "providerID": format!("maas://az1/{id}"), "image": "ubuntu/jammy" },
        }));
        let addresses: Vec<Value> =
            addresses.iter().map(|address| json!({ "type": "InternalIP", "address": address })).collect();
        let status =
            json!({ "ready": true, "machineState": "Deployed", "machinePowered": true, "addresses": addresses });
        self.port.set_status("MaasMachine", &Key::new("default", name), status).unwrap();
    }

    /// The machine is deleted, and its own reconciler has come to where it waits for its address to be removed.
    pub(crate) fn leaves(&self, name: &str) {
        let key = Key::new("default", name);
        self.port.delete("MaasMachine", &key);
        let mut status = self.port.object("MaasMachine", &key).unwrap()["status"].clone();
        status["conditions"] = json!([{ "type": "MachineDeployed", "status": "False", "reason": "DNSDetachPending",
            "lastTransitionTime": "2026-11-15T12:00:00Z" }]);
        self.port.set_status("MaasMachine", &key, status).unwrap();
    }

    /// The machine's own reconciler has removed its finalizer.
    pub(crate) fn gone(&self, name: &str) {
        let key = Key::new("default", name);
        self.port.delete("MaasMachine", &key);
        self.port.edit("MaasMachine", &key, &json!({ "metadata": { "finalizers": [] } })).unwrap();
    }

    /// Runs passes until there is nothing to do immediately. Returns when to requeue.
    pub(crate) async fn rest(&self) -> Requeue {
        for _ in 0..MOST_PASSES {
            match reconcile(&self.context, &key()).await.unwrap() {
                Requeue::NOW => {}
                // A conflict, or the last check before an effect saw a change.
                Requeue::After(wait) if wait.as_secs() == 1 => {}
                later => return later,
            }
        }
        panic!("does not come to rest: {:#?}", self.port.object("MaasCluster", &key()));
    }

    pub(crate) async fn pass(&self) -> Requeue {
        reconcile(&self.context, &key()).await.unwrap()
    }

    pub(crate) fn object(&self) -> Value {
        self.port.object("MaasCluster", &key()).unwrap_or(Value::Null)
    }

    pub(crate) fn condition(&self, type_: &str) -> Value {
        let object = self.object();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == type_).unwrap_or(Value::Null)
    }

    pub(crate) fn reason(&self, type_: &str) -> String {
        self.condition(type_)["reason"].as_str().unwrap_or_default().to_owned()
    }

    /// Names and addresses in MAAS's DNS.
    pub(crate) fn records(&self) -> Vec<(String, Vec<String>)> {
        self.maas.control().with_model(|model| {
            let address = |id: &i64| {
                model.db.addresses.get(id).and_then(|row| row.ip).map_or("null".to_owned(), |ip| ip.to_string())
            };
            let names = model.db.dns.values();
            names.map(|dns| (model.dns_fqdn(dns), dns.addresses.iter().map(address).collect())).collect()
        })
    }

    /// Requests that may have changed something, as `METHOD path`.
    pub(crate) fn writes(&self) -> Vec<String> {
        let entries = self.maas.control().ledger(None);
        entries
            .iter()
            .filter(|entry| entry.method != "GET")
            .map(|entry| format!("{} {}", entry.method, entry.path))
            .collect()
    }

    pub(crate) fn requests(&self) -> usize {
        self.maas.control().ledger(None).len()
    }

    pub(crate) fn forget_requests(&self) {
        self.maas.control().clear_ledger();
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.driver.advance(seconds * 1000);
        self.maas.advance(Duration::from_secs(u64::try_from(seconds).unwrap()));
    }
}

fn settings() -> Settings {
    Settings {
        namespace: "capmaas-system".to_owned(),
        environment: EnvironmentCredentials::default(),
        ..Settings::default()
    }
}

fn connect(maas: &Simulator, hook: &Hook, lose: &Arc<Mutex<bool>>, crash: &Crash) -> Connect {
    let (router, hook, lose, crash) = (maas.router(), hook.clone(), lose.clone(), crash.clone());
    Arc::new(move |credentials: &Credentials| {
        let inner = in_process(router.clone(), 1 << 20);
        let (hook, lose) = (hook.clone(), lose.clone());
        let transport = Transport::new(tower::service_fn(move |request: http::Request<bytes::Bytes>| {
            let makes = request.method() == http::Method::POST && request.uri().path().ends_with("/dnsresources/");
            let (inner, hook, lose) = (inner.clone(), hook.clone(), lose.clone());
            async move {
                let answer = inner.oneshot(request).await?;
                if makes {
                    if let Some(hook) = hook.lock().unwrap().take() {
                        hook();
                    }
                    if std::mem::take(&mut *lose.lock().unwrap()) {
                        return Err(BoxError::from("connection reset by peer"));
                    }
                }
                Ok(answer)
            }
        }));
        Client::builder(&credentials.endpoint, credentials.key.expose_secret())
            .transport(crash.on_the_way(transport))
            .retry(RetryPolicy::never())
            .build()
    })
}
