//! All 23 states, and the unknown one, in every phase.

use capmaas_api::Conditions as _;

use super::super::*;
use super::fixture::*;
use crate::plan::Finalizer;

/// The effect in each state on a machine of ours: before it is provisioned, afterwards, and on deletion.
const OURS: [(State, &str, &str, &str); 24] = [
    (State::New, "", "", ""),
    (State::Commissioning, "", "", ""),
    (State::FailedCommissioning, "", "", ""),
    (State::Missing, "", "", ""),
    (State::Ready, "", "", ""),
    (State::Reserved, "", "", "release"),
    (State::Deployed, "", "", "release"),
    (State::Retired, "", "", ""),
    (State::Broken, "", "", "release"),
    (State::Deploying, "", "", "release"),
    (State::Allocated, "deploy", "", "release"),
    (State::FailedDeployment, "quarantine", "", "release"),
    (State::Releasing, "", "", ""),
    (State::ReleasingFailed, "", "", "release"),
    (State::DiskErasing, "", "", ""),
    (State::FailedDiskErasing, "", "", "release"),
    (State::RescueMode, "", "", ""),
    (State::EnteringRescueMode, "", "", ""),
    (State::FailedEnteringRescueMode, "", "", ""),
    (State::ExitingRescueMode, "", "", ""),
    (State::FailedExitingRescueMode, "", "", ""),
    (State::Testing, "", "", ""),
    (State::FailedTesting, "", "", ""),
    (State::Unknown, "", "", ""),
];

#[test]
fn s08_every_state_has_its_row_in_every_phase() {
    for (state, becoming, running, leaving) in OURS {
        let observed = fresh().with_journal(&with_machine()).seeing(metal(state));
        assert_eq!(effect(&decide(&observed, now())), becoming, "{state:?} before it was provisioned");
        assert_eq!(effect(&decide(&observed.clone().provisioned(), now())), running, "{state:?} afterwards");
        let plan = decide(&observed.clone().deleting(), now());
        assert_eq!(effect(&plan), leaving, "{state:?} on deletion");
        assert_eq!(effect(&decide(&observed.provisioned().deleting(), now())), leaving, "{state:?} on deletion");
    }
    assert_eq!(OURS.map(|row| row.0), State::ALL);
}

#[test]
fn s07_a_machine_without_our_mark_is_never_touched_whatever_its_state() {
    for state in State::ALL {
        for owner in [None, Some("admin"), Some("bob")] {
            let observed = fresh().with_journal(&with_machine()).seeing(foreign(state, owner));
            for observed in [observed.clone(), observed.clone().provisioned(), observed.clone().deleting()] {
                let plan = decide(&observed, now());
                let touched = plan.effect.as_ref().and_then(Effect::machine);
                assert_eq!(touched, None, "{state:?} of {owner:?}: {:?}", plan.effect);
            }
        }
    }
}

#[test]
fn s07_on_deletion_a_machine_without_our_mark_is_let_go_once_it_is_free_or_somebody_elses() {
    for state in State::ALL {
        let of = |owner| {
            let observed = fresh().with_journal(&with_machine()).seeing(foreign(state, owner)).deleting();
            decide(&observed, now()).finalizer == Finalizer::Remove
        };
        let free = matches!(state, State::Ready | State::New);
        let leaving = matches!(state, State::Releasing | State::DiskErasing);
        assert_eq!(of(None), free, "{state:?} of nobody");
        assert_eq!(of(Some("admin")), free, "{state:?}, ours by its owner alone");
        assert_eq!(of(Some("bob")), !leaving, "{state:?} of bob");
    }
}

#[test]
fn s09_what_was_provisioned_once_is_never_released_or_deployed_by_us() {
    for state in State::ALL {
        for seen in [metal(state), foreign(state, None), foreign(state, Some("bob"))] {
            let plan = decide(&fresh().with_journal(&with_machine()).seeing(seen).provisioned(), now());
            assert!(
                !matches!(
                    plan.effect,
                    Some(
                        Effect::Release { .. }
                            | Effect::Deploy { .. }
                            | Effect::Allocate { .. }
                            | Effect::Reclaim { .. }
                    )
                ),
                "{state:?}: {:?}",
                plan.effect
            );
            assert_eq!(plan.patch.journal.and_then(|journal| journal.allocation), None, "{state:?} stays on record");
        }
    }
}

#[test]
fn go01_a_live_node_that_an_operator_breaks_tests_or_rescues_is_left_alone() {
    for state in [State::Broken, State::Testing, State::RescueMode, State::EnteringRescueMode, State::FailedTesting] {
        let plan = decide(&fresh().with_journal(&with_machine()).seeing(metal(state)).provisioned(), now());
        assert_eq!((effect(&plan), reason(&plan)), ("", "MachineStateUndefined"), "{state:?}");
        assert_eq!(plan.patch.journal, None);
    }
}

#[test]
fn what_maas_says_of_a_failure_is_told_and_what_it_says_otherwise_is_not() {
    let message = |observed: Observed| {
        let status = decide(&observed, now()).status.unwrap();
        status.conditions.condition("MachineDeployed").unwrap().message.clone().unwrap_or_default()
    };
    let mut told = 0;
    for state in State::ALL {
        let running = fresh().with_journal(&with_machine()).provisioned();
        for observed in [running.clone(), running.deleting()] {
            let said =
                message(observed.seeing(maas::Machine { last_message: "disk 7 is dead".into(), ..metal(state) }));
            let about_it = said.contains(&format!("{state:?} in MAAS"));
            assert_eq!(said.contains("disk 7 is dead"), about_it && state.is_failed(), "{state:?}: {said}");
            told += usize::from(about_it && state.is_failed());
        }
    }
    assert!(told >= 12, "{told}");
}
