//! Bridges on the NICs of machines.

use super::{
    Model, Outcome, Refusal, Status,
    db::{Interface, InterfaceKind, Table},
    refusal::FormCheck,
};
use crate::ledger::{Effect, MachineChange};

/// The options of a bridge.
#[derive(Clone, Debug)]
pub struct BridgeOptions {
    pub kind: String,
    pub stp: bool,
    pub fd: i64,
}

impl Default for BridgeOptions {
    fn default() -> Self {
        Self { kind: "standard".to_owned(), stp: false, fd: 15 }
    }
}

impl Model {
    /// `op=create_bridge`. On an Allocated machine the bridge takes over the parent's links and is removed on release;
    /// on a Ready one it is permanent and the parent's links are lost.
    pub fn create_bridge(
        &mut self,
        system_id: &str,
        name: Option<&str>,
        parent: Option<&str>,
        mac: Option<&str>,
        options: &BridgeOptions,
    ) -> Outcome<i64> {
        let machine = self.machine(system_id)?;
        let mut check = FormCheck::default();
        let name = check.require("name", name);
        let mut blank_mac = false;
        let mut parent_id = None;
        match parent.filter(|text| !text.is_empty()) {
            None => {
                blank_mac = true;
                check.add("parent", "A bridge interface must have exactly one parent.");
            }
            Some(text) => {
                let id = text.parse::<i64>().ok();
                let found = id.and_then(|id| machine.interfaces.iter().find(|nic| nic.id == id));
                match found {
                    None if id.is_none() => {
                        blank_mac = true;
                        check.add("parent", format!("“{text}” is not a valid value."));
                    }
                    None => {
                        blank_mac = true;
                        check.add(
                            "parent",
                            format!("Select a valid choice. {text} is not one of the available choices."),
                        );
                    }
                    Some(nic) if self.is_in_bridge_or_bond(system_id, nic.id) => {
                        blank_mac = true;
                        check.add(
                            "parent",
                            "A bridge interface can't have a parent that is already in a bond or a bridge.",
                        );
                    }
                    Some(nic) => parent_id = Some(nic.id),
                }
            }
        }
        if blank_mac && mac.is_none() {
            let mut with_mac = FormCheck::default();
            with_mac.add("mac_address", "This field cannot be blank.");
            return Err(match (with_mac.done(), check.done()) {
                (Err(Refusal::Form(mut first)), Err(Refusal::Form(second))) => {
                    first.extend(second);
                    Refusal::Form(first)
                }
                (_, Err(other)) => other,
                _ => Refusal::required("parent"),
            });
        }
        check.done()?;
        let (Some(name), Some(parent_id)) = (name, parent_id) else { return Err(Refusal::required("name")) };
        if machine.interfaces.iter().any(|nic| nic.name == name) {
            return Err(Refusal::validation("__all__", "Interface with this Node config and Name already exists."));
        }
        let acquired = machine.status == Status::Allocated;
        Ok(self.put_bridge(system_id, name, parent_id, mac, options, acquired))
    }

    /// Whether another interface is built on an interface.
    pub fn is_in_bridge_or_bond(&self, system_id: &str, nic: i64) -> bool {
        self.db.machines.get(system_id).is_some_and(|machine| {
            machine.interfaces.iter().any(|other| {
                other.parents.contains(&nic) && matches!(other.kind, InterfaceKind::Bridge | InterfaceKind::Bond)
            })
        })
    }

    fn put_bridge(
        &mut self,
        system_id: &str,
        name: &str,
        parent: i64,
        mac: Option<&str>,
        options: &BridgeOptions,
        acquired: bool,
    ) -> i64 {
        let id = self.db.sequences.take(Table::Interface);
        let Ok(parent_nic) = self.interface(system_id, parent) else { return id };
        let links = self.links_of(parent_nic);
        let mut bridge = Interface::physical(id, name, mac.unwrap_or(&parent_nic.mac), parent_nic.vlan);
        bridge.kind = InterfaceKind::Bridge;
        bridge.parents = vec![parent];
        bridge.acquired = acquired;
        bridge.has_params = true;
        bridge.bridge_stp = options.stp;
        bridge.bridge_fd = options.fd;
        bridge.bridge_type.clone_from(&options.kind);
        if let Some(machine) = self.db.machines.get_mut(system_id) {
            machine.interfaces.push(bridge);
        }
        for link in links {
            self.detach_address(system_id, parent, link);
            if acquired {
                self.attach_address(system_id, id, link);
            } else {
                self.drop_address(link);
            }
        }
        if self.interface(system_id, id).is_ok_and(|nic| nic.addresses.is_empty()) {
            self.add_link_up(system_id, id, None);
        }
        self.effect(Effect::machine(system_id, MachineChange::Interfaces));
        id
    }

    /// `bridge_all` of allocate and deploy: creates a bridge on every NIC that has a subnet but no bridge.
    pub fn bridge_all(&mut self, system_id: &str, options: &BridgeOptions) {
        let Some(machine) = self.db.machines.get(system_id) else { return };
        let candidates: Vec<(i64, String)> = machine
            .interfaces
            .iter()
            .filter(|nic| nic.kind != InterfaceKind::Bridge && !self.is_in_bridge_or_bond(system_id, nic.id))
            .filter(|nic| {
                self.links_of(nic).iter().any(|id| self.db.addresses.get(id).is_some_and(|row| row.subnet.is_some()))
            })
            .map(|nic| (nic.id, format!("br-{}", nic.name)))
            .collect();
        for (nic, name) in candidates {
            let short: String = name.chars().take(15).collect();
            self.put_bridge(system_id, &short, nic, None, options, true);
        }
    }

    /// On release acquired bridges are removed, and their links return to the NIC.
    pub fn drop_acquired_bridges(&mut self, system_id: &str) {
        let Some(machine) = self.db.machines.get(system_id) else { return };
        let bridges: Vec<(i64, Option<i64>, Vec<i64>)> = machine
            .interfaces
            .iter()
            .filter(|nic| nic.acquired)
            .map(|nic| (nic.id, nic.parents.first().copied(), nic.addresses.clone()))
            .collect();
        for (bridge, parent, addresses) in bridges {
            for id in addresses {
                self.detach_address(system_id, bridge, id);
                match parent {
                    Some(parent) => self.attach_address(system_id, parent, id),
                    None => self.drop_address(id),
                }
            }
            self.remove_interface_row(system_id, bridge);
        }
    }
}
