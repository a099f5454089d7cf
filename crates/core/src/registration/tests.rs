//! The registration of a node, as tables and as properties over arbitrary facts.

use std::collections::BTreeSet;
use std::sync::Mutex;

use proptest::prelude::*;

use super::*;

fn now() -> Timestamp {
    "2026-11-15T12:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn place(zone: &str, pool: &str) -> Place {
    Place { zone: zone.into(), pool: pool.into() }
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

/// A node that is ready, and that MAAS does not know as a VM host.
fn prepared() -> Facts {
    Facts {
        machine: Lookup::Found(Machine { system_id: "abc123".into(), place: place("az1", "default") }),
        node: "n1".into(),
        lxd: Lookup::Found(Lxd {
            address: "https://10.0.0.7:8443".into(),
            project: "maas".into(),
            instances: Lookup::Found(Vec::new()),
        }),
        certificate: Lookup::Found("f00d".into()),
        vm_host: Lookup::Absent,
        wanted: Wanted { zone: None, pool: None, keep_place: true },
        intent: Lookup::Absent,
        refreshed: None,
    }
}

fn with_vm_host(vm_host: VmHost) -> Facts {
    Facts { vm_host: Lookup::Found(vm_host), ..prepared() }
}

fn call(facts: &Facts, now: Timestamp) -> &'static str {
    match next(facts, now) {
        Next::Do(call, _) => call.name(),
        _ => "",
    }
}

#[test]
fn each_fact_that_is_not_known_is_awaited_and_named() {
    let unknown = || "timeout".to_owned();
    for (facts, words) in [
        (Facts { machine: Lookup::Unknown(unknown()), ..prepared() }, "machine in MAAS cannot be determined: timeout"),
        (Facts { lxd: Lookup::Unknown(unknown()), ..prepared() }, "timeout"),
        (Facts { lxd: Lookup::Absent, ..prepared() }, "LXD's address is not known"),
        (Facts { certificate: Lookup::Unknown(unknown()), ..prepared() }, "certificate to register with"),
        (Facts { certificate: Lookup::Absent, ..prepared() }, "no certificate to register with"),
        (Facts { vm_host: Lookup::Unknown(unknown()), ..prepared() }, "VM hosts of MAAS cannot be read: timeout"),
        (Facts { intent: Lookup::Unknown(unknown()), ..prepared() }, "was sent a moment ago: timeout"),
        (with_vm_host(VmHost { machine: None, ..vm_host() }), "has not matched"),
    ] {
        match next(&facts, now()) {
            Next::Wait(why) => assert!(why.contains(words), "{why:?} lacks {words:?}"),
            other => panic!("{words}: {other:?}"),
        }
    }
    let Next::Blocked(why) = next(&Facts { machine: Lookup::Absent, ..prepared() }, now()) else { panic!() };
    assert!(why.contains("MAAS knows no machine"), "{why}");
}

/// The calls of one node, from one pass to the next, each answered with the given outcome.
struct Node {
    facts: Facts,
    sent: usize,
}

impl Node {
    /// One pass: decide, store the intent, send, conclude.
    fn pass(&mut self, outcome: Outcome, lands: bool, now: Timestamp) {
        let Next::Do(call, _) = next(&self.facts, now) else { return };
        assert_eq!(call.name(), "register");
        self.facts.intent = Lookup::Found(now);
        self.sent += 1;
        if lands {
            self.facts.vm_host = Lookup::Found(vm_host());
        }
        if conclude(&call, outcome).forget_intent {
            self.facts.intent = Lookup::Absent;
        }
    }
}

#[test]
fn s02_a_process_that_died_after_its_intent_registers_once_it_cannot_land_any_more() {
    let facts = Facts { intent: Lookup::Found(now()), ..prepared() };
    for (later, expected) in [(0, ""), (149, ""), (150, "register")] {
        assert_eq!(call(&facts, now() + SignedDuration::from_secs(later)), expected, "{later} s later");
    }
}

#[test]
fn s02_a_registration_whose_answer_is_lost_and_that_landed_is_found_and_not_sent_again() {
    let mut node = Node { facts: prepared(), sent: 0 };
    node.pass(Outcome::Unknown, false, now());
    for seconds in (0..149).step_by(15) {
        node.pass(Outcome::Done, true, now() + SignedDuration::from_secs(seconds));
    }
    assert_eq!(node.sent, 1, "it may still land");
    node.facts.vm_host = Lookup::Found(vm_host());
    assert!(matches!(next(&node.facts, now()), Next::Right(_)));
}

