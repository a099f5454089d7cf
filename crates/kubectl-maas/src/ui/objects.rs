//! Objects of Kubernetes and MAAS as the page shows them: few fields of each, so that a thousand are sent quickly.

use std::collections::{BTreeMap, BTreeSet};

use capmaas_api::names::{CLUSTER_NAME_LABEL, CONTROL_PLANE_LABEL};
use capmaas_core::machine::{STAMP, quarantine_tags};
use jiff::Timestamp;
use maas_client::{MachineStatus, VmHost};
use serde_json::{Value, json};

use crate::hosts::Host;
use crate::machines::{waits_for, waits_since};
use crate::{condition, hosts, text};

/// How many events are shown, newest first.
const EVENTS: usize = 300;

fn full_name(object: &Value) -> String {
    format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

fn label<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"]["labels"].get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Clusters, machines and events of Kubernetes.
pub(super) fn of_kubernetes(
    clusters: &[Value],
    ours: &[Value],
    machines: &[Value],
    events: &[Value],
) -> BTreeMap<String, Value> {
    let infrastructure: BTreeMap<String, &Value> = ours.iter().map(|object| (full_name(object), object)).collect();
    let mut all = BTreeMap::new();
    for cluster in clusters {
        all.insert(format!("cluster/{}", full_name(cluster)), self::cluster(cluster, &infrastructure));
    }
    for object in machines {
        all.insert(format!("machine/{}", full_name(object)), machine(object));
    }
    let mut newest: Vec<&Value> = events.iter().filter(|event| is_about_us(event)).collect();
    newest.sort_by_key(|event| std::cmp::Reverse(moment(event).to_owned()));
    for event in newest.into_iter().take(EVENTS) {
        all.insert(format!("event/{}", text(event, "/metadata/uid")), self::event(event));
    }
    all
}

fn cluster(cluster: &Value, infrastructure: &BTreeMap<String, &Value>) -> Value {
    let name = format!("{}/{}", text(cluster, "/metadata/namespace"), text(cluster, "/spec/infrastructureRef/name"));
    let ours = infrastructure.get(&name);
    let ready = ours.and_then(|object| condition(object, "Ready"));
    let unready = ready.filter(|ready| ready["status"] != "True");
    json!({
        "namespace": text(cluster, "/metadata/namespace"),
        "name": text(cluster, "/metadata/name"),
        "phase": text(cluster, "/status/phase"),
        "endpoint": text(cluster, "/spec/controlPlaneEndpoint/host"),
        "zones": ours.map_or(Value::Null, |object| object["spec"]["failureDomains"].clone()),
        "waitsFor": unready.map(|ready| format!("{}: {}", text(ready, "/reason"), text(ready, "/message"))),
        "since": unready.map(|ready| text(ready, "/lastTransitionTime")),
        "evacuating": ours.and_then(|object| evacuating(object)),
        "deleting": cluster["metadata"].get("deletionTimestamp").is_some(),
    })
}

/// The evacuation message: on the host's MaasMachine, and on the MaasClusters that own the VMs.
fn evacuating(object: &Value) -> Option<&str> {
    let condition = condition(object, "Evacuating").filter(|it| it["status"] == "True")?;
    Some(text(condition, "/message"))
}

/// One MaasMachine.
pub(super) fn machine(object: &Value) -> Value {
    let either = |one: &str, other: &str| {
        let found = text(object, one);
        if found.is_empty() { text(object, other).to_owned() } else { found.to_owned() }
    };
    let ready = condition(object, "Ready").is_some_and(|ready| ready["status"] == "True");
    let conditions = object["status"]["conditions"].as_array();
    let trouble = conditions.into_iter().flatten().any(|it| it["status"] == "False" && it["severity"] == "Error");
    let deleting = object["metadata"].get("deletionTimestamp").is_some();
    let is_vm = !text(object, "/status/lxdHost").is_empty() || text(object, "/status/provisioningMode") == "lxd";
    json!({
        "namespace": text(object, "/metadata/namespace"),
        "name": text(object, "/metadata/name"),
        "cluster": label(object, CLUSTER_NAME_LABEL),
        "controlPlane": object["metadata"]["labels"].get(CONTROL_PLANE_LABEL).is_some(),
        "vm": is_vm,
        "zone": either("/status/failureDomain", "/spec/failureDomain"),
        "host": text(object, "/status/lxdHost"),
        "hostname": text(object, "/status/hostname"),
        "systemID": text(object, "/spec/systemID"),
        "state": text(object, "/status/machineState"),
        "health": match (deleting, ready, trouble) {
            (true, ..) => "leaving",
            (_, true, _) => "ready",
            (_, _, true) => "trouble",
            _ => "waiting",
        },
        "waitsFor": waits_for(object),
        "since": waits_since(object),
        "evacuating": evacuating(object),
    })
}

fn is_about_us(event: &Value) -> bool {
    text(event, "/regarding/apiVersion").split_once('/').is_some_and(|(group, _)| group.ends_with("cluster.x-k8s.io"))
}

fn moment(event: &Value) -> &str {
    let pointers =
        ["/series/lastObservedTime", "/eventTime", "/deprecatedLastTimestamp", "/metadata/creationTimestamp"];
    pointers.into_iter().map(|pointer| text(event, pointer)).find(|time| !time.is_empty()).unwrap_or_default()
}

pub(super) fn event(event: &Value) -> Value {
    json!({
        "time": moment(event),
        "type": text(event, "/type"),
        "reason": text(event, "/reason"),
        "note": text(event, "/note"),
        "kind": text(event, "/regarding/kind"),
        "namespace": text(event, "/regarding/namespace"),
        "name": text(event, "/regarding/name"),
        "count": event.pointer("/series/count").cloned().unwrap_or(json!(1)),
    })
}

/// Hosts and bare metal of MAAS.
pub(super) fn of_maas(
    vm_hosts: &[VmHost],
    machines: &[maas_client::Machine],
    now: Timestamp,
) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    let shown = hosts::to_json(&Host::all(vm_hosts, machines));
    for (host, shown) in vm_hosts.iter().zip(shown.as_array().into_iter().flatten()) {
        let on_it = |machine: &&maas_client::Machine| machine.pod.as_ref().is_some_and(|pod| pod.id == host.id);
        let mut shown = shown.clone();
        let vm = |machine: &maas_client::Machine| json!({"id": machine.system_id, "hostname": machine.hostname});
        shown["vms"] = machines.iter().filter(on_it).map(vm).collect();
        shown["tags"] = json!(host.tags);
        shown["machine"] = json!(host.host.as_ref().map(|machine| &machine.system_id));
        all.insert(format!("host/{}", host.id), shown);
    }
    let beneath: BTreeSet<&str> =
        vm_hosts.iter().filter_map(|host| Some(host.host.as_ref()?.system_id.as_str())).collect();
    for machine in machines.iter().filter(|machine| !machine.is_vm()) {
        all.insert(
            format!("metal/{}", machine.system_id),
            metal(machine, beneath.contains(machine.system_id.as_str()), now),
        );
    }
    all
}

