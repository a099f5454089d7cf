//! clusterctl without a network: a repository of local files, and a command that uses nothing else.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use serde_json::json;

use crate::{
    Sandbox, Testbed,
    error::{Result, create_dir, read_file, write_file},
    process::run,
    tools::ToolSet,
    versions::CapiVersion,
};

/// The version that clusterctl of Cluster API 1.14 installs by default.
const CERT_MANAGER: &str = "v1.19.1";

/// The infrastructure provider for clusterctl to find.
#[derive(Clone, Debug, Default)]
pub struct InfrastructureProvider {
    /// Its release, for instance `v0.1.0`.
    pub version: String,
    /// `infrastructure-components.yaml`.
    pub components: String,
    /// `metadata.yaml`, which maps releases to contracts.
    pub metadata: String,
    /// Cluster templates: file name and content.
    pub templates: Vec<(String, String)>,
}

/// clusterctl on a testbed.
#[derive(Debug)]
pub struct Clusterctl {
    program: PathBuf,
    dir: PathBuf,
    kubeconfig: PathBuf,
    sandbox: Arc<Sandbox>,
}

impl Clusterctl {
    /// Creates the repository: Cluster API v1.14.0's own three providers and the given one, named `maas`.
    ///
    /// Nothing issues certificates here, so cert-manager is replaced by its two CRDs. The Deployments that `clusterctl
    /// init` creates do not run; [`Testbed::start_cluster_api`] starts the managers as processes instead.
    pub async fn prepare(testbed: &Testbed, infrastructure: &InfrastructureProvider) -> Result<Self> {
        let version = CapiVersion::V1_14;
        let tools = ToolSet::ClusterApi(version).ensure_async().await?;
        let dir = testbed.sandbox().dir().join("clusterctl");
        let metadata = read_file(&tools.metadata_yaml())?;
        let mut providers = Vec::new();
        for (label, kind, name, provider) in [
            ("cluster-api", "core", "cluster-api", "CoreProvider"),
            ("bootstrap-kubeadm", "bootstrap", "kubeadm", "BootstrapProvider"),
            ("control-plane-kubeadm", "control-plane", "kubeadm", "ControlPlaneProvider"),
        ] {
            let release = dir.join(label).join(version.as_str());
            let url = write_release(&release, kind, &read_file(&tools.components_yaml(kind))?, &metadata)?;
            providers.push(json!({"name": name, "type": provider, "url": url}));
        }
        let url = write_infrastructure(&dir, infrastructure)?;
        providers.push(json!({"name": "maas", "type": "InfrastructureProvider", "url": url}));
        let cert_manager = dir.join("cert-manager").join(CERT_MANAGER);
        create_dir(&cert_manager)?;
        write_file(&cert_manager.join("cert-manager.yaml"), include_str!("cert-manager.yaml"))?;
        let config = json!({
            "providers": providers,
            "cert-manager": {"url": cert_manager.join("cert-manager.yaml"), "version": CERT_MANAGER},
        });
        // JSON is YAML.
        write_file(&dir.join("clusterctl.yaml"), format!("{config:#}\n"))?;
        Ok(Self {
            program: tools.program("clusterctl"),
            kubeconfig: testbed.kubeconfig_path().to_owned(),
            sandbox: testbed.sandbox().clone(),
            dir,
        })
    }

    /// Adds another release of the infrastructure provider to the repository.
    pub fn add_release(&self, infrastructure: &InfrastructureProvider) -> Result<()> {
        write_infrastructure(&self.dir, infrastructure).map(drop)
    }

    /// Adds templates to a release or replaces existing ones: file name and content.
    pub fn add_templates(&self, version: &str, templates: &[(String, String)]) -> Result<()> {
        let release = self.dir.join("infrastructure-maas").join(version);
        templates.iter().try_for_each(|(name, content)| write_file(&release.join(name), content))
    }

    /// The folder of the repository, which contains `clusterctl.yaml`.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The command, ready for arguments, template variables and another kubeconfig.
    pub fn command(&self) -> Command {
        let mut command = self.sandbox.command(&self.program);
        command.arg("--config").arg(self.dir.join("clusterctl.yaml"));
        self.surround(&mut command);
        command
    }

    /// Configures a program that embeds clusterctl to use only this repository and cluster.
    pub fn surround(&self, command: &mut Command) {
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("XDG_CONFIG_HOME", self.dir.join("config"))
            .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
            // It would look for releases there.
            .env("GOPROXY", "off");
    }

    /// Runs it and returns its output.
    pub async fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Result<String> {
        let mut command = self.command();
        command.args(args);
        crate::blocking(move || run(command)).await
    }
}

fn write_infrastructure(dir: &Path, provider: &InfrastructureProvider) -> Result<PathBuf> {
    let release = dir.join("infrastructure-maas").join(&provider.version);
    for (name, content) in &provider.templates {
        create_dir(&release)?;
        write_file(&release.join(name), content)?;
    }
    write_release(&release, "infrastructure", &provider.components, &provider.metadata)
}

/// Writes one release in clusterctl's layout and returns the path of its components.
fn write_release(release: &Path, kind: &str, components: &str, metadata: &str) -> Result<PathBuf> {
    create_dir(release)?;
    write_file(&release.join("metadata.yaml"), metadata)?;
    let path = release.join(format!("{kind}-components.yaml"));
    write_file(&path, components)?;
    Ok(path)
}
