//! The port in memory, for tests.

mod objects;
mod owners;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use capmaas_api::capi::{Cluster, Machine};
use capmaas_api::names::CLUSTER_NAME_LABEL;
use capmaas_api::{MaasCluster, MaasMachine};
use secrecy::ExposeSecret as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use objects::{Id, Objects};

use super::{
    Error, ErrorKind, Guard, Key, Kind, Kubernetes, NewSecret, Node, ObjectEvent, Result, SecretValues, WorkloadRef,
};
use crate::clock::Clock;
use crate::machine_index::MachineIndex;

/// Kubernetes in memory: objects with versions, generations, finalizers, owners and a status subresource, and the Nodes
/// of workload clusters. Clones share the same objects, which therefore survive a simulated crash of the manager.
#[derive(Clone, Debug)]
pub struct MemoryKubernetes {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

/// An object as written by one write.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    pub kind: String,
    pub key: Key,
    /// The object; `None` if it is gone.
    pub object: Option<Value>,
}

#[derive(Debug, Default)]
struct State {
    objects: Objects,
    events: Vec<ObjectEvent>,
    secrets_are_hidden: bool,
    /// Decoded MaasMachines with their versions: every pass reads all of them.
    decoded: BTreeMap<Key, (Value, Arc<MaasMachine>)>,
    machine_index: MachineIndex,
    index_is_stale: bool,
    answering: BTreeSet<Key>,
    nodes: BTreeMap<(Key, String), Node>,
    node_versions: u64,
    /// Objects of workload clusters other than Nodes.
    workloads: BTreeMap<(Key, WorkloadRef), Value>,
}

