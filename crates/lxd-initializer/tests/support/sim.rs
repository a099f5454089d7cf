//! A node with a real LXD in a simulated MAAS, which connects to that LXD with the key that the agent provided.

use std::{sync::Arc, time::Duration};

use lxd_client::Fingerprint;
use lxd_initializer::{
    agent::Agent, effect::EffectKind, health::Status, keys, observed::Lookup, plan::State, settings::GivenCredentials,
};
use maas_sim::{Config, Simulator, config::Durations, faults::FaultRule, model::db::VmHost, serve};
use serde_json::{Value, json};

use super::{cluster::MemoryCluster, lxd::RealLxd, settings, settle};

/// The secret part of the API key; it must not appear anywhere.
pub(crate) const CANARY: &str = "CANARYapikeysecret";

/// A simulated MAAS that is listening.
pub(crate) struct Maas {
    pub(crate) sim: Simulator,
    pub(crate) endpoint: String,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Drop for Maas {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// The API key of its administrator.
pub(crate) fn key() -> String {
    format!("consumer:token:{CANARY}")
}

impl Maas {
    /// A MAAS that deployed the machine `abc123`, which is the node `n1`.
    pub(crate) async fn start(version: &str, lxd: &RealLxd) -> Self {
        let maas = Self::empty(version).await;
        let ip = lxd.ip.to_string();
        let network = maas.network(lxd);
        maas.arrange(json!([{"machine": {
            "hostname": "n1", "system_id": "abc123", "status": "Deployed", "owner": "admin", "zone": "az1",
            "interfaces": [{
                "name": "eth0", "mac": lxd.mac(), "links": [{"mode": "static", "subnet": network, "ip_address": ip}],
            }],
        }}]));
        maas
    }

    /// A MAAS without machines.
    pub(crate) async fn empty(version: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = Config {
            version: version.parse().unwrap(),
            durations: Durations::quick(),
            ..Config::new(key().parse().unwrap())
        };
        let sim = Simulator::new(config);
        let (listener, at) = serve::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let server = tokio::spawn(serve::serve(sim.clone(), listener));
        let maas = Self { sim, endpoint: format!("http://{at}/MAAS"), server };
        maas.arrange(json!([{"zone": {"name": "az1"}}, {"pool": {"name": "blue"}}]));
        maas
    }

    /// The subnet of the node, created with it.
    pub(crate) fn network(&self, lxd: &RealLxd) -> String {
        let ip = lxd.ip.to_string();
        let network = format!("{}.0/24", ip.rsplit_once('.').unwrap().0);
        self.arrange(json!([{"subnet": {"cidr": network}}]));
        network
    }

    #[allow(clippy::needless_pass_by_value)] // json! makes a new one every time
    pub(crate) fn arrange(&self, statements: Value) {
        let statements: Vec<_> = serde_json::from_value(statements).unwrap();
        self.sim.control().arrange(&statements).unwrap();
    }

    pub(crate) fn fault(&self, rule: Value) -> u64 {
        let rule: FaultRule = serde_json::from_value(rule).unwrap();
        self.sim.control().add_fault(rule)
    }

    /// Requests that are not reads, by kind.
    pub(crate) fn writes(&self) -> Vec<String> {
        let all = self.sim.control().ledger(None);
        all.into_iter().filter(|entry| entry.method != "GET").map(|entry| entry.kind).collect()
    }

    pub(crate) fn hosts(&self) -> Vec<VmHost> {
        self.sim.control().with_model(|model| model.db.vm_hosts.values().cloned().collect())
    }

    pub(crate) fn only_host(&self) -> VmHost {
        let mut hosts = self.hosts();
        assert_eq!(hosts.len(), 1, "exactly one VM host");
        hosts.remove(0)
    }

    pub(crate) fn client(&self) -> maas_client::Client {
        maas_client::Client::builder(&self.endpoint, &key()).build().unwrap()
    }
}

/// A fresh node in standalone mode.
pub(crate) struct Scene {
    pub(crate) lxd: RealLxd,
    pub(crate) maas: Maas,
    pub(crate) state: tempfile::TempDir,
    pub(crate) cluster: Arc<MemoryCluster>,
}

pub(crate) async fn scene() -> Scene {
    scene_on("3.4").await
}

pub(crate) async fn scene_on(version: &str) -> Scene {
    let lxd = RealLxd::start().await;
    let maas = Maas::start(version, &lxd).await;
    Scene { lxd, maas, state: tempfile::tempdir().unwrap(), cluster: Arc::default() }
}

impl Scene {
    pub(crate) fn agent(&self) -> Agent {
        self.agent_with(
            &[],
            GivenCredentials { api_key: Some(key().into()), endpoint: Some(self.maas.endpoint.clone()) },
        )
    }

    pub(crate) fn agent_with(&self, more: &[&str], given: GivenCredentials) -> Agent {
        // MAAS is read again in every pass, as after ten minutes in production.
        let usual = ["--zone=az1", "--resource-pool=blue", "--maas-seconds=1"];
        let settings = settings(&self.lxd, self.state.path(), &[&usual, more].concat());
        Agent::new(settings, given, self.cluster.clone(), Arc::new(Status::default()))
    }

    /// The fingerprint of the key pair that the agent generated.
    pub(crate) fn own_fingerprint(&self) -> Fingerprint {
        let Lookup::Found(identity) = keys::load(self.state.path()) else { panic!("no key pair") };
        identity.fingerprint().unwrap()
    }

    pub(crate) fn lose_key(&self) {
        std::fs::remove_file(self.state.path().join("client.pem")).unwrap();
    }
}

/// Runs passes until the state is as desired, including the time in which MAAS processes a new host, as the agent's
/// loop does. Returns the effects, except reports.
pub(crate) async fn until_right(agent: &mut Agent) -> Vec<EffectKind> {
    let mut all = Vec::new();
    for _ in 0..50 {
        let (pass, done) = settle(agent).await;
        all.extend(done.into_iter().filter(|kind| *kind != EffectKind::Report));
        if pass.plan.state == State::Ready {
            return all;
        }
        assert_eq!(pass.plan.state, State::Waiting, "{}", pass.plan.message);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("it is never right: {all:?}");
}
