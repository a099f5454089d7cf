//! The port backed by an API server.

mod nodes;
mod owners;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use capmaas_api::capi::{Cluster, Machine};
use capmaas_api::names::CLUSTER_NAME_LABEL;
use capmaas_api::{GROUP, MaasCluster, MaasMachine, VERSION};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use secrecy::ExposeSecret as _;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use self::nodes::{all_nodes, node_of};
use super::events::Recorder;
use super::workload::{Nodes, Workloads};
use super::{
    Error, ErrorKind, Guard, Key, Kind, Kubernetes, NewSecret, Node, ObjectEvent, Result, SecretValues, WorkloadRef,
};
use crate::coalesced_reads::CoalescedReads;
use crate::machine_index::MachineIndex;

/// The field manager of server-side apply.
pub(super) const FIELD_MANAGER: &str = "capmaas-manager";
/// Objects per page of a list.
const PAGE: u32 = 50;
/// A watch of Nodes is reopened after this: it must end before the read timeout of a workload cluster.
const NODE_WATCH_SECONDS: u32 = 8;
/// An API server that has not answered by then counts as unavailable. kube itself would retry for many minutes.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub struct KubeClient {
    client: Client,
    core_version: watch::Receiver<String>,
    namespace: Option<String>,
    machines: Option<(Store<MaasMachine>, MachineIndex)>,
    core_machines: Option<Store<Machine>>,
    recorder: Recorder,
    workloads: Workloads,
    clusters: CoalescedReads<Key, Option<Cluster>, Error>,
    maas_clusters: CoalescedReads<Key, Option<MaasCluster>, Error>,
    all_maas_clusters: Option<Store<MaasCluster>>,
}

impl fmt::Debug for KubeClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubePort").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl KubeClient {
    /// A port that reads Cluster API's kinds in the current value of `core_version`.
    pub fn new(client: Client, core_version: watch::Receiver<String>) -> Self {
        let recorder = Recorder::new(client.clone(), std::env::var("POD_NAME").ok());
        Self {
            client,
            core_version,
            namespace: None,
            machines: None,
            core_machines: None,
            recorder,
            workloads: Workloads::default(),
            clusters: CoalescedReads::default(),
            maas_clusters: CoalescedReads::default(),
            all_maas_clusters: None,
        }
    }

    /// Limits the port to this namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: Option<String>) -> Self {
        self.namespace = namespace;
        self
    }

    /// Serves lists of `MaasMachine`s and their index from a watch cache.
    #[must_use]
    pub fn with_machines(mut self, store: Store<MaasMachine>, machine_index: MachineIndex) -> Self {
        self.machines = Some((store, machine_index));
        self
    }

    /// Serves lists of `MaasCluster`s from a watch cache.
    #[must_use]
    pub fn with_clusters(mut self, store: Store<MaasCluster>) -> Self {
        self.all_maas_clusters = Some(store);
        self
    }

    /// Serves Cluster API's `Machine`s from a watch cache.
    #[must_use]
    pub fn with_core_machines(mut self, store: Store<Machine>) -> Self {
        self.core_machines = Some(store);
        self
    }

    fn core_version(&self) -> String {
        self.core_version.borrow().clone()
    }

    fn objects(&self, kind: Kind, key: &Key) -> Api<DynamicObject> {
        let plural = match kind {
            Kind::MaasCluster => "maasclusters",
            Kind::MaasMachine => "maasmachines",
        };
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, kind.as_str()), plural);
        Api::namespaced_with(self.client.clone(), &key.namespace, &resource)
    }

    async fn workload(&self, cluster: &Key) -> Result<Client> {
        let name = format!("{}-kubeconfig", cluster.name);
        let doing = || format!("reach the API server of the cluster {cluster}");
        let Some(secret) = self.secret(&cluster.beside(&name)).await? else {
            return Err(Error::new(ErrorKind::Unavailable, doing(), format!("the Secret {name} does not exist yet")));
        };
        self.workloads.client(cluster, &secret).await
    }
}

#[async_trait]
impl Kubernetes for KubeClient {
    async fn maas_machine(&self, key: &Key) -> Result<Option<MaasMachine>> {
        let api: Api<MaasMachine> = Api::namespaced(self.client.clone(), &key.namespace);
        read(format!("read the MaasMachine {key}"), api.get(&key.name)).await
    }

