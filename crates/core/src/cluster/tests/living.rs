//! Creation and normal operation.

use capmaas_api::failure_domains::FailureDomains;
use capmaas_api::{ConditionStatus, Conditions as _, conditions, names, reasons};

use super::super::decide;
use super::super::journal::Source;
use super::super::observed::{ApiServer, Contract, Machine, Refusal};
use super::super::plan::Effect;
use super::*;
use crate::backoff::Trouble;
use crate::plan::{Finalizer, Requeue};

#[test]
fn go15_the_name_is_written_down_before_the_record_is_made_and_with_everything_else_at_once() {
    let plan = decide(&fresh(), now());
    assert_eq!(plan.effect, None);
    assert_eq!(plan.finalizer, Finalizer::Add);
    let endpoint = plan.patch.endpoint.as_ref().unwrap();
    assert_eq!((endpoint.host.as_str(), endpoint.port), (NAME, 6443));
    assert_eq!(plan.patch.annotations[names::DNS_NAME_ANNOTATION].as_deref(), Some(NAME));
    assert_eq!(plan.patch.annotations[names::ENDPOINT_SOURCE_ANNOTATION].as_deref(), Some("dns"));
    assert_eq!(plan.requeue, Requeue::NOW);
}

#[test]
fn go15_a_name_that_is_written_down_is_never_drawn_again() {
    let mut observed = settled(&[], vec![]);
    observed.object.journal.record = None;
    observed.candidate = Lookup::Found("c1-ffffff.maas".into());
    observed.record = Lookup::Absent;
    let plan = decide(&observed, now());
    assert_eq!(plan.effect, Some(Effect::CreateDnsRecord { name: NAME.into(), addresses: ips(&[]) }));
    assert_eq!(plan.patch.endpoint, None);
}

#[test]
fn s02_the_time_of_asking_is_written_down_before_the_record_is_asked_for() {
    let mut observed = settled(&[], vec![]);
    (observed.object.journal.record, observed.object.journal.asked) = (None, None);
    observed.record = Lookup::Absent;
    let plan = decide(&observed, later(60));
    assert!(matches!(plan.effect, Some(Effect::CreateDnsRecord { .. })));
    assert_eq!(plan.patch.annotations[names::DNS_ASKED_ANNOTATION], Some(later(60).to_string()));
}

#[test]
fn the_number_of_a_record_whose_answer_was_lost_is_noted_when_it_is_seen() {
    let mut observed = settled(&[], vec![]);
    observed.object.journal.record = None;
    let plan = decide(&observed, now());
    assert_eq!((plan.effect, plan.patch.annotations[names::DNS_RECORD_ANNOTATION].as_deref()), (None, Some("7")));
}

#[test]
fn s18_a_record_that_somebody_else_made_is_left_alone() {
    let machines = vec![up("m1", &["10.0.0.1"])];
    let mut other = settled(&[], machines.clone());
    other.object.journal.record = Some(6);
    let mut never_asked = settled(&[], machines);
    (never_asked.object.journal.record, never_asked.object.journal.asked) = (None, None);
    for observed in [other, never_asked] {
        let plan = decide(&observed, now());
        assert_eq!((&plan.effect, plan.leaves_object()), (&None, true));
        assert_eq!(reason(&plan.status.unwrap(), conditions::LOAD_BALANCER_READY), reasons::DNS_NAME_TAKEN);
    }
}

#[test]
fn all_names_taken_is_said_and_nothing_is_made() {
    let mut observed = settled(&[], vec![]);
    observed.object.journal.name = None;
    (observed.object.journal.record, observed.object.journal.asked) = (None, None);
    observed.object.spec.control_plane_endpoint = None;
    observed.candidate = Lookup::Absent;
    let plan = decide(&observed, now());
    assert_eq!(plan.effect, None);
    assert_eq!(reason(plan.status.as_ref().unwrap(), conditions::LOAD_BALANCER_READY), reasons::DNS_NAME_TAKEN);
    assert!(!plan.status.unwrap().ready);
}

