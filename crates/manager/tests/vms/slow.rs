//! Slow BMCs, machines that are allocated again, clocks that were ahead.

use capmaas_core::plan::Requeue;
use capmaas_manager::kubernetes::Key;
use serde_json::{Value, json};

use crate::stage::{BOB, Stage};

fn key(name: &str) -> Key {
    Key::new("default", name)
}

fn with_metal(names: &[&str]) -> Stage {
    let stage = Stage::new();
    for name in names {
        stage.arrange(json!([{"machine": {"hostname": name, "zone": "az1", "cpu_count": 4, "memory": 8192}}]));
    }
    stage
}

fn is_on(stage: &Stage, name: &str) -> bool {
    stage.maas.control().with_model(|model| model.real_power(&model.db.by_hostname[name].clone()))
}

fn status(stage: &Stage, name: &str) -> String {
    stage.maas.control().with_model(|model| model.db.machines[&model.db.by_hostname[name]].status.name().to_owned())
}

/// Runs passes as often as requested, for this many seconds.
async fn lives(stage: &Stage, name: &str, most: u64) -> u64 {
    let mut seconds = 0;
    while seconds < most {
        let wait = match stage.pass(name).await {
            Requeue::After(wait) => wait.as_secs().max(1),
            Requeue::OnChange => 60,
        };
        if stage.object(name).is_null() {
            break;
        }
        stage.advance(wait);
        seconds += wait;
    }
    seconds
}

fn sent(stage: &Stage, kind: &str) -> usize {
    stage.mutations().iter().filter(|sent| *sent == kind).count()
}

#[tokio::test]
async fn s14_a_machine_that_a_slow_bmc_turns_on_after_its_release_is_off_when_its_object_goes() {
    for seconds in [1.0, 8.0, 25.0] {
        let stage = with_metal(&["bm01"]);
        stage.maas.control().with_model(|model| model.durations.power = seconds);
        stage.machine("m", json!({}));
        while status(&stage, "bm01") != "Deploying" {
            stage.pass("m").await;
        }
        stage.port.delete("MaasMachine", &key("m"));
        let took = lives(&stage, "m", 900).await;
        assert!(stage.object("m").is_null() && took >= 30, "{took} s: {:#}", stage.object("m"));
        stage.advance(60);
        assert!(!is_on(&stage, "bm01"), "nobody's, and on ({seconds} s): {:?}", stage.mutations());
    }
}

#[tokio::test]
async fn s14_a_machine_that_failed_is_off_before_another_one_is_asked_for() {
    let stage = with_metal(&["bm01", "bm02"]);
    stage.maas.control().with_model(|model| model.durations.power = 8.0);
    for name in ["bm01", "bm02"] {
        stage.arrange(json!([{"machine": {"hostname": name, "next": {"deploy": "fail"}}}]));
    }
    stage.machine("m", json!({}));
    stage.until(&["m"], "a second one", |stage| sent(stage, "machines.allocate") == 2).await;
    assert!(!is_on(&stage, "bm01") || !is_on(&stage, "bm02"), "{:?}", stage.mutations());
    assert!(stage.record("m")["rising"].is_null(), "{}", stage.record("m"));
}

#[tokio::test]
async fn s14_an_ordinary_deletion_is_not_slower_for_it() {
    let stage = with_metal(&["bm01"]);
    stage.machine("m", json!({}));
    stage.until_ready(&["m"]).await;
    stage.port.delete("MaasMachine", &key("m"));
    let took = lives(&stage, "m", 900).await;
    assert!(took < 30, "{took} s");
}

#[tokio::test]
async fn s17_a_machine_that_failed_and_cannot_be_tagged_is_not_taken_and_given_back_for_ever() {
    let stage = with_metal(&["bm01"]);
    // Not an administrator: the tag that would quarantine the machine is refused.
    stage.use_key(BOB);
    stage.arrange(json!([{"machine": {"hostname": "bm01", "next": {"deploy": "fail"}}}]));
    stage.machine("m", json!({}));
    lives(&stage, "m", 2 * 3600).await;
    assert_eq!((sent(&stage, "machines.allocate"), sent(&stage, "machine.deploy")), (3, 1), "{:?}", stage.mutations());
    assert_eq!(stage.reason("m", "MachineDeployed"), "AttemptsExhausted");
    assert_eq!((status(&stage, "bm01").as_str(), is_on(&stage, "bm01")), ("Ready", false));
}

#[tokio::test]
async fn s17_nor_once_its_quarantine_is_over() {
    let stage = with_metal(&["bm01"]);
    stage.arrange(json!([{"machine": {"hostname": "bm01", "next": {"deploy": "fail"}}}]));
    stage.machine("m", json!({}));
    stage.until(&["m"], "waiting", |stage| stage.reason("m", "MachineDeployed") == "NoMachineAvailable").await;
    assert_eq!(sent(&stage, "machines.allocate"), 1);
    stage.advance(2 * 24 * 3600);
    lives(&stage, "m", 3600).await;
    assert_eq!(sent(&stage, "machines.allocate"), 3, "{:?}", stage.mutations());
    assert_eq!(stage.reason("m", "MachineDeployed"), "AttemptsExhausted");
    // It was returned after a while: another object gets it.
    stage.machine("n", json!({}));
    stage.until_ready(&["n"]).await;
}

#[tokio::test]
async fn s02_a_time_from_a_clock_that_was_ahead_does_not_hold_an_object_until_then() {
    let stage = with_metal(&[]);
    stage.machine("m", json!({}));
    stage.until(&["m"], "waiting", |stage| stage.reason("m", "MachineDeployed") == "NoMachineAvailable").await;
    let mut journal: Value = stage.record("m");
    journal["inFlight"] = json!({ "write": "allocate", "at": "2099-01-01T00:00:00Z" });
    let note = json!({ "metadata": { "annotations": { "infrastructure.cluster.x-k8s.io/maas-record": journal.to_string() } } });
    stage.port.edit("MaasMachine", &key("m"), &note).unwrap();
    stage.port.delete("MaasMachine", &key("m"));
    let took = lives(&stage, "m", 3600).await;
    assert!(stage.object("m").is_null(), "{}", stage.condition("m", "MachineDeployed"));
    assert!((140..200).contains(&took), "as long as any write may take to land: {took} s");
}
