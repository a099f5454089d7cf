//! What each cluster and each machine is waiting for, taken from their own conditions.

use std::collections::BTreeMap;

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::scene::Scene;
use kubectl_maas::machines::waits_for;
use serde_json::Value;

/// In the order in which they become true.
const CLUSTER_STEPS: [&str; 4] = ["CredentialsValid", "LoadBalancerReady", "APIServerAvailable", "LXDReady"];

/// One line per object, keyed by object name.
pub(crate) type Lines = BTreeMap<String, String>;

/// Reads the current state of the clusters of these plans. An object that cannot be read now is read on the next pass.
pub(crate) async fn look(scene: &Scene, plans: &[&ClusterPlan]) -> Lines {
    let mut lines = Lines::new();
    for plan in plans {
        let list = async |kind: &str| -> Vec<Value> {
            match scene.objects(plan, kind) {
                Ok(objects) => objects.list().await.unwrap_or_default(),
                Err(_) => Vec::new(),
            }
        };
        for cluster in list("MaasCluster").await {
            lines.insert(name(&cluster).to_owned(), cluster_waits_for(&cluster));
        }
        let machines = list("Machine").await;
        for machine in list("MaasMachine").await {
            let phase =
                machines.iter().find(|owner| name(owner) == name(&machine)).map(|owner| &owner["status"]["phase"]);
            lines.insert(name(&machine).to_owned(), machine_line(&machine, phase.and_then(Value::as_str)));
        }
    }
    lines
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn cluster_waits_for(cluster: &Value) -> String {
    let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let find = |kind: &str| conditions.iter().find(|condition| condition["type"] == kind);
    if cluster["metadata"].get("deletionTimestamp").is_some() {
        return find("Deleting")
            .map_or_else(|| "is being deleted".to_owned(), |leaving| format!("is being deleted: {}", words(leaving)));
    }
    let unmet = CLUSTER_STEPS.iter().filter_map(|step| find(step)).find(|step| step["status"] != "True");
    match unmet {
        Some(unmet) => format!("waits: {}", words(unmet)),
        None if conditions.is_empty() => "waits: the manager has not seen it yet".to_owned(),
        None => "is ready".to_owned(),
    }
}

/// The machine's name in MAAS, or the host if it is a VM, and what it is waiting for. A Ready machine still has to join
/// its cluster.
fn machine_line(machine: &Value, phase: Option<&str>) -> String {
    let status = |field: &str| machine["status"][field].as_str().unwrap_or_default();
    let place = match (status("hostname"), status("lxdHost")) {
        ("", "") => String::new(),
        (hostname, "") => format!("{hostname} in {}: ", status("failureDomain")),
        (_, host) => format!("VM on {host}: "),
    };
    let state = waits_for(machine);
    let state = match (state.as_str(), phase) {
        ("nothing", Some("Running")) => "is a Node of its cluster".to_owned(),
        ("nothing", _) => "runs; waits for its Node".to_owned(),
        ("deletion", _) => "is being deleted".to_owned(),
        (words, _) => match words.strip_prefix("deletion: ") {
            Some(words) => format!("is being deleted: {}", without_reason(words)),
            None => format!("waits: {}", without_reason(words)),
        },
    };
    format!("{place}{state}")
}

/// The plugin prints the reason before the message so that users can search for it; here the message is enough.
fn without_reason(words: &str) -> &str {
    words.split_once(": ").filter(|(reason, _)| !reason.contains(' ')).map_or(words, |(_, message)| message)
}

fn words(condition: &Value) -> String {
    let field = |name: &str| condition[name].as_str().unwrap_or_default();
    if field("message").is_empty() { field("reason").to_owned() } else { field("message").to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_machine_waits_for_its_first_unmet_condition_then_for_its_node() {
        let mut machine = json!({"metadata": {"name": "cp-1"}, "status": {
            "hostname": "m01", "failureDomain": "az1",
            "conditions": [{"type": "MachineDeployed", "status": "False", "reason": "MachineDeploying", "message": "MAAS deploys it"}],
        }});
        assert_eq!(machine_line(&machine, Some("Provisioning")), "m01 in az1: waits: MAAS deploys it");
        machine["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        assert_eq!(machine_line(&machine, Some("Provisioned")), "m01 in az1: runs; waits for its Node");
        assert_eq!(machine_line(&machine, Some("Running")), "m01 in az1: is a Node of its cluster");
        machine["status"]["lxdHost"] = json!("h1");
        machine["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        machine["status"]["conditions"] =
            json!([{"type": "Deleting", "status": "True", "reason": "Deleting", "message": "it is being released"}]);
        assert_eq!(machine_line(&machine, Some("Deleting")), "VM on h1: is being deleted: it is being released");
    }

    #[test]
    fn a_cluster_waits_for_its_hosts_last() {
        let ready = |kind: &str| json!({"type": kind, "status": "True"});
        let hosts = json!({"type": "LXDReady", "status": "False", "reason": "LXDSetupPending", "message": "m01 is not registered"});
        let mut cluster =
            json!({"metadata": {"name": "c"}, "status": {"conditions": [hosts, ready("LoadBalancerReady")]}});
        assert_eq!(cluster_waits_for(&cluster), "waits: m01 is not registered");
        cluster["status"]["conditions"] = json!([ready("LXDReady")]);
        assert_eq!(cluster_waits_for(&cluster), "is ready");
        cluster["status"] = json!({});
        assert_eq!(cluster_waits_for(&cluster), "waits: the manager has not seen it yet");
        cluster["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(cluster_waits_for(&cluster), "is being deleted");
    }
}
