//! Performs the one write of a plan.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow};
use lxd_client::{NewCertificate, NewProject, NewStoragePool};
use serde_json::json;

use crate::{
    agent::Agent,
    effect::Effect,
    keys, names,
    observe::{find_socket, with_cause},
    settings::PoolSettings,
};

impl Agent {
    /// Performs the effect. Whatever this returns, the next pass observes what really happened.
    pub(crate) async fn apply(&mut self, effect: &Effect) -> anyhow::Result<()> {
        match effect {
            Effect::CreatePool(pool) => {
                self.local().await?.create_storage_pool(&new_pool(pool)).await.map(drop).map_err(plain)
            }
            Effect::CreateProject { name, config } => {
                let project = NewProject {
                    name: name.clone(),
                    description: "For MAAS, made by lxd-initializer".into(),
                    config: config.clone(),
                };
                self.local().await?.create_project(&project).await.map(drop).map_err(plain)
            }
            Effect::Listen { address } => {
                self.memory.listens = false;
                self.set_listener(address).await?;
                self.memory.listens = true;
                Ok(())
            }
            Effect::StopListening => self.set_listener("").await,
            Effect::MakeKey => keys::make(&self.settings.state_dir, &self.settings.node_name)
                .with_context(|| format!("in {}", self.settings.state_dir.display())),
            Effect::Trust { pem, project } => {
                let certificate = NewCertificate {
                    name: names::trust_name(&self.settings.node_name),
                    certificate_pem: pem.clone(),
                    projects: Some(vec![project.clone()]),
                };
                self.local().await?.trust_certificate(&certificate).await.map(drop).map_err(plain)
            }
            Effect::Distrust { fingerprint } => {
                self.local().await?.distrust_certificate(*fingerprint).await.map(drop).map_err(plain)
            }
            Effect::OnHost(call) => self.call_maas(call).await,
            Effect::Report(patch) => self.cluster.patch_node(patch).await,
        }
    }

    pub(crate) async fn local(&self) -> anyhow::Result<lxd_client::Client> {
        let socket =
            find_socket(&self.settings.sockets).await.ok_or_else(|| anyhow!("LXD's socket no longer exists"))?;
        self.lxd(&socket).map_err(plain)
    }

    /// Sets the address and its marker in one request, so that there is never one without the other.
    async fn set_listener(&self, address: &str) -> anyhow::Result<()> {
        let config = BTreeMap::from([("core.https_address", address), (names::LISTENER_NOTE, address)]);
        let body = json!({ "config": config });
        self.local().await?.mutate(http::Method::PATCH, "/1.0", Some(&body)).await.map(drop).map_err(plain)
    }
}

fn new_pool(pool: &PoolSettings) -> NewStoragePool {
    NewStoragePool {
        name: pool.name.clone(),
        driver: pool.driver.clone(),
        description: "Made by lxd-initializer".into(),
        // Options that wipe, force or recover are never sent.
        config: pool.size.iter().map(|size| ("size".to_owned(), size.clone())).collect(),
    }
}

/// The error as one message; its sources add nothing to it.
fn plain(error: lxd_client::Error) -> anyhow::Error {
    anyhow!("{}", with_cause(&error))
}
