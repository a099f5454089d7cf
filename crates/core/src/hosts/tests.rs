//! Decisions about hosts, as tables and as properties over arbitrary observations.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::observed::{Agent, Host, Maker, Node, Pair, Place, Report, VmHost};
use super::plan::{Effect, Standing};
use super::{DesiredHosts, Observed, decide, note};
use crate::Lookup;
use crate::backoff::Trouble;
use crate::hosts::bridge::DesiredBridge;
use crate::registration::Call;

fn now() -> Timestamp {
    "2026-11-15T12:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn place(zone: &str, pool: &str) -> Place {
    Place { zone: zone.into(), pool: pool.into() }
}

fn report() -> Report {
    Report {
        state: "Ready".into(),
        message: "this node is a VM host for MAAS".into(),
        open: None,
        standalone: false,
        address: Some("https://10.0.0.7:8443".into()),
        certificate: Some("f00d".into()),
        earlier: Vec::new(),
        told: None,
        project: Some("maas".into()),
        instances: Some(Vec::new()),
        profiles: None,
    }
}

fn vm_host() -> VmHost {
    VmHost {
        id: 4,
        name: "n1".into(),
        machine: Some("abc123".into()),
        address: "https://10.0.0.7:8443".into(),
        project: "maas".into(),
        certificate: Some("f00d".into()),
        maker: Maker::Ours,
        reached: true,
        measured: true,
        place: place("az1", "default"),
        strangers: Lookup::Found(Vec::new()),
    }
}

/// Somebody else registered it, and MAAS reaches it.
fn foreign() -> Maker {
    Maker::Foreign { trusted: Lookup::Found(()) }
}

/// One control plane node whose agent is ready, and that MAAS does not know as a VM host.
fn prepared() -> Observed {
    let desired = DesiredHosts {
        storage_backend: "zfs".into(),
        storage_size: "50".into(),
        bridge: DesiredBridge { name: "br0".into(), parent: None, make: true },
        zone: None,
        pool: None,
    };
    let host = Host {
        name: "m1".into(),
        control_plane: true,
        provider_id: "maas://az1/abc123".into(),
        machine: "abc123".into(),
        stamped: true,
        place: Lookup::Found(place("az1", "default")),
        vm_host: Lookup::Absent,
        asked: Lookup::Absent,
    };
    let node = Node { name: "n1".into(), provider_id: Some("maas://az1/abc123".into()), report: Some(report()) };
    let mut observed = Observed {
        desired,
        image: Some("registry.example/lxd-initializer:v1".into()),
        manifest: "m1".into(),
        pair: Lookup::Found(Pair { certificate: "PEM".into(), fingerprint: "f00d".into() }),
        agent: Lookup::Absent,
        handed_over: Lookup::Found("PEM".into()),
        nodes: Lookup::Found(vec![node]),
        hosts: vec![host],
        awaited: Vec::new(),
        refreshed: BTreeMap::new(),
        trouble: BTreeMap::new(),
    };
    let applied = note(&observed, "registry.example/lxd-initializer:v1");
    observed.agent =
        Lookup::Found(Agent { applied: Some(applied), observed: true, desired: 1, updated: 1, ..Agent::default() });
    observed
}

fn with_vm_host(vm_host: VmHost) -> Observed {
    let mut observed = prepared();
    observed.hosts[0].vm_host = Lookup::Found(vm_host);
    observed
}

fn with_report(report: Report) -> Observed {
    let mut observed = prepared();
    let Lookup::Found(nodes) = &mut observed.nodes else { panic!() };
    nodes[0].report = Some(report);
    observed
}

fn effect(observed: &Observed) -> &'static str {
    decide(observed, now()).effect.as_ref().map_or("", Effect::name)
}

fn sentence(observed: &Observed) -> String {
    match decide(observed, now()).standing {
        Standing::Right => "right".into(),
        Standing::Pending(why) => format!("pending: {why}"),
        Standing::Failed(why) => format!("failed: {why}"),
    }
}

#[test]
fn the_steps_come_in_order_and_each_is_done_once() {
    let mut observed = prepared();
    observed.pair = Lookup::Absent;
    assert_eq!(effect(&observed), "make_pair");
    let mut observed = prepared();
    (observed.agent, observed.handed_over) = (Lookup::Absent, Lookup::Absent);
    assert_eq!(effect(&observed), "apply_agent");
    let mut observed = prepared();
    observed.handed_over = Lookup::Absent;
    assert_eq!(effect(&observed), "hand_over");
    assert_eq!(effect(&prepared()), "register");
    assert_eq!((effect(&with_vm_host(vm_host())), sentence(&with_vm_host(vm_host())).as_str()), ("", "right"));
}

