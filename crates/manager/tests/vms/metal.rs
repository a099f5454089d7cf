//! Bare metal with a MAAS that crashes or answers twice.

use std::collections::BTreeMap;
use std::time::Duration;

use capmaas_core::plan::Requeue;
use capmaas_manager::kubernetes::{Key, Node};
use capmaas_manager::machine::{Carried, reconcile_knowing};
use serde_json::json;

use crate::stage::Stage;

/// More writes than the release of a machine has.
const MOST_WRITES: u32 = 50;

fn with_metal(names: &[&str]) -> Stage {
    let stage = Stage::new();
    for name in names {
        stage.arrange(json!([{"machine": {"hostname": name, "zone": "az1", "cpu_count": 4, "memory": 8192}}]));
    }
    stage
}

/// The MAAS state of a machine, and whether it has an owner.
fn state(stage: &Stage, name: &str) -> (String, bool) {
    stage.maas.control().with_model(|model| {
        let machine = model.db.machines.values().find(|machine| machine.hostname == name).unwrap();
        (machine.status.name().to_owned(), machine.owner.is_some())
    })
}

fn system_id(stage: &Stage, name: &str) -> String {
    stage.maas.control().with_model(|model| model.db.by_hostname[name].clone())
}

#[tokio::test]
async fn that_a_machine_runs_is_written_once_although_its_provider_id_changes_the_spec() {
    let stage = with_metal(&["bm01"]);
    stage.machine("m", json!({}));
    stage.until_ready(&["m"]).await;
    let object = stage.object("m");
    assert_eq!(stage.condition("m", "Ready")["observedGeneration"], object["metadata"]["generation"]);
    stage.pass("m").await;
    assert_eq!(stage.object("m"), object);
}

#[tokio::test]
async fn a_node_is_labelled_together_with_its_name_and_never_again() {
    let stage = with_metal(&["bm01"]);
    stage.machine("m", json!({ "nodeLabels": { "topology.kubernetes.io/region": "north", "example.com/rack": "r7" } }));
    stage.until_ready(&["m"]).await;
    let cluster = Key::new("default", "c1");
    stage.port.workload_answers(&cluster, true);
    let addresses = stage.object("m")["status"]["addresses"].as_array().cloned().unwrap();
    let addresses = addresses.iter().filter_map(|address| address["address"].as_str().map(str::to_owned)).collect();
    // Somebody else has already set one of them.
    let labels = [("example.com/rack".to_owned(), "r8".to_owned())].into();
    let node = Node { name: "bm01".into(), addresses, labels, ..Node::default() };
    stage.port.put_node(&cluster, node);
    stage.pass("m").await;
    let named = stage.port.node_of(&cluster, "bm01").unwrap();
    assert!(named.provider_id.is_some_and(|id| id.starts_with("maas://az1/")));
    let labels = |node: &Node| node.labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
    let expected = ["example.com/rack=r8", "topology.kubernetes.io/region=north", "topology.kubernetes.io/zone=az1"];
    assert_eq!(labels(&stage.port.node_of(&cluster, "bm01").unwrap()), expected);

    // From now on Cluster API knows the Node; a label that somebody removes stays removed.
    stage.port.set_status("Machine", &Key::new("default", "m"), json!({ "nodeRef": { "name": "bm01" } })).unwrap();
    let node = stage.port.node_of(&cluster, "bm01").unwrap();
    stage.port.put_node(&cluster, Node { labels: BTreeMap::new(), ..node });
    stage.pass("m").await;
    assert_eq!(labels(&stage.port.node_of(&cluster, "bm01").unwrap()), Vec::<String>::new());
}

