//! Links of interfaces to subnets, and their gateways.

use std::net::IpAddr;

use super::{
    Model, Outcome, Refusal,
    db::{AllocType, Subnet},
    refusal::FormCheck,
};
use crate::ledger::{Effect, MachineChange};

/// The modes of a link, in MAAS's order.
const MODES: &[&str] = &["auto", "dhcp", "static", "link_up"];

/// Parameters of `op=link_subnet`.
#[derive(Clone, Debug, Default)]
pub struct LinkRequest {
    pub mode: Option<String>,
    pub subnet: Option<String>,
    pub ip_address: Option<String>,
    pub default_gateway: bool,
    pub force: bool,
}

impl Model {
    /// A subnet as MAAS writes it in its messages.
    fn subnet_words(&self, subnet: &Subnet) -> String {
        let vid = self.db.vlans.get(&subnet.vlan).map_or(0, |vlan| vlan.vid);
        format!("{}:{}(vid={vid})", subnet.name, subnet.cidr)
    }

    /// `op=link_subnet`.
    pub fn link_subnet(&mut self, system_id: &str, nic: i64, request: &LinkRequest) -> Outcome<()> {
        let mut check = FormCheck::default();
        let mode = request.mode.as_deref().unwrap_or_default().to_lowercase();
        // A device configures its own address; MAAS only records it.
        let modes = if self.db.devices.contains_key(system_id) { &["static"] } else { MODES };
        if check.require("mode", Some(&mode)).is_some() {
            check.choice("mode", &mode, modes);
        }
        let subnet = self.subnet_to_link(system_id, nic, request, &mut check)?;
        let ip = request.ip_address.as_deref().filter(|text| !text.is_empty()).and_then(|text| {
            let ip = text.parse::<IpAddr>().ok();
            if ip.is_none() {
                check.add("ip_address", "Enter a valid IPv4 or IPv6 address.");
            }
            ip
        });
        if !check.is_wrong("mode") {
            self.check_mode(&mode, system_id, nic, subnet, ip, request.force, &mut check)?;
            if request.default_gateway {
                self.check_default_gateway(&mode, subnet, &mut check);
            }
        }
        check.done()?;
        // An address is only checked where it is used.
        let mut ip = ip.filter(|_| mode == "static");
        if ip.is_some_and(|ip| self.is_taken(ip)) {
            return Err(Refusal::text(404, "IP address is already in use."));
        }
        if let Some(subnet) =
            subnet.and_then(|id| self.db.subnets.get(&id)).filter(|_| mode == "static" && ip.is_none())
        {
            let exhausted = || Refusal::unavailable(format!("No more IPs available in subnet: {}.", subnet.cidr));
            ip = Some(self.next_free(subnet).ok_or_else(exhausted)?);
        }
        self.make_room_for_link(system_id, nic, &mode, request.force)?;
        let alloc = match mode.as_str() {
            "auto" => AllocType::Auto,
            "dhcp" => AllocType::Dhcp,
            _ => AllocType::Sticky,
        };
        let id = self.new_address(alloc, ip, subnet, None);
        self.attach_address(system_id, nic, id);
        if let Some(vlan) = subnet.and_then(|id| self.db.subnets.get(&id)).map(|subnet| subnet.vlan) {
            self.interface_mut(system_id, nic)?.vlan = Some(vlan);
        }
        if request.default_gateway {
            self.node_mut(system_id)?.gateway_link = Some(id);
        }
        self.effect(Effect::machine(system_id, MachineChange::Interfaces));
        Ok(())
    }

    /// The subnet must be on the interface's VLAN, unless that is unknown or force is used.
    fn subnet_to_link(
        &self,
        system_id: &str,
        nic: i64,
        request: &LinkRequest,
        check: &mut FormCheck,
    ) -> Outcome<Option<i64>> {
        let vlan = self.interface(system_id, nic)?.vlan.filter(|_| !request.force);
        let Some(text) = request.subnet.as_deref().filter(|text| !text.is_empty()) else { return Ok(None) };
        let found = self.find_subnet(text).filter(|subnet| vlan.is_none_or(|vlan| subnet.vlan == vlan));
        if found.is_none() {
            let named = if text.parse::<i64>().is_ok() { format!("id={text}") } else { text.to_owned() };
            check.add("subnet", format!("None found with {named}."));
        }
        Ok(found.map(|subnet| subnet.id))
    }

