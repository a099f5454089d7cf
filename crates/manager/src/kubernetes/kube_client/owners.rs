//! Machines and their owners, backed by an API server.

use async_trait::async_trait;
use capmaas_api::capi::Machine;
use capmaas_api::names::CLUSTER_NAME_LABEL;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Preconditions};
use kube::core::GroupVersionKind;
use serde_json::Value;

use super::{KubeClient, PAGE, not_understood, read, within};
use crate::kubernetes::owners::{Owners, is_owner};
use crate::kubernetes::{Guard, Key, Result};

#[async_trait]
impl Owners for KubeClient {
    async fn machines(&self, cluster: &Key) -> Result<Vec<Machine>> {
        let resource = Machine::api_resource(&self.core_version());
        let api: Api<Machine> = Api::namespaced_with(self.client.clone(), &cluster.namespace, &resource);
        let mut page = ListParams::default().limit(PAGE).labels(&format!("{CLUSTER_NAME_LABEL}={}", cluster.name));
        let mut machines = Vec::new();
        loop {
            let list = within(format!("list the Machines of the cluster {cluster}"), api.list(&page)).await?;
            machines.extend(list.items);
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(machines),
            }
        }
    }

    async fn owner(&self, namespace: &str, owner: &OwnerReference) -> Result<Option<Value>> {
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &owner.kind));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let doing = format!("read the {} {namespace}/{}", owner.kind, owner.name);
        let Some(object) = read(doing.clone(), api.get(&owner.name)).await? else { return Ok(None) };
        let object = serde_json::to_value(object).map_err(|error| not_understood(doing, error))?;
        Ok(is_owner(object, owner))
    }

    async fn delete_machine(&self, key: &Key, uid: &str, guard: &Guard) -> Result<()> {
        let resource = Machine::api_resource(&self.core_version());
        let api: Api<Machine> = Api::namespaced_with(self.client.clone(), &key.namespace, &resource);
        let same = Preconditions { uid: Some(uid.to_owned()), resource_version: Some(guard.resource_version.clone()) };
        let parameters = DeleteParams::default().preconditions(same);
        within(format!("delete the Machine {key}"), api.delete(&key.name, &parameters)).await.map(drop)
    }
}
