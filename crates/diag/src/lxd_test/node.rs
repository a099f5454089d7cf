//! This node as the library's Kubernetes port would show it, without any Kubernetes.

use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use anyhow::Context;
use async_trait::async_trait;
use lxd_client::Identity;
use lxd_initializer::{
    cluster::Cluster,
    effect::NodePatch,
    observed::{Certificate, Lookup, NodeFacts},
    settings::Settings,
};
use secrecy::SecretString;

/// The name of this machine, as MAAS gave it.
pub(super) fn name() -> anyhow::Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").context("the name of this machine")?;
    Ok(name.trim().to_owned())
}

/// The bridge's address, according to LXD: MAAS assigns the machine's address to the bridge. Problems are reported by
/// the steps, which ask LXD again.
pub(super) async fn address(settings: &Settings) -> Option<IpAddr> {
    if settings.node_ip.is_some() {
        return settings.node_ip;
    }
    for socket in &settings.sockets {
        let Ok(lxd) = lxd_client::Client::unix(socket) else { continue };
        let Ok(Some(state)) = lxd.network_state(&settings.bridge).await else { continue };
        let global = state.addresses.iter().filter(|address| address.scope == "global");
        let mut ips: Vec<IpAddr> = global.filter_map(|address| address.address.parse().ok()).collect();
        ips.sort_by_key(IpAddr::is_ipv6);
        return ips.first().copied();
    }
    None
}

/// Stores what the library reports about the node.
pub(super) struct ThisNode {
    certificate: Lookup<Certificate>,
    facts: Mutex<NodeFacts>,
}

impl ThisNode {
    pub(super) fn new(identity: Lookup<Identity>, address: Option<IpAddr>) -> Self {
        let facts = NodeFacts { internal_ip: address, ..NodeFacts::default() };
        Self { certificate: super::certificate(&identity), facts: Mutex::new(facts) }
    }
}

#[async_trait]
impl Cluster for ThisNode {
    async fn node(&self) -> Lookup<NodeFacts> {
        Lookup::Found(self.facts.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Without MAAS's key and endpoint, the library stops before MAAS.
    async fn api_key(&self) -> Lookup<SecretString> {
        Lookup::Absent
    }

    async fn endpoint(&self) -> Lookup<String> {
        Lookup::Absent
    }

    async fn given_certificate(&self) -> Lookup<Certificate> {
        self.certificate.clone()
    }

    async fn patch_node(&self, patch: &NodePatch) -> anyhow::Result<()> {
        let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in &patch.labels {
            match value {
                Some(value) => drop(facts.labels.insert(key.clone(), value.clone())),
                None => drop(facts.labels.remove(key)),
            }
        }
        for (key, value) in &patch.annotations {
            match value {
                Some(value) => drop(facts.annotations.insert(key.clone(), value.clone())),
                None => drop(facts.annotations.remove(key)),
            }
        }
        Ok(())
    }
}
