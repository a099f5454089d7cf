//! The port to Kubernetes: the few calls that observing and performing make.
//!
//! It has two implementations: [`KubeClient`] talks to an API server, `MemoryKubernetes` is an in-memory one for tests
//! (feature `test-support`). One suite of contract tests (`tests/port_contract`) runs against both, so that they cannot
//! drift apart.

mod bounded;
mod events;
mod kube_client;
mod kubeconfig;
#[cfg(any(test, feature = "test-support"))]
mod memory;
mod owners;
mod workload;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use capmaas_api::capi::{Cluster, Machine};
use capmaas_api::{MaasCluster, MaasMachine};
use kube::ResourceExt as _;
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use crate::key::Key;
use crate::machine_index::MachineIndex;
pub use kube_client::KubeClient;
pub(crate) use kube_client::says_absent;
#[cfg(any(test, feature = "test-support"))]
pub use memory::{MemoryKubernetes, Version};
pub use owners::Owners;
pub use workload::Nodes;

/// The kinds that we write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    MaasCluster,
    MaasMachine,
}

impl Kind {
    /// As written in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaasCluster => "MaasCluster",
            Self::MaasMachine => "MaasMachine",
        }
    }
}

/// A kind that we write.
pub trait OwnKind:
    kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope> + DeserializeOwned
{
    const KIND: Kind;
}

impl OwnKind for MaasCluster {
    const KIND: Kind = Kind::MaasCluster;
}

impl OwnKind for MaasMachine {
    const KIND: Kind = Kind::MaasMachine;
}

/// The version of an object that a write applies to. An object that has changed since, or that was deleted and
/// recreated under the same name, is not written: [`ErrorKind::Conflict`]. (A UID would guard less: the API server
/// ignores it in a write of the status.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// `metadata.resourceVersion`.
    pub resource_version: String,
}

impl Guard {
    /// The guard of an object as it was read.
    pub fn of<K: kube::Resource>(object: &K) -> Self {
        Self::of_version(object.resource_version())
    }

    fn of_version(version: Option<String>) -> Self {
        Self { resource_version: version.unwrap_or_default() }
    }
}

