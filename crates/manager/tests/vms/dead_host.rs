//! A host dies before its VM is ready: the VM is left to the MaasCluster as a debt, and another host takes over (S16).

use std::time::Duration;

use capmaas_manager::kubernetes::Key;
use serde_json::{Value, json};

use crate::stage::Stage;

/// More writes than between the death of a host and a VM elsewhere.
const MOST_WRITES: u32 = 80;

/// The host of the only VM dies, and MAAS notices: returns the names of the host and of the VM.
fn host_dies(stage: &Stage) -> (String, String) {
    let host = stage.record("cp-0")["vm"]["place"]["hostName"].as_str().unwrap().to_owned();
    let vm = stage.record("cp-0")["vm"]["name"].as_str().unwrap().to_owned();
    stage.power_of_host(&host, "off");
    stage.arrange(json!([{"machine": {"hostname": vm, "power": "off", "power_known": "error"}}]));
    (host, vm)
}

fn state(stage: &Stage, name: &str) -> String {
    stage.maas.control().with_model(|model| {
        let machine = model.db.machines.values().find(|machine| machine.hostname == name);
        machine.map(|machine| machine.status.name().to_owned()).unwrap_or_default()
    })
}

fn is(stage: &Stage, wanted: &str) -> bool {
    let name = stage.record("cp-0")["vm"]["name"].as_str().unwrap_or_default().to_owned();
    state(stage, &name) == wanted
}

/// The VM runs elsewhere; the one on the dead host is owed, and is removed when the host is back.
async fn runs_elsewhere(stage: &Stage, (host, vm): (&str, &str)) {
    stage.until_ready(&["cp-0"]).await;
    assert_ne!(stage.object("cp-0")["status"]["lxdHost"], host);
    assert!(stage.debts().contains(vm), "{}", stage.debts());
    assert_eq!(stage.in_lxd().len(), 2, "nobody can remove what is on a dead host");
    stage.cluster_passes(4).await;
    assert_eq!(stage.in_maas().len(), 2);
    stage.power_of_host(host, "on");
    stage.cluster_passes(10).await;
    assert_eq!(stage.debts(), "");
    let left = stage.in_lxd();
    assert_eq!((left.len(), left.contains(&vm.to_owned())), (1, false), "{left:?}");
    assert_eq!(stage.in_maas(), left);
    stage.until_gone(&["cp-0"]).await;
    assert_eq!((stage.in_maas(), stage.in_lxd()), (Vec::<String>::new(), Vec::<String>::new()));
}

#[tokio::test]
async fn s16_a_host_that_dies_while_its_vm_is_deployed_is_left_for_another_one() {
    let stage = Stage::new();
    stage.vm("cp-0");
    stage.until(&["cp-0"], "a deployment", |stage| is(stage, "Deploying")).await;
    let (host, vm) = host_dies(&stage);
    runs_elsewhere(&stage, (&host, &vm)).await;
}

#[tokio::test]
async fn s16_a_host_that_dies_right_after_the_vm_was_made_is_left_for_another_one() {
    let stage = Stage::new();
    stage.vm("cp-0");
    stage.until(&["cp-0"], "a VM", |stage| is(stage, "Ready")).await;
    let (host, vm) = host_dies(&stage);
    runs_elsewhere(&stage, (&host, &vm)).await;
}

#[tokio::test]
async fn s16_a_host_that_dies_while_maas_gets_to_know_the_vm_is_left_for_another_one() {
    let stage = Stage::new();
    stage.vm("cp-0");
    stage.until(&["cp-0"], "a VM", |stage| is(stage, "Ready")).await;
    let vm = stage.in_maas()[0].clone();
    stage.arrange(json!([{"machine": {"hostname": vm, "status": "Commissioning"}}]));
    let (host, vm) = host_dies(&stage);
    runs_elsewhere(&stage, (&host, &vm)).await;
}