#[test]
fn a_changed_setting_or_image_rolls_out_and_is_awaited() {
    for change in [
        |observed: &mut Observed| observed.desired.storage_size = "80".into(),
        |observed: &mut Observed| observed.desired.pool = Some("vms".into()),
        |observed: &mut Observed| observed.image = Some("registry.example/lxd-initializer:v2".into()),
        |observed: &mut Observed| observed.manifest = "m2".into(),
    ] {
        let mut observed = with_vm_host(vm_host());
        change(&mut observed);
        assert_eq!(effect(&observed), "apply_agent");
    }
    let mut observed = with_vm_host(vm_host());
    let Lookup::Found(agent) = &mut observed.agent else { panic!() };
    (agent.desired, agent.updated) = (3, 1);
    assert_eq!(sentence(&observed), "pending: the agent is rolling out: 1 of 3 nodes have it");
    let Lookup::Found(agent) = &mut observed.agent else { panic!() };
    agent.observed = false;
    assert!(sentence(&observed).contains("has not been observed"));
}

#[test]
fn an_agent_that_a_person_applied_is_left_as_it_is_and_honoured() {
    let mut observed = prepared();
    observed.agent = Lookup::Found(Agent { applied: None, observed: true, desired: 1, updated: 1, ..Agent::default() });
    observed.image = None;
    observed.desired.storage_size = "80".into();
    assert_eq!(effect(&observed), "register", "it is not applied again, and its node is registered");
    observed.hosts[0].vm_host = Lookup::Found(VmHost { maker: foreign(), ..vm_host() });
    let Lookup::Found(nodes) = &mut observed.nodes else { panic!() };
    nodes[0].report = Some(Report { standalone: true, certificate: Some("beef".into()), ..report() });
    assert_eq!(sentence(&observed), "right", "it registers its node by itself");
    observed.hosts[0].vm_host = Lookup::Absent;
    assert_eq!(effect(&observed), "", "and nobody does it in its place");
}

#[test]
fn an_agent_of_ours_whose_rights_are_gone_is_applied_again() {
    let mut observed = prepared();
    let Lookup::Found(agent) = &mut observed.agent else { panic!() };
    agent.missing = vec!["ClusterRole lxd-initializer".into()];
    assert_eq!(effect(&observed), "apply_agent");
    assert!(sentence(&observed).contains("ClusterRole lxd-initializer"), "{}", sentence(&observed));
    observed.image = None;
    assert_eq!(effect(&observed), "register", "without an image there is nothing to apply, but what runs goes on");
}

#[test]
fn without_an_image_the_missing_flag_is_named() {
    let mut observed = prepared();
    (observed.image, observed.agent) = (None, Lookup::Absent);
    assert_eq!(effect(&observed), "");
    assert!(sentence(&observed).contains("--lxd-initializer-image"), "{}", sentence(&observed));
}

#[test]
fn a_host_gets_the_zone_and_pool_of_the_cluster_else_those_of_its_machine() {
    let place_of = |observed: &Observed| match decide(observed, now()).effect {
        Some(Effect::OnHost { call: Call::Register(new), .. }) => new.place,
        other => panic!("{other:?}"),
    };
    assert_eq!(place_of(&prepared()), place("az1", "default"));
    let mut observed = prepared();
    (observed.desired.zone, observed.desired.pool) = (Some("az9".into()), Some("vm-generic".into()));
    let Lookup::Found(agent) = &mut observed.agent.clone() else { panic!() };
    agent.applied = Some(note(&observed, "registry.example/lxd-initializer:v1"));
    observed.agent = Lookup::Found(agent.clone());
    assert_eq!(place_of(&observed), place("az9", "vm-generic"));
    observed.hosts[0].vm_host = Lookup::Found(vm_host());
    assert_eq!(effect(&observed), "move", "a host that is elsewhere is moved there");
    assert_eq!(effect(&with_vm_host(VmHost { place: place("az5", "mine"), ..vm_host() })), "", "else it is a person's");
}

#[test]
fn s12_a_host_is_registered_only_while_its_project_is_known_to_be_empty() {
    let with = |instances: Option<Vec<String>>| with_report(Report { instances, ..report() });
    assert_eq!(effect(&with(None)), "");
    let full = with(Some(vec!["web".into(), "db".into()]));
    assert_eq!(effect(&full), "");
    assert!(sentence(&full).contains("web, db"), "{}", sentence(&full));
}

