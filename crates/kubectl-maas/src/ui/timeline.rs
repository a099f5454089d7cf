//! The timeline of one machine: when it was requested, allocated, deployed and joined, and how long each step took.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::{condition, text};

/// A Node that became ready within so many seconds after the step before may have done so for the first time. Later, it is
/// more likely to have been unready in between: Kubernetes keeps the last transition only.
const FIRST_BOOT: i64 = 30 * 60;

const NODE_READY: &str = "Node ready";
const NODE_READY_SINCE: &str = "Node ready since";

/// The steps in order, each with the seconds until the next; the last one with those until `now`, unless no further
/// step follows.
pub(super) fn timeline(
    object: &Value,
    machine: Option<&Value>,
    events: &[maas_client::Event],
    now: Timestamp,
) -> Value {
    let mut steps: Vec<(Timestamp, String)> = Vec::new();
    let at = |object: &Value, pointer: &str| text(object, pointer).parse::<Timestamp>().ok();
    let created = at(object, "/metadata/creationTimestamp");
    steps.extend(created.map(|time| (time, "Requested".to_owned())));
    // MAAS reports seconds, and several steps may fall into one.
    let mut events: Vec<_> = events.iter().collect();
    events.sort_by_key(|event| event.id);
    for event in &events {
        let entered = event.status_change().map(|(_, entered)| entered.name().to_owned());
        let time = event.created.as_deref().and_then(moment);
        // Events of the machine's previous holders do not count.
        if let (Some(entered), Some(time)) = (entered, time)
            && created.is_none_or(|created| time.as_second() >= created.as_second())
        {
            steps.push((time, entered));
        }
    }
    if events.is_empty() {
        let deployed = ["MachineDeployed", "LXDVMDeployed"].iter().filter_map(|kind| condition(object, kind));
        let deployed = deployed.filter(|it| it["status"] == "True").find_map(|it| at(it, "/lastTransitionTime"));
        steps.extend(deployed.map(|time| (time, "Deployed".to_owned())));
    }
    let node = machine.and_then(|it| condition(it, "NodeReady").or_else(|| condition(it, "NodeHealthy")));
    let node = node.filter(|it| it["status"] == "True").and_then(|it| at(it, "/lastTransitionTime"));
    steps.extend(node.map(|time| {
        let before = steps.iter().map(|(step, _)| *step).filter(|step| *step <= time).max();
        let is_first = before.is_none_or(|before| time.as_second() - before.as_second() <= FIRST_BOOT);
        (time, if is_first { NODE_READY } else { NODE_READY_SINCE }.to_owned())
    }));
    let leaves = at(object, "/metadata/deletionTimestamp");
    steps.extend(leaves.map(|time| (time, "Deleted".to_owned())));
    steps.sort_by_key(|(time, _)| *time);
    let ends: Vec<Timestamp> = steps.iter().skip(1).map(|(time, _)| *time).collect();
    let shown = steps.iter().enumerate().map(|(index, (time, what))| {
        let is_last = index + 1 == steps.len();
        let is_done = is_last && (what == NODE_READY || what == NODE_READY_SINCE);
        let is_open = is_last && !is_done;
        // The time between is not that of the first boot.
        let is_before_flap = steps.get(index + 1).is_some_and(|(_, next)| next == NODE_READY_SINCE);
        let end = ends.get(index).copied().filter(|_| !is_before_flap).or(is_open.then_some(now));
        let seconds = end.map(|end| (end.as_second() - time.as_second()).max(0));
        json!({"what": what, "at": time.to_string(), "seconds": seconds, "open": is_open})
    });
    shown.collect()
}

