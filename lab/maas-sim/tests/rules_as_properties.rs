//! Whatever clients do, in whatever order: MAAS's rules hold.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;

use common::{ADMIN, ALICE, BOB, get, lab, post, send, with_vm_host};
use maas_sim::{Simulator, model::Status};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Op(usize, &'static str, &'static str),
    Allocate(&'static str),
    Compose(i64, i64),
    Delete(usize),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let user = prop::sample::select(vec![ADMIN, ALICE, BOB]);
    let op = prop::sample::select(vec![
        "deploy",
        "release",
        "abort",
        "commission",
        "test",
        "power_on",
        "power_off",
        "lock",
        "unlock",
        "mark_broken",
        "mark_fixed",
        "rescue_mode",
        "exit_rescue_mode",
    ]);
    prop_oneof![
        8 => (0..12usize, op, user.clone()).prop_map(|(machine, op, user)| Step::Op(machine, op, user)),
        3 => user.prop_map(Step::Allocate),
        2 => (1..3i64, 1024..4096i64).prop_map(|(cores, memory)| Step::Compose(cores, memory)),
        1 => (0..12usize).prop_map(Step::Delete),
        4 => (0..90u64).prop_map(Step::Advance),
    ]
}

fn ids(sim: &Simulator) -> Vec<String> {
    sim.control()
        .with_model(|model| model.machines_in_order().iter().map(|machine| machine.system_id.clone()).collect())
}

async fn run(sim: &Simulator, host: i64, step: &Step) -> u16 {
    let pick = |index: usize| {
        let ids = ids(sim);
        ids.get(index % ids.len().max(1)).cloned().unwrap_or_default()
    };
    match step {
        Step::Op(machine, op, user) => {
            post(sim, user, &format!("machines/{}/?op={op}", pick(*machine)), &[]).await.status
        }
        Step::Allocate(user) => post(sim, user, "machines/?op=allocate", &[]).await.status,
        Step::Compose(cores, memory) => {
            let form = [("cores", cores.to_string()), ("memory", memory.to_string())];
            let form: Vec<(&str, &str)> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
            post(sim, ADMIN, &format!("vm-hosts/{host}/?op=compose"), &form).await.status
        }
        Step::Delete(machine) => send(sim, ADMIN, "DELETE", &format!("machines/{}/", pick(*machine)), &[]).await.status,
        Step::Advance(seconds) => {
            sim.advance(std::time::Duration::from_secs(*seconds));
            200
        }
    }
}

/// Every "Node changed status" in the log is a way that the state machine has.
fn no_illegal_way(sim: &Simulator) {
    sim.control().with_model(|model| {
        for event in model.db.events.iter().filter(|event| event.kind == "Node changed status") {
            let words: Vec<&str> = event.description.split('\'').collect();
            let (from, to) = (Status::parse(words[1]).unwrap(), Status::parse(words[3]).unwrap());
            assert!(from.may_become(to), "{}", event.description);
        }
    });
}

fn addresses_are_given_once(sim: &Simulator) {
    sim.control().with_model(|model| {
        let mut seen = BTreeSet::new();
        for row in model.db.addresses.values().filter(|row| row.alloc as i64 != 6) {
            if let Some(ip) = row.ip {
                assert!(seen.insert(ip), "{ip} is given twice");
                assert_eq!(model.db.taken.get(&ip), Some(&row.id));
            }
        }
        assert_eq!(seen.len(), model.db.taken.len());
        for machine in model.db.machines.values() {
            for id in machine.interfaces.iter().flat_map(|nic| nic.addresses.iter()) {
                assert!(model.db.addresses.contains_key(id), "a link without a row");
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn rules_hold_whatever_clients_do(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let sim = lab();
            with_vm_host(&sim);
            let host = sim.control().with_model(|model| *model.db.vm_hosts.keys().next().unwrap());
            for step in &steps {
                let status = run(&sim, host, step).await;
                assert!(![500, 501].contains(&status), "{step:?} was answered with {status}");
                no_illegal_way(&sim);
                addresses_are_given_once(&sim);
                let vm_host = get(&sim, ADMIN, &format!("vm-hosts/{host}/")).await.json();
                for what in ["cores", "memory", "local_storage"] {
                    assert!(vm_host["available"][what].as_i64().unwrap() >= 0, "{vm_host}");
                }
            }
            sim.control().settle();
            no_illegal_way(&sim);
            // Nobody owns what is Ready, and everything else that is in use is somebody's.
            sim.control().with_model(|model| {
                for machine in model.db.machines.values() {
                    if matches!(machine.status, Status::Ready | Status::Broken) {
                        assert!(machine.owner.is_none() && machine.annotations.is_empty());
                    }
                    if matches!(machine.status, Status::Allocated | Status::Deployed | Status::Deploying) {
                        assert!(machine.owner.is_some());
                    }
                }
            });
        });
    }
}
