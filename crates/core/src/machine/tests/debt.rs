//! VMs on hosts that died.

use std::collections::BTreeMap;

use super::super::*;
use super::fixture::*;
use crate::Lookup;
use crate::maas;
use crate::plan::Finalizer;

fn debt() -> Debt {
    let vm = vm(State::Deployed);
    Debt { machine: vm.id, name: vm.hostname, host: "host7".into(), key: KEY.into() }
}

fn of(metal: maas::Machine, power: Option<Power>) -> Payment {
    pay(&debt(), &Lookup::Found(metal), power, "admin", None)
}

#[test]
fn s16_a_debt_is_paid_by_removal_under_our_mark_once_the_host_answers() {
    assert_eq!(of(vm(State::Deployed), Some(Power::On)), Payment::Remove);
    assert_eq!(of(vm(State::ReleasingFailed), Some(Power::Off)), Payment::Remove);
    assert_eq!(
        of(unowned_vm(State::Ready), Some(Power::Off)),
        Payment::Remove,
        "its name is one that only our key gives"
    );
    assert!(matches!(of(vm(State::Releasing), Some(Power::Off)), Payment::Wait(_)));
    assert!(matches!(pay(&debt(), &Lookup::Absent, None, "admin", None), Payment::Paid(_)));
}

#[test]
fn s16_nothing_is_done_while_the_host_does_not_answer_or_maas_was_not_asked() {
    for state in State::ALL {
        for power in [None, Some(Power::Unknown)] {
            let next = of(vm(state), power);
            assert!(matches!(next, Payment::Wait(_)), "{state:?}: {next:?}");
        }
    }
    assert!(matches!(pay(&debt(), &Lookup::Unknown("away".into()), None, "admin", None), Payment::Wait(_)));
}

#[test]
fn s27_a_debt_is_text_that_people_can_write_and_removes_neither_metal_nor_what_carries_no_mark() {
    for state in State::ALL {
        for power in [Some(Power::On), Some(Power::Off)] {
            let name = vm(state).hostname;
            let next = of(maas::Machine { hostname: name, ..metal(state) }, power);
            assert!(matches!(&next, Payment::Paid(why) if why.contains("not a VM")), "{state:?}: {next:?}");
            let by_hand = maas::Machine { hostname: "database".into(), ..unowned_vm(state) };
            let forged = Debt { name: "database".into(), ..debt() };
            let next = pay(&forged, &Lookup::Found(by_hand.clone()), power, "admin", None);
            assert!(!matches!(next, Payment::Remove), "{state:?}: {next:?}");
            if state == State::Ready {
                let words = "delete the VM in MAAS if it was";
                assert!(matches!(&next, Payment::Wait(why) if why.contains(words)), "{next:?}");
            }
            let next = pay(&debt(), &Lookup::Found(vm(state)), power, "admin", Some("it is held".into()));
            assert_eq!(next, Payment::Wait("it is held".into()), "{state:?}");
        }
    }
}

#[test]
fn s10_a_vm_that_somebody_else_has_meanwhile_is_not_touched() {
    for state in State::ALL {
        let theirs = maas::Machine { owner: Some("bob".into()), ..unowned_vm(state) };
        let next = of(theirs, Some(Power::On));
        // A user who commissions a VM owns it only until that ends.
        let awaited = state.is_being_commissioned() && matches!(next, Payment::Wait(_));
        assert!(awaited || matches!(next, Payment::Paid(_)), "{state:?}: {next:?}");
        let another = maas::Machine { stamp: Some("another-key".into()), ..vm(state) };
        assert!(matches!(of(another, Some(Power::On)), Payment::Paid(_)), "{state:?}");
    }
}

#[test]
fn s01_debts_that_cannot_be_read_are_not_none() {
    let annotations = |text: &str| BTreeMap::from([(DEBTS_ANNOTATION.to_owned(), text.to_owned())]);
    assert!(debts(Some(&annotations("{"))).is_err());
    assert_eq!(debts(None), Ok(Vec::new()));
    let text = serde_json::to_string(&[debt()]).unwrap();
    assert_eq!(debts(Some(&annotations(&text))), Ok(vec![debt()]));
}

/// A VM that nobody can reach, on a host whose BMC reports this power.
fn on_host(metal: maas::Machine, journal: &Journal, power: Option<Power>) -> Observed {
    let mut observed = fresh_vm().with_journal(journal).under_key(vec![metal.clone()]).seeing(metal);
    observed.power = Some(Power::Unknown);
    observed.vm.host = Lookup::Found(ObservedHost { power, ..usable_host() });
    observed
}

/// The journal of a VM that failed.
fn failed() -> Journal {
    let failure = Failure { machine: ID.into(), image: "ubuntu/jammy".into(), power: false };
    Journal { failed: vec![failure], ..vm_on_record() }
}

#[test]
fn s16_a_vm_that_failed_on_a_host_that_is_off_is_owed_and_made_elsewhere() {
    for state in [State::Allocated, State::Deploying, State::FailedDeployment, State::ReleasingFailed] {
        let mut observed = on_host(vm(state), &failed(), Some(Power::Off));
        let plan = decide(&observed, now());
        assert_eq!(plan.effect, Some(Effect::Owe(debt())), "{state:?}");
        assert_eq!(plan.patch.journal, None, "it stays ours until the debt is seen");

        observed.debts = Lookup::Found(vec![debt()]);
        let plan = decide(&observed, now());
        let journal = plan.patch.journal.unwrap();
        assert_eq!(plan.effect, None, "{state:?}");
        assert_eq!((journal.machine(), journal.owed.as_slice()), (None, [ID.to_owned()].as_slice()));
        assert!(journal.failed[0].power, "no image fails where nothing runs");
        assert_ne!(
            journal.vm.unwrap().name,
            vm(state).hostname,
            "nothing under the old name is taken for the next one"
        );
        assert!(plan.events.iter().any(|event| event.reason == "HostUnavailable"), "{:?}", plan.events);
    }
}

