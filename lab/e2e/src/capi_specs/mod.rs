//! Cluster API's own end-to-end specs: their management cluster, MAAS and templates, and the run itself.

mod machines;
mod templates;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use capmaas_testbed::tools::ToolSet;
use capmaas_testbed::{CapiVersion, CertificateAuthority, Clusterctl, KubernetesVersion};
use serde_json::{Value, json};

use self::machines::Machines;
use crate::maas::{DOMAIN, image};
use crate::release::{NEW_CONTRACT, release_of};
use crate::repository;
use crate::scene::Scene;

/// The Kubernetes versions that machines are created with and upgraded from.
const VERSIONS: [(&str, &str); 4] = [
    ("KUBERNETES_VERSION", "v1.36.4"),
    ("KUBERNETES_VERSION_CHAINED_UPGRADE_FROM", "v1.33.12"),
    ("KUBERNETES_VERSION_UPGRADE_FROM", "v1.35.8"),
    ("KUBERNETES_VERSION_UPGRADE_TO", "v1.36.4"),
];

fn suite() -> PathBuf {
    repository().join("lab/capi-specs")
}

/// Compiles the Go program. The first build takes minutes; Go caches it.
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

/// Runs the specs, or those whose name matches `focus`: first against simulated machines, then against machines that
/// boot. Logs and dumps go to `artifacts`. Returns whether all passed and left nothing in MAAS.
pub async fn run(focus: Option<&str>, artifacts: &Path) -> anyhow::Result<bool> {
    let program = std::env::current_exe()?.with_file_name("capi-specs.test");
    compile(&program)?;
    let (mut all, mut passed) = (0, true);
    for machines in [Machines::Played, Machines::Real] {
        let mut specs = Command::new(&program);
        specs.arg("-e2e.config=none").args(arguments(machines, focus, artifacts)).args(["-ginkgo.dry-run"]);
        let number = number_of(&String::from_utf8(specs.output()?.stdout)?)?;
        all += number;
        if number > 0 {
            println!("{number} specs before machines that are {machines}");
            passed &= run_before(machines, focus, &program, artifacts).await?;
        }
    }
    ensure!(all > 0, "no spec has a name that matches {focus:?}");
    Ok(passed)
}

/// The command-line arguments of the Go program.
fn arguments(machines: Machines, focus: Option<&str>, artifacts: &Path) -> Vec<String> {
    let mut words: Vec<String> =
        ["-test.run=TestE2E", "-test.timeout=0", "-ginkgo.timeout=6h", "-ginkgo.no-color", "-e2e.use-existing-cluster"]
            .map(str::to_owned)
            .to_vec();
    words.push(format!("-ginkgo.label-filter={}", machines.labels()));
    words.push(format!("-e2e.artifacts-folder={}", artifacts.display()));
    words.extend(focus.map(|focus| format!("-ginkgo.focus={focus}")));
    words
}

/// The number of specs that ginkgo announces.
fn number_of(said: &str) -> anyhow::Result<u32> {
    let number = said.lines().find_map(|line| line.strip_prefix("Will run ")?.split(' ').next()?.parse().ok());
    number.with_context(|| format!("ginkgo does not say how many specs there are: {said}"))
}

async fn run_before(machines: Machines, focus: Option<&str>, program: &Path, artifacts: &Path) -> anyhow::Result<bool> {
    let authority = Arc::new(CertificateAuthority::generate("kubernetes")?);
    let hardware = machines.start(&authority).await?;
    let (scene, clusterctl) = Scene::start_by_clusterctl(hardware.maas.clone()).await?;
    let helpers = hardware.help(&scene).await?;
    let before = scene.maas.leftovers();
    let templates = templates::render(&scene, &authority).await?;
    clusterctl.add_templates(&release_of(NEW_CONTRACT)?, &templates)?;
    let config = clusterctl.dir().join("e2e.yaml");
    fs::write(&config, format!("{:#}\n", configuration(&clusterctl)?))?;

    let mut command = scene.testbed.command(program);
    command.arg("-e2e.config").arg(&config).args(arguments(machines, focus, artifacts)).arg("-ginkgo.v");
    command.arg("-e2e.clusterctl-config").arg(clusterctl.dir().join("clusterctl.yaml"));
    clusterctl.surround(&mut command);
    let kubectl = kubectl().await?;
    let folder = kubectl.parent().context("kubectl is in no folder")?;
    command.env("PATH", format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default()));
    command.envs(VERSIONS).env("MAAS_DNS_DOMAIN", DOMAIN).env("IMAGE_HAS_KUBERNETES", "true");
    // kustomize strips the quotes around the default, which needs them.
    command.env("KUBERNETES_PACKAGES", "none");
    for role in ["CONTROL_PLANE", "WORKER"] {
        command.env(format!("{role}_MACHINE_IMAGE"), image(VERSIONS[0].1));
    }
    let passed = tokio::task::spawn_blocking(move || command.status()).await??.success();
    drop(helpers);
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

/// The e2e configuration: providers as local files, and timeouts for a busy machine.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_specs_is_what_ginkgo_says() {
        let said = "Random Seed: 1\n\nWill run 2 of 20 specs\nSSSS\n";
        assert_eq!(number_of(said).unwrap(), 2);
        assert!(number_of("PASS\n").unwrap_err().to_string().contains("PASS"));
    }
}
