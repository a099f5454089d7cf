//! Off means off, however slow a BMC is; and times from a fast clock.

use super::super::*;
use super::fixture::*;
use crate::Lookup;
use crate::hosts::leaving::{ASKED_ANNOTATION, Note};
use crate::maas;
use crate::plan::{Finalizer, Requeue};

/// The journal of a machine that was released in this state, then seen Ready.
fn released_in(state: State, journal: &Journal) -> Journal {
    let mut observed = fresh().with_journal(journal).seeing(metal(state)).deleting();
    observed.as_host = AsHost::NoHost;
    let plan = decide(&observed, now());
    assert_eq!(effect(&plan), "release", "{state:?}");
    Journal { in_flight: None, ..plan.patch.journal.unwrap() }
}

fn ready(journal: &Journal, power: Power) -> Observed {
    let mut observed = fresh().with_journal(journal).seeing(foreign(State::Ready, None)).deleting();
    observed.power = Some(power);
    observed
}

#[test]
fn s14_a_machine_that_was_released_on_its_way_up_is_seen_off_twice_half_a_minute_apart() {
    let turned_on = with_machine().noting(|it| it.turned_on = Some(TurnedOn { at: later(-60), times: 1 }));
    let begun = with_machine().noting(|it| it.deploy_began = Some(later(-5)));
    for (state, journal) in [
        (State::Deploying, with_machine()),
        (State::FailedDeployment, with_machine()),
        (State::Allocated, begun),
        (State::Deployed, turned_on),
    ] {
        let released = released_in(state, &journal);
        let first = decide(&ready(&released, Power::Off), later(2));
        assert_eq!((first.finalizer, effect(&first)), (Finalizer::Keep, ""), "{state:?}");
        assert_eq!(first.requeue, Requeue::After(std::time::Duration::from_secs(31)));
        let once = first.patch.journal.unwrap();
        assert_eq!(decide(&ready(&once, Power::Off), later(20)).finalizer, Finalizer::Keep, "{state:?}: too early");
        assert_eq!(decide(&ready(&once, Power::Off), later(33)).finalizer, Finalizer::Remove, "{state:?}");
        // Powered on meanwhile: it is reclaimed, and both reads follow its next release.
        let plan = decide(&ready(&once, Power::On), later(33));
        assert_eq!(effect(&plan), "reclaim", "{state:?}");
        let again = Journal { in_flight: None, ..plan.patch.journal.unwrap() };
        assert_eq!(decide(&ready(&again, Power::Off), later(60)).finalizer, Finalizer::Keep, "{state:?}");
    }
}

#[test]
fn s14_a_lost_answer_to_the_release_of_a_machine_that_failed_does_not_hide_that_it_is_on() {
    let failure = Failure { machine: ID.into(), image: "ubuntu/jammy".into(), power: false };
    let failed = Journal { failed: vec![failure], ..with_machine() };
    let plan = decide(&fresh().with_journal(&failed).seeing(metal(State::FailedDeployment)), now());
    assert_eq!(effect(&plan), "release");
    let mut observed = fresh().with_journal(&plan.patch.journal.unwrap()).seeing(foreign(State::Ready, None));
    observed.power = Some(Power::On);
    let plan = decide(&observed, later(5));
    assert_eq!(effect(&plan), "reclaim");
    // Nor does a lost answer to that.
    let observed = observed.with_journal(&plan.patch.journal.unwrap());
    assert_eq!(effect(&decide(&observed, later(100))), "", "s02");
    assert_eq!(effect(&decide(&observed, later(160))), "reclaim");
}

#[test]
fn s14_a_failed_machine_of_unknown_power_is_kept_in_sight_while_it_may_turn_on() {
    let failure = Failure { machine: ID.into(), image: "ubuntu/jammy".into(), power: false };
    let failed = Journal { failed: vec![failure], ..with_machine() };
    let plan = decide(&fresh().with_journal(&failed).seeing(metal(State::FailedDeployment)), now());
    assert_eq!(effect(&plan), "release");
    let released = Journal { in_flight: None, ..plan.patch.journal.unwrap() };
    let seeing = |power| {
        let mut observed = fresh().with_journal(&released).seeing(foreign(State::Ready, None));
        observed.power = Some(power);
        observed
    };
    for seconds in [5, 300, 590] {
        let plan = decide(&seeing(Power::Unknown), later(seconds));
        let kept = plan.patch.journal.as_ref().is_none_or(|journal| journal.allocation.is_some());
        assert!(kept && effect(&plan).is_empty(), "{seconds} s after its release");
    }
    assert_eq!(effect(&decide(&seeing(Power::On), later(300))), "reclaim", "its BMC answers, and it came up");
    let plan = decide(&seeing(Power::Unknown), later(601));
    assert_eq!(plan.patch.journal.unwrap().allocation, None, "a BMC that is broken for good holds nothing up");
}

#[test]
fn s14_one_look_is_enough_for_a_machine_that_ran() {
    let long_ago = with_machine().noting(|it| it.turned_on = Some(TurnedOn { at: later(-700), times: 1 }));
    for journal in [with_machine(), long_ago] {
        let released = released_in(State::Deployed, &journal);
        assert_eq!(decide(&ready(&released, Power::Off), later(2)).finalizer, Finalizer::Remove);
    }
}

