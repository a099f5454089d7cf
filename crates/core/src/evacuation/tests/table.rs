use capmaas_api::{ConditionStatus, reasons};

use super::*;

/// The fate of the one VM on the host after this change, and the Machine that is deleted.
fn after(change: impl FnOnce(&mut Observed, &mut Member)) -> (Fate, Option<String>) {
    let (mut observed, mut vm) = (observed(Vec::new()), member("c1", control_plane("c1", 3)));
    change(&mut observed, &mut vm);
    observed.hosts[0].guests = Lookup::Found(vec![guest(vm)]);
    let plan = decide(&observed);
    (fates(&plan).remove(0), plan.delete.map(|machine| machine.object.name))
}

fn waits(change: impl FnOnce(&mut Observed, &mut Member)) -> Waiting {
    match after(change) {
        (Fate::Waits(waiting), None) => waiting,
        other => panic!("{other:?}"),
    }
}

fn group(vm: &mut Member) -> &mut Group {
    match &mut vm.group {
        Lookup::Found(group) => group,
        other => panic!("{other:?}"),
    }
}

fn machine(vm: &mut Member) -> &mut Machine {
    match &mut vm.machine {
        Lookup::Found(machine) => machine,
        other => panic!("{other:?}"),
    }
}

#[test]
fn s30_a_machine_of_a_healthy_control_plane_is_deleted_when_there_is_room_for_another() {
    assert_eq!(after(|_, _| {}), (Fate::Goes, Some("c1-0".into())));
}

#[test]
fn s30_one_that_is_being_deleted_is_on_its_way() {
    assert_eq!(after(|_, vm| machine(vm).deleting = true), (Fate::Leaves, None));
}

#[test]
fn s01_whatever_is_not_known_keeps_a_vm_where_it_is() {
    let unknown = || "away".to_owned();
    let changes: [fn(&mut Member, String); 5] = [
        |vm, why| vm.machine = Lookup::Unknown(why),
        |vm, why| vm.paused = Lookup::Unknown(why),
        |vm, why| vm.consent = Lookup::Unknown(why),
        |vm, why| vm.group = Lookup::Unknown(why),
        |vm, why| vm.demanded = Err(why),
    ];
    for change in changes {
        assert_eq!(waits(|_, vm| change(vm, unknown())), Waiting::Unknown(unknown()));
    }
    assert_eq!(waits(|_, vm| vm.own_identity = Err(unknown())), Waiting::OtherIdentity(unknown()));
    assert!(matches!(waits(|_, vm| vm.machine = Lookup::Absent), Waiting::Unknown(_)));
    assert!(matches!(waits(|_, vm| vm.paused = Lookup::Absent), Waiting::Unknown(_)));
    assert!(matches!(waits(|_, vm| vm.consent = Lookup::Absent), Waiting::Unknown(_)));
    assert_eq!(waits(|observed, _| observed.site = Lookup::Unknown(unknown())), Waiting::Unknown(unknown()));
}

#[test]
fn s30_the_owner_of_a_cluster_can_refuse_or_delay() {
    assert_eq!(waits(|_, vm| vm.consent = Lookup::Found(Consent::Manual)), Waiting::Manual("default/c1-0".into()));
    assert_eq!(waits(|_, vm| machine(vm).held = true), Waiting::Held("default/c1-0".into()));
    assert_eq!(waits(|_, vm| vm.paused = Lookup::Found(true)), Waiting::Paused);
}

#[test]
fn s30_consent_is_automatic_unless_the_cluster_says_otherwise_or_something_unreadable() {
    let of = |spec: serde_json::Value| consent(&serde_json::from_value(spec).unwrap());
    let automatic = Lookup::Found(Consent::Automatic);
    assert_eq!(of(serde_json::json!({ "dnsDomain": "maas" })), automatic);
    assert_eq!(of(serde_json::json!({ "evacuation": "Automatic" })), automatic);
    assert_eq!(of(serde_json::json!({ "evacuation": "Manual" })), Lookup::Found(Consent::Manual));
    for odd in [
        serde_json::json!({ "evacuation": "Sometimes" }),
        serde_json::json!({ "evacuation": 7 }),
        serde_json::json!("odd"),
    ] {
        assert!(matches!(of(odd.clone()), Lookup::Unknown(_)), "{odd}");
    }
}

