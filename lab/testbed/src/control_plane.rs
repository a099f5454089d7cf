//! etcd, kube-apiserver and kube-controller-manager as processes.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};

use crate::{
    error::{Doing, Error, Result, create_dir, write_file},
    kubeconfig,
    pki::{self, CertificateAuthority},
    ports::{LOOPBACK, free_ports},
    process::Process,
    sandbox::Sandbox,
    tools::ToolSet,
    versions::KubernetesVersion,
};

/// Generous: the two cores may be busy with other testbeds and builds.
const READY_WITHIN: Duration = Duration::from_secs(90);
/// How often a start is retried because another process took a port first.
const ATTEMPTS: usize = 5;
/// Without the controllers that would conflict with simulated nodes or that need a cloud provider.
const CONTROLLERS: &str = "*,-node-lifecycle-controller,-node-ipam-controller,-cloud-node-lifecycle-controller,\
                           -node-route-controller,-service-lb-controller";

/// Logs every get, list and write once, without its content.
const AUDIT_POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
{"level": "Metadata", "verbs": ["get", "list", "create", "update", "patch", "delete", "deletecollection"]}, {"level": "None"}]}"#;

/// The API server's audit log: who reads and writes what.
pub(crate) fn audit_log(sandbox: &Sandbox) -> PathBuf {
    sandbox.dir().join("audit.log")
}

/// Where the API server listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listen {
    pub(crate) address: IpAddr,
    /// Any free port if not given.
    pub(crate) port: Option<u16>,
}

impl Default for Listen {
    fn default() -> Self {
        Self { address: LOOPBACK, port: None }
    }
}

/// A running API server with its etcd.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    pub(crate) ca: Arc<CertificateAuthority>,
    pub(crate) address: SocketAddr,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) config: kube::Config,
    /// etcd's data directory.
    pub(crate) etcd_data: PathBuf,
    // In drop order: clients before their server.
    controller_manager: Option<Process>,
    api_server: Process,
    etcd: Process,
}

