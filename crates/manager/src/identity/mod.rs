//! The MAAS identity of each cluster: credentials are found, tried once, cached, and read again when they change.
//!
//! Which credentials apply; only the first match counts (see `docs/credentials.md`):
//! 1. `spec.identityRef` of the MaasCluster: a Secret in the cluster's namespace, or in one of `--identity-namespaces`;
//! 2. Secret `maas-credentials` (key `apiKey`) with ConfigMap `capmaas-config` (key `maasEndpoint`) in the manager's
//!    namespace;
//! 3. Secret `capmaas-manager-bootstrap-credentials` (keys `MAAS_ENDPOINT`, `MAAS_API_KEY`) there, as the Go provider
//!    has it;
//! 4. the environment: `MAAS_ENDPOINT`, `MAAS_API_KEY`.

mod connections;
mod credential_copies;
mod credential_sources;
mod dns_names;
mod endpoints;
mod reader;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use capmaas_api::cluster::IdentityReference;
use capmaas_api::tolerant::WHOLE_VALUE;
use capmaas_api::{MaasCluster, reasons};
use capmaas_core::Lookup;
use capmaas_core::credentials::{IDENTITY_ANNOTATION, Name, Standing};
use capmaas_core::feed::Entry;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

pub(crate) use connections::entry;
pub use connections::{Connect, over_network};
pub use credential_copies::{CredentialCopies, Kept, KubeCredentialCopies, MemoryCredentialCopies};
pub(crate) use credential_copies::{HOST_KEYS, name_for};
pub(crate) use credential_sources::{CONFIG_MAPS, SECRETS};
pub use credential_sources::{Credentials, EnvironmentCredentials};
pub use dns_names::DnsNames;
pub use endpoints::{AllowedEndpoint, AllowedEndpoints};
pub use reader::MachineReader;

use crate::clock::{Clock, is_recent};
use crate::kubernetes::{Key, Kubernetes};
use connections::Connections;

/// How long credentials are cached where no watch reports changes. A rotated `identityRef` is noticed within this time.
const READ_AGAIN: SignedDuration = SignedDuration::from_secs(30);
/// The same for a lookup that found nothing usable: somebody is probably working on it.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// How this manager finds credentials.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The manager's own namespace.
    pub namespace: String,
    /// Namespaces other than the cluster's own that `spec.identityRef` may refer to.
    pub identity_namespaces: BTreeSet<String>,
    /// Credentials from the environment.
    pub environment: EnvironmentCredentials,
    /// The MAAS servers that may be contacted.
    pub allowed_endpoints: AllowedEndpoints,
}

/// One pair of MAAS server and user, ready for use. Clones share one client with one connection pool.
#[derive(Clone, Debug)]
pub struct Identity {
    pub client: maas_client::Client,
    /// Reads machines by ID, in batches.
    pub machines: MachineReader,
    /// Names in MAAS's DNS.
    pub dns_names: DnsNames,
    /// Endpoint and user, as recorded on objects (S5).
    pub name: Name,
    /// How this identity relates to the one recorded on the MaasCluster (S5).
    pub standing: Standing,
    /// Distinguishes connections: it differs for another endpoint, key or authority. Never shown.
    pub fingerprint: Fingerprint,
    /// Where the credentials are, for messages.
    pub place: String,
    /// The end of MAAS's event log before any machine was read with this identity; `None` if it could not be read.
    pub log_end: Option<LogEnd>,
}

/// The last events of MAAS's log at some time.
#[derive(Clone, Debug)]
pub struct LogEnd {
    /// When they were read.
    pub at: Timestamp,
    /// Enough events to include those that are committed late.
    pub events: Arc<Vec<Entry>>,
}

impl Identity {
    /// The user that the key belongs to.
    pub fn user(&self) -> &str {
        &self.name.user
    }

    /// The URL of the MAAS.
    pub fn endpoint(&self) -> &str {
        &self.name.endpoint
    }

    /// The same identity with another client. It reads without batching: a caller that holds a request slot must not
    /// wait for others' reads.
    #[must_use]
    pub fn with_client(&self, client: maas_client::Client) -> Self {
        Self { machines: MachineReader::alone(client.clone()), client, ..self.clone() }
    }
}

/// A digest of credentials.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint")
    }
}

/// Distinguishes the credentials of a cluster from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    Credentials(Fingerprint),
    /// No usable credentials, for this reason.
    Problem(String),
}

/// Why there is no identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// For the condition: `CredentialsInvalid` or `MAASUnavailable`.
    pub reason: &'static str,
    /// For people. Contains no secret.
    pub message: String,
    /// Nobody has provided credentials yet.
    pub nothing_there: bool,
    /// Kubernetes did not answer: the credentials may still be valid.
    pub not_told: bool,
}

