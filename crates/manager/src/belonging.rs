//! The Cluster and the tenant that a MaasCluster belongs to.

use capmaas_api::MaasCluster;
use capmaas_api::capi::owner;
use capmaas_api::names::CLUSTER_NAME_LABEL;
use kube::ResourceExt as _;

/// The name of the Cluster that an object belongs to: from its label or, before Cluster API has set that, from its
/// owner; by convention its own name if there is neither.
pub(crate) fn cluster_name(object: &MaasCluster) -> String {
    let label = object.labels().get(CLUSTER_NAME_LABEL).cloned();
    let owner = || owner(&object.metadata, "Cluster").map(|owner| owner.name.clone());
    label.or_else(owner).unwrap_or_else(|| object.name_any())
}

/// The credentials that a cluster uses (S29): the Secret that it names, or the manager's own.
pub(crate) fn tenant(cluster: &MaasCluster) -> String {
    let own = cluster.namespace().unwrap_or_default();
    cluster.spec.identity_ref.as_ref().map_or_else(
        || "manager".to_owned(),
        |reference| format!("Secret {}/{}", reference.namespace.as_ref().unwrap_or(&own), reference.name),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_belongs_to_the_cluster_of_its_label_or_owner() {
        let object = |metadata: serde_json::Value| -> MaasCluster {
            serde_json::from_value(json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster", "metadata": metadata, "spec": {},
            }))
            .unwrap()
        };
        let owner = json!([{ "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "name": "c2", "uid": "u" }]);
        let label = json!({ "cluster.x-k8s.io/cluster-name": "c1" });
        assert_eq!(cluster_name(&object(json!({ "name": "m", "labels": label, "ownerReferences": owner }))), "c1");
        assert_eq!(cluster_name(&object(json!({ "name": "m", "ownerReferences": owner }))), "c2");
        assert_eq!(cluster_name(&object(json!({ "name": "m" }))), "m");
    }
}
