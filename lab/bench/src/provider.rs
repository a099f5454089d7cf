//! The provider under test: any program that takes its kubeconfig and its MAAS from the environment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use capmaas_testbed::{CertificateAuthority, Process, Testbed};
use serde_json::json;

use crate::maas::API_KEY;
use crate::processors;

/// The namespace and the ServiceAccount of the provider.
pub const NAMESPACE: &str = "bench-system";
pub(crate) const ACCOUNT: &str = "provider";

/// The resources that a process has used so far.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Usage {
    /// CPU time, user and system.
    pub cpu_seconds: f64,
    /// Memory now.
    pub rss_mib: f64,
    /// Peak memory.
    pub rss_peak_mib: f64,
}

/// The command line of our manager, from the build directory of the running program.
pub fn our_manager() -> anyhow::Result<String> {
    let manager = beside("capmaas-manager")?;
    Ok(format!("{} --health-addr=127.0.0.1:0 --diagnostics-address=0", manager.display()))
}

/// A program of this workspace, from the build directory of the running program.
pub fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let running = std::env::current_exe().context("find the running program")?;
    // Tests run from target/<profile>/deps, programs from target/<profile>.
    let found = running.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.with_context(|| format!("{name} is not built: build it with the same profile, as make bench does"))
}

/// How to start a provider.
pub struct Provider {
    command: Vec<String>,
    kubeconfig: PathBuf,
    endpoint: String,
    /// The default folder in which controller-runtime looks for the certificate of a provider's webhooks.
    temporary: PathBuf,
}

/// A running provider. Stopped on drop.
pub struct Running {
    process: Process,
}

impl Provider {
    /// A provider with this command line, for this cluster and this MAAS. It gets all permissions, so that measuring a
    /// provider does not need its manifests.
    pub async fn prepare(testbed: &Testbed, command: &str, endpoint: &str) -> anyhow::Result<Self> {
        let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        ensure!(!command.is_empty(), "--provider is empty: give the provider's command line");
        let metadata = json!({"name": ACCOUNT, "namespace": NAMESPACE});
        let rights = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
        let objects = vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                   "metadata": {"name": "bench-provider"}, "roleRef": rights,
                   "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}]}),
        ];
        testbed.apply_objects(objects).await?;
        let kubeconfig = testbed.service_account_kubeconfig(NAMESPACE, ACCOUNT).await?;
        let temporary = testbed.sandbox().dir().join("provider");
        let certificates = temporary.join("k8s-webhook-server/serving-certs");
        std::fs::create_dir_all(&certificates).with_context(|| format!("make {}", certificates.display()))?;
        let authority = CertificateAuthority::generate("bench")?;
        authority.write_serving_certificate(&certificates, "provider", vec!["127.0.0.1".to_owned()])?;
        Ok(Self { command, kubeconfig, endpoint: endpoint.to_owned(), temporary })
    }

    /// The provider's user name at the API server.
    pub fn user() -> String {
        format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}")
    }

    /// Starts it. Each `{port}` of the command line is replaced with a free port.
    pub fn start(&self, testbed: &Testbed) -> anyhow::Result<Running> {
        let program = PathBuf::from(&self.command[0]);
        let mut command = testbed.command(&program);
        let args = self.command[1..].iter().map(|arg| with_ports(arg)).collect::<anyhow::Result<Vec<_>>>()?;
        command
            .args(args)
            .env("TMPDIR", &self.temporary)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("MAAS_ENDPOINT", &self.endpoint)
            .env("MAAS_API_KEY", API_KEY)
            .env("POD_NAMESPACE", NAMESPACE);
        let process = testbed.sandbox().spawn("provider", command)?;
        Ok(Running { process })
    }
}

fn with_ports(arg: &str) -> anyhow::Result<String> {
    let mut arg = arg.to_owned();
    while arg.contains("{port}") {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        arg = arg.replacen("{port}", &port.to_string(), 1);
    }
    Ok(arg)
}

impl Running {
    pub fn usage(&self) -> anyhow::Result<Usage> {
        self.process.check()?;
        let folder = Path::new("/proc").join(self.process.id().to_string());
        let path = folder.join("status");
        let status = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let mib = |name: &str| -> anyhow::Result<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
            Ok(number.with_context(|| format!("{} holds no {name}", path.display()))? / 1024.0)
        };
        Ok(Usage { cpu_seconds: processors::seconds(&folder)?, rss_mib: mib("VmRSS")?, rss_peak_mib: mib("VmHWM")? })
    }

    /// Fails with the end of its log if it no longer runs.
    pub fn check(&self) -> anyhow::Result<()> {
        Ok(self.process.check()?)
    }

    /// `kill -9`.
    pub fn kill(self) {
        self.process.kill();
    }

    /// Stops it as Kubernetes does.
    pub async fn stop(self) {
        self.process.stop(Duration::from_secs(10)).await;
    }
}
