//! Release.

use super::super::*;
use super::fixture::*;
use crate::Lookup;
use crate::maas;
use crate::plan::{Finalizer, Refusal};

fn leaving() -> Observed {
    fresh().with_journal(&with_machine()).provisioned().deleting()
}

#[test]
fn s13_what_was_never_intended_is_let_go_at_once() {
    let plan = decide(&fresh().deleting(), now());
    assert_eq!((plan.effect, plan.finalizer), (None, Finalizer::Remove));
}

#[test]
fn s13_what_was_allocated_is_released_whether_or_not_machine_and_cluster_still_exist() {
    let mut observed = leaving().seeing(metal(State::Deployed));
    observed.machine = Lookup::Absent;
    observed.cluster = Lookup::Absent;
    observed.maas_cluster = Lookup::Absent;
    observed.in_dns = Lookup::Found(true);
    assert_eq!(effect(&decide(&observed, now())), "release");
}

#[test]
fn s02_an_allocation_in_flight_is_waited_for_before_the_finalizer_goes() {
    let observed = fresh().with_journal(&journal().sending(Write::Allocate, now())).deleting();
    let plan = decide(&observed, later(100));
    assert_eq!((plan.effect.as_ref(), plan.finalizer), (None, Finalizer::Keep));
    assert_eq!(decide(&observed, later(151)).finalizer, Finalizer::Remove);
    let found = maas::Machine { stamp: None, ..metal(State::Allocated) };
    let plan = decide(&observed.under_key(vec![found]), later(100));
    assert_eq!((effect(&plan), plan.patch.journal.unwrap().machine().unwrap().as_str()), ("stamp", ID));
}

#[test]
fn s07_a_machine_that_was_never_marked_is_marked_before_it_is_released() {
    let released = |found: maas::Machine| {
        let observed = fresh().with_journal(&with_machine()).deleting().seeing(found.clone());
        effect(&decide(&observed.under_key(vec![found]), now()))
    };
    assert_eq!(released(maas::Machine { stamp: None, ..metal(State::Allocated) }), "stamp");
    assert_eq!(released(metal(State::Allocated)), "release");
}

#[test]
fn s02_a_deployment_in_flight_is_waited_for_before_the_release() {
    let sent = with_machine().sending(Write::Deploy, now());
    let observed = fresh().with_journal(&sent).seeing(metal(State::Allocated)).deleting();
    assert_eq!(effect(&decide(&observed, later(100))), "");
    let landed = observed.seeing(metal(State::Deploying));
    assert_eq!(effect(&decide(&landed, later(100))), "release");
}

#[test]
fn s14_released_means_seen_released_and_off() {
    let released = released();
    let mut observed = leaving().with_journal(&released).seeing(metal(State::Releasing));
    assert_eq!(decide(&observed, now()).finalizer, Finalizer::Keep);
    observed = observed.seeing(metal(State::DiskErasing));
    assert_eq!(decide(&observed, now()).finalizer, Finalizer::Keep);
    observed = observed.seeing(foreign(State::Ready, None));
    for (power, finalizer, doing) in [
        (None, Finalizer::Keep, ""),
        (Some(Power::Unknown), Finalizer::Keep, ""),
        (Some(Power::On), Finalizer::Keep, "reclaim"),
        (Some(Power::Off), Finalizer::Remove, ""),
    ] {
        observed.power = power;
        let plan = decide(&observed, now());
        assert_eq!((plan.finalizer, effect(&plan)), (finalizer, doing), "{power:?}");
    }
}

#[test]
fn s14_a_person_may_give_a_machine_up_by_its_name() {
    let observed = leaving().seeing(metal(State::Broken));
    let wrong = decide(&observed.clone().with_annotation(ABANDON_ANNOTATION, "other"), now());
    assert_eq!(wrong.finalizer, Finalizer::Keep);
    let plan = decide(&observed.with_annotation(ABANDON_ANNOTATION, ID), now());
    assert_eq!((plan.effect, plan.finalizer), (None, Finalizer::Remove));
    assert!(plan.events.iter().any(|event| event.warning && event.reason == "MachineAbandoned"));
}

