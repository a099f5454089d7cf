//! Interfaces of machines, and the addresses on them.

use super::{
    Model, Outcome, Refusal,
    db::{AllocType, Interface, InterfaceKind},
};
use crate::ledger::{Effect, MachineChange};
use crate::version::Change;

impl Interface {
    /// A plain NIC.
    pub fn physical(id: i64, name: &str, mac: &str, vlan: Option<i64>) -> Self {
        Self {
            id,
            name: name.to_owned(),
            kind: InterfaceKind::Physical,
            mac: mac.to_lowercase(),
            vlan,
            parents: Vec::new(),
            tags: Vec::new(),
            addresses: Vec::new(),
            acquired: false,
            has_params: false,
            params: std::collections::BTreeMap::new(),
            bridge_stp: false,
            bridge_fd: 15,
            bridge_type: "standard".to_owned(),
            speed: 0,
            enabled: true,
        }
    }
}

impl Model {
    /// An interface of a machine by id or name.
    pub fn find_interface(&self, system_id: &str, text: &str) -> Outcome<&Interface> {
        // For a missing node the error is the same as for a missing interface.
        let machine = self.node(system_id).map_err(|_| Refusal::NotFound("Interface"))?;
        let by_id = text.parse::<i64>().ok();
        machine
            .interfaces
            .iter()
            .find(|nic| Some(nic.id) == by_id || nic.name == text)
            .ok_or(Refusal::NotFound("Interface"))
    }

    /// An interface of a machine by id.
    pub fn interface(&self, system_id: &str, id: i64) -> Outcome<&Interface> {
        self.node(system_id)?.interfaces.iter().find(|nic| nic.id == id).ok_or(Refusal::NotFound("Interface"))
    }

    /// An interface of a machine by id, to change it.
    pub fn interface_mut(&mut self, system_id: &str, id: i64) -> Outcome<&mut Interface> {
        self.node_mut(system_id)?.interfaces.iter_mut().find(|nic| nic.id == id).ok_or(Refusal::NotFound("Interface"))
    }

    /// The 409 of a change in the wrong status.
    pub fn check_interface_state(&self, system_id: &str, operation: &str) -> Outcome<()> {
        let status = self.node(system_id)?.status;
        // Those of a device can always be changed.
        if self.interfaces_changeable(status) || self.db.devices.contains_key(system_id) {
            return Ok(());
        }
        let allowed = if self.version.has(Change::NewInterfacesMayChange) {
            "New, Ready, Allocated, or Broken"
        } else {
            "Ready, Allocated, or Broken"
        };
        Err(Refusal::conflict(format!("Cannot {operation} interface because the machine is not {allowed}.")))
    }

    /// Attaches a row to an interface.
    pub fn attach_address(&mut self, system_id: &str, nic: i64, address: i64) {
        if let Some(row) = self.db.addresses.get_mut(&address) {
            row.on = Some((system_id.to_owned(), nic));
        }
        if let Ok(nic) = self.interface_mut(system_id, nic) {
            nic.addresses.push(address);
        }
    }

    /// Detaches a row from an interface without deleting it.
    pub fn detach_address(&mut self, system_id: &str, nic: i64, address: i64) {
        if let Ok(nic) = self.interface_mut(system_id, nic) {
            nic.addresses.retain(|id| *id != address);
        }
        if let Some(row) = self.db.addresses.get_mut(&address) {
            row.on = None;
        }
    }

    /// Removes a row from an interface; a default gateway through it is cleared.
    pub fn remove_link(&mut self, system_id: &str, nic: i64, address: i64) {
        self.detach_address(system_id, nic, address);
        self.drop_address(address);
        if let Ok(machine) = self.node_mut(system_id) {
            machine.gateway_link = machine.gateway_link.filter(|link| *link != address);
        }
    }

    /// Ids of an interface's links, without observed addresses.
    pub fn links_of(&self, nic: &Interface) -> Vec<i64> {
        nic.addresses
            .iter()
            .copied()
            .filter(|id| self.db.addresses.get(id).is_some_and(|row| row.alloc != AllocType::Discovered))
            .collect()
    }

