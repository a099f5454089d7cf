#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::*;
use crate::Lookup;
use crate::intent::{Metal, Vm};
use crate::maas::State;
use crate::machine::quarantine_tags;
use crate::placement::{HostMachine, Named, Room, StoragePool};

fn now() -> Timestamp {
    "2026-11-15T09:00:00Z".parse().unwrap()
}

fn metal(id: &str, zone: &str, memory: i64) -> Candidate {
    Candidate {
        id: id.into(),
        hostname: id.into(),
        state: State::Ready,
        owned: false,
        zone: zone.into(),
        pool: "default".into(),
        cores: 8,
        memory,
        disks: vec![Disk { size: 500_000_000_000, storage_pool: None }],
        tags: BTreeSet::new(),
        vm_host: None,
    }
}

fn taken(id: &str, zone: &str) -> Candidate {
    Candidate { state: State::Deployed, owned: true, ..metal(id, zone, 32768) }
}

fn host(id: i64, zone: &str, cores: i64) -> crate::placement::Host {
    crate::placement::Host {
        id,
        name: format!("h{id}"),
        system_id: Some(format!("m{id}")),
        zone: Some(Named { id: 1, name: zone.into() }),
        pool: None,
        tags: BTreeSet::new(),
        project: Lookup::Absent,
        reached: true,
        total: Room { cores, memory: 65536 },
        free: Room { cores, memory: 65536 },
        pools: vec![StoragePool { name: "default".into(), free: 1_000_000_000_000, default: true }],
        ports: None,
        profiles: None,
        departing: false,
        machine: Lookup::Found(HostMachine {
            state: State::Deployed,
            power: crate::maas::Power::On,
            tags: BTreeSet::new(),
        }),
    }
}

fn inventory(machines: Vec<Candidate>, hosts: Vec<crate::placement::Host>) -> Inventory {
    let zones = ["az1", "az2", "az3"].map(String::from).into();
    Inventory { machines, hosts, zones, pools: ["default".to_owned()].into() }
}

fn wants(memory: u32) -> Intent {
    Intent::Metal(Metal { min_memory: Some(memory), image: "jammy".into(), ..Metal::default() })
}

fn small_vm() -> Intent {
    Intent::Vm(Box::new(Vm { cores: 2, memory: 2048, disk: 10, image: "jammy".into(), ..Vm::default() }))
}

fn group(role: Role, replicas: usize, intent: Intent) -> Group {
    let name = if role == Role::ControlPlane { "cp" } else { "md-0" };
    Group {
        cluster: "default/c1".into(),
        name: name.into(),
        role,
        replicas,
        intent: Ok(intent),
        failure_domain: None,
        failure_domains: Vec::new(),
        surge: 1,
        unavailable: 0,
        rolls: true,
        members: Vec::new(),
    }
}

fn member(id: &str, zone: &str, outdated: bool) -> Member {
    let (name, zone) = (format!("on-{id}"), Some(zone.to_owned()));
    Member { name, machine: Some(id.into()), zone, outdated, ..Member::default() }
}

/// "+hostname" for what is created, "-name" for what is deleted, "!" for what gets nothing.
fn story(forecast: &Forecast) -> Vec<String> {
    let told = forecast.steps.iter().map(|step| match &step.action {
        Action::Create(Server::Metal { hostname, .. }) => format!("+{hostname}"),
        Action::Create(Server::Vm(placement)) => format!("+{}", placement.choice.as_ref().unwrap().name),
        Action::Create(Server::Nothing { .. }) => "!".to_owned(),
        Action::Delete { .. } => format!("-{}", step.machine),
    });
    told.collect()
}

#[test]
fn machines_are_taken_as_maas_does_the_cheapest_that_fits_first() {
    let all =
        inventory(vec![metal("big", "az1", 65536), metal("mid", "az2", 32768), metal("tiny", "az1", 8192)], vec![]);
    let forecast = forecast(&all, &[group(Role::Workers, 2, wants(16384))], now());
    assert_eq!(story(&forecast), ["+mid", "+big"]);
    assert!(forecast.fits());
    let free: Vec<_> = forecast.groups[0].metal.iter().map(|free| (free.zone.as_str(), free.now, free.left)).collect();
    assert_eq!(free, [("az1", 1, 0), ("az2", 1, 0)]);
}