fn metal(machine: &maas_client::Machine, is_host: bool, now: Timestamp) -> Value {
    json!({
        "id": machine.system_id,
        "hostname": machine.hostname,
        "zone": machine.zone.as_ref().map(|zone| zone.name.clone()),
        "pool": machine.pool.as_ref().map(|pool| pool.name.clone()),
        "tags": machine.tag_names,
        "state": machine.status_name,
        "use": use_of(machine, now),
        "owner": machine.owner,
        "for": machine.workload_annotations.get(capmaas_core::machine::STAMPED_FOR),
        "vmHost": is_host,
        "cores": machine.cpu_count,
        "memoryGiB": machine.memory.map(|megabytes| megabytes / 1024),
    })
}

/// A machine's use: free, ours, somebody's, quarantined, broken, or not ready.
fn use_of(machine: &maas_client::Machine, now: Timestamp) -> &'static str {
    let status = machine.status;
    let is = |wanted: MachineStatus| status == Some(wanted);
    if status.is_some_and(|status| status.name().contains("ailed") || status.name() == "Broken") {
        "broken"
    } else if machine.workload_annotations.contains_key(STAMP) {
        "ours"
    } else if machine.owner.as_ref().is_some_and(|owner| !owner.is_empty()) {
        "somebody's"
    } else if !is(MachineStatus::Ready) {
        "not ready"
    } else if quarantine_tags(now).iter().any(|tag| machine.tag_names.contains(tag)) {
        "quarantined"
    } else {
        "free"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_tells_where_it_is_what_it_waits_for_and_since_when() {
        let object = json!({
            "metadata": {"namespace": "n", "name": "m", "labels": {"cluster.x-k8s.io/cluster-name": "c", "cluster.x-k8s.io/control-plane": ""}},
            "status": {"failureDomain": "az1", "lxdHost": "h1", "machineState": "Deploying", "conditions": [
                {"type": "LXDVMCreated", "status": "True"},
                {"type": "Evacuating", "status": "True", "message": "two VMs are left"},
                {"type": "LXDVMDeployed", "status": "False", "reason": "Deploying", "message": "MAAS deploys it", "lastTransitionTime": "2026-11-15T09:00:00Z"},
            ]},
        });
        let shown = machine(&object);
        assert_eq!((&shown["zone"], &shown["host"], &shown["vm"]), (&json!("az1"), &json!("h1"), &json!(true)));
        assert_eq!((&shown["health"], &shown["since"]), (&json!("waiting"), &json!("2026-11-15T09:00:00Z")));
        assert_eq!(shown["waitsFor"], "Deploying: MAAS deploys it");
        assert_eq!(shown["evacuating"], "two VMs are left");
    }

    #[test]
    fn metal_is_told_apart_by_whose_it_is() {
        let now = "2026-11-16T09:00:00Z".parse().unwrap();
        let used = |object: Value| use_of(&serde_json::from_value(object).unwrap(), now);
        assert_eq!(used(json!({"system_id": "a", "status": 4})), "free");
        assert_eq!(
            used(json!({"system_id": "a", "status": 4, "tag_names": ["capmaas-quarantine-2026-11-15"]})),
            "quarantined"
        );
        assert_eq!(
            used(json!({"system_id": "a", "status": 4, "tag_names": ["capmaas-quarantine-2026-11-10"]})),
            "free"
        );
        assert_eq!(used(json!({"system_id": "a", "status": 6, "owner": "bob"})), "somebody's");
        assert_eq!(
            used(json!({"system_id": "a", "status": 6, "owner": "bob", "workload_annotations": {"capmaas-key": "k"}})),
            "ours"
        );
        assert_eq!(
            used(json!({"system_id": "a", "status": 11, "owner": "bob", "workload_annotations": {"capmaas-key": "k"}})),
            "broken"
        );
        assert_eq!(used(json!({"system_id": "a", "status": 8})), "broken");
        assert_eq!(used(json!({"system_id": "a", "status": 0})), "not ready");
    }

    #[test]
    fn a_host_in_maintenance_says_how_many_vms_are_left() {
        let host =
            serde_json::from_value(json!({"id": 7, "name": "h", "version": "5.21", "capabilities": ["composable"],
            "tags": ["maas-lxd-host-maintenance"], "total": {"cores": 8, "memory": 16384}}));
        let on = |id: &str, host: i64| serde_json::from_value(json!({"system_id": id, "pod": {"id": host}})).unwrap();
        let tagged = json!({"id": 8, "name": "i", "version": "5.21", "capabilities": ["composable"],
            "total": {"cores": 8, "memory": 16384}, "host": {"system_id": "metal"}});
        let metal = json!({"system_id": "metal", "tag_names": ["maas-lxd-host-maintenance"]});
        let hosts = [host.unwrap(), serde_json::from_value(tagged).unwrap()];
        let machines = [on("a", 7), on("b", 8), on("c", 8), serde_json::from_value(metal).unwrap()];
        let shown = of_maas(&hosts, &machines, Timestamp::UNIX_EPOCH);
        assert_eq!(shown["host/8"]["vmsLeft"], 2, "its machine has the tag: {}", shown["host/8"]);
        let host = &shown["host/7"];
        assert!(host["state"].as_str().unwrap().contains("1 VM left"), "{host}");
        assert_eq!((host["vmsLeft"].as_u64(), host["vms"].as_array().unwrap().len()), (Some(1), 1));
    }

    #[test]
    fn of_many_events_the_newest_about_clusters_are_shown() {
        let event = |n: usize, group: &str| {
            json!({"metadata": {"uid": n.to_string()}, "eventTime": format!("2026-11-15T09:{:02}:{:02}Z", n / 60, n % 60),
                   "regarding": {"apiVersion": format!("{group}/v1beta1"), "kind": "MaasMachine"}})
        };
        let mut events: Vec<Value> = (0..EVENTS + 50).map(|n| event(n, "infrastructure.cluster.x-k8s.io")).collect();
        events.push(event(3000, "apps"));
        let shown = of_kubernetes(&[], &[], &[], &events);
        assert_eq!(shown.len(), EVENTS);
        assert!(!shown.contains_key("event/0") && !shown.contains_key("event/3000"));
    }
}