#[test]
fn s30_what_nobody_would_replace_is_never_deleted() {
    assert_eq!(waits(|_, vm| vm.group = Lookup::Absent), Waiting::NoOwner("default/c1-0".into()));
    let one = |_: &mut Observed, vm: &mut Member| vm.group = Lookup::Found(control_plane("c1", 1));
    assert!(matches!(waits(one), Waiting::OnlyOne(_)));
    let two = |_: &mut Observed, vm: &mut Member| vm.group = Lookup::Found(control_plane("c1", 2));
    assert!(matches!(waits(two), Waiting::NoQuorum(_)));
    let external = |_: &mut Observed, vm: &mut Member| {
        vm.group = Lookup::Found(Group {
            allowance: Allowance::ControlPlane { stacked_etcd: false },
            ..control_plane("c1", 2)
        });
    };
    assert_eq!(after(external).0, Fate::Goes, "an etcd of its own is not affected");
}

#[test]
fn s30_a_vm_of_somebody_else_is_never_touched_and_is_named() {
    let mut observed = observed(vec![Guest { name: "theirs".into(), whose: Whose::Foreign(Some("bob".into())) }]);
    let plan = decide(&observed);
    assert_eq!((plan.delete.clone(), fates(&plan)), (None, vec![Fate::Waits(Waiting::Foreign(Some("bob".into())))]));
    let verdict = host_verdict(&plan.hosts[0]);
    assert_eq!((verdict.status, verdict.reason), (ConditionStatus::True, reasons::EVACUATION_WAITING));
    assert!(verdict.message.contains("theirs is not ours but belongs to MAAS user bob"), "{}", verdict.message);
    observed.hosts[0].guests = Lookup::Unknown("MAAS does not answer".into());
    assert_eq!(host_verdict(&decide(&observed).hosts[0]).reason, reasons::EVACUATION_WAITING);
    observed.hosts[0].guests = Lookup::Found(Vec::new());
    let verdict = host_verdict(&decide(&observed).hosts[0]);
    assert_eq!((verdict.status, verdict.reason), (ConditionStatus::False, reasons::EVACUATED));
}

#[test]
fn s30_a_control_plane_that_misses_a_machine_or_has_an_unhealthy_one_keeps_the_others() {
    assert!(
        matches!(waits(|_, vm| group(vm).members[1].deleting = true), Waiting::OtherLeaves(_, other) if other == "c1-1")
    );
    assert!(matches!(waits(|_, vm| drop(group(vm).members.pop())), Waiting::Incomplete { has: 2, wants: 3, .. }));
    let ill = |_: &mut Observed, vm: &mut Member| group(vm).members[2].trouble = Some("no etcd".into());
    assert_eq!(waits(ill), Waiting::Unhealthy("c1-2".into(), "no etcd".into()));
    assert!(matches!(waits(|_, vm| group(vm).desired = None), Waiting::Unknown(_)));
    assert!(matches!(
        waits(|_, vm| drop(group(vm).members.remove(0))),
        Waiting::Unknown(what) if what.contains("c1-0")
    ));
    let paused = Unsettled::Paused("KubeadmControlPlane c1".into());
    let others = [Unsettled::Deleting, Unsettled::Unobserved, Unsettled::RollingOut, Unsettled::Remediating];
    for unsettled in others.into_iter().chain([paused]) {
        let waiting = waits(|_, vm| group(vm).unsettled = Some(unsettled.clone()));
        assert_eq!(waiting, Waiting::Unsettled("KubeadmControlPlane c1".into(), unsettled));
    }
}

