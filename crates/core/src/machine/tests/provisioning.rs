//! Provisioning.

use capmaas_api::ConditionStatus;

use super::super::*;
use super::fixture::*;
use crate::Lookup;
use crate::maas;
use crate::plan::{Finalizer, Refusal, Requeue};

#[test]
fn s03_the_key_the_intent_and_the_finalizer_are_stored_together_before_anything_is_asked_for() {
    let mut observed = fresh();
    observed.object.metadata.finalizers = None;
    assert_eq!(first_journal(&observed).unwrap().key, KEY, "MAAS is asked for it before");
    let plan = decide(&observed, now());
    assert!(matches!(&plan.effect, Some(Effect::Allocate { key, .. }) if key == KEY), "{:?}", plan.effect);
    let journal = plan.patch.journal.unwrap();
    assert_eq!((journal.key.as_str(), journal.in_flight.unwrap().write), (KEY, Write::Allocate));
    assert_eq!(plan.finalizer, Finalizer::Add);
    assert_eq!(plan.patch.identity.as_deref(), Some("http://maas#admin"));
}

#[test]
fn s03_what_maas_holds_under_a_key_that_was_forgotten_is_taken_and_nothing_else_asked_for() {
    let plan = decide(&fresh().under_key(vec![metal(State::Allocated)]), now());
    assert_eq!((effect(&plan), plan.patch.journal.unwrap().machine().unwrap().as_str()), ("", ID));
    let mut observed = fresh();
    observed.by_key = Lookup::Unknown("away".into());
    assert_eq!(effect(&decide(&observed, now())), "");
}

#[test]
fn a_record_begins_only_where_a_machine_may_be_asked_for() {
    let in_the_way: [fn(&mut Observed); 6] = [
        |observed| observed.bootstrap = Lookup::Absent,
        |observed| observed.machine = Lookup::Absent,
        |observed| {
            observed.object.metadata.deletion_timestamp =
                Some(serde_json::from_value("2026-11-15T12:00:00Z".into()).unwrap());
        },
        |observed| {
            *observed = observed.clone().with_annotation(JOURNAL_ANNOTATION, "{");
        },
        |observed| *observed = observed.clone().with_journal(&journal()),
        |observed| *observed = fresh_vm(),
    ];
    for comes in in_the_way {
        let mut observed = fresh();
        assert!(first_journal(&observed).is_some());
        comes(&mut observed);
        assert_eq!(first_journal(&observed), None);
    }
}

#[test]
fn nothing_is_asked_for_that_no_finalizer_could_hold() {
    let mut observed = fresh().with_journal(&journal());
    (observed.object.metadata.finalizers, observed.machine) = (None, Lookup::Absent);
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), reason(&plan), plan.requeue), ("", "WaitingForOwner", Requeue::OnChange));
}

#[test]
fn s02_that_an_allocation_was_answered_is_noted_together_with_the_machine_that_it_brought() {
    let observed = fresh().with_journal(&journal());
    let plan = decide(&observed, now());
    let conclusion = conclude(&observed, &plan, plan.effect.as_ref().unwrap(), &Outcome::Done(None), now());
    assert_eq!((conclusion.journal, conclusion.requeue), (None, Requeue::NOW));
    let sent = fresh().with_journal(&plan.patch.journal.unwrap()).under_key(vec![metal(State::Allocated)]);
    let journal = decide(&sent, now()).patch.journal.unwrap();
    assert_eq!((journal.machine().unwrap().as_str(), &journal.in_flight), (ID, &None));
}

#[test]
fn s03_a_key_that_is_there_is_never_computed_again() {
    let mut moved = fresh().with_journal(&journal());
    moved.object.metadata.uid = Some("another-uid".into());
    let plan = decide(&moved, now());
    assert!(matches!(&plan.effect, Some(Effect::Allocate { key, .. }) if key == KEY), "{:?}", plan.effect);
}

