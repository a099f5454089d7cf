//! Statements about the addresses of interfaces: links, and what was observed.

use super::{
    Model,
    arrange::{Nonsense, parse_ip},
    db::AllocType,
    statement::{InterfaceState, LinkState},
};

impl Model {
    pub(super) fn arrange_addresses(
        &mut self,
        system_id: &str,
        nic: i64,
        state: &InterfaceState,
        is_new: bool,
    ) -> Result<(), Nonsense> {
        if let Some(ips) = &state.discovered {
            for row in self.rows(system_id, nic, true) {
                self.detach_address(system_id, nic, row);
                self.drop_address(row);
            }
            for text in ips {
                let ip = parse_ip(text)?;
                let subnet = self.subnet_of(ip).map(|subnet| subnet.id);
                let row = self.new_address(AllocType::Discovered, Some(ip), subnet, None);
                self.attach_address(system_id, nic, row);
            }
        }
        match &state.links {
            Some(links) => self.arrange_links(system_id, nic, links),
            None if is_new => {
                self.add_default_link(system_id, nic);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// A link of the same mode stays the same row, as in MAAS when an address is taken from it or given to it: names that are
    /// bound to it stay bound.
    fn arrange_links(&mut self, system_id: &str, nic: i64, links: &[LinkState]) -> Result<(), Nonsense> {
        let mut old = self.rows(system_id, nic, false);
        for row in &old {
            self.detach_address(system_id, nic, *row);
            self.set_address_ip(*row, None);
        }
        for link in links {
            let alloc = match link.mode.as_str() {
                "auto" => AllocType::Auto,
                "dhcp" => AllocType::Dhcp,
                "static" | "link_up" => AllocType::Sticky,
                other => return Err(format!("there is no link mode '{other}'")),
            };
            let ip = link.ip_address.as_deref().map(parse_ip).transpose()?;
            if let Some((ip, row)) = ip.and_then(|ip| Some((ip, self.db.taken.get(&ip)?))) {
                return Err(format!("address {ip} is taken already (row {row})"));
            }
            let subnet = match &link.subnet {
                Some(reference) => Some(
                    self.find_subnet(&reference.text())
                        .map(|subnet| subnet.id)
                        .ok_or_else(|| format!("there is no subnet '{}'", reference.text()))?,
                ),
                None => ip.and_then(|ip| self.subnet_of(ip)).map(|subnet| subnet.id),
            };
            let is_meant = |id: &&i64| {
                let other = links.iter().any(|link| link.id == Some(**id));
                !other && self.db.addresses.get(*id).is_some_and(|row| row.alloc == alloc)
            };
            let row = match link.id.or_else(|| old.iter().find(is_meant).copied()) {
                Some(id) => {
                    old.retain(|row| *row != id);
                    self.put_address(id, alloc, ip, subnet, None);
                    id
                }
                None => self.new_address(alloc, ip, subnet, None),
            };
            self.attach_address(system_id, nic, row);
        }
        for row in old {
            self.drop_address(row);
        }
        Ok(())
    }

    /// The rows of an interface: the observed ones, or the others.
    fn rows(&self, system_id: &str, nic: i64, observed: bool) -> Vec<i64> {
        let Ok(interface) = self.interface(system_id, nic) else { return Vec::new() };
        let is_meant =
            |id: &i64| self.db.addresses.get(id).is_none_or(|row| (row.alloc == AllocType::Discovered) == observed);
        interface.addresses.iter().copied().filter(is_meant).collect()
    }
}