/// MAAS's time format: `Sun, 15 Nov. 2026 20:32:02`, with months as Django abbreviates them (`Sept.`, `March`), in UTC.
fn moment(words: &str) -> Option<Timestamp> {
    let words: Vec<&str> = words.split_whitespace().collect();
    let [_, day, month, year, time] = words.as_slice() else { return None };
    let short: String = month.chars().take(3).collect();
    let civil = DateTime::strptime("%d %b %Y %H:%M:%S", format!("{day} {short} {year} {time}")).ok()?;
    Some(civil.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(id: i64, at: &str, from: &str, to: &str) -> maas_client::Event {
        serde_json::from_value(json!({"id": id, "created": at, "description": format!("From '{from}' to '{to}'")}))
            .unwrap()
    }

    #[test]
    fn the_steps_of_a_life_have_their_durations() {
        let object = json!({"metadata": {"creationTimestamp": "2026-09-15T09:00:00Z"}});
        let machine = json!({"status": {"conditions": [
            {"type": "NodeReady", "status": "True", "lastTransitionTime": "2026-09-15T09:06:40Z"}]}});
        let events = [
            change(9, "Tue, 15 Sept. 2026 09:05:00", "Deploying", "Deployed"),
            change(8, "Tue, 15 Sept. 2026 09:00:12", "Allocated", "Deploying"),
            change(7, "Tue, 15 Sept. 2026 09:00:02", "Ready", "Allocated"),
            change(6, "Mon, 14 Sept. 2026 09:00:02", "Releasing", "Ready"),
        ];
        let now = "2026-09-15T10:00:00Z".parse().unwrap();
        let steps = timeline(&object, Some(&machine), &events, now);
        let told: Vec<_> =
            steps.as_array().unwrap().iter().map(|it| (it["what"].as_str().unwrap(), it["seconds"].as_i64())).collect();
        let wanted = [
            ("Requested", Some(2)),
            ("Allocated", Some(10)),
            ("Deploying", Some(288)),
            ("Deployed", Some(100)),
            ("Node ready", None),
        ];
        assert_eq!(told, wanted);
        let waiting = timeline(&object, None, &events[1..], now);
        let last = waiting.as_array().unwrap().last().unwrap();
        assert_eq!((&last["what"], &last["open"], &last["seconds"]), (&json!("Deploying"), &json!(true), &json!(3588)));
    }

    #[test]
    fn a_node_that_was_unready_in_between_has_no_duration_of_its_first_boot() {
        let object = json!({"metadata": {"creationTimestamp": "2026-09-15T09:00:00Z"}});
        let ready = |at: &str| {
            let condition = json!({"type": "NodeReady", "status": "True", "lastTransitionTime": at});
            let events = [change(9, "Tue, 15 Sept. 2026 09:05:00", "Deploying", "Deployed")];
            let machine = json!({"status": {"conditions": [condition]}});
            timeline(&object, Some(&machine), &events, "2026-09-18T09:00:00Z".parse().unwrap())
        };
        let flapped = ready("2026-09-17T09:00:00Z");
        assert_eq!((&flapped[1]["what"], &flapped[1]["seconds"]), (&json!("Deployed"), &Value::Null));
        assert_eq!((&flapped[2]["what"], &flapped[2]["open"]), (&json!("Node ready since"), &json!(false)));
        assert_eq!(ready("2026-09-15T09:06:40Z")[1]["seconds"], 100);
    }

    #[test]
    fn steps_of_the_same_second_stand_in_the_order_in_which_they_happened() {
        let events = [
            change(3, "Tue, 15 Sept. 2026 09:00:02", "Deploying", "Deployed"),
            change(2, "Tue, 15 Sept. 2026 09:00:02", "Ready", "Deploying"),
        ];
        let steps = timeline(&json!({}), None, &events, Timestamp::UNIX_EPOCH);
        assert_eq!((&steps[0]["what"], &steps[1]["what"]), (&json!("Deploying"), &json!("Deployed")));
    }

    #[test]
    fn months_are_read_as_maas_writes_them() {
        for month in ["Jan.", "March", "May", "Sept.", "Nov."] {
            assert!(moment(&format!("Sun, 15 {month} 2026 20:32:02")).is_some(), "{month}");
        }
        assert_eq!(moment("Sun, 15 Nov. 2026 20:32:02"), "2026-11-15T20:32:02Z".parse().ok());
        assert_eq!(moment("yesterday"), None);
    }
}