#[test]
fn cluster_infrastructure_and_start_up_data_come_first() {
    let mut observed = fresh();
    observed.cluster = Lookup::Found(serde_json::from_value(serde_json::json!({})).unwrap());
    assert_eq!(reason(&decide(&observed, now())), "WaitingForClusterInfrastructure");
    let mut observed = fresh();
    observed.bootstrap = Lookup::Absent;
    let plan = decide(&observed, now());
    assert_eq!((reason(&plan), plan.patch.journal.as_ref()), ("WaitingForBootstrapData", None));
    let mut observed = fresh();
    observed.machine = Lookup::Absent;
    let plan = decide(&observed, now());
    assert_eq!((reason(&plan), plan.finalizer), ("WaitingForOwner", Finalizer::Keep));
}

#[test]
fn bootstrap_data_that_is_named_and_not_there_is_looked_for_soon() {
    let waits = |bootstrap: serde_json::Value| {
        let mut observed = fresh();
        let Lookup::Found(machine) = &mut observed.machine else { panic!() };
        let spec = serde_json::json!({"clusterName": "c1", "bootstrap": bootstrap});
        machine.spec = serde_json::from_value(spec).unwrap();
        observed.bootstrap = Lookup::Absent;
        let plan = decide(&observed, now());
        assert_eq!(reason(&plan), "WaitingForBootstrapData");
        (plan.requeue, plan.why)
    };
    assert_eq!(waits(serde_json::json!({})).0, Requeue::OnChange, "the Machine changes when it is made");
    let (requeue, why) = waits(serde_json::json!({"dataSecretName": "m1-data"}));
    assert!(matches!(requeue, Requeue::After(wait) if wait.as_secs() <= 60), "no Secret is watched: {requeue:?}");
    assert!(why.contains("m1-data") && why.contains("value"), "{why}");
}

#[test]
fn ignition_is_refused_with_a_sentence_unless_the_image_takes_it() {
    let mut observed = fresh();
    observed.bootstrap = Lookup::Found(Format::Ignition);
    let plan = decide(&observed, now());
    assert!(condition(&plan, "MachineDeployed").message.as_ref().unwrap().contains("Ignition"));
    assert_eq!(plan.patch.journal, None);
    observed.object.spec.image = "custom/flatcar-4230".into();
    assert!(decide(&observed, now()).patch.journal.is_some());
}

#[test]
fn a_machine_is_asked_for_with_everything_that_the_spec_says() {
    let mut observed = fresh().with_journal(&journal());
    observed.object.spec.tags = vec!["fast".into()];
    observed.object.spec.resource_pool = Some("pool".into());
    observed.object.spec.min_disk_size = Some(100);
    observed.object.spec.failure_domain = Some("az1".into());
    let plan = decide(&observed, now());
    let Some(Effect::Allocate { constraints, .. }) = plan.effect else { panic!("{:?}", plan.effect) };
    assert_eq!((constraints.min_cpu, constraints.min_memory, constraints.min_disk), (Some(2), Some(4096), Some(100)));
    assert_eq!((constraints.tags, constraints.pool.as_deref()), (vec!["fast".to_owned()], Some("pool")));
    assert_eq!(constraints.zone.as_deref(), Some("az2"), "the Machine's failure domain wins");
    assert_eq!(constraints.not_tags, quarantine_tags(now()));
}

#[test]
fn a_pinned_machine_is_asked_for_by_its_id() {
    let mut observed = fresh().with_journal(&journal());
    observed.object.spec.system_id = Some("wanted".into());
    let plan = decide(&observed, now());
    assert!(
        matches!(plan.effect, Some(Effect::Allocate { constraints, .. }) if constraints.machine.as_deref() == Some("wanted"))
    );
}

#[test]
fn s02_nothing_is_allocated_twice_while_an_answer_may_be_under_way() {
    let sent = journal().sending(Write::Allocate, now());
    let observed = fresh().with_journal(&sent);
    assert_eq!(decide(&observed, later(149)).effect, None);
    assert_eq!(effect(&decide(&observed, later(150))), "allocate");
    // It exists after all.
    let plan = decide(&observed.under_key(vec![metal(State::Allocated)]), later(5));
    let journal = plan.patch.journal.unwrap();
    assert_eq!((journal.machine().unwrap().as_str(), &journal.in_flight), (ID, &None));
}

