//! Kubernetes objects to plan with: those of the file take precedence over those of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::{text, yaml};

/// Kinds of Cluster API that planning reads from Kubernetes, in whichever version is served, with their groups.
const KINDS: [(&str, &str); 5] = [
    ("cluster.x-k8s.io", "Cluster"),
    ("cluster.x-k8s.io", "Machine"),
    ("cluster.x-k8s.io", "MachineDeployment"),
    ("cluster.x-k8s.io", "MachineSet"),
    ("controlplane.cluster.x-k8s.io", CONTROL_PLANE),
];
const CONTROL_PLANE: &str = "KubeadmControlPlane";
const HEALTH_CHECK: &str = "MachineHealthCheck";
const OURS: [&str; 3] = ["MaasCluster", "MaasMachine", "MaasMachineTemplate"];
/// Kinds that only a file can hold, and that planning at least names in a note.
const NOTED: [&str; 3] = [HEALTH_CHECK, "MachinePool", "ClusterClass"];
/// The folders that `clusterctl alpha topology plan --output-directory` writes.
const TOPOLOGY_FOLDERS: [&str; 2] = ["created", "modified"];

/// Kind, namespace and name.
type Key = (String, String, String);

/// Objects by kind, namespace and name.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    all: BTreeMap<Key, Value>,
    /// Those that a file gives.
    given: BTreeSet<Key>,
    /// Those that a file replaces, as they are in Kubernetes.
    before: BTreeMap<Key, Value>,
    /// Why the health checks could not be read.
    pub checks_unread: Option<String>,
}

/// A file itself, or the files that kubectl would read from a directory, and those of a planned topology in it.
fn files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut all = std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    all.retain(|file| file.extension().is_some_and(|it| ["yaml", "yml", "json"].iter().any(|known| it == *known)));
    all.sort();
    // clusterctl writes what an object was beside what it becomes.
    let becomes = |file: &PathBuf| {
        let original = file.file_name().and_then(|name| name.to_str()?.strip_suffix(".original.yaml"));
        original.map(|stem| file.with_file_name(format!("{stem}.modified.yaml")))
    };
    let known = all.clone();
    all.retain(|file| becomes(file).is_none_or(|modified| !known.contains(&modified)));
    for folder in TOPOLOGY_FOLDERS.map(|name| path.join(name)).into_iter().filter(|folder| folder.is_dir()) {
        all.extend(files(&folder)?);
    }
    Ok(all)
}

