//! Arbitrary observations.

use std::collections::BTreeSet;

use capmaas_api::names::VM_NAME_ANNOTATION;
use capmaas_api::static_ip::StaticIp;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::super::*;
use super::fixture::*;
use crate::credentials::IDENTITY_ANNOTATION;
use crate::hosts::leaving::{ASKED_ANNOTATION, AsHost, LeavingHost, Note, ObservedAgent};
use crate::intent::Mode;
use crate::placement::Placement;
use crate::{Lookup, links, maas};

fn lookup<T: Clone + std::fmt::Debug + 'static>(found: impl Strategy<Value = T> + 'static) -> BoxedStrategy<Lookup<T>> {
    prop_oneof![8 => found.prop_map(Lookup::Found), 1 => Just(Lookup::Absent), 1 => Just(Lookup::Unknown("away".into()))]
        .boxed()
}

/// Flags that are each rarely set: a case in which everything is odd at once reaches nothing but the first oddity.
fn seldom<const N: usize>() -> impl Strategy<Value = [bool; N]> {
    proptest::array::uniform(proptest::bool::weighted(0.2))
}

fn any_metal() -> impl Strategy<Value = maas::Machine> {
    let id = prop_oneof![6 => Just(ID), 1 => Just("other")];
    let owner = prop_oneof![1 => Just(None), 4 => Just(Some("admin")), 1 => Just(Some("bob"))];
    let stamp = prop_oneof![5 => Just(Some(KEY)), 2 => Just(None), 1 => Just(Some("another-key"))];
    let stamped_for = prop_oneof![6 => Just(Some("n/m")), 1 => Just(None), 1 => Just(Some("n/other"))];
    let likely = vec![State::Allocated, State::Deployed, State::Ready];
    let state = prop_oneof![proptest::sample::select(likely), proptest::sample::select(State::ALL.to_vec())];
    let power = prop_oneof![Just(Power::On), Just(Power::Off), Just(Power::Unknown)];
    let mark = (owner, stamp, stamped_for);
    (id, state, mark, power, seldom::<4>()).prop_map(|(id, state, (owner, stamp, named), power, flags)| maas::Machine {
        stamped_for: named.map(str::to_owned),
        id: id.into(),
        owner: owner.map(str::to_owned),
        stamp: stamp.map(str::to_owned),
        power,
        locked: flags[0],
        in_maintenance: Lookup::Found(flags[1]),
        swap_off: !flags[2],
        vm_host: flags[3].then_some(7),
        ..metal(state)
    })
}

fn any_note() -> impl Strategy<Value = Note> {
    (-400i64..0, any::<bool>(), proptest::option::of(-300i64..0)).prop_map(|(since, clear, refreshed)| Note {
        since: later(since),
        clear,
        refreshed: refreshed.map(later),
    })
}

fn any_allocation() -> impl Strategy<Value = Allocation> {
    let began = proptest::option::of(-5000i64..0);
    (seldom::<4>(), began.clone(), began, proptest::option::of(any_note())).prop_map(
        |([adopted, turned_on, swap_denied, released], deploy_began, release_began, leaving)| Allocation {
            adopted,
            deploy_began: deploy_began.map(later),
            turned_on: turned_on.then(|| TurnedOn { at: later(-900), times: 1 }),
            swap_denied,
            released: released.then(|| ID.to_owned()),
            release_began: release_began.map(later),
            leaving,
            ..Allocation::of(ID)
        },
    )
}

