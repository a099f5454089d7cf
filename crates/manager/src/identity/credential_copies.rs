//! Copies of clusters' own credentials in the manager's namespace.
//!
//! When a whole namespace is deleted, the Secret of `spec.identityRef` is deleted immediately while machines still have
//! to be released with it (S13). A finalizer on it would need write access to every Secret in every namespace; a copy
//! needs permissions in the manager's own namespace only, and survives a crash.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use secrecy::ExposeSecret as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::credential_sources::complete;
use super::{Credentials, Fingerprint, Problem};
use crate::kubernetes::{Key, SecretValues};

const LABEL: &str = "infrastructure.cluster.x-k8s.io/kept-identity";
const MAAS_CLUSTER: &str = "infrastructure.cluster.x-k8s.io/maas-cluster";
const CLUSTER: &str = "infrastructure.cluster.x-k8s.io/cluster";
/// Name prefix of the copies.
const COPY: &str = "capmaas-kept-identity-";
/// Name prefixes of all Secrets that the manager keeps per cluster. `spec.identityRef` cannot refer to any of them.
const KEPT: [&str; 2] = [COPY, HOST_KEYS];
/// Name prefix of the Secrets with the key pairs of clusters' hosts, in the manager's namespace.
pub(crate) const HOST_KEYS: &str = "capmaas-host-keys-";
const FIELD_MANAGER: &str = "capmaas-manager/identity";

/// A copy, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The MaasCluster that it was made for.
    pub maas_cluster: Key,
    pub cluster: Key,
}

/// Keeps copies of the credentials that clusters bring.
#[async_trait]
pub trait CredentialCopies: Send + Sync + fmt::Debug {
    /// Keeps a copy for this MaasCluster, which belongs to the Cluster of this name. Sends nothing if the copy is
    /// already up to date.
    ///
    /// Crash safety: the copy has a fixed name and is written again unchanged.
    async fn keep(&self, maas_cluster: &Key, cluster: String, credentials: &Credentials) -> Result<(), Problem>;

    /// The copy for a MaasCluster.
    async fn kept(&self, maas_cluster: &Key) -> Result<Option<Credentials>, Problem>;

    /// The copy for a Cluster, if its MaasCluster is no longer known.
    async fn kept_for_cluster(&self, cluster: &Key) -> Result<Option<Credentials>, Problem>;

    async fn all(&self) -> Result<Vec<Kept>, Problem>;

    async fn forget(&self, maas_cluster: &Key) -> Result<(), Problem>;
}

/// Keeps copies as Secrets.
pub struct KubeCredentialCopies {
    secrets: Api<Secret>,
    namespace: String,
    /// The last state written or read, so that nothing is sent when nothing changed.
    known: Mutex<HashMap<Key, Fingerprint>>,
}

impl KubeCredentialCopies {
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { secrets: Api::namespaced(client, namespace), namespace: namespace.to_owned(), known: Mutex::default() }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Fingerprint>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, name: &str) -> String {
        format!("Secret {}/{name}, the copy of what spec.identityRef named", self.namespace)
    }

    fn credentials(&self, secret: &Secret) -> Option<Credentials> {
        let data = secret.data.clone().unwrap_or_default();
        let values = data.into_iter().map(|(name, value)| (name, value.0));
        let values = SecretValues::new(String::new(), String::new(), values);
        complete(&values, self.place(&secret.name_any()))
    }

    async fn list(&self) -> Result<Vec<Secret>, Problem> {
        let params = ListParams::default().labels(LABEL);
        let list = self
            .secrets
            .list(&params)
            .await
            .map_err(|error| trouble("list the stored copies of credentials", &error))?;
        Ok(list.items)
    }
}

impl fmt::Debug for KubeCredentialCopies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeKeeper").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

#[async_trait]
impl CredentialCopies for KubeCredentialCopies {
    async fn keep(&self, maas_cluster: &Key, cluster: String, credentials: &Credentials) -> Result<(), Problem> {
        let fingerprint = credentials.fingerprint();
        if self.known().get(maas_cluster) == Some(&fingerprint) {
            return Ok(());
        }
        let name = name_for(COPY, maas_cluster);
        let mut data = BTreeMap::from([
            ("maasEndpoint", BASE64_STANDARD.encode(&credentials.endpoint)),
            ("apiKey", BASE64_STANDARD.encode(credentials.key.expose_secret())),
        ]);
        if let Some(authority) = &credentials.authority {
            data.insert("ca.crt", BASE64_STANDARD.encode(authority));
        }
        let body = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {
                "name": name, "namespace": self.namespace, "labels": { LABEL: "" },
                "annotations": { MAAS_CLUSTER: maas_cluster.to_string(), CLUSTER: maas_cluster.beside(cluster).to_string() },
            },
            "data": data,
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        self.secrets.patch(&name, &params, &Patch::Apply(&body)).await.map_err(|error| {
            trouble(&format!("keep a copy of the credentials of MaasCluster {maas_cluster}"), &error)
        })?;
        self.known().insert(maas_cluster.clone(), fingerprint);
        Ok(())
    }