#[tokio::test]
async fn s20_power_that_only_the_silent_node_tells_of_comes_back() {
    let stage = with_metal(&["bm01"]);
    stage.machine("m", json!({}));
    stage.until_ready(&["m"]).await;
    let id = system_id(&stage, "bm01");
    let turned_on = |stage: &Stage| stage.mutations().iter().filter(|kind| *kind == "machine.power_on").count();
    // MAAS polls the power state every few minutes, and a newer MAAS logs no event about the result.
    stage.maas.control().with_model(|model| model.lose_power(&id));
    let node = |ready: &str| {
        let conditions =
            json!([{ "type": "NodeReady", "status": ready, "lastTransitionTime": "2026-11-15T12:00:00Z" }]);
        json!({ "nodeRef": { "name": "bm01" }, "conditions": conditions })
    };
    stage.port.set_status("Machine", &Key::new("default", "m"), node("True")).unwrap();
    stage.pass("m").await;
    assert_eq!(turned_on(&stage), 0, "nobody can know yet");
    stage.port.set_status("Machine", &Key::new("default", "m"), node("Unknown")).unwrap();
    stage.pass("m").await;
    assert_eq!(turned_on(&stage), 1);
    stage.advance(60);
    stage.pass("m").await;
    assert_eq!((turned_on(&stage), stage.reason("m", "MachineDeployed")), (1, "MachineDeployed".into()));
}

#[tokio::test]
async fn s20_a_machine_stays_off_whose_vm_host_is_tagged_for_maintenance() {
    let stage = with_metal(&["bm01"]);
    stage.machine("m", json!({}));
    stage.until_ready(&["m"]).await;
    let id = system_id(&stage, "bm01");
    stage.arrange(json!([
        {"lxd": {"address": "10.0.0.11:8443", "cores": 4, "memory": 8192, "host": "bm01"}},
        {"vm_host": {"name": "bm01", "power_address": "10.0.0.11:8443", "project": "maas"}},
    ]));
    let tag = |tags: &[&str]| {
        stage.maas.control().with_model(|model| {
            let host = model.db.vm_hosts.values_mut().find(|host| host.host.as_ref() == Some(&id)).unwrap();
            host.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        });
    };
    let turned_on = || stage.mutations().iter().filter(|kind| *kind == "machine.power_on").count();
    tag(&["maas-lxd-host-maintenance"]);
    stage.maas.control().with_model(|model| model.lose_power(&id));
    let silent = json!([{ "type": "NodeReady", "status": "Unknown", "lastTransitionTime": "2026-11-15T12:00:00Z" }]);
    let silent = json!({ "nodeRef": { "name": "bm01" }, "conditions": silent });
    stage.port.set_status("Machine", &Key::new("default", "m"), silent).unwrap();
    stage.pass("m").await;
    assert_eq!((turned_on(), stage.reason("m", "MachineDeployed")), (0, "MachinePoweredOff".into()));
    tag(&[]);
    stage.fault(json!({ "match": { "kind": "vm-hosts.read" }, "do": "status", "status": 500, "times": 0 }));
    stage.advance(300);
    assert_eq!(stage.pass("m").await, Requeue::seconds(60));
    assert_eq!(turned_on(), 0, "nobody knows whether it is tagged");
    let said = stage.condition("m", "MachineDeployed");
    assert_eq!((&said["status"], &said["reason"]), (&json!("False"), &json!("MachinePoweredOff")), "{said}");
    let message = said["message"].as_str().unwrap();
    assert!(message.contains("whether its VM host is tagged for maintenance cannot be read: "), "{message}");
    assert!(message.contains("500"), "{message}");
    assert_eq!(stage.object("m")["status"]["machinePowered"], false, "a control plane leaves DNS");
    stage.maas.control().remove_fault(None);
    stage.advance(60);
    stage.pass("m").await;
    assert_eq!((turned_on(), stage.reason("m", "MachineDeployed")), (1, "MachinePoweredOff".into()));
}

