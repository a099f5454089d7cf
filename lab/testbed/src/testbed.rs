//! One testbed: a cluster of real components.

use std::{
    ffi::OsStr,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, api::PostParams};
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::{
    apply,
    cluster_api::{CapiOptions, ClusterApi, Target},
    control_plane::{self, ControlPlane, Listen, new_client},
    error::{Doing, Error, Result, create_dir},
    kubeconfig,
    pki::CertificateAuthority,
    process::{Process, run},
    resolver,
    sandbox::Sandbox,
    tools::ToolSet,
    versions::{CapiVersion, KubernetesVersion},
};

/// The grace period of each process in an orderly stop.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// A day: longer than any test.
const TOKEN_SECONDS: i64 = 86_400;

/// What to start. Each `start` creates a separate testbed.
#[derive(Clone, Debug, Default)]
pub struct TestbedBuilder {
    kubernetes: KubernetesVersion,
    controller_manager: bool,
    cluster_api: Option<CapiOptions>,
    listen: Listen,
    names: Vec<String>,
    name_server: Option<IpAddr>,
    authority: Option<Arc<CertificateAuthority>>,
    audit: bool,
}

impl TestbedBuilder {
    /// The Kubernetes version; the newest by default. See also [`KubernetesVersion::from_env`].
    #[must_use]
    pub fn kubernetes(mut self, version: KubernetesVersion) -> Self {
        self.kubernetes = version;
        self
    }

    /// Starts kube-controller-manager: garbage collection, namespace deletion, ServiceAccounts, aggregated roles,
    /// Deployments, DaemonSets.
    #[must_use]
    pub fn controller_manager(mut self, wanted: bool) -> Self {
        self.controller_manager = wanted;
        self
    }

    /// Starts Cluster API's managers, and kube-controller-manager, without which they have no permissions.
    #[must_use]
    pub fn cluster_api(mut self, version: Option<CapiVersion>) -> Self {
        self.cluster_api = version.map(CapiOptions::new);
        self
    }

    /// As [`TestbedBuilder::cluster_api`], with a choice of managers and feature gates.
    #[must_use]
    pub fn cluster_api_options(mut self, options: CapiOptions) -> Self {
        self.cluster_api = Some(options);
        self
    }

    /// Where the API server listens instead of a free port of 127.0.0.1, for instance as the endpoint of a workload
    /// cluster. Every address of 127.0.0.0/8 is local.
    #[must_use]
    pub fn listen(mut self, address: IpAddr, port: u16) -> Self {
        self.listen = Listen { address, port: Some(port) };
        self
    }

    /// An additional host name or address for the API server's certificate.
    #[must_use]
    pub fn certificate_name(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// The DNS server for Cluster API's managers and for the Pods of a node player: an address that serves DNS on port
    /// 53. Default: the machine's own DNS servers.
    #[must_use]
    pub fn name_server(mut self, address: IpAddr) -> Self {
        self.name_server = Some(address);
        self
    }

    /// The authority that signs the API server's certificate, instead of a generated one.
    #[must_use]
    pub fn certificate_authority(mut self, authority: Arc<CertificateAuthority>) -> Self {
        self.authority = Some(authority);
        self
    }

    /// Enables the API server's audit log: see [`Testbed::audit_log`].
    #[must_use]
    pub fn audit(mut self) -> Self {
        self.audit = true;
        self
    }

    /// Starts it. Builds what the cache lacks, which takes minutes and reports progress.
    pub async fn start(self) -> Result<Testbed> {
        let sandbox = Sandbox::create()?;
        if let Some(address) = self.name_server {
            resolver::write(&sandbox, address)?;
        }
        let authority = match self.authority {
            Some(authority) => authority,
            None => Arc::new(CertificateAuthority::generate("kubernetes")?),
        };
        let mut control_plane =
            ControlPlane::start(&sandbox, self.kubernetes, self.listen, &self.names, authority, self.audit).await?;
        if self.controller_manager || self.cluster_api.is_some() {
            control_plane.start_controller_manager(&sandbox, self.kubernetes).await?;
        }
        let mut testbed = Testbed { kubernetes: self.kubernetes, cluster_api: None, control_plane, sandbox };
        if let Some(options) = self.cluster_api {
            testbed.start_cluster_api(&options).await?;
        }
        Ok(testbed)
    }
}

/// A running cluster. Stopped on drop; [`Testbed::stop`] does so without blocking the runtime.
#[derive(Debug)]
pub struct Testbed {
    kubernetes: KubernetesVersion,
    // In drop order.
    cluster_api: Option<ClusterApi>,
    control_plane: ControlPlane,
    sandbox: Arc<Sandbox>,
}

impl Testbed {
    pub fn builder() -> TestbedBuilder {
        TestbedBuilder::default()
    }

