//! Properties of the decision.

use capmaas_api::cluster::ControlPlaneEndpoint;
use proptest::prelude::*;

use super::super::observed::{Machine, Refusal, Rival};
use super::super::plan::Effect;
use super::super::provenance::{Provenance, judge};
use super::super::{Plan, decide};
use super::world::{Crash, World};
use super::*;
use crate::backoff::Trouble;
use crate::plan::Finalizer;

fn any_address() -> impl Strategy<Value = IpAddr> {
    (1u8..6).prop_map(|last| IpAddr::from([10, 0, 0, last]))
}

fn any_machine() -> impl Strategy<Value = Machine> {
    let state = proptest::option::of(prop_oneof![
        3 => Just("Deployed"), 1 => Just("Deploying"), 1 => Just("Broken"), 1 => Just("Releasing"),
    ]);
    let addresses = proptest::collection::vec(any_address(), 0..3);
    ("m[1-4]", any::<[bool; 5]>(), state, addresses, any::<u8>()).prop_map(
        |(name, [plane, deleting, provisioned, powered, host], state, addresses, marked)| Machine {
            system_id: Some(format!("sys-{name}")),
            stamp: match marked {
                0..150 => Stamp::Own(addresses.iter().copied().collect()),
                150..170 => Stamp::Own(BTreeSet::new()),
                170..180 => Stamp::Missing,
                180..190 => Stamp::OwnedBy("alice".into()),
                190..210 => Stamp::Anothers,
                210..230 => Stamp::NotRead,
                230.. => Stamp::Unknown("away".to_owned()),
            },
            name,
            control_plane: plane,
            deleting,
            provisioned,
            made: provisioned,
            state: state.map(str::to_owned),
            powered,
            addresses,
            needs_the_name: deleting && host,
        },
    )
}

fn any_lookup<T: Clone + std::fmt::Debug + 'static>(
    found: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Lookup<T>> {
    prop_oneof![3 => found.prop_map(Lookup::Found), 1 => Just(Lookup::Absent), 1 => Just(Lookup::Unknown("away".to_owned()))]
}

