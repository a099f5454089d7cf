//! Metal that becomes an LXD host.

use super::super::*;
use super::fixture::*;
use crate::Lookup;
use crate::hosts::bridge::Interface;

fn becoming_a_host() -> Observed {
    let mut observed = fresh().with_record(&on_record());
    observed.maas_cluster = Lookup::Found(Surroundings { keeps_dns: true, bridge: Ok(Some(br0())) });
    observed
}

#[test]
fn the_bridge_is_made_after_everything_else_and_right_before_the_deployment() {
    let bare = Metal { swap_off: false, ..metal(State::Allocated) };
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
        Lookup::Found(Surroundings { keeps_dns: true, bridge: Err("the two switches disagree".into()) });
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
    let said = status.conditions.iter().find(|condition| condition.type_ == "MachineDeployed").unwrap();
    assert_eq!(said.reason.as_deref(), Some("BridgeFailed"));
    assert!(said.message.as_ref().unwrap().contains("403"));
    assert_eq!(conclusion.record, None);
}

#[test]
fn a_machine_that_runs_already_gets_no_bridge() {
    let observed = becoming_a_host().provisioned().seeing(metal(State::Deployed));
    assert_ne!(effect(&decide(&observed, now())), "create_bridge");
}
