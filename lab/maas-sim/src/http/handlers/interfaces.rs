//! Interfaces of machines.

use super::{
    super::{Call, render::network, reply::Reply, routes::Resource},
    list, nics, unsupported,
};
use crate::model::{
    Model, Outcome, Refusal, Status, bridges::BridgeOptions, db::Machine, links::LinkRequest, machines::Permission,
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
    if let Some(device) = model.db.devices.get(&system_id).filter(|_| call.action == "read") {
        return of_device(model, call, &device.node);
    }
    let machine = model.db.machines.get(&system_id).ok_or(Refusal::NotFound("Node"))?;
    if call.route.resource == Resource::Interfaces {
        if call.action == "read" {
            model.machine_for(&system_id, call.user, Permission::View)?;
            return list(machine.interfaces.iter().map(|nic| network::interface(model, machine, nic)).collect());
        }
        model.machine_for(&system_id, call.user, Permission::Admin)?;
        return create(model, call, &system_id);
    }
    let form = call.data();
    if call.action == "link_subnet" {
        // MAAS reads this before it looks for the machine.
        form.boolean("force")?;
    }
    // MAAS looks for the interface before it looks at rights.
    let nic = model.find_interface(&system_id, call.parameter(1))?.id;
    if call.action == "read" {
        model.machine_for(&system_id, call.user, Permission::View)?;
        return rendered(model, &system_id, nic);
    }
    model.machine_for(&system_id, call.user, Permission::Admin)?;
    match call.action {
        "update" => {
            // The record of a Deployed machine may be changed; nothing else happens.
            if model.machine(&system_id)?.status != Status::Deployed {
                model.check_interface_state(&system_id, "update interface")?;
            }
            nics::update(model, &call.body, &system_id, nic)?;
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
                default_gateway: form.checkbox("default_gateway"),
                force: form.boolean("force")?,
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

fn of_device(model: &Model, call: &Call, node: &Machine) -> Outcome<Reply> {
    if !model.may(call.user, node, Permission::View) {
        return Err(Refusal::Forbidden);
    }
    if call.route.resource == Resource::Interfaces {
        return list(node.interfaces.iter().map(|nic| network::interface(model, node, nic)).collect());
    }
    let wanted = call.parameter(1);
    let nic = node.interfaces.iter().find(|nic| nic.id.to_string() == wanted || nic.name == wanted);
    nic.map(|nic| Reply::json(&network::interface(model, node, nic))).ok_or(Refusal::NotFound("Interface"))
}

fn create(model: &mut Model, call: &Call, system_id: &str) -> Outcome<Reply> {
    let form = call.data();
    let nic = match call.action {
        "create_bridge" => {
            model.check_interface_state(system_id, "create bridge")?;
            nics::check_bridge(form)?;
            model.create_bridge(
                system_id,
                form.get("name"),
                form.get("parent").or_else(|| form.get("parents")),
                form.get("mac_address"),
                &bridge_options(form),
            )?
        }
        "create_physical" => {
            model.check_interface_state(system_id, "create")?;
            nics::create_physical(model, form, system_id)?
        }
        "create_vlan" => {
            model.check_interface_state(system_id, "create VLAN")?;
            nics::create_vlan(model, form, system_id)?
        }
        "create_bond" => {
            model.check_interface_state(system_id, "create bond")?;
            nics::create_bond(model, form, system_id)?
        }
        _ => return Err(unsupported(call)),
    };
    rendered(model, system_id, nic)
}
