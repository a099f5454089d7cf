//! `kubectl maas machines`: the state of each machine and what it waits for.

use capmaas_api::names::CLUSTER_NAME_LABEL;
use serde_json::{Value, json};

use crate::{condition, table::table, text};

/// In the order in which a machine passes them: it waits for the first that is not True.
const STEPS: [&str; 7] = [
    "CredentialsValid",
    "LXDHostSelected",
    "LXDResourcesAllocated",
    "LXDVMCreated",
    "LXDVMDeployed",
    "MachineDeployed",
    "DNSAttached",
];

/// What a machine waits for; "nothing" once it is Ready.
pub fn waits_for(machine: &Value) -> String {
    match waiting(machine) {
        Waiting::Condition(condition) => sentence(condition),
        Waiting::ToGo(Some(leaving)) => format!("deletion: {}", sentence(leaving)),
        Waiting::ToGo(None) => "deletion".to_owned(),
        Waiting::Nothing => "nothing".to_owned(),
        Waiting::Manager => "the manager, which has not seen it yet".to_owned(),
    }
}

/// Since when it waits for that; `None` if it does not wait.
pub fn waits_since(machine: &Value) -> Option<&str> {
    let since = match waiting(machine) {
        Waiting::Condition(condition) | Waiting::ToGo(Some(condition)) => text(condition, "/lastTransitionTime"),
        Waiting::ToGo(None) => text(machine, "/metadata/deletionTimestamp"),
        Waiting::Manager => text(machine, "/metadata/creationTimestamp"),
        Waiting::Nothing => "",
    };
    Some(since).filter(|since| !since.is_empty())
}

enum Waiting<'a> {
    Nothing,
    Condition(&'a Value),
    ToGo(Option<&'a Value>),
    Manager,
}

fn waiting(machine: &Value) -> Waiting<'_> {
    if let Some(paused) = condition(machine, "Paused").filter(|paused| paused["status"] == "True") {
        return Waiting::Condition(paused);
    }
    if machine["metadata"].get("deletionTimestamp").is_some() {
        return Waiting::ToGo(condition(machine, "Deleting").filter(|leaving| leaving["status"] == "True"));
    }
    let unmet = STEPS.iter().filter_map(|step| condition(machine, step)).find(|step| step["status"] != "True");
    match (unmet, condition(machine, "Ready")) {
        (Some(unmet), _) => Waiting::Condition(unmet),
        (None, Some(ready)) if ready["status"] == "True" => Waiting::Nothing,
        (None, Some(ready)) => Waiting::Condition(ready),
        (None, None) => Waiting::Manager,
    }
}

fn sentence(condition: &Value) -> String {
    let (reason, message) = (text(condition, "/reason"), text(condition, "/message"));
    match (reason.is_empty(), message.is_empty()) {
        (_, true) => reason.to_owned(),
        (true, false) => message.to_owned(),
        (false, false) => format!("{reason}: {message}"),
    }
}

/// The table; a wide one has more columns.
pub fn render(machines: &[Value], all_namespaces: bool, wide: bool) -> String {
    if machines.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = machines
        .iter()
        .map(|machine| {
            let mut row = Vec::new();
            if all_namespaces {
                row.push(text(machine, "/metadata/namespace").to_owned());
            }
            row.push(text(machine, "/metadata/name").to_owned());
            row.push(cluster(machine).to_owned());
            row.push(either(machine, "/status/hostname", "/spec/systemID").to_owned());
            row.push(zone(machine).to_owned());
            row.push(text(machine, "/status/lxdHost").to_owned());
            row.push(text(machine, "/status/machineState").to_owned());
            if wide {
                row.push(text(machine, "/spec/providerID").to_owned());
                row.push(text(machine, "/spec/image").to_owned());
                row.push(text(machine, "/metadata/creationTimestamp").to_owned());
            }
            row.push(waits_for(machine));
            row
        })
        .collect();
    let mut titles = vec!["NAMESPACE", "NAME", "CLUSTER", "MACHINE", "ZONE", "LXD HOST", "STATE"];
    if wide {
        titles.extend(["PROVIDER ID", "IMAGE", "CREATED"]);
    }
    titles.push("WAITS FOR");
    table(&titles[usize::from(!all_namespaces)..], &rows)
}

