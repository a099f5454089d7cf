//! Statements about fabrics, VLANs, subnets and addresses.

use serde_json::{Value, json};

use super::{
    Model,
    arrange::{Nonsense, new_id, new_subnet, new_vlan, parse_ip},
    db::{AllocType, Fabric, IpRange, Table},
    statement::{AddressState, FabricState, RangeState, SubnetState, VlanState},
};

impl Model {
    pub(super) fn arrange_fabric(&mut self, state: &FabricState) -> Value {
        let existing = self
            .db
            .fabrics
            .values()
            .find(|fabric| Some(&fabric.name) == state.name.as_ref() || Some(fabric.id) == state.id)
            .map(|fabric| fabric.id);
        let is_new = existing.is_none();
        let id = existing.unwrap_or_else(|| new_id(&mut self.db, Table::Fabric, state.id));
        let name = state.name.clone().unwrap_or_else(|| format!("fabric-{id}"));
        let fabric = self.db.fabrics.entry(id).or_insert_with(|| Fabric { id, name: name.clone(), class_type: None });
        if state.name.is_some() {
            fabric.name = name;
        }
        let mut vlan = self.db.vlans.values().find(|vlan| vlan.fabric == id && vlan.vid == 0).map(|vlan| vlan.id);
        if is_new && vlan.is_none() {
            let vlan_id = new_id(&mut self.db, Table::Vlan, state.vlan_id);
            self.db.vlans.insert(vlan_id, new_vlan(vlan_id, id, 0, "untagged"));
            vlan = Some(vlan_id);
        }
        json!({"fabric": id, "vlan": vlan})
    }

    pub(super) fn arrange_vlan(&mut self, state: &VlanState) -> Result<Value, Nonsense> {
        let fabric = match &state.fabric {
            Some(reference) => {
                let text = reference.text();
                let found = self.db.fabrics.values().find(|f| f.name == text || f.id.to_string() == text).map(|f| f.id);
                Some(found.ok_or_else(|| format!("there is no fabric '{text}'"))?)
            }
            None => None,
        };
        let existing = self
            .db
            .vlans
            .values()
            .find(|vlan| {
                Some(vlan.id) == state.id
                    || (state.id.is_none() && fabric.is_some_and(|f| f == vlan.fabric) && state.vid == Some(vlan.vid))
            })
            .map(|vlan| vlan.id);
        let id = existing.unwrap_or_else(|| new_id(&mut self.db, Table::Vlan, state.id));
        let space = match &state.space {
            Some(Some(name)) => {
                let found = self.db.spaces.values().find(|space| space.name == *name).map(|space| space.id);
                Some(Some(found.ok_or_else(|| format!("there is no space '{name}'"))?))
            }
            Some(None) => Some(None),
            None => None,
        };
        let first_fabric = self.db.fabrics.keys().next().copied().unwrap_or(0);
        let vlan =
            self.db.vlans.entry(id).or_insert_with(|| new_vlan(id, fabric.unwrap_or(first_fabric), 0, "untagged"));
        vlan.fabric = fabric.unwrap_or(vlan.fabric);
        vlan.vid = state.vid.unwrap_or(vlan.vid);
        vlan.mtu = state.mtu.unwrap_or(vlan.mtu);
        vlan.dhcp_on = state.dhcp_on.unwrap_or(vlan.dhcp_on);
        vlan.space = space.unwrap_or(vlan.space);
        if let Some(name) = &state.name {
            vlan.name.clone_from(name);
        }
        Ok(json!({"vlan": id}))
    }