    /// The folder of this testbed, and the way to start processes that end with it.
    pub fn sandbox(&self) -> &Arc<Sandbox> {
        &self.sandbox
    }

    /// The version of the API server.
    pub fn kubernetes(&self) -> KubernetesVersion {
        self.kubernetes
    }

    /// A client with all permissions, tied to the caller's runtime.
    pub fn client(&self) -> Result<Client> {
        new_client(&self.control_plane.config)
    }

    /// The client configuration with all permissions.
    pub fn config(&self) -> &kube::Config {
        &self.control_plane.config
    }

    /// A kubeconfig with all permissions.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.control_plane.kubeconfig
    }

    /// The file with one line of JSON (an `Event` of audit.k8s.io) for every get, list and write, if enabled in the
    /// builder.
    pub fn audit_log(&self) -> PathBuf {
        control_plane::audit_log(&self.sandbox)
    }

    /// A command that executes `program`, with arguments to be added: it ends with this testbed and uses its DNS
    /// server.
    pub fn command(&self, program: &Path) -> Command {
        resolver::command(&self.sandbox, program)
    }

    /// Where the API server listens.
    pub fn api_server(&self) -> SocketAddr {
        self.control_plane.address
    }

    /// The authority that signed the API server's certificate, and whose client certificates it trusts.
    pub fn certificate_authority(&self) -> &CertificateAuthority {
        &self.control_plane.ca
    }

    /// A token of an existing ServiceAccount.
    pub async fn service_account_token(&self, namespace: &str, name: &str) -> Result<String> {
        service_account_token(&self.client()?, namespace, name).await
    }