impl MemoryKubernetes {
    /// An empty one. Timestamps come from `clock`.
    pub fn new(clock: Clock) -> Self {
        Self { clock, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a new object of any kind, as `kubectl create` does.
    pub fn create(&self, object: Value) -> Result<Value> {
        self.state().objects.create(object, self.clock.now())
    }

    /// An object of any kind as stored.
    pub fn object(&self, kind: &str, key: &Key) -> Option<Value> {
        self.state().objects.get(kind, key).cloned()
    }

    pub fn objects(&self, kind: &str) -> Vec<Value> {
        self.state().objects.of_kind(kind).map(|(_, object)| object.clone()).collect()
    }

    /// Changes metadata and spec of an object of any kind by a merge patch, as another writer would.
    pub fn edit(&self, kind: &str, key: &Key, patch: &Value) -> Result<Value> {
        let mut state = self.state();
        let stored = state.objects.patch(&(kind.to_owned(), key.clone()), patch)?;
        state.objects.collect_garbage(self.clock.now());
        Ok(stored)
    }

    /// Replaces the status of an object of any kind, as another writer would.
    pub fn set_status(&self, kind: &str, key: &Key, status: Value) -> Result<()> {
        self.state().objects.apply_status(&(kind.to_owned(), key.clone()), None, status).map(drop)
    }

    /// Deletes an object of any kind, as `kubectl delete --wait=false` does.
    pub fn delete(&self, kind: &str, key: &Key) {
        let mut state = self.state();
        state.objects.delete(&(kind.to_owned(), key.clone()), self.clock.now());
        state.objects.collect_garbage(self.clock.now());
    }

    /// Every version stored since the last call, in order, with its kind and key: what watches would deliver.
    pub fn take_versions(&self) -> Vec<Version> {
        let versions = self.state().objects.take_changes();
        versions.into_iter().map(|((kind, key), object)| Version { kind, key, object }).collect()
    }

    /// Kinds and keys of objects that changed since the last call, in order.
    pub fn take_changes(&self) -> Vec<(String, Key)> {
        self.take_versions().into_iter().map(|version| (version.kind, version.key)).collect()
    }

    /// All events published so far.
    pub fn events(&self) -> Vec<ObjectEvent> {
        self.state().events.clone()
    }

    /// Whether the machine index stops following changes from now on, like a watch that lags behind.
    pub fn let_index_lag(&self, behind: bool) {
        self.state().index_is_stale = behind;
    }

    /// Whether reads of Secrets fail from now on.
    pub fn hide_secrets(&self, hidden: bool) {
        self.state().secrets_are_hidden = hidden;
    }

    /// Whether the API server of a workload cluster answers from now on.
    pub fn workload_answers(&self, cluster: &Key, answers: bool) {
        let mut state = self.state();
        if answers {
            state.answering.insert(cluster.clone());
        } else {
            state.answering.remove(cluster);
        }
    }

    /// Puts a Node into a workload cluster.
    pub fn put_node(&self, cluster: &Key, mut node: Node) {
        let mut state = self.state();
        state.node_versions += 1;
        node.resource_version = state.node_versions.to_string();
        state.nodes.insert((cluster.clone(), node.name.clone()), node);
    }

    /// A Node of a workload cluster.
    pub fn node_of(&self, cluster: &Key, name: &str) -> Option<Node> {
        self.state().nodes.get(&(cluster.clone(), name.to_owned())).cloned()
    }

    /// Puts an object into a workload cluster as it is, including its status.
    pub fn put_workload_object(&self, cluster: &Key, object: Value) {
        if let Some(which) = WorkloadRef::of(&object) {
            self.state().workloads.insert((cluster.clone(), which), object);
        }
    }

    pub fn delete_workload_object(&self, cluster: &Key, which: &WorkloadRef) {
        self.state().workloads.remove(&(cluster.clone(), which.clone()));
    }

    /// All objects of a workload cluster other than Nodes.
    pub fn workload_objects(&self, cluster: &Key) -> Vec<Value> {
        let state = self.state();
        let of_cluster = state.workloads.iter().filter(|((of, _), _)| of == cluster);
        of_cluster.map(|(_, object)| object.clone()).collect()
    }

    fn read<T: DeserializeOwned>(&self, kind: &str, key: &Key) -> Result<Option<T>> {
        self.object(kind, key).map(|object| decode(kind, key, object)).transpose()
    }

    /// Changes a Node that still has the version that was read, and increments the version.
    fn change_node(
        &self,
        cluster: &Key,
        node: &Node,
        doing: &str,
        change: impl FnOnce(&mut Node) -> Result<()>,
    ) -> Result<()> {
        let mut state = self.answering(cluster)?;
        let version = state.node_versions + 1;
        let Some(stored) = state.nodes.get_mut(&(cluster.clone(), node.name.clone())) else {
            return Err(Error::new(ErrorKind::NotFound, doing, "it does not exist"));
        };
        if stored.resource_version != node.resource_version {
            return Err(Error::new(ErrorKind::Conflict, doing, "the object has been modified"));
        }
        change(stored)?;
        stored.resource_version = version.to_string();
        state.node_versions = version;
        Ok(())
    }

    fn answering(&self, cluster: &Key) -> Result<MutexGuard<'_, State>> {
        let state = self.state();
        if state.answering.contains(cluster) {
            return Ok(state);
        }
        let doing = format!("reach the API server of the cluster {cluster}");
        Err(Error::new(ErrorKind::Unavailable, doing, "it does not answer"))
    }
}

/// The effect of server-side apply on our fields: maps are merged, everything else is replaced.
fn applied(target: &mut Value, manifest: &Value) {
    match (target.as_object_mut(), manifest.as_object()) {
        (Some(target), Some(fields)) => {
            for (name, value) in fields {
                applied(target.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        _ => *target = manifest.clone(),
    }
}

/// A stored MaasMachine, decoded once for each of its versions.
fn machine(
    decoded: &mut BTreeMap<Key, (Value, Arc<MaasMachine>)>,
    key: &Key,
    object: &Value,
) -> Result<Arc<MaasMachine>> {
    let version = &object["metadata"]["resourceVersion"];
    if let Some((of, machine)) = decoded.get(key)
        && of == version
    {
        return Ok(machine.clone());
    }
    let machine: Arc<MaasMachine> = Arc::new(decode("MaasMachine", key, object.clone())?);
    decoded.insert(key.clone(), (version.clone(), machine.clone()));
    Ok(machine)
}

fn decode<T: DeserializeOwned>(kind: &str, key: &Key, object: Value) -> Result<T> {
    serde_json::from_value(object).map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("read the {kind} {key}"), "it cannot be understood").caused_by(error)
    })
}

fn id(kind: Kind, key: &Key) -> Id {
    (kind.as_str().to_owned(), key.clone())
}

#[async_trait]
impl Kubernetes for MemoryKubernetes {
    async fn maas_machine(&self, key: &Key) -> Result<Option<MaasMachine>> {
        let State { objects, decoded, .. } = &mut *self.state();
        let object = objects.get("MaasMachine", key);
        object.map(|object| machine(decoded, key, object).map(|machine| machine.as_ref().clone())).transpose()
    }