/// The same for programs; what a machine does not have is null.
pub fn to_json(machines: &[Value]) -> Value {
    let some = |text: &str| if text.is_empty() { Value::Null } else { text.into() };
    let one = |machine: &Value| {
        let at = |pointer: &str| some(text(machine, pointer));
        json!({
            "namespace": machine["metadata"]["namespace"],
            "name": machine["metadata"]["name"],
            "cluster": some(cluster(machine)),
            "hostname": machine["status"]["hostname"],
            "systemID": at("/spec/systemID"),
            "providerID": at("/spec/providerID"),
            "zone": some(zone(machine)),
            "lxdHost": at("/status/lxdHost"),
            "image": at("/spec/image"),
            "created": at("/metadata/creationTimestamp"),
            "state": machine["status"]["machineState"],
            "waitsFor": waits_for(machine),
            "since": waits_since(machine),
        })
    };
    machines.iter().map(one).collect()
}

fn either<'a>(machine: &'a Value, one: &str, other: &str) -> &'a str {
    let found = text(machine, one);
    if found.is_empty() { text(machine, other) } else { found }
}

fn zone(machine: &Value) -> &str {
    either(machine, "/status/failureDomain", "/spec/failureDomain")
}

fn cluster(machine: &Value) -> &str {
    machine["metadata"]["labels"][CLUSTER_NAME_LABEL].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(conditions: &Value) -> Value {
        json!({"metadata": {"name": "m1", "namespace": "a", "labels": {"cluster.x-k8s.io/cluster-name": "c1"}},
               "status": {"hostname": "big-cat", "machineState": "Deploying", "conditions": conditions}})
    }

    #[test]
    fn the_first_step_that_is_not_done_is_what_a_machine_waits_for() {
        let waiting = machine(&json!([
            {"type": "Ready", "status": "False", "reason": "NotReady", "message": "MachineDeployed"},
            {"type": "DNSAttached", "status": "False", "reason": "Later"},
            {"type": "MachineDeployed", "status": "False", "reason": "MachineDeploying", "message": "MAAS deploys it"},
        ]));
        assert_eq!(waits_for(&waiting), "MachineDeploying: MAAS deploys it");
        assert_eq!(waits_for(&machine(&json!([{"type": "Ready", "status": "True"}]))), "nothing");
        assert_eq!(waits_for(&json!({})), "the manager, which has not seen it yet");
        let mut leaving = machine(&json!([{"type": "Deleting", "status": "True", "reason": "MachineReleasing"}]));
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(waits_for(&leaving), "deletion: MachineReleasing");
    }

    #[test]
    fn the_table_names_the_machine_in_maas() {
        let shown = render(&[machine(&json!([{"type": "Ready", "status": "True"}]))], false, false);
        assert_eq!(
            shown,
            "NAME   CLUSTER   MACHINE   ZONE   LXD HOST   STATE       WAITS FOR\n\
             m1     c1        big-cat                     Deploying   nothing\n"
        );
    }

    #[test]
    fn programs_are_told_what_the_wide_table_shows() {
        let mut object = machine(&json!([
            {"type": "MachineDeployed", "status": "False", "reason": "MachineDeploying", "message": "MAAS deploys it",
             "lastTransitionTime": "2026-11-15T09:00:00Z"},
        ]));
        object["spec"] =
            json!({"systemID": "abc", "providerID": "maas://az1/abc", "image": "jammy", "failureDomain": "az1"});
        object["metadata"]["creationTimestamp"] = json!("2026-11-15T08:00:00Z");
        object["status"]["lxdHost"] = json!("h1");
        let wanted = json!({
            "namespace": "a", "name": "m1", "cluster": "c1", "hostname": "big-cat", "systemID": "abc",
            "providerID": "maas://az1/abc", "zone": "az1", "lxdHost": "h1", "image": "jammy",
            "created": "2026-11-15T08:00:00Z", "state": "Deploying", "waitsFor": "MachineDeploying: MAAS deploys it",
            "since": "2026-11-15T09:00:00Z",
        });
        assert_eq!(to_json(&[object]), json!([wanted]));
        let bare = to_json(&[machine(&json!([{"type": "Ready", "status": "True"}]))]);
        assert_eq!((&bare[0]["lxdHost"], &bare[0]["since"]), (&Value::Null, &Value::Null));
    }
}