#[tokio::test]
async fn s16_power_that_nobody_can_tell_is_not_off_so_the_vm_is_waited_for() {
    let stage = Stage::new();
    stage.vm("cp-0");
    stage.until(&["cp-0"], "a deployment", |stage| is(stage, "Deploying")).await;
    let (host, vm) = host_dies(&stage);
    stage.arrange(json!([{"machine": {"hostname": host, "bmc": "closes"}}]));
    for _ in 0..60 {
        stage.pass("cp-0").await;
        stage.advance(60);
    }
    assert_eq!((stage.debts(), stage.in_maas()), (String::new(), vec![vm.clone()]));
    stage.arrange(json!([{"machine": {"hostname": host, "bmc": "ok"}}]));
    runs_elsewhere(&stage, (&host, &vm)).await;
}

#[tokio::test]
async fn s16_an_object_that_is_deleted_after_its_host_died_leaves_its_vm_to_the_cluster() {
    let stage = Stage::new();
    stage.vm("cp-0");
    stage.until(&["cp-0"], "a VM", |stage| is(stage, "Ready")).await;
    let (host, vm) = host_dies(&stage);
    stage.until_gone(&["cp-0"]).await;
    assert!(stage.debts().contains(&vm), "{}", stage.debts());
    stage.power_of_host(&host, "on");
    stage.cluster_passes(10).await;
    assert_eq!((stage.in_maas(), stage.in_lxd()), (Vec::<String>::new(), Vec::<String>::new()));
    assert_eq!(stage.debts(), "");
}

#[tokio::test(start_paused = true)]
async fn s15_a_cluster_that_is_paused_while_maas_answers_loses_no_vm_that_it_owes() {
    let stage = Stage::new();
    stage.vm("cp-0");
    stage.until(&["cp-0"], "a VM", |stage| is(stage, "Ready")).await;
    let (host, vm) = host_dies(&stage);
    stage.until_gone(&["cp-0"]).await;
    stage.power_of_host(&host, "on");
    stage.fault(json!({ "match": { "kind": "query_power_state" }, "do": "slow", "seconds": 10.0 }));
    let paused = json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": "" } } });
    let pausing = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        stage.port.edit("MaasCluster", &Key::new("default", "c1"), &paused).unwrap();
    };
    tokio::join!(stage.cluster_passes(1), pausing);
    assert_eq!(stage.in_maas(), [vm], "{:?}", stage.mutations());
}

#[tokio::test]
async fn s16_a_manager_that_dies_at_any_write_of_leaving_a_dead_host_owes_one_vm_and_makes_one_elsewhere() {
    let mut deaths = 0;
    for (number, after) in (0..MOST_WRITES).flat_map(|number| [(number, false), (number, true)]) {
        let mut stage = Stage::new();
        stage.vm("cp-0");
        stage.until(&["cp-0"], "a VM", |stage| is(stage, "Ready")).await;
        let (host, vm) = host_dies(&stage);
        stage.crash.light_for_writes(number, after);
        let mut died = false;
        for _ in 0..150 {
            if stage.object("cp-0")["status"]["ready"] == true {
                break;
            }
            if !stage.lives("cp-0").await {
                died = true;
                stage.restart();
            }
            stage.advance(10);
        }
        stage.crash.put_out();
        let place = format!("died at write {number}, after its effect: {after}");
        assert_eq!(stage.object("cp-0")["status"]["ready"], true, "{place}: {:#}", stage.object("cp-0"));
        assert_ne!(stage.object("cp-0")["status"]["lxdHost"], host.as_str(), "{place}");
        let debts: Vec<Value> = serde_json::from_str(&stage.debts()).unwrap();
        assert_eq!((debts.len(), &debts[0]["name"]), (1, &json!(vm)), "{place}");
        let composed = stage.mutations().iter().filter(|kind| kind.contains("compose")).count();
        assert_eq!((composed, stage.in_lxd().len()), (2, 2), "{place}");
        stage.power_of_host(&host, "on");
        stage.cluster_passes(10).await;
        assert_eq!((stage.debts().as_str(), stage.in_lxd().len(), stage.in_maas().len()), ("", 1, 1), "{place}");
        if !died {
            break;
        }
        deaths += 1;
    }
    assert!(deaths > 20 && deaths < 2 * MOST_WRITES, "{deaths}");
}