impl ControlPlane {
    pub(crate) async fn start(
        sandbox: &Arc<Sandbox>,
        version: KubernetesVersion,
        listen: Listen,
        names: &[String],
        ca: Arc<CertificateAuthority>,
        audit: bool,
    ) -> Result<Self> {
        let etcd_program = ToolSet::Etcd.ensure_async().await?.program("etcd");
        let api_server_program = ToolSet::Kubernetes(version).ensure_async().await?.program("kube-apiserver");
        let pki_dir = sandbox.dir().join("pki");
        create_dir(&pki_dir)?;
        protect(&pki_dir)?;
        let ca_file = pki_dir.join("ca.crt");
        write_file(&ca_file, ca.certificate_pem())?;
        pki::write_service_account_keys(&pki_dir)?;
        let mut all_names: Vec<String> = names.to_vec();
        all_names.extend(
            ["localhost", "127.0.0.1", "10.96.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
                .map(String::from),
        );
        all_names.push(listen.address.to_string());
        ca.write_serving_certificate(&pki_dir, "kube-apiserver", all_names)?;
        let token = format!("{:032x}", rand::random::<u128>());
        write_file(&pki_dir.join("tokens.csv"), format!("{token},admin,admin,\"system:masters\"\n"))?;

        let (etcd, etcd_url, etcd_data) = start_etcd(sandbox, &etcd_program).await?;
        let mut attempt = 0;
        let (api_server, address, kubeconfig, config) = loop {
            attempt += 1;
            let port = match listen.port {
                Some(port) => port,
                None => free_ports::<1>()?[0],
            };
            let address = SocketAddr::new(listen.address, port);
            let pki = |file: &str| pki_dir.join(file).into_os_string();
            let mut command = sandbox.command(&api_server_program);
            command.current_dir(sandbox.dir());
            for (flag, value) in [
                ("--etcd-servers", etcd_url.clone().into()),
                ("--bind-address", listen.address.to_string().into()),
                ("--advertise-address", listen.address.to_string().into()),
                ("--secure-port", port.to_string().into()),
                ("--tls-cert-file", pki("tls.crt")),
                ("--tls-private-key-file", pki("tls.key")),
                ("--cert-dir", pki("generated")),
                ("--client-ca-file", pki("ca.crt")),
                ("--service-account-issuer", "https://kubernetes.default.svc".into()),
                ("--service-account-key-file", pki("sa.pub")),
                ("--service-account-signing-key-file", pki("sa.key")),
                ("--token-auth-file", pki("tokens.csv")),
                ("--authorization-mode", "Node,RBAC".into()),
                ("--service-cluster-ip-range", "10.96.0.0/16".into()),
                ("--endpoint-reconciler-type", "none".into()),
                ("--allow-privileged", "true".into()),
                // Stop without a delay.
                ("--shutdown-delay-duration", "0s".into()),
            ] {
                let mut argument = std::ffi::OsString::from(flag);
                argument.push("=");
                argument.push(value);
                command.arg(argument);
            }
            if audit {
                let policy = sandbox.dir().join("audit-policy.json");
                write_file(&policy, AUDIT_POLICY)?;
                command.arg(format!("--audit-policy-file={}", policy.display()));
                command.arg(format!("--audit-log-path={}", audit_log(sandbox).display()));
                // In MB. One file only: readers do not follow log rotation.
                command.arg("--audit-log-maxsize=1000000");
            }
            let process = sandbox.spawn("kube-apiserver", command)?;
            let kubeconfig = sandbox.dir().join("admin.kubeconfig");
            kubeconfig::write(&kubeconfig, &format!("https://{address}"), ca.certificate_pem(), &token)?;
            let config = kubeconfig::load(&kubeconfig).await?;
            let client = new_client(&config)?;
            match process.wait_until(READY_WITHIN, || is_ready(&client)).await {
                Ok(()) => break (process, address, kubeconfig, config),
                Err(_) if process.lost_its_port() && attempt < ATTEMPTS && listen.port.is_none() => {}
                // Without etcd no API server becomes ready; etcd's log then shows why.
                Err(error) => return Err(etcd.check().err().unwrap_or(error)),
            }
        };
        Ok(Self { ca, address, kubeconfig, config, etcd_data, controller_manager: None, api_server, etcd })
    }

    /// Starts kube-controller-manager and waits until its controllers work.
    pub(crate) async fn start_controller_manager(
        &mut self,
        sandbox: &Sandbox,
        version: KubernetesVersion,
    ) -> Result<()> {
        let program = ToolSet::Kubernetes(version).ensure_async().await?.program("kube-controller-manager");
        let pki = sandbox.dir().join("pki");
        let mut command = sandbox.command(program);
        command
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .arg(format!("--service-account-private-key-file={}", pki.join("sa.key").display()))
            .arg(format!("--root-ca-file={}", pki.join("ca.crt").display()))
            .arg(format!("--controllers={CONTROLLERS}"))
            .args(["--use-service-account-credentials=false", "--leader-elect=false", "--bind-address=127.0.0.1"])
            // Nothing here uses its port.
            .arg("--secure-port=0");
        let process = sandbox.spawn("kube-controller-manager", command)?;
        let accounts: Api<ServiceAccount> = Api::namespaced(new_client(&self.config)?, "default");
        // It creates this account in every namespace: once the account exists, the controllers run.
        process.wait_until(READY_WITHIN, || async { matches!(accounts.get_opt("default").await, Ok(Some(_))) }).await?;
        self.controller_manager = Some(process);
        Ok(())
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = &Process> {
        self.controller_manager.iter().chain([&self.api_server, &self.etcd])
    }
}

/// Keys and the administrator's token must not be readable by other users of this machine.
fn protect(dir: &Path) -> Result<()> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).doing(|| format!("protect {}", dir.display()))
}

async fn start_etcd(sandbox: &Sandbox, program: &Path) -> Result<(Process, String, PathBuf)> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let [client_port, peer_port] = free_ports()?;
        let (client_url, peer_url) =
            (format!("http://127.0.0.1:{client_port}"), format!("http://127.0.0.1:{peer_port}"));
        let data = sandbox.dir().join(format!("etcd-{attempt}"));
        let mut command = sandbox.command(program);
        command
            .arg(format!("--data-dir={}", data.display()))
            .arg(format!("--listen-client-urls={client_url}"))
            .arg(format!("--advertise-client-urls={client_url}"))
            .arg(format!("--listen-peer-urls={peer_url}"))
            .arg(format!("--initial-advertise-peer-urls={peer_url}"))
            .arg(format!("--initial-cluster=default={peer_url}"))
            // Nothing here needs to survive a power cut.
            .args(["--unsafe-no-fsync", "--log-level=warn"]);
        let process = sandbox.spawn("etcd", command)?;
        let listens = || async move { tokio::net::TcpStream::connect((LOOPBACK, client_port)).await.is_ok() };
        match process.wait_until(READY_WITHIN, listens).await {
            Ok(()) => return Ok((process, client_url, data)),
            Err(_) if process.lost_its_port() && attempt < ATTEMPTS => {}
            Err(error) => return Err(error),
        }
    }
}

/// A client that belongs to the caller's runtime.
pub(crate) fn new_client(config: &kube::Config) -> Result<Client> {
    Client::try_from(config.clone())
        .map_err(|source| Error::Kubernetes { doing: "make a client".into(), source: Box::new(source) })
}

async fn is_ready(client: &Client) -> bool {
    let Ok(request) = http::Request::get("/readyz").body(Vec::new()) else { return false };
    client.request_text(request).await.is_ok_and(|answer| answer == "ok")
}
