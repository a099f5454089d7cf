//! The port to Kubernetes: the few calls that the agent makes.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use lxd_client::Fingerprint;
use secrecy::SecretString;
use serde_json::json;
use tokio::sync::OnceCell;

use crate::{
    effect::NodePatch,
    names,
    observed::{Certificate, Lookup, NodeFacts},
    settings::Settings,
};

/// The calls.
#[async_trait]
pub trait Cluster: Send + Sync {
    /// This node's Node.
    async fn node(&self) -> Lookup<NodeFacts>;
    /// The API key in the Secret `maas-credentials`.
    async fn api_key(&self) -> Lookup<SecretString>;
    /// The endpoint of MAAS in the ConfigMap `capmaas-config`.
    async fn endpoint(&self) -> Lookup<String>;
    /// The certificate that the manager provides to be trusted.
    async fn given_certificate(&self) -> Lookup<Certificate>;
    /// Changes labels and annotations of this node's Node.
    async fn patch_node(&self, patch: &NodePatch) -> anyhow::Result<()>;
}

/// LXD and MAAS do not wait long for an unavailable API server.
const CONNECT: Duration = Duration::from_secs(5);
const READ: Duration = Duration::from_secs(15);

pub struct KubeCluster {
    client: OnceCell<kube::Client>,
    node_name: String,
    namespace: String,
}

impl KubeCluster {
    /// For the node and namespace of the settings. The client is created when it is first needed.
    pub fn new(settings: &Settings) -> Self {
        Self { client: OnceCell::new(), node_name: settings.node_name.clone(), namespace: settings.namespace.clone() }
    }

    /// The client of the API server; an error if there is no configuration for it.
    pub async fn client(&self) -> Result<kube::Client, WayError> {
        let made = self.client.get_or_try_init(|| async {
            let mut config = kube::Config::infer().await.map_err(|error| WayError(error.to_string()))?;
            config.connect_timeout = Some(CONNECT);
            config.read_timeout = Some(READ);
            kube::Client::try_from(config).map_err(|error| WayError(error.to_string()))
        });
        made.await.cloned()
    }

    async fn config_map<T>(&self, name: &str, read: impl FnOnce(ConfigMap) -> Lookup<T>) -> Lookup<T> {
        match self.client().await {
            Ok(client) => lookup(Api::<ConfigMap>::namespaced(client, &self.namespace).get(name).await, read),
            Err(no_way) => Lookup::Unknown(no_way.to_string()),
        }
    }
}

/// There is no configuration for the API server.
#[derive(Debug, thiserror::Error)]
#[error("no Kubernetes API server configured: {0}")]
pub struct WayError(String);

#[async_trait]
impl Cluster for KubeCluster {
    async fn node(&self) -> Lookup<NodeFacts> {
        match self.client().await {
            Ok(client) => {
                lookup(Api::<Node>::all(client).get(&self.node_name).await, |node| Lookup::Found(facts(&node)))
            }
            Err(no_way) => Lookup::Unknown(no_way.to_string()),
        }
    }

    async fn api_key(&self) -> Lookup<SecretString> {
        let secrets = match self.client().await {
            Ok(client) => Api::<Secret>::namespaced(client, &self.namespace),
            Err(no_way) => return Lookup::Unknown(no_way.to_string()),
        };
        lookup(secrets.get(names::SECRET).await, |secret| {
            let value = secret.data.and_then(|mut data| data.remove(names::SECRET_KEY));
            match value.map(|bytes| String::from_utf8(bytes.0)) {
                Some(Ok(text)) if !text.trim().is_empty() => Lookup::Found(text.into()),
                Some(Err(_)) => {
                    Lookup::Unknown(format!("key {} of Secret {} is not text", names::SECRET_KEY, names::SECRET))
                }
                _ => Lookup::Absent,
            }
        })
    }