#[test]
fn what_is_missing_is_told_in_words_with_what_comes_nearest() {
    let mut quarantined = metal("q", "az2", 65536);
    quarantined.tags.insert(quarantine_tags(now())[0].clone());
    let all =
        inventory(vec![metal("a", "az1", 65536), metal("b", "az2", 8192), taken("t", "az2"), quarantined], vec![]);
    let wanted = Group { failure_domain: Some("az2".into()), ..group(Role::Workers, 2, wants(32768)) };
    let forecast = forecast(&all, &[wanted], now());
    assert!(!forecast.fits());
    assert_eq!(forecast.missing[0].what, "two more machines with 32 GB of memory in zone az2");
    assert_eq!(forecast.missing[0].why, "1 in quarantine, 1 not free, 1 with too little memory, 1 in another zone");
    let nowhere = Group { failure_domain: Some("az9".into()), ..group(Role::Workers, 1, wants(0)) };
    assert_eq!(super::forecast(&all, &[nowhere], now()).missing[0].why, "MAAS has no zone az9");
}

#[test]
fn a_control_plane_is_spread_over_its_failure_domains() {
    let all = inventory(
        ["az1", "az1", "az2", "az3"].iter().enumerate().map(|(n, zone)| metal(&format!("m{n}"), zone, 8192)).collect(),
        vec![],
    );
    let spread = Group {
        failure_domains: ["az3", "az1", "az2"].map(String::from).to_vec(),
        ..group(Role::ControlPlane, 3, wants(1024))
    };
    let forecast = forecast(&all, &[spread], now());
    assert_eq!(story(&forecast), ["+m0", "+m2", "+m3"]);
}

#[test]
fn a_roll_out_needs_one_spare_machine_and_then_uses_what_it_frees() {
    let members: Vec<Member> = ["a", "b", "c"].iter().map(|id| member(id, "az1", true)).collect();
    let control_plane = Group { members, ..group(Role::ControlPlane, 3, wants(1024)) };
    let mut all = inventory(["a", "b", "c"].iter().map(|id| taken(id, "az1")).collect(), vec![]);

    let stuck = forecast(&all, std::slice::from_ref(&control_plane), now());
    assert_eq!(story(&stuck), ["!"]);
    assert_eq!(stuck.missing[0].what, "one more machine with 1 GB of memory");

    all.machines.push(metal("spare", "az1", 32768));
    let rolled = forecast(&all, std::slice::from_ref(&control_plane), now());
    assert_eq!(story(&rolled), ["+spare", "-on-a", "+a", "-on-b", "+b", "-on-c"]);
    assert!(rolled.fits());

    // Without a surge the old one is deleted first, and nothing more is needed.
    all.machines.pop();
    let in_place = Group { surge: 0, unavailable: 1, ..control_plane };
    let rolled = forecast(&all, &[in_place], now());
    assert_eq!(story(&rolled), ["-on-a", "+a", "-on-b", "+b", "-on-c", "+c"]);
}

#[test]
fn a_new_machine_that_waits_gets_what_the_old_one_leaves() {
    let members: Vec<Member> = ["a", "b"].iter().map(|id| member(id, "az1", true)).collect();
    let workers = Group { members, unavailable: 1, ..group(Role::Workers, 2, wants(1024)) };
    let all = inventory(["a", "b"].iter().map(|id| taken(id, "az1")).collect(), vec![]);
    let rolled = forecast(&all, &[workers], now());
    assert_eq!(story(&rolled), ["-on-a", "+a", "-on-b", "+b"]);
    assert!(rolled.fits());
}

#[test]
fn a_group_that_grows_while_it_rolls_out_misses_both() {
    let workers = Group { members: vec![member("a", "az1", true)], ..group(Role::Workers, 3, wants(1024)) };
    let stuck = forecast(&inventory(vec![taken("a", "az1")], vec![]), &[workers], now());
    assert_eq!(stuck.missing[0].count, 3);
    let enough = (0..3).map(|n| metal(&format!("s{n}"), "az1", 32768)).chain([taken("a", "az1")]).collect();
    let workers = Group { members: vec![member("a", "az1", true)], ..group(Role::Workers, 3, wants(1024)) };
    assert!(forecast(&inventory(enough, vec![]), &[workers], now()).fits());
}

#[test]
fn machines_that_wait_already_come_before_new_ones() {
    let waiting = Member { name: "waits".into(), ..Member::default() };
    let old = Group { members: vec![waiting], cluster: "default/old".into(), ..group(Role::Workers, 1, wants(1024)) };
    let all = inventory(vec![metal("only", "az1", 8192)], vec![]);
    let forecast = forecast(&all, &[group(Role::Workers, 1, wants(1024)), old], now());
    assert_eq!(story(&forecast), ["+only", "!"]);
    assert_eq!((forecast.steps[0].machine.as_str(), forecast.missing[0].cluster.as_str()), ("waits", "default/c1"));
}

