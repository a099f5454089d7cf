//! New machines of a rollout that are about to become LXD hosts.

use capmaas_api::capi::Machine;
use capmaas_api::{ConditionStatus, Conditions as _};
use jiff::{SignedDuration, Timestamp};

/// How long a new Machine is waited for. Some machines of a cluster may not become LXD hosts at all, because people register
/// hosts by hand, and that must not stop a rollout for good.
const WAITED_FOR: SignedDuration = SignedDuration::from_hours(1);

/// Whether a Machine that is not an LXD host yet is about to become one: it is new, it stays, and its Node has joined. Without a
/// Node it may itself wait for the machine of a host that leaves.
pub fn is_coming(machine: &Machine, now: Timestamp) -> bool {
    let failed = |type_| machine.status.conditions.has_status(type_, &ConditionStatus::False);
    let created = machine.metadata.creation_timestamp.as_ref();
    machine.metadata.deletion_timestamp.is_none()
        && machine.is_up_to_date() == Some(true)
        && machine.status.node_ref.is_some()
        && !failed("HealthCheckSucceeded")
        && !failed("OwnerRemediated")
        && created.is_some_and(|created| now.duration_since(created.0).abs() < WAITED_FOR)
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
