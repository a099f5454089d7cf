//! Two MAAS servers and several sources of credentials.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use capmaas_api::MaasCluster;
use capmaas_core::Lookup;
use capmaas_manager::clock::{Clock, Driver};
use capmaas_manager::identity::{
    Connect, Credentials, EnvironmentCredentials, Identities, Identity, MemoryCredentialCopies, Settings,
};
use capmaas_manager::kubernetes::{Key, MemoryKubernetes};
use jiff::Timestamp;
use maas_client::transport::in_process;
use maas_client::{Client, RetryPolicy};
use maas_sim::{Config, Simulator};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

pub(crate) const ADMIN: &str = "consumer:token:CANARYadmin";
pub(crate) const ALICE: &str = "ck:tk:CANARYalice";
pub(crate) const ALICE_NEW: &str = "ck2:tk2:CANARYalice2";
pub(crate) const BOB: &str = "cb:tb:CANARYbob";
pub(crate) const MANAGER: &str = "capmaas-system";

/// Two MAAS servers, an in-memory Kubernetes, a driven clock.
pub(crate) struct Stage {
    pub(crate) port: MemoryKubernetes,
    pub(crate) keeper: Arc<MemoryCredentialCopies>,
    pub(crate) one: Simulator,
    pub(crate) driver: Driver,
    pub(crate) identities: Identities,
}

fn simulator() -> Simulator {
    let simulator = Simulator::new(Config::driven(ADMIN.parse().unwrap()));
    let users = json!([
        {"user": {"name": "alice", "admin": false, "keys": [ALICE, ALICE_NEW]}},
        {"user": {"name": "bob", "admin": false, "key": BOB}},
    ]);
    simulator.control().arrange(&serde_json::from_value::<Vec<_>>(users).unwrap()).unwrap();
    simulator
}

/// `http://one…` and `http://two…` connect to the two servers.
pub(crate) fn connect(one: &Simulator, two: &Simulator) -> Connect {
    let (one, two) = (one.clone(), two.clone());
    Arc::new(move |credentials: &Credentials| {
        let server = if credentials.endpoint.contains("two") { &two } else { &one };
        Client::builder(&credentials.endpoint, credentials.key.expose_secret())
            .transport(in_process(server.router(), 1 << 20))
            .retry(RetryPolicy::never())
            .build()
    })
}

impl Stage {
    pub(crate) fn new(environment: EnvironmentCredentials) -> Self {
        let (clock, driver) = Clock::driven(Timestamp::from_second(1_794_772_800).unwrap());
        let (one, two) = (simulator(), simulator());
        let port = MemoryKubernetes::new(clock.clone());
        let keeper = Arc::new(MemoryCredentialCopies::default());
        let settings = Settings {
            namespace: MANAGER.to_owned(),
            identity_namespaces: BTreeSet::from(["shared".to_owned(), MANAGER.to_owned()]),
            environment,
            ..Settings::default()
        };
        let kubernetes = Arc::new(port.clone());
        let identities = Identities::new(kubernetes, keeper.clone(), clock, settings, connect(&one, &two));
        Self { port, keeper, one, driver, identities }
    }

    pub(crate) fn bare() -> Self {
        Self::new(EnvironmentCredentials::default())
    }

    pub(crate) fn secret(&self, namespace: &str, name: &str, values: &[(&str, &str)]) {
        let data: serde_json::Map<String, Value> =
            values.iter().map(|(name, value)| ((*name).to_owned(), json!(BASE64_STANDARD.encode(value)))).collect();
        self.put("Secret", namespace, name, json!(data));
    }

    pub(crate) fn config(&self, endpoint: &str) {
        self.put("ConfigMap", MANAGER, "capmaas-config", json!({ "maasEndpoint": endpoint }));
    }

    pub(crate) fn put(&self, kind: &str, namespace: &str, name: &str, data: Value) {
        let key = Key::new(namespace, name);
        self.port.delete(kind, &key);
        let metadata = json!({"name": name, "namespace": namespace});
        self.port.create(json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data})).unwrap();
        // As the watch in the manager's namespace does.
        self.identities.changed();
    }

    /// The Secret `maas-credentials` and the ConfigMap `capmaas-config`.
    pub(crate) fn documented(&self, endpoint: &str, key: &str) {
        self.secret(MANAGER, "maas-credentials", &[("apiKey", key)]);
        self.config(endpoint);
    }

    pub(crate) async fn found(&self, cluster: &MaasCluster) -> Identity {
        match self.identities.resolve(cluster).await {
            Lookup::Found(identity) => identity,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn name(&self, cluster: &MaasCluster) -> String {
        self.found(cluster).await.name.to_string()
    }

    pub(crate) async fn problem(&self, cluster: &MaasCluster) -> (&'static str, String) {
        let problem = self.identities.check(cluster).await.unwrap_err();
        assert!(!problem.message.contains("CANARY"), "{}", problem.message);
        (problem.reason, problem.message)
    }
}

pub(crate) fn cluster(identity_ref: Value) -> MaasCluster {
    let mut spec = json!({"dnsDomain": "maas"});
    if !identity_ref.is_null() {
        spec["identityRef"] = identity_ref;
    }
    serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster",
        "metadata": {"name": "c1", "namespace": "team", "labels": {"cluster.x-k8s.io/cluster-name": "cluster-1"}},
        "spec": spec,
    }))
    .unwrap()
}

pub(crate) fn plain() -> MaasCluster {
    cluster(Value::Null)
}