#[test]
fn s18_the_address_leaves_dns_before_the_machine_does() {
    let mut observed = leaving().seeing(metal(State::Deployed));
    observed.in_dns = Lookup::Found(true);
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), reason(&plan)), ("", "DNSDetachPending"));
    observed.in_dns = Lookup::Unknown("away".into());
    assert_eq!(effect(&decide(&observed, now())), "");
    observed.in_dns = Lookup::Found(false);
    assert_eq!(effect(&decide(&observed, now())), "release");
}

#[test]
fn s18_a_machine_without_its_stamp_gets_it_while_it_waits_to_leave_dns() {
    let found = maas::Machine { stamp: None, ..metal(State::Deployed) };
    let mut observed = leaving().seeing(found.clone()).under_key(vec![found]);
    observed.in_dns = Lookup::Found(true);
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), reason(&plan)), ("stamp", "DNSDetachPending"));
}

#[test]
fn s18_a_machine_that_only_an_earlier_user_could_stamp_is_named_with_what_to_do() {
    let found = maas::Machine { stamp: None, owner: Some("bob".into()), ..metal(State::Deployed) };
    let journal = Journal { earlier_users: vec!["bob".into()], ..with_machine() };
    let mut observed = fresh().with_journal(&journal).deleting().seeing(found.clone()).under_key(vec![found]);
    observed.in_dns = Lookup::Found(true);
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), reason(&plan)), ("", "DNSDetachPending"));
    let said = format!("{:?}", plan.status);
    assert!(said.contains("the earlier user bob") && said.contains("remove the address from the record"), "{said}");
}

#[test]
fn s18_nobody_is_waited_for_where_nobody_keeps_the_record() {
    let mut observed = leaving().seeing(metal(State::Deployed));
    observed.in_dns = Lookup::Found(true);
    observed.maas_cluster = Lookup::Found(ClusterFacts { keeps_dns: false, bridge: Ok(None) });
    assert_eq!(effect(&decide(&observed, now())), "release");
}

#[test]
fn s01_absence_is_believed_only_if_maas_says_so() {
    let mut observed = leaving();
    observed.in_journal = Lookup::Unknown("403".into());
    assert_eq!(decide(&observed, now()).finalizer, Finalizer::Keep);
    observed.in_journal = Lookup::Absent;
    assert_eq!(decide(&observed, now()).finalizer, Finalizer::Remove);
    observed.by_key = Lookup::Unknown("away".into());
    assert_eq!(decide(&observed, now()).finalizer, Finalizer::Keep);
    observed.by_key = Lookup::Found(Vec::new());
    observed.access = Access::Granted { name: "n".into(), user: "new".into(), identity_changed: true };
    assert_eq!(decide(&observed, now()).finalizer, Finalizer::Keep, "s05");
}

#[test]
fn go02_a_machine_that_was_allocated_and_never_recorded_is_found_by_its_key_and_released() {
    let found = maas::Machine { stamp: None, ..metal(State::Allocated) };
    let plan = decide(&fresh().with_journal(&journal()).under_key(vec![found]).deleting(), now());
    assert_eq!(effect(&plan), "stamp");
    let marked = metal(State::Allocated);
    let observed = fresh().with_journal(&plan.patch.journal.unwrap()).seeing(marked.clone()).under_key(vec![marked]);
    assert_eq!(effect(&decide(&observed.deleting(), now())), "release");
}

#[test]
fn go07_the_disks_are_wiped_as_the_spec_says() {
    let mut observed = leaving().seeing(metal(State::Deployed));
    observed.object.spec.release =
        Some(capmaas_api::machine::Release { erase: Some(capmaas_api::machine::Erase::Quick) });
    let plan = decide(&observed, now());
    assert_eq!(plan.effect, Some(Effect::Release { machine: ID.into(), erase: Some(crate::intent::Wipe::Quick) }));
}

