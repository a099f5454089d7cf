//! Nodes of all kinds under one URL: devices, machines and controllers, each shown as under its own URL.

use super::{
    super::{
        Call, render,
        reply::Reply,
        surface::{DeviceAction, MachineAction, NodeAction, NodesAction},
    },
    devices,
    filter::Filter,
    list, machine, machines, misc,
};
use crate::model::{Model, Outcome, Refusal, db::Machine};

pub(crate) fn nodes(model: &mut Model, call: &Call, action: NodesAction) -> Outcome<Reply> {
    match action {
        NodesAction::Read => listed(model, call),
        NodesAction::IsRegistered => machines::is_registered(model, call),
        NodesAction::IsActionInProgress => machines::is_action_in_progress(model, call),
        NodesAction::SetZone => machines::set_zone(model, call),
    }
}

fn listed(model: &Model, call: &Call) -> Outcome<Reply> {
    let mut nodes: Vec<_> =
        devices::listed(model, call)?.into_iter().map(|device| render::device(model, device)).collect();
    for id in machines::filtered(model, call)? {
        nodes.push(render::machine::machine(model, model.machine(&id)?));
    }
    let filter = Filter::read(model, &call.query)?;
    let ids = filter.ids();
    for rack in &model.db.racks {
        // The only property of a controller that filters apply to is its name.
        let node = Machine::empty(0, &rack.system_id, &rack.hostname);
        let named = ids.as_ref().is_none_or(|ids| ids.contains(rack.system_id.as_str()));
        if named && filter.fits(model, &node) {
            nodes.push(misc::controller(model, rack));
        }
    }
    list(nodes)
}

/// One node: it supports the operations of a device or a machine, whichever it is.
pub(crate) fn node(model: &mut Model, call: &Call, action: NodeAction) -> Outcome<Reply> {
    let id = call.parameter(0);
    if model.db.devices.contains_key(id) {
        let action = match action {
            NodeAction::Read => DeviceAction::Read,
            NodeAction::Delete => DeviceAction::Delete,
            NodeAction::Details => DeviceAction::Details,
            NodeAction::PowerParameters => DeviceAction::PowerParameters,
        };
        return devices::device(model, call, action);
    }
    if action == NodeAction::Read
        && let Some(rack) = model.db.racks.iter().find(|rack| rack.system_id == id)
    {
        return Ok(Reply::json(&misc::controller(model, rack)));
    }
    if !model.db.machines.contains_key(id) {
        return Err(Refusal::NotFound("Node"));
    }
    let action = match action {
        NodeAction::Read => MachineAction::Read,
        NodeAction::Delete => MachineAction::Delete,
        NodeAction::Details => MachineAction::Details,
        NodeAction::PowerParameters => MachineAction::PowerParameters,
    };
    machine::answer(model, call, action)
}