#[test]
fn s16_a_vm_that_nobody_has_taken_yet_is_owed_too() {
    for state in [State::Ready, State::FailedCommissioning, State::Commissioning] {
        let mut observed = on_host(unowned_vm(state), &failed(), Some(Power::Off)).under_key(Vec::new());
        let plan = decide(&observed, now());
        assert_eq!(plan.effect, Some(Effect::Owe(debt())), "{state:?}");
        // Somebody else has it: its removal is not owed (S10).
        observed = observed.seeing(maas::Machine { owner: Some("bob".into()), ..unowned_vm(state) });
        assert_ne!(effect(&decide(&observed, now())), "owe", "{state:?}");
    }
}

#[test]
fn s16_without_a_mark_nobody_could_tell_later_whose_it_is_so_it_is_marked_first() {
    let unmarked = maas::Machine { stamp: None, ..vm(State::Allocated) };
    let observed = on_host(unmarked.clone(), &failed(), Some(Power::Off));
    let plan = decide(&observed, now());
    assert_eq!(effect(&plan), "stamp");
    let leaving = on_host(unmarked, &vm_on_record(), Some(Power::Off)).deleting();
    let plan = decide(&leaving, now());
    assert_eq!(effect(&plan), "stamp");
}

#[test]
fn s16_power_that_nobody_can_tell_is_not_off() {
    for power in [None, Some(Power::Unknown), Some(Power::On)] {
        for metal in [vm(State::FailedDeployment), unowned_vm(State::Ready), vm(State::Deploying)] {
            let plan = decide(&on_host(metal, &failed(), power), now());
            assert_ne!(effect(&plan), "owe", "{power:?}");
            assert_eq!(
                plan.patch.journal.map_or(Vec::new(), |journal| journal.owed),
                Vec::<String>::new(),
                "{power:?}"
            );
        }
    }
}

#[test]
fn s16_a_host_that_dies_under_a_vm_in_the_making_is_not_waited_for() {
    for metal in [vm(State::Deploying), unowned_vm(State::Commissioning), unowned_vm(State::Testing)] {
        let state = metal.state;
        let mut journal = vm_on_record();
        journal.allocation.as_mut().unwrap().deploy_began = Some(now());
        let alone = if metal.stamp.is_none() { Vec::new() } else { vec![metal.clone()] };
        let plan = decide(&on_host(metal.clone(), &journal, Some(Power::Off)).under_key(alone), later(400));
        let journal = plan.patch.journal.unwrap();
        assert!(journal.is_to_go(ID) && plan.effect.is_none(), "{state:?}");
        assert_eq!(journal.vm.as_ref().unwrap().avoids(later(400)).collect::<Vec<_>>(), [HOST], "{state:?}");
        assert!(journal.failed.iter().all(|failure| failure.power), "no image is to blame: {state:?}");
    }
}

#[test]
fn a_host_is_asked_about_only_while_its_vm_is_long_in_the_making() {
    let metal = maas::Machine { power: Power::Unknown, ..unowned_vm(State::Commissioning) };
    assert!(!asks_power(&fresh(), &vm_on_record(), &metal, later(299)));
    assert!(asks_power(&fresh(), &vm_on_record(), &metal, later(300)));
    assert!(!asks_power(&fresh(), &vm_on_record(), &maas::Machine { power: Power::On, ..metal }, later(300)));
    assert!(!asks_power(&fresh(), &vm_on_record(), &unowned_vm(State::Ready), later(300)), "it is taken at once");
    assert!(asks_power(&fresh(), &failed(), &vm(State::FailedDeployment), now()));
}

#[test]
fn s16_what_the_cluster_owes_is_none_of_the_objects_any_more() {
    let mut journal = vm_record(None);
    journal.owed.push(ID.into());
    // With no VM in the journal: it is not adopted, although it carries our key.
    let owed = vm(State::FailedDeployment);
    let mut living = fresh_vm().with_journal(&journal).under_key(vec![owed.clone()]);
    living.vm.placement = Lookup::Unknown("nobody looked".into());
    let plan = decide(&living, now());
    assert_eq!((plan.effect, plan.patch.journal.and_then(|journal| journal.allocation)), (None, None));
    // With another one in the journal: it is no second machine under one key (S4).
    let next = maas::Machine { id: "next".into(), hostname: "m-2".into(), ..vm(State::Allocated) };
    let mut with_next = journal.clone();
    with_next.allocation = Some(Allocation::of("next"));
    let allocated = maas::Machine { state: State::Allocated, ..owed.clone() };
    let plan =
        decide(&fresh_vm().with_journal(&with_next).under_key(vec![allocated, next.clone()]).seeing(next), now());
    assert_eq!(effect(&plan), "deploy");
    // Being deleted: nothing waits for it.
    let plan = decide(&fresh_vm().with_journal(&journal).under_key(vec![owed]).deleting(), now());
    assert_eq!((plan.effect, plan.finalizer), (None, Finalizer::Remove));
}
