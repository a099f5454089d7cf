//! What the status says while MAAS takes its time, and what that costs Kubernetes.

use std::time::Duration;

use capmaas_core::plan::Requeue;
use capmaas_manager::kubernetes::Key;
use capmaas_manager::machine::{Carried, reconcile_knowing};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::stage::Stage;

/// More than this is written for no machine while MAAS is fast: patches, statuses and events.
const MOST_WRITES: usize = 11;

fn key() -> Key {
    Key::new("default", "m")
}

fn with_metal() -> Stage {
    let stage = Stage::new();
    stage.arrange(json!([{"machine": {"hostname": "bm01", "zone": "az1", "cpu_count": 4, "memory": 8192}}]));
    stage
}

fn slow(stage: &Stage, seconds: f64) {
    stage.fault(json!({ "match": {}, "do": "slow", "seconds": seconds, "times": 0 }));
}

fn message(stage: &Stage) -> String {
    stage.condition("m", "MachineDeployed")["message"].as_str().unwrap_or_default().to_owned()
}

/// What the last pass before the cluster was ready has written.
fn waiting(stage: &Stage) {
    let waiting = json!({
        "type": "MachineDeployed", "status": "False", "severity": "Info", "reason": "WaitingForClusterInfrastructure",
        "message": "the MaasCluster is not ready yet", "lastTransitionTime": "2026-11-15T12:00:00Z",
    });
    stage.port.set_status("MaasMachine", &key(), json!({ "conditions": [waiting] })).unwrap();
}

/// Passes in a row, as the controller runs them.
async fn in_a_row(stage: &Stage) -> Requeue {
    let mut carried = Carried::default();
    loop {
        let requeue = reconcile_knowing(&stage.context, &key(), &mut carried).await.unwrap();
        if requeue != Requeue::NOW {
            return requeue;
        }
    }
}

/// Runs passes in a row, and returns after how long somebody who reads the status all the time first reads a message
/// with these words, and after how long MAAS has allocated a machine.
async fn first_read(stage: &Stage, words: &str) -> (Option<Duration>, Option<Duration>) {
    let (start, mut read, mut allocated) = (Instant::now(), None, None);
    let reading = async {
        loop {
            if message(stage).contains(words) {
                read.get_or_insert(start.elapsed());
            }
            if stage.mutations().iter().any(|kind| kind == "machines.allocate") {
                allocated.get_or_insert(start.elapsed());
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        _ = in_a_row(stage) => {}
        () = reading => {}
    }
    (read, allocated)
}

#[tokio::test(start_paused = true)]
async fn requests_of_just_under_two_seconds_do_not_leave_the_status_behind() {
    let stage = with_metal();
    stage.machine("m", json!({}));
    waiting(&stage);
    slow(&stage, 1.9);
    let (Some(read), Some(allocated)) = first_read(&stage, "bm01").await else { panic!("{}", message(&stage)) };
    assert!(read <= allocated + Duration::from_millis(2_200), "allocated after {allocated:?}, told after {read:?}");
}

#[tokio::test(start_paused = true)]
async fn while_the_first_read_takes_long_the_status_says_that_maas_is_read() {
    let stage = with_metal();
    stage.machine("m", json!({}));
    waiting(&stage);
    slow(&stage, 20.0);
    let (read, _) = first_read(&stage, "MAAS is being read").await;
    assert!(read.is_some_and(|read| read <= Duration::from_millis(2_200)), "{read:?}");
}

#[tokio::test(start_paused = true)]
async fn while_a_machine_is_read_to_be_released_the_status_says_so_and_not_before_two_seconds() {
    for (seconds, told) in [(1.0, false), (20.0, true)] {
        let stage = with_metal();
        stage.machine("m", json!({}));
        stage.until_ready(&["m"]).await;
        stage.port.delete("MaasMachine", &key());
        slow(&stage, seconds);
        let look = async {
            sleep(Duration::from_millis(2_100)).await;
            stage.condition("m", "Deleting")["message"].to_string()
        };
        let (key, mut carried) = (key(), Carried::default());
        let pass = reconcile_knowing(&stage.context, &key, &mut carried);
        let (_, found) = tokio::join!(pass, look);
        assert_eq!(found.contains("MAAS is being read"), told, "{seconds} s: {found}");
    }
}

#[tokio::test]
async fn a_machine_costs_kubernetes_few_writes_while_maas_is_fast() {
    for (spec, most) in [(json!({}), MOST_WRITES), (json!({ "provisioningMode": "lxd" }), MOST_WRITES + 6)] {
        let stage = with_metal();
        stage.machine("m", spec);
        stage.port.take_versions();
        for _ in 0..60 {
            if stage.object("m")["status"]["ready"] == true {
                break;
            }
            let wait = match in_a_row(&stage).await {
                Requeue::After(wait) => wait.as_secs().max(1),
                Requeue::OnChange => 30,
            };
            stage.advance(wait);
        }
        assert_eq!(stage.object("m")["status"]["ready"], true);
        let written = stage.port.take_versions().iter().filter(|version| version.kind == "MaasMachine").count();
        let events = stage.port.events().len();
        assert!(written + events <= most, "{written} writes of the object and its status, {events} events");
    }
}
