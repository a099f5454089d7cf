//! The status of a Pod, as a kubelet writes it.

use jiff::Timestamp;
use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub(super) enum State {
    Waiting { reason: &'static str, message: String },
    Running { since: Timestamp },
    Terminated(Ended),
}

#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) exit_code: i32,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) started: Timestamp,
    pub(super) finished: Timestamp,
}

#[derive(Clone, Debug)]
pub(super) struct ContainerState {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) started: bool,
    pub(super) ready: bool,
    pub(super) restarts: u32,
    pub(super) state: State,
    pub(super) last: Option<Ended>,
    pub(super) process: Option<u32>,
}

impl ContainerState {
    pub(super) fn new(name: &str, image: &str) -> Self {
        Self {
            name: name.to_owned(),
            image: image.to_owned(),
            started: false,
            ready: false,
            restarts: 0,
            state: State::Waiting { reason: "ContainerCreating", message: String::new() },
            last: None,
            process: None,
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "image": self.image,
            "imageID": self.image,
            "ready": self.ready,
            "started": self.started,
            "restartCount": self.restarts,
            "state": match &self.state {
                State::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
                State::Running { since } => json!({"running": {"startedAt": time(*since)}}),
                State::Terminated(ended) => json!({"terminated": ended.to_json()}),
            },
            "lastState": self.last.as_ref().map_or_else(|| json!({}), |ended| json!({"terminated": ended.to_json()})),
        })
    }

    fn succeeded(&self) -> Option<bool> {
        match &self.state {
            State::Terminated(ended) => Some(ended.exit_code == 0),
            _ => None,
        }
    }
}

impl Ended {
    fn to_json(&self) -> Value {
        json!({
            "exitCode": self.exit_code,
            "reason": self.reason,
            "message": self.message,
            "startedAt": time(self.started),
            "finishedAt": time(self.finished),
        })
    }
}

/// The init containers of a Pod and its main containers.
#[derive(Clone, Debug)]
pub(super) struct PodState {
    pub(super) since: Timestamp,
    pub(super) node_address: String,
    pub(super) init: Vec<ContainerState>,
    pub(super) main: Vec<ContainerState>,
}

impl PodState {
    fn initialized(&self) -> bool {
        self.init.iter().all(|container| container.succeeded() == Some(true))
    }

    fn ready(&self) -> bool {
        self.initialized() && self.main.iter().all(|container| container.ready)
    }

    pub(super) fn phase(&self) -> &'static str {
        let ends: Option<Vec<bool>> = self.main.iter().map(ContainerState::succeeded).collect();
        let prepared = |container: &ContainerState| container.succeeded() == Some(false) && container.process.is_none();
        match ends {
            Some(ends) if ends.iter().all(|good| *good) => "Succeeded",
            Some(_) => "Failed",
            None if self.init.iter().any(prepared) => "Failed",
            // Once a container has run, the Pod is Running, also while that container waits for its restart.
            None if self.main.iter().any(|c| c.restarts > 0 || !matches!(c.state, State::Waiting { .. })) => "Running",
            None => "Pending",
        }
    }

    /// The complete status. `before` is the Pod's current status: a condition that keeps its value keeps its time.
    pub(super) fn to_json(&self, before: &Value, now: Timestamp) -> Value {
        let (phase, ready, initialized) = (self.phase(), self.ready(), self.initialized());
        let finished = phase == "Succeeded";
        let not_ready = if finished { "PodCompleted" } else { "ContainersNotReady" };
        let conditions: Vec<Value> = [
            ("PodScheduled", true, ""),
            ("Initialized", initialized, "ContainersNotInitialized"),
            ("ContainersReady", ready, not_ready),
            ("Ready", ready, not_ready),
        ]
        .into_iter()
        .map(|(kind, holds, reason)| {
            let status = if holds { "True" } else { "False" };
            let old = before["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == kind);
            let since = old
                .filter(|old| old["status"] == status)
                .and_then(|old| old["lastTransitionTime"].as_str())
                .map_or_else(|| time(now), str::to_owned);
            let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": since});
            if !holds {
                condition["reason"] = reason.into();
                condition["message"] = unready(if initialized { &self.main } else { &self.init }).into();
            }
            condition
        })
        .collect();
        let all = |containers: &[ContainerState]| containers.iter().map(ContainerState::to_json).collect::<Vec<_>>();
        json!({
            "phase": phase,
            "conditions": conditions,
            "hostIP": self.node_address,
            "podIP": self.node_address,
            "podIPs": [{"ip": self.node_address}],
            "startTime": time(self.since),
            "initContainerStatuses": all(&self.init),
            "containerStatuses": all(&self.main),
        })
    }
}

fn unready(containers: &[ContainerState]) -> String {
    let names: Vec<&str> = containers.iter().filter(|c| !c.ready).map(|c| c.name.as_str()).collect();
    format!("containers with unready status: [{}]", names.join(" "))
}

/// Formats a time as Kubernetes does.
pub(super) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(containers: Vec<ContainerState>) -> PodState {
        PodState { since: Timestamp::UNIX_EPOCH, node_address: "127.0.0.1".into(), init: Vec::new(), main: containers }
    }

    fn running(ready: bool) -> ContainerState {
        let state = State::Running { since: Timestamp::UNIX_EPOCH };
        ContainerState { ready, state, ..ContainerState::new("c", "i") }
    }

    fn ended(exit_code: i32) -> ContainerState {
        let (started, finished) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        let ended = Ended { exit_code, reason: "Completed", message: String::new(), started, finished };
        ContainerState { state: State::Terminated(ended), ..ContainerState::new("c", "i") }
    }

    #[test]
    fn the_phase_follows_the_containers() {
        for (containers, phase) in [
            (vec![ContainerState::new("c", "i")], "Pending"),
            (vec![running(false)], "Running"),
            (vec![ContainerState { restarts: 1, ..ContainerState::new("c", "i") }], "Running"),
            (vec![running(true), ended(1)], "Running"),
            (vec![ended(0)], "Succeeded"),
            (vec![ended(0), ended(1)], "Failed"),
        ] {
            assert_eq!(pod(containers).phase(), phase);
        }
    }

    #[test]
    fn a_pod_is_ready_when_all_its_containers_are_and_a_kept_condition_keeps_its_time() {
        let now = Timestamp::from_second(60).unwrap();
        let first = pod(vec![running(true), running(false)]).to_json(&Value::Null, Timestamp::UNIX_EPOCH);
        let second = pod(vec![running(true), running(true)]).to_json(&first, now);
        let condition = |status: &Value, kind: &str| {
            let found = status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == kind).unwrap().clone();
            (found["status"].clone(), found["lastTransitionTime"].clone())
        };
        assert_eq!(condition(&first, "Ready").0, "False");
        assert_eq!(condition(&second, "Ready"), ("True".into(), "1970-01-01T00:01:00Z".into()));
        assert_eq!(condition(&second, "PodScheduled"), ("True".into(), "1970-01-01T00:00:00Z".into()));
    }
}
