//! The manager dies at every single write of registering a host and of releasing one, before and after the write takes
//! effect; the final state is the same.

use capmaas_manager::cluster;
use capmaas_manager::kubernetes::Key;
use capmaas_manager::machine;
use lxd_initializer::names;
use serde_json::{Value, json};

use crate::hosts::{IMAGE, certificate, join, machine_says, object, ready, report, rolled_out, vm_hosts};
use crate::stage::{Stage, key};

/// More writes than either procedure has.
const MOST_WRITES: u32 = 80;

fn host() -> Key {
    Key::new("default", "cp1")
}

/// One pass over the machine, if it is being deleted, and one over the cluster. Returns whether the manager survived.
async fn lives(stage: &Stage) -> bool {
    let machines = stage.for_machines();
    let leaves =
        stage.port.object("MaasMachine", &host()).is_some_and(|it| !it["metadata"]["deletionTimestamp"].is_null());
    let both = async {
        if leaves {
            let _ = machine::reconcile(&machines, &host()).await;
        }
        let _ = cluster::reconcile(&stage.context, &key()).await;
    };
    tokio::select! {
        biased;
        () = both => true,
        () = stage.crash.happens() => false,
    }
}

/// At most this many passes until the condition holds, with the agent acting in between. Restarts the manager if it
/// dies; returns whether it did.
async fn passes(stage: &mut Stage, most: usize, address: &str, mut is_there: impl FnMut(&Stage) -> bool) -> bool {
    let mut died = false;
    for _ in 0..most {
        if !lives(stage).await {
            died = true;
            stage.restart();
        }
        if !object(stage, "DaemonSet").is_null() {
            rolled_out(stage);
        }
        let node = stage.port.node_of(&key(), "cp1").unwrap();
        if node.annotations.contains_key(names::LEAVE) {
            report(stage, "cp1", address, &[(names::STATE, "Left")]);
        } else if !certificate(stage).is_empty() {
            report(stage, "cp1", address, &[]);
        }
        if is_there(stage) {
            break;
        }
        stage.advance(10);
    }
    died
}

/// Requests of a kind that changed something.
fn effective(stage: &Stage, kind: &str) -> usize {
    stage.maas.control().ledger(Some(kind)).iter().filter(|entry| !entry.effects.is_empty()).count()
}

#[tokio::test]
async fn s02_a_manager_that_dies_at_any_write_of_registering_a_host_registers_it_once() {
    let mut deaths = 0;
    for (number, after) in (0..MOST_WRITES).flat_map(|number| [(number, false), (number, true)]) {
        let mut stage = Stage::new();
        stage.context.agent_image = Some(IMAGE.into());
        stage.cluster(json!({}), json!({ "lxdControlPlaneCluster": true }), json!({}));
        let address = join(&stage, "cp1");
        stage.port.workload_answers(&key(), true);
        stage.crash.light_for_writes(number, after);
        let died = passes(&mut stage, 70, &address, |stage| stage.condition("LXDReady")["status"] == "True").await;
        stage.crash.put_out();
        let place = format!("died at write {number}, after its effect: {after}");
        assert_eq!(stage.condition("LXDReady")["status"], "True", "{place}: {:#}", stage.condition("LXDReady"));
        assert_eq!((vm_hosts(&stage).len(), effective(&stage, "vm-hosts.create")), (1, 1), "{place}");
        let known =
            stage.maas.control().with_model(|model| model.db.vm_hosts.values().next().unwrap().certificate.clone());
        assert_eq!(known, certificate(&stage), "{place}: the pair that the node trusts is the one that MAAS has");
        if !died {
            break;
        }
        deaths += 1;
    }
    assert!(deaths > 20 && deaths < 2 * MOST_WRITES, "{deaths}");
}

#[tokio::test]
async fn s11_a_manager_that_dies_at_any_write_of_giving_a_host_back_never_does_it_while_a_vm_is_there() {
    let mut deaths = 0;
    for (number, after) in (0..MOST_WRITES).flat_map(|number| [(number, false), (number, true)]) {
        let (mut stage, address) = ready(json!({})).await;
        let place = format!("died at write {number}, after its effect: {after}");
        let vm =
            json!([{ "machine": { "hostname": "vm1", "vm_host": "cp1", "status": "Deployed", "owner": "carol" } }]);
        stage.arrange(vm);
        stage.port.delete("MaasMachine", &host());
        stage.crash.light_for_writes(number, after);
        let kept = |stage: &Stage| {
            assert_eq!((vm_hosts(stage).len(), effective(stage, "machine.release")), (1, 0), "{place}");
            false
        };
        let mut died = passes(&mut stage, 12, &address, kept).await;
        let gone = json!([
            { "absent": { "machine": "vm1" } },
            { "lxd": { "address": format!("{address}:8443"), "instances": [{ "project": "maas", "name": "vm1", "absent": true }] } },
        ]);
        stage.arrange(gone);
        let named = |stage: &Stage| stage.records().iter().any(|(_, addresses)| addresses.contains(&address));
        let seen_off = |stage: &Stage| {
            // Its agent is reached by the name (S11), and the next owner of the machine must not be (S18).
            assert!(named(stage) || vm_hosts(stage).is_empty(), "{place}");
            assert!(!named(stage) || effective(stage, "machine.release") == 0, "{place}");
            stage.port.object("MaasMachine", &host()).is_none()
        };
        died |= passes(&mut stage, 90, &address, seen_off).await;
        stage.crash.put_out();
        let left = stage.port.object("MaasMachine", &host()).unwrap_or(Value::Null);
        assert!(left.is_null(), "{place}: {}", machine_says(&stage, "cp1"));
        assert!(vm_hosts(&stage).is_empty(), "{place}");
        assert_eq!((effective(&stage, "vm-host.delete"), effective(&stage, "machine.release")), (1, 1), "{place}");
        if !died {
            break;
        }
        deaths += 1;
    }
    assert!(deaths > 10 && deaths < 2 * MOST_WRITES, "{deaths}");
}
