//! Cluster API's Machines and what owns them, for whoever has a Machine replaced.

use std::fmt;

use async_trait::async_trait;
use capmaas_api::capi::Machine;
use capmaas_api::names::CLUSTER_NAME_LABEL;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

use super::{Error, ErrorKind, Guard, Key, MemoryKubernetes, Result};

/// The calls. All are live: they see every write that came before.
#[async_trait]
pub trait Owners: Send + Sync + fmt::Debug {
    /// The `Machine`s of a Cluster, by their label.
    async fn machines(&self, cluster: &Key) -> Result<Vec<Machine>>;

    /// The object that an owner reference names. `None`: it does not exist, or another one has its name.
    async fn owner(&self, namespace: &str, owner: &OwnerReference) -> Result<Option<Value>>;

    /// Deletes a `Machine` that still has this UID and version; [`ErrorKind::Conflict`] if it has changed since.
    async fn delete_machine(&self, key: &Key, uid: &str, guard: &Guard) -> Result<()>;
}

/// The object, unless it is another one of the same name.
pub(super) fn is_owner(object: Value, owner: &OwnerReference) -> Option<Value> {
    (object["metadata"]["uid"] == owner.uid.as_str()).then_some(object)
}

#[async_trait]
impl Owners for MemoryKubernetes {
    async fn machines(&self, cluster: &Key) -> Result<Vec<Machine>> {
        let all = self.objects("Machine").into_iter();
        let of_cluster = all.filter(|object| {
            let metadata = &object["metadata"];
            metadata["namespace"] == cluster.namespace.as_str()
                && metadata["labels"][CLUSTER_NAME_LABEL] == cluster.name.as_str()
        });
        let read = |object| {
            serde_json::from_value(object).map_err(|error| {
                Error::new(ErrorKind::Unavailable, "list Machines", "one cannot be understood").caused_by(error)
            })
        };
        of_cluster.map(read).collect()
    }

    async fn owner(&self, namespace: &str, owner: &OwnerReference) -> Result<Option<Value>> {
        Ok(self.object(&owner.kind, &Key::new(namespace, &owner.name)).and_then(|object| is_owner(object, owner)))
    }

    async fn delete_machine(&self, key: &Key, uid: &str, guard: &Guard) -> Result<()> {
        let doing = format!("delete the Machine {key}");
        let Some(stored) = self.object("Machine", key) else {
            return Err(Error::new(ErrorKind::NotFound, doing, "it does not exist"));
        };
        let metadata = &stored["metadata"];
        if metadata["uid"] != uid || metadata["resourceVersion"] != guard.resource_version.as_str() {
            return Err(Error::new(ErrorKind::Conflict, doing, "the object has been modified"));
        }
        self.delete("Machine", key);
        Ok(())
    }
}