impl Objects {
    /// Parses manifests; objects without a namespace are in `namespace`.
    pub fn parse(manifests: &str, namespace: &str) -> anyhow::Result<Self> {
        let mut objects = Self::default();
        let documents: Vec<Value> = yaml::documents(manifests).context("this is not YAML")?;
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

    /// Reads files, every manifest of directories, or standard input for `-`. Something that holds no object is an error:
    /// a program that failed may have written it, and what runs already would be planned instead.
    pub fn read(paths: &[String], namespace: &str) -> anyhow::Result<Self> {
        let mut all = Self::default();
        for path in paths {
            let objects = Self::read_one(path, namespace)?;
            if objects.all.is_empty() {
                let what = match path.as_str() {
                    "-" => "standard input holds no object: did the program that writes it fail?".to_owned(),
                    folder if Path::new(folder).is_dir() => {
                        format!("no .yaml, .yml or .json file in {folder} holds an object; folders in it are not read")
                    }
                    file => format!("{file} holds no object"),
                };
                bail!("{what}");
            }
            all.extend(objects);
        }
        if !all.all.keys().any(|(kind, ..)| is_planned(kind)) {
            let kinds: BTreeSet<&str> = all.all.keys().map(|(kind, ..)| kind.as_str()).collect();
            let kinds: Vec<&str> = kinds.into_iter().collect();
            bail!("-f gives nothing that can be planned, only {}", kinds.join(", "));
        }
        Ok(all)
    }

    fn read_one(path: &str, namespace: &str) -> anyhow::Result<Self> {
        if path == "-" {
            let mut manifests = String::new();
            std::io::stdin().read_to_string(&mut manifests).context("reading standard input")?;
            return Self::parse(&manifests, namespace).context("standard input");
        }
        let mut objects = Self::default();
        for file in files(Path::new(path)).with_context(|| format!("reading {path}"))? {
            let name = file.display().to_string();
            let manifests = std::fs::read_to_string(&file).with_context(|| format!("reading {name}"))?;
            objects.extend(Self::parse(&manifests, namespace).context(name)?);
        }
        Ok(objects)
    }

    /// Adds objects; of two with the same name the last is taken, as kubectl applies them in order.
    fn extend(&mut self, more: Self) {
        self.all.extend(more.all);
    }

    /// Objects of a management cluster, to be compared with a file: in all namespaces, or in the current one and those that
    /// the file names.
    pub async fn of_cluster(cluster: &Cluster, all: bool, file: Option<&Self>) -> anyhow::Result<Self> {
        let mut objects = Self::default();
        let named = file.filter(|_| !all).into_iter().flat_map(|file| file.all.keys());
        let named = named.filter(|(kind, ..)| is_planned(kind)).map(|(_, namespace, _)| namespace.as_str());
        for namespace in named.chain([cluster.namespace()]).collect::<BTreeSet<_>>() {
            objects.read_namespace(&cluster.within(namespace), all, file).await?;
        }
        Ok(objects)
    }

    async fn read_namespace(&mut self, cluster: &Cluster, all: bool, file: Option<&Self>) -> anyhow::Result<()> {
        for (group, kind) in KINDS {
            // Its fields have other names in another version, and the API server converts them.
            let written = file.filter(|_| kind == CONTROL_PLANE).and_then(|file| file.of(kind).next());
            for object in cluster.any_version(group, kind, all, written.map(version)).await? {
                self.put(object);
            }
        }
        for kind in OURS {
            for object in cluster.ours(kind, all).await? {
                self.put(object);
            }
        }
        match cluster.any_version("cluster.x-k8s.io", HEALTH_CHECK, all, None).await {
            Ok(checks) => checks.into_iter().for_each(|check| self.put(check)),
            Err(error) => self.checks_unread = Some(format!("{error:#}")),
        }
        Ok(())
    }

    fn put(&mut self, object: Value) {
        self.all.insert(key(&object), object);
    }

    /// These objects, overlaid with those of a file. Fields that the file omits from a spec are not kept: it is what would be
    /// applied. Others set the number of machines, and the references of a Cluster with a topology, so these stay.
    #[must_use]
    pub fn overlaid(mut self, file: &Self) -> Self {
        for (key, object) in &file.all {
            let mut object = object.clone();
            if let Some(known) = self.all.get(key) {
                if let Some(status) = known.get("status") {
                    object["status"] = status.clone();
                }
                for field in kept(&key.0) {
                    if let Some(value) = known["spec"].get(field).filter(|_| object["spec"][field].is_null()) {
                        object["spec"][field] = value.clone();
                    }
                }
                self.before.insert(key.clone(), known.clone());
            }
            self.given.insert(key.clone());
            self.put(object);
        }
        self
    }

    /// What Kubernetes has where a file gives this object; `None` if it is as it was, or new.
    pub fn before(&self, object: &Value) -> Option<&Value> {
        self.before.get(&key(object))
    }

    /// Whether a file gives this object.
    pub fn is_given(&self, object: &Value) -> bool {
        self.given.contains(&key(object))
    }

    #[cfg(test)]
    pub(super) fn each(&self) -> impl Iterator<Item = &Value> {
        self.all.values()
    }

    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.all.get(&(kind.to_owned(), namespace.to_owned(), name.to_owned()))
    }

    pub fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.all.iter().filter(move |((of, ..), _)| of == kind).map(|(_, object)| object)
    }
}

/// The fields of a spec that somebody else may set, an autoscaler or Cluster API for instance.
fn kept(kind: &str) -> &'static [&'static str] {
    match kind {
        CONTROL_PLANE | "MachineDeployment" | "MachineSet" => &["replicas"],
        "Cluster" => &["controlPlaneRef", "infrastructureRef"],
        _ => &[],
    }
}

fn key(object: &Value) -> Key {
    let part = |pointer: &str| text(object, pointer).to_owned();
    (part("/kind"), part("/metadata/namespace"), part("/metadata/name"))
}

/// The version of its API; empty if it names none.
pub(super) fn version(object: &Value) -> &str {
    text(object, "/apiVersion").rsplit('/').next().unwrap_or_default()
}

/// Whether planning reads a kind. Control planes of other providers may have a template for machines.
fn is_planned(kind: &str) -> bool {
    KINDS.iter().any(|(_, known)| kind == *known)
        || OURS.contains(&kind)
        || NOTED.contains(&kind)
        || kind.ends_with("ControlPlane")
}
