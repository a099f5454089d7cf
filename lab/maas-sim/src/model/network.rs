//! Subnets and addresses: assignments, and the next free address.

use std::net::IpAddr;

use super::{
    Model, Outcome, Refusal, Status,
    db::{Address, AllocType, IpRange, Named, Subnet, Table, Vlan},
    machines::is_mac,
    net::{from_number, to_number},
    refusal::FormCheck,
};
use crate::ledger::{Effect, ObjectChange, ObjectKind};
use crate::version::Change;

/// The parameters of `ipaddresses op=reserve`.
#[derive(Clone, Debug, Default)]
pub struct ReserveRequest {
    pub subnet: Option<String>,
    pub ip: Option<String>,
    pub hostname: Option<String>,
    pub mac: Option<String>,
}

impl Model {
    /// The first subnet that a specifier matches.
    pub fn find_subnet(&self, text: &str) -> Option<&Subnet> {
        self.subnets_for(text).into_iter().next()
    }

    /// Name of a VLAN's space; "undefined" for none.
    pub fn space_name(&self, vlan: Option<&Vlan>) -> &str {
        vlan.and_then(|vlan| vlan.space)
            .and_then(|space| self.db.spaces.get(&space))
            .map_or("undefined", |space: &Named| space.name.as_str())
    }

    /// Name of a VLAN's fabric.
    pub fn fabric_name(&self, vlan: Option<&Vlan>) -> &str {
        vlan.and_then(|vlan| self.db.fabrics.get(&vlan.fabric)).map_or("", |fabric| fabric.name.as_str())
    }

    /// The most specific subnet that contains an address.
    pub fn subnet_of(&self, ip: IpAddr) -> Option<&Subnet> {
        self.db.subnets.values().filter(|s| s.cidr.contains(ip)).max_by_key(|subnet| subnet.cidr.length())
    }

    /// The dynamic range that contains an address.
    pub fn dynamic_range_of(&self, ip: IpAddr) -> Option<&IpRange> {
        self.db.ranges.values().find(|range| {
            range.dynamic
                && range.start.is_ipv4() == ip.is_ipv4()
                && to_number(range.start) <= to_number(ip)
                && to_number(ip) <= to_number(range.end)
        })
    }

    /// Whether a row has the address, except observed ones.
    pub fn is_taken(&self, ip: IpAddr) -> bool {
        self.db.taken.contains_key(&ip)
    }

    /// The next free address of a subnet: first above its dynamic ranges, then from the start.
    pub fn next_free(&self, subnet: &Subnet) -> Option<IpAddr> {
        let (first, last) = subnet.cidr.host_range();
        let v4 = subnet.cidr.is_v4();
        let blocked: Vec<(u128, u128)> = self
            .db
            .ranges
            .values()
            .filter(|range| range.subnet == subnet.id)
            .map(|range| (to_number(range.start), to_number(range.end)))
            .collect();
        let above = self
            .db
            .ranges
            .values()
            .filter(|range| range.subnet == subnet.id && range.dynamic)
            .map(|range| to_number(range.end) + 1)
            .max();
        let scan = |from: u128, to: u128| {
            let mut at = from;
            while at <= to {
                if let Some((_, end)) = blocked.iter().find(|(start, end)| (*start..=*end).contains(&at)) {
                    at = end + 1;
                    continue;
                }
                let ip = from_number(at, v4);
                if subnet.gateway_ip != Some(ip) && !self.is_taken(ip) && !self.db.observed.contains(&ip) {
                    return Some(ip);
                }
                at += 1;
            }
            None
        };
        above.and_then(|start| scan(start, last)).or_else(|| scan(first, last))
    }

    /// Creates a row of the address table.
    pub fn new_address(&mut self, alloc: AllocType, ip: Option<IpAddr>, subnet: Option<i64>, user: Option<i64>) -> i64 {
        let id = self.db.sequences.take(Table::Link);
        self.put_address(id, alloc, ip, subnet, user);
        id
    }

    /// Creates a row with a fixed id.
    pub fn put_address(
        &mut self,
        id: i64,
        alloc: AllocType,
        ip: Option<IpAddr>,
        subnet: Option<i64>,
        user: Option<i64>,
    ) {
        self.db.sequences.used(Table::Link, id);
        let row = Address { id, ip, alloc, subnet, user, created: self.now, on: None, unknown_mac: None };
        self.db.addresses.insert(id, row);
        self.index_address(id, alloc, ip);
    }

