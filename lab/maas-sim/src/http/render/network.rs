//! Fabrics, VLANs, subnets, addresses and interfaces.

use serde_json::{Value, json};

use super::{iso, uri, user_by_id};
use crate::model::{
    Model,
    db::{Address, AllocType, Fabric, Interface, InterfaceKind, IpRange, Machine, Named, Subnet, Vlan},
    specifiers::link_mode,
};

pub fn vlan(model: &Model, vlan: &Vlan) -> Value {
    json!({
        "id": vlan.id,
        "vid": vlan.vid,
        "name": vlan.name,
        "fabric": model.fabric_name(Some(vlan)),
        "fabric_id": vlan.fabric,
        "mtu": vlan.mtu,
        "dhcp_on": vlan.dhcp_on,
        "primary_rack": vlan.dhcp_on.then(|| model.rack_id()),
        "secondary_rack": null,
        "relay_vlan": null,
        "external_dhcp": null,
        "space": model.space_name(Some(vlan)),
        "resource_uri": uri(&format!("vlans/{}/", vlan.id)),
    })
}

fn vlan_by_id(model: &Model, id: Option<i64>) -> Value {
    id.and_then(|id| model.db.vlans.get(&id)).map_or(Value::Null, |row| vlan(model, row))
}

/// A fabric with its VLANs.
pub fn fabric(model: &Model, fabric: &Fabric) -> Value {
    let vlans: Vec<Value> =
        model.db.vlans.values().filter(|row| row.fabric == fabric.id).map(|row| vlan(model, row)).collect();
    json!({
        "id": fabric.id, "name": fabric.name, "class_type": fabric.class_type, "vlans": vlans,
        "resource_uri": uri(&format!("fabrics/{}/", fabric.id)),
    })
}

/// A space with its VLANs and subnets; `None` is the space of those without one.
pub fn space(model: &Model, space: Option<&Named>) -> Value {
    let id = space.map(|space| space.id);
    let vlans: Vec<&Vlan> = model.db.vlans.values().filter(|vlan| vlan.space == id).collect();
    let subnets: Vec<Value> = model
        .db
        .subnets
        .values()
        .filter(|row| vlans.iter().any(|vlan| vlan.id == row.vlan))
        .map(|row| subnet(model, row))
        .collect();
    let (id, name, description, address) = match space {
        Some(space) => (space.id, space.name.as_str(), space.description.as_str(), format!("spaces/{}/", space.id)),
        None => (
            -1,
            "undefined",
            "Backward compatibility object to ensure objects not associated with a space can be found.",
            "spaces/undefined/".to_owned(),
        ),
    };
    json!({
        "id": id,
        "name": name,
        "description": description,
        "vlans": vlans.iter().map(|row| vlan(model, row)).collect::<Vec<_>>(),
        "subnets": subnets,
        "resource_uri": uri(&address),
    })
}

pub fn subnet(model: &Model, subnet: &Subnet) -> Value {
    let vlan_row = model.db.vlans.get(&subnet.vlan);
    json!({
        "id": subnet.id,
        "name": subnet.name,
        "cidr": subnet.cidr.to_string(),
        "description": subnet.description,
        "vlan": vlan_by_id(model, Some(subnet.vlan)),
        "space": model.space_name(vlan_row),
        "gateway_ip": subnet.gateway_ip.map(|ip| ip.to_string()),
        "dns_servers": subnet.dns_servers,
        "rdns_mode": subnet.rdns_mode,
        "allow_dns": subnet.allow_dns,
        "allow_proxy": subnet.allow_proxy,
        "active_discovery": subnet.active_discovery,
        "managed": subnet.managed,
        "disabled_boot_architectures": [],
        "resource_uri": uri(&format!("subnets/{}/", subnet.id)),
    })
}

fn subnet_by_id(model: &Model, id: Option<i64>) -> Value {
    id.and_then(|id| model.db.subnets.get(&id)).map_or(Value::Null, |row| subnet(model, row))
}

/// An address range.
pub fn ip_range(model: &Model, range: &IpRange) -> Value {
    json!({
        "id": range.id,
        "type": if range.dynamic { "dynamic" } else { "reserved" },
        "start_ip": range.start.to_string(),
        "end_ip": range.end.to_string(),
        "subnet": subnet_by_id(model, Some(range.subnet)),
        "user": user_by_id(model, range.user),
        "comment": range.comment,
        "resource_uri": uri(&format!("ipranges/{}/", range.id)),
    })
}