#[test]
fn vms_are_placed_by_the_managers_own_rules_and_fill_their_hosts() {
    let all = inventory(vec![], vec![host(1, "az1", 4), host(2, "az2", 4)]);
    let fits = forecast(&all, &[group(Role::ControlPlane, 4, small_vm())], now());
    assert_eq!(story(&fits), ["+h1", "+h2", "+h1", "+h2"]);
    let next = fits.groups[0].next_vm.as_ref().unwrap();
    assert!(next.choice.is_err(), "no room is left");
    let full = forecast(&all, &[group(Role::ControlPlane, 5, small_vm())], now());
    assert_eq!(full.missing[0].what, "room for one more VM with 2 cores, 2 GB of memory and a disk of 10 GB");
    assert!(full.missing[0].why.contains("no LXD host has 2 cores"), "{}", full.missing[0].why);
}

#[test]
fn a_vm_that_goes_leaves_its_room_to_the_next() {
    let mut vm = taken("vm1", "az1");
    vm.vm_host = Some(1);
    (vm.cores, vm.memory) = (2, 2048);
    let mut full = host(1, "az1", 2);
    full.free.cores = 0;
    let all = inventory(vec![vm], vec![full]);
    let workers = Group {
        members: vec![member("vm1", "az1", true)],
        surge: 0,
        unavailable: 1,
        ..group(Role::Workers, 1, small_vm())
    };
    assert_eq!(story(&forecast(&all, &[workers], now())), ["-on-vm1", "+h1"]);
}

#[test]
fn a_host_that_goes_tells_how_many_vms_must_go_first() {
    let mut vm = taken("vm1", "az1");
    vm.vm_host = Some(1);
    let all = inventory(vec![taken("m1", "az1"), vm], vec![host(1, "az1", 8)]);
    let hosts = Group { members: vec![member("m1", "az1", false)], ..group(Role::Workers, 0, wants(1024)) };
    let forecast = forecast(&all, &[hosts], now());
    assert!(matches!(forecast.steps[0].action, Action::Delete { hosted_vms: 1 }), "{:?}", forecast.steps);
}

#[test]
fn vms_and_hosts_that_maas_does_not_list_are_where_their_objects_say() {
    let mut all = inventory(vec![], vec![host(1, "az1", 8)]);
    let vm = Member { host: Some("h1".into()), ..member("vm1", "az1", false) };
    let vms = Group { members: vec![vm], cluster: "default/c2".into(), ..group(Role::Workers, 1, small_vm()) };
    let hosts = Group { members: vec![member("m1", "az1", false)], ..group(Role::Workers, 0, wants(1024)) };
    all.complete(std::slice::from_ref(&vms));
    assert!(all.lists("vm1") && !all.lists("m1"));
    let going = forecast(&all, &[hosts.clone(), vms.clone()], now());
    assert!(matches!(going.steps[0].action, Action::Delete { hosted_vms: 1 }), "{:?}", going.steps);
    assert!(Lost::named(&all, "h1").unwrap().machines.contains("vm1"));
    let growing = Group { replicas: 2, ..vms };
    let placed = forecast(&all, &[hosts, growing], now());
    assert_eq!(story(&placed), ["-on-m1", "!"], "its machine is gone, although it was not listed");
}

#[test]
fn a_template_that_cannot_be_acted_upon_is_told_once() {
    let problem = Problem { reason: "UnreadableSpec", message: "spec.image is empty".into() };
    let broken = Group { intent: Err(problem), ..group(Role::Workers, 2, wants(1)) };
    let forecast = forecast(&inventory(vec![], vec![]), &[broken], now());
    assert_eq!(forecast.missing.len(), 1);
    assert!(forecast.missing[0].what.contains("spec.image is empty"));
}

/// Three control planes and a worker: VMs on h1 and h2, bare metal in az3.
fn running() -> (Inventory, Vec<Group>) {
    let mut machines = vec![taken("m1", "az1"), taken("m2", "az2"), taken("bm", "az3")];
    for (id, on) in [("vm1", 1), ("vm2", 2), ("vm3", 2)] {
        let zone = format!("az{on}");
        machines.push(Candidate { vm_host: Some(on), cores: 2, memory: 2048, ..taken(id, &zone) });
    }
    let all = inventory(machines, vec![host(1, "az1", 8), host(2, "az2", 8)]);
    let members = vec![member("vm1", "az1", false), member("vm2", "az2", false), member("bm", "az3", false)];
    let control_plane = Group { members, ..group(Role::ControlPlane, 3, small_vm()) };
    let workers = Group { members: vec![member("vm3", "az2", false)], ..group(Role::Workers, 1, small_vm()) };
    (all, vec![control_plane, workers])
}

fn check(machines: &[&str], most_unhealthy: Option<usize>) -> HealthCheck {
    let machines = machines.iter().map(|id| format!("on-{id}")).collect();
    HealthCheck { name: "mhc".into(), cluster: "default/c1".into(), machines, least_unhealthy: 0, most_unhealthy }
}