    async fn maas_cluster(&self, key: &Key) -> Result<Option<MaasCluster>> {
        let api: Api<MaasCluster> = Api::namespaced(self.client.clone(), &key.namespace);
        let read = read(format!("read the MaasCluster {key}"), api.get(&key.name));
        self.maas_clusters.read(key, read).await.map_err(|error| error.again())
    }

    async fn cluster(&self, key: &Key) -> Result<Option<Cluster>> {
        let resource = Cluster::api_resource(&self.core_version());
        let api: Api<Cluster> = Api::namespaced_with(self.client.clone(), &key.namespace, &resource);
        let read = read(format!("read the Cluster {key}"), api.get(&key.name));
        self.clusters.read(key, read).await.map_err(|error| error.again())
    }

    async fn machine(&self, key: &Key, uid: &str) -> Result<Option<Machine>> {
        let resource = Machine::api_resource(&self.core_version());
        let object = ObjectRef::new_with(&key.name, resource.clone()).within(&key.namespace);
        let watched = self.core_machines.as_ref().and_then(|store| store.get(&object));
        if let Some(machine) = watched.filter(|machine| machine.metadata.uid.as_deref() == Some(uid)) {
            return Ok(Some(machine.as_ref().clone()));
        }
        let api: Api<Machine> = Api::namespaced_with(self.client.clone(), &key.namespace, &resource);
        read(format!("read the Machine {key}"), api.get(&key.name)).await
    }