#[test]
fn s02_the_intent_is_stored_with_the_allocation() {
    let plan = decide(&fresh().with_journal(&journal()), now());
    assert_eq!(plan.patch.journal.unwrap().in_flight.unwrap().write, Write::Allocate);
}

#[test]
fn s01_a_key_that_maas_was_not_asked_for_is_not_free() {
    let mut observed = fresh().with_journal(&journal());
    observed.by_key = Lookup::Unknown("away".into());
    assert_eq!(decide(&observed, now()).effect, None);
}

#[test]
fn s05_after_a_change_of_identity_nothing_is_allocated_and_no_absence_believed() {
    let mut observed = fresh().with_journal(&journal());
    observed.access = Access::Granted { name: "n".into(), user: "new".into(), identity_changed: true };
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), reason(&plan)), ("", "IdentityChanged"));
    let mut observed = observed.with_journal(&with_machine());
    observed.in_journal = Lookup::Absent;
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), plan.patch.journal), ("", None));
}

#[test]
fn s07_a_machine_that_an_earlier_user_allocated_is_ours_by_its_key_and_needs_no_mark() {
    let unmarked = maas::Machine { stamp: None, ..metal(State::Allocated) };
    let mut observed = fresh().with_journal(&with_machine()).seeing(unmarked.clone()).under_key(vec![unmarked.clone()]);
    observed = observed.with_annotation(crate::credentials::IDENTITY_ANNOTATION, "http://maas#admin");
    assert_eq!(effect(&decide(&observed, now())), "stamp");
    observed.access =
        Access::Granted { name: "http://maas#carol".into(), user: "carol".into(), identity_changed: false };
    // MAAS would refuse her stamp forever (944), but not her deployment (1410).
    assert_eq!(effect(&decide(&observed, now())), "deploy");
    assert_eq!(effect(&decide(&observed.clone().deleting(), now())), "release");
    // Without the key it is admin's.
    assert_eq!(effect(&decide(&observed.under_key(Vec::new()), now())), "");
}

#[test]
fn s05_another_maas_that_has_a_machine_of_that_id_does_not_make_ours_forgotten() {
    let stranger = || maas::Machine { stamp: None, owner: None, ..metal(State::Ready) };
    let mut observed = fresh().with_journal(&with_machine()).seeing(stranger()).under_key(vec![]);
    observed.access =
        Access::Granted { name: "http://other#admin".into(), user: "admin".into(), identity_changed: true };
    let noted = |observed: &mut Observed, name: &str| {
        let annotations = observed.object.metadata.annotations.get_or_insert_default();
        annotations.insert(crate::credentials::IDENTITY_ANNOTATION.to_owned(), name.to_owned());
    };
    noted(&mut observed, "http://maas#admin");
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), &plan.patch.journal), ("", &None));
    let plan = decide(&observed.clone().deleting(), now());
    assert_eq!((effect(&plan), plan.finalizer, reason(&plan)), ("", Finalizer::Keep, "IdentityChanged"));
    // Another user of the same MAAS sees the same machine.
    noted(&mut observed, "http://other#somebody");
    let plan = decide(&observed.deleting(), now());
    assert_eq!((effect(&plan), plan.finalizer), ("", Finalizer::Remove));
}

#[test]
fn s06_a_live_node_that_maas_hands_out_is_kept_and_another_machine_is_asked_for() {
    let mut observed = fresh().with_journal(&journal().sending(Write::Allocate, now()));
    observed.held_elsewhere.machines.insert(ID.into());
    let plan = decide(&observed.clone().under_key(vec![metal(State::Allocated)]), later(1));
    assert_eq!(effect(&plan), "allocate");
    assert!(condition(&plan, "MachineDeployed").message.as_ref().unwrap().contains(ID));
    // On deletion it is left as it is, too.
    let plan = decide(&observed.with_journal(&journal()).under_key(vec![metal(State::Allocated)]).deleting(), later(1));
    assert_eq!((effect(&plan), plan.finalizer), ("", Finalizer::Remove));
}

