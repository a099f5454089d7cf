//! Machines and their owners, in memory.

use async_trait::async_trait;
use capmaas_api::capi::Machine;
use capmaas_api::names::CLUSTER_NAME_LABEL;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

use super::super::owners::{Owners, is_owner};
use super::super::{Error, ErrorKind, Guard, Key, Result};
use super::MemoryKubernetes;

#[async_trait]
impl Owners for MemoryKubernetes {
    async fn machines(&self, cluster: &Key) -> Result<Vec<Machine>> {
        let all = self.objects("Machine").into_iter();
        let of_cluster = all.filter(|object| {
            let metadata = &object["metadata"];
            metadata["namespace"] == cluster.namespace.as_str()
                && metadata["labels"][CLUSTER_NAME_LABEL] == cluster.name.as_str()
        });
        of_cluster.map(|object| super::decode("Machine", cluster, object)).collect()
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