#[test]
fn s18_published_are_control_planes_that_are_deployed_powered_and_not_being_deleted() {
    let state = |state: &str| Machine { state: Some(state.into()), ..up("x", &["10.0.0.9"]) };
    for (machine, counts) in [
        (up("x", &["10.0.0.9"]), true),
        (state("Deploying"), false),
        (state("Broken"), false),
        (state("Rescue mode"), false),
        (Machine { powered: false, ..up("x", &["10.0.0.9"]) }, false),
        (Machine { control_plane: false, ..up("x", &["10.0.0.9"]) }, false),
        (leaving(up("x", &["10.0.0.9"])), false),
    ] {
        let observed = settled(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"]), machine.clone()]);
        let effect = decide(&observed, now()).effect;
        let expected = Effect::UpdateDnsRecord { id: 7, addresses: ips(&["10.0.0.1", "10.0.0.9"]) };
        assert_eq!(effect, counts.then_some(expected), "{machine:?}");
    }
}

#[test]
fn go30_no_write_without_a_difference() {
    let observed = settled(&["10.0.0.1", "10.0.0.2"], vec![up("m2", &["10.0.0.2"]), up("m1", &["10.0.0.1"])]);
    assert_eq!(decide(&observed, now()).effect, None);
}

#[test]
fn s18_an_address_leaves_when_its_machine_is_being_deleted_or_is_off() {
    for gone in [leaving(up("m2", &["10.0.0.2"])), Machine { powered: false, ..up("m2", &["10.0.0.2"]) }] {
        let observed = settled(&["10.0.0.1", "10.0.0.2"], vec![up("m1", &["10.0.0.1"]), gone]);
        let expected = Effect::UpdateDnsRecord { id: 7, addresses: ips(&["10.0.0.1"]) };
        assert_eq!(decide(&observed, now()).effect, Some(expected));
    }
}

#[test]
fn go15_all_off_does_not_wipe_the_record() {
    let off = |name, address| Machine { powered: false, ..up(name, &[address]) };
    let observed = settled(&["10.0.0.1", "10.0.0.2"], vec![off("m1", "10.0.0.1"), off("m2", "10.0.0.2")]);
    assert_eq!(decide(&observed, now()).effect, None);
    let one_leaves = vec![off("m1", "10.0.0.1"), leaving(off("m2", "10.0.0.2"))];
    let observed = settled(&["10.0.0.1", "10.0.0.2"], one_leaves);
    let expected = Effect::UpdateDnsRecord { id: 7, addresses: ips(&["10.0.0.1"]) };
    assert_eq!(decide(&observed, now()).effect, Some(expected));
}

#[test]
fn s11_the_name_leads_to_the_last_hosts_until_they_ask_to_leave_it() {
    let host = |name, address| Machine { needs_the_name: true, ..leaving(up(name, &[address])) };
    let record = ["10.0.0.1", "10.0.0.2"];
    let effect = |machines| decide(&settled(&record, machines), now()).effect;
    let only = |address| Some(Effect::UpdateDnsRecord { id: 7, addresses: ips(&[address]) });
    assert_eq!(effect(vec![host("m1", "10.0.0.1"), host("m2", "10.0.0.2")]), None);
    assert_eq!(
        effect(vec![leaving(up("m1", &["10.0.0.1"])), host("m2", "10.0.0.2")]),
        only("10.0.0.2"),
        "one has asked"
    );
    let off = Machine { powered: false, ..host("m1", "10.0.0.1") };
    assert_eq!(effect(vec![off, host("m2", "10.0.0.2")]), only("10.0.0.2"), "no agent runs on it");
    assert_eq!(
        effect(vec![up("m1", &["10.0.0.1"]), host("m2", "10.0.0.2")]),
        only("10.0.0.1"),
        "one stays and has the API"
    );
}

#[test]
fn s18_the_last_control_plane_leaves_an_empty_record() {
    let observed = settled(&["10.0.0.1"], vec![leaving(up("m1", &["10.0.0.1"]))]);
    assert_eq!(decide(&observed, now()).effect, Some(Effect::UpdateDnsRecord { id: 7, addresses: ips(&[]) }));
}

#[test]
fn s15_a_move_takes_no_address_away_although_every_status_is_lost() {
    let unseen = |name| Machine { state: None, powered: false, ..up(name, &[]) };
    let all = settled(&["10.0.0.1", "10.0.0.2"], vec![unseen("m1"), unseen("m2")]);
    let half = settled(&["10.0.0.1", "10.0.0.2"], vec![up("m1", &["10.0.0.1"]), unseen("m2")]);
    let none_listed = settled(&["10.0.0.1", "10.0.0.2"], vec![]);
    for observed in [all, half, none_listed] {
        let plan = decide(&observed, now());
        assert_eq!((&plan.effect, plan.leaves_object()), (&None, true));
        assert!(plan.status.unwrap().ready, "the notes alone tell that it is provisioned");
    }
}

#[test]
fn go15_preferred_subnets_come_from_the_spec_or_the_config_map_and_count_for_all_addresses() {
    let machines = vec![up("m1", &["172.16.0.1", "10.0.0.1", "192.168.0.1"])];
    let mut observed = settled(&[], machines);
    let published = |observed: &Observed| match decide(observed, now()).effect {
        Some(Effect::UpdateDnsRecord { addresses, .. }) => addresses,
        _ => BTreeSet::new(),
    };
    assert_eq!(published(&observed), ips(&["172.16.0.1"]));
    observed.preferred = Lookup::Found("203.0.113.0/24, 10.0.0.0/8".into());
    assert_eq!(published(&observed), ips(&["10.0.0.1"]));
    observed.object.spec.preferred_subnets = vec!["192.168.0.0/24".into()];
    assert_eq!(published(&observed), ips(&["192.168.0.1"]));
    observed.object.spec.preferred_subnets = vec!["203.0.113.0/24".into()];
    assert_eq!(published(&observed), ips(&[]));
    let status = decide(&observed, now()).status.unwrap();
    assert!(condition(&status, conditions::LOAD_BALANCER_READY).message.as_ref().unwrap().contains("m1"));
}

#[test]
fn s01_preferred_subnets_that_cannot_be_read_change_nothing() {
    let mut observed = settled(&["10.0.0.1"], vec![up("m1", &["172.16.0.1", "10.0.0.1"]), up("m2", &["10.0.0.2"])]);
    observed.preferred = Lookup::Unknown("forbidden".into());
    assert_eq!(decide(&observed, now()).effect, None);
}

#[test]
fn s18_an_address_that_maas_does_not_know_is_written_down_as_owed_before_it_is_published() {
    let mut observed = settled(&[], vec![up("m1", &["10.0.0.1"])]);
    observed.unknown_to_maas = ips(&["10.0.0.1"]);
    let plan = decide(&observed, now());
    assert!(plan.effect.is_some());
    assert_eq!(plan.patch.annotations[names::DNS_OWED_ANNOTATION].as_deref(), Some("10.0.0.1"));
}

#[test]
fn s18_an_owed_address_is_given_back_when_neither_record_nor_machine_has_it() {
    let owing = |addresses: &[&str], machines| {
        let mut observed = settled(addresses, machines);
        observed.object.journal.owed = ips(&["10.0.0.9"]);
        observed.reserved.insert(ip("10.0.0.9"), Lookup::Found(Reserved::ForUs));
        observed
    };
    let gone = owing(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"])]);
    assert_eq!(decide(&gone, now()).effect, Some(Effect::ReleaseAddress { address: ip("10.0.0.9") }));
    let off = Machine { powered: false, ..up("m9", &["10.0.0.9"]) };
    let in_use = owing(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"]), off]);
    assert_eq!(decide(&in_use, now()).effect, None);
    let mut given = owing(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"])]);
    given.reserved.insert(ip("10.0.0.9"), Lookup::Absent);
    assert_eq!(decide(&given, now()).patch.annotations[names::DNS_OWED_ANNOTATION], None);
}

#[test]
fn a_record_that_vanished_is_made_anew_and_is_ours_then() {
    let mut observed = settled(&[], vec![up("m1", &["10.0.0.1"])]);
    observed.object.journal.source = Some(Source::Adopted);
    observed.object.journal.record = None;
    observed.record = Lookup::Absent;
    let plan = decide(&observed, now());
    assert_eq!(plan.effect, Some(Effect::CreateDnsRecord { name: NAME.into(), addresses: ips(&["10.0.0.1"]) }));
    assert_eq!(plan.patch.annotations[names::ENDPOINT_SOURCE_ANNOTATION].as_deref(), Some("dns"));
}

#[test]
fn s24_taking_over_from_the_go_provider_changes_nothing_in_maas() {
    let mut observed = settled(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"])]);
    (observed.object.journal, observed.object.name_is_from_uid) = (Journal::default(), false);
    observed.identity = Ok(Known { standing: Standing::First, ..known() });
    let plan = decide(&observed, now());
    assert_eq!((&plan.effect, plan.patch.endpoint.as_ref(), plan.finalizer), (&None, None, Finalizer::Keep));
    assert_eq!(plan.patch.annotations[names::ENDPOINT_SOURCE_ANNOTATION].as_deref(), Some("adopted"));
    observed.object.journal = Journal {
        source: Some(Source::Adopted),
        name: Some(NAME.into()),
        identity: Some(known().name.to_string()),
        written_for: Some(itself()),
        ..Journal::default()
    };
    observed.identity = Ok(known());
    let plan = decide(&observed, now());
    assert_eq!((&plan.effect, plan.patch.annotations[names::DNS_RECORD_ANNOTATION].as_deref()), (&None, Some("7")));
    observed.object.journal.record = Some(7);
    let plan = decide(&observed, now());
    assert_eq!((&plan.effect, plan.leaves_object()), (&None, true));
    assert!(plan.status.unwrap().ready);
}

#[test]
fn go15_an_endpoint_of_the_user_is_never_fed_to_maas() {
    let mut observed = fresh();
    let Lookup::Found(owner) = &mut observed.owner else { panic!() };
    (owner.host, owner.port) = (Some("vip.example".into()), Some(8443));
    let plan = decide(&observed, now());
    assert_eq!(plan.patch.annotations[names::ENDPOINT_SOURCE_ANNOTATION].as_deref(), Some("user"));
    assert_eq!(plan.patch.endpoint.clone().unwrap().usable(), Some(("vip.example", 8443)));

    observed.object.finalizer = true;
    observed.object.spec.control_plane_endpoint = plan.patch.endpoint;
    observed.object.journal.source = Some(Source::User);
    observed.object.journal.written_for = Some(itself());
    observed.object.journal.identity = Some(known().name.to_string());
    observed.machines = Lookup::Found(vec![up("m1", &["10.0.0.1"])]);
    observed.record = Lookup::Absent;
    let plan = decide(&observed, now());
    assert_eq!((&plan.effect, plan.leaves_object()), (&None, true));
    let status = plan.status.unwrap();
    assert_eq!(reason(&status, conditions::LOAD_BALANCER_READY), reasons::CUSTOM_ENDPOINT);
    assert!(status.ready && status.initialization.unwrap().provisioned == Some(true));
}

#[test]
fn s01_maas_that_does_not_answer_changes_nothing_and_takes_nothing_back() {
    let mut observed = settled(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"])]);
    observed.object.status = decide(&observed, now()).status.unwrap();
    observed.machines = Lookup::Found(vec![up("m1", &["10.0.0.1"]), up("m2", &["10.0.0.2"])]);
    observed.record = Lookup::Unknown("MAAS is away".into());
    let by_record = decide(&observed, later(10));
    observed.identity = Err(Refusal { reason: reasons::MAAS_UNAVAILABLE, message: "MAAS is away".into() });
    let by_identity = decide(&observed, later(10));
    for plan in [by_record, by_identity] {
        assert_eq!((&plan.effect, plan.leaves_object()), (&None, true));
        let status = plan.status.unwrap_or_else(|| observed.object.status.clone());
        assert!(status.ready);
        assert_eq!(condition(&status, conditions::LOAD_BALANCER_READY).status, ConditionStatus::True);
    }
}

#[test]
fn credentials_that_are_missing_are_said_in_a_condition_and_sum_up() {
    let mut observed = settled(&[], vec![]);
    observed.identity = Err(Refusal { reason: reasons::CREDENTIALS_INVALID, message: "there are none".into() });
    let status = decide(&observed, now()).status.unwrap();
    assert_eq!(condition(&status, conditions::CREDENTIALS_VALID).status, ConditionStatus::False);
    assert_eq!(ready_reason(&status), reasons::CREDENTIALS_INVALID);
}

fn identity_changed(mut observed: Observed) -> Observed {
    observed.identity = Ok(changed());
    observed.object.journal.identity = Some("http://other/MAAS#admin".into());
    observed
}

#[test]
fn s05_after_a_change_of_identity_nothing_is_made_until_something_of_ours_was_seen() {
    let mut observed = identity_changed(settled(&[], vec![up("m1", &["10.0.0.1"])]));
    observed.record = Lookup::Absent;
    let plan = decide(&observed, now());
    assert_eq!((&plan.effect, plan.leaves_object()), (&None, true));
    assert_eq!(reason(&plan.status.unwrap(), conditions::CREDENTIALS_VALID), reasons::IDENTITY_CHANGED);

    // The very record proves nothing about the machines: everybody can read DNS names, but not machines.
    observed.record = Lookup::Found(record(7, &["10.0.0.1"]));
    let plan = decide(&observed, now());
    assert_eq!((plan.leaves_object(), plan.requeue), (true, Requeue::seconds(15)));
    observed.sees_a_machine = true;
    let plan = decide(&observed, now());
    let noted = plan.patch.annotations[crate::credentials::IDENTITY_ANNOTATION].clone();
    assert_eq!(noted, Some(known().name.to_string()));
}

#[test]
fn s05_without_machines_the_record_is_proof_enough() {
    let mut observed = identity_changed(settled(&[], vec![]));
    assert!(!decide(&observed, now()).leaves_object());
    observed.record = Lookup::Found(record(8, &[]));
    assert!(decide(&observed, now()).leaves_object());
}

#[test]
fn s05_a_vm_that_is_owed_must_be_seen_before_another_identity_is_believed() {
    let mut observed = identity_changed(settled(&[], vec![]));
    observed.object.owes = true;
    assert!(decide(&observed, now()).leaves_object());
    observed.sees_a_machine = true;
    assert!(!decide(&observed, now()).leaves_object());
}

#[test]
fn an_effect_that_failed_is_told_and_tried_again_after_a_while() {
    let mut observed = settled(&[], vec![up("m1", &["10.0.0.1"])]);
    let effect = decide(&observed, now()).effect.unwrap();
    observed.troubles = vec![(effect.clone(), Trouble { message: "MAAS denied it".into(), retry_at: later(20) })];
    let plan = decide(&observed, now());
    assert_eq!((&plan.effect, plan.requeue), (&None, Requeue::seconds(20)));
    assert_eq!(reason(&plan.status.unwrap(), conditions::LOAD_BALANCER_READY), reasons::LOAD_BALANCER_FAILED);
    assert!(decide(&observed, later(20)).effect.is_some());
    let another = Effect::ReleaseAddress { address: "10.0.0.9".parse().unwrap() };
    observed.troubles[0].0 = another.clone();
    assert!(decide(&observed, now()).effect.is_some(), "what failed was something else (S26)");
    let denied = Trouble { message: "MAAS denied it".into(), retry_at: later(20) };
    observed.troubles = vec![(effect, denied.clone()), (another, denied)];
    assert_eq!(decide(&observed, now()).effect, None, "each of them waits");
}

#[test]
fn s15_nothing_is_done_about_a_paused_object_but_saying_so() {
    let mut by_annotation = fresh();
    by_annotation.object.paused = true;
    let mut by_cluster = fresh();
    let Lookup::Found(owner) = &mut by_cluster.owner else { panic!() };
    owner.paused = true;
    let mut deleting = settled(&[], vec![]);
    (deleting.object.paused, deleting.object.deleting) = (true, true);
    for observed in [by_annotation, by_cluster, deleting] {
        let plan = decide(&observed, now());
        assert_eq!((&plan.effect, plan.leaves_object()), (&None, true));
        let status = plan.status.unwrap();
        assert_eq!(status.conditions.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>(), [conditions::PAUSED]);
    }
}

#[test]
fn go16_a_pause_that_cannot_be_read_is_no_leave_to_act() {
    let mut observed = settled(&[], vec![up("m1", &["10.0.0.1"])]);
    observed.owner = Lookup::Unknown("forbidden".into());
    assert!(decide(&observed, now()).is_idle());
}

#[test]
fn s15_nothing_at_all_is_done_about_an_object_that_is_being_moved_or_managed_by_somebody_else() {
    let mut moving = settled(&["10.0.0.1"], vec![]);
    (moving.object.moving, moving.object.deleting) = (true, true);
    let mut managed = fresh();
    managed.object.managed_elsewhere = true;
    for observed in [moving, managed] {
        assert!(decide(&observed, now()).is_idle());
    }
}

#[test]
fn an_object_without_a_cluster_waits_without_a_finalizer() {
    let mut observed = fresh();
    observed.owner = Lookup::Absent;
    let plan = decide(&observed, now());
    assert!(plan.leaves_object());
    assert_eq!(ready_reason(&plan.status.unwrap()), reasons::WAITING_FOR_OWNER);
}

#[test]
fn s08_what_cannot_be_read_is_left_alone() {
    let mut spec = settled(&[], vec![up("m1", &["10.0.0.1"])]);
    spec.object.spec.unreadable = vec!["controlPlaneEndpoint".into()];
    let mut journal = settled(&[], vec![up("m1", &["10.0.0.1"])]);
    journal.object.journal.unreadable = vec![names::DNS_RECORD_ANNOTATION.into()];
    for observed in [spec, journal] {
        let plan = decide(&observed, now());
        assert_eq!((&plan.effect, plan.leaves_object()), (&None, true));
        assert_eq!(ready_reason(&plan.status.unwrap()), reasons::UNREADABLE_SPEC);
    }
}

#[test]
fn a_finalizer_that_was_stripped_comes_back_and_nothing_else_changes() {
    let mut observed = settled(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"])]);
    observed.object.finalizer = false;
    let plan = decide(&observed, now());
    assert_eq!(plan.finalizer, Finalizer::Add);
    assert!(plan.patch.annotations.is_empty() && plan.patch.endpoint.is_none());
}

#[test]
fn failure_domains_have_the_shape_that_the_core_reads() {
    let mut observed = settled(&[], vec![]);
    observed.object.spec.failure_domains = vec!["az2".into(), "az1".into(), "az2".into()];
    let published = |observed: &Observed| decide(observed, now()).status.unwrap().failure_domains;
    let Some(FailureDomains::List(list)) = published(&observed) else { panic!() };
    let named: Vec<_> = list.iter().map(|domain| (domain.name.as_str(), domain.details.control_plane)).collect();
    assert_eq!(named, [("az2", Some(true)), ("az1", Some(true))]);
    observed.contract = Contract::Map;
    assert!(matches!(published(&observed), Some(FailureDomains::Map(map)) if map.len() == 2));
    observed.object.spec.failure_domains.clear();
    assert_eq!(published(&observed), None, "no zones are no field");
}

#[test]
fn discovered_failure_domains_stay_while_maas_does_not_answer_and_follow_the_core() {
    let mut observed = settled(&[], vec![]);
    observed.object.spec.discover_failure_domains = Some(true);
    observed.usable_zones = Some(Lookup::Found(BTreeSet::from(["az1".to_owned(), "az2".to_owned()])));
    observed.object.status = decide(&observed, now()).status.unwrap();
    observed.usable_zones = Some(Lookup::Unknown("away".into()));
    assert_eq!(decide(&observed, now()).status, None);
    observed.contract = Contract::Map;
    let status = decide(&observed, now()).status.unwrap();
    assert!(matches!(status.failure_domains, Some(FailureDomains::Map(map)) if map.len() == 2));
}

#[test]
fn a_zone_that_maas_does_not_have_is_named() {
    let mut observed = settled(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"])]);
    observed.api_server = ApiServer::Answers;
    observed.object.spec.failure_domains = vec!["az1".into(), "az9".into()];
    observed.zones = Some(Lookup::Found(BTreeSet::from(["az1".to_owned()])));
    let status = decide(&observed, now()).status.unwrap();
    assert_eq!(ready_reason(&status), reasons::ZONE_NOT_FOUND);
    assert!(condition(&status, conditions::READY).message.as_ref().unwrap().ends_with(": az9"));
}

#[test]
fn go30_an_api_server_is_asked_every_half_minute_until_it_answers_and_then_only_on_events() {
    let mut observed = settled(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"])]);
    observed.api_server = ApiServer::Silent("connection refused".into());
    let plan = decide(&observed, now());
    assert_eq!(plan.requeue, Requeue::seconds(30));
    assert_eq!(reason(&plan.status.unwrap(), conditions::API_SERVER_AVAILABLE), reasons::API_SERVER_NOT_READY);
    observed.api_server = ApiServer::Answers;
    let plan = decide(&observed, now());
    assert_eq!(plan.requeue, Requeue::seconds(1800));
    let status = plan.status.unwrap();
    assert_eq!(ready_reason(&status), reasons::READY);
    observed.object.status = status;
    observed.api_server = ApiServer::NotAsked;
    assert!(decide(&observed, later(5)).is_idle());
}

#[test]
fn conditions_of_other_writers_are_not_ours_to_write() {
    let mut observed = settled(&[], vec![]);
    let stored = serde_json::from_value(serde_json::json!({ "type": "BackedUp", "status": "True" })).unwrap();
    observed.object.status.conditions = vec![stored];
    assert!(decide(&observed, now()).status.unwrap().conditions.condition("BackedUp").is_none());
}