#[test]
fn s30_a_machine_deployment_misses_as_many_as_it_says() {
    let with = |allowed: usize, missing: usize| {
        move |_: &mut Observed, vm: &mut Member| {
            let group = group(vm);
            group.allowance = Allowance::Unavailable(allowed);
            group.members[3 - missing..].iter_mut().for_each(|member| member.deleting = true);
        }
    };
    assert_eq!(after(with(1, 0)).0, Fate::Goes);
    assert_eq!(after(with(2, 1)).0, Fate::Goes);
    assert!(matches!(waits(with(0, 0)), Waiting::Budget { missing: 0, allowed: 0, .. }));
    assert!(matches!(waits(with(1, 1)), Waiting::Budget { missing: 1, allowed: 1, .. }));
    let unknown = |_: &mut Observed, vm: &mut Member| group(vm).allowance = Allowance::Unknown("odd".into());
    assert!(matches!(waits(unknown), Waiting::NoAllowance(..)));
}

#[test]
fn s30_without_room_nothing_is_deleted_and_hosts_that_leave_are_no_room() {
    let full = |observed: &mut Observed, _: &mut Member| {
        observed.site = Lookup::Found(Site { hosts: vec![lxd_host(1, 8), lxd_host(2, 1)], claims: Vec::new() });
    };
    assert!(matches!(waits(full), Waiting::NoRoom(why) if why.contains("2 cores")));
    let both_leave = |observed: &mut Observed, _: &mut Member| {
        observed.hosts.push(leaving(2, Vec::new()));
        observed.hosts.push(leaving(3, Vec::new()));
    };
    assert!(matches!(waits(both_leave), Waiting::NoRoom(_)));
    let promised = |observed: &mut Observed, _: &mut Member| {
        observed.site = Lookup::Found(Site { hosts: vec![lxd_host(2, 3)], claims: Vec::new() });
        observed.unplaced = vec![demanded(2)];
    };
    assert!(matches!(waits(promised), Waiting::NoRoom(_)), "who asked before has it");
    let too_large = |observed: &mut Observed, _: &mut Member| {
        observed.site = Lookup::Found(Site { hosts: vec![lxd_host(2, 3)], claims: Vec::new() });
        observed.unplaced = vec![demanded(64)];
    };
    assert_eq!(after(too_large).0, Fate::Goes, "who fits nowhere takes nothing away");
}

#[test]
fn s30_a_vm_waits_for_a_host_that_stays_while_one_is_coming_and_goes_if_none_is() {
    let with = |free: [i64; 2], departing: [bool; 2], successor: Option<i64>| {
        move |observed: &mut Observed, _: &mut Member| {
            let host = |at: usize, id| placement::Host { departing: departing[at], ..lxd_host(id, free[at]) };
            observed.site = Lookup::Found(Site { hosts: vec![host(0, 2), host(1, 3)], claims: Vec::new() });
            observed.successors = successor.into_iter().map(|id| (id, "default/new".to_owned())).collect();
        }
    };
    let waiting = waits(with([8, 1], [true, false], Some(2)));
    let words = "waits until the Machine default/new is an LXD host: only hosts that are going to leave have room";
    assert_eq!(waiting.to_string(), words);
    assert!(matches!(&waiting, Waiting::Successor(machine, _) if machine == "default/new"));
    assert!(waiting.passes());
    assert_eq!(after(with([8, 8], [true, false], Some(2))).0, Fate::Goes, "one that stays has room");
    assert_eq!(after(with([8, 1], [true, false], None)).0, Fate::Goes, "no other host is coming");
    assert_eq!(after(with([1, 8], [true, true], Some(2))).0, Fate::Goes, "the one that comes is of another cluster");
    assert!(matches!(waits(with([1, 1], [true, false], Some(2))), Waiting::NoRoom(_)));
}