    #[allow(clippy::too_many_arguments)]
    fn check_mode(
        &self,
        mode: &str,
        system_id: &str,
        nic: i64,
        subnet: Option<i64>,
        ip: Option<IpAddr>,
        force: bool,
        check: &mut FormCheck,
    ) -> Outcome<()> {
        let rows: Vec<_> =
            self.interface(system_id, nic)?.addresses.iter().filter_map(|id| self.db.addresses.get(id)).collect();
        let subnet = subnet.and_then(|id| self.db.subnets.get(&id));
        match mode {
            "auto" | "static" if subnet.is_none() => check.add("subnet", "This field is required."),
            "static" => {
                if let (Some(subnet), Some(ip)) = (subnet, ip) {
                    self.check_static(subnet, ip, check);
                }
            }
            "dhcp" => {
                if let Some(row) = rows.iter().find(|row| row.alloc == AllocType::Dhcp) {
                    let from = row.subnet.and_then(|id| self.db.subnets.get(&id));
                    let from = from.map(|subnet| format!(" from '{}'", self.subnet_words(subnet)));
                    check.add("mode", format!("Interface is already set to DHCP{}.", from.unwrap_or_default()));
                }
            }
            "link_up" if !force => {
                // Observed links count as well, as soon as they have an address.
                let idle = |alloc| matches!(alloc, AllocType::Sticky | AllocType::Discovered);
                if rows.iter().any(|row| !(idle(row.alloc) && row.ip.is_none())) {
                    check.add(
                        "mode",
                        "Cannot configure interface to link up (with no IP address) while other links are already \
                         configured. Specify force=True to override this behavior and delete all links.",
                    );
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check_static(&self, subnet: &Subnet, ip: IpAddr, check: &mut FormCheck) {
        if !subnet.cidr.contains(ip) {
            check.add("ip_address", format!("IP address is not in the given subnet '{}'.", self.subnet_words(subnet)));
        }
        if let Some(range) = self.dynamic_range_of(ip).filter(|range| range.subnet == subnet.id) {
            let (start, end) = (range.start, range.end);
            check.add("ip_address", format!("IP address is inside a dynamic range {start} to {end}."));
        }
    }

    /// From MAAS's source, not recorded.
    fn check_default_gateway(&self, mode: &str, subnet: Option<i64>, check: &mut FormCheck) {
        let field = "default_gateway";
        let subnet = subnet.and_then(|id| self.db.subnets.get(&id));
        match subnet {
            _ if !matches!(mode, "auto" | "static") => check.add(field, format!("Cannot use in mode '{mode}'.")),
            None => check.add(field, "Subnet is required when default_gateway is True."),
            Some(subnet) if subnet.gateway_ip.is_none() => check.add(
                field,
                format!(
                    "Cannot set as default gateway because subnet {} doesn't provide a gateway IP address.",
                    self.subnet_words(subnet)
                ),
            ),
            Some(_) => {}
        }
    }

    /// Any new link replaces a link_up. Links of different modes exclude each other; only several STATIC ones may
    /// coexist.
    fn make_room_for_link(&mut self, system_id: &str, nic: i64, mode: &str, force: bool) -> Outcome<()> {
        for id in self.links_of(self.interface(system_id, nic)?) {
            let keep = match (mode, self.db.addresses.get(&id).map(|row| row.alloc)) {
                _ if force || self.is_link_up(id) => false,
                ("static", Some(AllocType::Sticky)) => true,
                _ => false,
            };
            if !keep {
                self.remove_link(system_id, nic, id);
            }
        }
        Ok(())
    }

    /// `op=unlink_subnet`. An interface without any other link is left with link_up.
    pub fn unlink_subnet(&mut self, system_id: &str, nic: i64, id: Option<&str>) -> Outcome<()> {
        let choices = self.interface(system_id, nic)?.addresses.clone();
        let link = choose_link("id", id, &choices)?.ok_or_else(|| Refusal::required("id"))?;
        let subnet = self.db.addresses.get(&link).and_then(|row| row.subnet);
        let was_link_up = self.is_link_up(link);
        self.remove_link(system_id, nic, link);
        let left = self.links_of(self.interface(system_id, nic)?);
        if left.is_empty() {
            self.add_link_up(system_id, nic, if was_link_up { None } else { subnet });
        }
        Ok(())
    }

    /// `op=set_default_gateway`: among the links whose subnets have a gateway.
    pub fn set_default_gateway(&mut self, system_id: &str, nic: i64, link: Option<&str>) -> Outcome<()> {
        let gateway = |id: &i64| {
            let subnet = self.db.addresses.get(id)?.subnet?;
            self.db.subnets.get(&subnet)?.gateway_ip
        };
        let links = self.links_of(self.interface(system_id, nic)?);
        let usable: Vec<i64> = links.into_iter().filter(|id| gateway(id).is_some()).collect();
        let chosen = choose_link("link_id", link, &usable)?;
        if usable.is_empty() {
            return Err(Refusal::field("__all__", "This interface has no usable gateways."));
        }
        if chosen.is_none() {
            check_one_gateway(usable.iter().filter_map(gateway).collect())?;
        }
        self.node_mut(system_id)?.gateway_link = chosen.or(usable.first().copied());
        Ok(())
    }
}

/// Without a link, at most one gateway per address family is allowed. From MAAS's source, not recorded.
fn check_one_gateway(mut gateways: Vec<IpAddr>) -> Outcome<()> {
    gateways.sort_unstable();
    gateways.dedup();
    let count = |v4: bool| gateways.iter().filter(|ip| ip.is_ipv4() == v4).count();
    let many: Vec<&str> =
        [("IPv4", count(true)), ("IPv6", count(false))].into_iter().filter(|(_, n)| *n > 1).map(|(f, _)| f).collect();
    if many.is_empty() {
        return Ok(());
    }
    let plural = if many.len() > 1 { "s" } else { "" };
    let families = many.join(" and ");
    let words = format!("This field is required; Interface has more than one usable {families} gateway{plural}.");
    Err(Refusal::field("link_id", words))
}

fn choose_link(field: &str, text: Option<&str>, choices: &[i64]) -> Outcome<Option<i64>> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    if let Some(id) = text.parse::<i64>().ok().filter(|id| choices.contains(id)) {
        return Ok(Some(id));
    }
    let listed: Vec<String> = choices.iter().map(ToString::to_string).collect();
    let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
    let mut check = FormCheck::default();
    check.choice(field, text, &listed);
    check.done().map(|()| None)
}
