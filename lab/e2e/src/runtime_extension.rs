//! The Runtime Extension that Cluster API's own specs call: its module's program, from its manifests, under its
//! ServiceAccount. It is reached under its Service's cluster DNS name, which MAAS resolves here.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use capmaas_testbed::{Process, parse_yaml};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::scene::Scene;
use crate::{eventually, free_port};

const MODULE: &str = "sigs.k8s.io/cluster-api/test";
const NAMESPACE: &str = "test-extension-system";
const SERVICE: &str = "test-extension-webhook-service";
const ACCOUNT: &str = "test-extension-manager";
/// The objects in the manifests that are not needed here.
const LEFT_OUT: [&str; 4] = ["Certificate", "Issuer", "Service", "Deployment"];

/// The running extension.
pub struct RuntimeExtension {
    _process: Process,
    port: AbortHandle,
}

impl Drop for RuntimeExtension {
    fn drop(&mut self) {
        self.port.abort();
    }
}

impl RuntimeExtension {
    /// Builds the program in the folder of a Go module that requires it, and starts it.
    pub async fn start(scene: &Scene, module: &Path) -> anyhow::Result<Self> {
        let dir = scene.testbed.sandbox().dir().join("test-extension");
        fs::create_dir_all(&dir)?;
        let program = dir.join("manager");
        go(module, &["build", "-trimpath", "-o", &program.display().to_string(), &format!("{MODULE}/extension")])?;
        let source = go(module, &["list", "-m", "-f", "{{.Dir}}", MODULE])?;
        let manifests =
            scene.testbed.kubectl(["kustomize", &format!("{}/extension/config/default", source.trim())]).await?;
        let mut objects = parse_yaml(&manifests)?;
        objects.retain(|object| !LEFT_OUT.contains(&object["kind"].as_str().unwrap_or_default()));
        let authority = scene.testbed.certificate_authority();
        let host = format!("{SERVICE}.{NAMESPACE}.svc");
        authority.write_serving_certificate(&dir, SERVICE, vec![host.clone()])?;
        objects.push(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": format!("{SERVICE}-cert"), "namespace": NAMESPACE},
            "data": {"ca.crt": BASE64_STANDARD.encode(authority.certificate_pem())},
        }));
        scene.testbed.apply_objects(objects).await?;

        let (health, hooks) = (free_port()?, free_port()?);
        let kubeconfig = scene.testbed.service_account_kubeconfig(NAMESPACE, ACCOUNT).await?;
        let mut command = scene.testbed.sandbox().command(&program);
        command.arg(format!("--kubeconfig={}", kubeconfig.display()));
        command.arg(format!("--webhook-cert-dir={}", dir.display())).arg(format!("--webhook-port={hooks}"));
        command.arg(format!("--health-addr=127.0.0.1:{health}")).arg("--diagnostics-address=127.0.0.1:0");
        command.arg("--insecure-diagnostics=true");
        let process = scene.testbed.sandbox().spawn("test-extension", command)?;

        // Nothing routes to a Service here: its name resolves to an address of this machine, on whose port 443 the
        // program is reached.
        let address = Ipv4Addr::new(127, 44, rand::random(), rand::random_range(1..255));
        scene.maas.arrange(json!([
            {"domain": {"name": format!("{NAMESPACE}.svc")}},
            {"dns": {"fqdn": host, "ip_addresses": [address]}},
        ]))?;
        let listener = TcpListener::bind((IpAddr::V4(address), 443)).await.context("listen on port 443")?;
        let port = tokio::spawn(pass_on(listener, (Ipv4Addr::LOCALHOST, hooks).into())).abort_handle();
        let started = Self { _process: process, port };
        eventually("a Runtime Extension that answers", || async {
            TcpStream::connect(("127.0.0.1", hooks)).await?;
            Ok(())
        })
        .await?;
        Ok(started)
    }
}

/// Forwards connections.
pub(crate) async fn pass_on(listener: TcpListener, to: SocketAddr) {
    // A listener that fails for good ends the loop; callers then see a closed port.
    while let Ok((mut from, _)) = listener.accept().await {
        tokio::spawn(async move {
            if let Ok(mut to) = TcpStream::connect(to).await {
                // Either side may disconnect at any time.
                let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
            }
        });
    }
}

/// The output of a go command.
fn go(module: &Path, words: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("go");
    command
        .args(words)
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-buildvcs=false")
        .env("GOWORK", "off");
    let output = command.output().context("start go, which has to be in PATH")?;
    ensure!(output.status.success(), "go {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