impl Problem {
    pub(crate) fn credentials(message: impl Into<String>) -> Self {
        Self { reason: reasons::CREDENTIALS_INVALID, message: message.into(), nothing_there: false, not_told: false }
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self { reason: reasons::MAAS_UNAVAILABLE, message: message.into(), nothing_there: false, not_told: false }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Where a cluster's credentials are looked up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CredentialSource {
    /// The manager's own.
    Manager,
    Secret(Key),
}

struct Look {
    at: Timestamp,
    found: Result<Arc<Credentials>, Problem>,
}

/// All identities in use. Clones share the same state.
#[derive(Clone)]
pub struct Identities {
    inner: Arc<Inner>,
}

struct Inner {
    kubernetes: Arc<dyn Kubernetes>,
    keeper: Arc<dyn CredentialCopies>,
    clock: Clock,
    settings: Settings,
    looks: Mutex<BTreeMap<CredentialSource, Look>>,
    changed: tokio::sync::Notify,
    connections: Connections,
}

impl Identities {
    /// Identities whose credentials are read through `kubernetes` and whose clients `connect` creates.
    pub fn new(
        kubernetes: Arc<dyn Kubernetes>,
        keeper: Arc<dyn CredentialCopies>,
        clock: Clock,
        settings: Settings,
        connect: Connect,
    ) -> Self {
        let connections = Connections::new(connect);
        let (looks, changed) = (Mutex::default(), tokio::sync::Notify::new());
        Self { inner: Arc::new(Inner { kubernetes, keeper, clock, settings, looks, changed, connections }) }
    }

    /// The identity of a cluster. `Absent`: nobody has provided credentials yet. Neither answer says anything about
    /// machines.
    pub async fn resolve(&self, cluster: &MaasCluster) -> Lookup<Identity> {
        lookup(self.check(cluster).await)
    }

    /// The identity of a cluster, or the reason and message for its condition.
    pub async fn check(&self, cluster: &MaasCluster) -> Result<Identity, Problem> {
        let key = Key::of(cluster);
        let source = self.source(cluster)?;
        let recorded = cluster.annotations().get(IDENTITY_ANNOTATION).map(String::as_str);
        let deleting = cluster.metadata.deletion_timestamp.is_some();
        let credentials = match (self.credentials(&source).await, &source) {
            (Ok(credentials), CredentialSource::Manager) => credentials,
            (Ok(credentials), CredentialSource::Secret(_)) => {
                let kept = self.inner.keeper.keep(&key, cluster_of(cluster), &credentials).await;
                match kept {
                    Err(problem) if !deleting => return Err(problem),
                    _ => credentials,
                }
            }
            // The namespace is being deleted and the Secret was deleted first: allocated machines are still released
            // (S13).
            (Err(problem), CredentialSource::Secret(_)) if deleting && problem.nothing_there => {
                match self.inner.keeper.kept(&key).await? {
                    Some(credentials) => Arc::new(credentials),
                    None => return Err(problem),
                }
            }
            (Err(problem), _) => return Err(problem),
        };
        self.identity(&credentials, recorded).await
    }

    /// The identity for a machine whose MaasCluster is gone (S13): the credentials that the cluster used, if they were
    /// its own and a copy was kept, otherwise the manager's. `recorded` is the identity that the machine's own journal
    /// names; unless the identity is the same, a machine that MAAS does not show must not be considered gone (see
    /// [`Identity::standing`]).
    pub async fn resolve_orphan(&self, cluster: &Key, recorded: Option<&str>) -> Lookup<Identity> {
        let credentials = match self.inner.keeper.kept_for_cluster(cluster).await {
            Err(problem) => return Lookup::Unknown(problem.message),
            Ok(Some(credentials)) => Arc::new(credentials),
            Ok(None) => match self.credentials(&CredentialSource::Manager).await {
                Ok(credentials) => credentials,
                Err(problem) => return lookup(Err(problem)),
            },
        };
        lookup(self.identity(&credentials, recorded).await)
    }

    /// The manager's own namespace, which no tenant can read.
    pub fn namespace(&self) -> &str {
        &self.inner.settings.namespace
    }

    /// The identity of the manager's own credentials, for its readiness and its log.
    pub async fn of_manager(&self) -> Result<Identity, Problem> {
        let credentials = self.credentials(&CredentialSource::Manager).await?;
        self.identity(&credentials, None).await
    }

    /// Something in the manager's namespace changed: read the credentials again on the next use.
    pub fn changed(&self) {
        self.looks().clear();
        self.inner.changed.notify_one();
    }

    /// Waits until something in the manager's namespace has changed. For a single listener.
    pub async fn until_changed(&self) {
        self.inner.changed.notified().await;
    }

