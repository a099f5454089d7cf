//! The owners of journals and records.

use capmaas_api::{conditions, names, reasons};

use super::super::decide;
use super::super::journal::Source;
use super::super::observed::Rival;
use super::super::plan::{Effect, Plan};
use super::super::provenance::{Provenance, judge};
use super::*;
use crate::plan::{Finalizer, Requeue};

fn somebody(namespace: &str, name: &str, uid: &str) -> WrittenFor {
    WrittenFor { namespace: namespace.into(), name: name.into(), uid: uid.into() }
}

fn rival() -> Rival {
    Rival { who: "other/c1".into(), numbered: true, owned: true, ..Rival::default() }
}

/// The same after a move: the UID does not yield the name any more.
fn moved(mut observed: Observed) -> Observed {
    observed.object.name_is_from_uid = false;
    observed
}

/// An object that looks as if the Go provider had reconciled it.
fn of_the_go_provider(addresses: &[&str], machines: Vec<Machine>) -> Observed {
    let mut observed = moved(settled(addresses, machines));
    observed.object.journal = Journal {
        source: Some(Source::Adopted),
        name: Some(NAME.into()),
        identity: Some(known().name.to_string()),
        written_for: Some(itself()),
        ..Journal::default()
    };
    observed
}

fn deleted(mut observed: Observed) -> Plan {
    observed.object.deleting = true;
    decide(&observed, now())
}

fn says(plan: &Plan, type_: &str) -> String {
    reason(plan.status.as_ref().unwrap(), type_).to_owned()
}

#[test]
fn s25_a_copy_says_so_touches_nothing_and_may_go_at_any_time() {
    let machines = vec![up("m1", &["10.0.0.1"])];
    for original in [somebody("other", "c1", "u0"), somebody("team", "c0", "u0")] {
        let mut observed = settled(&["10.0.0.9"], machines.clone());
        observed.object.journal.written_for = Some(original.clone());
        observed.object.journal.owed = ips(&["10.0.0.9"]);
        let plan = decide(&observed, now());
        assert_eq!((&plan.effect, plan.leaves_object()), (&None, true));
        assert_eq!(says(&plan, conditions::READY), reasons::COPIED_JOURNAL);
        let message = condition(plan.status.as_ref().unwrap(), conditions::READY).message.clone().unwrap();
        assert!(message.contains(&original.to_string()), "{message}");
        let plan = deleted(observed);
        assert_eq!((&plan.effect, plan.finalizer), (&None, Finalizer::Remove));
    }
}

