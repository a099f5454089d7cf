//! Two machines under one idempotency key (S4).

use super::super::*;
use super::fixture::*;
use crate::Lookup;
use crate::maas;
use crate::plan::Finalizer;

fn other(state: State) -> maas::Machine {
    maas::Machine { id: "zzz999".into(), stamp: None, ..metal(state) }
}

fn written_down() -> Journal {
    Journal { surplus: vec!["zzz999".into()], ..with_machine() }
}

fn seen(seen: Lookup<maas::Machine>, power: Option<Power>) -> Observed {
    let mut observed = fresh().with_journal(&written_down()).seeing(metal(State::Deploying));
    if let Lookup::Found(metal) = &seen
        && metal.state == State::Allocated
    {
        observed.by_key = Lookup::Found(vec![metal.clone()]);
    }
    observed.surplus = vec![Surplus { id: "zzz999".into(), seen, power }];
    observed
}

#[test]
fn s04_the_machine_on_record_stays_and_another_that_was_never_deployed_is_written_down_first() {
    let both = vec![maas::Machine { stamp: None, ..metal(State::Allocated) }, other(State::Allocated)];
    let observed = fresh().with_journal(&with_machine()).seeing(both[0].clone()).under_key(both);
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), plan.patch.journal), ("", Some(written_down())));
}

#[test]
fn s04_it_is_stamped_then_released_and_followed_until_it_is_ready_and_off() {
    let plan = decide(&seen(Lookup::Found(other(State::Allocated)), None), now());
    assert_eq!(plan.effect, Some(Effect::Stamp { key: KEY.into(), machine: "zzz999".into() }));
    let stamped = |state| maas::Machine { stamp: Some(KEY.into()), ..other(state) };
    let plan = decide(&seen(Lookup::Found(stamped(State::Allocated)), None), now());
    assert_eq!(plan.effect.as_ref().and_then(Effect::machine), Some("zzz999"));
    assert_eq!((effect(&plan), plan.patch.journal), ("release", Some(written_down().sending(Write::Release, now()))));
    let plan = decide(&seen(Lookup::Found(stamped(State::ReleasingFailed)), None), now());
    assert_eq!(effect(&plan), "release", "it is tried again");
    for state in [State::Releasing, State::Ready] {
        let plan = decide(&seen(Lookup::Found(other(state)), None), now());
        assert_eq!((effect(&plan), plan.patch.journal.unwrap().surplus.len()), ("", 1), "{state:?}");
    }
    let plan = decide(&seen(Lookup::Found(other(State::Ready)), Some(Power::On)), now());
    assert_eq!(effect(&plan), "reclaim", "s14");
    assert_eq!(plan.patch.journal.as_ref().unwrap().machine().unwrap(), ID);
    let reclaim = plan.effect.clone().unwrap();
    let observed = seen(Lookup::Found(other(State::Ready)), Some(Power::On));
    let conclusion = conclude(&observed, &plan, &reclaim, &Outcome::Done(None), now());
    assert_eq!(conclusion.journal.unwrap().machine().unwrap(), ID, "the one on record stays");
    for over in [Lookup::Found(foreign_other(State::Ready)), Lookup::Absent] {
        let plan = decide(&seen(over, Some(Power::Off)), now());
        assert_eq!((effect(&plan), plan.patch.journal.unwrap().surplus.len()), ("", 0));
    }
}

fn foreign_other(state: State) -> maas::Machine {
    maas::Machine { owner: None, ..other(state) }
}

#[test]
fn s04_a_lost_answer_to_its_release_is_waited_for_and_seen() {
    let sent = written_down().sending(Write::Release, now());
    let stamped = maas::Machine { stamp: Some(KEY.into()), ..other(State::Allocated) };
    let held = seen(Lookup::Found(stamped), None).with_journal(&sent);
    assert_eq!(effect(&decide(&held, later(100))), "", "s02");
    assert_eq!(effect(&decide(&held, later(151))), "release");
    let landed = seen(Lookup::Found(foreign_other(State::Ready)), Some(Power::Off)).with_journal(&sent);
    let journal = decide(&landed, later(10)).patch.journal.unwrap();
    assert_eq!((journal.in_flight, journal.surplus.len()), (None, 0));
}