#[test]
fn s06_a_provisioned_machine_that_maas_calls_ready_or_does_not_know_is_reported_and_never_redeployed() {
    let observed = fresh().with_journal(&with_machine()).provisioned();
    let plan = decide(&observed.clone().seeing(foreign(State::Ready, None)), now());
    assert_eq!((effect(&plan), reason(&plan)), ("", "MachineTerminatedReason"));
    let mut gone = observed;
    gone.in_journal = Lookup::Absent;
    let plan = decide(&gone, now());
    assert_eq!((effect(&plan), reason(&plan), plan.patch.journal.as_ref()), ("", "MachineNotFound", None));
}

#[test]
fn go06_a_machine_that_is_gone_from_maas_says_so_and_what_to_do() {
    let mut observed = fresh().with_journal(&with_machine()).provisioned();
    observed.in_journal = Lookup::Absent;
    assert!(condition(&decide(&observed, now()), "Ready").message.as_ref().unwrap().contains("delete the Machine"));
}

#[test]
fn an_allocated_machine_is_stamped_then_freed_of_swap_then_deployed() {
    let bare = maas::Machine { stamp: None, swap_off: false, ..metal(State::Allocated) };
    let observed = fresh().with_journal(&with_machine());
    let seen = observed.clone().seeing(bare.clone()).under_key(vec![bare.clone()]);
    assert_eq!(effect(&decide(&seen, now())), "stamp");
    let stamped = maas::Machine { stamp: Some(KEY.into()), ..bare };
    assert_eq!(effect(&decide(&observed.clone().seeing(stamped.clone()), now())), "disable_swap");
    let denied = with_machine().noting(|it| it.swap_denied = true);
    assert_eq!(effect(&decide(&observed.clone().with_journal(&denied).seeing(stamped), now())), "deploy");
    let plan = decide(&observed.seeing(metal(State::Allocated)), now());
    let journal = plan.patch.journal.unwrap();
    assert_eq!(
        (journal.in_flight.unwrap().write, journal.allocation.unwrap().deploy_began),
        (Write::Deploy, Some(now()))
    );
}

#[test]
fn swap_is_not_turned_off_in_maas_where_the_bootstrap_data_does_it() {
    let mut observed =
        fresh().with_journal(&with_machine()).seeing(maas::Machine { swap_off: false, ..metal(State::Allocated) });
    assert_eq!(effect(&decide(&observed, now())), "disable_swap");
    observed.bootstrap = Lookup::Found(Format::CloudConfig { ends_swap: true });
    assert_eq!(effect(&decide(&observed, now())), "deploy", "nothing stays behind on the machine");
}

#[test]
fn go20_swap_that_the_account_may_not_change_stays_on_and_is_not_asked_for_again() {
    let observed =
        fresh().with_journal(&with_machine()).seeing(maas::Machine { swap_off: false, ..metal(State::Allocated) });
    let plan = decide(&observed, now());
    let swap = plan.effect.clone().unwrap();
    let conclusion = conclude(&observed, &plan, &swap, &Outcome::Refused(Refusal::Denied, "403".into()), now());
    assert!(conclusion.journal.unwrap().allocation.unwrap().swap_denied);
}

#[test]
fn a_deployment_that_maas_forgot_is_turned_on_once_and_given_up_after_its_deadline() {
    let began = with_machine().noting(|it| it.deploy_began = Some(now()));
    let mut observed = fresh().with_journal(&began).seeing(metal(State::Deploying));
    observed.power = Some(Power::Off);
    assert_eq!(effect(&decide(&observed, later(60))), "");
    let plan = decide(&observed, later(130));
    assert_eq!(effect(&plan), "power_on");
    let observed = observed.with_journal(&plan.patch.journal.unwrap());
    assert_eq!(effect(&decide(&observed, later(300))), "");
    assert_eq!(effect(&decide(&observed, later(61 * 60))), "", "MAAS itself may take an hour");
    let plan = decide(&observed, later(76 * 60));
    assert_eq!(effect(&plan), "quarantine");
    assert!(plan.patch.journal.unwrap().failed[0].power, "the power is to blame, not the image");
}

