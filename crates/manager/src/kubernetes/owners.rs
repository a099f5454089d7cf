//! Cluster API's Machines and their owners, for evacuation.

use std::fmt;

use async_trait::async_trait;
use capmaas_api::capi::Machine;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

use super::{Guard, Key, Result};

/// The calls. All are live: they see every earlier write.
#[async_trait]
pub trait Owners: Send + Sync + fmt::Debug {
    /// The `Machine`s of a Cluster, by their label.
    async fn machines(&self, cluster: &Key) -> Result<Vec<Machine>>;

    /// The object that an owner reference names. `None`: it does not exist, or a different object has its name.
    async fn owner(&self, namespace: &str, owner: &OwnerReference) -> Result<Option<Value>>;

    /// Deletes a `Machine` that still has this UID and version; [`ErrorKind::Conflict`] if it has changed since.
    async fn delete_machine(&self, key: &Key, uid: &str, guard: &Guard) -> Result<()>;
}

/// The object, unless it is a different one of the same name.
pub(super) fn is_owner(object: Value, owner: &OwnerReference) -> Option<Value> {
    (object["metadata"]["uid"] == owner.uid.as_str()).then_some(object)
}
