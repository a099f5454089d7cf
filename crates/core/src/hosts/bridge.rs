//! The bridge of a machine that becomes an LXD host, in MAAS's network model.
//!
//! It is created while the machine is Allocated: then it takes over the address of its parent, and MAAS removes it on release. On
//! a Ready machine it would stay, and drop the address.

/// The desired bridge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DesiredBridge {
    pub name: String,
    /// The interface that is bridged; `None` is the boot interface.
    pub parent: Option<String>,
    /// Create it if it is missing. Otherwise somebody else does.
    pub make: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// ID of the boot interface.
    pub boot: Option<i64>,
    pub interfaces: Vec<Interface>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    pub id: i64,
    pub name: String,
    /// `physical`, `bond`, `vlan` or `bridge`.
    pub kind: String,
    /// Names of interfaces built on it.
    pub children: Vec<String>,
}

impl Interface {
    fn is_bridge(&self) -> bool {
        self.kind == "bridge"
    }
}

/// The next step for the bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BridgeStep {
    Fine,
    /// Create it on this interface.
    Make {
        /// ID of the interface.
        parent: i64,
    },
    /// It cannot be created; the message states what to do.
    Problem(String),
}

/// A bond is bridged as a whole; of an interface with VLANs, the untagged network is bridged.
pub fn step(desired: &DesiredBridge, network: &Network) -> BridgeStep {
    let named = |name: &str| network.interfaces.iter().find(|interface| interface.name == name);
    if !desired.make {
        return BridgeStep::Fine;
    }
    if let Some(found) = named(&desired.name) {
        return if found.is_bridge() {
            BridgeStep::Fine
        } else {
            let kind = &found.kind;
            BridgeStep::Problem(format!(
                "{:?} is an interface of type {kind} in MAAS; give lxdConfig.networkBridge another name",
                desired.name
            ))
        };
    }
    let parent = match &desired.parent {
        Some(name) => named(name).ok_or_else(|| {
            let all = network.interfaces.iter().map(|interface| interface.name.as_str()).collect::<Vec<_>>();
            format!("the machine has no interface {name:?} (lxdConfig.nicParent), only {}", all.join(", "))
        }),
        None => network
            .boot
            .and_then(|id| network.interfaces.iter().find(|interface| interface.id == id))
            .ok_or_else(|| "MAAS names no boot interface of the machine; set lxdConfig.nicParent".to_owned()),
    };
    let mut parent = match parent {
        Ok(parent) => parent,
        Err(why) => return BridgeStep::Problem(why),
    };
    let child_of_kind =
        |of: &Interface, kind: &str| of.children.iter().find_map(|name| named(name).filter(|child| child.kind == kind));
    if let Some(bond) = child_of_kind(parent, "bond") {
        parent = bond;
    }
    let bridge = if parent.is_bridge() { Some(parent) } else { child_of_kind(parent, "bridge") };
    match bridge {
        Some(bridge) => BridgeStep::Problem(format!(
            "the machine has the bridge {:?} there already; set lxdConfig.networkBridge to {:?}",
            bridge.name, bridge.name
        )),
        None => BridgeStep::Make { parent: parent.id },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn desired() -> DesiredBridge {
        DesiredBridge { name: "br0".into(), parent: None, make: true }
    }

    fn interface(id: i64, name: &str, kind: &str, children: &[&str]) -> Interface {
        let children = children.iter().map(|&name| name.to_owned()).collect();
        Interface { id, name: name.into(), kind: kind.into(), children }
    }

    fn network(interfaces: Vec<Interface>) -> Network {
        Network { boot: Some(1), interfaces }
    }

    #[test]
    fn the_boot_interface_is_bridged_unless_another_is_named() {
        let both = network(vec![interface(1, "eth0", "physical", &[]), interface(2, "eth1", "physical", &[])]);
        assert_eq!(step(&desired(), &both), BridgeStep::Make { parent: 1 });
        let named = DesiredBridge { parent: Some("eth1".into()), ..desired() };
        assert_eq!(step(&named, &both), BridgeStep::Make { parent: 2 });
        let wrong = DesiredBridge { parent: Some("eth7".into()), ..desired() };
        assert!(
            matches!(step(&wrong, &both), BridgeStep::Problem(why) if why.contains("eth7") && why.contains("eth1"))
        );
    }

    #[test]
    fn a_bridge_that_is_there_is_left_as_it_is() {
        let there = network(vec![interface(1, "eth0", "physical", &["br0"]), interface(3, "br0", "bridge", &[])]);
        assert_eq!(step(&desired(), &there), BridgeStep::Fine);
        let other = network(vec![interface(1, "eth0", "physical", &["br-x"]), interface(3, "br-x", "bridge", &[])]);
        assert!(matches!(step(&desired(), &other), BridgeStep::Problem(why) if why.contains("\"br-x\"")));
        let nic = network(vec![interface(1, "br0", "physical", &[])]);
        assert!(matches!(step(&desired(), &nic), BridgeStep::Problem(why) if why.contains("another name")));
    }

    #[test]
    fn go21_a_bond_is_bridged_as_a_whole_and_vlans_do_not_count_as_the_boot_interface() {
        let bonded = network(vec![
            interface(1, "eth0", "physical", &["bond0"]),
            interface(2, "eth1", "physical", &["bond0"]),
            interface(5, "bond0", "bond", &["bond0.7"]),
            interface(6, "bond0.7", "vlan", &[]),
        ]);
        assert_eq!(step(&desired(), &bonded), BridgeStep::Make { parent: 5 });
        let tagged = network(vec![interface(1, "eth0", "physical", &["eth0.7"]), interface(4, "eth0.7", "vlan", &[])]);
        assert_eq!(step(&desired(), &tagged), BridgeStep::Make { parent: 1 });
    }

    #[test]
    fn nothing_is_made_where_the_user_sees_to_the_network() {
        let skip = DesiredBridge { make: false, ..desired() };
        assert_eq!(step(&skip, &Network::default()), BridgeStep::Fine);
        assert!(matches!(step(&desired(), &Network::default()), BridgeStep::Problem(_)));
    }

    proptest! {
        #[test]
        fn a_bridge_is_made_only_of_an_interface_that_has_none_and_never_twice(
            boot in proptest::option::of(0i64..5),
            kinds in proptest::collection::vec((0..4usize, proptest::collection::vec(0..5usize, 0..3)), 0..5),
        ) {
            let names = ["eth0", "eth1", "bond0", "br0", "br1"];
            let interfaces: Vec<Interface> = kinds.iter().enumerate().map(|(index, (kind, children))| Interface {
                id: i64::try_from(index).unwrap(),
                name: names[index].into(),
                kind: ["physical", "bond", "vlan", "bridge"][*kind].into(),
                children: children.iter().map(|child| names[*child].to_owned()).collect(),
            }).collect();
            let mut network = Network { boot, interfaces };
            if let BridgeStep::Make { parent } = step(&desired(), &network) {
                let found = network.interfaces.iter_mut().find(|interface| interface.id == parent).unwrap();
                prop_assert!(!found.is_bridge());
                found.children.push("br0".into());
                network.interfaces.push(Interface { id: 9, name: "br0".into(), kind: "bridge".into(), children: vec![] });
                prop_assert_eq!(step(&desired(), &network), BridgeStep::Fine);
            }
        }
    }
}
