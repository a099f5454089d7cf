use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// Up to two zones, and siblings on some of the hosts.
fn any_demanded() -> impl Strategy<Value = Demanded> {
    let siblings = proptest::sample::subsequence(vec![1, 2, 8, 9], 0..=3);
    let zones = prop_oneof![3 => Just(0..=0usize), 1 => Just(1..=2usize)]
        .prop_flat_map(|count| proptest::sample::subsequence(vec!["az1".to_owned(), "az2".to_owned()], count));
    (1..6u32, zones, siblings).prop_map(|(cores, zones, siblings)| {
        let sibling = |id| placement::Sibling { host: Some(id), zone: None };
        Demanded { zones, siblings: siblings.into_iter().map(sibling).collect(), ..demanded(cores) }
    })
}

/// The hosts 8 and 9 and those that leave, any of which a rollout may be going to replace.
fn any_site() -> impl Strategy<Value = (Site, BTreeMap<i64, String>)> {
    let departing = proptest::array::uniform2(proptest::bool::weighted(0.3));
    let coming = proptest::sample::subsequence(vec![1, 2, 3, 8, 9], 0..=5);
    (0..12i64, 0..12i64, departing, coming, any::<bool>()).prop_map(|(free, more, departing, coming, has_coming)| {
        let host = |id: i64, zone: &str, free, departing| placement::Host {
            zone: Some(placement::Named { id, name: zone.to_owned() }),
            departing,
            ..lxd_host(id, free)
        };
        let hosts = vec![lxd_host(1, 64), host(8, "az1", free, departing[0]), host(9, "az2", more, departing[1])];
        let leaves = |id: &i64| match id {
            8 => departing[0],
            9 => departing[1],
            _ => true,
        };
        let coming = coming.into_iter().filter(|id| has_coming && leaves(id));
        (Site { hosts, claims: vec![] }, coming.map(|id| (id, "default/new".to_owned())).collect())
    })
}

/// Anything at all about one VM.
fn any_member() -> impl Strategy<Value = Member> {
    let flags = proptest::array::uniform8(proptest::bool::weighted(0.15));
    (0..4usize, 0..5usize, flags, 0..4usize, 0..3usize, any_demanded()).prop_map(
        |(cluster, replicas, flags, sick, allowance, demanded)| {
            let cluster = format!("c{cluster}");
            let mut group = control_plane(&cluster, replicas.max(1));
            if flags[0] {
                group.members.pop();
            }
            if let Some(member) = group.members.get_mut(sick) {
                member.deleting = flags[1];
                member.trouble = flags[2].then(|| "ill".to_owned());
            }
            group.unsettled = flags[3].then_some(Unsettled::RollingOut);
            group.desired = (!flags[4] || replicas > 0).then_some(replicas);
            group.allowance = match allowance {
                0 => Allowance::ControlPlane { stacked_etcd: true },
                1 => Allowance::ControlPlane { stacked_etcd: false },
                _ => Allowance::Unavailable(replicas.saturating_sub(1)),
            };
            if group.members.is_empty() {
                group = control_plane(&cluster, 1);
            }
            let mut member = member(&cluster, group);
            member.demanded = Ok(demanded);
            if let Lookup::Found(machine) = &mut member.machine {
                machine.held = flags[5];
                machine.deleting = flags[1] && sick == 0;
            }
            if flags[6] {
                member.consent = Lookup::Found(Consent::Manual);
            }
            if flags[7] {
                member.paused = Lookup::Unknown("away".into());
            }
            if flags[6] && flags[7] {
                member.own_identity = Err("another's".into());
            }
            member
        },
    )
}

/// By number of the cluster, for its first machine.
fn any_refusals() -> impl Strategy<Value = BTreeMap<usize, Refusal>> {
    let refusal = prop_oneof![
        Just(Refusal::NoRight),
        Just(Refusal::Refused("by a policy".into())),
        Just(Refusal::Unanswered("timeout".into()))
    ];
    proptest::collection::btree_map(0..4usize, refusal, 0..2)
}

fn any_observed() -> impl Strategy<Value = Observed> {
    let hosts = proptest::collection::vec((proptest::collection::vec(any_member(), 0..4), any::<bool>()), 1..4);
    let unplaced = proptest::collection::vec(any_demanded(), 0..3);
    (hosts, any_site(), unplaced, any_refusals()).prop_map(|(hosts, (site, successors), unplaced, refused)| {
        let leaving = hosts.into_iter().zip(1..).map(|((members, deleted), id)| {
            let mut guests: Vec<Guest> = members.into_iter().map(guest).collect();
            guests.push(Guest { name: format!("foreign{id}"), whose: Whose::Foreign(None) });
            let cause = if deleted { Cause::Leaving } else { Cause::Tagged };
            Host { cause, ..leaving(id, guests) }
        });
        Observed {
            hosts: leaving.collect(),
            site: Lookup::Found(site),
            successors,
            unplaced,
            refusals: refused.into_iter().map(|(cluster, refusal)| (format!("uid-c{cluster}-0"), refusal)).collect(),
        }
    })
}

