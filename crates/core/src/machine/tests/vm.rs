//! Provisioning of a VM.

use super::super::*;
use super::fixture::*;
use crate::Lookup;
use crate::maas;
use crate::placement::{Choice, Named, Placement, Verdict, Why};
use crate::plan::{Refusal, Requeue};

fn chosen() -> Placement {
    let choice = Choice {
        host: HOST,
        name: "host7".into(),
        system_id: None,
        zone: Some(Named { id: 2, name: "az1".into() }),
        pool: None,
        project: None,
        storage_pool: "default".into(),
        interfaces: Vec::new(),
    };
    let why = Why::Chosen { siblings_in_zone: 0, siblings_on_host: 0, room_for: 3 };
    Placement { choice: Ok(choice), verdicts: vec![Verdict { host: HOST, name: "host7".into(), why }] }
}

#[test]
fn s03_name_then_place_then_the_vm_each_written_down_before() {
    let plan = decide(&fresh_vm(), now());
    let journal = plan.patch.journal.unwrap();
    assert_eq!((plan.effect, journal.place()), (None, None));
    let name = journal.vm.as_ref().unwrap().name.clone();
    let mut observed = fresh_vm().with_journal(&journal);
    observed.vm.placement = Lookup::Found(chosen());
    let plan = decide(&observed, now());
    assert_eq!(plan.effect, None);
    assert_eq!(condition(&plan, "LXDHostSelected").reason.as_deref(), Some("HostSelected"));
    let journal = plan.patch.journal.unwrap();
    assert_eq!(journal.place().map(|place| (place.host, place.zone_id)), Some((HOST, Some(2))));
    let plan = decide(&fresh_vm().with_journal(&journal), now());
    let Some(Effect::Compose { name: made, place }) = &plan.effect else { panic!("{:?}", plan.effect) };
    assert_eq!((made, place.host), (&name, HOST));
    assert_eq!(plan.patch.journal.unwrap().in_flight.unwrap().write, Write::Compose);
}

#[test]
fn s02_a_vm_is_not_made_twice_while_the_first_may_be_under_way() {
    let sent = vm_record(Some(place())).sending(Write::Compose, now());
    let observed = fresh_vm().with_journal(&sent);
    assert_eq!(effect(&decide(&observed, later(149))), "");
    assert_eq!(effect(&decide(&observed, later(150))), "compose");
    let mut there = observed;
    there.vm.by_name = Lookup::Found(vec![unowned_vm(State::Ready)]);
    let journal = decide(&there, later(1)).patch.journal.unwrap();
    assert_eq!((journal.machine().unwrap().as_str(), &journal.in_flight), (ID, &None));
}

#[test]
fn s01_a_name_that_maas_was_not_asked_for_is_not_free() {
    let mut observed = fresh_vm().with_journal(&vm_record(Some(place())));
    observed.vm.by_name = Lookup::Unknown("away".into());
    assert_eq!(effect(&decide(&observed, now())), "");
}

#[test]
fn a_name_that_another_machine_has_is_given_up() {
    let mut observed = fresh_vm().with_journal(&vm_record(Some(place())));
    observed.vm.by_name = Lookup::Found(vec![maas::Machine { vm_host: Some(99), ..unowned_vm(State::Ready) }]);
    let before = vm_record(None).vm.unwrap().name;
    let after = decide(&observed, now()).patch.journal.unwrap().vm.unwrap().name;
    assert!(after != before && after.starts_with(&before), "{after}");
}

#[test]
fn s10_a_ready_vm_is_taken_and_one_that_somebody_took_is_left_and_made_anew() {
    let observed = fresh_vm().with_journal(&vm_on_record());
    assert_eq!(effect(&decide(&observed.clone().seeing(unowned_vm(State::Ready)), now())), "take");
    let theirs = maas::Machine { owner: Some("bob".into()), ..unowned_vm(State::Allocated) };
    let plan = decide(&observed.seeing(theirs), now());
    let journal = plan.patch.journal.unwrap();
    assert_eq!((plan.effect, journal.machine(), journal.place()), (None, None, None));
    assert_ne!(journal.vm.unwrap().name, vm_on_record().vm.unwrap().name);
}