fn any_record() -> impl Strategy<Value = Journal> {
    let write = prop_oneof![Just(Write::Allocate), Just(Write::Deploy), Just(Write::Release), Just(Write::Compose)];
    let in_flight = proptest::option::weighted(0.3, (write, -400i64..10));
    let allocation = prop_oneof![1 => Just(None), 3 => any_allocation().prop_map(Some)];
    let failed = prop_oneof![8 => Just(Vec::new()), 1 => Just(vec![ID]), 1 => Just(vec!["f0", "f1"]), 1 => Just(vec!["f0", "f1", "f2"])];
    let rising = proptest::option::of(proptest::option::of(-60i64..0));
    (allocation, seldom::<3>(), in_flight, failed, rising).prop_map(
        |(allocation, [surplus, owed, earlier], in_flight, failed, rising)| Journal {
            allocation,
            earlier_users: earlier.then(|| "bob".to_owned()).into_iter().collect(),
            in_flight: in_flight.map(|(write, at)| InFlight { write, at: later(at) }),
            rising: rising.map(|first| (ID.to_owned(), first.map(later))).into_iter().collect(),
            surplus: surplus.then(|| "other".to_owned()).into_iter().collect(),
            owed: owed.then(|| "owed".to_owned()).into_iter().collect(),
            failed: failed
                .into_iter()
                .map(|machine| Failure {
                    machine: machine.into(),
                    image: "ubuntu/jammy".into(),
                    power: machine == "f1",
                })
                .collect(),
            ..journal()
        },
    )
}

fn any_stage() -> impl Strategy<Value = VmStage> {
    let place = (-4000i64..0).prop_map(|at| Place { at: later(at), ..place() });
    let at = |stage: fn(Place) -> VmStage, place: BoxedStrategy<Place>| place.prop_map(stage);
    let place = place.boxed();
    prop_oneof![
        Just(VmStage::Unplaced),
        at(VmStage::Placed, place.clone()),
        at(VmStage::Unanswered, place.clone()),
        at(VmStage::OnlyInLxd, place),
    ]
}

fn any_power() -> impl Strategy<Value = Option<Power>> {
    prop_oneof![Just(None), Just(Some(Power::On)), Just(Some(Power::Off)), Just(Some(Power::Unknown))]
}

/// The machine as a VM host.
fn any_host() -> impl Strategy<Value = AsHost> {
    let names = |name: &'static str| lookup(prop_oneof![3 => Just(Vec::new()), 1 => Just(vec![name.to_owned()])]);
    let node = (any::<[bool; 2]>(), names("stranger")).prop_map(|([told, left], strangers)| ObservedAgent::Node {
        name: "bm1".into(),
        told,
        left,
        strangers,
    });
    let agent =
        prop_oneof![1 => Just(ObservedAgent::NoNode), 1 => Just(ObservedAgent::Silent("away".into())), 3 => node];
    let host = (any::<bool>(), names("vm1 of cluster n/c2"), agent).prop_map(|(marked, vms, agent)| {
        AsHost::Host(Box::new(LeavingHost { id: 4, name: "bm1".into(), marked, vms, agent }))
    });
    prop_oneof![
        1 => Just(AsHost::NotAsked),
        1 => Just(AsHost::Unknown("away".into())),
        3 => Just(AsHost::NoHost),
        3 => host,
    ]
}

/// One interface, on one subnet, with or without a link.
fn any_links() -> impl Strategy<Value = links::Observed> {
    let holder = lookup(any::<bool>().prop_map(|ours| links::Holder {
        machine: Some(if ours { ID.into() } else { "other".into() }),
        words: "somebody".into(),
    }));
    (holder, any::<bool>()).prop_map(|(holder, linked)| {
        let link = links::Link { id: 5, mode: Some(Mode::Auto), subnet: Some(1), address: None };
        let interface = links::Interface {
            id: 1,
            name: "eth0".into(),
            boot: true,
            vlan: Some(1),
            children: Vec::new(),
            parents: Vec::new(),
            links: linked.then_some(link).into_iter().collect(),
        };
        let subnet = links::Subnet { id: 1, name: "front".into(), cidr: "10.0.0.0/24".into(), vlan: Some(1) };
        links::Observed { interfaces: vec![interface], subnets: vec![subnet], holder }
    })
}