    async fn kept(&self, maas_cluster: &Key) -> Result<Option<Credentials>, Problem> {
        let found = self.secrets.get_opt(&name_for(COPY, maas_cluster)).await;
        let found = found.map_err(|error| trouble("read the stored copy of the credentials", &error))?;
        // The name is only a digest, so the annotation must match too.
        let of = maas_cluster.to_string();
        let found = found.filter(|secret| secret.annotations().get(MAAS_CLUSTER) == Some(&of));
        Ok(found.and_then(|secret| self.credentials(&secret)))
    }

    async fn kept_for_cluster(&self, cluster: &Key) -> Result<Option<Credentials>, Problem> {
        let wanted = cluster.to_string();
        let copies = self.list().await?;
        let copy = copies.iter().find(|secret| secret.annotations().get(CLUSTER) == Some(&wanted));
        Ok(copy.and_then(|secret| self.credentials(secret)))
    }

    async fn all(&self) -> Result<Vec<Kept>, Problem> {
        let read = |secret: &Secret, name: &str| {
            let (namespace, name) = secret.annotations().get(name)?.split_once('/')?;
            Some(Key::new(namespace, name))
        };
        let copies = self.list().await?;
        let kept =
            |secret: &Secret| Some(Kept { maas_cluster: read(secret, MAAS_CLUSTER)?, cluster: read(secret, CLUSTER)? });
        Ok(copies.iter().filter_map(kept).collect())
    }

    async fn forget(&self, maas_cluster: &Key) -> Result<(), Problem> {
        self.known().remove(maas_cluster);
        match self.secrets.delete(&name_for(COPY, maas_cluster), &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(trouble("delete the stored copy of the credentials", &error)),
        }
    }
}

/// A fixed name for any namespace and name: both may have 63 characters and more, and must not be ambiguous when
/// joined.
pub(crate) fn name_for(prefix: &str, maas_cluster: &Key) -> String {
    let digest = Sha256::digest(maas_cluster.to_string());
    digest.iter().take(10).fold(prefix.to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

/// Whether a Secret of this name is one that a manager keeps for one cluster.
pub(super) fn is_kept(name: &str) -> bool {
    KEPT.iter().any(|prefix| name.starts_with(prefix))
}

fn trouble(doing: &str, error: &kube::Error) -> Problem {
    Problem::credentials(format!("cannot {doing}: {error}"))
}

/// Keeps copies in memory, for simulations and tests.
#[derive(Debug, Default)]
pub struct MemoryCredentialCopies {
    copies: Mutex<Vec<(Kept, Credentials)>>,
}

impl MemoryCredentialCopies {
    fn copies(&self) -> std::sync::MutexGuard<'_, Vec<(Kept, Credentials)>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl CredentialCopies for MemoryCredentialCopies {
    async fn keep(&self, maas_cluster: &Key, cluster: String, credentials: &Credentials) -> Result<(), Problem> {
        let kept = Kept { maas_cluster: maas_cluster.clone(), cluster: maas_cluster.beside(cluster) };
        let mut copies = self.copies();
        copies.retain(|(copy, _)| copy.maas_cluster != *maas_cluster);
        copies.push((kept, credentials.clone()));
        Ok(())
    }

    async fn kept(&self, maas_cluster: &Key) -> Result<Option<Credentials>, Problem> {
        Ok(self.copies().iter().find(|(kept, _)| kept.maas_cluster == *maas_cluster).map(|(_, copy)| copy.clone()))
    }

    async fn kept_for_cluster(&self, cluster: &Key) -> Result<Option<Credentials>, Problem> {
        Ok(self.copies().iter().find(|(kept, _)| kept.cluster == *cluster).map(|(_, copy)| copy.clone()))
    }

    async fn all(&self) -> Result<Vec<Kept>, Problem> {
        Ok(self.copies().iter().map(|(kept, _)| kept.clone()).collect())
    }

    async fn forget(&self, maas_cluster: &Key) -> Result<(), Problem> {
        self.copies().retain(|(kept, _)| kept.maas_cluster != *maas_cluster);
        Ok(())
    }
}