#[test]
fn s12_a_host_is_refreshed_renewed_or_moved_only_while_maas_knows_every_instance() {
    let unreached = VmHost { reached: false, ..vm_host() };
    assert_eq!(effect(&with_vm_host(unreached.clone())), "refresh");
    for change in [
        unreached.clone(),
        VmHost { certificate: Some("old".into()), ..vm_host() },
        VmHost { address: "https://10.0.0.9:8443".into(), ..vm_host() },
        VmHost { measured: false, ..vm_host() },
    ] {
        assert_ne!(effect(&with_vm_host(change.clone())), "", "{change:?}");
        let stranger = VmHost { strangers: Lookup::Found(vec!["web".into()]), ..change.clone() };
        assert_eq!(effect(&with_vm_host(stranger.clone())), "");
        assert!(sentence(&with_vm_host(stranger)).contains("web"));
        let unknown = VmHost { strangers: Lookup::Unknown("away".into()), ..change };
        assert_eq!(effect(&with_vm_host(unknown)), "");
    }
    let mut patient = with_vm_host(unreached);
    patient.refreshed.insert(4, ago(10));
    assert_eq!(effect(&patient), "");
}

#[test]
fn a_lost_key_is_replaced_on_the_same_vm_host() {
    let old = VmHost { certificate: Some("old".into()), ..vm_host() };
    let step = decide(&with_vm_host(old.clone()), now());
    let address = "https://10.0.0.7:8443".to_owned();
    assert_eq!(step.effect, Some(Effect::OnHost { host: "m1".into(), call: Call::Renew { id: 4, address } }));
    let not_yet = Report { certificate: Some("old".into()), ..report() };
    let mut observed = with_report(not_yet);
    observed.hosts[0].vm_host = Lookup::Found(old);
    assert_eq!(effect(&observed), "", "LXD must trust the new certificate first");
}

#[test]
fn s22_the_agent_is_told_when_maas_has_the_new_key_so_that_the_old_one_opens_nothing() {
    let earlier = |told: Option<&str>| {
        let told = told.map(str::to_owned);
        let mut observed = with_report(Report { earlier: vec!["before".into()], told, ..report() });
        observed.hosts[0].vm_host = Lookup::Found(vm_host());
        observed
    };
    assert_eq!(effect(&earlier(None)), "tell_certificate");
    assert_eq!(effect(&earlier(Some("before"))), "tell_certificate", "it was about another one");
    let Lookup::Found(pair) = prepared().pair else { panic!() };
    assert_eq!(effect(&earlier(Some(&pair.fingerprint))), "");
    // Not while MAAS still uses the old one.
    let mut observed = earlier(None);
    observed.hosts[0].vm_host = Lookup::Found(VmHost { certificate: Some("before".into()), ..vm_host() });
    assert_eq!(effect(&observed), "renew");
    assert_eq!(effect(&with_vm_host(vm_host())), "", "nothing is written where there is no earlier one");
}

#[test]
fn s22_an_agent_is_told_nothing_about_a_certificate_that_somebody_else_made() {
    let mut observed = with_report(Report { earlier: vec!["before".into()], ..report() });
    let certificate = Some("theirs".to_owned());
    observed.hosts[0].vm_host = Lookup::Found(VmHost { maker: foreign(), certificate, ..vm_host() });
    assert_eq!((effect(&observed), sentence(&observed).as_str()), ("", "right"));
}

#[test]
fn a_vm_host_of_another_machine_or_of_somebody_else_is_never_changed() {
    let elsewhere = with_vm_host(VmHost { machine: Some("xyz789".into()), reached: false, ..vm_host() });
    assert_eq!(effect(&elsewhere), "");
    assert!(sentence(&elsewhere).contains("xyz789") && sentence(&elsewhere).contains("MAC"));
    let foreign = VmHost { maker: foreign(), certificate: Some("theirs".into()), ..vm_host() };
    assert_eq!(sentence(&with_vm_host(foreign.clone())), "right", "it works, so it is accepted");
    assert_eq!(effect(&with_vm_host(VmHost { reached: false, ..foreign })), "");
}

#[test]
fn s02_a_registration_whose_answer_is_lost_is_not_sent_again_while_it_may_still_land() {
    let mut observed = prepared();
    let no_time = Lookup::Unknown("it is no time".into());
    for (asked, expected) in [(Lookup::Found(ago(149)), ""), (Lookup::Found(ago(151)), "register"), (no_time, "")] {
        observed.hosts[0].asked = asked;
        assert_eq!(effect(&observed), expected);
    }
}

