//! Deletion.

use capmaas_api::{conditions, reasons};

use super::super::decide;
use super::super::journal::Source;
use super::super::observed::Refusal;
use super::super::plan::Effect;
use super::*;
use crate::plan::{Finalizer, Requeue};

fn ending(mut observed: Observed) -> Observed {
    observed.object.deleting = true;
    observed
}

fn waits_because(observed: &Observed) -> String {
    let plan = decide(observed, now());
    assert_eq!((&plan.effect, plan.finalizer), (&None, Finalizer::Keep));
    assert_ne!(plan.requeue, Requeue::NOW);
    reason(&plan.status.unwrap(), conditions::DELETING).to_owned()
}

#[test]
fn go14_while_machines_remain_their_addresses_can_leave_the_record() {
    let observed = ending(settled(&["10.0.0.1"], vec![leaving(up("m1", &["10.0.0.1"]))]));
    assert_eq!(decide(&observed, now()).effect, Some(Effect::UpdateDnsRecord { id: 7, addresses: ips(&[]) }));
    let observed = ending(settled(&[], vec![leaving(up("m1", &["10.0.0.1"]))]));
    assert_eq!(waits_because(&observed), reasons::MACHINES_REMAIN);
}

#[test]
fn go14_waiting_for_machines_looks_again_by_itself() {
    let observed = ending(settled(&[], vec![leaving(up("m1", &["10.0.0.1"]))]));
    assert!(decide(&observed, now()).requeue <= Requeue::seconds(60));
}

#[test]
fn go15_the_record_is_deleted_and_seen_gone_before_the_finalizer_goes() {
    let mut observed = ending(settled(&[], vec![]));
    let plan = decide(&observed, now());
    assert_eq!((plan.effect, plan.finalizer), (Some(Effect::DeleteDnsRecord { id: 7 }), Finalizer::Keep));
    observed.record = Lookup::Absent;
    let plan = decide(&observed, now());
    assert_eq!((plan.effect, plan.finalizer), (None, Finalizer::Remove));
}

#[test]
fn s18_only_the_record_whose_number_we_stored_is_deleted() {
    let mut observed = ending(settled(&["10.0.0.1"], vec![]));
    observed.object.journal.record = Some(6);
    let plan = decide(&observed, now());
    assert_eq!((plan.effect, plan.finalizer), (None, Finalizer::Remove));
}

#[test]
fn s18_a_record_of_the_go_provider_is_emptied_and_left() {
    let mut observed = ending(settled(&["10.0.0.1"], vec![leaving(up("m1", &["10.0.0.1"]))]));
    observed.object.journal.source = Some(Source::Adopted);
    (observed.object.journal.asked, observed.object.name_is_from_uid) = (None, false);
    assert_eq!(decide(&observed, now()).effect, Some(Effect::UpdateDnsRecord { id: 7, addresses: ips(&[]) }));
    observed.machines = Lookup::Found(Vec::new());
    observed.record = Lookup::Found(record(7, &[]));
    let plan = decide(&observed, now());
    assert_eq!((&plan.effect, plan.finalizer), (&None, Finalizer::Remove));
    assert_eq!(plan.events[0].reason, "DNSRecordLeft");
}

#[test]
fn s24_a_go_object_that_is_deleted_before_we_ever_saw_it_is_let_go_the_same_way() {
    let mut observed = ending(settled(&["10.0.0.1"], vec![leaving(up("m1", &["10.0.0.1"]))]));
    (observed.object.journal, observed.object.name_is_from_uid) = (Journal::default(), false);
    observed.identity = Ok(Known { standing: Standing::First, ..known() });
    let plan = decide(&observed, now());
    assert_eq!((&plan.effect, plan.patch.annotations.len()), (&None, 3), "what was proven is noted: {plan:?}");
    observed.object.journal =
        Journal { source: Some(Source::Adopted), name: Some(NAME.into()), record: Some(7), ..Journal::default() };
    assert_eq!(decide(&observed, now()).effect, Some(Effect::UpdateDnsRecord { id: 7, addresses: ips(&[]) }));
}

#[test]
fn s02_a_record_that_was_asked_for_a_moment_ago_may_still_appear() {
    let mut observed = ending(settled(&[], vec![]));
    observed.object.journal.record = None;
    observed.record = Lookup::Absent;
    let plan = decide(&observed, later(100));
    assert_eq!(plan.requeue, Requeue::seconds(50));
    assert_eq!(plan.finalizer, Finalizer::Keep);
    assert_eq!(decide(&observed, later(150)).finalizer, Finalizer::Remove);
}

#[test]
fn a_record_whose_number_was_lost_is_noted_and_then_deleted() {
    let mut observed = ending(settled(&[], vec![]));
    observed.object.journal.record = None;
    let plan = decide(&observed, now());
    assert_eq!((&plan.effect, plan.patch.annotations.len()), (&None, 1));
    assert_eq!(plan.requeue, Requeue::NOW);
}