#[test]
fn go09_a_vm_that_never_gets_ready_is_removed_and_its_host_avoided() {
    let observed = fresh_vm().with_journal(&vm_on_record()).seeing(unowned_vm(State::FailedCommissioning));
    let plan = decide(&observed, now());
    let journal = plan.patch.journal.clone().unwrap();
    assert_eq!(condition(&plan, "LXDVMCreated").reason.as_deref(), Some("VMCreationFailed"));
    assert_eq!(journal.vm.as_ref().unwrap().avoids(now()).collect::<Vec<_>>(), [HOST]);
    let mut again = observed.with_journal(&journal);
    again.power = Some(Power::Off);
    assert_eq!(effect(&decide(&again, now())), "delete_vm");
    again.in_journal = Lookup::Absent;
    let journal = decide(&again, now()).patch.journal.unwrap();
    assert_eq!((journal.machine(), journal.place(), journal.failed.len()), (None, None, 1));
}

#[test]
fn a_host_that_has_become_unusable_is_left_for_another() {
    let mut observed = fresh_vm().with_journal(&vm_record(Some(place())));
    observed.vm.host = Lookup::Found(ObservedHost { usable: Err("it is off".into()), ..usable_host() });
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), reason(&plan)), ("", "HostUnavailable"));
    assert_eq!(plan.patch.journal.unwrap().place(), None);
    assert_eq!(plan.requeue, Requeue::After(std::time::Duration::from_secs(30)));
}

#[test]
fn s12_an_orphan_in_lxd_is_brought_back_by_a_refresh_only_where_that_harms_nobody() {
    let mut journal = vm_record(Some(place()));
    journal.vm.as_mut().unwrap().stage.become_at(VmStage::OnlyInLxd);
    let mut observed = fresh_vm().with_journal(&journal);
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), plan.patch.journal.unwrap().place()), ("", None));
    observed.vm.host = Lookup::Found(ObservedHost { others_known: Lookup::Found(true), ..usable_host() });
    assert_eq!(effect(&decide(&observed, now())), "refresh_host");
    observed.vm.host = Lookup::Found(ObservedHost { others_known: Lookup::Found(false), ..usable_host() });
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), plan.patch.journal.unwrap().place()), ("", None));
    observed.vm.host = Lookup::Found(ObservedHost { others_known: Lookup::Absent, ..usable_host() });
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), plan.patch.journal), ("", None), "the agent is going to see it");
    let plan = decide(&observed, later(600));
    assert_eq!((effect(&plan), plan.patch.journal.unwrap().place()), ("", None), "the agent does not look any more");
}

#[test]
fn a_refused_vm_names_the_kind_and_the_next_host_is_tried_after_half_a_minute() {
    for (refusal, reason) in [
        (Refusal::NoRoom, "InsufficientResources"),
        (Refusal::HostTrouble, "HostUnavailable"),
        (Refusal::Invalid, "VMCreationFailed"),
    ] {
        let observed = fresh_vm().with_journal(&vm_record(Some(place())));
        let plan = decide(&observed, now());
        let effect = plan.effect.clone().unwrap();
        let conclusion = conclude(&observed, &plan, &effect, &Outcome::Refused(refusal, "no".into()), now());
        let journal = conclusion.journal.unwrap();
        assert_eq!((journal.in_flight.as_ref(), journal.place()), (None, None), "{reason}");
        assert_eq!(journal.failed.len(), 0, "no machine was tried");
        let avoided = journal.vm.unwrap().avoids(now()).count();
        assert_eq!(avoided, usize::from(refusal != Refusal::NoRoom), "{reason}");
        assert_eq!(conclusion.requeue, Requeue::After(std::time::Duration::from_secs(30)));
        let status = conclusion.status.unwrap();
        let condition = status.conditions.iter().find(|condition| condition.type_ == "MachineDeployed").unwrap();
        assert_eq!(condition.reason.as_deref(), Some(reason));
        assert_eq!(condition.message.as_deref(), Some(format!("LXD {reason}: host7: no").as_str()));
    }
}

#[test]
fn s24_a_vm_of_the_go_provider_is_taken_over_with_its_provider_id_as_it_is() {
    let mut observed = fresh_vm().provisioned();
    observed.object.spec.provider_id = Some(format!("maas:///az1/{ID}"));
    let journal = decide(&observed, now()).patch.journal.unwrap();
    assert!(journal.is_adopted() && journal.has_machine(ID));
    let found = maas::Machine { stamp: None, ..vm(State::Deployed) };
    let plan = decide(&observed.with_journal(&journal).seeing(found), now());
    assert_eq!((effect(&plan), plan.patch.spec.provider_id), ("stamp", None));
}
