//! Placement, as a table and as properties.

use std::collections::{BTreeMap, BTreeSet};

use capmaas_api::lxd_error::LxdErrorKind;
use proptest::prelude::*;

use super::*;
use crate::Lookup;
use crate::intent::{Attach, Nic};
use crate::maas::{Power, State};

fn named(name: &str) -> Named {
    Named { id: i64::from(name.bytes().map(u32::from).sum::<u32>()), name: name.to_owned() }
}

fn host(id: i64, zone: &str) -> Host {
    let subnet = SubnetRef { name: "front".into(), cidr: "10.0.0.0/24".into() };
    Host {
        id,
        name: format!("host-{id}"),
        system_id: Some(format!("sys{id}")),
        zone: Some(named(zone)),
        pool: Some(named("vms")),
        tags: BTreeSet::new(),
        project: Lookup::Found("maas".into()),
        reached: true,
        total: Room { cores: 16, memory: 65_536 },
        free: Room { cores: 16, memory: 65_536 },
        pools: vec![StoragePool { name: "default".into(), free: 1_000_000_000_000, default: true }],
        ports: Some(vec![Port { name: "br0".into(), bridge: true, boot: true, vlan: 1, subnets: vec![subnet] }]),
        profiles: None,
        departing: false,
        machine: Lookup::Found(HostMachine { state: State::Deployed, power: Power::On, tags: BTreeSet::new() }),
    }
}

fn vm() -> Vm {
    Vm { cores: 4, memory: 8192, disk: 60, image: "ubuntu/jammy".into(), ..Vm::default() }
}

fn ask(vm: &Vm, hosts: &[Host], claims: &[Claim], siblings: &[Sibling]) -> Placement {
    place(&Demand { vm, zone: vm.zone.as_deref(), failed: &BTreeSet::new() }, hosts, claims, siblings)
}

fn chosen(placement: &Placement) -> i64 {
    placement.choice.as_ref().unwrap().host
}

fn why(placement: &Placement, host: i64) -> &Why {
    &placement.verdicts.iter().find(|verdict| verdict.host == host).unwrap().why
}

fn claim(choice: &Choice, vm: &Vm) -> Claim {
    let storage_pool = Some(choice.storage_pool.clone());
    Claim { host: choice.host, cores: vm.cores, memory: vm.memory, disk: vm.disk, storage_pool }
}