#[test]
fn s01_the_finalizer_stays_while_nobody_knows_whether_something_is_left() {
    let mut away = ending(settled(&[], vec![]));
    away.record = Lookup::Unknown("MAAS is away".into());
    assert_eq!(waits_because(&away), reasons::MAAS_UNAVAILABLE);
    let mut no_machines_known = ending(settled(&[], vec![]));
    no_machines_known.machines = Lookup::Unknown("the API server is away".into());
    assert_eq!(waits_because(&no_machines_known), reasons::MACHINES_REMAIN);
    let mut without = ending(settled(&[], vec![]));
    without.identity = Err(Refusal { reason: reasons::CREDENTIALS_INVALID, message: "there are none".into() });
    assert_eq!(waits_because(&without), reasons::CREDENTIALS_INVALID);
}

#[test]
fn s05_a_changed_identity_does_not_prove_that_the_record_is_gone() {
    let mut observed = ending(settled(&[], vec![]));
    observed.identity = Ok(changed());
    observed.record = Lookup::Absent;
    assert_eq!(waits_because(&observed), reasons::IDENTITY_CHANGED);
    observed.record = Lookup::Found(record(7, &[]));
    assert_eq!(decide(&observed, now()).effect, Some(Effect::DeleteDnsRecord { id: 7 }));
}

#[test]
fn s05_a_changed_identity_may_prove_itself_while_the_cluster_is_being_deleted() {
    let mut observed = ending(settled(&[], vec![leaving(up("m1", &["10.0.0.1"]))]));
    observed.identity = Ok(changed());
    observed.object.journal.identity = Some("http://other/MAAS#admin".into());
    assert_eq!(waits_because(&observed), reasons::MACHINES_REMAIN);
    observed.sees_a_machine = true;
    let plan = decide(&observed, now());
    let noted = plan.patch.annotations[crate::credentials::IDENTITY_ANNOTATION].clone();
    assert_eq!((noted, plan.effect), (Some(known().name.to_string()), None));
}

#[test]
fn without_credentials_what_made_nothing_in_maas_goes() {
    let refused = || Err(Refusal { reason: reasons::CREDENTIALS_INVALID, message: "there are none".into() });
    let mut users = ending(settled(&[], vec![]));
    users.object.journal = Journal { source: Some(Source::User), ..Journal::default() };
    let mut nothing_made = ending(settled(&[], vec![]));
    nothing_made.object.journal = Journal { source: Some(Source::Dns), name: Some(NAME.into()), ..Journal::default() };
    for mut observed in [users, nothing_made] {
        observed.identity = refused();
        observed.record = Lookup::Unknown("nobody to ask".into());
        assert_eq!(decide(&observed, now()).finalizer, Finalizer::Remove);
    }
}

#[test]
fn s18_what_the_record_left_reserved_is_given_back_before_the_finalizer_goes() {
    let mut observed = ending(settled(&[], vec![]));
    observed.record = Lookup::Absent;
    observed.object.journal.owed = ips(&["10.0.0.9"]);
    observed.reserved.insert(ip("10.0.0.9"), Lookup::Found(Reserved::ForUs));
    let plan = decide(&observed, now());
    assert_eq!(plan.effect, Some(Effect::ReleaseAddress { address: ip("10.0.0.9") }));
    assert_eq!(plan.finalizer, Finalizer::Keep);
    observed.reserved.insert(ip("10.0.0.9"), Lookup::Unknown("away".into()));
    assert_eq!(waits_because(&observed), reasons::DELETING);
    observed.reserved.insert(ip("10.0.0.9"), Lookup::Absent);
    assert_eq!(decide(&observed, now()).finalizer, Finalizer::Remove);
}

#[test]
fn s13_an_object_whose_cluster_is_gone_is_let_go_like_any_other() {
    let mut observed = ending(settled(&[], vec![]));
    observed.owner = Lookup::Absent;
    assert_eq!(decide(&observed, now()).effect, Some(Effect::DeleteDnsRecord { id: 7 }));
}

#[test]
fn what_was_made_before_somebody_else_took_over_is_let_go() {
    let mut observed = ending(settled(&[], vec![]));
    observed.object.managed_elsewhere = true;
    assert_eq!(decide(&observed, now()).effect, Some(Effect::DeleteDnsRecord { id: 7 }));
}

#[test]
fn a_vanished_record_stays_gone_while_the_object_is_being_deleted() {
    let mut observed = ending(settled(&[], vec![up("m1", &["10.0.0.1"])]));
    observed.record = Lookup::Absent;
    assert_eq!(waits_because(&observed), reasons::MACHINES_REMAIN);
}