/// An address with the interfaces that it is on.
pub fn address(model: &Model, row: &Address) -> Value {
    let mut interfaces: Vec<Value> = Vec::new();
    if let Some((system_id, nic)) = &row.on
        && let Ok(machine) = model.node(system_id)
        && let Some(nic) = machine.interfaces.iter().find(|other| other.id == *nic)
    {
        interfaces.push(interface(model, machine, nic));
    }
    if let Some((id, mac)) = &row.unknown_mac {
        let vlan = row.subnet.and_then(|id| model.db.subnets.get(&id)).map(|subnet| subnet.vlan);
        interfaces.push(json!({
            "id": id, "name": "eth0", "type": "unknown", "mac_address": mac, "enabled": true, "link_connected": true,
            "vlan": vlan_by_id(model, vlan), "params": {}, "tags": [], "parents": [], "children": [], "vendor": null,
            "product": null, "firmware_version": null, "numa_node": null, "sriov_max_vf": 0, "interface_speed": 0,
            "link_speed": 0,
        }));
    }
    json!({
        "ip": row.ip.map(|ip| ip.to_string()),
        "alloc_type": row.alloc as i64,
        "alloc_type_name": row.alloc.name(),
        "subnet": subnet_by_id(model, row.subnet),
        "owner": user_by_id(model, row.user),
        "interface_set": interfaces,
        "created": iso(model, row.created),
        "resource_uri": uri("ipaddresses/"),
    })
}

/// A link of an interface.
fn link(model: &Model, nic: &Interface, row: &Address) -> Value {
    let ip = if row.alloc == AllocType::Dhcp {
        observed(model, nic).find(|seen| seen.subnet == row.subnet).and_then(|seen| seen.ip)
    } else {
        row.ip
    };
    let mut value = json!({"id": row.id, "mode": link_mode(row)});
    if let Some(ip) = ip {
        value["ip_address"] = json!(ip.to_string());
    }
    if row.subnet.is_some() {
        value["subnet"] = subnet_by_id(model, row.subnet);
    }
    value
}

fn observed<'a>(model: &'a Model, nic: &'a Interface) -> impl Iterator<Item = &'a Address> {
    nic.addresses.iter().filter_map(|id| model.db.addresses.get(id)).filter(|row| row.alloc == AllocType::Discovered)
}

pub fn interface(model: &Model, machine: &Machine, nic: &Interface) -> Value {
    let name_of = |id: &i64| machine.interfaces.iter().find(|other| other.id == *id).map(|other| other.name.clone());
    let parents: Vec<String> = nic.parents.iter().filter_map(name_of).collect();
    let children: Vec<&str> = machine
        .interfaces
        .iter()
        .filter(|other| other.parents.contains(&nic.id))
        .map(|other| other.name.as_str())
        .collect();
    let links: Vec<Value> = nic
        .addresses
        .iter()
        .filter_map(|id| model.db.addresses.get(id))
        .filter(|row| row.alloc != AllocType::Discovered)
        .map(|row| link(model, nic, row))
        .collect();
    let seen: Vec<Value> = observed(model, nic)
        .map(|row| json!({"subnet": subnet_by_id(model, row.subnet), "ip_address": row.ip.map(|ip| ip.to_string())}))
        .collect();
    let physical = nic.kind == InterfaceKind::Physical;
    let mut params = match nic.kind {
        InterfaceKind::Bridge if nic.has_params => json!({
            "bridge_type": nic.bridge_type, "bridge_stp": nic.bridge_stp, "bridge_fd": nic.bridge_fd,
        }),
        _ => json!({}),
    };
    for (name, value) in &nic.params {
        params[name] = value.clone();
    }
    let known = physical && nic.speed > 0;
    let of_vlan = nic.vlan.and_then(|id| model.db.vlans.get(&id)).map_or(1500, |vlan| vlan.mtu);
    let mtu = nic.params.get("mtu").and_then(Value::as_i64).unwrap_or(of_vlan);
    json!({
        "id": nic.id,
        "name": nic.name,
        "type": nic.kind.word(),
        "mac_address": nic.mac,
        "enabled": nic.enabled,
        "vlan": vlan_by_id(model, nic.vlan),
        "links": links,
        "discovered": if seen.is_empty() { Value::Null } else { Value::from(seen) },
        "parents": parents,
        "children": children,
        "params": params,
        "tags": nic.tags,
        // MAAS has never observed a bridge that was only configured.
        "link_connected": !(nic.kind == InterfaceKind::Bridge && nic.has_params),
        "interface_speed": nic.speed,
        "link_speed": nic.speed,
        "effective_mtu": mtu,
        "numa_node": physical.then_some(0),
        "sriov_max_vf": 0,
        "product": known.then_some("Ethernet Controller"),
        "vendor": known.then_some("Red Hat, Inc."),
        "firmware_version": known.then_some("1.63"),
        "system_id": machine.system_id,
        "resource_uri": uri(&format!("nodes/{}/interfaces/{}/", machine.system_id, nic.id)),
    })
}