#[test]
fn s02_a_registration_that_was_refused_may_be_sent_again_at_once() {
    let mut node = Node { facts: prepared(), sent: 0 };
    node.pass(Outcome::Refused, false, now());
    node.pass(Outcome::Done, true, now());
    assert_eq!((node.sent, &node.facts.intent), (2, &Lookup::Absent));
    // It was unregistered by a person, a moment later.
    node.facts.vm_host = Lookup::Absent;
    assert_eq!(call(&node.facts, now()), "register", "no answer is awaited");
}

#[test]
fn s02_of_two_agents_the_one_that_sees_the_others_intent_sends_nothing() {
    let mut first = Node { facts: prepared(), sent: 0 };
    first.pass(Outcome::Unknown, false, now());
    let mut second = Node { facts: Facts { intent: first.facts.intent, ..prepared() }, sent: 0 };
    second.pass(Outcome::Done, true, now());
    assert_eq!(second.sent, 0);
}

#[test]
fn a_clock_that_was_set_back_holds_neither_a_registration_nor_a_refresh_for_hours() {
    for (ahead, expected) in [(149, ""), (151, "register"), (36_000, "register")] {
        let facts = Facts { intent: Lookup::Found(ago(-ahead)), ..prepared() };
        assert_eq!(call(&facts, now()), expected, "{ahead} s ahead");
    }
    let unreached = with_vm_host(VmHost { reached: false, ..vm_host() });
    for (seconds, expected) in [(29, ""), (30, "refresh"), (-29, ""), (-36_000, "refresh")] {
        let facts = Facts { refreshed: Some(ago(seconds)), ..unreached.clone() };
        assert_eq!(call(&facts, now()), expected, "{seconds} s ago");
    }
}

#[test]
fn only_who_keeps_a_place_moves_a_vm_host() {
    let (zone, pool) = (Some("az9".to_owned()), Some("vms".to_owned()));
    for (keep_place, expected) in [(true, "move"), (false, "")] {
        let wanted = Wanted { zone: zone.clone(), pool: pool.clone(), keep_place };
        assert_eq!(call(&Facts { wanted: wanted.clone(), ..with_vm_host(vm_host()) }, now()), expected);
        let Next::Do(Call::Register(new), _) = next(&Facts { wanted, ..prepared() }, now()) else { panic!() };
        assert_eq!(new.place, place("az9", "vms"), "a new one is put there");
    }
}

#[test]
fn a_vm_host_of_somebody_else_is_accepted_awaited_or_reported() {
    let foreign = |trusted| VmHost {
        maker: Maker::Foreign { trusted },
        certificate: Some("theirs".into()),
        project: "default".into(),
        ..vm_host()
    };
    let works = foreign(Lookup::Found(()));
    assert!(matches!(next(&with_vm_host(works.clone()), now()), Next::Right(_)));
    assert!(matches!(next(&with_vm_host(VmHost { reached: false, ..works }), now()), Next::Wait(_)));
    assert!(matches!(next(&with_vm_host(foreign(Lookup::Unknown("away".into()))), now()), Next::Wait(_)));
    assert!(matches!(next(&with_vm_host(foreign(Lookup::Absent)), now()), Next::Blocked(_)));
}

#[test]
fn what_a_call_leaves_behind_depends_on_whether_it_may_still_land() {
    let refresh = Call::Refresh { id: 4 };
    let Next::Do(register, _) = next(&prepared(), now()) else { panic!() };
    for (call, outcome, forget_intent, refreshed) in [
        (&register, Outcome::Done, true, true),
        (&register, Outcome::Unknown, false, true),
        (&register, Outcome::Refused, true, false),
        (&refresh, Outcome::Done, true, true),
        (&refresh, Outcome::Unknown, false, false),
        (&refresh, Outcome::Refused, true, false),
    ] {
        assert_eq!(conclude(call, outcome), After { forget_intent, refreshed }, "{call:?} {outcome:?}");
    }
}

fn lookup<T: Clone + std::fmt::Debug + 'static>(found: impl Strategy<Value = T> + 'static) -> BoxedStrategy<Lookup<T>> {
    prop_oneof![8 => found.prop_map(Lookup::Found), 1 => Just(Lookup::Absent), 1 => Just(Lookup::Unknown("away".into()))]
        .boxed()
}

/// The first most of the time.
fn mostly(usual: &'static str, rare: &'static str) -> impl Strategy<Value = String> {
    prop_oneof![4 => Just(usual.to_owned()), 1 => Just(rare.to_owned())]
}