#[test]
fn s02_it_does_not_show_that_an_allocation_whose_answer_was_lost_has_landed() {
    let journal = Journal { allocation: None, ..written_down() }.sending(Write::Allocate, now());
    for state in [State::Allocated, State::Releasing, State::Ready, State::New] {
        let stamped = maas::Machine { stamp: Some(KEY.into()), ..other(state) };
        let mut observed = seen(Lookup::Found(stamped), Some(Power::Off)).with_journal(&journal).deleting();
        observed.in_journal = Lookup::Absent;
        let plan = decide(&observed, later(149));
        assert_eq!((effect(&plan), plan.finalizer), ("", Finalizer::Keep), "{state:?}");
        let kept = plan.patch.journal.as_ref().unwrap_or(&journal);
        assert!(kept.in_flight.is_some(), "it may still land: {state:?}");
    }
}

#[test]
fn s04_it_takes_nothing_from_a_machine_that_runs() {
    let held = Lookup::Found(maas::Machine { stamp: Some(KEY.into()), ..other(State::Allocated) });
    let observed = seen(held, None).seeing(metal(State::Deployed)).provisioned();
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), plan.status.as_ref().unwrap().ready), ("release", true));
    let sent = written_down().sending(Write::Release, now());
    assert!(decide(&observed.with_journal(&sent), later(1)).status.unwrap().ready);
}

#[test]
fn s04_on_deletion_the_finalizer_waits_for_it() {
    let released = written_down().noting(|it| it.released = Some(ID.into()));
    let gone = |seen_: Lookup<maas::Machine>, power| {
        let mut observed = seen(seen_, power).with_journal(&released).seeing(foreign(State::Ready, None)).deleting();
        observed.power = Some(Power::Off);
        decide(&observed, now())
    };
    let stamped = maas::Machine { stamp: Some(KEY.into()), ..other(State::Allocated) };
    assert_eq!(effect(&gone(Lookup::Found(stamped), None)), "release");
    for (seen, power) in [
        (Lookup::Found(other(State::Releasing)), None),
        (Lookup::Found(foreign_other(State::Ready)), Some(Power::Unknown)),
        (Lookup::Unknown("away".into()), None),
    ] {
        assert_eq!(gone(seen.clone(), power).finalizer, Finalizer::Keep, "{seen:?}");
    }
    assert_eq!(gone(Lookup::Found(foreign_other(State::Ready)), Some(Power::Off)).finalizer, Finalizer::Remove);
    assert_eq!(gone(Lookup::Absent, None).finalizer, Finalizer::Remove);
}

#[test]
fn s04_on_deletion_every_machine_under_the_key_is_released_the_one_on_record_first() {
    let stamped = maas::Machine { stamp: Some(KEY.into()), ..other(State::Allocated) };
    let observed = fresh().with_journal(&with_machine()).seeing(metal(State::Allocated)).deleting();
    let surplus = maas::Machine { id: "aaa000".into(), ..stamped };
    let observed = observed.under_key(vec![surplus.clone(), metal(State::Allocated)]);
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), plan.effect.as_ref().and_then(Effect::machine)), ("release", Some(ID)));
    let plan = decide(&observed.under_key(vec![surplus]).seeing(metal(State::Releasing)), now());
    assert_eq!((effect(&plan), plan.patch.journal.unwrap().surplus), ("", vec!["aaa000".to_owned()]));
}

#[test]
fn s04_one_that_was_deployed_is_told_and_left() {
    let found = vec![maas::Machine { stamp: None, ..metal(State::Allocated) }, other(State::Deployed)];
    let plan = decide(&fresh().with_journal(&with_machine()).seeing(found[0].clone()).under_key(found), now());
    assert_eq!(plan.effect.as_ref().and_then(Effect::machine), Some(ID));
    assert!(plan.events.iter().any(|event| event.warning && event.message.contains("zzz999")), "{:?}", plan.events);
}

#[test]
fn s04_one_that_somebody_deployed_after_it_was_written_down_is_released_only_with_the_object() {
    for state in [State::Deploying, State::Deployed] {
        let stamped = maas::Machine { stamp: Some(KEY.into()), ..other(state) };
        let observed = seen(Lookup::Found(stamped), None);
        let plan = decide(&observed, now());
        assert_eq!((effect(&plan), plan.patch.journal.unwrap().surplus.len()), ("", 1), "{state:?}");
        let released = written_down().noting(|it| it.released = Some(ID.into()));
        let plan = decide(&observed.with_journal(&released).seeing(foreign(State::Ready, None)).deleting(), now());
        assert_eq!(plan.effect.as_ref().and_then(Effect::machine), Some("zzz999"), "{state:?}");
    }
}