    async fn endpoint(&self) -> Lookup<String> {
        self.config_map(names::CONFIG_MAP, |map| {
            let value = map.data.and_then(|mut data| data.remove(names::CONFIG_MAP_KEY));
            value
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty())
                .map_or(Lookup::Absent, Lookup::Found)
        })
        .await
    }

    async fn given_certificate(&self) -> Lookup<Certificate> {
        self.config_map(names::TRUST_CONFIG_MAP, |map| given(&map.data.unwrap_or_default(), &self.node_name)).await
    }

    async fn patch_node(&self, patch: &NodePatch) -> anyhow::Result<()> {
        let body = json!({"metadata": {"labels": patch.labels, "annotations": patch.annotations}});
        let nodes = Api::<Node>::all(self.client().await?);
        nodes.patch(&self.node_name, &PatchParams::default(), &Patch::Merge(&body)).await?;
        Ok(())
    }
}

fn lookup<K, T>(answer: Result<K, kube::Error>, read: impl FnOnce(K) -> Lookup<T>) -> Lookup<T> {
    match answer {
        Ok(object) => read(object),
        Err(kube::Error::Api(status)) if status.code == 404 => Lookup::Absent,
        Err(error) => Lookup::Unknown(format!("the API server answers: {error}")),
    }
}

fn given(data: &BTreeMap<String, String>, node_name: &str) -> Lookup<Certificate> {
    let own = format!("{node_name}.crt");
    let Some(pem) = data.get(&own).or_else(|| data.get(names::TRUST_KEY_FOR_ALL)) else { return Lookup::Absent };
    if pem.contains("PRIVATE KEY") {
        return Lookup::Unknown(format!(
            "ConfigMap {} holds a private key, which must not be on a node: leave only the certificate there",
            names::TRUST_CONFIG_MAP
        ));
    }
    match Fingerprint::of_pem(pem) {
        Ok(fingerprint) => Lookup::Found(Certificate { fingerprint, pem: pem.clone() }),
        Err(error) => Lookup::Unknown(format!("in ConfigMap {}: {error}", names::TRUST_CONFIG_MAP)),
    }
}

fn facts(node: &Node) -> NodeFacts {
    let ours = |map: &Option<BTreeMap<String, String>>| {
        let entries = map.iter().flatten().filter(|(key, _)| key.starts_with(names::PREFIX));
        entries.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let internal_ip = addresses
        .filter(|address| address.type_ == "InternalIP")
        .find_map(|address| address.address.parse::<IpAddr>().ok());
    NodeFacts {
        labels: ours(&node.metadata.labels),
        annotations: ours(&node.metadata.annotations),
        internal_ip,
        system_id: node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).and_then(system_id),
    }
}

/// The MAAS system ID in a provider ID, in every form in use: `maas://zone/id`, `maas:///zone/id`, `maas-lxd://…`.
fn system_id(provider_id: &str) -> Option<String> {
    let (scheme, rest) = provider_id.split_once("://")?;
    let id = rest.rsplit('/').next().filter(|id| !id.is_empty())?;
    ["maas", "maas-lxd"].contains(&scheme).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_id_of_maas_names_the_machine_and_one_of_others_does_not() {
        for (text, id) in [
            ("maas://az1/abc123", Some("abc123")),
            ("maas:///az1/abc123", Some("abc123")),
            ("maas-lxd://az1/abc123", Some("abc123")),
            ("aws:///eu/i-1", None),
            ("maas://", None),
            ("", None),
        ] {
            assert_eq!(system_id(text).as_deref(), id, "{text}");
        }
    }

    #[test]
    fn the_certificate_for_this_node_goes_before_the_one_for_all() {
        let pem = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap().cert.pem();
        let (own, all) = (pem("own"), pem("all"));
        let mut data = BTreeMap::from([(names::TRUST_KEY_FOR_ALL.to_owned(), all.clone())]);
        assert_eq!(given(&data, "n1").found().unwrap().pem, all);
        data.insert("n1.crt".into(), own.clone());
        assert_eq!(given(&data, "n1").found().unwrap().pem, own);
        assert_eq!(given(&BTreeMap::new(), "n1"), Lookup::Absent);
        data.insert("n1.crt".into(), "nonsense".into());
        assert!(matches!(given(&data, "n1"), Lookup::Unknown(_)));
    }

    #[test]
    fn s22_a_private_key_in_the_config_map_is_refused_without_being_quoted() {
        let data = BTreeMap::from([("tls.crt".to_owned(), "-----BEGIN PRIVATE KEY-----\nCANARY".to_owned())]);
        let Lookup::Unknown(why) = given(&data, "n1") else { panic!() };
        assert!(!why.contains("CANARY"));
    }
}