#[tokio::test]
async fn s20_that_a_vm_is_off_is_known_although_the_vm_hosts_cannot_be_listed() {
    let stage = Stage::new();
    stage.vm("m");
    stage.until_ready(&["m"]).await;
    let id = stage.object("m")["spec"]["systemID"].as_str().unwrap().to_owned();
    stage.fault(json!({ "match": { "kind": "vm-hosts.read" }, "do": "status", "status": 403, "times": 0 }));
    let asked = stage.maas.control().ledger(Some("vm-hosts.read")).len();
    stage.maas.control().with_model(|model| model.lose_power(&id));
    let silent = json!([{ "type": "NodeReady", "status": "Unknown", "lastTransitionTime": "2026-11-15T12:00:00Z" }]);
    let silent = json!({ "nodeRef": { "name": "m" }, "conditions": silent });
    stage.port.set_status("Machine", &Key::new("default", "m"), silent).unwrap();
    stage.pass("m").await;
    assert_eq!(stage.reason("m", "MachineDeployed"), "MachinePoweredOff");
    assert_eq!(stage.mutations().last().map(String::as_str), Some("machine.power_on"));
    stage.maas.control().with_model(|model| model.lose_power(&id));
    stage.until_gone(&["m"]).await;
    let asked_since = stage.maas.control().ledger(Some("vm-hosts.read")).len() - asked;
    assert_eq!(asked_since, 0, "a VM is never a host");
}

#[tokio::test]
async fn the_image_is_sent_with_every_deployment_because_maas_has_a_default() {
    let stage = with_metal(&["bm01"]);
    stage.arrange(json!([{ "image": { "name": "custom/k8s" } }]));
    stage.machine("metal", json!({ "image": "custom/k8s" }));
    stage.machine("vm", json!({ "image": "custom/k8s", "provisioningMode": "lxd" }));
    stage.until_ready(&["metal", "vm"]).await;
    assert_eq!(stage.maas.control().ledger(Some("machine.deploy")).len(), 2);
    for name in ["metal", "vm"] {
        let id = stage.object(name)["spec"]["systemID"].as_str().unwrap().to_owned();
        let runs = stage.maas.control().with_model(|model| {
            let machine = &model.db.machines[&id];
            (machine.osystem.clone(), machine.distro_series.clone())
        });
        assert_eq!(runs, ("custom".to_owned(), "k8s".to_owned()), "{name}");
    }
}

#[tokio::test]
async fn a_machine_that_a_killed_maas_left_releasing_is_told_and_let_go_once_a_person_has_mended_it() {
    let stage = with_metal(&["bm01"]);
    stage.machine("m", json!({}));
    stage.until_ready(&["m"]).await;
    stage.fault(json!({ "match": { "kind": "machine.release" }, "when": "after", "do": "kill", "down_seconds": 20 }));
    stage.port.delete("MaasMachine", &Key::new("default", "m"));
    let told = |stage: &Stage| stage.reason("m", "MachineDeployed") == "MachineReleaseFailed";
    stage.until(&["m"], "told", told).await;
    assert_eq!(state(&stage, "bm01").0, "Releasing");
    let message = stage.condition("m", "MachineDeployed")["message"].to_string();
    assert!(message.contains("more than 15 minutes and is on"), "{message}");
    let releases = stage.mutations().iter().filter(|kind| *kind == "machine.release").count();
    let id = system_id(&stage, "bm01");
    stage.maas.control().with_model(|model| {
        let admin = model.db.machines[&id].owner.unwrap();
        model.mark_broken(&id, admin, None).unwrap();
    });
    stage.advance(60);
    stage
        .maas
        .control()
        .with_model(|model| model.release(&id, 1, &maas_sim::model::release::ReleaseRequest::default()).unwrap());
    stage.until_gone(&["m"]).await;
    assert_eq!(state(&stage, "bm01"), ("Ready".to_owned(), false));
    assert_eq!(stage.mutations().iter().filter(|kind| *kind == "machine.release").count(), releases);
}

