//! `kubectl maas explain MACHINE`: one machine, why it is in its state, and what to do.

use std::fmt::Write as _;

use capmaas_api::reasons;
use serde_json::Value;

use crate::{machines::waits_for, text};

/// Everything about one machine, from its object and the events about it.
pub fn render(machine: &Value, events: &[Value]) -> String {
    let mut out = String::new();
    let fact = |out: &mut String, name: &str, pointer: &str| {
        let found = text(machine, pointer);
        if !found.is_empty() {
            let _ = writeln!(out, "{name:<12}{found}");
        }
    };
    let _ = writeln!(out, "{}/{}\n", text(machine, "/metadata/namespace"), text(machine, "/metadata/name"));
    fact(&mut out, "image", "/spec/image");
    fact(&mut out, "machine", "/status/hostname");
    fact(&mut out, "system ID", "/spec/systemID");
    fact(&mut out, "state", "/status/machineState");
    fact(&mut out, "zone", "/status/failureDomain");
    fact(&mut out, "LXD host", "/status/lxdHost");
    fact(&mut out, "project", "/status/lxdProject");
    let _ = writeln!(out, "{:<12}{}", "waits for", waits_for(machine));

    let _ = writeln!(out, "\nConditions");
    for condition in machine["status"]["conditions"].as_array().into_iter().flatten() {
        let (kind, status, reason) = (text(condition, "/type"), text(condition, "/status"), text(condition, "/reason"));
        let _ = writeln!(out, "  {kind:<22} {status:<8} {reason}");
        for line in text(condition, "/message").lines() {
            let _ = writeln!(out, "      {line}");
        }
        if let Some(action) = what_to_do(condition) {
            let _ = writeln!(out, "      what to do: {action}");
        }
    }
    if !events.is_empty() {
        let _ = writeln!(out, "\nEvents, the newest last");
        for event in events {
            let mut lines = text(event, "/note").lines();
            let _ = writeln!(out, "  {:<26} {}", text(event, "/reason"), lines.next().unwrap_or_default());
            for line in lines {
                let _ = writeln!(out, "  {:<26} {line}", "");
            }
        }
    }
    out
}

/// Whether a condition shows no problem.
pub(crate) fn is_good(condition: &Value) -> bool {
    let is_trouble = matches!(text(condition, "/type"), "Paused" | "Deleting" | "Evacuating");
    text(condition, "/status") == if is_trouble { "False" } else { "True" }
}

/// What a person can do about a condition; nothing for a good one.
pub(crate) fn what_to_do(condition: &Value) -> Option<&'static str> {
    reasons::entry(text(condition, "/reason")).filter(|_| !is_good(condition)).map(|entry| entry.action)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_condition_that_is_not_met_comes_with_what_to_do() {
        let machine = json!({
            "metadata": {"name": "m1", "namespace": "a"},
            "spec": {"image": "ubuntu/noble"},
            "status": {"conditions": [
                {"type": "Paused", "status": "False", "reason": "NotPaused"},
                {"type": "MachineDeployed", "status": "False", "reason": "NoMachineAvailable", "message": "asked for 4 cores"},
            ]},
        });
        let event = json!({"reason": "MachineAllocating", "note": "asks MAAS for a machine\nof pool big"});
        let shown = render(&machine, &[event]);
        assert!(shown.contains("asked for 4 cores\n      what to do: Add machines"), "{shown}");
        assert_eq!(shown.matches("what to do").count(), 1, "{shown}");
        let both = format!("MachineAllocating          asks MAAS for a machine\n{:29}of pool big\n", "");
        assert!(shown.ends_with(&both), "{shown}");
    }
}