    /// Distinguishes the credentials that a cluster would get now from others; `None` if Kubernetes does not answer.
    /// MAAS is not contacted.
    pub async fn mark(&self, cluster: &MaasCluster) -> Option<Mark> {
        let source = match self.source(cluster) {
            Ok(source) => source,
            Err(problem) => return Some(Mark::Problem(problem.message)),
        };
        match self.credentials(&source).await {
            Ok(credentials) => Some(Mark::Credentials(credentials.fingerprint())),
            Err(problem) if problem.not_told => None,
            Err(problem) => Some(Mark::Problem(problem.message)),
        }
    }

    /// MAAS refused the key during an operation (401): try it again before the next use.
    pub fn doubt(&self, identity: &Identity) {
        self.looks().clear();
        self.inner.connections.forget(identity.fingerprint);
    }

    /// The identities used recently, most recent first. A rotated key may appear with its predecessor.
    pub fn in_use(&self) -> Vec<Identity> {
        self.inner.connections.in_use(self.inner.clock.now())
    }

    async fn identity(&self, credentials: &Credentials, recorded: Option<&str>) -> Result<Identity, Problem> {
        self.inner.settings.allowed_endpoints.check(credentials)?;
        let mut identity = self.inner.connections.of(credentials, self.inner.clock.now()).await?;
        identity.standing = Standing::of(&identity.name, recorded);
        Ok(identity)
    }

    fn source(&self, cluster: &MaasCluster) -> Result<CredentialSource, Problem> {
        let Some(reference) = reference(cluster)? else { return Ok(CredentialSource::Manager) };
        let own = cluster.namespace().unwrap_or_default();
        let namespace = reference.namespace.clone().unwrap_or_else(|| own.clone());
        if namespace != own && !self.inner.settings.identity_namespaces.contains(&namespace) {
            return Err(Problem::credentials(format!(
                "spec.identityRef points into namespace {namespace}, which is neither the cluster's own nor on the list of \
                 --identity-namespaces"
            )));
        }
        // What is kept for one cluster is never available to another, however the reference is spelled and whichever
        // manager keeps it (S28).
        if credential_copies::is_kept(&reference.name) {
            return Err(Problem::credentials(format!(
                "spec.identityRef names the Secret {namespace}/{}, which a manager keeps for itself; name the Secret that you \
                 created, with keys maasEndpoint and apiKey",
                reference.name
            )));
        }
        Ok(CredentialSource::Secret(Key::new(namespace, &reference.name)))
    }

    async fn credentials(&self, source: &CredentialSource) -> Result<Arc<Credentials>, Problem> {
        let now = self.inner.clock.now();
        if let Some(look) = self.looks().get(source) {
            let lasts = if look.found.is_ok() { READ_AGAIN } else { LOOK_AGAIN };
            if is_recent(look.at, lasts, now) {
                return look.found.clone();
            }
        }
        let kubernetes = self.inner.kubernetes.as_ref();
        let found = match source {
            CredentialSource::Manager => credential_sources::of_manager(kubernetes, &self.inner.settings).await,
            CredentialSource::Secret(key) => credential_sources::of_secret(kubernetes, key).await,
        };
        let found = found.map(Arc::new);
        self.looks().insert(source.clone(), Look { at: now, found: found.clone() });
        found
    }

    fn looks(&self) -> std::sync::MutexGuard<'_, BTreeMap<CredentialSource, Look>> {
        // Still consistent after a panic elsewhere: it only has single inserts and clears.
        self.inner.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identities").field("namespace", &self.inner.settings.namespace).finish_non_exhaustive()
    }
}

fn lookup(found: Result<Identity, Problem>) -> Lookup<Identity> {
    match found {
        Ok(identity) => Lookup::Found(identity),
        Err(problem) if problem.nothing_there => Lookup::Absent,
        Err(problem) => Lookup::Unknown(problem.message),
    }
}

/// The Secret that `spec.identityRef` names. An unreadable reference is not the same as none: the manager's own MAAS
/// may be a different one.
fn reference(cluster: &MaasCluster) -> Result<Option<&IdentityReference>, Problem> {
    let unreadable = |path: &String| path == WHOLE_VALUE || path.split('.').next() == Some("identityRef");
    if cluster.spec.unreadable.iter().any(unreadable) {
        return Err(Problem::credentials("spec.identityRef cannot be read, so it is not known which MAAS is meant"));
    }
    Ok(cluster.spec.identity_ref.as_ref())
}

/// The Cluster that a MaasCluster belongs to; by convention its own name if nothing else is given.
pub(crate) fn cluster_of(cluster: &MaasCluster) -> String {
    let label = cluster.labels().get(capmaas_api::names::CLUSTER_NAME_LABEL).cloned();
    let owner = || capmaas_api::capi::owner(&cluster.metadata, "Cluster").map(|owner| owner.name.clone());
    label.or_else(owner).unwrap_or_else(|| cluster.name_any())
}