    pub(super) fn arrange_subnet(&mut self, state: &SubnetState) -> Result<Value, Nonsense> {
        let cidr = match &state.cidr {
            Some(text) => Some(text.parse().map_err(|error| format!("{error}"))?),
            None => None,
        };
        let existing = self
            .db
            .subnets
            .values()
            .find(|subnet| Some(subnet.cidr) == cidr || (cidr.is_none() && Some(subnet.id) == state.id))
            .map(|subnet| subnet.id);
        let id = match (existing, cidr) {
            (Some(id), _) => id,
            (None, Some(cidr)) => {
                let id = new_id(&mut self.db, Table::Subnet, state.id);
                let vlan = self.db.vlans.keys().next().copied().unwrap_or(1);
                self.db.subnets.insert(id, new_subnet(id, cidr, vlan));
                id
            }
            (None, None) => return Err("a new subnet needs a cidr".to_owned()),
        };
        let gateway = match &state.gateway_ip {
            Some(Some(text)) => Some(Some(parse_ip(text)?)),
            Some(None) => Some(None),
            None => None,
        };
        if let Some(vlan) = state.vlan.filter(|vlan| !self.db.vlans.contains_key(vlan)) {
            return Err(format!("there is no vlan {vlan}"));
        }
        let Some(subnet) = self.db.subnets.get_mut(&id) else { return Err("the subnet is gone".to_owned()) };
        if let Some(name) = &state.name {
            subnet.name.clone_from(name);
        }
        if let Some(servers) = &state.dns_servers {
            subnet.dns_servers.clone_from(servers);
        }
        if let Some(text) = &state.description {
            subnet.description.clone_from(text);
        }
        subnet.vlan = state.vlan.unwrap_or(subnet.vlan);
        subnet.gateway_ip = gateway.unwrap_or(subnet.gateway_ip);
        subnet.managed = state.managed.unwrap_or(subnet.managed);
        let vlan = subnet.vlan;
        if let (Some(dhcp), Some(vlan)) = (state.dhcp, self.db.vlans.get_mut(&vlan)) {
            vlan.dhcp_on = dhcp;
        }
        Ok(json!({"subnet": id}))
    }

    pub(super) fn arrange_range(&mut self, state: &RangeState) -> Result<Value, Nonsense> {
        let start = parse_ip(&state.start_ip)?;
        let existing = self.db.ranges.values().find(|range| range.start == start).map(|range| range.id);
        let id = existing.unwrap_or_else(|| new_id(&mut self.db, Table::IpRange, state.id));
        let end = match &state.end_ip {
            Some(text) => parse_ip(text)?,
            None => self.db.ranges.get(&id).map_or(start, |range| range.end),
        };
        let subnet = match &state.subnet {
            Some(reference) => self.find_subnet(&reference.text()).map(|subnet| subnet.id),
            None => self.subnet_of(start).map(|subnet| subnet.id),
        };
        let subnet = subnet.ok_or_else(|| format!("no subnet holds {start}"))?;
        let user = match &state.user {
            Some(name) => Some(self.user_named(name)?),
            None => None,
        };
        let dynamic = state.kind.as_deref().unwrap_or("dynamic") == "dynamic";
        let comment = state.comment.clone().unwrap_or_default();
        self.db.ranges.insert(id, IpRange { id, dynamic, start, end, subnet, user, comment });
        Ok(json!({"ip_range": id}))
    }

    pub(super) fn arrange_address(&mut self, state: &AddressState) -> Result<Value, Nonsense> {
        let ip = parse_ip(&state.ip)?;
        let existing = self.db.taken.get(&ip).copied();
        if state.free {
            if let Some(id) = existing {
                if let Some((machine, nic)) = self.db.addresses.get(&id).and_then(|row| row.on.clone()) {
                    self.detach_address(&machine, nic, id);
                }
                self.drop_address(id);
            }
            return Ok(json!({}));
        }
        let user = match &state.user {
            Some(name) => Some(self.user_named(name)?),
            None => None,
        };
        let alloc = match state.kind.as_deref().unwrap_or("user_reserved") {
            "user_reserved" => AllocType::UserReserved,
            "discovered" => AllocType::Discovered,
            other => return Err(format!("an address is 'user_reserved' or 'discovered', not '{other}'")),
        };
        let subnet = self.subnet_of(ip).map(|subnet| subnet.id);
        let id = existing.unwrap_or_else(|| self.new_address(alloc, Some(ip), subnet, user));
        if let Some(row) = self.db.addresses.get_mut(&id) {
            row.user = user.or(row.user);
        }
        Ok(json!({"ip_address": id}))
    }
}
