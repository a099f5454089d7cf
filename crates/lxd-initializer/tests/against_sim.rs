//! The agent against the simulated MAAS, which connects to the real LXD with the key that the agent gave it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;

use lxd_initializer::{agent::Agent, effect::EffectKind, names, plan::State, settings::GivenCredentials};
use maas_sim::{Config, Simulator, config::Durations, serve};
use serde_json::{Value, json};
use support::{cluster::MemoryCluster, lxd::RealLxd, settings, settle, settle_ready, settle_with};

const KEY: &str = "consumer:token:CANARYsecret";

struct Scene {
    lxd: RealLxd,
    sim: Simulator,
    endpoint: String,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
    state: tempfile::TempDir,
    cluster: Arc<MemoryCluster>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A MAAS that deployed the machine that this node is.
async fn scene(version: &str) -> Scene {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let lxd = RealLxd::start().await;
    let config = Config {
        version: version.parse().unwrap(),
        durations: Durations::quick(),
        ..Config::new(KEY.parse().unwrap())
    };
    let sim = Simulator::new(config);
    let ip = lxd.ip.to_string();
    let network = format!("{}.0/24", ip.rsplit_once('.').unwrap().0);
    // MAAS goes by the MAC addresses of the network cards that LXD shows.
    arrange(
        &sim,
        &json!([
            {"zone": {"name": "az1"}},
            {"subnet": {"cidr": network}},
            {"machine": {
                "hostname": "n1", "system_id": "abc123", "status": "Deployed", "owner": "admin", "zone": "az1",
                "interfaces": [{
                    "name": "eth0", "mac": network_card(&lxd).await,
                    "links": [{"mode": "static", "subnet": network, "ip_address": ip}],
                }],
            }},
        ]),
    );
    let (listener, at) = serve::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let server = tokio::spawn(serve::serve(sim.clone(), listener));
    let endpoint = format!("http://{at}/MAAS");
    Scene { lxd, sim, endpoint, server, state: tempfile::tempdir().unwrap(), cluster: Arc::default() }
}

async fn network_card(lxd: &RealLxd) -> String {
    let client = lxd.client();
    let all = client.networks().await.unwrap();
    let card = all.iter().find(|network| network.kind == "physical").expect("this machine has no network card");
    client.network_state(&card.name).await.unwrap().unwrap().hwaddr
}

fn arrange(sim: &Simulator, statements: &Value) {
    let statements: Vec<_> = serde_json::from_value(statements.clone()).unwrap();
    sim.control().arrange(&statements).unwrap();
}

impl Scene {
    fn agent(&self) -> Agent {
        let settings = settings(&self.lxd, self.state.path(), &["--zone=az1", "--maas-seconds=1"]);
        let given = GivenCredentials { api_key: Some(KEY.into()), endpoint: Some(self.endpoint.clone()) };
        Agent::new(settings, given, self.cluster.clone(), Arc::default())
    }
}

/// MAAS fills in a host's resources a moment after its registration; this waits for it, as the agent's loop does.
async fn settle_in_time(agent: &mut Agent) -> Vec<EffectKind> {
    let mut all = Vec::new();
    for _ in 0..50 {
        let (pass, done) = settle(agent).await;
        all.extend(done);
        if pass.plan.state == State::Ready {
            return all;
        }
        assert_eq!(pass.plan.state, State::Waiting, "{}", pass.plan.message);
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    panic!("it is never ready: {all:?}");
}

#[tokio::test]
async fn a_fresh_node_becomes_a_vm_host_of_its_own_machine() {
    for version in ["3.1", "3.4", "3.8"] {
        let scene = scene(version).await;
        let mut agent = scene.agent();
        let done = settle_in_time(&mut agent).await;
        let registrations = done.iter().filter(|kind| **kind == EffectKind::Register).count();
        assert_eq!(registrations, 1, "{version}: {done:?}");
        let writes =
            |scene: &Scene| scene.sim.control().ledger(None).iter().filter(|entry| entry.method != "GET").count();
        let before = writes(&scene);
        for _ in 0..3 {
            assert_eq!(agent.pass().await.plan.effect, None);
        }
        assert_eq!(settle_ready(&mut scene.agent()).await, []);
        assert_eq!(writes(&scene), before, "{version}: a second run writes nothing");
        assert!(scene.cluster.annotation(names::VM_HOST).is_some());
    }
}

#[tokio::test]
async fn maas_3_0_which_takes_no_key_pair_is_told_in_one_sentence() {
    let scene = scene("3.0").await;
    settle_with(&mut scene.agent(), State::Blocked, "takes no key pair").await;
    assert!(scene.sim.control().ledger(None).iter().all(|entry| entry.method == "GET"));
}

#[tokio::test]
async fn a_lost_key_is_replaced_on_the_vm_host_that_is_there() {
    let scene = scene("3.4").await;
    settle_in_time(&mut scene.agent()).await;
    let before = scene.cluster.annotation(names::VM_HOST);
    std::fs::remove_file(scene.state.path().join("client.pem")).unwrap();
    let done = settle_in_time(&mut scene.agent()).await;
    assert!(done.contains(&EffectKind::Renew) && !done.contains(&EffectKind::Register), "{done:?}");
    assert_eq!(scene.cluster.annotation(names::VM_HOST), before);
    assert_eq!(settle_ready(&mut scene.agent()).await, []);
}

#[tokio::test]
async fn a_maas_that_is_away_is_awaited_and_found_again() {
    let scene = scene("3.4").await;
    scene.sim.control().set_server(maas_sim::faults::ServerState::Down);
    let mut agent = scene.agent();
    settle_with(&mut agent, State::Waiting, "MAAS does not answer").await;
    scene.sim.control().set_server(maas_sim::faults::ServerState::Up);
    settle_in_time(&mut agent).await;
}

#[tokio::test]
async fn maas_composes_vms_with_the_restricted_certificate_and_a_lost_host_is_not_registered_over_them() {
    let scene = scene("3.4").await;
    settle_in_time(&mut scene.agent()).await;
    let maas = maas_client::Client::builder(&scene.endpoint, KEY).build().unwrap();
    let id: i64 = scene.cluster.annotation(names::VM_HOST).unwrap().parse().unwrap();
    let vm = maas_client::Compose {
        hostname: Some("vm1".into()),
        cores: Some(1),
        memory_mib: Some(1024),
        skip_commissioning: true,
        ..maas_client::Compose::default()
    };
    maas.vm_hosts().compose(id, &vm).await.unwrap();
    assert!(scene.lxd.client().instance("maas", "vm1").await.unwrap().is_some(), "it is in the real LXD");
    settle_ready(&mut scene.agent()).await;
    assert_eq!(scene.cluster.annotation(names::INSTANCES).as_deref(), Some("[\"vm1\"]"));

    arrange(&scene.sim, &json!([{"absent": {"vm_host": id}}]));
    let sent = scene.sim.control().ledger(None).iter().filter(|entry| entry.method != "GET").count();
    settle_with(&mut scene.agent(), State::Blocked, "holds instances that MAAS does not know (vm1)").await;
    assert_eq!(scene.sim.control().ledger(None).iter().filter(|entry| entry.method != "GET").count(), sent);
    assert!(scene.lxd.client().instance("maas", "vm1").await.unwrap().is_some());
}