/// Annotations that people write.
fn any_annotation() -> impl Strategy<Value = Option<(&'static str, &'static str)>> {
    prop_oneof![
        12 => Just(None),
        1 => Just(Some((ABANDON_ANNOTATION, ID))),
        1 => Just(Some((ABANDON_ANNOTATION, KEY))),
        1 => Just(Some((ABANDON_ANNOTATION, "other"))),
        1 => Just(Some((LEAVE_POWER_ANNOTATION, ""))),
        1 => Just(Some((ASKED_ANNOTATION, "2026-11-15T11:59:00Z"))),
        1 => Just(Some((ASKED_ANNOTATION, "2026-11-15T12:30:00Z"))),
        1 => Just(Some((ASKED_ANNOTATION, "yesterday"))),
        1 => Just(Some((IDENTITY_ANNOTATION, "http://maas#bob"))),
        1 => Just(Some((IDENTITY_ANNOTATION, "http://other#admin"))),
        1 => Just(Some((VM_NAME_ANNOTATION, "go-made"))),
    ]
}

/// The observations for a VM only, and the stage in its journal.
fn any_vm() -> impl Strategy<Value = (ObservedVm, VmStage)> {
    let named = any_metal().prop_map(|metal| maas::Machine {
        hostname: vm(State::Ready).hostname,
        vm_host: Some(HOST),
        ..metal
    });
    let host =
        (any::<bool>(), lookup(any::<bool>()), any_power()).prop_map(|(usable, others_known, power)| ObservedHost {
            usable: if usable { Ok(()) } else { Err("it is off".into()) },
            others_known,
            power,
            ..usable_host()
        });
    let listed = prop_oneof![3 => Just(Vec::new()), 1 => named.prop_map(|metal| vec![metal])];
    (lookup(listed), lookup(host), lookup(any::<bool>().prop_map(any_placement)), any_stage())
        .prop_map(|(by_name, host, placement, stage)| (ObservedVm { placement, host, by_name }, stage))
}

/// Any observation, bare metal or VM.
pub(super) fn any_observed() -> impl Strategy<Value = Observed> {
    let surplus = lookup(any_metal().prop_map(|metal| maas::Machine { id: "other".into(), ..metal }));
    let debt = Debt { machine: ID.into(), name: vm(State::Ready).hostname, host: "host7".into(), key: KEY.into() };
    let debts = lookup(prop_oneof![Just(Vec::new()), Just(vec![debt])]);
    let besides = (debts, any_host(), lookup(any_links()), any_annotation(), (any::<bool>(), seldom::<2>()));
    (any_metal_observed(), any_vm(), surplus, any_power(), besides).prop_map(|(observed, vm, seen, power, besides)| {
        let (mut observed, (vm, stage)) = (observed, vm);
        let (debts, as_host, links, annotation, (is_vm, [address, tags])) = besides;
        observed.surplus = vec![Surplus { id: "other".into(), seen, power }];
        (observed.debts, observed.as_host, observed.links) = (debts, as_host, links);
        observed.object.spec.static_ip = address.then(|| StaticIp::Address("10.0.0.9".into()));
        observed.object.spec.tags = tags.then(|| "gpu".to_owned()).into_iter().collect();
        if let Some((name, value)) = annotation {
            observed = observed.with_annotation(name, value);
        }
        if !is_vm {
            return observed;
        }
        observed.object.spec.provisioning_mode = Some(capmaas_api::ProvisioningMode::Lxd);
        observed.vm = vm;
        if let Lookup::Found(metal) = &mut observed.in_journal {
            let name = super::fixture::vm(State::Ready).hostname;
            (metal.vm_host, metal.hostname) = (Some(HOST), name);
        }
        if let Ok(Some(mut journal)) = observed.journal.clone() {
            journal.vm = Some(VmJournal { stage, ..VmJournal::new("m", "uid-1") });
            observed = observed.with_journal(&journal);
        }
        observed
    })
}

fn any_placement(chosen: bool) -> Placement {
    let choice = crate::placement::Choice {
        host: HOST,
        name: "host7".into(),
        system_id: None,
        zone: None,
        pool: None,
        project: None,
        storage_pool: "default".into(),
        interfaces: Vec::new(),
    };
    let error = capmaas_api::LxdError::new(capmaas_api::LxdErrorKind::InsufficientResources, "all are full");
    Placement { choice: if chosen { Ok(choice) } else { Err(error) }, verdicts: Vec::new() }
}

