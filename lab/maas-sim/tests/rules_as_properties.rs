//! MAAS's rules hold, whatever clients do in whatever order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::{BTreeMap, BTreeSet};

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
        Step::Advance(_) => 200,
    }
}

/// The statuses of all machines.
type States = BTreeMap<String, Status>;

fn states(sim: &Simulator) -> States {
    sim.control().with_model(|model| {
        model.db.machines.values().map(|machine| (machine.system_id.clone(), machine.status)).collect()
    })
}

/// Whether one request, or one scheduled task, may lead from one status to another: in one step, or in the two that
/// MAAS takes at once when it deploys a machine without an owner and when it releases one that is off.
fn is_legal(from: Status, to: Status) -> bool {
    let at_once = |via: Status| from.may_become(via) && via.may_become(to);
    from == to
        || from.may_become(to)
        || (from == Status::Ready && to == Status::Deploying && at_once(Status::Allocated))
        || (matches!(to, Status::Ready | Status::New) && at_once(Status::Releasing))
}

/// Machines that made an illegal transition.
fn illegal_ways(before: &States, after: &States) -> Vec<String> {
    let changes = after.iter().filter_map(|(id, to)| before.get(id).map(|from| (id, *from, *to)));
    changes
        .filter(|(_, from, to)| !is_legal(*from, *to))
        .map(|(id, from, to)| format!("{id}: {} to {}", from.name(), to.name()))
        .collect()
}

/// Compares the statuses before and after each single step.
struct Watch(States);

impl Watch {
    fn look(&mut self, sim: &Simulator) {
        let after = states(sim);
        assert_eq!(illegal_ways(&self.0, &after), [""; 0]);
        self.0 = after;
    }

    /// Advances the clock, one scheduled task after the other.
    fn pass(&mut self, sim: &Simulator, seconds: u64) {
        #[allow(clippy::cast_precision_loss)]
        let until = sim.control().with_model(|model| model.after(seconds as f64));
        loop {
            let happened = sim.control().with_model(|model| {
                let (at, due) = model.queue.pop_due(until)?;
                model.now = model.now.max(at);
                model.happen(due);
                Some(())
            });
            self.look(sim);
            if happened.is_none() {
                break;
            }
        }
        sim.control().with_model(|model| model.run_until(until));
    }
}

#[test]
fn a_state_to_which_no_way_leads_is_noticed_although_no_event_tells_of_it() {
    let sim = lab();
    let set = |status: Status| {
        sim.control().with_model(|model| {
            let machine = model.db.machines.values_mut().next().unwrap();
            machine.status = status;
            model.db.events.len()
        })
    };
    let events = set(Status::FailedDeployment);
    let before = states(&sim);
    assert_eq!(set(Status::Deploying), events, "no event");
    let found = illegal_ways(&before, &states(&sim));
    assert!(found.len() == 1 && found[0].ends_with("Failed deployment to Deploying"), "{found:?}");
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
            let mut watch = Watch(states(&sim));
            for step in &steps {
                let status = run(&sim, host, step).await;
                assert!(![500, 501].contains(&status), "{step:?} was answered with {status}");
                watch.look(&sim);
                if let Step::Advance(seconds) = step {
                    watch.pass(&sim, *seconds);
                }
                addresses_are_given_once(&sim);
                let vm_host = get(&sim, ADMIN, &format!("vm-hosts/{host}/")).await.json();
                for what in ["cores", "memory", "local_storage"] {
                    assert!(vm_host["available"][what].as_i64().unwrap() >= 0, "{vm_host}");
                }
            }
            watch.pass(&sim, 4000);
            sim.control().settle();
            // A Ready machine has no owner, and every other machine in use has one.
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