#[test]
fn every_question_keeps_a_host_out_and_says_so() {
    type Change = fn(&mut Vm, &mut Host);
    let table: Vec<(&str, Change, LxdErrorKind)> = vec![
        ("vmHost", |vm, _| vm.host = Some("host-9".into()), LxdErrorKind::HostUnavailable),
        ("zone z1", |vm, _| vm.zone = Some("z9".into()), LxdErrorKind::HostUnavailable),
        ("resource pool vms", |vm, _| vm.pool = Some("other".into()), LxdErrorKind::HostUnavailable),
        ("tag fast", |vm, _| vm.tags = vec!["fast".into()], LxdErrorKind::HostUnavailable),
        ("\"other\"", |vm, _| vm.project = Some("other".into()), LxdErrorKind::ProjectNotFound),
        (
            "cannot be read: 403",
            |vm, host| {
                vm.project = Some("maas".into());
                host.project = Lookup::Unknown("403".into());
            },
            LxdErrorKind::HostUnavailable,
        ),
        (
            "the profile \"maas\" of their project and no other",
            |vm, host| {
                vm.profile = Some("fast".into());
                host.profiles = Some(BTreeSet::from(["fast".into()]));
            },
            LxdErrorKind::ProfileNotFound,
        ),
        ("its profiles are not reported", |vm, _| vm.profile = Some("maas".into()), LxdErrorKind::ProfileNotFound),
        (
            "does not have the profile",
            |vm, host| {
                vm.profile = Some("maas".into());
                host.profiles = Some(BTreeSet::from(["default".into()]));
            },
            LxdErrorKind::ProfileNotFound,
        ),
        (
            "maas-lxd-host-maintenance",
            |_, host| host.tags = BTreeSet::from(["maas-lxd-host-maintenance".into()]),
            LxdErrorKind::HostUnavailable,
        ),
        (
            "maas-lxd-host-noschedule",
            |_, host| {
                let tags = BTreeSet::from(["maas-lxd-host-noschedule".into()]);
                host.machine = Lookup::Found(HostMachine { state: State::Deployed, power: Power::On, tags });
            },
            LxdErrorKind::HostUnavailable,
        ),
        ("leaving", |_, host| host.tags = BTreeSet::from([LEAVING_TAG.into()]), LxdErrorKind::HostUnavailable),
        (
            "off",
            |_, host| {
                let machine = HostMachine { state: State::Deployed, power: Power::Off, tags: BTreeSet::new() };
                host.machine = Lookup::Found(machine);
            },
            LxdErrorKind::HostUnavailable,
        ),
        (
            "not deployed",
            |_, host| {
                let machine = HostMachine { state: State::Broken, power: Power::On, tags: BTreeSet::new() };
                host.machine = Lookup::Found(machine);
            },
            LxdErrorKind::HostUnavailable,
        ),
        ("504", |_, host| host.machine = Lookup::Unknown("504".into()), LxdErrorKind::HostUnavailable),
        ("does not reach", |_, host| host.reached = false, LxdErrorKind::HostUnavailable),
        ("does not know its resources", |_, host| host.total = Room::default(), LxdErrorKind::HostUnavailable),
        ("no storage pool ssd", |vm, _| vm.storage_pool = Some("ssd".into()), LxdErrorKind::InsufficientResources),
        ("without the storage pool", |_, host| host.pools.clear(), LxdErrorKind::InsufficientResources),
        ("1000 GB left", |vm, _| vm.disk = 1001, LxdErrorKind::InsufficientResources),
        ("3 cores left", |_, host| host.free.cores = 3, LxdErrorKind::InsufficientResources),
        ("8191 MB", |_, host| host.free.memory = 8191, LxdErrorKind::InsufficientResources),
        (
            "64 cores left",
            |vm, host| {
                // Overcommit allows more than there is, but no single VM may be larger than the host.
                vm.cores = 17;
                host.free.cores = 64;
            },
            LxdErrorKind::InsufficientResources,
        ),
        (
            "no bridge br9",
            |vm, _| vm.nics = vec![nic("eth0", Attach::Bridge("br9".into()))],
            LxdErrorKind::HostUnavailable,
        ),
        (
            "not attached to the subnet back",
            |vm, _| vm.nics = vec![nic("eth0", Attach::Subnet("back".into()))],
            LxdErrorKind::HostUnavailable,
        ),
        (
            "another bridge beside br0",
            |vm, host| {
                vm.nics = vec![nic("eth0", Attach::Bridge("br0".into()))];
                let twin = Port { name: "br1".into(), bridge: true, boot: false, vlan: 1, subnets: Vec::new() };
                host.ports.as_mut().unwrap().push(twin);
            },
            LxdErrorKind::HostUnavailable,
        ),
        (
            "no subnet on its bridge",
            |vm, host| {
                vm.nics = vec![nic("eth0", Attach::Bridge("br0".into()))];
                host.ports.as_mut().unwrap()[0].subnets.clear();
            },
            LxdErrorKind::HostUnavailable,
        ),
        (
            "does not show its networks",
            |vm, host| {
                vm.nics = vec![nic("eth0", Attach::Bridge("br0".into()))];
                host.ports = None;
            },
            LxdErrorKind::HostUnavailable,
        ),
    ];
    for (words, change, kind) in table {
        let (mut vm, mut host) = (vm(), host(1, "z1"));
        assert_eq!(chosen(&ask(&vm, &[host.clone()], &[], &[])), 1);
        change(&mut vm, &mut host);
        let placement = ask(&vm, &[host], &[], &[]);
        let error = placement.choice.clone().unwrap_err();
        assert_eq!(error.kind, kind, "{words}: {error}");
        assert!(error.message.contains(words), "{words}: {error}");
        assert!(!placement.full().is_empty());
    }
}

fn nic(name: &str, to: Attach) -> Nic {
    Nic { name: name.into(), to, mode: None }
}

#[test]
fn without_any_host_it_says_what_to_do() {
    let error = ask(&vm(), &[], &[], &[]).choice.unwrap_err();
    assert_eq!(error.kind, LxdErrorKind::HostUnavailable);
    assert!(error.message.contains("register one"), "{error}");
}