#[test]
fn s30_a_vm_waits_for_the_host_that_is_coming_rather_than_join_another_of_its_group() {
    // One host that stays, two that a rollout is going to replace, of which the first is being emptied.
    let with = |siblings: &[i64], free: i64, coming: bool| {
        let siblings = siblings.iter().map(|id| placement::Sibling { host: Some(*id), zone: None }).collect();
        move |observed: &mut Observed, vm: &mut Member| {
            let host = |id, departing, free| placement::Host { departing, ..lxd_host(id, free) };
            let hosts = vec![host(1, true, 8), host(2, false, free), host(3, true, 0)];
            observed.site = Lookup::Found(Site { hosts, claims: Vec::new() });
            observed.successors =
                [1, 3].map(|id| (id, "default/new".to_owned())).into_iter().filter(|_| coming).collect();
            vm.demanded = Ok(Demanded { siblings, ..demanded(2) });
        }
    };
    let waiting = waits(with(&[2, 3], 8, true));
    assert!(matches!(&waiting, Waiting::Successor(machine, why) if machine == "default/new" && why.contains("group")));
    assert_eq!(after(with(&[3], 8, true)).0, Fate::Goes, "none of its group is there");
    assert_eq!(after(with(&[2, 3], 8, false)).0, Fate::Goes, "no other host is coming");
    assert!(matches!(waits(with(&[], 1, true)), Waiting::Successor(_, why) if why.contains("2 cores")), "no room yet");
    assert!(matches!(waits(with(&[], 1, false)), Waiting::NoRoom(_)));
    let blind = |observed: &mut Observed, vm: &mut Member| {
        with(&[], 8, true)(observed, vm);
        observed.site = Lookup::Unknown("away".into());
    };
    assert_eq!(waits(blind), Waiting::Unknown("away".into()));
}

#[test]
fn s30_what_is_not_deleted_after_all_is_not_said_to_be_replaced() {
    let of = |cluster: &str| member(cluster, control_plane(cluster, 3));
    let mut going = of("c3");
    machine(&mut going).deleting = true;
    let mut plan = decide(&observed(vec![guest(of("c1")), guest(of("c2")), guest(going)]));
    plan.postpone("a host was tagged");
    let waiting = Waiting::Postponed("a host was tagged");
    assert!(waiting.passes() && waiting.to_string().contains("a host was tagged"));
    let expected = [Fate::Waits(waiting), Fate::Waits(Waiting::Turn("default/c1-0".into())), Fate::Leaves];
    assert_eq!((&plan.delete, &fates(&plan)[..]), (&None, &expected[..]));
}

#[test]
fn s30_a_host_that_still_takes_vms_keeps_those_that_are_on_it() {
    let waiting = waits(|observed, _| observed.hosts[0].open = Some("MAAS refuses the tag".into()));
    assert_eq!(waiting, Waiting::Open("MAAS refuses the tag".into()));
}

#[test]
fn s30_one_machine_goes_in_a_pass_and_room_is_counted_for_those_on_their_way() {
    let of = |cluster: &str| member(cluster, control_plane(cluster, 3));
    let mut observed = observed(vec![guest(of("c2")), guest(of("c1")), guest(of("c3"))]);
    observed.site = Lookup::Found(Site { hosts: vec![lxd_host(2, 4)], claims: Vec::new() });
    let plan = decide(&observed);
    assert_eq!(plan.delete.as_ref().unwrap().object.name, "c1-0");
    let expected = [Fate::Goes, Fate::Waits(Waiting::Turn("default/c1-0".into()))];
    assert_eq!(fates(&plan)[..2], expected);
    assert!(matches!(&fates(&plan)[2], Fate::Waits(Waiting::NoRoom(_))), "there is room for two");

    let mut going = of("c1");
    machine(&mut going).deleting = true;
    observed.hosts[0].guests = Lookup::Found(vec![guest(going.clone()), guest(of("c2")), guest(of("c3"))]);
    assert_eq!(decide(&observed).delete.unwrap().object.name, "c2-0");
    let mut second = of("c2");
    machine(&mut second).deleting = true;
    observed.hosts[0].guests = Lookup::Found(vec![guest(going), guest(second), guest(of("c3"))]);
    assert_eq!(decide(&observed).delete, None, "both places are promised");
}