#[test]
fn go05_a_machine_that_fails_is_quarantined_then_released_and_off_the_record_before_another_is_asked_for() {
    let plan = decide(&fresh().with_journal(&with_machine()).seeing(metal(State::FailedDeployment)), now());
    assert_eq!(effect(&plan), "quarantine");
    let failed = plan.patch.journal.unwrap();
    let plan = decide(&fresh().with_journal(&failed).seeing(metal(State::FailedDeployment)), now());
    assert_eq!(effect(&plan), "release");
    let released = Journal { in_flight: None, ..plan.patch.journal.unwrap() };
    let mut observed = fresh().with_journal(&released).seeing(foreign(State::Ready, None));
    observed.power = Some(Power::Off);
    let once = decide(&observed, now()).patch.journal.unwrap();
    assert_eq!(once.machine().unwrap(), ID, "s14: it was on its way up, and is looked at twice");
    let anew = decide(&observed.with_journal(&once), later(31)).patch.journal.unwrap();
    assert_eq!((anew.machine(), anew.failed.len()), (None, 1));
    assert_eq!(effect(&decide(&fresh().with_journal(&anew), now())), "allocate");
}

#[test]
fn go04_a_machine_that_maas_names_in_an_error_is_none_of_ours() {
    let observed = fresh().with_journal(&with_machine()).seeing(metal(State::Allocated));
    let plan = decide(&observed, now());
    let deploy = plan.effect.clone().unwrap();
    let words = "Unable to change machines 4y3h7n: Invalid transition: Broken -> Deploying".to_owned();
    let conclusion = conclude(&observed, &plan, &deploy, &Outcome::Refused(Refusal::Passing, words), now());
    let text = format!("{:?}", conclusion.journal);
    assert!(!text.contains("4y3h7n"), "{text}");
}

#[test]
fn s17_the_same_image_failing_on_two_machines_is_blamed() {
    let failure = |id: &str| Failure { machine: id.into(), image: "ubuntu/jammy".into(), power: false };
    let journal = Journal { failed: vec![failure("a"), failure("b")], ..journal() };
    let plan = decide(&fresh().with_journal(&journal), now());
    assert_eq!((effect(&plan), reason(&plan)), ("", "ImageSuspected"));
    assert_eq!(plan.status.unwrap().failure_reason.as_deref(), Some("ImageSuspected"));
}

#[test]
fn s17_three_machines_are_tried_and_no_fourth() {
    let failure = |id: &str| Failure { machine: id.into(), image: "ubuntu/jammy".into(), power: true };
    let two = Journal { failed: vec![failure("a"), failure("b")], ..journal() };
    assert_eq!(effect(&decide(&fresh().with_journal(&two), now())), "allocate");
    let three = Journal { failed: vec![failure("a"), failure("b"), failure("c")], ..journal() };
    let plan = decide(&fresh().with_journal(&three), now());
    assert_eq!((effect(&plan), reason(&plan)), ("", "AttemptsExhausted"));
}

#[test]
fn s24_a_machine_of_the_go_provider_is_taken_over_by_a_stamp_and_nothing_else() {
    let mut observed = fresh().provisioned();
    observed.object.spec.provider_id = Some("maas:///az1/abc123".into());
    let plan = decide(&observed, now());
    let journal = plan.patch.journal.unwrap();
    assert_eq!((journal.machine().unwrap().as_str(), journal.is_adopted(), plan.effect), (ID, true, None));
    let observed = observed.with_journal(&journal).seeing(foreign(State::Deployed, Some("admin")));
    assert_eq!(effect(&decide(&observed, now())), "stamp");
    let plan = decide(&observed.clone().seeing(metal(State::Deployed)), now());
    assert_eq!((effect(&plan), plan.patch.spec), ("", SpecPatch::default()), "its provider ID is never rewritten");
    let mut held = observed;
    held.held_elsewhere.machines.insert(ID.into());
    assert_eq!(effect(&decide(&held, now())), "", "another object holds it too");
}