#[test]
fn a_host_that_failed_for_the_machine_is_left_out() {
    let (hosts, failed) = ([host(1, "z1"), host(2, "z1")], BTreeSet::from([1]));
    let placement = place(&Demand { vm: &vm(), zone: None, failed: &failed }, &hosts, &[], &[]);
    assert_eq!((chosen(&placement), why(&placement, 1)), (2, &Why::FailedBefore));
}

#[test]
fn a_host_is_named_by_name_number_or_system_id() {
    for name in ["host-2", "2", "sys2"] {
        let asked = Vm { host: Some(name.into()), ..vm() };
        assert_eq!(chosen(&ask(&asked, &[host(1, "z1"), host(2, "z1")], &[], &[])), 2, "{name}");
    }
}

#[test]
fn the_emptiest_zone_wins_then_the_emptiest_host_then_room_then_the_name() {
    let hosts = [host(1, "z1"), host(2, "z1"), host(3, "z2")];
    let on = |host: i64, zone: &str| Sibling { host: Some(host), zone: Some(zone.into()) };
    assert_eq!(chosen(&ask(&vm(), &hosts, &[], &[])), 1, "nothing tells them apart but the name");
    assert_eq!(chosen(&ask(&vm(), &hosts, &[], &[on(1, "z1")])), 3, "another zone");
    assert_eq!(chosen(&ask(&vm(), &hosts, &[], &[on(1, "z1"), on(3, "z2")])), 2, "another host");
    let metal = Sibling { host: None, zone: Some("z1".into()) };
    assert_eq!(chosen(&ask(&vm(), &hosts, &[], &[metal])), 3, "metal siblings count in their zone");
    let mut roomy = hosts.clone();
    roomy[0].free.memory = 16_384;
    assert_eq!(chosen(&ask(&vm(), &roomy, &[], &[])), 2, "more room");
    let pinned = Vm { zone: Some("z1".into()), ..vm() };
    assert_eq!(chosen(&ask(&pinned, &hosts, &[], &[on(1, "z1")])), 2, "in the zone that was asked for");
}

#[test]
fn an_event_names_hosts_that_leave_before_others_that_were_not_chosen() {
    let departing = Host { departing: true, ..host(8, "az1") };
    let closed = Host { tags: BTreeSet::from([LEAVING_TAG.to_owned()]), ..host(9, "az1") };
    let hosts: Vec<Host> = (1..=7).map(|id| host(id, "az1")).chain([departing, closed]).collect();
    let full = ask(&vm(), &hosts, &[], &[]).full();
    let lines: Vec<&str> = full.lines().collect();
    assert!(lines[0].contains("chosen") && lines.len() == 9, "{full}");
    assert!(lines[1].contains("replace it") && lines[2].contains("is being removed"), "{full}");
}

#[test]
fn a_host_that_a_roll_out_is_going_to_replace_is_chosen_last() {
    let departing = Host { departing: true, ..host(1, "az1") };
    let beside = Sibling { host: Some(2), zone: Some("az2".into()) };
    let siblings = [beside.clone(), beside];
    let placement = ask(&vm(), &[departing.clone(), host(2, "az2")], &[], &siblings);
    assert_eq!(chosen(&placement), 2);
    assert!(placement.full().contains("left out because a rollout is going to replace it"), "{}", placement.full());
    let full = Host { free: Room::default(), ..host(2, "az2") };
    assert_eq!(chosen(&ask(&vm(), &[departing, full], &[], &siblings)), 1, "rather there than nowhere");
}

#[test]
fn claims_count_as_if_they_were_there() {
    let hosts = [host(1, "z1")];
    let full = Claim { host: 1, cores: 13, memory: 1024, disk: 1, storage_pool: None };
    let error = ask(&vm(), &hosts, &[full], &[]).choice.unwrap_err();
    assert!(error.message.contains("3 cores left"), "{error}");
    let elsewhere = Claim { host: 2, cores: 13, memory: 1024, disk: 1, storage_pool: None };
    assert_eq!(chosen(&ask(&vm(), &hosts, &[elsewhere], &[])), 1);
    let other_pool = Claim { host: 1, cores: 1, memory: 1024, disk: 990, storage_pool: Some("other".into()) };
    assert_eq!(chosen(&ask(&vm(), &hosts, &[other_pool], &[])), 1);
    let same_pool = Claim { host: 1, cores: 1, memory: 1024, disk: 990, storage_pool: Some("default".into()) };
    assert!(ask(&vm(), &hosts, &[same_pool], &[]).choice.is_err());
}

