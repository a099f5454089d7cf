//! A manager that dies between any two calls: before a call takes effect, or after it, with the answer lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use capmaas_api::capi::{Cluster, Machine};
use capmaas_api::{MaasCluster, MaasMachine};
use capmaas_manager::kubernetes::{
    Guard, Key, Kind, Kubernetes, MemoryKubernetes, NewSecret, Node, ObjectEvent, Owners, Result, SecretValues,
    WorkloadRef,
};
use capmaas_manager::machine_index::MachineIndex;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use maas_client::transport::Transport;
use serde_json::Value;
use tokio::sync::Notify;
use tower::ServiceExt as _;

/// When the manager dies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crash {
    fuse: Arc<Mutex<Option<Fuse>>>,
    blown: Arc<Notify>,
    probe: Arc<Mutex<Option<Duration>>>,
}

#[derive(Clone, Copy, Debug)]
struct Fuse {
    calls_left: u32,
    after_the_effect: bool,
    only_writes: bool,
}

/// The kind of a call, as far as the fuse is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Read,
    Write,
}

impl Crash {
    /// Dies after this many further calls.
    #[allow(dead_code, reason = "not every test binary dies between reads")]
    pub(crate) fn light(&self, calls_left: u32, after_the_effect: bool) {
        *self.fuse.lock().unwrap() = Some(Fuse { calls_left, after_the_effect, only_writes: false });
    }

    /// Dies after this many further writes.
    #[allow(dead_code, reason = "not every test binary dies at every write")]
    pub(crate) fn light_for_writes(&self, calls_left: u32, after_the_effect: bool) {
        *self.fuse.lock().unwrap() = Some(Fuse { calls_left, after_the_effect, only_writes: true });
    }

    /// How long the API server of a workload cluster leaves its probe without an answer.
    #[allow(dead_code, reason = "not every test binary probes one")]
    pub(crate) fn let_probes_hang(&self, wait: Duration) {
        *self.probe.lock().unwrap() = Some(wait);
    }

    /// Disarms the fuse.
    pub(crate) fn put_out(&self) {
        *self.fuse.lock().unwrap() = None;
    }

    /// Resolves when the manager dies.
    pub(crate) async fn happens(&self) {
        self.blown.notified().await;
    }

    async fn read<T>(&self, call: impl Future<Output = T>) -> T {
        self.around(Call::Read, call).await
    }

    async fn write<T>(&self, call: impl Future<Output = T>) -> T {
        self.around(Call::Write, call).await
    }

    async fn around<T>(&self, kind: Call, call: impl Future<Output = T>) -> T {
        let strikes = {
            let mut fuse = self.fuse.lock().unwrap();
            match fuse.as_mut() {
                None => None,
                Some(burning) if burning.only_writes && kind == Call::Read => None,
                Some(burning) if burning.calls_left > 0 => {
                    burning.calls_left -= 1;
                    None
                }
                Some(_) => fuse.take(),
            }
        };
        match strikes {
            None => call.await,
            Some(fuse) => {
                if fuse.after_the_effect {
                    call.await;
                }
                self.blown.notify_one();
                std::future::pending().await
            }
        }
    }

    /// A transport to MAAS on which the manager may die.
    pub(crate) fn on_the_way(&self, transport: Transport) -> Transport {
        let crash = self.clone();
        Transport::new(tower::service_fn(move |request: http::Request<bytes::Bytes>| {
            let (crash, transport) = (crash.clone(), transport.clone());
            let kind = if request.method() == http::Method::GET { Call::Read } else { Call::Write };
            async move { crash.around(kind, transport.oneshot(request)).await }
        }))
    }
}

/// A port to Kubernetes on which the manager may die.
#[derive(Debug)]
pub(crate) struct Mortal {
    pub(crate) port: MemoryKubernetes,
    pub(crate) crash: Crash,
}

#[async_trait]
impl Kubernetes for Mortal {
    async fn maas_machine(&self, key: &Key) -> Result<Option<MaasMachine>> {
        self.crash.read(self.port.maas_machine(key)).await
    }

