//! Devices: nodes that MAAS names and assigns addresses to, but does not manage.

use serde_json::json;

use super::{
    super::{
        Call,
        forms::Form,
        render,
        reply::Reply,
        surface::{DeviceAction, DevicesAction},
    },
    filter::Filter,
    list,
    machines::{check_hostname, check_macs, is_action_in_progress, is_of_address, is_registered, set_zone},
};
use crate::ledger::{Effect, ObjectChange, ObjectKind};
use crate::model::{
    Model, Outcome, Refusal,
    db::{Device, Interface, Machine, Table},
    machines::Permission,
    refusal::FormCheck,
};

/// A BSON document in which `lldp` and `lshw` are null.
const NO_DETAILS: &[u8] = b"\x11\0\0\0\x0alldp\0\x0alshw\0\0";
const CHOICE: &str = "Select a valid choice. That choice is not one of the available choices.";

pub(crate) fn devices(model: &mut Model, call: &Call, action: DevicesAction) -> Outcome<Reply> {
    match action {
        DevicesAction::Read => {
            list(listed(model, call)?.into_iter().map(|device| render::device(model, device)).collect())
        }
        DevicesAction::Create => create(model, call),
        DevicesAction::IsRegistered => is_registered(model, call),
        DevicesAction::IsActionInProgress => is_action_in_progress(model, call),
        DevicesAction::SetZone => set_zone(model, call),
    }
}

/// The devices that a list shows.
pub(super) fn listed<'a>(model: &'a Model, call: &Call) -> Outcome<Vec<&'a Device>> {
    let filter = Filter::read(model, &call.query)?;
    let ids = filter.ids();
    let mut found: Vec<&Device> = model
        .db
        .devices
        .values()
        .filter(|device| ids.as_ref().is_none_or(|ids| ids.contains(device.node.system_id.as_str())))
        .filter(|device| model.may(call.user, &device.node, Permission::View) && filter.fits(model, &device.node))
        .collect();
    found.sort_by_key(|device| device.node.id);
    Ok(found)
}

/// The location and parent that a form gives a device.
struct Place {
    domain: Option<i64>,
    zone: Option<i64>,
    parent: Option<String>,
}

fn place(model: &Model, form: &Form, check: &mut FormCheck) -> Place {
    let given = |key: &str| form.get(key).filter(|text| !text.is_empty());
    let domain = given("domain").map(|name| model.find_domain(name).map(|domain| domain.id));
    if domain == Some(None) {
        check.add("domain", format!("Unable to find domain {}", given("domain").unwrap_or_default()));
    }
    let zone = given("zone").map(|name| model.db.zones.values().find(|zone| zone.name == name).map(|zone| zone.id));
    if zone == Some(None) {
        check.add("zone", CHOICE);
    }
    let parent = given("parent");
    if parent.is_some_and(|id| model.node(id).is_err()) {
        check.add("parent", CHOICE);
    }
    Place { domain: domain.flatten(), zone: zone.flatten(), parent: parent.map(str::to_owned) }
}

fn create(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let form = &call.body;
    let mut check = FormCheck::default();
    let hostname = check_hostname(model, form, &mut check, None);
    let (macs, _) = check_macs(model, form, &mut check, true);
    let Place { domain, zone, parent } = place(model, form, &mut check);
    check.done()?;
    let hostname = hostname.filter(|name| !is_of_address(name)).unwrap_or_else(|| model.new_hostname());
    let system_id = model.new_system_id();
    let id = model.db.sequences.take(Table::Machine);
    let (label, of_name) = match hostname.split_once('.') {
        Some((label, domain)) => (label, model.find_domain(domain).map(|domain| domain.id)),
        None => (hostname.as_str(), None),
    };
    let mut node = Machine::empty(id, &system_id, label);
    node.owner = Some(call.user);
    // From MAAS's source, not recorded: a device with a parent is in the parent's domain.
    let of_parent = parent.as_deref().and_then(|id| model.node(id).ok()).map(|parent| parent.domain);
    node.domain = domain.or(of_parent).or(of_name).unwrap_or(model.db.default_domain);
    node.zone = zone.unwrap_or(node.zone);
    node.description = form.text("description").unwrap_or_default();
    for (index, mac) in macs.iter().enumerate() {
        let nic = model.db.sequences.take(Table::Interface);
        node.interfaces.push(Interface::physical(nic, &format!("eth{index}"), mac, None));
    }
    let device = Device { node, parent };
    let reply = Reply::json(&render::device(model, &device));
    model.effect(Effect::object(ObjectKind::Device, &system_id, ObjectChange::Created));
    model.db.devices.insert(system_id, device);
    Ok(reply)
}

pub(crate) fn device(model: &mut Model, call: &Call, action: DeviceAction) -> Outcome<Reply> {
    let system_id = call.parameter(0).to_owned();
    let device = model.db.devices.get(&system_id).ok_or(Refusal::NotFound("Device"))?;
    let wanted = match action {
        DeviceAction::Read | DeviceAction::Details => Permission::View,
        DeviceAction::PowerParameters => Permission::AdminRead,
        DeviceAction::RestoreDefault | DeviceAction::RestoreNetworking => Permission::Admin,
        _ => Permission::Edit,
    };
    if !model.may(call.user, &device.node, wanted) {
        return Err(Refusal::Forbidden);
    }
    match action {
        // Its interfaces are always as they were created, so there is nothing to restore. That is from MAAS's source, not recorded.
        DeviceAction::Read | DeviceAction::RestoreDefault | DeviceAction::RestoreNetworking => {}
        DeviceAction::Delete => {
            model.remove_device(&system_id);
            return Ok(Reply::deleted());
        }
        DeviceAction::Update => {
            let form = &call.body;
            let mut check = FormCheck::default();
            let hostname = check_hostname(model, form, &mut check, Some(&system_id));
            let Place { domain, zone, parent } = place(model, form, &mut check);
            check.done()?;
            let device = model.db.devices.get_mut(&system_id).ok_or(Refusal::NotFound("Device"))?;
            let node = &mut device.node;
            if let Some(name) = hostname {
                name.split('.').next().unwrap_or(&name).clone_into(&mut node.hostname);
            }
            node.domain = domain.unwrap_or(node.domain);
            node.zone = zone.unwrap_or(node.zone);
            node.description = form.text("description").unwrap_or_else(|| node.description.clone());
            device.parent = parent.or(device.parent.take());
        }
        DeviceAction::SetOwnerData | DeviceAction::SetWorkloadAnnotations => {
            model.annotate(&system_id, call.user, &call.posted().annotations())?;
        }
        // A device has no BMC, and nothing has inventoried it. That is from MAAS's source as well.
        DeviceAction::PowerParameters => return Ok(Reply::json(&json!({}))),
        DeviceAction::Details => return Ok(Reply::raw("application/bson", NO_DETAILS)),
    }
    let device = model.db.devices.get(&system_id).ok_or(Refusal::NotFound("Device"))?;
    Ok(Reply::json(&render::device(model, device)))
}
