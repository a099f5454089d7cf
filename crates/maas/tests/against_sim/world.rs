//! A simulated MAAS of some version, in this process, and a client of it.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use maas_client::transport::{BoxError, Transport, in_process};
use maas_client::{Capabilities, Client, Environment, RetryPolicy, Subnet};
use maas_sim::config::{Config, TimeMode};
use maas_sim::{ConnectionReset, Simulator};
use serde_json::{Value, json};
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

pub const ADMIN: &str = "adminconsumer:admintoken:adminsecret";
pub const ALICE: &str = "aliceconsumer:alicetoken:alicesecret";

/// A small data centre: four machines, two subnets, an LXD daemon, one image that works and one that does not.
pub struct World {
    transport: Transport,
    pub client: Client,
}

impl World {
    pub async fn new(version: &str) -> Self {
        let mut config = Config::new(ADMIN.parse().unwrap());
        config.version = version.parse().unwrap();
        config.time = TimeMode::Driven;
        let simulator = Simulator::new(config);
        let transport = breakable(in_process(simulator.router(), 64 << 20));
        let world = Self { client: client(&transport, ADMIN), transport };
        world
            .arrange(json!([
                {"user": {"name": "alice", "admin": false, "key": ALICE}},
                {"zone": {"name": "az1"}},
                {"pool": {"name": "pool-a"}},
                {"domain": {"name": "k8s.example"}},
                {"fabric": {"name": "fabric-0", "id": 0}},
                {"vlan": {"fabric": "fabric-0", "vid": 0, "dhcp_on": true}},
                {"subnet": {"cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.1"}},
                {"ip_range": {"start_ip": "10.0.0.200", "end_ip": "10.0.0.250", "type": "dynamic"}},
                {"image": {"name": "ubuntu/jammy"}},
                {"image": {"name": "custom/late", "complete": false}},
                {"machine": {"hostname": "bm01", "zone": "az1", "cpu_count": 4, "memory": 16384}},
                {"machine": {"hostname": "bm02", "zone": "az1", "cpu_count": 4, "memory": 16384}},
                {"machine": {"hostname": "bm03", "status": "New"}},
                {"machine": {"hostname": "bm04", "status": "Deployed", "owner": "admin"}},
                {"lxd": {"address": "10.0.0.9:8443", "cores": 4, "memory": 16384, "password": "trustme", "host": "bm04"}},
            ]))
            .await;
        world
    }

    pub fn as_alice(&self) -> Client {
        client(&self.transport, ALICE)
    }

    pub fn with_key(&self, key: &str) -> Client {
        client(&self.transport, key)
    }

    pub async fn arrange(&self, statements: Value) -> Value {
        self.control(Method::POST, "arrange", &statements).await
    }

    pub async fn settle(&self) {
        self.arrange(json!([{"settle": {}}])).await;
    }

    pub async fn control(&self, method: Method, what: &str, body: &Value) -> Value {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://sim.test/_sim/{what}"))
            .header("content-type", "application/json")
            .body(Bytes::from(body.to_string()))
            .unwrap();
        let response = self.transport.clone().oneshot(request).await.unwrap();
        let text = String::from_utf8_lossy(response.body()).into_owned();
        assert!(response.status().is_success(), "{what} {body}: {} {text}", response.status());
        if response.status() == StatusCode::NO_CONTENT { Value::Null } else { serde_json::from_str(&text).unwrap() }
    }

    /// The system id of a machine by its name.
    pub async fn id(&self, hostname: &str) -> String {
        let filter = maas_client::MachineFilter::hostname(hostname);
        let machines = self.client.machines().list(&filter).await.unwrap();
        assert_eq!(machines.len(), 1, "{hostname}");
        machines[0].system_id.clone()
    }

    /// The subnet of the machines.
    pub async fn subnet(&self) -> Subnet {
        let subnets = self.client.subnets().list().await.unwrap();
        subnets.into_iter().find(|subnet| subnet.cidr.as_deref() == Some("10.0.0.0/24")).unwrap()
    }

    pub async fn capabilities(&self) -> Capabilities {
        self.client.capabilities().await.unwrap()
    }
}

/// In process there is no connection to reset, so the simulator marks an answer that would not have arrived.
fn breakable(transport: Transport) -> Transport {
    let broken = |response: Response<Bytes>| async move {
        if response.extensions().get::<ConnectionReset>().is_some() {
            return Err(BoxError::from("connection reset by peer"));
        }
        Ok(response)
    };
    BoxCloneSyncService::new(transport.and_then(broken))
}

fn client(transport: &Transport, key: &str) -> Client {
    let builder = Client::builder("http://sim.test/MAAS", key).transport(transport.clone());
    builder.environment(Ahead).retry(RetryPolicy::never()).build().unwrap()
}

/// A clock that is slightly ahead of the simulator's, however far a test advances it: MAAS only refuses old timestamps.
struct Ahead;

impl Environment for Ahead {
    fn unix_seconds(&self) -> u64 {
        maas_client::SystemEnvironment.unix_seconds() + 3000
    }

    fn random(&self) -> u128 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        u128::from(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
