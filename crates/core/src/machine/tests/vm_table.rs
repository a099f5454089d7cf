//! All 23 states of a VM, and the unknown one, in every phase.

use super::super::*;
use super::fixture::*;
use crate::Lookup;
use crate::maas;
use crate::plan::{Event, Finalizer, Refusal};

/// The effect in each state on a VM that is not provisioned: on ours, and on the one that was made for us and nobody owns; then
/// on deletion, on ours and on the unowned one.
const ROWS: [(State, &str, &str, &str, &str); 24] = [
    (State::New, "", "", "", "delete_vm"),
    (State::Commissioning, "", "", "", "delete_vm"),
    (State::FailedCommissioning, "", "", "", "delete_vm"),
    (State::Missing, "", "", "", "delete_vm"),
    (State::Ready, "", "take", "delete_vm", "delete_vm"),
    (State::Reserved, "", "", "release", ""),
    (State::Deployed, "", "", "release", ""),
    (State::Retired, "", "", "", ""),
    (State::Broken, "", "", "release", ""),
    (State::Deploying, "", "", "release", ""),
    (State::Allocated, "deploy", "", "release", ""),
    (State::FailedDeployment, "", "", "release", ""),
    (State::Releasing, "", "", "", ""),
    (State::ReleasingFailed, "", "", "release", ""),
    (State::DiskErasing, "", "", "", ""),
    (State::FailedDiskErasing, "", "", "release", ""),
    (State::RescueMode, "", "", "", ""),
    (State::EnteringRescueMode, "", "", "", ""),
    (State::FailedEnteringRescueMode, "", "", "", ""),
    (State::ExitingRescueMode, "", "", "", ""),
    (State::FailedExitingRescueMode, "", "", "", ""),
    (State::Testing, "", "", "", "delete_vm"),
    (State::FailedTesting, "", "", "", "delete_vm"),
    (State::Unknown, "", "", "", ""),
];

fn with(metal: maas::Machine) -> Observed {
    let mut observed = fresh_vm().with_journal(&vm_on_record()).seeing(metal);
    observed.power = Some(Power::Off);
    observed
}

#[test]
fn s08_every_state_of_a_vm_has_its_row() {
    for (state, ours, nobodys, leaving, leaving_nobodys) in ROWS {
        assert_eq!(effect(&decide(&with(vm(state)), now())), ours, "{state:?}, ours");
        assert_eq!(effect(&decide(&with(unowned_vm(state)), now())), nobodys, "{state:?}, nobody's");
        let plan = decide(&with(unowned_vm(state)).deleting(), now());
        assert_eq!(effect(&plan), leaving_nobodys, "{state:?}, nobody's, on deletion");
        if state != State::New && state != State::Ready {
            assert_eq!(effect(&decide(&with(vm(state)).deleting(), now())), leaving, "{state:?}, ours, on deletion");
        }
    }
    assert_eq!(ROWS.map(|row| row.0), State::ALL);
}

#[test]
fn s10_a_vm_that_somebody_else_has_is_neither_deployed_nor_removed_whatever_its_state() {
    for state in State::ALL {
        let theirs = maas::Machine { owner: Some("bob".into()), ..unowned_vm(state) };
        for observed in [with(theirs.clone()), with(theirs.clone()).provisioned(), with(theirs.clone()).deleting()] {
            let plan = decide(&observed, now());
            assert_eq!(plan.effect.as_ref().and_then(Effect::machine), None, "{state:?}: {:?}", plan.effect);
        }
    }
}

/// A user who refreshes its host owns a VM that MAAS did not know until it is Ready. Then nobody owns it, and it would stay
/// forever.
#[test]
fn s10_a_vm_that_is_commissioned_for_somebody_else_is_waited_for() {
    for state in State::ALL {
        let theirs = maas::Machine { owner: Some("bob".into()), ..unowned_vm(state) };
        let plan = decide(&with(theirs.clone()), now());
        let kept = plan.patch.journal.clone().unwrap_or_else(vm_on_record).machine().is_some();
        let passing = matches!(state, State::New | State::Commissioning | State::Testing);
        assert!(kept || !passing, "{state:?}: {plan:?}");
        assert!(!kept || passing, "{state:?} is theirs for good");
        let plan = decide(&with(theirs).deleting(), now());
        let waits = passing || matches!(state, State::Releasing | State::DiskErasing);
        assert_eq!(plan.finalizer == Finalizer::Keep, waits, "{state:?}: {plan:?}");
    }
}

#[test]
fn s09_a_vm_that_was_provisioned_once_is_never_released_removed_or_made_again_by_us() {
    for state in State::ALL {
        for seen in [vm(state), unowned_vm(state)] {
            let plan = decide(&with(seen).provisioned(), now());
            let name = effect(&plan);
            assert!(!["release", "delete_vm", "compose", "take", "deploy"].contains(&name), "{state:?}: {name}");
            let stays = plan.patch.journal.is_none_or(|journal| journal.has_machine(ID));
            assert!(stays, "{state:?} stays on record");
        }
    }
}

