//! Off means off, however slow a BMC is; and times of a clock that was ahead.

use super::super::*;
use super::fixture::*;
use crate::Lookup;
use crate::hosts::leaving::{ASKED_ANNOTATION, Note};

/// Released in this state, then seen Ready: what the journal says.
fn released_in(state: State, record: &Record) -> Record {
    let mut observed = fresh().with_record(record).seeing(metal(state)).deleting();
    observed.as_host = AsHost::NoHost;
    let plan = decide(&observed, now());
    assert_eq!(effect(&plan), "release", "{state:?}");
    Record { in_flight: None, ..plan.record.unwrap() }
}

fn ready(record: &Record, power: Power) -> Observed {
    let mut observed = fresh().with_record(record).seeing(foreign(State::Ready, None)).deleting();
    observed.power = Some(power);
    observed
}

#[test]
fn s14_a_machine_that_was_released_on_its_way_up_is_seen_off_twice_half_a_minute_apart() {
    let turned_on = Record { turned_on: Some(TurnedOn { at: later(-60), times: 1 }), ..on_record() };
    let begun = Record { deploy_began: Some(later(-5)), ..on_record() };
    for (state, record) in [
        (State::Deploying, on_record()),
        (State::FailedDeployment, on_record()),
        (State::Allocated, begun),
        (State::Deployed, turned_on),
    ] {
        let released = released_in(state, &record);
        let first = decide(&ready(&released, Power::Off), later(2));
        assert_eq!((first.finalizer, effect(&first)), (Finalizer::Keep, ""), "{state:?}");
        assert_eq!(first.requeue, Requeue::After(std::time::Duration::from_secs(31)));
        let once = first.record.unwrap();
        assert_eq!(decide(&ready(&once, Power::Off), later(20)).finalizer, Finalizer::Keep, "{state:?}: too early");
        assert_eq!(decide(&ready(&once, Power::Off), later(33)).finalizer, Finalizer::Remove, "{state:?}");
        // Turned on meanwhile: it is taken back, and both looks come after its next release.
        let plan = decide(&ready(&once, Power::On), later(33));
        assert_eq!(effect(&plan), "reclaim", "{state:?}");
        let again = Record { in_flight: None, ..plan.record.unwrap() };
        assert_eq!(decide(&ready(&again, Power::Off), later(60)).finalizer, Finalizer::Keep, "{state:?}");
    }
}

#[test]
fn s14_a_lost_answer_to_the_release_of_a_machine_that_failed_does_not_hide_that_it_is_on() {
    let failure = Failure { machine: ID.into(), image: "ubuntu/jammy".into(), power: false };
    let failed = Record { failed: vec![failure], ..on_record() };
    let plan = decide(&fresh().with_record(&failed).seeing(metal(State::FailedDeployment)), now());
    assert_eq!(effect(&plan), "release");
    let mut observed = fresh().with_record(&plan.record.unwrap()).seeing(foreign(State::Ready, None));
    observed.power = Some(Power::On);
    let plan = decide(&observed, later(5));
    assert_eq!(effect(&plan), "reclaim");
    // Nor does a lost answer to that.
    let observed = observed.with_record(&plan.record.unwrap());
    assert_eq!(effect(&decide(&observed, later(100))), "", "s02");
    assert_eq!(effect(&decide(&observed, later(160))), "reclaim");
}

#[test]
fn s14_one_look_is_enough_for_a_machine_that_ran() {
    let long_ago = Record { turned_on: Some(TurnedOn { at: later(-700), times: 1 }), ..on_record() };
    for record in [on_record(), long_ago] {
        let released = released_in(State::Deployed, &record);
        assert_eq!(decide(&ready(&released, Power::Off), later(2)).finalizer, Finalizer::Remove);
    }
}