    /// A kubeconfig with the permissions of an existing ServiceAccount.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let token = self.service_account_token(namespace, name).await?;
        let dir = self.sandbox.dir().join("kubeconfigs");
        create_dir(&dir)?;
        let path = dir.join(format!("{namespace}.{name}.kubeconfig"));
        kubeconfig::write(
            &path,
            &format!("https://{}", self.api_server()),
            self.certificate_authority().certificate_pem(),
            &token,
        )?;
        Ok(path)
    }

    /// A client with the permissions of an existing ServiceAccount.
    pub async fn service_account_client(&self, namespace: &str, name: &str) -> Result<Client> {
        new_client(&kubeconfig::load(&self.service_account_kubeconfig(namespace, name).await?).await?)
    }

    /// Runs kubectl with all permissions and returns its output.
    pub async fn kubectl<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Result<String> {
        let program = ToolSet::Kubernetes(KubernetesVersion::V1_36).ensure_async().await?.program("kubectl");
        let mut command = self.sandbox.command(program);
        command.env("KUBECONFIG", self.kubeconfig_path()).args(args);
        crate::blocking(move || run(command)).await
    }

    /// Server-side apply of a YAML stream; CRDs are applied first and awaited.
    pub async fn apply_yaml(&self, yaml: &str) -> Result<()> {
        self.apply_objects(apply::parse_yaml(yaml)?).await
    }

    /// Server-side apply of objects; CRDs are applied first and awaited.
    pub async fn apply_objects(&self, objects: Vec<Value>) -> Result<()> {
        apply::apply(&self.client()?, objects).await
    }

    /// Every process of the cluster, the most recently started first.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.cluster_api.iter().flat_map(ClusterApi::processes).chain(self.control_plane.processes())
    }

    /// Fails with the end of its log if one of the cluster's processes no longer runs.
    pub fn check(&self) -> Result<()> {
        self.processes().try_for_each(Process::check)
    }

    /// Starts Cluster API's managers, replacing running ones, as in an upgrade. Their permissions come from aggregated
    /// roles, so kube-controller-manager has to run.
    pub async fn start_cluster_api(&mut self, options: &CapiOptions) -> Result<()> {
        self.stop_cluster_api().await;
        let target = Target {
            client: self.client()?,
            server: format!("https://{}", self.api_server()),
            ca: self.certificate_authority(),
        };
        self.cluster_api = Some(ClusterApi::start(&self.sandbox, &target, options).await?);
        Ok(())
    }

    /// Stops Cluster API's managers. Their CRDs, objects and webhooks stay.
    pub async fn stop_cluster_api(&mut self) {
        if let Some(running) = self.cluster_api.take() {
            for process in running.processes() {
                process.stop(STOP_GRACE).await;
            }
        }
    }

    /// All text that was ever written to etcd, even if deleted since: the API server stores objects unencrypted, and
    /// etcd logs every write (the last 320 MB).
    pub fn ever_written(&self) -> Result<String> {
        let log = self.control_plane.etcd_data.join("member/wal");
        let mut text = String::new();
        for entry in std::fs::read_dir(&log).doing(|| format!("read {}", log.display()))?.flatten() {
            let bytes = std::fs::read(entry.path()).doing(|| format!("read {}", entry.path().display()))?;
            // etcd preallocates its files.
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            text.push_str(&String::from_utf8_lossy(&bytes[..end]));
        }
        Ok(text)
    }

    /// The output of a process, by the name of its log: `kube-apiserver`, `core`, ...
    pub fn log(&self, name: &str) -> String {
        std::fs::read(self.sandbox.logs().join(format!("{name}.log")))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Stops every process in order, then removes everything.
    pub async fn stop(self) {
        for process in self.processes() {
            process.stop(STOP_GRACE).await;
        }
        let _ = crate::blocking(move || {
            drop(self);
            Ok(())
        })
        .await;
    }
}

impl Drop for Testbed {
    /// Others may hold the sandbox too; its contents still end with the testbed.
    fn drop(&mut self) {
        self.sandbox.close();
    }
}

/// A token of a ServiceAccount for the API server.
pub(crate) async fn service_account_token(client: &Client, namespace: &str, name: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: Vec::new(),
            expiration_seconds: Some(TOKEN_SECONDS),
            bound_object_ref: None,
        },
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .doing(|| format!("get a token of the ServiceAccount {namespace}/{name}"))?;
    answer
        .status
        .map(|status| status.token)
        .ok_or_else(|| Error::invalid(format!("the token of {namespace}/{name}"), "is missing in the answer"))
}

/// One testbed for all tests of a test binary.
///
/// Statics are never dropped; the guard removes the testbed when the test binary ends.
///
/// ```no_run
/// use capmaas_testbed::{SharedTestbed, Testbed};
/// static TESTBED: SharedTestbed = SharedTestbed::new(Testbed::builder);
/// ```
#[derive(Debug)]
pub struct SharedTestbed {
    cell: OnceCell<Testbed>,
    builder: fn() -> TestbedBuilder,
}

impl SharedTestbed {
    /// Takes the function that configures the testbed, called on first use.
    pub const fn new(builder: fn() -> TestbedBuilder) -> Self {
        Self { cell: OnceCell::const_new(), builder }
    }

    /// The testbed, started by the first caller.
    pub async fn get(&'static self) -> Result<&'static Testbed> {
        self.cell.get_or_try_init(|| (self.builder)().start()).await
    }
}
