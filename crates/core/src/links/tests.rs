//! Which write comes next, and that the writes end.

use proptest::prelude::*;

use super::*;

const MACHINE: &str = "abc123";

fn subnet(id: i64, cidr: &str, vlan: i64) -> Subnet {
    Subnet { id, name: format!("subnet-{id}"), cidr: cidr.into(), vlan: Some(vlan) }
}

fn link(id: i64, mode: Mode, subnet: i64) -> Link {
    Link { id, mode: Some(mode), subnet: Some(subnet), address: None }
}

fn card(id: i64, vlan: i64, links: Vec<Link>) -> Interface {
    let name = format!("eth{}", id - 1);
    Interface { id, name, boot: id == 1, vlan: Some(vlan), children: Vec::new(), parents: Vec::new(), links }
}

/// Two NICs, AUTO on 10.0.0.0/24 and on 10.1.0.0/24.
fn observed() -> Observed {
    Observed {
        interfaces: vec![card(1, 1, vec![link(11, Mode::Auto, 1)]), card(2, 2, vec![link(21, Mode::Auto, 2)])],
        subnets: vec![subnet(1, "10.0.0.0/24", 1), subnet(2, "10.1.0.0/24", 2), subnet(3, "10.0.0.0/8", 9)],
        holder: Lookup::Absent,
    }
}

fn fixed(address: &str) -> FixedAddress {
    FixedAddress::Literal(address.parse().unwrap())
}

fn for_address(address: &str, observed: &Observed) -> Next {
    let address = fixed(address);
    next(MACHINE, &DesiredLinks { address: Some(&address), nics: &[] }, observed)
}

fn refusal(next: Next) -> Problem {
    match next {
        Next::Refused(problem) => problem,
        other => panic!("{other:?}"),
    }
}

/// What MAAS shows after a write.
fn after(mut observed: Observed, change: &Change) -> Observed {
    match change {
        Change::Link { interface, mode, subnet, address, replace } => {
            let interface = observed.interfaces.iter_mut().find(|it| it.id == *interface).unwrap();
            if *replace {
                interface.links.clear();
            }
            interface.links.retain(|link| link.mode != Some(Mode::LinkUp));
            let id = 1000 + i64::try_from(interface.links.len()).unwrap();
            let chosen = (*mode == Mode::Static).then(|| "10.99.0.1".parse().unwrap());
            interface.links.push(Link { id, mode: Some(*mode), subnet: *subnet, address: address.or(chosen) });
        }
        Change::Unlink { interface, link } => {
            let interface = observed.interfaces.iter_mut().find(|it| it.id == *interface).unwrap();
            interface.links.retain(|it| it.id != *link);
        }
    }
    observed
}

#[test]
fn nothing_asked_for_is_nothing_written() {
    assert!(DesiredLinks::default().is_empty());
    assert_eq!(next(MACHINE, &DesiredLinks::default(), &observed()), Next::Done);
}

#[test]
fn a_fixed_address_goes_to_the_interface_whose_subnet_holds_it_in_one_write() {
    for (address, interface, subnet) in [("10.0.0.5", 1, 1), ("10.1.0.5", 2, 2)] {
        let ip = Some(address.parse().unwrap());
        let change = Change::Link { interface, mode: Mode::Static, subnet: Some(subnet), address: ip, replace: true };
        assert_eq!(for_address(address, &observed()), Next::Write(change.clone()));
        assert_eq!(for_address(address, &after(observed(), &change)), Next::Done);
    }
}

