//! Kubeconfig files.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

use crate::error::{Doing, Error, Result, write_file};

/// Writes a kubeconfig for a bearer token. JSON is YAML, so every reader accepts it; it references no files, so it can
/// be copied elsewhere.
pub(crate) fn write(path: &Path, server: &str, ca_pem: &str, token: &str) -> Result<()> {
    let ca = BASE64_STANDARD.encode(ca_pem);
    let content = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "testbed",
        "clusters": [{"name": "testbed", "cluster": {"server": server, "certificate-authority-data": ca}}],
        "users": [{"name": "testbed", "user": {"token": token}}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "testbed"}}],
    });
    write_file(path, format!("{content:#}\n"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).doing(|| format!("protect {}", path.display()))
}

/// The client configuration from the kubeconfig at `path`.
pub(crate) async fn load(path: &Path) -> Result<kube::Config> {
    let what = || format!("the kubeconfig {}", path.display());
    let kubeconfig = Kubeconfig::read_from(path).map_err(|e| Error::invalid(what(), e))?;
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|e| Error::invalid(what(), e))
}