#[test]
fn s16_nothing_is_removed_while_its_host_does_not_answer() {
    for state in State::ALL {
        let mut observed = with(unowned_vm(state)).deleting();
        for power in [None, Some(Power::Unknown)] {
            observed.power = power;
            assert_ne!(effect(&decide(&observed, now())), "delete_vm", "{state:?}");
            assert_eq!(decide(&observed, now()).finalizer, Finalizer::Keep, "{state:?}");
        }
    }
}

#[test]
fn s01_the_finalizer_goes_when_neither_id_nor_name_are_known_to_maas() {
    let mut observed = fresh_vm().with_journal(&vm_on_record()).deleting();
    observed.in_journal = Lookup::Absent;
    assert_eq!(decide(&observed, now()).finalizer, Finalizer::Remove);
    observed.vm.by_name = Lookup::Unknown("away".into());
    assert_eq!(decide(&observed, now()).finalizer, Finalizer::Keep);
    observed.vm.by_name = Lookup::Found(vec![maas::Machine { id: "back".into(), ..unowned_vm(State::Commissioning) }]);
    let plan = decide(&observed, now());
    assert_eq!((plan.finalizer, plan.patch.journal.unwrap().machine().unwrap().as_str()), (Finalizer::Keep, "back"));
}

#[test]
fn s16_a_vm_on_a_host_that_is_off_is_owed_by_the_cluster_before_its_finalizer_goes() {
    let mut observed = fresh_vm().with_journal(&vm_on_record()).seeing(vm(State::Deployed)).provisioned().deleting();
    observed.power = Some(Power::Unknown);
    let host = |power| Lookup::Found(ObservedHost { power, ..usable_host() });
    for unsure in [None, Some(Power::Unknown), Some(Power::On)] {
        observed.vm.host = host(unsure);
        let plan = decide(&observed, now());
        assert_eq!((effect(&plan) == "owe", plan.finalizer), (false, Finalizer::Keep), "{unsure:?} is not off");
    }
    observed.vm.host = host(Some(Power::Off));
    let plan = decide(&observed, now());
    assert_eq!(plan.finalizer, Finalizer::Keep);
    let Some(Effect::Owe(debt)) = plan.effect else { panic!("{plan:?}") };
    assert_eq!((debt.machine.as_str(), debt.key.as_str()), (ID, KEY));
    observed.debts = Lookup::Found(vec![debt]);
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), plan.finalizer), ("", Finalizer::Remove));
    // No MaasCluster to owe it: the finalizer stays.
    observed.debts = Lookup::Absent;
    assert_eq!(decide(&observed, now()).finalizer, Finalizer::Keep);
    // Its address leaves DNS first (S18).
    observed.debts = Lookup::Found(Vec::new());
    observed.in_dns = Lookup::Found(true);
    assert_eq!(reason(&decide(&observed, now())), "DNSDetachPending");
}

#[test]
fn s12_a_vm_whose_making_was_never_answered_is_named_to_a_person_before_its_object_goes() {
    let sent = vm_record(Some(place())).sending(Write::Compose, now());
    let mut observed = fresh_vm().with_journal(&sent).deleting();
    assert_eq!(decide(&observed, later(149)).finalizer, Finalizer::Keep);
    let plan = decide(&observed, later(150));
    let told: Vec<&str> = plan.events.iter().filter(|event| event.warning).map(|it| it.message.as_str()).collect();
    let name = sent.vm.unwrap().name;
    assert!(matches!(told[..], [one] if one.contains(&name) && one.contains("host7")), "{told:?}");
    assert_eq!((plan.finalizer, effect(&plan)), (Finalizer::Remove, ""));
    // A VM that was never requested is not reported.
    observed = observed.with_journal(&vm_record(Some(place())));
    assert_eq!(decide(&observed, later(150)).events, Vec::new());
}

#[test]
fn s12_a_name_whose_vm_may_be_in_lxd_is_not_given_up_without_a_word() {
    let sent = vm_record(Some(place())).sending(Write::Compose, now());
    let name = sent.vm.as_ref().unwrap().name.clone();
    let mut observed = fresh_vm().with_journal(&sent);
    // Requested once more, also after a while in which something else had to come first.
    let again = decide(&observed, later(150));
    let journal = again.patch.journal.clone().unwrap();
    assert!(effect(&again) == "compose" && matches!(journal.vm.as_ref().unwrap().stage, VmStage::Unanswered(_)));
    let says = |events: &[Event]| events.iter().any(|event| event.warning && event.message.contains(&name));

    let refused = Outcome::Refused(Refusal::NoRoom, "over-commit ratio".into());
    let conclusion = conclude(&observed, &again, again.effect.as_ref().unwrap(), &refused, later(151));
    assert!(says(&conclusion.events), "{:?}", conclusion.events);
    assert!(!conclusion.journal.unwrap().vm.unwrap().stage.may_be_in_lxd(), "the next name was not asked for yet");

    observed = observed.with_journal(&Journal { in_flight: None, ..journal });
    observed.vm.host = Lookup::Absent;
    let plan = decide(&observed, later(400));
    assert!(says(&plan.events), "{:?}", plan.events);
    let plan = decide(&fresh_vm().with_journal(&vm_record(Some(place()))).deleting(), later(400));
    assert_eq!(plan.events, Vec::new());
}
