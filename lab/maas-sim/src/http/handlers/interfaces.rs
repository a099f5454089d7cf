//! Interfaces of machines.

use super::{
    super::{
        Call,
        render::network,
        reply::Reply,
        surface::{InterfaceAction, InterfacesAction},
    },
    list, nics,
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

pub(crate) fn interfaces(model: &mut Model, call: &Call, action: InterfacesAction) -> Outcome<Reply> {
    let system_id = call.parameter(0).to_owned();
    if action == InterfacesAction::Read
        && let Some(node) = device(model, call)?
    {
        return list(node.interfaces.iter().map(|nic| network::interface(model, node, nic)).collect());
    }
    if !model.db.machines.contains_key(&system_id) {
        return Err(Refusal::NotFound("Node"));
    }
    let needed = if action == InterfacesAction::Read { Permission::View } else { Permission::Admin };
    let machine = model.machine_for(&system_id, call.user, needed)?;
    let form = &call.body;
    let nic = match action {
        InterfacesAction::Read => {
            return list(machine.interfaces.iter().map(|nic| network::interface(model, machine, nic)).collect());
        }
        InterfacesAction::CreateBridge => {
            model.check_interface_state(&system_id, "create bridge")?;
            nics::check_bridge(form)?;
            model.create_bridge(
                &system_id,
                form.get("name"),
                form.get("parent").or_else(|| form.get("parents")),
                form.get("mac_address"),
                &bridge_options(form),
            )?
        }
        InterfacesAction::CreatePhysical => {
            model.check_interface_state(&system_id, "create")?;
            nics::create_physical(model, form, &system_id)?
        }
        InterfacesAction::CreateVlan => {
            model.check_interface_state(&system_id, "create VLAN")?;
            nics::create_vlan(model, form, &system_id)?
        }
        InterfacesAction::CreateBond => {
            model.check_interface_state(&system_id, "create bond")?;
            nics::create_bond(model, form, &system_id)?
        }
    };
    rendered(model, &system_id, nic)
}

pub(crate) fn interface(model: &mut Model, call: &Call, action: InterfaceAction) -> Outcome<Reply> {
    let system_id = call.parameter(0).to_owned();
    if action == InterfaceAction::Read
        && let Some(node) = device(model, call)?
    {
        let wanted = call.parameter(1);
        let nic = node.interfaces.iter().find(|nic| nic.id.to_string() == wanted || nic.name == wanted);
        return nic.map(|nic| Reply::json(&network::interface(model, node, nic))).ok_or(Refusal::NotFound("Interface"));
    }
    if !model.db.machines.contains_key(&system_id) {
        return Err(Refusal::NotFound("Node"));
    }
    let form = call.data();
    if action == InterfaceAction::LinkSubnet {
        // MAAS reads this before it looks for the machine.
        form.boolean("force")?;
    }
    // MAAS looks for the interface before it looks at rights.
    let nic = model.find_interface(&system_id, call.parameter(1))?.id;
    let needed = if action == InterfaceAction::Read { Permission::View } else { Permission::Admin };
    model.machine_for(&system_id, call.user, needed)?;
    match action {
        InterfaceAction::Read => {}
        InterfaceAction::Update => {
            // The record of a Deployed machine may be changed; nothing else happens.
            if model.machine(&system_id)?.status != Status::Deployed {
                model.check_interface_state(&system_id, "update interface")?;
            }
            nics::update(model, &call.body, &system_id, nic)?;
        }
        InterfaceAction::Delete => {
            model.check_interface_state(&system_id, "delete interface")?;
            model.delete_interface(&system_id, nic)?;
            return Ok(Reply::deleted());
        }
        InterfaceAction::LinkSubnet => {
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
        InterfaceAction::UnlinkSubnet => {
            model.check_interface_state(&system_id, "unlink subnet")?;
            model.unlink_subnet(&system_id, nic, form.get("id"))?;
        }
        InterfaceAction::Disconnect => {
            model.check_interface_state(&system_id, "disconnect")?;
            model.disconnect(&system_id, nic)?;
        }
        InterfaceAction::SetDefaultGateway => {
            model.check_interface_state(&system_id, "set default gateway")?;
            model.set_default_gateway(&system_id, nic, form.get("link_id"))?;
        }
        InterfaceAction::AddTag | InterfaceAction::RemoveTag => {
            let Some(tag) = form.text("tag").filter(|tag| !tag.is_empty()) else {
                return Err(Refusal::bad_request("No provided tag!"));
            };
            let row = model.interface_mut(&system_id, nic)?;
            row.tags.retain(|other| *other != tag);
            if action == InterfaceAction::AddTag {
                row.tags.push(tag);
            }
        }
    }
    rendered(model, &system_id, nic)
}

/// The device that an address names, if it is one.
fn device<'a>(model: &'a Model, call: &Call) -> Outcome<Option<&'a Machine>> {
    let Some(device) = model.db.devices.get(call.parameter(0)) else { return Ok(None) };
    if model.may(call.user, &device.node, Permission::View) { Ok(Some(&device.node)) } else { Err(Refusal::Forbidden) }
}