    async fn maas_cluster(&self, key: &Key) -> Result<Option<MaasCluster>> {
        self.crash.read(self.port.maas_cluster(key)).await
    }

    async fn cluster(&self, key: &Key) -> Result<Option<Cluster>> {
        self.crash.read(self.port.cluster(key)).await
    }

    async fn machine(&self, key: &Key, uid: &str) -> Result<Option<Machine>> {
        self.crash.read(self.port.machine(key, uid)).await
    }

    async fn machine_index(&self) -> Result<MachineIndex> {
        self.port.machine_index().await
    }

    async fn maas_clusters(&self) -> Result<Vec<Arc<MaasCluster>>> {
        self.port.maas_clusters().await
    }

    async fn maas_machines(&self, of_cluster: Option<&Key>) -> Result<Vec<Arc<MaasMachine>>> {
        self.port.maas_machines(of_cluster).await
    }

    async fn secret(&self, key: &Key) -> Result<Option<SecretValues>> {
        self.crash.read(self.port.secret(key)).await
    }

    async fn config_map(&self, key: &Key) -> Result<Option<BTreeMap<String, String>>> {
        self.port.config_map(key).await
    }

    async fn patch(&self, kind: Kind, key: &Key, guard: &Guard, patch: Value) -> Result<Value> {
        self.crash.write(self.port.patch(kind, key, guard, patch)).await
    }

    async fn apply_status(&self, kind: Kind, key: &Key, guard: &Guard, status: Value) -> Result<Guard> {
        self.crash.write(self.port.apply_status(kind, key, guard, status)).await
    }

    async fn publish(&self, event: &ObjectEvent) -> Result<()> {
        self.crash.write(self.port.publish(event)).await
    }

    async fn workload_version(&self, cluster: &Key) -> Result<String> {
        let wait = *self.crash.probe.lock().unwrap();
        if let Some(wait) = wait {
            tokio::time::sleep(wait).await;
        }
        self.port.workload_version(cluster).await
    }

    async fn node(&self, cluster: &Key, name: &str) -> Result<Option<Node>> {
        self.crash.read(self.port.node(cluster, name)).await
    }

    async fn name_node(
        &self,
        cluster: &Key,
        node: &Node,
        provider_id: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<()> {
        self.crash.write(self.port.name_node(cluster, node, provider_id, labels)).await
    }

    async fn nodes(&self, cluster: &Key) -> Result<Vec<Node>> {
        self.crash.read(self.port.nodes(cluster)).await
    }

    async fn annotate_node(&self, cluster: &Key, node: &Node, name: &str, value: &str) -> Result<()> {
        self.crash.write(self.port.annotate_node(cluster, node, name, value)).await
    }

    async fn workload_object(&self, cluster: &Key, which: &WorkloadRef) -> Result<Option<Value>> {
        self.crash.read(self.port.workload_object(cluster, which)).await
    }

    async fn workload_apply(&self, cluster: &Key, manifest: &Value) -> Result<()> {
        self.crash.write(self.port.workload_apply(cluster, manifest)).await
    }

    async fn workload_serves(&self, cluster: &Key, api_version: &str, kind: &str) -> Result<bool> {
        self.port.workload_serves(cluster, api_version, kind).await
    }

    async fn create_secret(&self, secret: &NewSecret) -> Result<()> {
        self.crash.write(self.port.create_secret(secret)).await
    }
}

#[async_trait]
impl Owners for Mortal {
    async fn machines(&self, cluster: &Key) -> Result<Vec<Machine>> {
        self.crash.read(self.port.machines(cluster)).await
    }

    async fn owner(&self, namespace: &str, owner: &OwnerReference) -> Result<Option<Value>> {
        self.crash.read(self.port.owner(namespace, owner)).await
    }

    async fn delete_machine(&self, key: &Key, uid: &str, guard: &Guard) -> Result<()> {
        self.crash.write(self.port.delete_machine(key, uid, guard)).await
    }
}