#[test]
fn s07_one_that_is_somebody_elses_now_is_not_followed_any_more() {
    for state in [State::Allocated, State::Deployed, State::ReleasingFailed] {
        let mut observed = seen(Lookup::Found(maas::Machine { owner: Some("bob".into()), ..other(state) }), None);
        observed.by_key = Lookup::Found(Vec::new());
        let plan = decide(&observed, now());
        assert_eq!((effect(&plan), plan.patch.journal.unwrap().surplus.len()), ("", 0), "{state:?}");
    }
}

#[test]
fn s06_a_machine_that_another_object_claims_is_left_and_released_once_none_does() {
    let handed_out = other(State::Allocated);
    let mut observed = fresh().with_journal(&journal()).under_key(vec![handed_out.clone()]);
    observed.held_elsewhere.machines.insert(handed_out.id.clone());
    let plan = decide(&observed, now());
    let asked = plan.patch.journal.clone().unwrap();
    assert_eq!((effect(&plan), &asked.surplus), ("allocate", &vec![handed_out.id.clone()]), "another one is asked for");

    let mut runs = seen(Lookup::Found(handed_out.clone()), None);
    runs.held_elsewhere.machines.insert(handed_out.id.clone());
    let plan = decide(&runs, now());
    let kept = plan.patch.journal.clone().is_none_or(|journal| !journal.surplus.is_empty());
    assert!(kept && effect(&plan).is_empty(), "it stays written down as long as somebody claims it");
    let mut deleted = runs.clone().deleting();
    deleted.in_journal = Lookup::Absent;
    let plan = decide(&deleted, now());
    assert_eq!((effect(&plan), plan.finalizer), ("", Finalizer::Keep), "deletion waits too: nobody else releases it");
    let plan = decide(&deleted.with_annotation(ABANDON_ANNOTATION, &handed_out.id), now());
    assert_eq!((effect(&plan), plan.finalizer), ("", Finalizer::Remove), "or for a person");
    runs.held_elsewhere.machines.clear();
    assert_eq!(effect(&decide(&runs, now())), "stamp", "then it is given back");

    // Its stamp may come from a MAAS that was restored, and then it is another object's live node.
    let stamped = maas::Machine { stamp: Some(KEY.into()), ..handed_out };
    let mut restored = observed.under_key(vec![stamped]);
    restored.journal = Ok(Some(journal()));
    assert!(decide(&restored, now()).patch.journal.unwrap().surplus.is_empty());
}

#[test]
fn s02_a_machine_that_was_written_down_is_no_answer_to_a_later_allocation() {
    let known = other(State::Allocated);
    let sent = Journal { surplus: vec![known.id.clone()], ..journal() }.sending(Write::Allocate, now());
    let mut observed = fresh().with_journal(&sent).under_key(vec![known.clone()]);
    observed.surplus = vec![Surplus { id: known.id.clone(), seen: Lookup::Found(known.clone()), power: None }];
    for claimed in [true, false] {
        observed.held_elsewhere.machines = claimed.then(|| known.id.clone()).into_iter().collect();
        let plan = decide(&observed, later(1));
        assert_eq!((effect(&plan), plan.patch.journal), ("", None), "the answer is awaited");
    }
}

#[test]
fn s06_claims_of_others_on_three_free_machines_delay_an_object_and_do_not_end_it() {
    let parked: Vec<maas::Machine> =
        ["a", "b", "c"].map(|id| maas::Machine { id: id.into(), ..other(State::Allocated) }).into();
    let mut observed = fresh().with_journal(&journal()).under_key(parked.clone());
    observed.held_elsewhere.machines = parked.iter().map(|metal| metal.id.clone()).collect();
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), reason(&plan)), ("", "NotOurMachine"), "no fourth one is taken");
    assert_eq!(plan.status.as_ref().unwrap().failure_reason, None);
    let kept = plan.patch.journal.unwrap();
    assert_eq!(kept.surplus, ["a", "b", "c"]);
    // The claims are gone: the first of them is released like any surplus machine, and the object goes on.
    let mut freed = fresh().with_journal(&kept).under_key(parked.clone());
    freed.surplus = parked
        .into_iter()
        .map(|metal| Surplus { id: metal.id.clone(), seen: Lookup::Found(metal), power: None })
        .collect();
    assert_eq!(effect(&decide(&freed, now())), "stamp", "before its release");
}