#[test]
fn s01_a_host_that_an_earlier_machine_may_fit_on_counts_as_no_room_for_others() {
    let deleted = |project| {
        let mut observed = observed(vec![guest(member("c1", control_plane("c1", 3)))]);
        let mut earlier = demanded(2);
        earlier.vm.project = Some("p".into());
        observed.unplaced = vec![earlier];
        let host = placement::Host { project, ..lxd_host(2, 2) };
        observed.site = Lookup::Found(Site { hosts: vec![host], claims: Vec::new() });
        decide(&observed).delete.is_some()
    };
    assert!(!deleted(Lookup::Found("p".into())), "it takes the place");
    assert!(!deleted(Lookup::Unknown("MAAS did not answer".into())), "it may take the place");
    assert!(deleted(Lookup::Found("another".into())), "it cannot take the place");
}

#[test]
fn s30_no_room_is_kept_for_a_machine_that_nothing_replaces() {
    let gone: [fn(&mut Member); 2] =
        [|vm| group(vm).unsettled = Some(Unsettled::Deleting), |vm| vm.group = Lookup::Absent];
    for change in gone {
        let mut going = member("c1", control_plane("c1", 3));
        machine(&mut going).deleting = true;
        let of = |going: Member| {
            let mut observed = observed(vec![guest(going), guest(member("c2", control_plane("c2", 3)))]);
            observed.site = Lookup::Found(Site { hosts: vec![lxd_host(2, 2)], claims: Vec::new() });
            decide(&observed).delete.map(|machine| machine.object.name)
        };
        assert_eq!(of(going.clone()), None, "its replacement takes the only place");
        change(&mut going);
        assert_eq!(of(going), Some("c2-0".into()));
    }
}

#[test]
fn s30_a_machine_that_could_not_be_deleted_is_named_with_the_reason() {
    let refuse = |refusal: Refusal| {
        waits(|observed, _| drop(observed.refusals.insert("uid-c1-0".into(), refusal.clone()))).to_string()
    };
    let words = refuse(Refusal::NoRight);
    assert!(
        words.contains("may not delete the Machine default/c1-0") && words.contains("capmaas-evacuation"),
        "{words}"
    );
    for refusal in [Refusal::Refused("freeze until Monday".into()), Refusal::Unanswered("freeze until Monday".into())] {
        let words = refuse(refusal);
        assert!(words.contains("default/c1-0 could not be deleted: freeze until Monday"), "{words}");
        assert!(!words.contains("ClusterRole"), "{words}");
    }
}

#[test]
fn s30_a_machine_that_could_not_be_deleted_keeps_nobody_else() {
    let of = |cluster: &str| member(cluster, control_plane(cluster, 3));
    let mut observed = observed(vec![guest(of("c1")), guest(of("c2"))]);
    observed.site = Lookup::Found(Site { hosts: vec![lxd_host(2, 2)], claims: Vec::new() });
    observed.refusals.insert("uid-c1-0".into(), Refusal::Refused("by a policy".into()));
    let plan = decide(&observed);
    assert_eq!(plan.delete.as_ref().map(|machine| machine.object.name.as_str()), Some("c2-0"), "it has the room, too");
    assert!(matches!(&fates(&plan)[..], [Fate::Waits(Waiting::Denied(..)), Fate::Goes]), "{:?}", fates(&plan));
}

#[test]
fn s30_a_deletion_that_may_still_take_effect_keeps_the_rest_of_its_control_plane() {
    let mut second = member("c1", control_plane("c1", 3));
    (machine(&mut second).object.name, machine(&mut second).uid) = ("c1-1".into(), "uid-c1-1".into());
    let mut observed = observed(vec![guest(member("c1", control_plane("c1", 3))), guest(second)]);
    observed.refusals.insert("uid-c1-0".into(), Refusal::Refused("by a policy".into()));
    assert_eq!(decide(&observed).delete.unwrap().object.name, "c1-1");
    observed.refusals.insert("uid-c1-0".into(), Refusal::Unanswered("timeout".into()));
    let plan = decide(&observed);
    assert_eq!(plan.delete, None);
    assert!(matches!(&fates(&plan)[1], Fate::Waits(Waiting::OtherLeaves(_, other)) if other == "c1-0"));
}

