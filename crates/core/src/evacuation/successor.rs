//! New machines of a rollout that are about to become LXD hosts.

use capmaas_api::capi::Machine;
use capmaas_api::{ConditionStatus, Conditions as _};
use jiff::{SignedDuration, Timestamp};

/// How long a new Machine is waited for once its Node is healthy. Some machines of a cluster may not become LXD hosts at all, because
/// people register hosts by hand, and that must not stop a rollout for good.
const WAITED_FOR: SignedDuration = SignedDuration::from_hours(1);
/// The same since it was created: the Node of one that is not well may become healthy again and again.
const AT_MOST: SignedDuration = SignedDuration::from_hours(4);

/// Whether a Machine that is not an LXD host yet is about to become one: it is new, it stays, and its Node has joined. Without a
/// Node it may itself wait for the machine of a host that leaves.
pub fn is_coming(machine: &Machine, now: Timestamp) -> bool {
    let failed = |type_| machine.status.conditions.has_status(type_, &ConditionStatus::False);
    let created = machine.metadata.creation_timestamp.as_ref().map(|created| created.0);
    let is_within = |since: Option<Timestamp>, time| since.is_some_and(|since| now.duration_since(since).abs() < time);
    machine.metadata.deletion_timestamp.is_none()
        && machine.is_up_to_date() == Some(true)
        && machine.status.node_ref.is_some()
        && !failed("HealthCheckSucceeded")
        && !failed("OwnerRemediated")
        && is_within(created, AT_MOST)
        && is_within(healthy_since(machine).or(created), WAITED_FOR)
}

/// Since when the Node of a Machine is healthy, in either version of the API.
fn healthy_since(machine: &Machine) -> Option<Timestamp> {
    let said = [&machine.status.conditions, &machine.status.v1beta2.conditions];
    let said = said.into_iter().find_map(|conditions| conditions.condition("NodeHealthy"))?;
    let since = said.last_transition_time.as_ref().filter(|_| said.status == ConditionStatus::True)?;
    Some(since.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Whether a new Machine of a rollout is waited for after this change.
    fn after(change: impl FnOnce(&mut Value)) -> bool {
        let condition = |type_: &str| json!({ "type": type_, "status": "True" });
        let conditions = ["UpToDate", "HealthCheckSucceeded", "OwnerRemediated"].map(condition);
        let mut machine = json!({
            "metadata": { "name": "d", "creationTimestamp": "2026-11-18T12:00:00Z" },
            "status": { "nodeRef": { "name": "d" }, "conditions": conditions },
        });
        change(&mut machine);
        is_coming(&serde_json::from_value(machine).unwrap(), "2026-11-18T12:30:00Z".parse().unwrap())
    }

    #[test]
    fn s30_the_hour_begins_when_the_node_is_healthy_and_the_wait_ends_after_four() {
        let with = |created: &str, healthy: &str, status: &str| {
            after(|it| {
                it["metadata"]["creationTimestamp"] = json!(format!("2026-11-18T{created}:00Z"));
                let time = format!("2026-11-18T{healthy}:00Z");
                let node = json!({ "type": "NodeHealthy", "status": status, "lastTransitionTime": time });
                it["status"]["conditions"].as_array_mut().unwrap().push(node);
            })
        };
        assert!(with("09:00", "12:00", "True"), "a machine that deployed slowly");
        assert!(!with("09:00", "11:20", "True"));
        assert!(!with("08:20", "12:00", "True"), "not for ever");
        assert!(!with("09:00", "12:00", "False"), "not healthy, and created long ago");
        assert!(with("12:00", "12:20", "False"));
    }

    #[test]
    fn s30_a_machine_is_waited_for_while_it_is_new_and_stays_and_has_a_node() {
        assert!(after(|_| {}));
        assert!(!after(|it| it["metadata"]["deletionTimestamp"] = json!("2026-11-18T12:20:00Z")));
        assert!(!after(|it| it["metadata"]["creationTimestamp"] = json!("2026-11-18T11:20:00Z")));
        assert!(!after(|it| it["metadata"]["creationTimestamp"] = Value::Null));
        assert!(!after(|it| it["status"]["nodeRef"] = Value::Null));
        for index in 0..3 {
            assert!(!after(|it| it["status"]["conditions"][index]["status"] = json!("False")), "{index}");
        }
        assert!(!after(|it| it["status"]["conditions"] = json!([])), "not known to be up to date");
    }
}