#[test]
fn go10_lxd_is_ready_only_when_every_control_plane_node_is_a_vm_host() {
    let mut observed = with_vm_host(vm_host());
    assert_eq!(sentence(&observed), "right");
    let second = Host {
        name: "m2".into(),
        provider_id: "maas://az2/def456".into(),
        machine: "def456".into(),
        vm_host: Lookup::Absent,
        ..observed.hosts[0].clone()
    };
    observed.hosts.push(second);
    assert_eq!(sentence(&observed), "pending: machine m2: it has not joined the cluster as a Node yet");
    observed.hosts[1].control_plane = false;
    assert_eq!(sentence(&observed), "right", "a worker does not hold it up");
    assert_eq!(decide(&observed, now()).registered, 1);
    observed.awaited.push("m3 is not deployed yet".into());
    assert_eq!(sentence(&observed), "pending: m3 is not deployed yet");
    let mut nobody = prepared();
    nobody.hosts.clear();
    assert!(sentence(&nobody).contains("no bare-metal machine yet"));
    for unknown in [Lookup::Unknown("away".into()), Lookup::Absent] {
        let mut observed = with_vm_host(vm_host());
        observed.nodes = unknown;
        assert_ne!(sentence(&observed), "right");
    }
    for doubt in [
        VmHost { reached: false, ..vm_host() },
        VmHost { measured: false, ..vm_host() },
        VmHost { machine: None, ..vm_host() },
        VmHost { project: "other".into(), ..vm_host() },
    ] {
        assert_ne!(sentence(&with_vm_host(doubt.clone())), "right", "{doubt:?}");
    }
}

#[test]
fn go10_a_node_that_lacks_lxd_or_the_bridge_is_named_and_that_a_roll_out_mends_it() {
    for (open, state) in [("Bridge", "Blocked"), ("Lxd", "Waiting")] {
        let lacking = with_report(Report {
            state: state.into(),
            open: Some(open.into()),
            message: "it is not there".into(),
            ..report()
        });
        let message = sentence(&lacking);
        assert!(message.starts_with("failed: node n1: it is not there") && message.contains("rollout"), "{message}");
        assert_eq!(effect(&lacking), "");
    }
    let working = with_report(Report { state: "Working".into(), message: "makes the pool".into(), ..report() });
    assert_eq!(sentence(&working), "pending: node n1: makes the pool");
}

#[test]
fn what_failed_is_said_and_tried_again_later_and_holds_up_no_other_machine() {
    let mut observed = prepared();
    let trouble = Trouble { message: "no such zone".into(), retry_at: ago(-5) };
    observed.trouble.insert("m1".into(), trouble);
    assert_eq!((effect(&observed), sentence(&observed).as_str()), ("", "failed: node n1: no such zone"));
    let ahead = observed.trouble.get("m1").map(|trouble| Trouble { retry_at: ago(-90_000), ..trouble.clone() });
    let set_right =
        Observed { trouble: ahead.map(|trouble| ("m1".into(), trouble)).into_iter().collect(), ..observed.clone() };
    assert_ne!(effect(&set_right), "", "the clock was ahead, and nobody waits a day");
    let second = Host {
        name: "m2".into(),
        provider_id: "maas://az2/def456".into(),
        machine: "def456".into(),
        ..observed.hosts[0].clone()
    };
    observed.hosts.push(second);
    let Lookup::Found(nodes) = &mut observed.nodes else { panic!() };
    nodes.push(Node { name: "n2".into(), provider_id: Some("maas://az2/def456".into()), report: Some(report()) });
    assert_eq!(decide(&observed, now()).effect.as_ref().map(Effect::target), Some("m2"));
    assert_eq!(decide(&observed, now() + SignedDuration::from_secs(6)).effect.as_ref().map(Effect::target), Some("m1"));
}

fn lookup<T: Clone + std::fmt::Debug + 'static>(found: impl Strategy<Value = T> + 'static) -> BoxedStrategy<Lookup<T>> {
    prop_oneof![4 => found.prop_map(Lookup::Found), 1 => Just(Lookup::Absent), 1 => Just(Lookup::Unknown("away".into()))]
        .boxed()
}

fn any_report() -> impl Strategy<Value = Report> {
    let state = prop_oneof![3 => Just("Ready"), 1 => Just("Blocked"), 1 => Just("Waiting"), 1 => Just("Left")];
    let instances = prop_oneof![Just(None), Just(Some(Vec::new())), Just(Some(vec!["web".to_owned()]))];
    (state, instances, any::<[bool; 3]>()).prop_map(|(state, instances, flags)| Report {
        state: state.into(),
        instances,
        standalone: flags[0] && flags[1],
        certificate: Some(if flags[1] { "f00d" } else { "old" }.into()),
        address: flags[2].then(|| "https://10.0.0.7:8443".into()),
        ..report()
    })
}

