//! Bare metal that becomes an LXD host.

use super::super::*;
use super::fixture::*;
use crate::Lookup;
use crate::hosts::bridge::Interface;
use crate::hosts::leaving::{ASKED_ANNOTATION, AsHost, Note};
use crate::maas;
use crate::plan::{Finalizer, Refusal, Requeue};

fn becoming_a_host() -> Observed {
    let mut observed = fresh().with_journal(&with_machine());
    observed.maas_cluster = Lookup::Found(ClusterFacts { keeps_dns: true, bridge: Ok(Some(br0())) });
    observed
}

#[test]
fn the_bridge_is_made_after_everything_else_and_right_before_the_deployment() {
    let bare = maas::Machine { swap_off: false, ..metal(State::Allocated) };
    assert_eq!(effect(&decide(&becoming_a_host().seeing(bare), now())), "disable_swap");
    let plan = decide(&becoming_a_host().seeing(metal(State::Allocated)), now());
    let wanted = Effect::CreateBridge { machine: ID.into(), name: "br0".into(), parent: 1 };
    assert_eq!(plan.effect, Some(wanted));
    let mut bridged = metal(State::Allocated);
    bridged.network.interfaces[0].children.push("br0".into());
    let bridge = Interface { id: 2, name: "br0".into(), kind: "bridge".into(), children: Vec::new() };
    bridged.network.interfaces.push(bridge);
    assert_eq!(effect(&decide(&becoming_a_host().seeing(bridged), now())), "deploy");
}

#[test]
fn a_machine_is_not_deployed_while_it_is_not_known_whether_it_needs_a_bridge() {
    let mut observed = becoming_a_host().seeing(metal(State::Allocated));
    observed.maas_cluster = Lookup::Unknown("the API server is away".into());
    assert_eq!(effect(&decide(&observed, now())), "");
    observed.maas_cluster =
        Lookup::Found(ClusterFacts { keeps_dns: true, bridge: Err("the two switches disagree".into()) });
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), reason(&plan)), ("", "BridgeFailed"));
    assert!(plan.why.contains("the two switches disagree"), "{}", plan.why);
}

#[test]
fn a_bridge_that_maas_refuses_keeps_the_machine_and_says_why() {
    let observed = becoming_a_host().seeing(metal(State::Allocated));
    let plan = decide(&observed, now());
    let effect = plan.effect.clone().unwrap();
    let denied = Outcome::Refused(Refusal::Denied, "403 Forbidden".into());
    let conclusion = conclude(&observed, &plan, &effect, &denied, now());
    let status = conclusion.status.unwrap();
    let condition = status.conditions.iter().find(|condition| condition.type_ == "MachineDeployed").unwrap();
    assert_eq!(condition.reason.as_deref(), Some("BridgeFailed"));
    assert!(condition.message.as_ref().unwrap().contains("403"));
    assert_eq!(conclusion.journal, None);
}

#[test]
fn a_machine_that_runs_already_gets_no_bridge() {
    let observed = becoming_a_host().provisioned().seeing(metal(State::Deployed));
    assert_ne!(effect(&decide(&observed, now())), "create_bridge");
}

fn leaving() -> Observed {
    let mut observed = fresh().with_journal(&with_machine()).provisioned().deleting().seeing(metal(State::Deployed));
    observed.maas_cluster = Lookup::Found(ClusterFacts { keeps_dns: false, bridge: Ok(Some(br0())) });
    observed
}

#[test]
fn s11_a_host_is_not_released_while_vms_are_on_it_and_the_condition_names_them() {
    let mut observed = leaving();
    observed.as_host = as_host(false);
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), reason(&plan)), ("", "WaitingForVMsToLeave"));
    assert!(plan.why.contains("vm1 of cluster n/c2"), "{}", plan.why);
}

#[test]
fn go13_an_empty_host_is_looked_at_then_unregistered_and_only_then_released() {
    let mut observed = leaving();
    observed.as_host = as_host(true);
    let plan = decide(&observed, now());
    assert_eq!(effect(&plan), "look_at_host");
    let done = conclude(&observed, &plan, plan.effect.as_ref().unwrap(), &Outcome::Done(None), now());
    let journal = done.journal.unwrap();
    assert_eq!(
        journal.allocation.clone().unwrap().leaving,
        Some(Note { since: now(), clear: true, refreshed: Some(now()) })
    );
    let observed = observed.with_journal(&journal);
    assert_eq!(effect(&decide(&observed, later(2))), "unregister");
    let mut gone = observed;
    gone.as_host = AsHost::NoHost;
    assert_eq!(effect(&decide(&gone, later(4))), "release");
}

