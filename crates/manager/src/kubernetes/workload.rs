//! Clients of workload clusters, created from the kubeconfig Secret that Cluster API maintains.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use http::{Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use tower::Service;
use tower::util::{MapResponse, MapResponseLayer};

use super::bounded::{Bounded, bounded};
use super::{Error, ErrorKind, Key, Result, SecretValues, kubeconfig};

/// The Nodes of workload clusters.
#[async_trait]
pub trait Nodes: Send + Sync {
    /// The name of every Node of a cluster, and again whenever it changes. Ends when the API server stops answering.
    async fn names(&self, cluster: &Key) -> Result<BoxStream<'static, String>>;
}

/// A workload cluster that is coming up does not answer; callers do not wait long for it.
const CONNECT: Duration = Duration::from_secs(5);
const READ: Duration = Duration::from_secs(10);
/// Each idle client costs a connection. A manager of more clusters than this recreates some of them.
const KEPT: usize = 512;

/// The result for a Secret of this version: a client, or the reason why there is none.
type Made = (String, std::result::Result<Client, String>);

/// The clients, each kept until its Secret changes.
#[derive(Clone, Default)]
pub(super) struct Workloads {
    made: Arc<Mutex<HashMap<Key, Made>>>,
}

impl Workloads {
    pub(super) async fn client(&self, cluster: &Key, secret: &SecretValues) -> Result<Client> {
        let version = format!("{}/{}", secret.uid, secret.resource_version);
        let known = self.made().get(cluster).filter(|(of, _)| *of == version).map(|(_, made)| made.clone());
        let made = if let Some(made) = known {
            made
        } else {
            let made = client_of(cluster, secret).await;
            if let Err(why) = &made {
                tracing::warn!(%cluster, "the kubeconfig of the workload cluster is not used: {why}");
            }
            let mut all = self.made();
            if all.len() >= KEPT {
                all.clear();
            }
            all.insert(cluster.clone(), (version, made.clone()));
            made
        };
        made.map_err(|why| {
            Error::new(ErrorKind::Unavailable, format!("use the kubeconfig of the cluster {cluster}"), why)
        })
    }

    fn made(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error causes may quote the file, which contains keys, so they are dropped.
async fn client_of(cluster: &Key, secret: &SecretValues) -> std::result::Result<Client, String> {
    let text = secret.text("value").ok_or("its Secret has no key \"value\"")?;
    let kubeconfig = kubeconfig::read(text)?;
    let unusable = "its certificates or keys cannot be used";
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|_| unusable.to_owned())?;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(READ);
    let following = crate::answering::following(&config, cluster.to_string());
    let builder = ClientBuilder::try_from(config).map_err(|_| unusable.to_owned())?;
    Ok(limited(builder).with_layer(&following).build())
}

type Limit<B> = fn(Response<B>) -> Response<Bounded<B>>;

/// Limits what each answer may cost (S29).
pub(super) fn limited<S, B>(builder: ClientBuilder<S>) -> ClientBuilder<MapResponse<S, Limit<B>>>
where
    S: Service<Request<Body>, Response = Response<B>>,
{
    let limit: Limit<B> = bounded;
    builder.with_layer(&MapResponseLayer::new(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(user: &str) -> SecretValues {
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {user}}}]\n"
        );
        SecretValues::new("u".into(), "1".into(), [("value".to_owned(), kubeconfig.into_bytes())])
    }

    async fn refusal(user: &str) -> String {
        let cluster = Key::new("team", "c1");
        Workloads::default().client(&cluster, &secret(user)).await.err().expect("no client").to_string()
    }

    #[tokio::test]
    async fn s28_a_kubeconfig_does_not_make_the_manager_send_a_file_of_its_own() {
        let file = std::env::temp_dir().join(format!("capmaas-token-{}", std::process::id()));
        std::fs::write(&file, "CANARY").unwrap();
        let why = refusal(&format!("{{tokenFile: '{}'}}", file.display())).await;
        std::fs::remove_file(&file).unwrap();
        assert!(why.contains("cluster team/c1") && why.contains("sets tokenFile"), "{why}");
    }

    #[tokio::test]
    async fn s28_a_kubeconfig_does_not_make_the_manager_run_a_program() {
        let file = std::env::temp_dir().join(format!("capmaas-ran-{}", std::process::id()));
        let exec = format!(
            "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, interactiveMode: Never, \
             args: ['-c', 'touch {}']}}}}",
            file.display()
        );
        let why = refusal(&exec).await;
        assert!(!file.exists(), "the program ran");
        assert!(why.contains("sets exec"), "{why}");
    }

    #[tokio::test]
    async fn a_kubeconfig_with_a_token_becomes_a_client_that_is_kept() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let workloads = Workloads::default();
        for _ in 0..2 {
            assert!(workloads.client(&Key::new("team", "c1"), &secret("{token: t}")).await.is_ok());
        }
        assert_eq!(workloads.made().len(), 1);
    }
}
