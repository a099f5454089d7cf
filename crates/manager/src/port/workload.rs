//! Clients of workload clusters, made from the kubeconfig that Cluster API keeps in a Secret.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::{Error, ErrorKind, Key, Result, SecretValues};

/// A workload cluster that is coming up does not answer; nobody waits long for it.
const CONNECT: Duration = Duration::from_secs(5);
const READ: Duration = Duration::from_secs(10);
/// Clients are few and idle ones cost a connection each; a manager of very many clusters makes some of them anew.
const KEPT: usize = 512;

/// The clients, each kept until its Secret changes.
#[derive(Clone, Default)]
pub(super) struct Workloads {
    clients: Arc<Mutex<HashMap<Key, (String, Client)>>>,
}

impl Workloads {
    pub(super) async fn client(&self, cluster: &Key, secret: &SecretValues) -> Result<Client> {
        let version = format!("{}/{}", secret.uid, secret.resource_version);
        if let Some((made_from, client)) = self.clients().get(cluster)
            && *made_from == version
        {
            return Ok(client.clone());
        }
        let client = client_of(cluster, secret).await?;
        let mut clients = self.clients();
        if clients.len() >= KEPT {
            clients.clear();
        }
        clients.insert(cluster.clone(), (version, client.clone()));
        Ok(client)
    }

    fn clients(&self) -> std::sync::MutexGuard<'_, HashMap<Key, (String, Client)>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn client_of(cluster: &Key, secret: &SecretValues) -> Result<Client> {
    // The causes may repeat the file, which holds keys, so they are left out.
    let unfit = |why: &str| {
        let doing = format!("use the kubeconfig of the cluster {cluster}");
        Error::new(ErrorKind::Unavailable, doing, why)
    };
    let text = secret.text("value").ok_or_else(|| unfit("its Secret has no key \"value\""))?;
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| unfit("it is no kubeconfig"))?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|_| unfit("it does not name a cluster and a user that fit together"))?;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(READ);
    let following = crate::answering::following(&config, cluster.to_string());
    let builder = ClientBuilder::try_from(config).map_err(|_| unfit("its certificates or keys cannot be used"))?;
    Ok(builder.with_layer(&following).build())
}
