//! An in-memory cluster with one Node.

use std::{collections::BTreeMap, sync::Mutex};

use async_trait::async_trait;
use lxd_client::Fingerprint;
use lxd_initializer::{
    cluster::Cluster,
    effect::NodePatch,
    observed::{Certificate, Lookup, NodeFacts},
};
use secrecy::SecretString;

pub(crate) struct MemoryCluster {
    pub(crate) node: Mutex<Lookup<NodeFacts>>,
    pub(crate) api_key: Mutex<Lookup<String>>,
    pub(crate) endpoint: Mutex<Lookup<String>>,
    pub(crate) certificate: Mutex<Lookup<Certificate>>,
    pub(crate) patches: Mutex<Vec<NodePatch>>,
}

impl Default for MemoryCluster {
    fn default() -> Self {
        Self {
            node: Mutex::new(Lookup::Found(NodeFacts::default())),
            api_key: Mutex::new(Lookup::Absent),
            endpoint: Mutex::new(Lookup::Absent),
            certificate: Mutex::new(Lookup::Absent),
            patches: Mutex::default(),
        }
    }
}

impl MemoryCluster {
    /// Provides a certificate, as the manager does.
    pub(crate) fn give_certificate(&self, pem: &str) {
        let fingerprint = Fingerprint::of_pem(pem).unwrap();
        *self.certificate.lock().unwrap() = Lookup::Found(Certificate { fingerprint, pem: pem.to_owned() });
    }

    pub(crate) fn annotate(&self, key: &str, value: &str) {
        if let Lookup::Found(node) = &mut *self.node.lock().unwrap() {
            node.annotations.insert(key.to_owned(), value.to_owned());
        }
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<String> {
        self.node.lock().unwrap().found().unwrap().annotations.get(key).cloned()
    }

    pub(crate) fn label(&self, key: &str) -> Option<String> {
        self.node.lock().unwrap().found().unwrap().labels.get(key).cloned()
    }
}

fn merge(map: &mut BTreeMap<String, String>, patch: &BTreeMap<String, Option<String>>) {
    for (key, value) in patch {
        match value {
            Some(value) => drop(map.insert(key.clone(), value.clone())),
            None => drop(map.remove(key)),
        }
    }
}

#[async_trait]
impl Cluster for MemoryCluster {
    async fn node(&self) -> Lookup<NodeFacts> {
        self.node.lock().unwrap().clone()
    }

    async fn api_key(&self) -> Lookup<SecretString> {
        self.api_key.lock().unwrap().as_ref().map(|key| key.clone().into())
    }

    async fn endpoint(&self) -> Lookup<String> {
        self.endpoint.lock().unwrap().clone()
    }

    async fn given_certificate(&self) -> Lookup<Certificate> {
        self.certificate.lock().unwrap().clone()
    }

    async fn patch_node(&self, patch: &NodePatch) -> anyhow::Result<()> {
        match &mut *self.node.lock().unwrap() {
            Lookup::Found(node) => {
                merge(&mut node.labels, &patch.labels);
                merge(&mut node.annotations, &patch.annotations);
            }
            _ => anyhow::bail!("there is no Node"),
        }
        self.patches.lock().unwrap().push(patch.clone());
        Ok(())
    }
}
