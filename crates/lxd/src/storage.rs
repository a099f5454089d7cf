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
    /// `Created`, `Pending`, `Errored`, `Unknown` or `Unavailable`.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub status: String,
    /// Its configuration; `None` for clients that may not see it.
    #[serde(default, deserialize_with = "tolerant::config")]
    pub config: Option<BTreeMap<String, String>>,
    /// What uses it.
    #[serde(default, deserialize_with = "tolerant::texts")]
    pub used_by: Vec<String>,
}

impl StoragePool {
    /// Whether it works. A record alone does not: a create that was cut off, or a lost backing file, leaves one that is
    /// `Unavailable`, and its free space then reads like that of the root file system.
    pub fn is_usable(&self) -> bool {
        self.status == "Created"
    }
}

/// A storage pool to be made.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NewStoragePool {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// What a person reads.
    pub description: String,
    /// Its configuration. A `size` needs a unit (`50` means 50 bytes), and driver `dir` takes none.
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

    /// Makes a storage pool. LXD makes one at a time, so this may wait for another create.
    pub async fn create_storage_pool(&self, pool: &NewStoragePool) -> Mutated {
        self.mutate(Method::POST, "/1.0/storage-pools", Some(pool)).await
    }
}