    pub(crate) fn drop_links(&mut self, system_id: &str, nic: i64) {
        let Ok(interface) = self.interface(system_id, nic) else { return };
        for id in self.links_of(interface) {
            self.remove_link(system_id, nic, id);
        }
    }

    /// Before commissioning: removes links and partitions. Those of a VM, which MAAS created itself, stay.
    pub fn clear_configuration(&mut self, system_id: &str) {
        let Some(machine) = self.db.machines.get_mut(system_id).filter(|machine| machine.vm.is_none()) else { return };
        machine.disks.iter_mut().for_each(|disk| disk.partitions.clear());
        let nics: Vec<i64> = machine.interfaces.iter().map(|nic| nic.id).collect();
        for nic in nics {
            self.drop_links(system_id, nic);
        }
    }

    pub(super) fn is_link_up(&self, id: i64) -> bool {
        self.db.addresses.get(&id).is_some_and(|row| row.alloc == AllocType::Sticky && row.ip.is_none())
    }

    pub(crate) fn add_link_up(&mut self, system_id: &str, nic: i64, subnet: Option<i64>) {
        let id = self.new_address(AllocType::Sticky, None, subnet, None);
        self.attach_address(system_id, nic, id);
    }

    /// The default link of an interface: AUTO on the first subnet of its VLAN, else link_up.
    pub fn add_default_link(&mut self, system_id: &str, nic: i64) {
        let Ok(interface) = self.interface(system_id, nic) else { return };
        let Some(vlan) = interface.vlan else { return };
        match self.db.subnets.values().find(|subnet| subnet.vlan == vlan).map(|subnet| subnet.id) {
            Some(subnet) => {
                let id = self.new_address(AllocType::Auto, None, Some(subnet), None);
                self.attach_address(system_id, nic, id);
            }
            None => self.add_link_up(system_id, nic, None),
        }
    }

    /// `op=disconnect`: removes links and VLAN.
    pub fn disconnect(&mut self, system_id: &str, nic: i64) -> Outcome<()> {
        let all = self.interface(system_id, nic)?.addresses.clone();
        for id in all {
            self.remove_link(system_id, nic, id);
        }
        self.interface_mut(system_id, nic)?.vlan = None;
        Ok(())
    }

    /// Removes bridges and the like, and gives NICs their default link.
    pub fn restore_networking(&mut self, system_id: &str) -> Outcome<()> {
        let built = |nic: &&Interface| nic.kind != InterfaceKind::Physical;
        while let Some(id) = self.node(system_id)?.interfaces.iter().find(built).map(|nic| nic.id) {
            self.delete_interface(system_id, id)?;
        }
        let nics: Vec<i64> = self.node(system_id)?.interfaces.iter().map(|nic| nic.id).collect();
        for nic in nics {
            self.drop_links(system_id, nic);
            self.add_default_link(system_id, nic);
        }
        Ok(())
    }

    pub(super) fn remove_interface_row(&mut self, system_id: &str, nic: i64) {
        if let Ok(machine) = self.node_mut(system_id) {
            machine.interfaces.retain(|other| other.id != nic);
            if machine.boot_interface == Some(nic) {
                machine.boot_interface =
                    machine.interfaces.iter().find(|nic| nic.kind == InterfaceKind::Physical).map(|nic| nic.id);
            }
        }
    }

    /// `DELETE` of an interface: interfaces built on it are deleted too, and a bridge's parent is left without any
    /// link.
    pub fn delete_interface(&mut self, system_id: &str, nic: i64) -> Outcome<()> {
        let children: Vec<i64> = self
            .node(system_id)?
            .interfaces
            .iter()
            .filter(|other| other.parents == [nic])
            .map(|other| other.id)
            .collect();
        for child in children {
            self.delete_interface(system_id, child)?;
        }
        for id in self.interface(system_id, nic)?.addresses.clone() {
            self.remove_link(system_id, nic, id);
        }
        self.remove_interface_row(system_id, nic);
        if let Ok(machine) = self.node_mut(system_id) {
            for other in &mut machine.interfaces {
                other.parents.retain(|parent| *parent != nic);
            }
        }
        self.effect(Effect::machine(system_id, MachineChange::Interfaces));
        Ok(())
    }
}
