//! Storage pools.

use std::collections::BTreeMap;

use http::Method;
use serde::{Deserialize, Serialize};

use crate::{
    client::{Client, Mutated, segment},
    error::Error,
    tolerant,
};

/// A storage pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct StoragePool {
    /// Its name.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub name: String,
    /// Its driver, such as `zfs`.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub driver: String,
    /// `Created`, `Pending`, `Errored`, `Unknown` or `Unavailable`. Only a `Created` one works: an interrupted create or a
    /// lost backing file leaves a pool that is `Unavailable`, and its free space then reads like that of the root file system.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub status: String,
    /// Its configuration; `None` for clients that may not read it.
    #[serde(default, deserialize_with = "tolerant::config")]
    pub config: Option<BTreeMap<String, String>>,
    /// What uses it.
    #[serde(default, deserialize_with = "tolerant::texts")]
    pub used_by: Vec<String>,
}

/// A new storage pool.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NewStoragePool {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// Free text.
    pub description: String,
    /// Its configuration. A `size` needs a unit (`50` means 50 bytes), and the driver `dir` takes none.
    pub config: BTreeMap<String, String>,
}

impl Client {
    /// One storage pool.
    pub async fn storage_pool(&self, name: &str) -> Result<Option<StoragePool>, Error> {
        self.find(&format!("/1.0/storage-pools/{}", segment(name))).await
    }

    /// All storage pools.
    pub async fn storage_pools(&self) -> Result<Vec<StoragePool>, Error> {
        self.get::<Option<_>>("/1.0/storage-pools?recursion=1").await.map(Option::unwrap_or_default)
    }

    /// Creates a storage pool. LXD creates one at a time, so this may wait for another create.
    pub async fn create_storage_pool(&self, pool: &NewStoragePool) -> Mutated {
        self.mutate(Method::POST, "/1.0/storage-pools", Some(pool)).await
    }
}