#[test]
fn s11_the_address_of_a_host_leaves_dns_when_it_is_none_any_more_so_that_its_agent_is_reached_till_then() {
    let mut observed = leaving();
    observed.maas_cluster = Lookup::Found(ClusterFacts { keeps_dns: true, bridge: Ok(Some(br0())) });
    observed.in_dns = Lookup::Found(true);
    observed.as_host = as_host(true);
    let plan = decide(&observed, now());
    assert_eq!(effect(&plan), "look_at_host");
    let mut gone = observed.with_journal(&plan.patch.journal.unwrap());
    gone.as_host = AsHost::NoHost;
    let plan = decide(&gone, later(4));
    assert_eq!((effect(&plan), reason(&plan)), ("", "DNSDetachPending"));
    gone.in_dns = Lookup::Found(false);
    assert_eq!(effect(&decide(&gone, later(8))), "release");
}

#[test]
fn s11_a_refresh_that_failed_unregisters_nothing() {
    let mut observed = leaving();
    observed.as_host = as_host(true);
    let plan = decide(&observed, now());
    let refused = Outcome::Refused(Refusal::Passing, "503: unreachable".into());
    let conclusion = conclude(&observed, &plan, plan.effect.as_ref().unwrap(), &refused, now());
    let journal = conclusion.journal.or(plan.patch.journal).unwrap();
    assert_eq!(journal.allocation.clone().unwrap().leaving.unwrap().refreshed, None);
    assert_eq!(effect(&decide(&observed.with_journal(&journal), later(30))), "look_at_host");
}

#[test]
fn s02_a_machine_whose_registration_may_still_land_is_not_released_yet() {
    let observed = leaving().with_annotation(ASKED_ANNOTATION, &later(-20).to_string());
    assert_eq!((effect(&decide(&observed, now())), reason(&decide(&observed, now()))), ("", "LeavingHost"));
    assert_eq!(effect(&decide(&observed, later(140))), "release");
    // It landed and was undone: nothing is awaited any more.
    let note = Note { since: later(-10), clear: true, refreshed: None };
    let journal = with_machine().noting(|it| it.leaving = Some(note));
    assert_eq!(effect(&decide(&observed.with_journal(&journal), now())), "release");
}

#[test]
fn s02_a_registration_time_that_cannot_be_read_counts_as_now_and_is_replaced() {
    for text in ["", "yesterday", "2026-11-15"] {
        let observed = leaving().with_annotation(ASKED_ANNOTATION, text);
        let plan = decide(&observed, now());
        assert_eq!((effect(&plan), reason(&plan), plan.finalizer), ("", "LeavingHost", Finalizer::Keep), "{text}");
        assert!(plan.why.contains(ASKED_ANNOTATION), "{}", plan.why);
        assert_eq!(plan.patch.asked, Some(now()), "{text}");
        let replaced = leaving().with_annotation(ASKED_ANNOTATION, &now().to_string());
        assert_eq!(effect(&decide(&replaced, later(149))), "");
        assert_eq!(effect(&decide(&replaced, later(150))), "release");
    }
}

#[test]
fn s11_a_machine_is_not_released_while_nobody_knows_whether_it_is_a_host() {
    for unknown in [AsHost::Unknown("MAAS is away".into()), AsHost::NotAsked] {
        let mut observed = leaving();
        observed.as_host = unknown;
        assert_eq!(effect(&decide(&observed, now())), "");
    }
}

#[test]
fn go11_hosts_wait_for_their_own_vms_and_nothing_that_is_remembered_of_one_pass_holds_up_the_next() {
    let mut observed = leaving();
    observed.as_host = as_host(false);
    let waiting = decide(&observed, now());
    assert_eq!(reason(&waiting), "WaitingForVMsToLeave");
    assert!(matches!(waiting.requeue, Requeue::After(_)), "nobody has to wake it");
    // A second host of the same namespace, empty, is neither blocked nor confused with the first.
    let mut second = leaving();
    second.as_host = as_host(true);
    assert_eq!(effect(&decide(&second, now())), "look_at_host");
    // Once its VMs are gone, the first continues from whatever the journal had while it waited.
    if let Some(journal) = &waiting.patch.journal {
        observed = observed.with_journal(journal);
    }
    observed.as_host = as_host(true);
    assert_eq!(effect(&decide(&observed, later(600))), "look_at_host");
}