/// A machine that is powered off and being released, whose disk erasing MAAS has forgotten.
async fn with_a_forgotten_wiping() -> Stage {
    let stage = with_metal(&["bm01"]);
    stage.machine("m", json!({ "release": { "erase": "quick" } }));
    stage.until_ready(&["m"]).await;
    stage.fault(json!({ "match": { "kind": "machine.release" }, "when": "after", "do": "kill", "down_seconds": 20 }));
    stage.port.delete("MaasMachine", &Key::new("default", "m"));
    stage.until(&["m"], "the wiping", |stage| state(stage, "bm01").0 == "Disk erasing").await;
    let id = system_id(&stage, "bm01");
    stage.maas.control().with_model(|model| model.lose_power(&id));
    stage
}

/// How often MAAS was told to abort the erasing, and to release.
fn told(stage: &Stage) -> (usize, usize) {
    let sent = stage.mutations();
    let of = |kind: &str| sent.iter().filter(|sent| *sent == kind).count();
    (of("machine.abort"), of("machine.release"))
}

#[tokio::test]
async fn a_wiping_of_disks_that_a_killed_maas_forgot_is_begun_anew_once_the_machine_is_off() {
    let stage = with_a_forgotten_wiping().await;
    stage.until_gone(&["m"]).await;
    assert_eq!(state(&stage, "bm01"), ("Ready".to_owned(), false));
    assert_eq!(told(&stage), (1, 2), "{:?}", stage.mutations());
}

/// Returns whether the manager died at this write; either way it has aborted the erasing once and released once more.
async fn a_forgotten_wiping_ends(number: u32, after: bool) -> bool {
    let mut stage = with_a_forgotten_wiping().await;
    stage.crash.light_for_writes(number, after);
    let mut died = false;
    for _ in 0..300 {
        if stage.object("m").is_null() {
            break;
        }
        if !stage.lives("m").await {
            died = true;
            stage.restart();
        }
        stage.advance(15);
    }
    stage.crash.put_out();
    let place = format!("died at write {number}, after its effect: {after}");
    assert!(stage.object("m").is_null(), "{place}: {:#}", stage.object("m"));
    assert_eq!(state(&stage, "bm01"), ("Ready".to_owned(), false), "{place}");
    assert_eq!(told(&stage), (1, 2), "{place}: {:?}", stage.mutations());
    died
}

#[tokio::test]
async fn a_manager_that_dies_at_any_write_of_a_forgotten_wiping_gives_it_up_once_and_releases_once_more() {
    let mut deaths = 0;
    for number in (0..MOST_WRITES).step_by(5) {
        let places = (number..number + 5).flat_map(|number| [(number, false), (number, true)]);
        // The wait for a MAAS that is down takes real time, so several cases run concurrently.
        let died =
            futures::future::join_all(places.map(|(number, after)| a_forgotten_wiping_ends(number, after))).await;
        deaths += died.iter().filter(|died| **died).count();
        if !died.iter().all(|died| *died) {
            assert!(deaths > 20, "{deaths}");
            return;
        }
    }
    panic!("there are more writes than {MOST_WRITES}");
}

