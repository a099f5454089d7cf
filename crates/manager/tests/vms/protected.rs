//! A host whose MaasMachine cannot be changed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use capmaas_api::capi::{Cluster, Machine};
use capmaas_api::{MaasCluster, MaasMachine};
use capmaas_manager::evacuation::pass;
use capmaas_manager::kubernetes::{
    Error, ErrorKind, Guard, Key, Kind, Kubernetes, MemoryKubernetes, NewSecret, Node, ObjectEvent, Result,
    SecretValues, WorkloadRef,
};
use capmaas_manager::machine_index::MachineIndex;
use serde_json::{Value, json};

use crate::evacuation::{Scene, TAG, key};
use crate::stage::Stage;

/// An API server that refuses to patch one object.
#[derive(Debug)]
struct Protected {
    port: MemoryKubernetes,
    object: Key,
    /// How often somebody has tried.
    asked: Arc<Mutex<usize>>,
}

#[async_trait]
impl Kubernetes for Protected {
    async fn maas_machine(&self, key: &Key) -> Result<Option<MaasMachine>> {
        self.port.maas_machine(key).await
    }

    async fn maas_cluster(&self, key: &Key) -> Result<Option<MaasCluster>> {
        self.port.maas_cluster(key).await
    }

    async fn cluster(&self, key: &Key) -> Result<Option<Cluster>> {
        self.port.cluster(key).await
    }

    async fn machine(&self, key: &Key, uid: &str) -> Result<Option<Machine>> {
        self.port.machine(key, uid).await
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
        self.port.secret(key).await
    }

    async fn config_map(&self, key: &Key) -> Result<Option<BTreeMap<String, String>>> {
        self.port.config_map(key).await
    }

    async fn patch(&self, kind: Kind, key: &Key, guard: &Guard, patch: Value) -> Result<Value> {
        if *key == self.object {
            *self.asked.lock().unwrap() += 1;
            let why = "admission webhook \"freeze.example.com\" denied the request: frozen until Monday";
            return Err(Error::new(ErrorKind::Denied, format!("patch {key}"), why));
        }
        self.port.patch(kind, key, guard, patch).await
    }

    async fn apply_status(&self, kind: Kind, key: &Key, guard: &Guard, status: Value) -> Result<Guard> {
        self.port.apply_status(kind, key, guard, status).await
    }

    async fn publish(&self, event: &ObjectEvent) -> Result<()> {
        self.port.publish(event).await
    }

    async fn workload_version(&self, cluster: &Key) -> Result<String> {
        self.port.workload_version(cluster).await
    }

    async fn node(&self, cluster: &Key, name: &str) -> Result<Option<Node>> {
        self.port.node(cluster, name).await
    }

    async fn name_node(
        &self,
        cluster: &Key,
        node: &Node,
        provider_id: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<()> {
        self.port.name_node(cluster, node, provider_id, labels).await
    }

    async fn nodes(&self, cluster: &Key) -> Result<Vec<Node>> {
        self.port.nodes(cluster).await
    }

    async fn annotate_node(&self, cluster: &Key, node: &Node, name: &str, value: &str) -> Result<()> {
        self.port.annotate_node(cluster, node, name, value).await
    }

    async fn workload_object(&self, cluster: &Key, which: &WorkloadRef) -> Result<Option<Value>> {
        self.port.workload_object(cluster, which).await
    }

    async fn workload_apply(&self, cluster: &Key, manifest: &Value) -> Result<()> {
        self.port.workload_apply(cluster, manifest).await
    }

    async fn workload_serves(&self, cluster: &Key, api_version: &str, kind: &str) -> Result<bool> {
        self.port.workload_serves(cluster, api_version, kind).await
    }

    async fn create_secret(&self, secret: &NewSecret) -> Result<()> {
        self.port.create_secret(secret).await
    }
}

#[tokio::test]
async fn s31_a_host_that_cannot_be_annotated_does_not_keep_others_from_maintenance() {
    let mut scene = Scene::new(Stage::new(), 3).await;
    for host in ["host1", "host2"] {
        scene.stage.host_object(
            host,
            json!({
                "labels": { "cluster.x-k8s.io/cluster-name": "c1", "kept": "" }, "finalizers": ["kept"],
                "annotations": { "infrastructure.cluster.x-k8s.io/lxd-host-maintenance": "new fans" },
            }),
        );
    }
    let asked = Arc::default();
    scene.context.kubernetes =
        Arc::new(Protected { port: scene.stage.port.clone(), object: key("host1"), asked: Arc::clone(&asked) });
    let mut said = Vec::new();
    for _ in 0..6 {
        scene.stage.advance(5);
        pass(&scene.context).await.unwrap();
        said.push(scene.said().1);
    }
    assert_eq!(scene.tags_of("host2"), [TAG]);
    assert_eq!(*asked.lock().unwrap(), 1, "within two minutes");
    assert!(said.iter().any(|said| said.contains("its host takes no more VMs") && said.contains("frozen")), "{said:?}");
    scene.stage.advance(120);
    pass(&scene.context).await.unwrap();
    assert_eq!(*asked.lock().unwrap(), 2);
}
