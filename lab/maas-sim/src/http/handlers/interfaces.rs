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
use crate::model::{Model, Outcome, Refusal, Status, bridges::BridgeOptions, links::LinkRequest, machines::Permission};

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
    let nic = model.interface(system_id, nic)?;
    Ok(Reply::json(&network::interface(model, model.node(system_id)?, nic)))
}

/// Interfaces of a machine need an administrator, those of a device its owner.
fn needed(model: &Model, system_id: &str, read: bool) -> Permission {
    match model.db.devices.contains_key(system_id) {
        _ if read => Permission::View,
        true => Permission::Edit,
        false => Permission::Admin,
    }
}

pub(crate) fn interfaces(model: &mut Model, call: &Call, action: InterfacesAction) -> Outcome<Reply> {
    let system_id = call.parameter(0).to_owned();
    // Only machines have other than physical interfaces.
    let any = matches!(action, InterfacesAction::Read | InterfacesAction::CreatePhysical);
    let node = if any { model.node(&system_id)? } else { model.machine(&system_id)? };
    if !model.may(call.user, node, needed(model, &system_id, action == InterfacesAction::Read)) {
        return Err(Refusal::Forbidden);
    }
    let form = &call.body;
    let nic = match action {
        InterfacesAction::Read => {
            return list(node.interfaces.iter().map(|nic| network::interface(model, node, nic)).collect());
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
    let form = call.data();
    if action == InterfaceAction::LinkSubnet {
        // MAAS parses this before it looks up the machine.
        form.boolean("force")?;
    }
    // MAAS looks up the interface before it checks permissions.
    let nic = model.find_interface(&system_id, call.parameter(1))?.id;
    if !model.may(call.user, model.node(&system_id)?, needed(model, &system_id, action == InterfaceAction::Read)) {
        return Err(Refusal::Forbidden);
    }
    match action {
        InterfaceAction::Read => {}
        InterfaceAction::Update => {
            // On a Deployed machine only the record changes.
            if model.node(&system_id)?.status != Status::Deployed {
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
            let tag = form.mandatory("tag")?.to_owned();
            let row = model.interface_mut(&system_id, nic)?;
            row.tags.retain(|other| *other != tag);
            if action == InterfaceAction::AddTag {
                row.tags.push(tag);
            }
        }
    }
    rendered(model, &system_id, nic)
}