/// The data of a Secret. `Debug` prints no value.
#[derive(Clone, Debug)]
pub struct SecretValues {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`: if it differs, the content may differ.
    pub resource_version: String,
    values: BTreeMap<String, SecretSlice<u8>>,
}

impl SecretValues {
    pub fn new(uid: String, resource_version: String, values: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let values = values.into_iter().map(|(name, value)| (name, SecretSlice::from(value))).collect();
        Self { uid, resource_version, values }
    }

    /// A raw value.
    pub fn bytes(&self, name: &str) -> Option<&SecretSlice<u8>> {
        self.values.get(name)
    }

    /// A value as text; `None` if it is absent or not UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).and_then(|value| std::str::from_utf8(value.expose_secret()).ok())
    }
}

/// An event about an object, for `kubectl get events`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectEvent {
    /// Kind of the involved object.
    pub kind: Kind,
    /// The involved object.
    pub key: Key,
    /// `metadata.uid` of the involved object.
    pub uid: String,
    /// Something that a person should look at.
    pub warning: bool,
    /// One CamelCase word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// A Node of a workload cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `spec.providerID`, unless it is empty.
    pub provider_id: Option<String>,
    /// Its addresses and names, whatever their type.
    pub addresses: Vec<String>,
    pub annotations: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
}

/// A Secret to be created. `Debug` prints no value.
#[derive(Clone, Debug)]
pub struct NewSecret {
    pub key: Key,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub values: BTreeMap<String, SecretString>,
}

/// Identifies an object of a workload cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkloadRef {
    /// `v1`, `apps/v1`, …
    pub api_version: String,
    /// As written in manifests.
    pub kind: String,
    /// `None` for cluster-scoped kinds.
    pub namespace: Option<String>,
    pub name: String,
}

impl WorkloadRef {
    /// The object that a manifest describes; `None` if it lacks a field.
    pub fn of(manifest: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some(Self {
            api_version: text(&manifest["apiVersion"])?,
            kind: text(&manifest["kind"])?,
            namespace: text(&manifest["metadata"]["namespace"]),
            name: text(&manifest["metadata"]["name"])?,
        })
    }
}

impl fmt::Display for WorkloadRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// Why a call failed, classified by what the caller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The object does not exist (writes only; a read returns `None`).
    NotFound,
    /// The object has changed since it was read, or is a different one: read again.
    Conflict,
    /// The API server rejects the request.
    Refused,
    /// We lack the permission.
    Denied,
    /// The API server did not answer, or answered with something else. Nothing is known; a write may have happened.
    Unavailable,
}

/// A failed call.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing}: {why}")]
pub struct Error {
    /// What the caller can do about it.
    pub kind: ErrorKind,
    doing: String,
    why: String,
    #[source]
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error without a source.
    pub fn new(kind: ErrorKind, doing: impl Into<String>, why: impl Into<String>) -> Self {
        Self { kind, doing: doing.into(), why: why.into(), source: None }
    }

    /// The same error with its source.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// The same error for another caller that waited for the same answer.
    fn again(&self) -> Self {
        let Self { kind, doing, why, source } = self;
        Self { kind: *kind, doing: doing.clone(), why: why.clone(), source: source.clone() }
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The calls. Reads of one object are live: they see every earlier write. `None` means that the API server reports that
/// the object does not exist; if that cannot be determined, the result is an error.
#[async_trait]
pub trait Kubernetes: Send + Sync + fmt::Debug {
    /// A `MaasMachine` as it is stored now.
    async fn maas_machine(&self, key: &Key) -> Result<Option<MaasMachine>>;

    /// A `MaasCluster` as it is stored now.
    async fn maas_cluster(&self, key: &Key) -> Result<Option<MaasCluster>>;

    /// A `Cluster` as it is stored now.
    async fn cluster(&self, key: &Key) -> Result<Option<Cluster>>;

    /// The `Machine` of this name. From a cache if that has the one with this UID, so it may lag behind; otherwise as
    /// it is stored now, whatever its UID.
    async fn machine(&self, key: &Key, uid: &str) -> Result<Option<Machine>>;

    /// The `MaasMachine`s of a Cluster (by their label), or all that this manager may read. From a cache where there is
    /// one, so it may lag behind.
    async fn maas_machines(&self, of_cluster: Option<&Key>) -> Result<Vec<Arc<MaasMachine>>>;

    /// All `MaasCluster`s that this manager may read. From a cache where there is one, so it may lag behind.
    async fn maas_clusters(&self) -> Result<Vec<Arc<MaasCluster>>>;

    /// The index of what all `MaasMachine`s that this manager may read claim. From a cache where there is one, so it
    /// may lag behind, but no further than [`maas_machines`](Self::maas_machines).
    async fn machine_index(&self) -> Result<MachineIndex>;

    /// The data of a Secret as it is stored now.
    async fn secret(&self, key: &Key) -> Result<Option<SecretValues>>;

    /// The data of a ConfigMap as it is stored now.
    async fn config_map(&self, key: &Key) -> Result<Option<BTreeMap<String, String>>>;

    /// Changes metadata and spec by a merge patch (RFC 7386), if the object still has the guard's version. Returns the
    /// object as stored afterwards. The status is not touched.
    async fn patch(&self, kind: Kind, key: &Key, guard: &Guard, patch: Value) -> Result<Value>;

    /// Replaces the status, if the object still has the guard's version. Afterwards every field is as given and all
    /// other fields are removed, whoever wrote them; conditions of types that are not given are kept. Returns the new
    /// version of the object.
    async fn apply_status(&self, kind: Kind, key: &Key, guard: &Guard, status: Value) -> Result<Guard>;

    /// Publishes an event.
    async fn publish(&self, event: &ObjectEvent) -> Result<()>;

    /// Reads the version of a workload cluster's API server; an error means that it does not answer.
    async fn workload_version(&self, cluster: &Key) -> Result<String>;

    /// A Node of a workload cluster, as it is now.
    async fn node(&self, cluster: &Key, name: &str) -> Result<Option<Node>>;

    /// Sets the provider ID and labels of a Node in one write, if it still has the version that was read.
    async fn name_node(
        &self,
        cluster: &Key,
        node: &Node,
        provider_id: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<()>;

    /// All Nodes of a workload cluster, as they are now.
    async fn nodes(&self, cluster: &Key) -> Result<Vec<Node>>;

    /// Sets an annotation on a Node, if it still has the version that was read.
    async fn annotate_node(&self, cluster: &Key, node: &Node, name: &str, value: &str) -> Result<()>;

    /// An object of a workload cluster, as it is now. A kind that is not served is an error.
    async fn workload_object(&self, cluster: &Key, which: &WorkloadRef) -> Result<Option<Value>>;

    /// Server-side apply of a manifest to a workload cluster: other fields are left alone. Conflicts are forced, so the
    /// manifest's fields become ours.
    async fn workload_apply(&self, cluster: &Key, manifest: &Value) -> Result<()>;

    /// Whether the API server of a workload cluster serves a kind.
    async fn workload_serves(&self, cluster: &Key, api_version: &str, kind: &str) -> Result<bool>;

    /// Creates an immutable Secret; [`ErrorKind::Conflict`] if its name is taken.
    async fn create_secret(&self, secret: &NewSecret) -> Result<()>;
}

/// Typed form of [`Kubernetes::patch`].
pub async fn patch<K: OwnKind>(port: &dyn Kubernetes, key: &Key, guard: &Guard, patch: Value) -> Result<K> {
    let stored = port.patch(K::KIND, key, guard, patch).await?;
    serde_json::from_value(stored).map_err(|error| {
        let doing = format!("read the {} {key}", K::KIND.as_str());
        Error::new(ErrorKind::Unavailable, doing, "its metadata cannot be understood").caused_by(error)
    })
}