    async fn maas_machines(&self, of_cluster: Option<&Key>) -> Result<Vec<Arc<MaasMachine>>> {
        let belongs = |machine: &MaasMachine| {
            of_cluster.is_none_or(|cluster| {
                machine.namespace().as_ref() == Some(&cluster.namespace)
                    && machine.labels().get(CLUSTER_NAME_LABEL) == Some(&cluster.name)
            })
        };
        if let Some((store, _)) = &self.machines {
            return Ok(store.state().into_iter().filter(|machine| belongs(machine)).collect());
        }
        let namespace = of_cluster.map(|cluster| &cluster.namespace).or(self.namespace.as_ref());
        let api: Api<MaasMachine> = match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let mut page = ListParams::default().limit(PAGE);
        if let Some(cluster) = of_cluster {
            page = page.labels(&format!("{CLUSTER_NAME_LABEL}={}", cluster.name));
        }
        let mut machines = Vec::new();
        loop {
            let list = within("list MaasMachines".to_owned(), api.list(&page)).await?;
            machines.extend(list.items.into_iter().map(Arc::new));
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(machines),
            }
        }
    }

    async fn maas_clusters(&self) -> Result<Vec<Arc<MaasCluster>>> {
        if let Some(store) = &self.all_maas_clusters {
            return Ok(store.state());
        }
        let api: Api<MaasCluster> = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let list = within("list MaasClusters".to_owned(), api.list(&ListParams::default())).await?;
        Ok(list.items.into_iter().map(Arc::new).collect())
    }

    async fn machine_index(&self) -> Result<MachineIndex> {
        match &self.machines {
            Some((_, machine_index)) => Ok(machine_index.clone()),
            None => Ok(MachineIndex::of(self.maas_machines(None).await?.iter().map(Arc::as_ref))),
        }
    }

    async fn secret(&self, key: &Key) -> Result<Option<SecretValues>> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
        let secret = read(format!("read the Secret {key}"), api.get(&key.name)).await?;
        Ok(secret.map(|secret| {
            let (uid, version) = (secret.uid().unwrap_or_default(), secret.resource_version().unwrap_or_default());
            SecretValues::new(uid, version, secret.data.into_iter().flatten().map(|(name, value)| (name, value.0)))
        }))
    }

    async fn config_map(&self, key: &Key) -> Result<Option<BTreeMap<String, String>>> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &key.namespace);
        let map = read(format!("read the ConfigMap {key}"), api.get(&key.name)).await?;
        Ok(map.map(|map| map.data.unwrap_or_default()))
    }

    async fn patch(&self, kind: Kind, key: &Key, guard: &Guard, mut patch: Value) -> Result<Value> {
        let doing = format!("change the {} {key}", kind.as_str());
        guarded(&mut patch, guard);
        let api = self.objects(kind, key);
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let stored = within(doing.clone(), api.patch(&key.name, &parameters, &Patch::Merge(&patch))).await?;
        serde_json::to_value(stored).map_err(|error| not_understood(doing, error))
    }

    async fn apply_status(&self, kind: Kind, key: &Key, guard: &Guard, status: Value) -> Result<Guard> {
        let doing = format!("write the status of the {} {key}", kind.as_str());
        let api = self.objects(kind, key);
        let body = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind.as_str(),
            "metadata": { "name": key.name, "resourceVersion": guard.resource_version }, "status": status,
        });
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let mut stored = within(doing.clone(), api.patch_status(&key.name, &parameters, &Patch::Apply(&body))).await?;
        // Server-side apply keeps fields of other writers, such as the Go provider.
        let left: Map<String, Value> = fields(stored.data.get("status"))
            .filter(|name| status.get(name).is_none())
            .map(|name| (name.clone(), Value::Null))
            .collect();
        if !left.is_empty() {
            let body = json!({ "metadata": { "resourceVersion": stored.resource_version() }, "status": left });
            let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            stored = within(doing, api.patch_status(&key.name, &parameters, &Patch::Merge(&body))).await?;
        }
        Ok(Guard::of_version(stored.resource_version()))
    }

    async fn publish(&self, event: &ObjectEvent) -> Result<()> {
        within(format!("publish an event about {}", event.key), self.recorder.publish(event)).await
    }

    async fn workload_version(&self, cluster: &Key) -> Result<String> {
        let client = self.workload(cluster).await?;
        let doing = format!("ask the API server of the cluster {cluster} for its version");
        Ok(within(doing, client.apiserver_version()).await?.git_version)
    }

    async fn node(&self, cluster: &Key, name: &str) -> Result<Option<Node>> {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.workload(cluster).await?);
        let doing = format!("read the Node {name} of the cluster {cluster}");
        Ok(read(doing, nodes.get(name)).await?.map(node_of))
    }

    async fn name_node(
        &self,
        cluster: &Key,
        node: &Node,
        provider_id: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<()> {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.workload(cluster).await?);
        let doing = format!("set the provider ID of the Node {} of the cluster {cluster}", node.name);
        let body = json!({
            "metadata": { "resourceVersion": node.resource_version, "labels": labels },
            "spec": { "providerID": provider_id },
        });
        within(doing, nodes.patch(&node.name, &PatchParams::default(), &Patch::Merge(&body))).await?;
        Ok(())
    }

    async fn nodes(&self, cluster: &Key) -> Result<Vec<Node>> {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.workload(cluster).await?);
        all_nodes(&nodes, cluster).await
    }

    async fn annotate_node(&self, cluster: &Key, node: &Node, name: &str, value: &str) -> Result<()> {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.workload(cluster).await?);
        let doing = format!("annotate the Node {} of the cluster {cluster}", node.name);
        let body =
            json!({ "metadata": { "resourceVersion": node.resource_version, "annotations": { (name): value } } });
        within(doing, nodes.patch(&node.name, &PatchParams::default(), &Patch::Merge(&body))).await?;
        Ok(())
    }

    async fn workload_object(&self, cluster: &Key, which: &WorkloadRef) -> Result<Option<Value>> {
        let doing = format!("read the {which} of the cluster {cluster}");
        let api = workload_api(self.workload(cluster).await?, which);
        let found = read(doing.clone(), api.get(&which.name)).await?;
        found.map(|object| serde_json::to_value(object).map_err(|error| not_understood(doing, error))).transpose()
    }

    async fn workload_apply(&self, cluster: &Key, manifest: &Value) -> Result<()> {
        let Some(which) = WorkloadRef::of(manifest) else {
            return Err(Error::new(ErrorKind::Refused, "apply a manifest", "it names no object"));
        };
        let doing = format!("apply the {which} to the cluster {cluster}");
        let api = workload_api(self.workload(cluster).await?, &which);
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        within(doing, api.patch(&which.name, &parameters, &Patch::Apply(manifest))).await?;
        Ok(())
    }

    async fn workload_serves(&self, cluster: &Key, api_version: &str, kind: &str) -> Result<bool> {
        let client = self.workload(cluster).await?;
        let doing = format!("ask the cluster {cluster} whether it serves {kind}");
        let served = async {
            if api_version.contains('/') {
                client.list_api_group_resources(api_version).await
            } else {
                client.list_core_api_resources(api_version).await
            }
        };
        match tokio::time::timeout(DEADLINE, served).await {
            Ok(Ok(list)) => Ok(list.resources.iter().any(|resource| resource.kind == kind)),
            // The API server's answer for a group that it does not serve.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(false),
            Ok(Err(error)) => Err(sorted(doing, error)),
            Err(_) => Err(Error::new(ErrorKind::Unavailable, doing, "it did not answer in time")),
        }
    }

    async fn create_secret(&self, secret: &NewSecret) -> Result<()> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &secret.key.namespace);
        let metadata = ObjectMeta {
            name: Some(secret.key.name.clone()),
            labels: Some(secret.labels.clone()),
            annotations: Some(secret.annotations.clone()),
            ..ObjectMeta::default()
        };
        let value = |value: &secrecy::SecretString| value.expose_secret().to_owned();
        let body = Secret {
            metadata,
            immutable: Some(true),
            string_data: Some(secret.values.iter().map(|(name, it)| (name.clone(), value(it))).collect()),
            ..Secret::default()
        };
        within(format!("create the Secret {}", secret.key), api.create(&PostParams::default(), &body)).await?;
        Ok(())
    }
}