/// Any journal, as read from annotations.
fn any_notes() -> impl Strategy<Value = Journal> {
    let source =
        proptest::option::of(prop_oneof![1 => Just(Source::User), 3 => Just(Source::Dns), 1 => Just(Source::Adopted)]);
    let owed = proptest::collection::btree_set(any_address(), 0..3);
    let other = |uid: &str, name: &str| Some(WrittenFor { uid: uid.into(), name: name.into(), ..itself() });
    let written_for = prop_oneof![
        5 => Just(Some(itself())), 2 => Just(None), 1 => Just(other("u0", "c1")), 1 => Just(other("u0", "c0")),
    ];
    (source, any::<[bool; 3]>(), 6i64..9, -400i64..100, owed, written_for).prop_map(
        |(source, [name, record, asked], id, ago, owed, written_for)| {
            let journal = Journal {
                source,
                name: name.then(|| NAME.to_owned()),
                record: record.then_some(id),
                asked: asked.then(|| later(ago)),
                owed,
                identity: Some(known().name.to_string()),
                written_for,
                unreadable: Vec::new(),
            };
            let written = Journal::default().difference(&journal);
            Journal::of(&written.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
        },
    )
}

fn any_object() -> impl Strategy<Value = Object> {
    let host = prop_oneof![Just(""), Just(NAME), Just("vip.example")];
    (any_notes(), any::<[bool; 2]>(), any::<(u8, u8, u8, u8)>(), host).prop_map(
        |(journal, [deleting, finalizer], (moving, paused, managed, custom), host)| {
            let rarely = |number: u8| number < 25;
            let mut object = Object {
                itself: itself(),
                name_is_from_uid: moving.is_multiple_of(2),
                generation: Some(1),
                deleting,
                finalizer,
                moving: rarely(moving),
                owes: rarely(moving.wrapping_add(custom)),
                paused: rarely(paused),
                managed_elsewhere: rarely(managed),
                custom_endpoint: rarely(custom),
                journal,
                ..Object::default()
            };
            object.spec.dns_domain = "maas".into();
            if !host.is_empty() {
                object.spec.control_plane_endpoint = Some(ControlPlaneEndpoint { host: host.to_owned(), port: 6443 });
            }
            object
        },
    )
}

fn any_record() -> impl Strategy<Value = Record> {
    let holder = || prop_oneof![4 => "sys-m[1-4]", 1 => Just("sys-other".to_owned())];
    let bound = proptest::collection::btree_map(any_address(), holder().prop_map(|id| BTreeSet::from([id])), 0..6);
    let addresses = || proptest::collection::btree_set(any_address(), 0..4);
    let dangling = proptest::collection::vec(proptest::collection::btree_set(holder(), 0..2), 0..2);
    (6i64..9, addresses(), bound, addresses(), dangling).prop_map(
        |(id, addresses, mut bound, mut anothers, dangling)| {
            bound.retain(|address, _| addresses.contains(address));
            anothers.retain(|address| bound.get(address).is_some_and(|holders| holders.contains("sys-other")));
            Record { id, addresses, bound, anothers, dangling }
        },
    )
}

fn any_rival() -> impl Strategy<Value = Rival> {
    let machines = proptest::collection::btree_set(prop_oneof!["sys-m[1-4]", Just("sys-other".to_owned())], 0..3);
    (any::<[bool; 3]>(), 0u8..8, machines).prop_map(|([numbered, own, owned], made, machines)| Rival {
        who: "other/c1".into(),
        name_is_from_uid: made == 0,
        numbered,
        own,
        owned,
        machines,
    })
}

fn any_observed() -> impl Strategy<Value = Observed> {
    let identity = prop_oneof![
        4 => Just(Ok(known())),
        1 => Just(Ok(changed())),
        1 => Just(Err(Refusal { reason: capmaas_api::reasons::CREDENTIALS_INVALID, message: "none".into() })),
    ];
    let owner = any_lookup(any::<[bool; 2]>().prop_map(|[paused, refers_here]| Owner {
        name: "c1".into(),
        paused,
        refers_here,
        ..Owner::default()
    }));
    let rivals = prop_oneof![4 => Just(Vec::new()), 1 => proptest::collection::vec(any_rival(), 1..3)];
    let reserved = proptest::collection::btree_map(
        any_address(),
        any_lookup(prop_oneof![4 => Just(Reserved::ForUs), 1 => Just(Reserved::Before)]),
        0..6,
    );
    let troubles = proptest::collection::vec(
        (-20i64..20).prop_map(|at| {
            let effect = Effect::UpdateDnsRecord { id: 1, addresses: BTreeSet::new() };
            (effect, Trouble { message: "denied".into(), retry_at: later(at) })
        }),
        0..2,
    );
    let machines = any_lookup(proptest::collection::vec(any_machine(), 0..4));
    (
        (any_object(), owner, machines, any_lookup(Just("10.0.0.0/30".to_owned()))),
        (identity, any::<bool>(), any_lookup(any_record()), any_lookup(Just(NAME.to_owned()))),
        (proptest::collection::btree_set(any_address(), 0..3), reserved, troubles, rivals),
    )
        .prop_map(
            |(
                (object, owner, machines, preferred),
                (identity, seen, record, candidate),
                (unknown_to_maas, reserved, troubles, rivals),
            )| Observed {
                rivals,
                object,
                owner,
                machines,
                preferred,
                identity,
                sees_a_machine: seen,
                record,
                candidate,
                unknown_to_maas,
                reserved,
                troubles,
                ..fresh()
            },
        )
}

fn no_machine_left(observed: &Observed) -> bool {
    !matches!(&observed.machines, Lookup::Found(machines) if !machines.is_empty())
        && !matches!(observed.machines, Lookup::Unknown(_))
}

/// As the rule has it, not as the code under test computes it (S18).
fn leads_to_a_stamped_machine(observed: &Observed, record: &Record) -> bool {
    let Lookup::Found(machines) = &observed.machines else { return false };
    machines.iter().any(|machine| {
        let Stamp::Own(has) = &machine.stamp else { return false };
        record.addresses.iter().any(|address| match record.bound.get(address) {
            Some(holders) => machine.system_id.as_ref().is_some_and(|id| holders.contains(id)),
            None => has.contains(address),
        })
    })
}

fn only_the_uid_yields(observed: &Observed, record: &Record) -> bool {
    observed.object.name_is_from_uid && record.anothers.is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn deciding_is_total_and_the_same_each_time(observed in any_observed()) {
        prop_assert_eq!(decide(&observed, now()), decide(&observed, now()));
    }

    #[test]
    fn s15_nothing_is_changed_about_an_object_that_is_paused_or_being_moved(observed in any_observed()) {
        let plan = decide(&observed, now());
        let object = &observed.object;
        let paused = object.paused || matches!(&observed.owner, Lookup::Found(owner) if owner.paused);
        let unknown = matches!(observed.owner, Lookup::Unknown(_)) && !object.paused;
        if object.moving || unknown {
            prop_assert!(plan.is_idle());
        }
        if paused {
            prop_assert!(plan.effect.is_none() && plan.leaves_object());
        }
    }

    #[test]
    fn s01_effects_rest_on_what_was_seen_in_the_same_pass(observed in any_observed()) {
        let plan = decide(&observed, now());
        match &plan.effect {
            None => {}
            Some(Effect::CreateDnsRecord { .. }) => {
                prop_assert_eq!(&observed.record, &Lookup::Absent);
                prop_assert!(observed.identity == Ok(known()) && !observed.object.deleting);
                let asked = plan.patch.annotations.get(capmaas_api::names::DNS_ASKED_ANNOTATION);
                prop_assert!(asked.is_some() || observed.object.journal.asked == Some(now()));
            }
            Some(Effect::UpdateDnsRecord { id, addresses }) => {
                let Lookup::Found(record) = &observed.record else { panic!("{plan:?}") };
                prop_assert_eq!(record.id, *id);
                prop_assert!(*addresses != record.addresses || !record.dangling.is_empty());
                let identity_changed = observed.identity == Ok(changed());
                prop_assert!(!identity_changed || observed.object.journal.record == Some(*id));
            }
            // S18: only the ID that we stored, found under our name, and only at the very end.
            Some(Effect::DeleteDnsRecord { id }) => {
                let Lookup::Found(record) = &observed.record else { panic!("{plan:?}") };
                prop_assert_eq!((Some(*id), *id), (observed.object.journal.record, record.id));
                prop_assert!(observed.object.deleting && no_machine_left(&observed));
            }
            Some(Effect::ReleaseAddress { address }) => {
                prop_assert!(observed.object.journal.owed.contains(address));
                prop_assert_eq!(observed.reserved.get(address), Some(&Lookup::Found(Reserved::ForUs)));
            }
            Some(Effect::Hosts(_)) => prop_assert!(matches!(observed.hosts, Hosts::Seen(_))),
        }
        if plan.effect.is_some() {
            prop_assert!(observed.identity.is_ok() && observed.object.finalizer);
        }
    }

    #[test]
    fn s25_what_was_not_written_for_an_object_changes_nothing_in_maas(observed in any_observed()) {
        if matches!(judge(&observed), Provenance::Copy(_) | Provenance::Doubtful(_)) {
            let plan = decide(&observed, now());
            prop_assert!(plan.effect.is_none() && plan.patch.annotations.is_empty());
        }
    }

    #[test]
    fn s18_a_record_is_changed_only_if_more_than_an_annotation_says_whose_it_is(observed in any_observed()) {
        if let (Some(Effect::UpdateDnsRecord { .. } | Effect::DeleteDnsRecord { .. }), Lookup::Found(record)) =
            (decide(&observed, now()).effect, &observed.record)
        {
            prop_assert!(
                record.addresses.is_empty()
                    || only_the_uid_yields(&observed, record)
                    || leads_to_a_stamped_machine(&observed, record),
                "{:?}",
                observed
            );
            prop_assert_eq!(observed.object.journal.record, Some(record.id));
        }
    }

    #[test]
    fn the_finalizer_goes_only_when_nothing_of_ours_can_be_left(observed in any_observed()) {
        let plan = decide(&observed, now());
        if plan.finalizer != Finalizer::Remove {
            return Ok(());
        }
        prop_assert!(plan.effect.is_none());
        if matches!(judge(&observed), Provenance::Copy(_) | Provenance::Doubtful(_)) {
            return Ok(());
        }
        prop_assert!(no_machine_left(&observed));
        let journal = &observed.object.journal;
        if journal.source == Some(Source::User) || journal.name.is_none() && journal.source == Some(Source::Dns) {
            return Ok(());
        }
        match &observed.record {
            Lookup::Absent => {}
            Lookup::Found(record) => {
                let left = journal.source == Some(Source::Adopted) && record.addresses.is_empty();
                let not_ours =
                    !only_the_uid_yields(&observed, record) && !leads_to_a_stamped_machine(&observed, record);
                prop_assert!(journal.record != Some(record.id) || left || not_ours);
            }
            Lookup::Unknown(_) => {
                let user = observed.object.custom_endpoint || observed.object.spec.control_plane_endpoint.is_none()
                    || matches!(&observed.object.spec.control_plane_endpoint, Some(endpoint) if endpoint.host == "vip.example");
                prop_assert!(journal.record.is_none() && journal.asked.is_none() || journal.source.is_none() && user, "{:?}", observed);
            }
        }
    }

    #[test]
    fn s18_never_wiped_while_a_control_plane_stays(observed in any_observed()) {
        let Lookup::Found(machines) = &observed.machines else { return Ok(()) };
        let staying: Vec<&Machine> = machines.iter().filter(|machine| machine.control_plane && !machine.deleting).collect();
        let leaving: Vec<IpAddr> =
            machines.iter().filter(|machine| machine.deleting).flat_map(|machine| machine.addresses.clone()).collect();
        if let (Some(Effect::UpdateDnsRecord { addresses, .. }), Lookup::Found(record)) =
            (decide(&observed, now()).effect, &observed.record)
            && !staying.is_empty()
            && record.addresses.iter().any(|address| !leaving.contains(address))
        {
            prop_assert!(!addresses.is_empty());
        }
    }

    /// Whatever happens to the manager, the object settles, and leaves nothing behind when it is deleted.
    #[test]
    fn crashes_at_any_moment_leave_one_record_while_it_lives_and_none_afterwards(
        script in proptest::collection::vec((crash(), 0i64..40, any::<bool>()), 0..40),
        machines in proptest::collection::vec(any_machine(), 0..4),
        known_to_maas in any::<bool>(),
        name_is_from_uid in any::<bool>(),
    ) {
        let mut object = Object { itself: itself(), generation: Some(1), ..Object::default() };
        object.spec.dns_domain = "maas".into();
        let mut world = World::new(object);
        world.name_is_from_uid = name_is_from_uid;
        if known_to_maas {
            world.known_addresses = (1..6).map(|last| IpAddr::from([10, 0, 0, last])).collect();
        }
        for (step, (crash, seconds, answers)) in script.iter().enumerate() {
            world.seconds += seconds;
            world.maas_answers = *answers;
            // Machines are created meanwhile. They are stamped before they are deployed.
            if step == 10 {
                let stamped = |machine: &Machine| {
                    Machine { stamp: Stamp::Own(machine.addresses.iter().copied().collect()), ..machine.clone() }
                };
                world.machines = machines.iter().map(stamped).collect();
            }
            let Some(observed) = world.observe() else { break };
            let plan = decide(&observed, world.now());
            world.apply(&plan, *crash);
            prop_assert!(world.records.len() <= 1, "{:?}", world.records);
        }
        world.maas_answers = true;
        let plan = rest(&mut world);
        prop_assert!(plan.is_idle());
        let object = world.object.clone().unwrap();
        prop_assert_eq!(object.journal.record, world.records.values().next().map(|record| record.id));
        prop_assert!(object.status.ready && world.records.len() == 1);

        // The machines are deleted, then the cluster.
        for machine in &mut world.machines {
            machine.deleting = true;
        }
        prop_assert!(rest(&mut world).is_idle());
        world.object.as_mut().unwrap().deleting = true;
        prop_assert!(rest(&mut world).is_idle());
        // An LXD host whose agent must still hear that it leaves keeps its address in DNS.
        for machine in &mut world.machines {
            machine.needs_the_name = false;
        }
        prop_assert!(rest(&mut world).is_idle());
        prop_assert!(world.records.values().all(|record| record.addresses.is_empty()));
        world.machines.clear();
        world.seconds += 200;
        prop_assert!(rest(&mut world).is_idle());
        prop_assert!(world.object.is_none() && world.records.is_empty() && world.reserved.is_empty(), "{:?}", world);
    }
}

fn crash() -> impl Strategy<Value = Crash> {
    prop_oneof![
        3 => Just(Crash::Never), 1 => Just(Crash::BeforePatch), 1 => Just(Crash::AfterPatch), 1 => Just(Crash::AfterEffect),
    ]
}

/// Runs passes until nothing changes any more; returns the last plan.
fn rest(world: &mut World) -> Plan {
    for _ in 0..20 {
        let Some(observed) = world.observe() else {
            return Plan::nothing(crate::plan::Requeue::OnChange, "gone");
        };
        let plan = decide(&observed, world.now());
        if plan.is_idle() {
            return plan;
        }
        world.apply(&plan, Crash::Never);
    }
    panic!("does not come to rest: {world:?}");
}
