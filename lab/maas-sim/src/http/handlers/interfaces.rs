//! Interfaces of machines.

use super::{
    super::{Call, forms::is_true, render::network, reply::Reply, routes::Resource},
    list, unsupported,
};
use crate::model::{
    Model, Outcome, Refusal, Status,
    bridges::BridgeOptions,
    db::{Interface, Table},
    interfaces::LinkRequest,
    machines::Permission,
    refusal::FormCheck,
};

/// The bridge parameters of a form.
pub(super) fn bridge_options(form: &super::super::forms::Form) -> BridgeOptions {
    let default = BridgeOptions::default();
    BridgeOptions {
        kind: form.text("bridge_type").filter(|text| !text.is_empty()).unwrap_or(default.kind),
        stp: form.flag("bridge_stp"),
        fd: form.get("bridge_fd").and_then(|text| text.parse().ok()).unwrap_or(default.fd),
    }
}

fn rendered(model: &Model, system_id: &str, nic: i64) -> Outcome<Reply> {
    let machine = model.machine(system_id)?;
    let nic = model.interface(system_id, nic)?;
    Ok(Reply::json(&network::interface(model, machine, nic)))
}

pub(crate) fn answer(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let system_id = call.parameter(0).to_owned();
    let machine = model.db.machines.get(&system_id).ok_or(Refusal::NotFound("Node"))?;
    if call.route.resource == Resource::Interfaces {
        if call.action == "read" {
            model.machine_for(&system_id, call.user, Permission::View)?;
            return list(machine.interfaces.iter().map(|nic| network::interface(model, machine, nic)).collect());
        }
        model.machine_for(&system_id, call.user, Permission::Admin)?;
        return create(model, call, &system_id);
    }
    // MAAS looks for the interface before it looks at rights.
    let nic = model.find_interface(&system_id, call.parameter(1))?.id;
    if call.action == "read" {
        model.machine_for(&system_id, call.user, Permission::View)?;
        return rendered(model, &system_id, nic);
    }
    model.machine_for(&system_id, call.user, Permission::Admin)?;
    let form = call.data();
    match call.action {
        "update" => {
            // The record of a Deployed machine may be changed; nothing else happens.
            if model.machine(&system_id)?.status != Status::Deployed {
                model.check_interface_state(&system_id, "update interface")?;
            }
            update(model, call, &system_id, nic)?;
        }
        "delete" => {
            model.check_interface_state(&system_id, "delete interface")?;
            model.delete_interface(&system_id, nic)?;
            return Ok(Reply::deleted());
        }
        "link_subnet" => {
            model.check_interface_state(&system_id, "link subnet")?;
            let request = LinkRequest {
                mode: form.text("mode"),
                subnet: form.text("subnet"),
                ip_address: form.text("ip_address"),
                default_gateway: form.flag("default_gateway"),
                force: form.flag("force"),
            };
            model.link_subnet(&system_id, nic, &request)?;
        }
        "unlink_subnet" => {
            model.check_interface_state(&system_id, "unlink subnet")?;
            model.unlink_subnet(&system_id, nic, form.get("id"))?;
        }
        "disconnect" => {
            model.check_interface_state(&system_id, "disconnect")?;
            model.disconnect(&system_id, nic)?;
        }
        "set_default_gateway" => {
            model.check_interface_state(&system_id, "set default gateway")?;
            model.set_default_gateway(&system_id, nic, form.get("link_id"))?;
        }
        "add_tag" | "remove_tag" => {
            let Some(tag) = form.text("tag").filter(|tag| !tag.is_empty()) else {
                return Err(Refusal::bad_request("No provided tag!"));
            };
            let row = model.interface_mut(&system_id, nic)?;
            row.tags.retain(|other| *other != tag);
            if call.action == "add_tag" {
                row.tags.push(tag);
            }
        }
        _ => return Err(unsupported(call)),
    }
    rendered(model, &system_id, nic)
}

fn create(model: &mut Model, call: &Call, system_id: &str) -> Outcome<Reply> {
    let form = call.data();
    match call.action {
        "create_bridge" => {
            model.check_interface_state(system_id, "create bridge")?;
            let options = bridge_options(form);
            let nic = model.create_bridge(
                system_id,
                form.get("name"),
                form.get("parent").or_else(|| form.get("parents")),
                form.get("mac_address"),
                &options,
            )?;
            rendered(model, system_id, nic)
        }
        "create_physical" => {
            model.check_interface_state(system_id, "create physical")?;
            let mut check = FormCheck::default();
            let mac = check.require("mac_address", form.get("mac_address"));
            check.done()?;
            let mac = mac.unwrap_or_default();
            if let Some(other) = model.mac_in_use(mac) {
                return Err(Refusal::field(
                    "mac_address",
                    format!("This MAC address is already in use by {}.", other.hostname),
                ));
            }
            let id = model.db.sequences.take(Table::Interface);
            let count = model.machine(system_id)?.interfaces.len();
            let name = form.text("name").filter(|name| !name.is_empty()).unwrap_or_else(|| format!("eth{count}"));
            let vlan = form.get("vlan").and_then(|text| text.parse().ok());
            model.machine_mut(system_id)?.interfaces.push(Interface::physical(id, &name, mac, vlan));
            rendered(model, system_id, id)
        }
        _ => Err(unsupported(call)),
    }
}

fn update(model: &mut Model, call: &Call, system_id: &str, nic: i64) -> Outcome<()> {
    let form = &call.body;
    let vlan = match form.get("vlan") {
        Some("") => Some(None),
        Some(text) => {
            let id = text.parse::<i64>().ok().filter(|id| model.db.vlans.contains_key(id));
            Some(Some(id.ok_or_else(|| {
                Refusal::field("vlan", "Select a valid choice. That choice is not one of the available choices.")
            })?))
        }
        None => None,
    };
    if let Some(name) = form.get("name").filter(|name| !name.is_empty()) {
        let taken = model.machine(system_id)?.interfaces.iter().any(|other| other.name == name && other.id != nic);
        if taken {
            return Err(Refusal::validation("__all__", "Interface with this Node config and Name already exists."));
        }
    }
    let row = model.interface_mut(system_id, nic)?;
    if let Some(name) = form.text("name").filter(|name| !name.is_empty()) {
        row.name = name;
    }
    if let Some(mac) = form.get("mac_address").filter(|mac| !mac.is_empty()) {
        row.mac = mac.to_lowercase();
    }
    row.vlan = vlan.unwrap_or(row.vlan);
    if form.has("tags") {
        row.tags = form
            .all("tags")
            .iter()
            .flat_map(|text| text.split(','))
            .filter(|t| !t.is_empty())
            .map(str::to_owned)
            .collect();
    }
    if let Some(text) = form.get("bridge_stp") {
        row.bridge_stp = is_true(text);
    }
    if let Some(fd) = form.get("bridge_fd").and_then(|text| text.parse().ok()) {
        row.bridge_fd = fd;
    }
    if let Some(text) = form.text("bridge_type").filter(|text| !text.is_empty()) {
        row.bridge_type = text;
    }
    if let Some(text) = form.get("enabled") {
        row.enabled = is_true(text);
    }
    Ok(())
}