fn any_metal_observed() -> impl Strategy<Value = Observed> {
    let access = prop_oneof![
        6 => Just(Access::Granted { name: "http://maas#admin".into(), user: "admin".into(), identity_changed: false }),
        1 => Just(Access::Granted { name: "http://maas#new".into(), user: "new".into(), identity_changed: true }),
        1 => Just(Access::Denied { reason: "MAASUnavailable", message: "away".into() }),
    ];
    let node = prop_oneof![
        Just(ObservedNode::NotAsked),
        Just(ObservedNode::NotYet),
        (any::<bool>(), any::<bool>()).prop_map(|(named, zoned)| ObservedNode::Joined {
            name: "bm1".into(),
            named,
            labels: zoned.then(|| (ZONE_LABEL.to_owned(), "az1".to_owned())).into_iter().collect(),
        }),
        Just(ObservedNode::Foreign("it is another's".into())),
    ];
    let seen = (
        lookup(prop_oneof![Just(Vec::new()), proptest::collection::vec(any_metal(), 0..3)]),
        lookup(any_metal()),
        any_power(),
        lookup(any::<bool>()),
        node,
        access,
    );
    let around = (
        lookup(any::<bool>()),
        lookup(Just(())),
        lookup(any::<bool>()),
        lookup(prop_oneof![
            any::<bool>().prop_map(|ends_swap| Format::CloudConfig { ends_swap }),
            Just(Format::Ignition)
        ]),
        seldom::<8>(),
        proptest::option::weighted(0.9, any_record()),
    );
    (seen, around).prop_map(|(seen, (cluster, machine, dns, bootstrap, flags, journal))| {
        let mut observed = fresh();
        (observed.by_key, observed.in_journal, observed.power, observed.in_dns, observed.node, observed.access) = seen;
        observed.cluster = match (cluster, observed.cluster) {
            (Lookup::Found(paused), Lookup::Found(mut found)) => {
                found.spec.value.paused = Some(paused && flags[0]);
                Lookup::Found(found)
            }
            (Lookup::Absent, _) => Lookup::Absent,
            (_, _) => Lookup::Unknown("away".into()),
        };
        observed.machine = match machine {
            Lookup::Found(()) => observed.machine,
            Lookup::Absent => Lookup::Absent,
            Lookup::Unknown(why) => Lookup::Unknown(why),
        };
        observed.maas_cluster = match dns {
            Lookup::Found(keeps_dns) => {
                let bridge = match (flags[0], flags[7]) {
                    (true, true) => Err("it contradicts itself".into()),
                    (true, false) => Ok(Some(br0())),
                    _ => Ok(None),
                };
                Lookup::Found(ClusterFacts { keeps_dns, bridge })
            }
            Lookup::Absent => Lookup::Absent,
            Lookup::Unknown(why) => Lookup::Unknown(why),
        };
        observed.bootstrap = bootstrap;
        if let Some(journal) = journal {
            observed = observed.with_journal(&journal);
        }
        if flags[1] {
            observed = observed.provisioned();
        }
        if flags[2] {
            observed = observed.deleting();
        }
        if flags[3] {
            observed.held_elsewhere.machines.insert(ID.into());
        }
        observed.held_elsewhere.use_go_form = flags[4];
        if flags[5] && !flags[2] {
            observed.object.metadata.finalizers = None;
        }
        observed.held_elsewhere.contested = flags[6] && flags[7];
        observed
    })
}

/// The effect names in the source: the test fails if a new effect is never reached.
fn all_effects() -> BTreeSet<&'static str> {
    let source = include_str!("../effect.rs").split_once("pub fn name(").expect("the names").1;
    let names = source.split_once("\n    }\n").expect("their end").0;
    names.lines().filter_map(|line| line.split('"').nth(1)).collect()
}

#[test]
fn every_effect_is_reached() {
    let (mut runner, observed) = (TestRunner::deterministic(), any_observed());
    let mut missing = all_effects();
    assert!(missing.len() > 20, "{missing:?}");
    for _ in 0..50_000 {
        let plan = decide(&observed.new_tree(&mut runner).expect("a value").current(), now());
        if let Some(effect) = plan.effect {
            missing.remove(effect.name());
        }
        if missing.is_empty() {
            return;
        }
    }
    panic!("never decided upon: {missing:?}");
}