#[test]
fn cards_become_subnets_that_maas_understands() {
    let mut one = host(1, "z1");
    let back = SubnetRef { name: "back".into(), cidr: "10.1.0.0/24".into() };
    let ports = one.ports.as_mut().unwrap();
    ports.push(Port { name: "eth1".into(), bridge: false, boot: false, vlan: 2, subnets: vec![back] });
    let interfaces = |nics: Vec<Nic>| {
        let placement = ask(&Vm { nics, ..vm() }, &[one.clone()], &[], &[]);
        placement.choice.unwrap().interfaces.into_iter().map(|it| (it.name, it.subnet)).collect::<Vec<_>>()
    };
    assert_eq!(interfaces(Vec::new()), []);
    assert_eq!(interfaces(vec![nic("eth0", Attach::Boot)]), [], "MAAS chooses the network of the only card itself");
    let two = interfaces(vec![nic("eth0", Attach::Boot), nic("eth1", Attach::Subnet("back".into()))]);
    assert_eq!(two, [("eth0".into(), "10.0.0.0/24".into()), ("eth1".into(), "10.1.0.0/24".into())]);
    let bridge = interfaces(vec![nic("eth0", Attach::Bridge("br0".into()))]);
    assert_eq!(bridge, [("eth0".into(), "10.0.0.0/24".into())]);
}

#[test]
fn the_explanation_is_one_sentence_and_in_full_a_line_for_each_host() {
    let mut hosts = vec![host(1, "z1"), host(2, "z2"), host(3, "z3"), host(4, "z3")];
    hosts[1].reached = false;
    hosts[2].free.cores = 0;
    hosts[3].free.cores = 1;
    let placement = ask(&vm(), &hosts, &[], &[]);
    let sentence = placement.sentence();
    assert!(sentence.starts_with("host-1 in zone z1: ") && !sentence.contains('\n'), "{sentence}");
    assert!(sentence.contains("2 with too few cores") && sentence.contains("host-2 MAAS does not reach"), "{sentence}");
    assert_eq!(placement.full().lines().count(), 4);
    assert!(placement.full().starts_with("host-1: chosen"), "{}", placement.full());
}

#[test]
fn fifty_vms_placed_one_after_the_other_on_seven_hosts_are_spread_and_fit() {
    let hosts: Vec<Host> = (1..=7).map(|id| roomy(id, ["z1", "z2", "z3"][usize::try_from(id % 3).unwrap()])).collect();
    let (mut claims, mut siblings) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        let choice = ask(&vm(), &hosts, &claims, &siblings).choice.unwrap();
        claims.push(claim(&choice, &vm()));
        siblings.push(Sibling { host: Some(choice.host), zone: choice.zone.map(|zone| zone.name) });
    }
    let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
    for sibling in &siblings {
        *zones.entry(sibling.zone.as_deref().unwrap()).or_default() += 1;
    }
    assert_eq!(zones.values().sum::<usize>(), 50);
    assert!(zones.values().max().unwrap() - zones.values().min().unwrap() <= 1, "{zones:?}");
    within_capacity(&hosts, &claims);
}

fn roomy(id: i64, zone: &str) -> Host {
    let room = Room { cores: 80, memory: 200_000 };
    Host {
        total: room,
        free: room,
        pools: vec![StoragePool { name: "default".into(), free: 2_000_000_000_000, default: true }],
        ..host(id, zone)
    }
}

fn within_capacity(hosts: &[Host], claims: &[Claim]) {
    for host in hosts {
        let of = || claims.iter().filter(|claim| claim.host == host.id);
        assert!(of().map(|claim| i64::from(claim.cores)).sum::<i64>() <= host.free.cores.max(0));
        assert!(of().map(|claim| i64::from(claim.memory)).sum::<i64>() <= host.free.memory.max(0));
        let disk = of().map(|claim| i64::from(claim.disk) * 1_000_000_000).sum::<i64>();
        assert!(disk <= host.pools.iter().map(|pool| pool.free).sum());
    }
}

