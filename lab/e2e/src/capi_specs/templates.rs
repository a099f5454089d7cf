//! The templates that the specs use: our own, with the patches next to the specs applied.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use capmaas_testbed::CertificateAuthority;
use capmaas_testbed::nodes::NETWORK_PLUGIN;
use serde_json::{Value, json};

use super::suite;
use crate::repository;
use crate::scene::Scene;

const KUSTOMIZATION: &str = "kustomization.yaml";

/// Keyed by file name. Simulated machines trust `authority`.
pub(super) async fn render(scene: &Scene, authority: &CertificateAuthority) -> anyhow::Result<Vec<(String, String)>> {
    let folder = scene.testbed.sandbox().dir().join("capi-specs");
    copy(&suite().join("templates"), &folder.join("templates"))?;
    copy(&repository().join("templates"), &folder.join("shipped"))?;
    for (file, objects) in [("authority.yaml", secrets(authority).to_vec()), ("network.yaml", network().to_vec())] {
        let objects: Vec<String> = objects.iter().map(Value::to_string).collect();
        fs::write(folder.join(file), objects.join("\n---\n"))?;
    }
    let mut made = Vec::new();
    for path in folders(&folder.join("templates"))? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Templates applied in several steps may contain an object twice, which kustomize refuses, so each step has its
        // own folder.
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

/// The subfolders of a folder, sorted by name.
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

/// The Secrets that the owner of a cluster with external etcd creates for Cluster API.
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

/// Installs the network plugin in clusters of machines that boot, as soon as their API server is available.
fn network() -> [Value; 2] {
    let metadata = json!({"name": "${CLUSTER_NAME}-network", "namespace": "${NAMESPACE}"});
    let plugin = json!({"kind": "ConfigMap", "name": metadata["name"]});
    [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"network.yaml": NETWORK_PLUGIN}}),
        json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1beta2", "kind": "ClusterResourceSet", "metadata": metadata,
            "spec": {
                "clusterSelector": {"matchLabels": {"network": "${CLUSTER_NAME}"}},
                "resources": [plugin], "strategy": "ApplyOnce",
            },
        }),
    ]
}
