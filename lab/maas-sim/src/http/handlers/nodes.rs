//! Nodes of all kinds at one address: devices, machines and controllers, each shown as by its own address.

use super::{
    super::{Call, render, reply::Reply},
    devices,
    filter::Filter,
    list, machine, machines, misc,
};
use crate::model::{Model, Outcome, Refusal, db::Machine};

pub(crate) fn answer(model: &mut Model, call: &Call) -> Outcome<Reply> {
    if call.action != "read" {
        return machines::answer(model, call);
    }
    let mut nodes: Vec<_> =
        devices::listed(model, call)?.into_iter().map(|device| render::device(model, device)).collect();
    for id in machines::filtered(model, call)? {
        nodes.push(render::machine::machine(model, model.machine(&id)?));
    }
    let filter = Filter::read(model, &call.query)?;
    let ids = filter.ids();
    for rack in &model.db.racks {
        // All that a filter can ask of a controller is its name.
        let node = Machine::empty(0, &rack.system_id, &rack.hostname);
        let named = ids.as_ref().is_none_or(|ids| ids.contains(rack.system_id.as_str()));
        if named && filter.fits(model, &node) {
            nodes.push(misc::controller(model, rack));
        }
    }
    list(nodes)
}

/// One node. What is done to it is done to a machine.
pub(crate) fn item(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let id = call.parameter(0);
    if model.db.devices.contains_key(id) {
        return devices::answer(model, call);
    }
    if call.action == "read"
        && let Some(rack) = model.db.racks.iter().find(|rack| rack.system_id == id)
    {
        return Ok(Reply::json(&misc::controller(model, rack)));
    }
    if !model.db.machines.contains_key(id) {
        return Err(Refusal::NotFound("Node"));
    }
    machine::answer(model, call)
}