#[test]
fn s30_room_must_be_in_every_zone_in_which_the_replacement_may_be_requested() {
    let in_zones = |zones: &[&str], free: [i64; 2]| {
        let zones: Vec<String> = zones.iter().map(|&zone| zone.to_owned()).collect();
        move |observed: &mut Observed, vm: &mut Member| {
            let host = |id: i64, zone: &str, cores| placement::Host {
                zone: Some(placement::Named { id, name: zone.to_owned() }),
                ..lxd_host(id, cores)
            };
            let hosts = vec![host(2, "az1", free[0]), host(3, "az2", free[1])];
            observed.site = Lookup::Found(Site { hosts, claims: Vec::new() });
            vm.demanded = Ok(Demanded { zones, ..demanded(2) });
        }
    };
    assert_eq!(after(in_zones(&[], [0, 2])).0, Fate::Goes);
    assert_eq!(after(in_zones(&["az2"], [0, 2])).0, Fate::Goes);
    assert!(matches!(waits(in_zones(&["az1"], [0, 2])), Waiting::NoRoom(_)));
    assert!(matches!(waits(in_zones(&["az1", "az2"], [0, 2])), Waiting::NoRoom(_)));
    assert_eq!(after(in_zones(&["az1", "az2"], [2, 2])).0, Fate::Goes);
    let before = |zones: &[&str]| {
        let (change, zones) = (in_zones(&["az1"], [2, 2]), zones.iter().map(|&zone| zone.to_owned()).collect());
        move |observed: &mut Observed, vm: &mut Member| {
            change(observed, vm);
            observed.unplaced = vec![Demanded { zones, ..demanded(2) }];
        }
    };
    assert_eq!(after(before(&["az2"])).0, Fate::Goes);
    assert!(matches!(waits(before(&["az1", "az2"])), Waiting::NoRoom(_)), "who asked before may come there");
}

#[test]
fn conditions_count_name_and_explain() {
    let mut single = member("c2", control_plane("c2", 1));
    single.consent = Lookup::Found(Consent::Automatic);
    let plan = decide(&observed(vec![guest(member("c1", control_plane("c1", 3))), guest(single)]));
    let verdict = host_verdict(&plan.hosts[0]);
    assert_eq!(verdict.reason, reasons::EVACUATING);
    assert_eq!(
        verdict.message,
        "the LXD host host1 is in maintenance (fans); 2 VMs left:\nc1-0 of cluster default/c1 is being replaced\nc2-0 of cluster \
         default/c2 is the only machine of KubeadmControlPlane c2; scale that to 3, or delete it with its cluster"
    );
    let clusters = cluster_verdicts(&plan);
    let said: Vec<_> = clusters.iter().map(|(cluster, verdict)| (cluster.name.as_str(), verdict.reason)).collect();
    assert_eq!(said, [("c1", reasons::EVACUATING), ("c2", reasons::EVACUATION_WAITING)]);
}

#[test]
fn a_condition_has_a_line_for_each_vm_and_counts_those_that_do_not_fit() {
    let foreign = |number: usize, owner: &str| Guest {
        name: format!("vm{number:03}"),
        whose: Whose::Foreign(Some(owner.to_owned())),
    };
    let message = |guests: Vec<Guest>| host_verdict(&decide(&observed(guests)).hosts[0]).message;
    let some = message((0..30).map(|number| foreign(number, "bob")).collect());
    assert_eq!(some.lines().count(), 31, "{some}");
    let many = message((0..300).map(|number| foreign(number, "bob")).collect());
    let (shown, last) = (many.lines().count() - 2, many.lines().last().unwrap());
    assert!(many.len() < 4096 && last == format!("and {} more", 300 - shown), "{many}");
    let odd = message(vec![foreign(1, &format!("bob\n{}", "x".repeat(9000)))]);
    assert!(odd.len() < 4096 && odd.lines().count() == 2 && odd.contains("vm001"), "{odd}");
}