/// Two managers, or fifty, that see the same and do not see each other: MAAS refuses what is too much, and a manager that was
/// refused reads again.
#[test]
fn fifty_vms_that_all_see_the_same_find_a_host_each_because_maas_refuses_what_is_too_much() {
    let mut hosts: Vec<Host> = (1..=7).map(|id| roomy(id, "z1")).collect();
    let before = hosts.clone();
    let (mut waiting, mut made, mut rounds) = (50, Vec::new(), 0);
    while waiting > 0 {
        rounds += 1;
        assert!(rounds <= 7, "each round fills a host at least");
        let seen = hosts.clone();
        for _ in 0..waiting {
            let choice = ask(&vm(), &seen, &[], &[]).choice.unwrap();
            let host = hosts.iter_mut().find(|host| host.id == choice.host).unwrap();
            let (cores, memory) = (i64::from(vm().cores), i64::from(vm().memory));
            if host.free.cores < cores || host.free.memory < memory {
                continue;
            }
            host.free = Room { cores: host.free.cores - cores, memory: host.free.memory - memory };
            host.pools[0].free -= 60_000_000_000;
            made.push(claim(&choice, &vm()));
        }
        waiting = 50 - made.len();
    }
    within_capacity(&before, &made);
}

prop_compose! {
    fn any_host(id: i64)(
        zone in 0..4_usize,
        cores in -4..40_i64,
        memory in -1024..100_000_i64,
        disk in 0..900_i64,
        reached in prop::bool::weighted(0.9),
        closed in prop::bool::weighted(0.1),
        power in prop_oneof![8 => Just(Power::On), 1 => Just(Power::Off), 1 => Just(Power::Unknown)],
    ) -> Host {
        let base = host(id, ["z0", "z1", "z2", "z3"][zone]);
        let room = Room { cores, memory };
        Host {
            reached,
            free: room,
            total: Room { cores: cores.max(1), memory: memory.max(1) },
            pools: vec![StoragePool { name: "default".into(), free: disk * 1_000_000_000, default: true }],
            tags: if closed { BTreeSet::from([MAINTENANCE_TAGS[0].to_owned()]) } else { BTreeSet::new() },
            machine: Lookup::Found(HostMachine { state: State::Deployed, power, tags: BTreeSet::new() }),
            ..base
        }
    }
}