#[test]
fn an_interface_that_is_only_near_the_subnet_will_do_and_the_boot_interface_first() {
    let mut seen = observed();
    seen.interfaces = vec![card(2, 1, Vec::new()), card(1, 1, Vec::new()), card(3, 1, Vec::new())];
    match for_address("10.0.0.5", &seen) {
        Next::Write(Change::Link { interface: 1, subnet: Some(1), .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_bridge_has_the_links_and_not_the_card_below_it() {
    let mut seen = observed();
    seen.interfaces[0].children = vec!["br0".into()];
    seen.interfaces[0].links.clear();
    let parents = vec!["eth0".into()];
    let links = vec![link(31, Mode::Auto, 1)];
    seen.interfaces.push(Interface { name: "br0".into(), parents, boot: false, ..card(3, 1, links) });
    assert!(matches!(for_address("10.0.0.5", &seen), Next::Write(Change::Link { interface: 3, .. })));
}

#[test]
fn an_address_that_somebody_holds_is_never_taken() {
    let held = |machine: Option<&str>| {
        let holder = Holder { machine: machine.map(str::to_owned), words: "reserved by admin".into() };
        for_address("10.0.0.5", &Observed { holder: Lookup::Found(holder), ..observed() })
    };
    for other in [None, Some("other1")] {
        let problem = refusal(held(other));
        assert_eq!(problem.reason, reasons::STATIC_IP_FAILED);
        assert!(problem.message.contains("reserved by admin"), "{}", problem.message);
    }
    assert!(matches!(held(Some(MACHINE)), Next::Write(_)), "its own address is not somebody else's");
}

#[test]
fn s01_a_holder_that_nobody_could_tell_is_not_nobody() {
    let seen = Observed { holder: Lookup::Unknown("504".into()), ..observed() };
    assert!(matches!(for_address("10.0.0.5", &seen), Next::Unknown(why) if why.contains("504")));
}

#[test]
fn an_address_that_cannot_be_had_is_refused_with_what_to_do() {
    assert!(refusal(for_address("192.168.0.1", &observed())).message.contains("no subnet that MAAS knows"));
    let far = refusal(for_address("10.7.0.1", &observed()));
    assert!(far.message.contains("10.0.0.0/8") && far.message.contains("no interface"), "{}", far.message);
    let awaited = next(MACHINE, &DesiredLinks { address: Some(&FixedAddress::Awaited), nics: &[] }, &observed());
    assert_eq!(refusal(awaited).reason, reasons::WAITING_FOR_STATIC_IP);
}

#[test]
fn links_on_other_subnets_are_not_removed_for_a_fixed_address() {
    let mut seen = observed();
    seen.subnets.push(subnet(4, "10.4.0.0/24", 1));
    seen.interfaces[0].links.push(Link { address: Some("10.4.0.9".parse().unwrap()), ..link(14, Mode::Static, 4) });
    let Next::Write(first) = for_address("10.0.0.5", &seen) else { panic!("a write") };
    assert_eq!(first, Change::Unlink { interface: 1, link: 11 });
    seen = after(seen, &first);
    let Next::Write(second) = for_address("10.0.0.5", &seen) else { panic!("a write") };
    assert!(matches!(second, Change::Link { replace: false, subnet: Some(1), .. }), "{second:?}");
    seen = after(seen, &second);
    assert_eq!(for_address("10.0.0.5", &seen), Next::Done);
    assert!(seen.interfaces[0].links.iter().any(|link| link.id == 14));
}

fn nics(modes: &[Option<Mode>]) -> Vec<Nic> {
    let nic =
        |(index, mode): (usize, &Option<Mode>)| Nic { name: format!("eth{index}"), to: Attach::Boot, mode: *mode };
    modes.iter().enumerate().map(nic).collect()
}

#[test]
fn two_cards_get_the_modes_that_the_go_provider_promised() {
    let nics = nics(&[Some(Mode::Static), Some(Mode::Dhcp)]);
    let desired = DesiredLinks { address: None, nics: &nics };
    let Next::Write(first) = next(MACHINE, &desired, &observed()) else { panic!("a write") };
    let of = |interface, mode| Change::Link { interface, mode, subnet: Some(interface), address: None, replace: true };
    assert_eq!(first, of(1, Mode::Static), "an address of its own that MAAS chooses");
    let seen = after(observed(), &first);
    let Next::Write(second) = next(MACHINE, &desired, &seen) else { panic!("a write") };
    assert_eq!(second, of(2, Mode::Dhcp));
    assert_eq!(next(MACHINE, &desired, &after(seen, &second)), Next::Done);
}

#[test]
fn a_literal_address_wins_over_the_mode_of_its_card() {
    let (nics, address) = (nics(&[Some(Mode::Dhcp), Some(Mode::LinkUp)]), fixed("10.0.0.5"));
    let desired = DesiredLinks { address: Some(&address), nics: &nics };
    let mut seen = observed();
    let mut writes = 0;
    while let Next::Write(change) = next(MACHINE, &desired, &seen) {
        seen = after(seen, &change);
        writes += 1;
    }
    assert_eq!((writes, next(MACHINE, &desired, &seen)), (2, Next::Done));
    assert!(holding("10.0.0.5".parse().unwrap(), &seen.interfaces).is_some());
}

fn any_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Auto), Just(Mode::Dhcp), Just(Mode::Static), Just(Mode::LinkUp)]
}

proptest! {
    #[test]
    fn writing_ends_within_a_few_writes_whatever_was_there(
        wanted in prop::collection::vec(prop::option::of(any_mode()), 0..3),
        there in prop::collection::vec((0..2_usize, any_mode(), 1..4_i64), 0..6),
        address in prop::option::of(prop_oneof![Just("10.0.0.5"), Just("10.1.0.7"), Just("10.8.0.1")]),
    ) {
        let mut seen = observed();
        for (index, (card, mode, subnet)) in there.into_iter().enumerate() {
            seen.interfaces[card].links.push(link(100 + i64::try_from(index).unwrap(), mode, subnet));
        }
        let (nics, address) = (nics(&wanted), address.map(fixed));
        let desired = DesiredLinks { address: address.as_ref(), nics: &nics };
        for _ in 0..12 {
            match next(MACHINE, &desired, &seen) {
                Next::Write(change) => seen = after(seen, &change),
                _ => return Ok(()),
            }
        }
        prop_assert!(false, "still writing: {:?}", seen);
    }
}