#[test]
fn losing_one_of_three_control_planes_is_survived_and_two_are_not() {
    let (all, groups) = running();
    let every = [check(&["vm1", "vm2", "vm3", "bm"], None)];
    let lose = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        without(&all, &groups, &every, &Lost::all(&all, &names).unwrap(), now()).remove(0)
    };
    let one = lose(&["h2"]);
    assert_eq!(
        (one.lost_control_planes.as_slice(), one.lost_workers.as_slice()),
        (&["on-vm2".to_owned()][..], &["on-vm3".to_owned()][..])
    );
    assert_eq!(one.fate, Fate::Recovers);
    assert_eq!(lose(&["m2"]).fate, Fate::Recovers, "by the machine beneath the host");
    assert_eq!(lose(&["az1", "az2"]).fate, Fate::LosesQuorum);
    assert_eq!(lose(&["az3", "1"]).fate, Fate::LosesQuorum);
    assert_eq!(Lost::all(&all, &["nobody".to_owned()]), Err("nobody"));
    // An API key may not show the machines of others: then their objects provide the zone.
    let blind = Inventory { machines: Vec::new(), ..all.clone() };
    let zones = ["az2", "az3"].map(String::from);
    let gone = Lost::all(&blind, &zones).unwrap();
    assert_eq!(without(&blind, &groups, &every, &gone, now())[0].fate, Fate::LosesQuorum);
}

#[test]
fn a_machine_that_is_unhealthy_already_counts_as_lost_for_the_quorum_and_the_check() {
    let (all, mut groups) = running();
    groups[0].members[2].unhealthy = true;
    let lost = Lost::named(&all, "h1").unwrap();
    let impact =
        |groups: &[Group], checks: &[HealthCheck], lost: &Lost| without(&all, groups, checks, lost, now()).remove(0);
    let two_of_three = impact(&groups, &[check(&["vm1", "vm2", "vm3", "bm"], None)], &lost);
    assert_eq!(two_of_three.fate, Fate::LosesQuorum);
    assert_eq!(two_of_three.unhealthy_control_planes, ["on-bm"]);
    assert_eq!(two_of_three.lost_control_planes, ["on-vm1"]);
    // Lost and unhealthy is one machine, not two.
    let az3 = Lost::named(&all, "az3").unwrap();
    let same = impact(&groups, &[check(&["vm1", "vm2", "vm3", "bm"], None)], &az3);
    assert_ne!(same.fate, Fate::LosesQuorum);
    // A worker that is down already uses up what a MachineHealthCheck tolerates.
    let (_, mut groups) = running();
    groups[1].members[0].unhealthy = true;
    let fate = impact(&groups, &[check(&["vm1", "vm2", "vm3", "bm"], Some(1))], &lost).fate;
    assert!(matches!(fate, Fate::NeedsPerson { .. }), "{fate:?}");
    // Without any loss nothing is asked.
    let nothing = Lost { machines: ["other".to_owned()].into(), ..Lost::default() };
    assert_eq!(impact(&groups, &[], &nothing).fate, Fate::Untouched);
}

#[test]
fn a_group_whose_owner_replaces_nothing_is_not_rolled() {
    let workers =
        Group { members: vec![member("a", "az1", true)], rolls: false, ..group(Role::Workers, 2, wants(1024)) };
    let all = inventory(vec![taken("a", "az1"), metal("b", "az1", 32768)], vec![]);
    assert_eq!(story(&forecast(&all, &[workers], now())), ["+b"], "it grows, and the old machine stays");
}

#[test]
fn a_cluster_recovers_only_if_somebody_replaces_its_machines_and_there_is_room() {
    let (mut all, groups) = running();
    let lost = Lost::named(&all, "az2").unwrap();
    let fate = |all: &Inventory, checks: &[HealthCheck]| without(all, &groups, checks, &lost, now()).remove(0).fate;
    let why = |checks: &[HealthCheck]| match fate(&all, checks) {
        Fate::NeedsPerson { why } => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(why(&[check(&["vm3"], None)]), "no MachineHealthCheck replaces on-vm2");
    assert!(why(&[check(&["vm2", "vm3"], Some(1))]).contains("more than 1 of its machines"));
    let ranged = |least| [HealthCheck { least_unhealthy: least, ..check(&["vm2", "vm3"], Some(2)) }];
    assert!(why(&ranged(3)).contains("fewer than 3 of its machines"));
    assert_eq!(fate(&all, &ranged(2)), Fate::Recovers);
    let every = [check(&["vm2", "vm3"], None)];
    assert_eq!(fate(&all, &every), Fate::Recovers);
    all.hosts[0].free.cores = 2;
    let Fate::CannotReplace { missing } = fate(&all, &every) else { panic!() };
    assert_eq!(missing[0].count, 1);
}
