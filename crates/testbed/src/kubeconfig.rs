//! Kubeconfig files.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

use crate::error::{Doing, Error, Result, write_file};

/// Writes a kubeconfig for a bearer token. JSON is YAML, so every reader takes it.
pub(crate) fn write(path: &Path, server: &str, ca_pem: &str, token: &str) -> Result<()> {
    // A file beside the kubeconfig holds the certificate: no base64 to write.
    let ca = path.with_extension("ca.crt");
    write_file(&ca, ca_pem)?;
    let content = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "testbed",
        "clusters": [{"name": "testbed", "cluster": {"server": server, "certificate-authority": ca}}],
        "users": [{"name": "testbed", "user": {"token": token}}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "testbed"}}],
    });
    write_file(path, format!("{content:#}\n"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).doing(|| format!("protect {}", path.display()))
}

/// What a client needs to use the kubeconfig at `path`.
pub(crate) async fn load(path: &Path) -> Result<kube::Config> {
    let what = || format!("the kubeconfig {}", path.display());
    let kubeconfig = Kubeconfig::read_from(path).map_err(|e| Error::invalid(what(), e))?;
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|e| Error::invalid(what(), e))
}