    async fn maas_cluster(&self, key: &Key) -> Result<Option<MaasCluster>> {
        self.read("MaasCluster", key)
    }

    async fn cluster(&self, key: &Key) -> Result<Option<Cluster>> {
        self.read("Cluster", key)
    }

    async fn machine(&self, key: &Key, _uid: &str) -> Result<Option<Machine>> {
        self.read("Machine", key)
    }

    async fn maas_machines(&self, of_cluster: Option<&Key>) -> Result<Vec<Arc<MaasMachine>>> {
        let State { objects, decoded, .. } = &mut *self.state();
        let belongs = |key: &Key, object: &Value| {
            of_cluster.is_none_or(|cluster| {
                key.namespace == cluster.namespace
                    && object["metadata"]["labels"][CLUSTER_NAME_LABEL] == cluster.name.as_str()
            })
        };
        let found = objects.of_kind("MaasMachine").filter(|(key, object)| belongs(key, object));
        found.map(|(key, object)| machine(decoded, key, object)).collect()
    }

    async fn maas_clusters(&self) -> Result<Vec<Arc<MaasCluster>>> {
        let state = self.state();
        let found = state.objects.of_kind("MaasCluster");
        found.map(|(key, object)| decode("MaasCluster", key, object.clone()).map(Arc::new)).collect()
    }

    async fn machine_index(&self) -> Result<MachineIndex> {
        let machines = self.maas_machines(None).await?;
        let state = self.state();
        if !state.index_is_stale {
            state.machine_index.replace(machines.iter().map(Arc::as_ref));
        }
        Ok(state.machine_index.clone())
    }

    async fn secret(&self, key: &Key) -> Result<Option<SecretValues>> {
        if self.state().secrets_are_hidden {
            return Err(Error::new(ErrorKind::Unavailable, format!("read Secret {key}"), "there is no answer"));
        }
        let Some(object) = self.object("Secret", key) else { return Ok(None) };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let data = object["data"].as_object().into_iter().flatten();
        let data = data.map(|(name, value)| (name.clone(), BASE64_STANDARD.decode(text(value)).unwrap_or_default()));
        let plain = object["stringData"].as_object().into_iter().flatten();
        let plain = plain.map(|(name, value)| (name.clone(), text(value).into_bytes()));
        let metadata = &object["metadata"];
        Ok(Some(SecretValues::new(text(&metadata["uid"]), text(&metadata["resourceVersion"]), data.chain(plain))))
    }

    async fn config_map(&self, key: &Key) -> Result<Option<BTreeMap<String, String>>> {
        Ok(self.object("ConfigMap", key).map(|object| {
            let data = object["data"].as_object().into_iter().flatten();
            data.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
        }))
    }

