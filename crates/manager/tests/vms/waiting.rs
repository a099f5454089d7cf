//! Machines whose requests MAAS refuses wait, whatever wakes them in the meantime (S26).

use std::time::Duration;

use capmaas_core::plan::Requeue;
use capmaas_manager::kubernetes::Key;
use serde_json::json;

use crate::stage::Stage;

fn asked(stage: &Stage, kind: &str) -> usize {
    stage.maas.control().ledger(Some(kind)).len()
}

/// A pass every second, as if something woke the machine all the time.
async fn woken_for(stage: &Stage, seconds: u64) -> Requeue {
    let mut requeue = Requeue::OnChange;
    for _ in 0..seconds {
        requeue = stage.pass("m").await;
        stage.advance(1);
    }
    requeue
}

#[tokio::test]
async fn s26_a_machine_that_waits_for_hardware_does_not_ask_sooner_because_it_is_woken() {
    let stage = Stage::new();
    stage.machine("m", json!({ "minCPU": 4000 }));
    woken_for(&stage, 3).await;
    assert_eq!(stage.reason("m", "MachineDeployed"), "NoMachineAvailable");
    assert_eq!(asked(&stage, "machines.allocate"), 1);
    let told = stage.object("m");
    let requeue = woken_for(&stage, 20).await;
    assert_eq!(asked(&stage, "machines.allocate"), 1);
    assert_eq!(stage.object("m"), told, "while it is held nothing is written, so nobody is woken by it");
    assert!(matches!(requeue, Requeue::After(left) if left < Duration::from_secs(15)), "{requeue:?}");
    let finalizers = told["metadata"]["finalizers"].clone();
    stage.port.edit("MaasMachine", &Key::new("default", "m"), &json!({ "metadata": { "finalizers": [] } })).unwrap();
    woken_for(&stage, 1).await;
    assert_eq!(stage.object("m")["metadata"]["finalizers"], finalizers, "somebody had taken it away");
    woken_for(&stage, 9).await;
    assert_eq!(asked(&stage, "machines.allocate"), 2, "half a minute is over");
    woken_for(&stage, 50).await;
    assert_eq!(asked(&stage, "machines.allocate"), 2, "the second refusal is waited for twice as long");
}

#[tokio::test]
async fn s26_a_changed_wish_is_asked_for_at_once() {
    let stage = Stage::new();
    stage.arrange(json!([{"machine": {"hostname": "bm01", "zone": "az1", "cpu_count": 4, "memory": 8192}}]));
    stage.machine("m", json!({ "minCPU": 4000 }));
    woken_for(&stage, 3).await;
    stage.port.edit("MaasMachine", &Key::new("default", "m"), &json!({ "spec": { "minCPU": 4 } })).unwrap();
    stage.pass("m").await;
    assert_eq!(asked(&stage, "machines.allocate"), 2);
    assert!(stage.mutations().contains(&"machines.allocate".to_owned()), "and given");
}

#[tokio::test]
async fn s26_an_image_that_maas_does_not_have_is_deployed_every_two_minutes_and_not_more() {
    let stage = Stage::new();
    stage.arrange(json!([{"machine": {"hostname": "bm01", "zone": "az1", "cpu_count": 4, "memory": 8192}}]));
    stage.machine("m", json!({ "image": "custom/no-such-image" }));
    woken_for(&stage, 60).await;
    assert_eq!(stage.reason("m", "MachineDeployed"), "MachineDeployFailed");
    assert_eq!(asked(&stage, "machine.deploy"), 1);
}

#[tokio::test]
async fn s26_a_host_without_room_is_not_asked_again_under_another_name() {
    let stage = Stage::new();
    stage.fault(json!({
        "match": { "kind": "vm-host.compose" }, "do": "status", "status": 503, "times": 0,
        "body": "Unable to compose KVM instance in 'host'. CPU overcommit ratio is 1.0 and there are 0 available resources",
    }));
    stage.vm("m");
    woken_for(&stage, 25).await;
    assert!(asked(&stage, "vm-host.compose") <= 3, "once on each host: {}", asked(&stage, "vm-host.compose"));
    assert!(asked(&stage, "vm-host.compose") >= 1);
}

#[tokio::test]
async fn s26_a_debt_that_maas_refuses_to_take_is_not_paid_at_every_wake_up_of_the_cluster() {
    let stage = Stage::new();
    stage.vm("cp-0");
    let name = |stage: &Stage| stage.record("cp-0")["vm"]["name"].as_str().unwrap_or_default().to_owned();
    let deploying = |stage: &Stage| {
        stage.maas.control().with_model(|model| {
            let found = model.db.machines.values().find(|machine| machine.hostname == name(stage));
            found.is_some_and(|machine| machine.status.name() == "Deploying")
        })
    };
    stage.until(&["cp-0"], "a deployment", deploying).await;
    let (vm, host) = (name(&stage), stage.record("cp-0")["vm"]["place"]["hostName"].as_str().unwrap().to_owned());
    stage.power_of_host(&host, "off");
    stage.arrange(json!([{"machine": {"hostname": vm, "power": "off", "power_known": "error"}}]));
    stage.until_ready(&["cp-0"]).await;
    assert!(stage.debts().contains(&vm));
    stage.power_of_host(&host, "on");
    let tried = |stage: &Stage| asked(stage, "machine.release") + asked(stage, "machine.delete");
    for kind in ["machine.release", "machine.delete"] {
        let fault = json!({ "match": { "kind": kind }, "do": "status", "status": 403, "body": "no", "times": 0 });
        stage.fault(fault);
    }
    let before = tried(&stage);
    stage.cluster_passes_every(1, 60).await;
    let since = tried(&stage) - before;
    assert!((1..=4).contains(&since), "{since} in a minute");
}

#[tokio::test]
async fn bootstrap_data_that_comes_late_is_noticed_within_a_minute() {
    let stage = Stage::new();
    stage.arrange(json!([{"machine": {"hostname": "bm01", "zone": "az1", "cpu_count": 4, "memory": 8192}}]));
    stage.machine("m", json!({}));
    let key = Key::new("default", "m");
    stage.port.delete("Secret", &key);
    let requeue = stage.pass("m").await;
    assert_eq!(stage.reason("m", "MachineDeployed"), "WaitingForBootstrapData");
    assert!(matches!(requeue, Requeue::After(wait) if wait <= Duration::from_secs(60)), "{requeue:?}");
    let (metadata, data) = (json!({ "name": "m", "namespace": "default" }), json!({ "value": "#cloud-config" }));
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data });
    stage.port.create(secret).unwrap();
    stage.until_ready(&["m"]).await;
}