fn any_vm_host() -> impl Strategy<Value = VmHost> {
    let strangers = lookup(prop_oneof![Just(Vec::new()), Just(vec!["web".to_owned()])]);
    (strangers, any::<[bool; 6]>()).prop_map(|(strangers, flags)| VmHost {
        strangers,
        reached: flags[0],
        measured: flags[1],
        maker: if flags[2] { Maker::Ours } else { foreign() },
        certificate: Some(if flags[3] { "f00d" } else { "old" }.into()),
        machine: Some(if flags[4] { "abc123" } else { "xyz789" }.into()),
        project: if flags[5] { "maas" } else { "other" }.into(),
        ..vm_host()
    })
}

fn any_observed() -> impl Strategy<Value = Observed> {
    let nodes = lookup(proptest::option::of(any_report()));
    let asked = lookup(-400i64..400);
    (nodes, lookup(any_vm_host()), asked, lookup(Just(())), any::<[bool; 4]>()).prop_map(
        |(report, vm_host, asked, place, flags)| {
            let mut observed = prepared();
            observed.nodes = match (report, observed.nodes) {
                (Lookup::Found(report), Lookup::Found(mut nodes)) => {
                    nodes[0].report = report;
                    Lookup::Found(nodes)
                }
                (Lookup::Absent, _) => Lookup::Absent,
                (_, _) => Lookup::Unknown("away".into()),
            };
            observed.hosts[0].vm_host = vm_host;
            observed.hosts[0].asked = asked.map(ago);
            if !matches!(place, Lookup::Found(())) {
                observed.hosts[0].place = Lookup::Unknown("away".into());
            }
            if flags[0] && flags[1] {
                observed.image = None;
            }
            if flags[2] && flags[3] {
                observed.handed_over = Lookup::Absent;
            }
            observed
        },
    )
}

#[test]
fn s22_a_machine_without_the_stamp_of_its_object_is_left_alone() {
    let moved = VmHost { address: "https://10.0.0.8:8443".into(), ..vm_host() };
    let renewed = VmHost { certificate: Some("beef".into()), ..vm_host() };
    for vm_host in [Lookup::Absent, Lookup::Found(vm_host()), Lookup::Found(moved), Lookup::Found(renewed)] {
        let mut observed = prepared();
        observed.hosts[0].stamped = false;
        observed.hosts[0].vm_host = vm_host;
        let step = decide(&observed, now());
        assert_eq!((step.effect, step.registered), (None, 0));
        assert!(matches!(&step.standing, Standing::Pending(why) if why.contains("stamp")), "{:?}", step.standing);
    }
}

proptest! {
    #[test]
    fn s12_nothing_makes_maas_look_at_a_project_that_holds_what_it_does_not_know(observed in any_observed()) {
        let step = decide(&observed, now());
        let report = match &observed.nodes {
            Lookup::Found(nodes) => nodes[0].report.clone(),
            _ => None,
        };
        let touches = match &step.effect {
            Some(Effect::OnHost { call: Call::Register(_), .. }) => {
                prop_assert_eq!(report.and_then(|report| report.instances), Some(Vec::new()));
                prop_assert_eq!(&observed.hosts[0].vm_host, &Lookup::Absent, "never a second VM host for one machine");
                false
            }
            Some(Effect::OnHost { .. }) => true,
            _ => false,
        };
        if touches {
            let Lookup::Found(vm_host) = &observed.hosts[0].vm_host else { panic!("none was seen") };
            prop_assert_eq!(&vm_host.strangers, &Lookup::Found(Vec::new()));
            prop_assert!(vm_host.maker == Maker::Ours && vm_host.machine.as_deref() == Some("abc123"));
        }
    }

    #[test]
    fn go10_ready_is_said_only_of_a_vm_host_that_maas_has_reached(observed in any_observed()) {
        if decide(&observed, now()).standing == Standing::Right {
            let Lookup::Found(vm_host) = &observed.hosts[0].vm_host else { panic!("none was seen") };
            prop_assert!(vm_host.reached && vm_host.measured && vm_host.machine.as_deref() == Some("abc123"));
        }
    }

    #[test]
    fn the_decision_depends_on_nothing_else_and_always_says_something(observed in any_observed()) {
        let step = decide(&observed, now());
        prop_assert_eq!(&decide(&observed, now()), &step);
        if let Standing::Pending(why) | Standing::Failed(why) = step.standing {
            prop_assert!(!why.is_empty());
        }
    }
}