#[test]
fn s25_an_object_in_a_new_life_needs_a_live_cluster_that_names_it() {
    let mut observed = moved(settled(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"])]));
    observed.object.journal.written_for = Some(somebody("team", "c1", "u0"));
    let plan = decide(&observed, now());
    assert_eq!((&plan.effect, plan.patch.annotations.len()), (&None, 1), "it is written down whose it is now");
    observed.owner = Lookup::Found(Owner { name: "c1".into(), ..Owner::default() });
    let plan = decide(&observed, now());
    assert_eq!((plan.leaves_object(), says(&plan, conditions::READY).as_str()), (true, reasons::COPIED_JOURNAL));
    observed.owner = Lookup::Absent;
    assert!(matches!(judge(&observed), Provenance::Doubtful(_)));
    let plan = deleted(observed.clone());
    assert_eq!((&plan.effect, plan.finalizer), (&None, Finalizer::Keep), "its machines have journals of their own");
    observed.machines = Lookup::Found(Vec::new());
    let plan = deleted(observed);
    assert_eq!((&plan.effect, plan.finalizer), (&None, Finalizer::Remove));
    assert!(plan.events[0].warning);
}

#[test]
fn s24_a_journal_of_an_earlier_release_is_taken_over_without_a_change_in_maas() {
    let mut observed = settled(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"])]);
    observed.object.journal.written_for = None;
    let plan = decide(&observed, now());
    assert_eq!((&plan.effect, plan.patch.annotations.len()), (&None, 1));
    assert!(plan.patch.annotations.contains_key(capmaas_api::names::WRITTEN_FOR_ANNOTATION));
}

#[test]
fn s25_of_two_that_claim_a_record_the_one_whose_uid_made_the_name_is_the_original() {
    let mut observed = settled(&["10.0.0.1"], Vec::new());
    for written_for in [Some(itself()), None] {
        observed.object.journal.written_for = written_for;
        // Whatever the other one claims; machines that are stamped would decide before.
        observed.rivals = vec![Rival { own: true, ..rival() }];
        assert!(matches!(judge(&observed), Provenance::Own | Provenance::Unwritten));
        observed.rivals[0].name_is_from_uid = true;
        observed.object.name_is_from_uid = false;
        assert!(!matches!(judge(&observed), Provenance::Own | Provenance::Unwritten));
        observed.object.name_is_from_uid = true;
    }
}

#[test]
fn s25_a_uid_that_happens_to_yield_a_name_outweighs_no_stamp() {
    // Its UID was tried out until its digits were those of the victim's record.
    let mut forger = settled(&["10.0.0.1"], vec![up("m9", &["10.0.0.9"])]);
    let Lookup::Found(record) = &mut forger.record else { panic!() };
    record.anothers = ips(&["10.0.0.1"]);
    // Also if the victim lives in another management cluster.
    let plan = decide(&forger, now());
    assert_eq!((&plan.effect, plan.leaves_object()), (&None, true));
    assert_eq!(says(&plan, conditions::LOAD_BALANCER_READY), reasons::DNS_NAME_TAKEN);
    let plan = deleted(Observed { machines: Lookup::Found(Vec::new()), ..forger.clone() });
    assert_eq!((&plan.effect, plan.finalizer), (&None, Finalizer::Remove));
    forger.rivals = vec![Rival { machines: ["at-10.0.0.1".to_owned()].into(), ..rival() }];
    assert!(matches!(judge(&forger), Provenance::Doubtful(_)));
    let mut victim = moved(settled(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"])]));
    victim.rivals = vec![Rival { own: true, name_is_from_uid: true, ..rival() }];
    assert_eq!(judge(&victim), Provenance::Own);
}

#[test]
fn s25_the_machines_that_a_record_leads_to_tell_the_original_from_the_copy() {
    let mut observed = moved(settled(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"])]));
    observed.rivals = vec![rival()];
    assert_eq!(judge(&observed), Provenance::Own);
    observed.machines = Lookup::Found(Vec::new());
    observed.rivals[0].machines = ["at-10.0.0.1".to_owned()].into();
    assert!(matches!(judge(&observed), Provenance::Doubtful(_)));
    // Nor is it believed while it is unknown what the record resolves to, or which machines there are.
    let mut unseen = moved(settled(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"])]));
    unseen.rivals = vec![rival()];
    unseen.machines = Lookup::Unknown("the API server is away".into());
    assert!(matches!(judge(&unseen), Provenance::Doubtful(_)));
}

#[test]
fn s25_where_nobody_can_tell_the_original_neither_touches_the_record() {
    let both = vec![up("m1", &["10.0.0.1"]), up("m2", &["10.0.0.2"])];
    let mut same_machines = moved(settled(&["10.0.0.1"], both.clone()));
    same_machines.rivals = vec![Rival { own: true, machines: ["at-10.0.0.1".to_owned()].into(), ..rival() }];
    let mut nobodys = moved(settled(&[], both));
    nobodys.rivals = vec![Rival { own: true, ..rival() }];
    for observed in [same_machines, nobodys] {
        let plan = decide(&observed, now());
        assert_eq!((&plan.effect, plan.leaves_object()), (&None, true));
        let message = condition(plan.status.as_ref().unwrap(), conditions::READY).message.clone().unwrap();
        assert!(message.contains("other/c1"), "{message}");
    }
}

#[test]
fn s25_a_claim_without_a_number_does_not_disturb_one_with_a_number() {
    let mut observed = moved(settled(&[], Vec::new()));
    observed.rivals = vec![Rival { own: true, numbered: false, ..rival() }];
    assert_eq!(judge(&observed), Provenance::Own);
}

#[test]
fn s18_a_forged_number_neither_redirects_nor_empties_nor_deletes_a_record() {
    let forged = |machines: Vec<Machine>| moved(settled(&["10.0.0.77"], machines));
    let plan = decide(&forged(vec![up("m1", &["10.0.0.1"])]), now());
    assert_eq!((&plan.effect, plan.leaves_object()), (&None, true));
    assert_eq!(says(&plan, conditions::LOAD_BALANCER_READY), reasons::DNS_NAME_TAKEN);
    let plan = deleted(forged(vec![leaving(up("m1", &["10.0.0.1"]))]));
    assert_eq!((&plan.effect, plan.finalizer), (&None, Finalizer::Keep));
    let plan = deleted(forged(Vec::new()));
    assert_eq!((&plan.effect, plan.finalizer), (&None, Finalizer::Remove));
    assert_eq!(plan.events[0].reason, "DNSRecordLeft");
}

#[test]
fn s18_a_forged_time_of_asking_is_no_proof_either() {
    let mut observed = moved(settled(&["10.0.0.77"], vec![up("m1", &["10.0.0.1"])]));
    observed.object.journal.record = None;
    let plan = decide(&observed, now());
    assert_eq!((&plan.effect, plan.leaves_object()), (&None, true));
}

#[test]
fn s18_after_a_move_the_record_is_kept_in_step_because_it_leads_to_the_clusters_machines() {
    let machines = vec![up("m1", &["10.0.0.1"]), up("m2", &["10.0.0.2"])];
    let expected = Some(Effect::UpdateDnsRecord { id: 7, addresses: ips(&["10.0.0.1", "10.0.0.2"]) });
    for addresses in [&["10.0.0.1"][..], &[], &["10.0.0.1", "10.0.0.9"]] {
        assert_eq!(decide(&moved(settled(addresses, machines.clone())), now()).effect, expected, "{addresses:?}");
    }
}

#[test]
fn s18_a_record_of_another_provider_is_ours_if_it_leads_to_this_clusters_machines_alone() {
    let machines = || vec![up("m1", &["10.0.0.1"]), up("m2", &["10.0.0.2"])];
    let plan = decide(&of_the_go_provider(&["10.0.0.1"], machines()), now());
    let noted = plan.patch.annotations.get(capmaas_api::names::DNS_RECORD_ANNOTATION);
    assert_eq!((&plan.effect, noted), (&None, Some(&Some("7".to_owned()))));
    for addresses in [&["10.0.0.77"][..], &["10.0.0.1", "10.0.0.77"], &[]] {
        let observed = of_the_go_provider(addresses, machines());
        let plan = decide(&observed, now());
        assert_eq!((&plan.effect, plan.leaves_object()), (&None, true), "{addresses:?}");
        assert_eq!(says(&plan, conditions::LOAD_BALANCER_READY), reasons::DNS_NAME_TAKEN);
        assert!(!plan.status.as_ref().unwrap().ready, "nobody joins another cluster's API server");
        let plan = deleted(of_the_go_provider(addresses, Vec::new()));
        assert_eq!((&plan.effect, plan.finalizer), (&None, Finalizer::Remove));
    }
}

#[test]
fn s01_whose_a_record_is_cannot_be_told_while_the_machines_are_not_known() {
    let mut observed = moved(settled(&["10.0.0.1"], Vec::new()));
    observed.machines = Lookup::Unknown("the API server is away".into());
    let plan = decide(&observed, now());
    assert_eq!((&plan.effect, plan.leaves_object()), (&None, true));
    assert_ne!(says(&plan, conditions::LOAD_BALANCER_READY), reasons::DNS_NAME_TAKEN);
}

#[test]
fn s18_a_name_that_is_still_told_is_written_down_again_before_anything_else() {
    let mut observed = settled(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"])]);
    observed.object.journal = Journal::default();
    observed.identity = Ok(Known { standing: Standing::First, ..known() });
    for deleting in [false, true] {
        observed.object.deleting = deleting;
        let plan = decide(&observed, now());
        assert_eq!(plan.effect, None);
        for (key, value) in [
            (names::ENDPOINT_SOURCE_ANNOTATION, "dns"),
            (names::DNS_NAME_ANNOTATION, NAME),
            (names::DNS_ASKED_ANNOTATION, &now().to_string()),
        ] {
            assert_eq!(plan.patch.annotations[key].as_deref(), Some(value), "{plan:?}");
        }
    }
}

#[test]
fn s18_a_name_that_is_told_nowhere_is_found_again_by_its_record() {
    let mut observed = fresh();
    observed.record = Lookup::Found(record(7, &[]));
    let plan = decide(&observed, now());
    assert!(plan.patch.annotations.contains_key(names::DNS_ASKED_ANNOTATION), "its record may be ours: {plan:?}");
    observed.record = Lookup::Unknown("there is no name to look for yet".into());
    let plan = decide(&observed, now());
    assert!(!plan.patch.annotations.contains_key(names::DNS_ASKED_ANNOTATION), "nothing was asked for: {plan:?}");
}

/// The machine behind the record, with this stamp.
fn stamped(stamp: Stamp) -> Machine {
    Machine { stamp, ..up("m1", &["10.0.0.1"]) }
}

#[test]
fn s18_only_a_stamp_makes_a_machine_the_clusters() {
    let not_read = reasons::MAAS_UNAVAILABLE;
    for (stamp, reason) in [
        (Stamp::Anothers, reasons::DNS_NAME_TAKEN),
        (Stamp::Missing, reasons::NOT_OUR_MACHINE),
        (Stamp::OwnedBy("alice".into()), reasons::NOT_OUR_MACHINE),
        (Stamp::NotRead, not_read),
        (Stamp::Unknown("MAAS is away".into()), not_read),
    ] {
        let machines = || vec![stamped(stamp.clone()), up("m2", &["10.0.0.2"])];
        for observed in [of_the_go_provider(&["10.0.0.1"], machines()), moved(settled(&["10.0.0.1"], machines()))] {
            let plan = decide(&observed, now());
            assert_eq!((&plan.effect, plan.leaves_object()), (&None, true), "{stamp:?}");
            assert_eq!(says(&plan, conditions::LOAD_BALANCER_READY), reason, "{stamp:?}");
            let leaves = machines().into_iter().map(leaving).collect();
            let plan = deleted(Observed { machines: Lookup::Found(leaves), ..observed });
            assert_eq!((&plan.effect, plan.finalizer), (&None, Finalizer::Keep), "{stamp:?}");
        }
        let plan = decide(&settled(&["10.0.0.1"], machines()), now());
        assert!(plan.effect.is_some(), "a name that only the UID yields needs no stamp: {plan:?}");
    }
}

#[test]
fn s24_a_missing_stamp_is_named_and_looked_for_again_soon() {
    let mut observed = of_the_go_provider(&["10.0.0.1"], vec![stamped(Stamp::Missing)]);
    let before = decide(&of_the_go_provider(&["10.0.0.77"], Vec::new()), now());
    observed.object.status = before.status.unwrap();
    let plan = decide(&observed, now());
    assert!(plan.requeue <= Requeue::seconds(15));
    let said = condition(plan.status.as_ref().unwrap(), conditions::LOAD_BALANCER_READY).clone();
    assert_eq!(said.status, capmaas_api::ConditionStatus::Undetermined);
    let message = said.message.unwrap();
    assert!(message.contains("at-10.0.0.1") && message.contains("MaasMachine m1"), "{message}");
}

#[test]
fn s24_a_machine_that_only_another_user_can_stamp_is_named_with_its_owner() {
    let observed = of_the_go_provider(&["10.0.0.1"], vec![stamped(Stamp::OwnedBy("alice".into()))]);
    let plan = decide(&observed, now());
    let said = condition(plan.status.as_ref().unwrap(), conditions::LOAD_BALANCER_READY).clone();
    let message = said.message.unwrap();
    assert!(["at-10.0.0.1", "MaasMachine m1", "user alice"].iter().all(|word| message.contains(word)), "{message}");
    assert!(!message.contains("delete"), "{message}");
}

#[test]
fn s18_a_machine_that_lost_its_stamp_does_not_keep_the_others_from_being_kept_in_step() {
    let machines = || vec![stamped(Stamp::Missing), up("m2", &["10.0.0.2"]), up("m3", &["10.0.0.3"])];
    let plan = decide(&moved(settled(&["10.0.0.1", "10.0.0.2"], machines())), now());
    assert!(matches!(plan.effect, Some(Effect::UpdateDnsRecord { .. })), "{plan:?}");
    // A record that is not noted yet may be anybody's.
    let plan = decide(&of_the_go_provider(&["10.0.0.1", "10.0.0.2"], machines()), now());
    assert_eq!((&plan.effect, plan.leaves_object()), (&None, true));
    assert_eq!(says(&plan, conditions::LOAD_BALANCER_READY), reasons::NOT_OUR_MACHINE);
}

#[test]
fn s18_a_machine_that_cannot_be_read_does_not_keep_the_others_from_being_kept_in_step() {
    let unread = || stamped(Stamp::Unknown("MAAS denied it".into()));
    let machines = || vec![unread(), up("m2", &["10.0.0.2"]), up("m3", &["10.0.0.3"])];
    let plan = decide(&moved(settled(&["10.0.0.1", "10.0.0.2"], machines())), now());
    assert!(matches!(plan.effect, Some(Effect::UpdateDnsRecord { .. })), "{plan:?}");
    // A record that is not noted yet may be anybody's.
    let plan = decide(&of_the_go_provider(&["10.0.0.1", "10.0.0.2"], machines()), now());
    assert_eq!((&plan.effect, plan.leaves_object()), (&None, true));
    assert_ne!(says(&plan, conditions::LOAD_BALANCER_READY), reasons::DNS_NAME_TAKEN);
}

#[test]
fn s18_an_address_that_is_bound_to_no_machine_is_that_of_a_stamped_machine_which_has_it_in_maas() {
    let resolving = |machine: Machine| {
        let mut observed = moved(settled(&["10.0.0.9"], vec![machine, up("m2", &["10.0.0.2"])]));
        observed.record = Lookup::Found(Record { bound: BTreeMap::new(), ..record(7, &["10.0.0.9"]) });
        observed.object.journal.owed = ips(&["10.0.0.9"]);
        decide(&observed, now())
    };
    let plan = resolving(up("m1", &["10.0.0.9"]));
    assert!(matches!(plan.effect, Some(Effect::UpdateDnsRecord { .. })), "{plan:?}");
    // The status lists it, and so do the addresses that are owed; MAAS knows nothing of it.
    let plan = resolving(Machine { stamp: Stamp::Own(BTreeSet::new()), ..up("m1", &["10.0.0.9"]) });
    assert_eq!((&plan.effect, plan.leaves_object()), (&None, true));
    assert_eq!(says(&plan, conditions::LOAD_BALANCER_READY), reasons::DNS_NAME_TAKEN);
}

#[test]
fn s25_a_claim_to_the_machines_counts_only_with_their_stamp() {
    let mut observed = moved(settled(&["10.0.0.1"], vec![stamped(Stamp::Anothers)]));
    observed.rivals = vec![Rival { machines: ["at-10.0.0.1".to_owned()].into(), ..rival() }];
    assert!(matches!(judge(&observed), Provenance::Doubtful(_)));
    // The victim, whose rival names the same machine and shows no stamp on it.
    let mut victim = moved(settled(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"])]));
    victim.rivals = vec![Rival { own: true, ..rival() }];
    assert_eq!(judge(&victim), Provenance::Own);
}

#[test]
fn s18_an_address_that_was_reserved_before_the_object_existed_is_left_and_named() {
    let mut observed = moved(settled(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"])]));
    observed.object.journal.owed = ips(&["10.0.0.9"]);
    observed.reserved = [(ip("10.0.0.9"), Lookup::Found(Reserved::Before))].into();
    let plan = decide(&observed, now());
    assert_eq!(plan.effect, None);
    assert_eq!(plan.patch.annotations[names::DNS_OWED_ANNOTATION], None, "a person decides");
    assert!(plan.events[0].warning && plan.events[0].message.contains("10.0.0.9"), "{plan:?}");
    let mut gone = deleted(Observed { machines: Lookup::Found(Vec::new()), record: Lookup::Absent, ..observed });
    assert_eq!((gone.finalizer, gone.events.pop().map(|event| event.warning)), (Finalizer::Remove, Some(true)));
}