#[tokio::test]
async fn s15_a_machine_that_is_paused_between_two_steps_in_a_row_is_not_deployed() {
    let stage = with_metal(&["bm01"]);
    stage.machine("m", json!({}));
    let (key, mut known) = (Key::new("default", "m"), Carried::default());
    while !stage.mutations().iter().any(|kind| kind == "machine.update") {
        let next = reconcile_knowing(&stage.context, &key, &mut known).await.unwrap();
        assert_eq!(next, Requeue::NOW, "all these steps follow each other");
    }
    stage
        .port
        .edit("MaasMachine", &key, &json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": "" } } }))
        .unwrap();
    // The pass carries an outdated object, and the API server has the current one.
    let next = reconcile_knowing(&stage.context, &key, &mut known).await.unwrap();
    assert_eq!(next, Requeue::After(Duration::from_millis(500)));
    assert_eq!(reconcile_knowing(&stage.context, &key, &mut known).await.unwrap(), Requeue::OnChange);
    assert!(!stage.mutations().iter().any(|kind| kind == "machine.deploy"), "{:?}", stage.mutations());
    assert_eq!(stage.condition("m", "Paused")["status"], "True");
}

#[tokio::test]
async fn s15_the_write_of_the_intent_is_the_live_read_of_the_object_before_a_deployment() {
    const CALLS: u32 = 100;
    let mut stage = with_metal(&["bm01"]);
    stage.machine("m", json!({}));
    let (key, mut known) = (Key::new("default", "m"), Carried::default());
    while !stage.mutations().iter().any(|kind| kind == "machine.update") {
        reconcile_knowing(&stage.context, &key, &mut known).await.unwrap();
    }
    stage.crash.light(CALLS, false);
    reconcile_knowing(&stage.context, &key, &mut known).await.unwrap();
    assert_eq!(stage.mutations().last().map(String::as_str), Some("machine.deploy"));
    let mut left = 0;
    loop {
        tokio::select! {
            biased;
            _ = stage.context.kubernetes.maas_machine(&key) => left += 1,
            () = stage.crash.happens() => break,
        }
    }
    stage.restart();
    assert_eq!(CALLS - left, 8, "one more if the object were read after it was written");
}

/// Two machines under the idempotency key of one object: a possible result of a lost answer.
async fn allocated_twice(stage: &Stage) -> String {
    stage.machine("m", json!({}));
    stage.until(&["m"], "a machine", |stage| state(stage, "bm01").1 || state(stage, "bm02").1).await;
    let other = if state(stage, "bm01").1 { "bm02" } else { "bm01" };
    let key = stage.record("m")["key"].clone();
    stage
        .arrange(json!([{"machine": {"hostname": other, "status": "Allocated", "owner": "admin", "agent_name": key}}]));
    other.to_owned()
}

#[tokio::test]
async fn s04_a_second_machine_is_followed_until_it_is_ready_and_off_whatever_goes_wrong() {
    let mut stage = with_metal(&["bm01", "bm02"]);
    let other = allocated_twice(&stage).await;
    stage.until(&["m"], "written down", |stage| !stage.record("m")["extra"].is_null()).await;
    stage.restart();
    // The answer to its release is lost, and then the release fails.
    stage.arrange(json!([{"machine": {"hostname": other, "power": "on", "next": {"release": "fail"}}}]));
    stage.fault(json!({ "match": { "kind": "machine.release", "machine": other }, "when": "after", "do": "reset" }));
    stage.until_ready(&["m"]).await;
    stage.until(&["m"], "released", |stage| stage.record("m")["extra"].is_null()).await;
    assert_eq!(state(&stage, &other), ("Ready".to_owned(), false));
    assert_eq!(stage.object("m")["status"]["ready"], true);
    assert!(!matches!(stage.pass("m").await, Requeue::After(wait) if wait.as_secs() < 10), "nothing is left to follow");
}

#[tokio::test]
async fn s04_the_finalizer_waits_for_the_second_machine() {
    let stage = with_metal(&["bm01", "bm02"]);
    let other = allocated_twice(&stage).await;
    stage.until_gone(&["m"]).await;
    for name in ["bm01", "bm02"] {
        assert_eq!(state(&stage, name), ("Ready".to_owned(), false), "{name}, {other} was the second");
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_slow_maas_allocates_the_condition_says_what_is_waited_for() {
    let stage = with_metal(&["bm01"]);
    stage.machine("m", json!({}));
    stage.cluster_passes(2).await;
    stage.fault(json!({ "match": { "kind": "machines.allocate" }, "when": "after", "do": "slow", "seconds": 20.0 }));
    let look = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        stage.condition("m", "MachineDeployed")["message"].to_string()
    };
    let (_, told) = tokio::join!(stage.pass("m"), look);
    assert!(told.contains("requesting a machine"), "{told}");
    stage.until_ready(&["m"]).await;
}
