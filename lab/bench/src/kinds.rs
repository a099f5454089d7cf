//! The kinds of Cluster API and of a provider, from a folder of CRDs.

use std::path::Path;

use anyhow::{Context as _, ensure};
use capmaas_testbed::tools::ToolSet;
use capmaas_testbed::{CapiVersion, Testbed, parse_yaml};
use serde_json::{Value, json};

/// Installs Cluster API's CRDs, and those of the provider from a folder.
pub async fn install_kinds(testbed: &Testbed, crds: &Path) -> anyhow::Result<()> {
    let tools = tokio::task::spawn_blocking(|| ToolSet::ClusterApi(CapiVersion::V1_14).ensure()).await??;
    let mut kinds: Vec<Value> = Vec::new();
    for provider in ["core", "bootstrap", "control-plane"] {
        let path = tools.components_json(provider);
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        kinds.append(&mut serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))?);
    }
    kinds.retain(|object| object["kind"] == "CustomResourceDefinition");
    // There is no conversion webhook.
    for kind in &mut kinds {
        kind["spec"]["conversion"] = json!({"strategy": "None"});
    }
    let files = std::fs::read_dir(crds).with_context(|| format!("read the folder {} (--crds)", crds.display()))?;
    let before = kinds.len();
    for file in files {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            let text = std::fs::read_to_string(&path)?;
            let objects = parse_yaml(&text).with_context(|| format!("read {}", path.display()))?;
            kinds.extend(objects.into_iter().filter(|object| object["kind"] == "CustomResourceDefinition"));
        }
    }
    ensure!(kinds.len() > before, "there is no CustomResourceDefinition in {} (--crds)", crds.display());
    for kind in &kinds[before..] {
        let labels = kind["metadata"]["labels"].as_object();
        let tells = labels.is_some_and(|labels| labels.keys().any(|label| label.starts_with("cluster.x-k8s.io/v1")));
        ensure!(
            tells,
            "{} in {} has no label cluster.x-k8s.io/<contract version> with the versions that speak it, so Cluster API would not \
             find it; a provider's kustomization adds it: give the rendered CRDs",
            kind["metadata"]["name"],
            crds.display()
        );
    }
    Ok(testbed.apply_objects(kinds).await?)
}