    fn index_address(&mut self, id: i64, alloc: AllocType, ip: Option<IpAddr>) {
        match ip {
            Some(ip) if alloc == AllocType::Discovered => {
                self.db.observed.insert(ip);
            }
            Some(ip) => {
                self.db.taken.insert(ip, id);
            }
            None => {}
        }
    }

    /// Changes the address of a row, or clears it.
    pub fn set_address_ip(&mut self, id: i64, ip: Option<IpAddr>) {
        let Some(row) = self.db.addresses.get_mut(&id) else { return };
        let old = std::mem::replace(&mut row.ip, ip);
        let alloc = row.alloc;
        match old {
            Some(old) if alloc == AllocType::Discovered => {
                self.db.observed.remove(&old);
            }
            Some(old) if self.db.taken.get(&old) == Some(&id) => {
                self.db.taken.remove(&old);
            }
            _ => {}
        }
        self.index_address(id, alloc, ip);
    }

    /// Deletes a row. Names with this address lose it, and a name without another address is deleted, even with other
    /// records. From MAAS's source; recorded for an address that is released.
    pub fn drop_address(&mut self, id: i64) {
        self.set_address_ip(id, None);
        self.db.addresses.remove(&id);
        self.db.dns.retain(|_, dns| !dns.addresses.remove(&id) || !dns.addresses.is_empty());
    }

    /// Assigns an address to every AUTO link of a deploying machine.
    pub fn assign_auto_addresses(&mut self, system_id: &str) {
        for id in self.link_ids(system_id) {
            let Some(row) = self.db.addresses.get(&id) else { continue };
            if row.alloc != AllocType::Auto || row.ip.is_some() {
                continue;
            }
            let free = row.subnet.and_then(|id| self.db.subnets.get(&id)).and_then(|subnet| self.next_free(subnet));
            if free.is_some() {
                self.set_address_ip(id, free);
            }
        }
    }

    /// Releases the addresses of AUTO links. The rows stay: a name bound to one follows the machine.
    pub fn free_auto_addresses(&mut self, system_id: &str) {
        for id in self.link_ids(system_id) {
            if self.db.addresses.get(&id).is_some_and(|row| row.alloc == AllocType::Auto) {
                self.set_address_ip(id, None);
            }
        }
    }

    /// Ids of all rows on a machine's interfaces.
    pub fn link_ids(&self, system_id: &str) -> Vec<i64> {
        self.db.machines.get(system_id).map_or_else(Vec::new, |machine| {
            machine.interfaces.iter().flat_map(|nic| nic.addresses.iter().copied()).collect()
        })
    }

    /// Whether a machine could reach MAAS after a deployment.
    pub fn check_network(&self, system_id: &str) -> Outcome<()> {
        let machine = self.machine(system_id)?;
        let rows = || {
            machine.interfaces.iter().flat_map(|nic| nic.addresses.iter()).filter_map(|id| self.db.addresses.get(id))
        };
        if rows().any(|row| row.subnet.is_some() && is_link_with_subnet(row.alloc, row.ip)) {
            return Ok(());
        }
        // For MAAS's first check, an address that was only observed is enough.
        let words = if rows().any(|row| row.subnet.is_some()) {
            "Node has no address family in common with the server"
        } else {
            "Node must be configured to use a network"
        };
        Err(Refusal::validation("network", words))
    }

    /// Subnets on which MAAS serves DHCP.
    pub fn dhcp_subnets(&self) -> impl Iterator<Item = &Subnet> {
        self.db.subnets.values().filter(|subnet| self.db.vlans.get(&subnet.vlan).is_some_and(|vlan| vlan.dhcp_on))
    }

    /// The subnet of a machine that boots from the network: where MAAS serves DHCP, or else where a range is reserved
    /// for an external DHCP server.
    pub fn booting_subnet(&self) -> Option<&Subnet> {
        let set_aside = || {
            let range = self.db.ranges.values().find(|range| range.dynamic)?;
            self.db.subnets.get(&range.subnet)
        };
        self.dhcp_subnets().next().or_else(set_aside)
    }

