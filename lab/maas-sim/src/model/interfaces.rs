//! Interfaces of machines: links, bridges, gateways.

use std::net::IpAddr;

use super::{
    Model, Outcome, Refusal,
    db::{AllocType, Interface, InterfaceKind},
    refusal::FormCheck,
};
use crate::version::Change;

/// Parameters of `op=link_subnet`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct LinkRequest {
    pub mode: Option<String>,
    pub subnet: Option<String>,
    pub ip_address: Option<String>,
    pub default_gateway: bool,
    pub force: bool,
}

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
        let machine = self.machine(system_id)?;
        let by_id = text.parse::<i64>().ok();
        machine
            .interfaces
            .iter()
            .find(|nic| Some(nic.id) == by_id || nic.name == text)
            .ok_or(Refusal::NotFound("Interface"))
    }

    /// An interface of a machine by id.
    pub fn interface(&self, system_id: &str, id: i64) -> Outcome<&Interface> {
        self.machine(system_id)?.interfaces.iter().find(|nic| nic.id == id).ok_or(Refusal::NotFound("Interface"))
    }

    /// An interface of a machine by id, to change it.
    pub fn interface_mut(&mut self, system_id: &str, id: i64) -> Outcome<&mut Interface> {
        self.machine_mut(system_id)?
            .interfaces
            .iter_mut()
            .find(|nic| nic.id == id)
            .ok_or(Refusal::NotFound("Interface"))
    }

    /// The 409 of a change in the wrong state.
    pub fn check_interface_state(&self, system_id: &str, operation: &str) -> Outcome<()> {
        let status = self.machine(system_id)?.status;
        if self.interfaces_changeable(status) {
            return Ok(());
        }
        let allowed = if self.version.has(Change::NewInterfacesMayChange) {
            "New, Ready, Allocated, or Broken"
        } else {
            "Ready, Allocated, or Broken"
        };
        Err(Refusal::conflict(format!("Cannot {operation} interface because the machine is not {allowed}.")))
    }

    /// Puts a row on an interface.
    pub fn attach_address(&mut self, system_id: &str, nic: i64, address: i64) {
        if let Some(row) = self.db.addresses.get_mut(&address) {
            row.on = Some((system_id.to_owned(), nic));
        }
        if let Ok(nic) = self.interface_mut(system_id, nic) {
            nic.addresses.push(address);
        }
    }

    /// Takes a row off an interface, without deleting it.
    pub fn detach_address(&mut self, system_id: &str, nic: i64, address: i64) {
        if let Ok(nic) = self.interface_mut(system_id, nic) {
            nic.addresses.retain(|id| *id != address);
        }
        if let Some(row) = self.db.addresses.get_mut(&address) {
            row.on = None;
        }
    }

    /// Ids of an interface's links, observed addresses apart.
    pub fn links_of(&self, nic: &Interface) -> Vec<i64> {
        nic.addresses
            .iter()
            .copied()
            .filter(|id| self.db.addresses.get(id).is_some_and(|row| row.alloc != AllocType::Discovered))
            .collect()
    }

    pub(super) fn drop_links(&mut self, system_id: &str, nic: i64) {
        let Ok(interface) = self.interface(system_id, nic) else { return };
        for id in self.links_of(interface) {
            self.detach_address(system_id, nic, id);
            self.drop_address(id);
        }
    }

    /// Before commissioning: all links go.
    pub fn clear_links(&mut self, system_id: &str) {
        let nics: Vec<i64> =
            self.db.machines.get(system_id).map_or_else(Vec::new, |m| m.interfaces.iter().map(|nic| nic.id).collect());
        for nic in nics {
            self.drop_links(system_id, nic);
        }
    }

    pub(super) fn is_link_up(&self, id: i64) -> bool {
        self.db.addresses.get(&id).is_some_and(|row| row.alloc == AllocType::Sticky && row.ip.is_none())
    }

    pub(super) fn add_link_up(&mut self, system_id: &str, nic: i64, subnet: Option<i64>) {
        let id = self.new_address(AllocType::Sticky, None, subnet, None);
        self.attach_address(system_id, nic, id);
    }

    /// The link that an interface has by itself: AUTO on the first subnet of its VLAN, else link_up.
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

    /// `op=link_subnet`.
    pub fn link_subnet(&mut self, system_id: &str, nic: i64, request: &LinkRequest) -> Outcome<()> {
        let mut check = FormCheck::default();
        let mode = request.mode.as_deref().unwrap_or_default().to_lowercase();
        if mode.is_empty() {
            return Err(Refusal::required("mode"));
        }
        if !["auto", "dhcp", "static", "link_up"].contains(&mode.as_str()) {
            return Err(Refusal::field(
                "mode",
                format!("'{mode}' is not a valid mode.  It should be one of: 'auto', 'dhcp', 'static', 'link_up'."),
            ));
        }
        let interface = self.interface(system_id, nic)?;
        let vlan = interface.vlan;
        let links = self.links_of(interface);
        let mut subnet = None;
        if let Some(text) = request.subnet.as_deref().filter(|text| !text.is_empty()) {
            subnet = self.find_subnet(text).filter(|subnet| Some(subnet.vlan) == vlan).map(|subnet| subnet.id);
            if subnet.is_none() {
                let named = if text.parse::<i64>().is_ok() { format!("id={text}") } else { text.to_owned() };
                check.add("subnet", format!("None found with {named}."));
            }
        }
        if subnet.is_none() && (mode == "auto" || mode == "static") {
            check.add("subnet", "This field is required.");
        }
        check.done()?;
        let mut ip = None;
        if let Some(text) = request.ip_address.as_deref().filter(|text| !text.is_empty()) {
            ip = Some(self.check_link_ip(&mode, text, subnet)?);
        }
        let real_links = links.iter().any(|id| !self.is_link_up(*id));
        if mode == "link_up" && real_links && !request.force {
            return Err(Refusal::field(
                "mode",
                "Cannot configure interface to link up (with no IP address) while other links are already \
                 configured. Specify force=True to override this behavior and delete all links.",
            ));
        }
        if mode == "static" && ip.is_none() {
            ip = subnet.and_then(|id| self.db.subnets.get(&id)).and_then(|subnet| self.next_free(subnet));
        }
        self.make_room_for_link(system_id, nic, &mode, request.force, &links);
        let (alloc, ip) = match mode.as_str() {
            "auto" => (AllocType::Auto, None),
            "dhcp" => (AllocType::Dhcp, None),
            "static" => (AllocType::Sticky, ip),
            _ => (AllocType::Sticky, None),
        };
        let subnet = if mode == "link_up" { None } else { subnet };
        let id = self.new_address(alloc, ip, subnet, None);
        self.attach_address(system_id, nic, id);
        if request.default_gateway {
            self.machine_mut(system_id)?.gateway_link = Some(id);
        }
        self.effect(format!("{system_id}: link {mode} on interface {nic}"));
        Ok(())
    }

    /// A link_up gives way to anything; AUTO, DHCP and STATIC do not stand beside one another, STATIC ones apart.
    fn make_room_for_link(&mut self, system_id: &str, nic: i64, mode: &str, force: bool, links: &[i64]) {
        for id in links {
            let keep = match (mode, self.db.addresses.get(id).map(|row| row.alloc)) {
                _ if force || self.is_link_up(*id) => false,
                ("static", Some(AllocType::Sticky)) => true,
                _ => false,
            };
            if !keep {
                self.detach_address(system_id, nic, *id);
                self.drop_address(*id);
            }
        }
    }

    fn check_link_ip(&self, mode: &str, text: &str, subnet: Option<i64>) -> Outcome<IpAddr> {
        if mode != "static" {
            return Err(Refusal::field("ip_address", "Cannot use ip_address in mode other than STATIC."));
        }
        let ip: IpAddr =
            text.parse().map_err(|_| Refusal::field("ip_address", "Enter a valid IPv4 or IPv6 address."))?;
        let subnet = subnet.and_then(|id| self.db.subnets.get(&id));
        if let Some(subnet) = subnet.filter(|subnet| !subnet.cidr.contains(ip)) {
            let vid = self.db.vlans.get(&subnet.vlan).map_or(0, |vlan| vlan.vid);
            return Err(Refusal::field(
                "ip_address",
                format!("IP address is not in the given subnet '{}:{}(vid={vid})'.", subnet.name, subnet.cidr),
            ));
        }
        if let Some(range) = self.dynamic_range_of(ip) {
            return Err(Refusal::field(
                "ip_address",
                format!("IP address is inside a dynamic range {} to {}.", range.start, range.end),
            ));
        }
        if self.is_taken(ip) {
            return Err(Refusal::text(404, "IP address is already in use."));
        }
        Ok(ip)
    }

    /// `op=unlink_subnet`. An interface whose last link goes is left with link_up.
    pub fn unlink_subnet(&mut self, system_id: &str, nic: i64, id: Option<&str>) -> Outcome<()> {
        let link = self.choose_link(system_id, nic, "id", id, true)?.ok_or_else(|| Refusal::required("id"))?;
        let subnet = self.db.addresses.get(&link).and_then(|row| row.subnet);
        let was_link_up = self.is_link_up(link);
        self.detach_address(system_id, nic, link);
        self.drop_address(link);
        let left = self.links_of(self.interface(system_id, nic)?);
        if left.is_empty() {
            self.add_link_up(system_id, nic, if was_link_up { None } else { subnet });
        }
        Ok(())
    }

    fn choose_link(
        &self,
        system_id: &str,
        nic: i64,
        field: &str,
        text: Option<&str>,
        observed_too: bool,
    ) -> Outcome<Option<i64>> {
        let interface = self.interface(system_id, nic)?;
        let choices = if observed_too { interface.addresses.clone() } else { self.links_of(interface) };
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
        if let Some(id) = text.parse::<i64>().ok().filter(|id| choices.contains(id)) {
            Ok(Some(id))
        } else {
            let list: Vec<String> = choices.iter().map(|id| format!("'{id}'")).collect();
            Err(Refusal::field(
                field,
                format!("'{text}' is not a valid {field}.  It should be one of: {}.", list.join(", ")),
            ))
        }
    }

    /// `op=set_default_gateway`.
    pub fn set_default_gateway(&mut self, system_id: &str, nic: i64, link: Option<&str>) -> Outcome<()> {
        let chosen = self.choose_link(system_id, nic, "link_id", link, false)?;
        let link = match chosen {
            Some(link) => Some(link),
            None => self.links_of(self.interface(system_id, nic)?).into_iter().next(),
        };
        self.machine_mut(system_id)?.gateway_link = link;
        Ok(())
    }

    /// `op=disconnect`: no links, no VLAN.
    pub fn disconnect(&mut self, system_id: &str, nic: i64) -> Outcome<()> {
        let all = self.interface(system_id, nic)?.addresses.clone();
        for id in all {
            self.detach_address(system_id, nic, id);
            self.drop_address(id);
        }
        self.interface_mut(system_id, nic)?.vlan = None;
        Ok(())
    }

    pub(super) fn remove_interface_row(&mut self, system_id: &str, nic: i64) {
        if let Some(machine) = self.db.machines.get_mut(system_id) {
            machine.interfaces.retain(|other| other.id != nic);
            if machine.boot_interface == Some(nic) {
                machine.boot_interface =
                    machine.interfaces.iter().find(|nic| nic.kind == InterfaceKind::Physical).map(|nic| nic.id);
            }
        }
    }

    /// `DELETE` of an interface: what is built on it goes too, and a bridge's parent is left without any link.
    pub fn delete_interface(&mut self, system_id: &str, nic: i64) -> Outcome<()> {
        let children: Vec<i64> = self
            .machine(system_id)?
            .interfaces
            .iter()
            .filter(|other| other.parents == [nic])
            .map(|other| other.id)
            .collect();
        for child in children {
            self.delete_interface(system_id, child)?;
        }
        for id in self.interface(system_id, nic)?.addresses.clone() {
            self.detach_address(system_id, nic, id);
            self.drop_address(id);
        }
        self.remove_interface_row(system_id, nic);
        if let Some(machine) = self.db.machines.get_mut(system_id) {
            for other in &mut machine.interfaces {
                other.parents.retain(|parent| *parent != nic);
            }
        }
        self.effect(format!("{system_id}: interface {nic} deleted"));
        Ok(())
    }
}