#[test]
fn s14_a_surplus_machine_that_somebody_was_deploying_is_seen_off_twice_as_well() {
    let journal = Journal { surplus: vec!["zzz999".into()], ..with_machine() };
    let other = |state| maas::Machine { id: "zzz999".into(), ..metal(state) };
    let seeing = |journal: &Journal, metal: maas::Machine, power| {
        let mut observed = fresh().with_journal(journal).deleting();
        observed.in_journal = Lookup::Absent;
        observed.surplus = vec![Surplus { id: "zzz999".into(), seen: Lookup::Found(metal), power }];
        observed
    };
    let plan = decide(&seeing(&journal, other(State::Deploying), None), now());
    assert_eq!(effect(&plan), "release");
    let journal = Journal { in_flight: None, ..plan.patch.journal.unwrap() };
    let free = || maas::Machine { owner: None, stamp: None, ..other(State::Ready) };
    let plan = decide(&seeing(&journal, free(), Some(Power::Off)), later(2));
    assert_eq!(plan.finalizer, Finalizer::Keep);
    let once = plan.patch.journal.unwrap();
    let plan = decide(&seeing(&once, free(), Some(Power::Off)), later(33));
    assert_eq!((plan.finalizer, plan.patch.journal.map(|journal| journal.surplus.len())), (Finalizer::Remove, Some(0)));
}

/// A journal whose every time lies in the year 2099.
fn ahead(journal: Journal) -> Journal {
    let then = "2099-01-01T00:00:00Z".parse().unwrap();
    let mut journal = Journal {
        in_flight: journal.in_flight.clone().map(|sent| InFlight { at: then, ..sent }),
        rising: [(ID.to_owned(), Some(then))].into(),
        ..journal
    };
    if let Some(allocation) = &mut journal.allocation {
        allocation.deploy_began = Some(then);
        allocation.release_began = Some(then);
        allocation.turned_on = Some(TurnedOn { at: then, times: 1 });
        allocation.leaving = Some(Note { since: then, clear: true, refreshed: Some(then) });
    }
    if let Some(vm) = &mut journal.vm {
        vm.stage.place_mut().into_iter().for_each(|place| place.at = then);
        vm.avoided = vec![Avoided { host: HOST, at: then }];
    }
    journal
}

#[test]
fn s02_times_of_a_clock_that_was_ahead_count_as_now_and_what_they_proved_is_unproven() {
    let journal = ahead(vm_on_record().sending(Write::Deploy, now())).without_future(now());
    assert_eq!(journal.in_flight.as_ref().unwrap().at, now());
    let allocation = journal.allocation.as_ref().unwrap();
    assert_eq!((allocation.deploy_began, allocation.release_began), (Some(now()), Some(now())));
    assert_eq!(allocation.turned_on.unwrap().at, now());
    assert_eq!((journal.place().unwrap().at, journal.vm.as_ref().unwrap().avoided[0].at), (now(), now()));
    let note = allocation.leaving.as_ref().unwrap();
    assert_eq!((note.since, note.refreshed), (now(), None), "s11: nobody can tell when it was looked at");
    assert_eq!(journal.rising[ID], None, "s14: nor when it was first off");
    assert!(!journal.text().contains("2099"), "{}", journal.text());
    assert_eq!(journal.clone().without_future(now()), journal);
    let earlier = vm_on_record().sending(Write::Deploy, later(-5));
    assert_eq!(earlier.clone().without_future(now()), earlier);
}

#[test]
fn s02_a_time_in_the_future_is_written_anew_once_and_then_waited_for_no_longer_than_any_other() {
    let sent = journal().sending(Write::Allocate, "2099-01-01T00:00:00Z".parse().unwrap());
    let leaving = fresh().with_journal(&sent).deleting();
    let plan = decide(&leaving, now());
    assert_eq!(plan.finalizer, Finalizer::Keep, "it may still land");
    let mended = plan.patch.journal.unwrap();
    assert_eq!(mended.in_flight.as_ref().unwrap().at, now());
    let mended = leaving.with_journal(&mended);
    assert_eq!(decide(&mended, later(149)).finalizer, Finalizer::Keep);
    assert_eq!(decide(&mended, later(150)).finalizer, Finalizer::Remove);
    let living = decide(&fresh().with_journal(&sent), now());
    assert_eq!((effect(&living), living.patch.journal.unwrap().in_flight.unwrap().at), ("", now()));
}

#[test]
fn s02_a_registration_that_a_clock_ahead_asked_for_is_written_anew_as_well() {
    let observed = fresh().with_journal(&with_machine()).seeing(metal(State::Deployed)).provisioned();
    let plan = decide(&observed.clone().with_annotation(ASKED_ANNOTATION, "2099-01-01T00:00:00Z"), now());
    assert_eq!(plan.patch.asked, Some(now()));
    let plan = decide(&observed.with_annotation(ASKED_ANNOTATION, "2026-11-15T11:59:00Z"), now());
    assert_eq!(plan.patch.asked, None);
}