#[test]
fn s15_paused_or_moved_nothing_is_done_and_no_finalizer_added() {
    let mut bare = fresh();
    bare.object.metadata.finalizers = None;
    for name in ["cluster.x-k8s.io/paused", "clusterctl.cluster.x-k8s.io/delete-for-move"] {
        for observed in [bare.clone(), fresh().with_journal(&with_machine()).seeing(metal(State::Deployed)).deleting()]
        {
            let plan = decide(&observed.with_annotation(name, ""), now());
            assert_eq!((plan.effect, plan.patch.journal, plan.finalizer), (None, None, Finalizer::Keep), "{name}");
        }
    }
    let mut observed = bare;
    observed.cluster = Lookup::Found(serde_json::from_value(serde_json::json!({"spec": {"paused": true}})).unwrap());
    let plan = decide(&observed, now());
    assert_eq!((plan.effect.as_ref(), plan.finalizer), (None, Finalizer::Keep));
    assert_eq!(condition(&plan, "Paused").status, ConditionStatus::True);
}

#[test]
fn s13_what_somebody_else_manages_is_left_alone_until_it_ends_with_a_machine_that_we_allocated() {
    let managed = |observed: Observed| decide(&observed.with_annotation("cluster.x-k8s.io/managed-by", ""), now());
    let mut never_ours = fresh().deleting();
    never_ours.object.metadata.annotations = None;
    for observed in [fresh(), never_ours, fresh().with_journal(&with_machine()).seeing(metal(State::Deployed))] {
        let plan = managed(observed);
        assert_eq!((plan.effect, plan.patch.journal, plan.finalizer), (None, None, Finalizer::Keep));
    }
    let plan = managed(fresh().with_journal(&with_machine()).seeing(metal(State::Deployed)).deleting());
    assert_ne!(effect(&plan), "", "nobody else releases it");
}

#[test]
fn s01_while_maas_is_away_a_running_machine_stays_ready() {
    let mut observed = fresh().with_journal(&with_machine()).seeing(metal(State::Deployed)).provisioned();
    observed.object.status = decide(&observed, now()).status;
    observed.access = Access::Denied { reason: "MAASUnavailable", message: "away".into() };
    let plan = decide(&observed, later(60));
    assert_eq!(plan.status, observed.object.status);
    assert_eq!(plan.effect, None);
}

#[test]
fn go08_a_failure_that_passes_is_not_written_as_terminal() {
    let failed = decide(&fresh().with_journal(&with_machine()).seeing(metal(State::FailedDeployment)), now());
    assert_eq!(failed.status.unwrap().failure_reason, None);
    let mut observed = fresh().with_journal(&with_machine()).seeing(metal(State::Deployed)).provisioned();
    observed.object.status.as_mut().unwrap().failure_reason = Some("UpdateMachineError".into());
    assert_eq!(decide(&observed, now()).status.unwrap().failure_reason, None);
}

#[test]
fn go32_what_users_asked_for_is_sent_as_they_asked() {
    let mut observed = fresh().with_journal(&journal());
    let spec = &mut observed.object.spec;
    spec.image = "custom/rocky-9".into();
    spec.tags = vec!["ssd".into(), "rack-7".into()];
    spec.deploy_in_memory = Some(true);
    let Some(Effect::Allocate { constraints, .. }) = decide(&observed, now()).effect else { panic!("no allocation") };
    assert_eq!(constraints.tags, ["ssd", "rack-7"], "all of them");
    let observed = observed.with_journal(&with_machine()).seeing(metal(State::Allocated));
    let Some(Effect::Deploy { image, in_memory, .. }) = decide(&observed, now()).effect else {
        panic!("no deployment")
    };
    assert_eq!((image.as_str(), in_memory), ("custom/rocky-9", true), "any image, and from memory");
}
