//! Cluster API's own end-to-end specs: the management cluster, the MAAS and the templates that they find, and the run.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use capmaas_testbed::tools::ToolSet;
use capmaas_testbed::{CapiVersion, CertificateAuthority, Clusterctl, KubernetesVersion};
use serde_json::{Value, json};

use crate::maas::{DOMAIN, Maas, image};
use crate::release::{NEW_CONTRACT, release_of};
use crate::repository;
use crate::runtime_extension::RuntimeExtension;
use crate::scene::Scene;

/// What machines are made with, and what they are upgraded from.
const VERSIONS: [(&str, &str); 4] = [
    ("KUBERNETES_VERSION", "v1.36.4"),
    ("KUBERNETES_VERSION_CHAINED_UPGRADE_FROM", "v1.33.12"),
    ("KUBERNETES_VERSION_UPGRADE_FROM", "v1.35.8"),
    ("KUBERNETES_VERSION_UPGRADE_TO", "v1.36.4"),
];

const KUSTOMIZATION: &str = "kustomization.yaml";

/// The folder of the Go program.
fn suite() -> PathBuf {
    repository().join("lab/capi-specs")
}

/// Compiles the Go program. The first time takes minutes, for which Go keeps what it compiled.
fn compile(program: &Path) -> anyhow::Result<()> {
    println!("compiling Cluster API's specs (minutes the first time) ...");
    let compiled = Command::new("go")
        .args(["test", "-c", "-trimpath", "-ldflags=-s -w", "-o"])
        .arg(program)
        .arg(".")
        .current_dir(suite())
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-buildvcs=false")
        .env("GOWORK", "off")
        .status()
        .context("start go, which has to be in PATH")?;
    ensure!(compiled.success(), "the specs do not compile");
    Ok(())
}

/// Runs the specs, or those of them whose name matches `focus`. Logs and dumps go to `artifacts`. Answers whether all passed and left nothing
/// in MAAS.
pub async fn run(focus: Option<&str>, artifacts: &Path) -> anyhow::Result<bool> {
    let program = std::env::current_exe()?.with_file_name("capi-specs.test");
    compile(&program)?;
    let authority = Arc::new(CertificateAuthority::generate("kubernetes")?);
    let maas = Arc::new(Maas::start()?);
    maas.accept_clusters(authority.clone())?;
    let (scene, clusterctl) = Scene::start_by_clusterctl(maas).await?;
    let extension = RuntimeExtension::start(&scene, &suite()).await?;
    let before = scene.maas.leftovers();
    let templates = templates(&scene, &authority).await?;
    clusterctl.add_templates(&release_of(NEW_CONTRACT)?, &templates)?;
    let config = clusterctl.dir().join("e2e.yaml");
    fs::write(&config, format!("{:#}\n", configuration(&clusterctl)?))?;

    let mut command = scene.testbed.command(&program);
    command.args(["-test.run=TestE2E", "-test.timeout=0", "-ginkgo.timeout=6h", "-ginkgo.v"]);
    command.args(focus.map(|focus| format!("-ginkgo.focus={focus}")));
    command.arg("-e2e.use-existing-cluster").arg("-e2e.config").arg(&config);
    command.arg("-e2e.clusterctl-config").arg(clusterctl.dir().join("clusterctl.yaml"));
    command.arg("-e2e.artifacts-folder").arg(artifacts);
    clusterctl.surround(&mut command);
    let kubectl = kubectl().await?;
    let folder = kubectl.parent().context("kubectl is in no folder")?;
    command.env("PATH", format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default()));
    command.envs(VERSIONS).env("MAAS_DNS_DOMAIN", DOMAIN).env("IMAGE_HAS_KUBERNETES", "true");
    // kustomize takes away the quotes around the default, which needs them.
    command.env("KUBERNETES_PACKAGES", "none");
    for role in ["CONTROL_PLANE", "WORKER"] {
        command.env(format!("{role}_MACHINE_IMAGE"), image(VERSIONS[0].1));
    }
    let passed = tokio::task::spawn_blocking(move || command.status()).await??.success();
    drop(extension);
    let left: Vec<String> = scene.maas.leftovers().into_iter().filter(|left| !before.contains(left)).collect();
    if !left.is_empty() {
        println!("left in MAAS: {left:#?}");
    }
    if !passed {
        fs::write(artifacts.join("manager.log"), scene.manager_log().await?)?;
        println!("not joined: {:#?}", scene.maas.trouble());
    }
    scene.stop().await;
    Ok(passed && left.is_empty())
}