#[test]
fn s14_a_surplus_machine_that_somebody_was_deploying_is_seen_off_twice_as_well() {
    let record = Record { extra: vec!["zzz999".into()], ..on_record() };
    let other = |state| Metal { id: "zzz999".into(), ..metal(state) };
    let seeing = |record: &Record, metal: Metal, power| {
        let mut observed = fresh().with_record(record).deleting();
        observed.on_record = Lookup::Absent;
        observed.extra = vec![Extra { id: "zzz999".into(), seen: Lookup::Found(metal), power }];
        observed
    };
    let plan = decide(&seeing(&record, other(State::Deploying), None), now());
    assert_eq!(effect(&plan), "release");
    let record = Record { in_flight: None, ..plan.record.unwrap() };
    let free = || Metal { owner: None, stamp: None, ..other(State::Ready) };
    let plan = decide(&seeing(&record, free(), Some(Power::Off)), later(2));
    assert_eq!(plan.finalizer, Finalizer::Keep);
    let once = plan.record.unwrap();
    let plan = decide(&seeing(&once, free(), Some(Power::Off)), later(33));
    assert_eq!((plan.finalizer, plan.record.map(|record| record.extra.len())), (Finalizer::Remove, Some(0)));
}

/// A journal whose every time lies in the year 2099.
fn ahead(record: Record) -> Record {
    let then = "2099-01-01T00:00:00Z".parse().unwrap();
    let mut record = Record {
        in_flight: record.in_flight.clone().map(|sent| InFlight { at: then, ..sent }),
        deploy_began: Some(then),
        release_began: Some(then),
        turned_on: Some(TurnedOn { at: then, times: 1 }),
        leaving: Some(Note { since: then, clear: true, refreshed: Some(then) }),
        rising: [(ID.to_owned(), Some(then))].into(),
        ..record
    };
    if let Some(vm) = &mut record.vm {
        vm.place.iter_mut().for_each(|place| place.at = then);
        vm.avoided = vec![Avoided { host: HOST, at: then }];
    }
    record
}

#[test]
fn s02_times_of_a_clock_that_was_ahead_count_as_now_and_what_they_proved_is_unproven() {
    let record = ahead(vm_on_record().sending(Write::Deploy, now())).without_future(now());
    assert_eq!(record.in_flight.as_ref().unwrap().at, now());
    assert_eq!((record.deploy_began, record.release_began), (Some(now()), Some(now())));
    assert_eq!(record.turned_on.unwrap().at, now());
    assert_eq!((record.place().unwrap().at, record.vm.as_ref().unwrap().avoided[0].at), (now(), now()));
    let note = record.leaving.as_ref().unwrap();
    assert_eq!((note.since, note.refreshed), (now(), None), "s11: nobody can tell when it was looked at");
    assert_eq!(record.rising[ID], None, "s14: nor when it was first off");
    assert!(!record.text().contains("2099"), "{}", record.text());
    assert_eq!(record.clone().without_future(now()), record);
    let earlier = vm_on_record().sending(Write::Deploy, later(-5));
    assert_eq!(earlier.clone().without_future(now()), earlier);
}

#[test]
fn s02_a_time_in_the_future_is_written_anew_once_and_then_waited_for_no_longer_than_any_other() {
    let sent = record().sending(Write::Allocate, "2099-01-01T00:00:00Z".parse().unwrap());
    let leaving = fresh().with_record(&sent).deleting();
    let plan = decide(&leaving, now());
    assert_eq!(plan.finalizer, Finalizer::Keep, "it may still land");
    let mended = plan.record.unwrap();
    assert_eq!(mended.in_flight.as_ref().unwrap().at, now());
    let mended = leaving.with_record(&mended);
    assert_eq!(decide(&mended, later(149)).finalizer, Finalizer::Keep);
    assert_eq!(decide(&mended, later(150)).finalizer, Finalizer::Remove);
    let living = decide(&fresh().with_record(&sent), now());
    assert_eq!((effect(&living), living.record.unwrap().in_flight.unwrap().at), ("", now()));
}

#[test]
fn s02_a_registration_that_a_clock_ahead_asked_for_is_written_anew_as_well() {
    let observed = fresh().with_record(&on_record()).seeing(metal(State::Deployed)).provisioned();
    let plan = decide(&observed.clone().with_annotation(ASKED_ANNOTATION, "2099-01-01T00:00:00Z"), now());
    assert_eq!(plan.asked, Some(now()));
    let plan = decide(&observed.with_annotation(ASKED_ANNOTATION, "2026-11-15T11:59:00Z"), now());
    assert_eq!(plan.asked, None);
}