/// In every zone in which it may be requested: on a host that is not being emptied, for which none is coming, and beside no sibling
/// while one is coming for its own host.
fn has_room(observed: &Observed, from: i64, demanded: &Demanded) -> bool {
    let coming = |id: i64| observed.successors.contains_key(&id);
    let fits = |host: &placement::Host, zone: Option<&String>| {
        zone.is_none_or(|zone| host.zone.as_ref().is_some_and(|it| it.name == *zone))
            && host.free.cores >= i64::from(demanded.vm.cores)
            && !observed.hosts.iter().any(|leaving| leaving.id == host.id)
            && !coming(host.id)
            && !(coming(from) && demanded.siblings.iter().any(|sibling| sibling.host == Some(host.id)))
    };
    let somewhere = |zone| observed.site.found().unwrap().hosts.iter().any(|host| fits(host, zone));
    if demanded.zones.is_empty() { somewhere(None) } else { demanded.zones.iter().all(|zone| somewhere(Some(zone))) }
}

proptest! {
    #[test]
    fn s30_what_is_deleted_could_be_spared_had_consent_and_has_room(observed in any_observed()) {
        let plan = decide(&observed);
        let goes = fates(&plan).iter().filter(|fate| **fate == Fate::Goes).count();
        prop_assert_eq!(goes, usize::from(plan.delete.is_some()));
        let Some(machine) = plan.delete else { return Ok(()) };
        let guests = observed.hosts.iter().flat_map(|host| host.guests.found().unwrap().iter().map(|it| (host.id, it)));
        let members: Vec<(i64, &Member)> = guests.filter_map(|(host, guest)| match &guest.whose {
            Whose::Ours(member) if member.machine == Lookup::Found(machine.clone()) => Some((host, member.as_ref())),
            _ => None,
        }).collect();
        prop_assert!(!observed.refusals.contains_key(&machine.uid) && !machine.held && !machine.deleting);
        // Two guests of the same name may have been generated; one of them must allow it.
        let fine = members.iter().any(|(from, member)| {
            let group = member.group.found().unwrap();
            let desired = group.desired.unwrap_or(0);
            let well = group.members.iter().filter(|it| !it.deleting && it.trouble.is_none()).count();
            let spare = match group.allowance {
                Allowance::ControlPlane { stacked_etcd } => {
                    let quorum = if stacked_etcd { desired / 2 + 1 } else { 1 };
                    well == desired && group.members.len() == desired && well > quorum
                }
                Allowance::Unavailable(allowed) => well > 0 && desired - (well - 1) <= allowed,
                Allowance::Unknown(_) => false,
            };
            let room = has_room(&observed, *from, member.demanded.as_ref().unwrap());
            spare && room && group.unsettled.is_none() && member.consent == Lookup::Found(Consent::Automatic)
                && member.paused == Lookup::Found(false)
        });
        prop_assert!(fine, "{:#?}", members);
    }

    #[test]
    fn the_order_of_what_was_seen_does_not_matter(observed in any_observed(), turns in proptest::collection::vec(any::<Index>(), 8)) {
        let mut other = observed.clone();
        for turn in &turns {
            let at = turn.index(other.hosts.len());
            other.hosts.swap(0, at);
        }
        prop_assert_eq!(decide(&observed), decide(&other));
        prop_assert_eq!(decide(&observed), decide(&observed));
    }

    /// Clusters whose Machines we delete and their owners replace, at whatever pace, with managers that crash in between: at no
    /// time are two machines of one control plane missing, and in the end nothing is left on the host.
    #[test]
    fn s30_never_two_machines_of_one_control_plane_are_missing(
        clusters in 1..5usize, on_host in 1..4usize, events in proptest::collection::vec(any::<Index>(), 200),
    ) {
        // By cluster: each machine's stage. 0: on the host; 1: being deleted; 2: gone, to be replaced; 3: elsewhere.
        let mut world: BTreeMap<String, Vec<u8>> = (0..clusters)
            .map(|number| (format!("c{number}"), (0..3).map(|machine| if machine < on_host { 0 } else { 3 }).collect()))
            .collect();
        let mut generation = 0;
        for event in &events {
            let observed = observed(seen(&world));
            if let Some(machine) = decide(&observed).delete {
                let (cluster, number) = machine.object.name.split_once('-').unwrap();
                world.get_mut(cluster).unwrap()[number.parse::<usize>().unwrap()] = 1;
            }
            for (cluster, machines) in &world {
                let missing = machines.iter().filter(|stage| matches!(stage, 1 | 2)).count();
                prop_assert!(missing <= 1, "{} misses {}", cluster, missing);
            }
            // One machine makes progress, or none does.
            let mut busy: Vec<&mut u8> = world.values_mut().flatten().filter(|stage| matches!(stage, 1 | 2)).collect();
            let at = event.index(busy.len() + 1);
            if let Some(stage) = busy.get_mut(at) {
                **stage += 1;
                generation += 1;
            }
        }
        let left = world.values().flatten().filter(|stage| **stage == 0).count();
        prop_assert!(left == 0 || generation < clusters * on_host * 2, "{} left after {}", left, generation);
    }
}

fn seen(world: &BTreeMap<String, Vec<u8>>) -> Vec<Guest> {
    let mut guests = Vec::new();
    for (cluster, machines) in world {
        let mut group = control_plane(cluster, 3);
        for (member, stage) in group.members.iter_mut().zip(machines) {
            member.deleting = *stage == 1;
        }
        let stages: BTreeMap<String, u8> =
            group.members.iter().map(|member| member.name.clone()).zip(machines.iter().copied()).collect();
        group.members.retain(|member| stages[&member.name] != 2);
        for (name, stage) in stages.iter().filter(|(_, stage)| matches!(stage, 0 | 1)) {
            let mut member = member(cluster, group.clone());
            if let Lookup::Found(machine) = &mut member.machine {
                machine.object.name.clone_from(name);
                machine.deleting = *stage == 1;
            }
            guests.push(guest(member));
        }
    }
    guests
}