    /// `ipaddresses op=reserve`. Returns the row.
    pub fn reserve_address(&mut self, user: i64, request: &ReserveRequest) -> Outcome<i64> {
        let mut check = FormCheck::default();
        let ip = request.ip.as_deref().filter(|text| !text.is_empty());
        let ip: Option<IpAddr> = ip.and_then(|text| {
            text.parse().map_err(|_| check.add("ip_address", "Enter a valid IPv4 or IPv6 address.")).ok()
        });
        if let Some(mac) = request.mac.as_deref().filter(|mac| !is_mac(mac)) {
            check.add("mac", format!("'{mac}' is not a valid MAC address."));
        }
        check.done()?;
        let subnet = match (ip, request.subnet.as_deref().filter(|text| !text.is_empty())) {
            (Some(ip), _) => self
                .subnet_of(ip)
                .ok_or_else(|| Refusal::bad_request(format!("No known subnet for IP address: {ip}.")))?,
            (None, Some(text)) => self
                .find_subnet(text)
                .ok_or_else(|| Refusal::bad_request(format!("Unable to identify subnet: {text}.")))?,
            (None, None) => {
                return Err(Refusal::bad_request("Must supply either the 'subnet' or the 'ip' parameter."));
            }
        };
        if let Some(ip) = ip.filter(|ip| self.dynamic_range_of(*ip).is_some()) {
            return Err(Refusal::text(
                403,
                format!(
                    "IP address {ip} belongs to an existing dynamic range. To reserve this IP address, a MAC \
                     address is required. (Create a device instead.)"
                ),
            ));
        }
        let name = match request.hostname.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => Some(self.split_fqdn_or_default(name)?),
            None => None,
        };
        if let Some((mac, other)) = request.mac.as_deref().and_then(|mac| Some((mac, self.mac_in_use(mac)?))) {
            return Err(Refusal::bad_request(format!(
                "MAC address {mac} already belongs to {}. Use of the interface API is required, for an interface \
                 that belongs to a node.",
                other.hostname
            )));
        }
        let (ip, subnet) = match ip {
            Some(ip) if self.is_taken(ip) => {
                return Err(Refusal::text(404, format!("The IP address {ip} is already in use.")));
            }
            Some(ip) => (ip, subnet.id),
            None => {
                let free = self.next_free(subnet);
                let none = || Refusal::unavailable(format!("No more IPs available in subnet: {}.", subnet.cidr));
                (free.ok_or_else(none)?, subnet.id)
            }
        };
        let id = self.new_address(AllocType::UserReserved, Some(ip), Some(subnet), Some(user));
        if let Some(mac) = request.mac.clone() {
            let nic = self.db.sequences.take(Table::Interface);
            if let Some(row) = self.db.addresses.get_mut(&id) {
                row.unknown_mac = Some((nic, mac));
            }
        }
        if let Some((label, domain)) = name {
            self.attach_name(&label, domain, id);
        }
        self.effect(Effect::object(ObjectKind::Address, ip, ObjectChange::Created));
        Ok(id)
    }

    /// `ipaddresses op=release`.
    pub fn release_address(&mut self, user: i64, ip: &str, force: bool, discovered: bool) -> Outcome<()> {
        let admin = self.db.users.get(&user).is_some_and(|user| user.admin);
        if force && !admin {
            let body = "Force-releasing an IP address requires admin privileges.".to_owned();
            return Err(Refusal::Handler { status: 403, body });
        }
        if ip.is_empty() {
            return Err(Refusal::required("ip"));
        }
        let address: IpAddr = ip.parse().map_err(|_| Refusal::field("ip", "Enter a valid IPv4 or IPv6 address."))?;
        let found = self.db.addresses.values().find(|row| {
            let meant = if force {
                discovered == (row.alloc == AllocType::Discovered)
            } else {
                row.alloc == AllocType::UserReserved && row.user == Some(user)
            };
            row.ip == Some(address) && meant
        });
        let Some((id, on)) = found.map(|row| (row.id, row.on.clone())) else {
            let more = if force {
                "."
            } else {
                ", is not the correct type of address, or does not belong to the requesting user.\nIf you are sure \
                 you want to release this address, use force=true as a MAAS administrator."
            };
            return Err(Refusal::bad_request(format!("IP address {ip} does not exist{more}")));
        };
        if let Some((system_id, nic)) = on {
            self.detach_address(&system_id, nic, id);
        }
        self.drop_address(id);
        self.effect(Effect::object(ObjectKind::Address, ip, ObjectChange::Deleted));
        Ok(())
    }

    /// Whether the interfaces of a machine in this status can be changed.
    pub fn interfaces_changeable(&self, status: Status) -> bool {
        match status {
            Status::Ready | Status::FailedTesting | Status::Allocated | Status::Broken => true,
            Status::New => self.version.has(Change::NewInterfacesMayChange),
            _ => false,
        }
    }
}

fn is_link_with_subnet(alloc: AllocType, ip: Option<IpAddr>) -> bool {
    match alloc {
        AllocType::Auto | AllocType::Dhcp => true,
        AllocType::Sticky => ip.is_some(),
        AllocType::UserReserved | AllocType::Discovered => false,
    }
}