fn instances() -> BoxedStrategy<Lookup<Vec<String>>> {
    lookup(prop_oneof![3 => Just(Vec::new()), 1 => Just(vec!["web".to_owned()])])
}

fn places() -> impl Strategy<Value = Place> {
    (mostly("az1", "az2"), mostly("default", "vms")).prop_map(|(zone, pool)| Place { zone, pool })
}

prop_compose! {
    fn vm_hosts()(
        id in 1i64..5,
        name in mostly("n1", "other"),
        machine in proptest::option::weighted(0.9, mostly("abc123", "xyz789")),
        address in mostly("https://10.0.0.7:8443", "https://10.0.0.9:8443"),
        project in mostly("maas", "default"),
        certificate in proptest::option::weighted(0.9, mostly("f00d", "old")),
        maker in prop_oneof![
            4 => Just(Maker::Ours),
            1 => lookup(Just(())).prop_map(|trusted| Maker::Foreign { trusted }),
        ],
        flags in any::<[bool; 2]>(),
        place in places(),
        strangers in instances(),
    ) -> VmHost {
        let [reached, measured] = flags;
        VmHost { id, name, machine, address, project, certificate, maker, reached, measured, place, strangers }
    }
}

prop_compose! {
    fn all_facts()(
        machine in lookup(places().prop_map(|place| Machine { system_id: "abc123".into(), place })),
        node in mostly("n1", "n2"),
        lxd in lookup((mostly("https://10.0.0.7:8443", "https://10.0.0.8:8443"), mostly("maas", "vms"), instances())
            .prop_map(|(address, project, instances)| Lxd { address, project, instances })),
        certificate in lookup(mostly("f00d", "new")),
        vm_host in prop_oneof![2 => lookup(vm_hosts()), 1 => Just(Lookup::Absent)],
        zone in proptest::option::of(mostly("az1", "az9")),
        pool in proptest::option::of(mostly("default", "vm-generic")),
        keep_place in any::<bool>(),
        intent in prop_oneof![1 => lookup((-400i64..400).prop_map(ago)), 1 => Just(Lookup::Absent)],
        refreshed in proptest::option::of((-100i64..100).prop_map(ago)),
    ) -> Facts {
        let wanted = Wanted { zone, pool, keep_place };
        Facts { machine, node, lxd, certificate, vm_host, wanted, intent, refreshed }
    }
}

fn holds(facts: &Facts, reached: &Mutex<BTreeSet<&'static str>>) -> Result<(), TestCaseError> {
    let step = next(facts, now());
    prop_assert_eq!(&next(facts, now()), &step, "it depends on nothing else");
    match &step {
        Next::Wait(why) | Next::Blocked(why) => prop_assert!(!why.is_empty()),
        Next::Right(_) => {
            let Lookup::Found(vm_host) = &facts.vm_host else { panic!("none was seen") };
            prop_assert!(vm_host.works() && vm_host.machine.as_deref() != Some("xyz789"));
        }
        Next::Do(call, why) => {
            prop_assert!(!why.is_empty());
            reached.lock().unwrap().insert(call.name());
            if let Call::Register(new) = call {
                let Lookup::Found(lxd) = &facts.lxd else { panic!("no LXD was seen") };
                prop_assert_eq!(&lxd.instances, &Lookup::Found(Vec::new()));
                prop_assert_eq!(&facts.vm_host, &Lookup::Absent, "never a second VM host for one machine");
                prop_assert_eq!(Some(&new.certificate), facts.certificate.found());
                match &facts.intent {
                    Lookup::Found(sent) => prop_assert!(!may_land(*sent, now())),
                    Lookup::Absent => {}
                    Lookup::Unknown(_) => panic!("it may have been sent"),
                }
            } else {
                let Lookup::Found(vm_host) = &facts.vm_host else { panic!("none was seen") };
                prop_assert_eq!(&vm_host.strangers, &Lookup::Found(Vec::new()));
                prop_assert_eq!(&vm_host.maker, &Maker::Ours);
                prop_assert_eq!(Some(&vm_host.project), facts.lxd.found().map(|lxd| &lxd.project));
                prop_assert!(vm_host.machine.as_deref() != Some("xyz789"));
            }
        }
    }
    Ok(())
}

#[test]
fn s12_nothing_makes_maas_look_at_a_project_that_holds_what_it_does_not_know() {
    let reached = Mutex::default();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(2000));
    runner.run(&all_facts(), |facts| holds(&facts, &reached)).unwrap();
    let all = ["move", "refresh", "register", "renew"];
    assert_eq!(*reached.lock().unwrap(), BTreeSet::from(all), "each call was decided on at least once");
}
