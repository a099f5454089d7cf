//! Our release, built as `make release` builds it, and the checks of what its templates produce on a machine.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use capmaas_testbed::tools::{CloudInit, ToolSet};
use capmaas_testbed::{InfrastructureProvider, KubernetesVersion, Testbed};
use serde_json::Value;
use tokio::process::Command;

use crate::{MANAGER_IMAGE, REGISTRY, program};

/// The contract of Cluster API up to 1.15.
pub const OLD_CONTRACT: &str = "v1beta1";
/// The contract of Cluster API from 1.11 on.
pub const NEW_CONTRACT: &str = "v1beta2";
/// Every flavor of the cluster template; the first has no name.
pub const FLAVORS: [&str; 5] = ["", "hcp", "lxd", "mixed", "clusterclass"];

/// The version of our release that implements a contract: the workspace's version for the old one, the next minor for
/// the new one.
pub fn release_of(contract: &str) -> anyhow::Result<String> {
    let minor: u32 = env!("CARGO_PKG_VERSION_MINOR").parse()?;
    let minor = match contract {
        OLD_CONTRACT => minor,
        NEW_CONTRACT => minor + 1,
        _ => bail!("no release speaks {contract}"),
    };
    Ok(format!("v{}.{minor}.{}", env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_PATCH")))
}

async fn kubernetes(name: &'static str) -> anyhow::Result<PathBuf> {
    let tools = tokio::task::spawn_blocking(|| ToolSet::Kubernetes(KubernetesVersion::V1_36).ensure()).await??;
    Ok(tools.program(name))
}

/// Builds both releases.
pub async fn make_releases(testbed: &Testbed) -> anyhow::Result<Vec<InfrastructureProvider>> {
    let out = testbed.sandbox().dir().join("release");
    let output = Command::new(program("xtask")?)
        .args(["assets", "--image", &format!("{REGISTRY}{MANAGER_IMAGE}v1"), "--out"])
        .arg(&out)
        .arg("--kubectl")
        .arg(kubernetes("kubectl").await?)
        .output()
        .await
        .context("start xtask, which makes releases")?;
    ensure!(output.status.success(), "no release: {}", String::from_utf8_lossy(&output.stderr));
    let releases = [release_of(OLD_CONTRACT)?, release_of(NEW_CONTRACT)?];
    releases.iter().map(|version| read_release(&out.join("infrastructure-maas").join(version), version)).collect()
}

fn read_release(folder: &Path, version: &str) -> anyhow::Result<InfrastructureProvider> {
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
    let mut provider = InfrastructureProvider {
        version: version.to_owned(),
        components: read(&folder.join("infrastructure-components.yaml"))?,
        metadata: read(&folder.join("metadata.yaml"))?,
        templates: Vec::new(),
    };
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("cluster") {
            provider.templates.push((name.clone(), read(&folder.join(&name))?));
        }
    }
    ensure!(provider.templates.len() == FLAVORS.len() + 1, "the release holds {} templates", provider.templates.len());
    Ok(provider)
}

/// Validates the user data of a machine with cloud-init, and the kubeadm configuration in it with kubeadm.
pub async fn judge(testbed: &Testbed, name: &str, bootstrap: &Value) -> anyhow::Result<String> {
    let folder = testbed.sandbox().dir().join("judge").join(name);
    let encoded = bootstrap["data"]["value"].as_str().context("the Secret holds no user data")?;
    let user_data = String::from_utf8(BASE64_STANDARD.decode(encoded)?)?;
    // The only variable that cloud-init has to fill in.
    let rendered = user_data.replace("## template: jinja\n", "").replace("{{ ds.meta_data.local_hostname }}", "node-1");
    ensure!(!rendered.contains("{{"), "something is left to fill in:\n{rendered}");
    let (judged, text) = (folder.clone(), rendered.clone());
    tokio::task::spawn_blocking(move || CloudInit::ensure()?.check(&judged, &text)).await??;

    let config = capmaas_testbed::parse_yaml(&rendered)?;
    let files = config.first().and_then(|config| config["write_files"].as_array()).context("no files are written")?;
    let kubeadm =
        files.iter().find(|file| file["path"].as_str().is_some_and(|path| path.starts_with("/run/kubeadm/kubeadm")));
    let kubeadm = kubeadm.and_then(|file| file["content"].as_str()).context("no kubeadm configuration is written")?;
    let file = folder.join("kubeadm.yaml");
    std::fs::write(&file, kubeadm)?;
    let validate =
        Command::new(kubernetes("kubeadm").await?).args(["config", "validate", "--config"]).arg(&file).output();
    let output = validate.await.context("start kubeadm")?;
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "kubeadm refuses the configuration of {name}: {said}\n{kubeadm}");
    Ok(rendered)
}