fn hosts() -> impl Strategy<Value = Vec<Host>> {
    (0..9_i64).prop_flat_map(|count| (1..=count).map(any_host).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn no_host_is_ever_promised_more_than_it_has(hosts in hosts(), cores in 1..9_u32, memory in 1024..20_000_u32, disk in 1..200_u32) {
        let asked = Vm { cores, memory, disk, ..vm() };
        let (mut claims, mut siblings) = (Vec::new(), Vec::new());
        for _ in 0..200 {
            let Ok(choice) = ask(&asked, &hosts, &claims, &siblings).choice else { break };
            claims.push(claim(&choice, &asked));
            siblings.push(Sibling { host: Some(choice.host), zone: choice.zone.map(|zone| zone.name) });
        }
        within_capacity(&hosts, &claims);
        // It only ends when nothing fits any more.
        for host in &hosts {
            let alone = ask(&asked, std::slice::from_ref(host), &claims, &siblings);
            prop_assert!(claims.len() == 200 || alone.choice.is_err());
        }
    }

    #[test]
    fn zones_differ_by_at_most_one_while_they_have_room(zones in prop::collection::vec(1..4_usize, 1..5), count in 1..24_usize) {
        let mut hosts = Vec::new();
        for (zone, hosts_in_it) in zones.iter().enumerate() {
            for _ in 0..*hosts_in_it {
                let id = i64::try_from(hosts.len()).unwrap() + 1;
                let room = Room { cores: 4 * 24, memory: 8192 * 24 };
                let pools = vec![StoragePool { name: "default".into(), free: i64::MAX, default: true }];
                hosts.push(Host { total: room, free: room, pools, ..host(id, &format!("z{zone}")) });
            }
        }
        let (mut claims, mut siblings) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let choice = ask(&vm(), &hosts, &claims, &siblings).choice.unwrap();
            claims.push(claim(&choice, &vm()));
            siblings.push(Sibling { host: Some(choice.host), zone: choice.zone.map(|zone| zone.name) });
        }
        let in_zone = |zone: usize| siblings.iter().filter(|it| it.zone.as_deref() == Some(&format!("z{zone}"))).count();
        let counts: Vec<usize> = (0..zones.len()).map(in_zone).collect();
        prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
        for (zone, _) in zones.iter().enumerate() {
            let on = hosts.iter().filter(|host| host.zone.as_ref().unwrap().name == format!("z{zone}"));
            let counts: Vec<usize> = on.map(|host| siblings.iter().filter(|it| it.host == Some(host.id)).count()).collect();
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
        }
    }

    #[test]
    fn a_fuller_zone_or_host_is_only_chosen_when_no_emptier_one_has_room(hosts in hosts(), cores in 1..9_u32) {
        let asked = Vm { cores, memory: 4096, ..vm() };
        let (mut claims, mut siblings) = (Vec::new(), Vec::<Sibling>::new());
        for _ in 0..60 {
            let Ok(choice) = ask(&asked, &hosts, &claims, &siblings).choice else { break };
            let in_zone = |zone: &str| siblings.iter().filter(|it| it.zone.as_deref() == Some(zone)).count();
            let on_host = |host: i64| siblings.iter().filter(|it| it.host == Some(host)).count();
            let zone = choice.zone.clone().unwrap().name;
            for other in &hosts {
                let fits = ask(&asked, std::slice::from_ref(other), &claims, &siblings).choice.is_ok();
                let its = &other.zone.as_ref().unwrap().name;
                prop_assert!(!fits || in_zone(its) >= in_zone(&zone), "{} is emptier than {zone}", its);
                prop_assert!(!fits || *its != zone || on_host(other.id) >= on_host(choice.host));
            }
            claims.push(claim(&choice, &asked));
            siblings.push(Sibling { host: Some(choice.host), zone: Some(zone) });
        }
    }

    #[test]
    fn the_order_of_what_is_seen_does_not_matter(
        (hosts, shuffled) in hosts().prop_flat_map(|hosts| (Just(hosts.clone()), Just(hosts).prop_shuffle())),
        (claims, mixed) in prop::collection::vec((1..9_i64, 1..5_u32), 0..12).prop_flat_map(|it| (Just(it.clone()), Just(it).prop_shuffle())),
    ) {
        let claims_of = |list: &[(i64, u32)]| list.iter()
            .map(|(host, cores)| Claim { host: *host, cores: *cores, memory: 2048, disk: 10, storage_pool: None }).collect::<Vec<_>>();
        let one = ask(&vm(), &hosts, &claims_of(&claims), &[]);
        prop_assert_eq!(one, ask(&vm(), &shuffled, &claims_of(&mixed), &[]));
    }

    #[test]
    fn every_host_has_a_verdict_and_every_refusal_a_sentence(hosts in hosts()) {
        let placement = ask(&vm(), &hosts, &[], &[]);
        let told: BTreeSet<i64> = placement.verdicts.iter().map(|verdict| verdict.host).collect();
        prop_assert_eq!(told, hosts.iter().map(|host| host.id).collect::<BTreeSet<_>>());
        prop_assert_eq!(placement.full().lines().count(), hosts.len());
        let chosen = placement.verdicts.iter().filter(|verdict| matches!(verdict.why, Why::Chosen { .. })).count();
        prop_assert_eq!(chosen, usize::from(placement.choice.is_ok()));
        prop_assert!(placement.verdicts.iter().all(|verdict| !verdict.why.to_string().is_empty()));
        prop_assert!(!placement.sentence().is_empty());
        if let Err(error) = &placement.choice {
            let would_do = placement.verdicts.iter().any(|verdict| matches!(verdict.why, Why::Behind { .. } | Why::Departing { .. }));
            prop_assert!(!would_do);
            prop_assert!(error.message.len() > 20, "{}", error);
        }
    }
}