#[test]
fn s24_a_stuck_deletion_of_the_go_provider_goes_on() {
    let mut observed = fresh().provisioned().deleting();
    observed.object.spec.provider_id = Some("maas:///az1/abc123".into());
    let plan = decide(&observed, now());
    let journal = plan.patch.journal.unwrap();
    assert!(journal.is_adopted());
    let observed = observed.with_journal(&journal).seeing(foreign(State::Deployed, Some("admin")));
    assert_eq!(effect(&decide(&observed, now())), "stamp");
    assert_eq!(effect(&decide(&observed.clone().seeing(metal(State::Deployed)), now())), "release");
    let mut gone = observed;
    gone.in_journal = Lookup::Absent;
    assert_eq!(decide(&gone, now()).finalizer, Finalizer::Remove);
}

#[test]
fn a_locked_machine_is_not_released() {
    let plan = decide(&leaving().seeing(maas::Machine { locked: true, ..metal(State::Deployed) }), now());
    assert_eq!((effect(&plan), reason(&plan)), ("", "MachineReleaseFailed"));
}

#[test]
fn go12_vms_on_a_host_are_waited_for() {
    let observed = leaving().seeing(metal(State::Deployed));
    let plan = decide(&observed, now());
    let release = plan.effect.clone().unwrap();
    let refused = Outcome::Refused(Refusal::InUse, "VM hosts must be removed first".into());
    let conclusion = conclude(&observed, &plan, &release, &refused, now());
    assert_eq!(conclusion.journal.unwrap().in_flight, None);
    let status = conclusion.status.unwrap();
    let deployed = status.conditions.iter().find(|condition| condition.type_ == "MachineDeployed").unwrap();
    assert_eq!(deployed.reason.as_deref(), Some("WaitingForVMsToLeave"));
}

#[test]
fn a_machine_that_was_released_and_taken_by_another_object_of_the_same_user_is_let_go() {
    let released = released();
    let observed = leaving().with_journal(&released).seeing(foreign(State::Allocated, Some("admin")));
    let plan = decide(&observed, now());
    assert_eq!((plan.effect, plan.finalizer), (None, Finalizer::Remove));
    let failed = leaving().with_journal(&released).seeing(foreign(State::ReleasingFailed, Some("admin")));
    assert_eq!(decide(&failed, now()).finalizer, Finalizer::Keep);
}

/// A machine whose release was sent this many minutes ago.
fn under_way(state: State, minutes: i64, power: Option<Power>) -> Observed {
    let began = Some(later(-60 * minutes));
    let journal = released().noting(|it| it.release_began = began);
    let mut observed = leaving().with_journal(&journal).seeing(metal(state));
    observed.power = power;
    observed
}

#[test]
fn a_release_that_maas_forgot_is_told_with_what_a_person_can_do() {
    let plan = decide(&under_way(State::Releasing, 14, None), now());
    assert_eq!(reason(&plan), "MachineReleasing");
    for power in [None, Some(Power::Off), Some(Power::On)] {
        let plan = decide(&under_way(State::Releasing, 15, power), now());
        assert_eq!((effect(&plan), plan.finalizer, reason(&plan)), ("", Finalizer::Keep, "MachineReleaseFailed"));
        let message = condition(&plan, "MachineDeployed").message.clone().unwrap();
        assert!(message.contains("mark it as broken") && message.contains("abandon-machine: abc123"), "{message}");
    }
}

#[test]
fn a_wiping_of_disks_that_maas_forgot_is_ended_and_begun_anew_but_only_if_the_machine_is_off() {
    let plan = decide(&under_way(State::DiskErasing, 15, Some(Power::Off)), now());
    assert_eq!(plan.effect, Some(Effect::AbortErase { machine: ID.into() }));
    let again = leaving().with_journal(&plan.patch.journal.unwrap()).seeing(metal(State::DiskErasing));
    assert_eq!(effect(&decide(&again, later(60))), "", "it is not asked for again at once");
    assert_eq!(effect(&decide(&again.seeing(metal(State::FailedDiskErasing)), later(60))), "release");
    for power in [None, Some(Power::On), Some(Power::Unknown)] {
        let plan = decide(&under_way(State::DiskErasing, 300, power), now());
        assert_eq!((effect(&plan), plan.finalizer), ("", Finalizer::Keep), "{power:?}");
    }
    let on = |minutes| decide(&under_way(State::DiskErasing, minutes, Some(Power::On)), now());
    assert_eq!(
        (reason(&on(359)), reason(&on(360))),
        ("MachineReleasing", "MachineReleaseFailed"),
        "large disks take long"
    );
    let early = decide(&under_way(State::DiskErasing, 14, Some(Power::Off)), now());
    assert_eq!(effect(&early), "");
}

