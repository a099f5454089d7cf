//! How long machines stay in the states that MAAS reports: the duration of each phase, for Prometheus.

use std::collections::HashMap;
use std::sync::Arc;

use capmaas_api::MaasMachine;
use futures::{Stream, StreamExt as _};
use kube::ResourceExt as _;
use maas_client::MachineStatus;
use tokio::time::Instant;

use crate::metrics::Metrics;

/// The observed stay of one machine in a state.
struct Stay {
    state: Option<MachineStatus>,
    /// When it entered the state; `None` if it was in it before we started.
    since: Option<Instant>,
}

/// Measures how long machines stay in each state, if the whole stay was observed.
pub async fn follow(machines: impl Stream<Item = Arc<MaasMachine>> + Send, metrics: Metrics) {
    let mut stays: HashMap<String, Stay> = HashMap::new();
    let mut machines = std::pin::pin!(machines);
    while let Some(machine) = machines.next().await {
        // A deletion is reported like a change; an object without a UID does not exist.
        let Some(uid) = machine.uid() else { continue };
        let state = machine.status.as_ref().and_then(|status| status.machine_state.as_deref());
        let state = state.and_then(MachineStatus::from_name);
        let now = Instant::now();
        if let Some(stay) = stays.get(&uid) {
            if stay.state == state {
                continue;
            }
            if let (Some(before), Some(since)) = (stay.state, stay.since) {
                metrics.phase(before.name(), now.duration_since(since));
            }
        }
        let known = stays.contains_key(&uid);
        if machine.metadata.deletion_timestamp.is_some() && machine.finalizers().is_empty() {
            stays.remove(&uid);
            continue;
        }
        stays.insert(uid, Stay { state, since: known.then_some(now) });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use futures::channel::mpsc;
    use serde_json::json;

    #[tokio::test(start_paused = true)]
    async fn a_stay_that_was_seen_from_its_beginning_is_counted() {
        let metrics = Metrics::new();
        let (tell, told) = mpsc::unbounded();
        let task = tokio::spawn(follow(told, metrics.clone()));
        let machine = |state: &str| -> Arc<MaasMachine> {
            let metadata = json!({"name": "m", "namespace": "n", "uid": "u", "finalizers": ["f"]});
            let object = json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
                "metadata": metadata, "spec": {}, "status": {"machineState": state},
            });
            Arc::new(serde_json::from_value(object).unwrap())
        };
        for state in ["Allocated", "Deploying", "Deploying", "Deployed"] {
            tell.unbounded_send(machine(state)).unwrap();
            tokio::time::sleep(Duration::from_secs(100)).await;
        }
        let text = metrics.text();
        assert!(text.contains(r#"capmaas_machine_phase_seconds_sum{phase="Deploying"} 200"#), "{text}");
        assert!(!text.contains(r#"phase="Allocated""#), "nobody knows how long it had been Allocated: {text}");
        task.abort();
    }
}
