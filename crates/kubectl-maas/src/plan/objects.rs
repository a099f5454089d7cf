//! Kubernetes objects to plan with: those of the file take precedence over those of the cluster.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::text;

/// Kinds of Cluster API that planning reads from Kubernetes, in whichever version is served, with their groups.
const KINDS: [(&str, &str); 6] = [
    ("cluster.x-k8s.io", "Cluster"),
    ("cluster.x-k8s.io", "Machine"),
    ("cluster.x-k8s.io", "MachineDeployment"),
    ("cluster.x-k8s.io", "MachineSet"),
    ("cluster.x-k8s.io", "MachineHealthCheck"),
    ("controlplane.cluster.x-k8s.io", "KubeadmControlPlane"),
];
const OURS: [&str; 3] = ["MaasCluster", "MaasMachine", "MaasMachineTemplate"];

/// Objects by kind, namespace and name.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    all: BTreeMap<(String, String, String), Value>,
}

/// A file itself, or the files that kubectl would read from a directory.
fn files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut all = std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    all.retain(|file| file.extension().is_some_and(|it| ["yaml", "yml", "json"].iter().any(|known| it == *known)));
    all.sort();
    Ok(all)
}

impl Objects {
    /// Parses manifests; objects without a namespace are in `namespace`.
    pub fn parse(manifests: &str, namespace: &str) -> anyhow::Result<Self> {
        let mut objects = Self::default();
        let documents: Vec<Value> = serde_saphyr::from_multiple(manifests).context("this is not YAML")?;
        for document in documents.into_iter().filter(|document| !document.is_null()) {
            let items = match document["items"].as_array() {
                Some(items) if text(&document, "/kind").ends_with("List") => items.clone(),
                _ => vec![document],
            };
            for mut object in items {
                if text(&object, "/kind").is_empty() || text(&object, "/metadata/name").is_empty() {
                    bail!("an object without kind or metadata.name: this is not a Kubernetes manifest");
                }
                if text(&object, "/metadata/name").contains("${") {
                    bail!("the file is a template with variables: fill them in with clusterctl generate cluster first");
                }
                if text(&object, "/metadata/namespace").is_empty() {
                    object["metadata"]["namespace"] = namespace.into();
                }
                objects.put(object);
            }
        }
        Ok(objects)
    }

    /// Reads a file, every manifest of a directory, or standard input for `-`.
    pub fn read(path: &str, namespace: &str) -> anyhow::Result<Self> {
        if path == "-" {
            let mut manifests = String::new();
            std::io::stdin().read_to_string(&mut manifests).context("reading standard input")?;
            return Self::parse(&manifests, namespace).context("standard input");
        }
        let mut objects = Self::default();
        for file in files(Path::new(path)).with_context(|| format!("reading {path}"))? {
            let name = file.display().to_string();
            let manifests = std::fs::read_to_string(&file).with_context(|| format!("reading {name}"))?;
            objects = objects.overlaid(&Self::parse(&manifests, namespace).context(name)?);
        }
        Ok(objects)
    }

    /// Objects of a management cluster, in the namespace or in all.
    pub async fn of_cluster(cluster: &Cluster, all: bool) -> anyhow::Result<Self> {
        let mut objects = Self::default();
        for (group, kind) in KINDS {
            for object in cluster.any_version(group, kind, all).await? {
                objects.put(object);
            }
        }
        for kind in OURS {
            for object in cluster.ours(kind, all).await? {
                objects.put(object);
            }
        }
        Ok(objects)
    }

    fn put(&mut self, object: Value) {
        let part = |pointer: &str| text(&object, pointer).to_owned();
        self.all.insert((part("/kind"), part("/metadata/namespace"), part("/metadata/name")), object);
    }

    /// These objects, overlaid with those of a file. Fields that the file omits from a spec are not kept: it is what
    /// would be applied.
    #[must_use]
    pub fn overlaid(mut self, file: &Self) -> Self {
        for object in file.all.values() {
            let mut object = object.clone();
            let status =
                self.get(text(&object, "/kind"), text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
            if let Some(status) = status.and_then(|known| known.get("status")) {
                object["status"] = status.clone();
            }
            self.put(object);
        }
        self
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.all.get(&(kind.to_owned(), namespace.to_owned(), name.to_owned()))
    }

    pub fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.all.iter().filter(move |((of, ..), _)| of == kind).map(|(_, object)| object)
    }
}
