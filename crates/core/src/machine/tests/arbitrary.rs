//! Anything that can be observed.

use proptest::prelude::*;

use super::super::*;
use super::fixture::*;
use crate::Lookup;
use crate::hosts::leaving::AsHost;
use crate::maas;
use crate::placement::Placement;

fn lookup<T: Clone + std::fmt::Debug + 'static>(found: impl Strategy<Value = T> + 'static) -> BoxedStrategy<Lookup<T>> {
    prop_oneof![4 => found.prop_map(Lookup::Found), 1 => Just(Lookup::Absent), 1 => Just(Lookup::Unknown("away".into()))]
        .boxed()
}

fn any_metal() -> impl Strategy<Value = maas::Machine> {
    let id = prop_oneof![3 => Just(ID), 1 => Just("other")];
    let owner = prop_oneof![Just(None), Just(Some("admin")), Just(Some("bob"))];
    let stamp = prop_oneof![2 => Just(Some(KEY)), 2 => Just(None), 1 => Just(Some("another-key"))];
    let stamped_for = prop_oneof![3 => Just(Some("n/m")), 1 => Just(None), 1 => Just(Some("n/other"))];
    let power = prop_oneof![Just(Power::On), Just(Power::Off), Just(Power::Unknown)];
    let mark = (owner, stamp, stamped_for);
    (id, 0..24usize, mark, power, any::<[bool; 4]>()).prop_map(|(id, state, (owner, stamp, named), power, flags)| {
        maas::Machine {
            stamped_for: named.map(str::to_owned),
            id: id.into(),
            owner: owner.map(str::to_owned),
            stamp: stamp.map(str::to_owned),
            power,
            locked: flags[0],
            in_maintenance: flags[1],
            swap_off: flags[2],
            vm_host: flags[3].then_some(7),
            ..metal(State::ALL[state])
        }
    })
}

fn any_record() -> impl Strategy<Value = Journal> {
    let write = prop_oneof![Just(Write::Allocate), Just(Write::Deploy), Just(Write::Release), Just(Write::Compose)];
    let in_flight = proptest::option::of((write, -400i64..10));
    let machine = prop_oneof![1 => Just(None), 3 => Just(Some(ID.to_owned()))];
    let began = proptest::option::of(-4000i64..0);
    (machine, any::<[bool; 5]>(), in_flight, began.clone(), began, 0..4usize).prop_map(
        |(machine, flags, in_flight, began, release_began, failed)| Journal {
            adopted: flags[0] && machine.is_some(),
            in_flight: in_flight.map(|(write, at)| InFlight { write, at: later(at) }),
            deploy_began: began.map(later),
            turned_on: flags[1].then(|| TurnedOn { at: later(-900), times: 1 }),
            swap_denied: flags[2],
            released: machine.clone().filter(|_| flags[3]),
            release_began: release_began.map(later),
            surplus: flags[4].then(|| "other".to_owned()).into_iter().collect(),
            failed: (0..failed)
                .map(|number| Failure {
                    machine: format!("f{number}"),
                    image: "ubuntu/jammy".into(),
                    power: number == 1,
                })
                .collect(),
            machine,
            ..journal()
        },
    )
}

/// Anything at all, metal or VM.
pub(super) fn any_observed() -> impl Strategy<Value = Observed> {
    let named = any_metal().prop_map(|metal| maas::Machine {
        hostname: vm(State::Ready).hostname,
        vm_host: Some(HOST),
        ..metal
    });
    let host = (any::<bool>(), lookup(any::<bool>())).prop_map(|(usable, others_known)| HostSight {
        usable: if usable { Ok(()) } else { Err("it is off".into()) },
        others_known,
        ..usable_host()
    });
    let sight = (
        lookup(proptest::collection::vec(named, 0..2)),
        lookup(host),
        lookup(any::<bool>().prop_map(any_placement)),
        any::<[bool; 3]>(),
    );
    let surplus = lookup(any_metal().prop_map(|metal| maas::Machine { id: "other".into(), ..metal }));
    let power = prop_oneof![Just(None), Just(Some(Power::On)), Just(Some(Power::Off)), Just(Some(Power::Unknown))];
    (any_metal_observed(), sight, surplus, power).prop_map(|(mut observed, sight, seen, power)| {
        let (by_name, host, placement, flags) = sight;
        observed.surplus = vec![Surplus { id: "other".into(), seen, power }];
        if !flags[0] {
            return observed;
        }
        observed.object.spec.provisioning_mode = Some(capmaas_api::ProvisioningMode::Lxd);
        observed.vm = VmSight { placement, host, by_name };
        if let Lookup::Found(metal) = &mut observed.on_record {
            metal.vm_host = Some(HOST);
        }
        if let Ok(Some(mut journal)) = Journal::read(observed.object.metadata.annotations.as_ref()) {
            journal.vm = vm_record(flags[1].then(place)).vm.map(|vm| VmJournal { exists: flags[2], ..vm });
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
        3 => Just(Access::Granted { name: "http://maas#admin".into(), user: "admin".into(), identity_changed: false }),
        1 => Just(Access::Granted { name: "http://maas#new".into(), user: "new".into(), identity_changed: true }),
        1 => Just(Access::Denied { reason: "MAASUnavailable", message: "away".into() }),
    ];
    let node = prop_oneof![
        Just(NodeSight::NotAsked),
        Just(NodeSight::NotYet),
        (any::<bool>(), any::<bool>()).prop_map(|(named, zoned)| NodeSight::Joined {
            name: "bm1".into(),
            named,
            labels: zoned.then(|| (ZONE_LABEL.to_owned(), "az1".to_owned())).into_iter().collect(),
        }),
        Just(NodeSight::Foreign("it is another's".into())),
    ];
    let power = prop_oneof![Just(None), Just(Some(Power::On)), Just(Some(Power::Off)), Just(Some(Power::Unknown))];
    let seen = (
        lookup(proptest::collection::vec(any_metal(), 0..3)),
        lookup(any_metal()),
        power,
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
        any::<[bool; 8]>(),
        proptest::option::of(any_record()),
    );
    (seen, around).prop_map(|(seen, (cluster, machine, dns, bootstrap, flags, journal))| {
        let mut observed = fresh();
        (observed.by_key, observed.on_record, observed.power, observed.in_dns, observed.node, observed.access) = seen;
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
                let bridge = match (flags[6], flags[7]) {
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
        observed.as_host = match (flags[0], flags[4]) {
            (true, true) => as_host(flags[6]),
            (true, false) => AsHost::Unknown("away".into()),
            _ => AsHost::NoHost,
        };
        observed
    })
}