async fn kubectl() -> anyhow::Result<PathBuf> {
    let tools = tokio::task::spawn_blocking(|| ToolSet::Kubernetes(KubernetesVersion::V1_36).ensure()).await??;
    Ok(tools.program("kubectl"))
}

/// The templates that the specs ask for: our own, changed by the patches beside the specs, for machines that trust `authority`.
async fn templates(scene: &Scene, authority: &CertificateAuthority) -> anyhow::Result<Vec<(String, String)>> {
    let folder = scene.testbed.sandbox().dir().join("capi-specs");
    copy(&suite().join("templates"), &folder.join("templates"))?;
    copy(&repository().join("templates"), &folder.join("shipped"))?;
    let secrets: Vec<String> = secrets(authority).iter().map(Value::to_string).collect();
    fs::write(folder.join("authority.yaml"), secrets.join("\n---\n"))?;
    let mut made = Vec::new();
    for path in folders(&folder.join("templates"))? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // What is applied in steps may hold an object twice, which kustomize refuses: each step is a folder of its own.
        let steps = if path.join(KUSTOMIZATION).exists() { vec![path] } else { folders(&path)? };
        let mut whole = Vec::new();
        for step in steps {
            let words = [OsStr::new("kustomize"), "--load-restrictor=LoadRestrictionsNone".as_ref(), step.as_os_str()];
            whole.push(scene.testbed.kubectl(words).await?);
        }
        if !whole.is_empty() {
            made.push((format!("{name}.yaml"), whole.join("\n---\n")));
        }
    }
    Ok(made)
}

/// The folders in a folder, by name.
fn folders(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries: std::io::Result<Vec<_>> = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut found: Vec<PathBuf> = entries?.into_iter().filter(|path| path.is_dir()).collect();
    found.sort();
    Ok(found)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// What the owner of a cluster with an etcd outside hands to Cluster API.
fn secrets(authority: &CertificateAuthority) -> [Value; 3] {
    let encode = |pem: &str| BASE64_STANDARD.encode(pem);
    let data = json!({"tls.crt": encode(authority.certificate_pem()), "tls.key": encode(authority.key_pem())});
    ["ca", "etcd", "apiserver-etcd-client"].map(|purpose| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret", "data": data,
            "metadata": {
                "name": format!("${{CLUSTER_NAME}}-{purpose}"), "namespace": "${NAMESPACE}",
                "labels": {"cluster.x-k8s.io/cluster-name": "${CLUSTER_NAME}"},
            },
        })
    })
}

/// The e2e configuration: providers as local files, and how long anything may take on a busy machine.
fn configuration(clusterctl: &Clusterctl) -> anyhow::Result<Value> {
    let ours = release_of(NEW_CONTRACT)?;
    let provider = |label: &str, name: &str, type_: &str, kind: &str, version: &str| {
        let release = clusterctl.dir().join(label).join(version);
        let url = format!("file://{}", release.join(format!("{kind}-components.yaml")).display());
        let metadata = json!({"sourcePath": release.join("metadata.yaml")});
        let version =
            json!({"name": version, "value": url, "type": "url", "contract": NEW_CONTRACT, "files": [metadata]});
        json!({"name": name, "type": type_, "versions": [version]})
    };
    let core = CapiVersion::V1_14.as_str();
    let text = fs::read_to_string(suite().join("intervals.json"))?;
    let variables: serde_json::Map<String, Value> =
        VERSIONS.iter().map(|(name, version)| ((*name).to_owned(), json!(version))).collect();
    Ok(json!({
        "managementClusterName": "capmaas",
        "providers": [
            provider("cluster-api", "cluster-api", "CoreProvider", "core", core),
            provider("bootstrap-kubeadm", "kubeadm", "BootstrapProvider", "bootstrap", core),
            provider("control-plane-kubeadm", "kubeadm", "ControlPlaneProvider", "control-plane", core),
            provider("infrastructure-maas", "maas", "InfrastructureProvider", "infrastructure", &ours),
        ],
        "variables": variables,
        "intervals": serde_json::from_str::<Value>(&text)?,
    }))
}