#[async_trait]
impl Nodes for KubeClient {
    async fn names(&self, cluster: &Key) -> Result<BoxStream<'static, String>> {
        let nodes: Api<PartialObjectMeta<k8s_openapi::api::core::v1::Node>> = Api::all(self.workload(cluster).await?);
        let changes = watcher::watcher(nodes, watcher::Config::default().timeout(NODE_WATCH_SECONDS).page_size(PAGE));
        let answered =
            changes.take_while(|change| std::future::ready(change.is_ok())).filter_map(|change| async { change.ok() });
        let names = answered.filter_map(|change| async {
            match change {
                watcher::Event::Apply(node) | watcher::Event::InitApply(node) => Some(node.name_any()),
                watcher::Event::Delete(_) | watcher::Event::Init | watcher::Event::InitDone => None,
            }
        });
        Ok(names.boxed())
    }
}

fn workload_api(client: Client, which: &WorkloadRef) -> Api<DynamicObject> {
    let (group, version) = which.api_version.split_once('/').unwrap_or(("", &which.api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &which.kind));
    match &which.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

fn not_understood(doing: String, error: serde_json::Error) -> Error {
    Error::new(ErrorKind::Unavailable, doing, "the answer cannot be understood").caused_by(error)
}

/// Adds the guard's version to a patch.
fn guarded(patch: &mut Value, guard: &Guard) {
    if let Value::Object(fields) = patch {
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Value::Object(metadata) = metadata {
            metadata.insert("resourceVersion".to_owned(), json!(guard.resource_version));
        }
    }
}

fn fields(value: Option<&Value>) -> impl Iterator<Item = &String> {
    value.and_then(Value::as_object).into_iter().flat_map(Map::keys)
}

/// Runs a call with a deadline, and classifies errors.
pub(super) async fn within<T>(doing: String, call: impl Future<Output = kube::Result<T>>) -> Result<T> {
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(sorted(doing, error)),
        Err(_) => Err(Error::new(
            ErrorKind::Unavailable,
            doing,
            format!("the API server did not answer within {} s", DEADLINE.as_secs()),
        )),
    }
}

/// Whether the API server's answer is about one object. A kind that is not served yields 404 as well.
fn is_about_object(status: &kube::core::Status) -> bool {
    status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// Whether the API server says that this very object does not exist (S1).
pub(crate) fn says_absent<T>(answer: &kube::Result<T>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 404 && is_about_object(status))
}

fn sorted(doing: String, error: kube::Error) -> Error {
    let (kind, why) = match &error {
        kube::Error::Api(status) => {
            let kind = match status.code {
                404 if is_about_object(status) => ErrorKind::NotFound,
                409 => ErrorKind::Conflict,
                400 | 422 => ErrorKind::Refused,
                401 | 403 => ErrorKind::Denied,
                _ => ErrorKind::Unavailable,
            };
            // The peer is not an API server: its text is not passed on (S28).
            let why = if status.reason == "Failed to parse error data" {
                format!("unexpected response from API server: HTTP {}", status.code)
            } else {
                status.message.clone()
            };
            (kind, why)
        }
        kube::Error::SerdeError(_) => (ErrorKind::Unavailable, "the answer cannot be understood".to_owned()),
        // The outer layers only say "ServiceError: client error (Connect)".
        other => (ErrorKind::Unavailable, innermost(other).to_string()),
    };
    Error::new(kind, doing, why).caused_by(error)
}

/// The root cause.
fn innermost(error: &kube::Error) -> &dyn std::error::Error {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    innermost
}

/// Reads one object. A kind that is not served (any more) answers 404 too: unknown, not absent (S1).
async fn read<T>(doing: String, call: impl Future<Output = kube::Result<T>>) -> Result<Option<T>> {
    match within(doing, call).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