    async fn patch(&self, kind: Kind, key: &Key, guard: &Guard, mut patch: Value) -> Result<Value> {
        if !patch["metadata"].is_object() {
            patch["metadata"] = json!({});
        }
        patch["metadata"]["resourceVersion"] = json!(guard.resource_version);
        let mut state = self.state();
        let stored = state.objects.patch(&id(kind, key), &patch)?;
        state.objects.collect_garbage(self.clock.now());
        Ok(stored)
    }

    async fn apply_status(&self, kind: Kind, key: &Key, guard: &Guard, status: Value) -> Result<Guard> {
        self.state().objects.apply_status(&id(kind, key), Some(guard), status)
    }

    async fn publish(&self, event: &ObjectEvent) -> Result<()> {
        self.state().events.push(event.clone());
        Ok(())
    }

    async fn workload_version(&self, cluster: &Key) -> Result<String> {
        self.answering(cluster).map(|_| "v1.36.4".to_owned())
    }

    async fn node(&self, cluster: &Key, name: &str) -> Result<Option<Node>> {
        Ok(self.answering(cluster)?.nodes.get(&(cluster.clone(), name.to_owned())).cloned())
    }

    async fn name_node(
        &self,
        cluster: &Key,
        node: &Node,
        provider_id: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<()> {
        let doing = format!("set the provider ID of the Node {} of the cluster {cluster}", node.name);
        self.change_node(cluster, node, &doing, |stored| {
            if stored.provider_id.as_deref().is_some_and(|before| before != provider_id) {
                return Err(Error::new(ErrorKind::Refused, &doing, "spec.providerID cannot be replaced"));
            }
            stored.provider_id = Some(provider_id.to_owned());
            stored.labels.extend(labels.clone());
            Ok(())
        })
    }

    async fn nodes(&self, cluster: &Key) -> Result<Vec<Node>> {
        let state = self.answering(cluster)?;
        Ok(state.nodes.iter().filter(|((of, _), _)| of == cluster).map(|(_, node)| node.clone()).collect())
    }

    async fn annotate_node(&self, cluster: &Key, node: &Node, name: &str, value: &str) -> Result<()> {
        let doing = format!("annotate the Node {} of the cluster {cluster}", node.name);
        self.change_node(cluster, node, &doing, |stored| {
            stored.annotations.insert(name.to_owned(), value.to_owned());
            Ok(())
        })
    }

    async fn workload_object(&self, cluster: &Key, which: &WorkloadRef) -> Result<Option<Value>> {
        Ok(self.answering(cluster)?.workloads.get(&(cluster.clone(), which.clone())).cloned())
    }

    async fn workload_apply(&self, cluster: &Key, manifest: &Value) -> Result<()> {
        let Some(which) = WorkloadRef::of(manifest) else {
            return Err(Error::new(ErrorKind::Refused, "apply a manifest", "it names no object"));
        };
        let mut state = self.answering(cluster)?;
        let stored = state.workloads.entry((cluster.clone(), which)).or_insert_with(|| json!({}));
        let before = stored.clone();
        applied(stored, manifest);
        if stored["spec"] != before["spec"] {
            let generation = before["metadata"]["generation"].as_u64().unwrap_or(0) + 1;
            stored["metadata"]["generation"] = json!(generation);
        }
        Ok(())
    }

    async fn workload_serves(&self, cluster: &Key, _: &str, _: &str) -> Result<bool> {
        self.answering(cluster).map(|_| true)
    }

    async fn create_secret(&self, secret: &NewSecret) -> Result<()> {
        let values: BTreeMap<&String, &str> =
            secret.values.iter().map(|(name, value)| (name, value.expose_secret())).collect();
        let metadata = json!({
            "name": secret.key.name, "namespace": secret.key.namespace, "labels": secret.labels,
            "annotations": secret.annotations,
        });
        self.create(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "immutable": true, "stringData": values,
        }))
        .map(drop)
    }
}
