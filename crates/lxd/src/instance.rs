//! Instances: virtual machines and containers.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{
    client::{Client, segment},
    error::Error,
    tolerant,
};

/// An instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Instance {
    /// Its name.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub name: String,
    /// `virtual-machine` or `container`.
    #[serde(default, rename = "type", deserialize_with = "tolerant::text")]
    pub kind: String,
    /// `Running`, `Stopped`, `Frozen`, `Error`, …
    #[serde(default, deserialize_with = "tolerant::text")]
    pub status: String,
    /// Its project.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub project: String,
    /// Its configuration; `None` for clients that may not read it.
    #[serde(default, deserialize_with = "tolerant::config")]
    pub config: Option<BTreeMap<String, String>>,
}

impl Client {
    /// All instances of a project. LXD answers an empty list for a project that does not exist.
    pub async fn instances(&self, project: &str) -> Result<Vec<Instance>, Error> {
        let path = format!("/1.0/instances?project={}&recursion=1", segment(project));
        self.get::<Option<_>>(&path).await.map(Option::unwrap_or_default)
    }

    /// One instance.
    pub async fn instance(&self, project: &str, name: &str) -> Result<Option<Instance>, Error> {
        self.find(&format!("/1.0/instances/{}?project={}", segment(name), segment(project))).await
    }
}
