//! Recorded objects of the Go provider, created in a scene before our manager starts.

use anyhow::{Context as _, ensure};
use capmaas_testbed::parse_yaml;
use serde_json::{Value, json};

use crate::cluster::ClusterPlan;
use crate::maas::{MachineFacts, USER};
use crate::scene::Scene;
use crate::{INFRASTRUCTURE, repository};

/// The Go provider's finalizers, which we use too.
pub const MACHINE_FINALIZER: &str = "maasmachine.infrastructure.cluster.x-k8s.io";
pub const CLUSTER_FINALIZER: &str = "maascluster.infrastructure.cluster.x-k8s.io";
pub const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";

/// Recorded objects, from a file next to the API tests.
pub fn recorded(file: &str) -> anyhow::Result<Vec<Value>> {
    let path = repository().join("crates/api/tests/fixtures").join(file);
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(parse_yaml(&text)?)
}

/// Creates a Cluster, its MaasCluster with the fields that the Go provider adds, and the Secret that Machines
/// reference.
pub async fn put_cluster(scene: &Scene, plan: &ClusterPlan, spec: Value, status: Value) -> anyhow::Result<()> {
    let name = &plan.name;
    let maas_clusters = scene.objects(plan, "MaasCluster")?;
    maas_clusters.apply(name, json!({"metadata": {"finalizers": [CLUSTER_FINALIZER]}, "spec": spec})).await?;
    maas_clusters.apply_status(name, status).await?;
    let reference = json!({"apiGroup": INFRASTRUCTURE, "kind": "MaasCluster", "name": name});
    scene.objects(plan, "Cluster")?.apply(name, json!({"spec": {"infrastructureRef": reference}})).await?;
    let bootstrap = json!({"type": "cluster.x-k8s.io/secret", "stringData": {"value": "#cloud-config"}});
    scene.objects(plan, "Secret")?.apply("bootstrap", bootstrap).await
}

/// Creates the Machine that owns a MaasMachine.
pub async fn put_machine_above(scene: &Scene, plan: &ClusterPlan, name: &str, labels: &Value) -> anyhow::Result<()> {
    let spec = json!({
        "clusterName": plan.name,
        "bootstrap": {"dataSecretName": "bootstrap"},
        "infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": "MaasMachine", "name": name},
    });
    scene.objects(plan, "Machine")?.apply(name, json!({"metadata": {"labels": labels}, "spec": spec})).await
}

/// Creates a recorded MaasMachine under another name and for another machine in MAAS, which is put into the state that
/// the object reports. A MaasMachine that was being deleted is being deleted again.
pub async fn put_machine(
    scene: &Scene,
    plan: &ClusterPlan,
    name: &str,
    revision: &Value,
    machine: &MachineFacts,
) -> anyhow::Result<()> {
    let (id, zone) = (&machine.system_id, &machine.zone);
    let mut spec = revision["spec"].clone();
    let mut status = revision["status"].clone();
    if revision["spec"]["providerID"].is_string() {
        let state = status["machineState"].as_str().unwrap_or("Deploying");
        let statement = json!({"system_id": id, "status": state, "owner": USER, "power": "on"});
        scene.maas.arrange(json!([{"machine": statement}]))?;
        spec["providerID"] = json!(format!("maas:///{zone}/{id}"));
        if spec["systemID"].is_string() {
            spec["systemID"] = json!(id);
        }
        if spec["failureDomain"].is_string() {
            spec["failureDomain"] = json!(zone);
        }
    }
    if status["hostname"].is_string() {
        status["hostname"] = json!(machine.hostname);
    }
    if status["addresses"].is_array() {
        let address = |address: &std::net::IpAddr| json!({"type": "ExternalIP", "address": address});
        let now = scene.maas.machines().into_iter().find(|found| found.system_id == *id);
        status["addresses"] = now.iter().flat_map(|machine| &machine.addresses).map(address).collect();
    }
    // The labels of a missing MachineSet or control plane would keep Cluster API from deleting the Machine.
    let mut labels = json!({"cluster.x-k8s.io/cluster-name": plan.name});
    if let Some(label) = revision["metadata"]["labels"].get(CONTROL_PLANE) {
        labels[CONTROL_PLANE] = label.clone();
    }
    let recorded = &revision["metadata"];
    let metadata =
        json!({"labels": labels, "annotations": recorded["annotations"], "finalizers": recorded["finalizers"]});
    let maas_machines = scene.objects(plan, "MaasMachine")?;
    maas_machines.apply(name, json!({"metadata": without_nulls(metadata), "spec": spec})).await?;
    if !status.is_null() {
        maas_machines.apply_status(name, status).await?;
    }
    put_machine_above(scene, plan, name, &labels).await?;
    maas_machines.wait(name, "/metadata/ownerReferences/0/kind", json!("Machine")).await?;
    if revision["metadata"]["deletionTimestamp"].is_string() {
        scene.objects(plan, "Machine")?.delete(name).await?;
        crate::eventually("Cluster API deletes the MaasMachine", || async {
            let object = maas_machines.get(name).await?;
            ensure!(object["metadata"]["deletionTimestamp"].is_string(), "{name} is not being deleted");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

fn without_nulls(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    object
}