#[test]
fn the_time_of_a_release_that_somebody_else_began_counts_from_when_it_was_seen() {
    let plan = decide(&leaving().seeing(metal(State::Releasing)), now());
    assert_eq!(plan.patch.journal.unwrap().allocation.unwrap().release_began, Some(now()));
}

#[test]
fn a_machine_that_failed_and_is_stuck_on_its_way_back_is_told_as_well() {
    let journal = released().noting(|it| it.release_began = Some(later(-900)));
    let observed = fresh().with_journal(&journal).seeing(metal(State::Releasing));
    assert_eq!(reason(&decide(&observed, now())), "MachineReleaseFailed");
}

#[test]
fn s05_an_unmarked_machine_of_an_earlier_user_is_not_taken_for_somebody_elses() {
    let adopted = with_machine().noting(|it| it.adopted = true);
    let failed = released();
    for (journal, state) in [(&adopted, State::Deployed), (&failed, State::ReleasingFailed)] {
        let plan = decide(&leaving().with_journal(journal).seeing(foreign(state, Some("earlier"))), now());
        assert_eq!((effect(&plan), plan.finalizer, reason(&plan)), ("", Finalizer::Keep, "NotOurMachine"), "{state:?}");
        let living = fresh().with_journal(journal).seeing(foreign(state, Some("earlier")));
        assert_eq!(decide(&living, now()).patch.journal, None, "{state:?}: no other machine is asked for");
    }
    // It was released and free for a moment: its new owner got it from MAAS.
    let taken = leaving().with_journal(&failed).seeing(foreign(State::Deployed, Some("bob")));
    assert_eq!(decide(&taken, now()).finalizer, Finalizer::Remove);
}

#[test]
fn an_answer_is_written_down_by_itself_only_where_the_machine_does_not_show_it() {
    let observed = fresh().with_journal(&with_machine()).seeing(metal(State::Deployed)).deleting();
    let plan = decide(&observed, now());
    let release = plan.effect.clone().unwrap();
    let written = |state| {
        let answered = Outcome::Done(Some(Box::new(metal(state))));
        conclude(&observed, &plan, &release, &answered, now()).journal
    };
    assert_eq!(written(State::Releasing), None, "the next pass sees it");
    assert_eq!(written(State::Deployed).unwrap().in_flight, None);
    let deploy = Effect::Deploy { key: KEY.into(), machine: ID.into(), image: "jammy".into(), in_memory: false };
    assert!(deploy.shows_in(&metal(State::Deploying)) && !deploy.shows_in(&metal(State::Allocated)));
}

#[test]
fn s02_what_maas_shows_again_is_not_stored_by_itself() {
    let known = || fresh().with_annotation(crate::credentials::IDENTITY_ANNOTATION, "http://maas#admin");
    let sent = journal().sending(Write::Allocate, now());
    let brought = maas::Machine { stamp: None, ..metal(State::Allocated) };
    let plan = decide(&known().with_journal(&sent).under_key(vec![brought]), later(1));
    assert_eq!((effect(&plan), plan.patch.journal), ("stamp", None));
    assert_eq!(plan.patch.recalled, Some(with_machine()), "the next pass begins with it");

    let sent = with_machine().noting(|it| it.deploy_began = Some(now())).sending(Write::Deploy, now());
    let deploying = known().with_journal(&sent).seeing(metal(State::Deploying));
    assert_eq!(decide(&deploying, later(1)).patch.journal, None, "the deployment shows that it was begun");
    let failed = known().with_journal(&sent).seeing(metal(State::FailedDeployment));
    assert_eq!(decide(&failed, later(2)).patch.journal.unwrap().in_flight, None, "written with what else is to be");
}
