//! Fabrics, VLANs and spaces.

use serde_json::Value;

use super::{
    super::{
        Call,
        forms::{Form, is_true},
        render::network,
        reply::Reply,
        surface::{Collection, Item},
    },
    list, numeric,
};
use crate::model::{
    Model, Outcome, Refusal,
    arrange::new_vlan,
    db::{Fabric, Named, Table},
    refusal::FormCheck,
};

fn rendered<T>(row: Option<&T>, what: &'static str, render: impl Fn(&T) -> Value) -> Outcome<Reply> {
    row.map(|row| Reply::json(&render(row))).ok_or(Refusal::NotFound(what))
}

fn rendered_fabric(model: &Model, id: i64) -> Outcome<Reply> {
    rendered(model.db.fabrics.get(&id), "Fabric", |row| network::fabric(model, row))
}

fn rendered_vlan(model: &Model, id: i64) -> Outcome<Reply> {
    rendered(model.db.vlans.get(&id), "VLAN", |row| network::vlan(model, row))
}

fn fabric_id(model: &Model, text: &str) -> Outcome<i64> {
    model
        .db
        .fabrics
        .values()
        .find(|fabric| fabric.id.to_string() == text || fabric.name == text)
        .map(|fabric| fabric.id)
        .ok_or(Refusal::NotFound("Fabric"))
}

pub(crate) fn fabrics(model: &mut Model, call: &Call, action: Collection) -> Outcome<Reply> {
    let form = &call.body;
    match action {
        Collection::Read => list(model.db.fabrics.values().map(|row| network::fabric(model, row)).collect()),
        Collection::Create => {
            call.require_admin()?;
            let taken = |name: &str| model.db.fabrics.values().any(|fabric| fabric.name == name);
            check_name(form, "Fabric", None, taken)?;
            let id = model.db.sequences.take(Table::Fabric);
            let name = form.text("name").filter(|name| !name.is_empty()).unwrap_or_else(|| format!("fabric-{id}"));
            let fabric = Fabric { id, name, class_type: form.text("class_type").filter(|text| !text.is_empty()) };
            model.db.fabrics.insert(id, fabric);
            let vlan = model.db.sequences.take(Table::Vlan);
            model.db.vlans.insert(vlan, new_vlan(vlan, id, 0, "untagged"));
            rendered_fabric(model, id)
        }
    }
}

pub(crate) fn fabric(model: &mut Model, call: &Call, action: Item) -> Outcome<Reply> {
    let form = &call.body;
    let id = fabric_id(model, call.parameter(0))?;
    match action {
        Item::Read => {}
        Item::Update => {
            call.require_right()?;
            let others = |name: &str| model.db.fabrics.values().any(|row| row.name == name && row.id != id);
            check_name(form, "Fabric", Some(id), others)?;
            if let Some(fabric) = model.db.fabrics.get_mut(&id) {
                fabric.name = form.text("name").filter(|name| !name.is_empty()).unwrap_or(fabric.name.clone());
                fabric.class_type = form.text("class_type").or(fabric.class_type.take());
            }
        }
        Item::Delete => {
            call.require_right()?;
            let refused = |words: &str| Err(Refusal::validation("__all__", words));
            if id == 0 {
                return refused("This fabric is the default fabric, it cannot be deleted.");
            }
            let here = |vlan: i64| model.db.vlans.get(&vlan).is_some_and(|vlan| vlan.fabric == id);
            if model.db.subnets.values().any(|subnet| here(subnet.vlan)) {
                return refused("Can't delete fabric; there are still subnets in it.");
            }
            model.db.fabrics.remove(&id);
            model.db.vlans.retain(|_, vlan| vlan.fabric != id);
            return Ok(Reply::deleted());
        }
    }
    rendered_fabric(model, id)
}

pub(crate) fn vlans(model: &mut Model, call: &Call, action: Collection) -> Outcome<Reply> {
    let form = &call.body;
    if action == Collection::Create {
        call.require_admin()?;
    }
    let fabric = fabric_id(model, call.parameter(0))?;
    match action {
        Collection::Read => {
            let rows = model.db.vlans.values().filter(|vlan| vlan.fabric == fabric);
            list(rows.map(|row| network::vlan(model, row)).collect())
        }
        Collection::Create => {
            let mut check = FormCheck::default();
            let vid = check.require("vid", form.get("vid"));
            let vid = check.whole_number("vid", vid);
            if vid.is_some_and(|vid| !(0..=4094).contains(&vid)) {
                check.add("vid", "VID must be between 0 and 4094.");
            }
            let mtu = read_mtu(form, &mut check);
            let space = read_space(model, form, &mut check);
            if vid.is_some_and(|vid| model.db.vlans.values().any(|vlan| vlan.fabric == fabric && vlan.vid == vid)) {
                check.add("__all__", "A VLAN with the specified VID already exists in the destination fabric.");
            }
            check.done()?;
            let vid = vid.unwrap_or_default();
            let id = model.db.sequences.take(Table::Vlan);
            let name = form.text("name").filter(|name| !name.is_empty()).unwrap_or_else(|| vid.to_string());
            let mut row = new_vlan(id, fabric, vid, &name);
            row.mtu = mtu.unwrap_or(1500);
            row.space = space.flatten();
            model.db.vlans.insert(id, row);
            rendered_vlan(model, id)
        }
    }
}

/// A VLAN by its id, or by its fabric and VID.
fn vlan_id(model: &Model, call: &Call) -> Outcome<i64> {
    let found = if call.parameters.len() > 1 {
        let fabric = fabric_id(model, call.parameter(0))?;
        let vid = call.parameter(1).parse::<i64>().unwrap_or(0);
        model.db.vlans.values().find(|vlan| vlan.fabric == fabric && vlan.vid == vid)
    } else {
        model.db.vlans.get(&numeric(call.parameter(0), "VLAN")?)
    };
    found.map(|vlan| vlan.id).ok_or(Refusal::NotFound("VLAN"))
}

pub(crate) fn vlan(model: &mut Model, call: &Call, action: Item) -> Outcome<Reply> {
    let form = &call.body;
    let id = vlan_id(model, call)?;
    match action {
        Item::Read => {}
        Item::Update => {
            call.require_right()?;
            let mut check = FormCheck::default();
            let space = read_space(model, form, &mut check);
            let mtu = read_mtu(form, &mut check);
            check_dhcp(model, form, id, &mut check);
            check.done()?;
            let vlan = model.db.vlans.get_mut(&id).ok_or(Refusal::NotFound("VLAN"))?;
            vlan.space = space.unwrap_or(vlan.space);
            if let Some(name) = form.get("name") {
                name.clone_into(&mut vlan.name);
            }
            vlan.mtu = mtu.unwrap_or(vlan.mtu);
            if let Some(text) = form.get("dhcp_on") {
                vlan.dhcp_on = is_true(text);
            }
        }
        Item::Delete => {
            call.require_right()?;
            model.db.vlans.remove(&id);
            return Ok(Reply::deleted());
        }
    }
    rendered_vlan(model, id)
}

fn read_mtu(form: &Form, check: &mut FormCheck) -> Option<i64> {
    // Linux accepts no smaller MTU.
    let mtu = check.at_least("mtu", form.get("mtu").filter(|text| !text.is_empty()), 552);
    if mtu.is_some_and(|mtu| mtu > 65535) {
        check.add("mtu", "Ensure this value is less than or equal to 65535.");
    }
    mtu
}

/// The space that a form names, if any.
#[allow(clippy::option_option)]
fn read_space(model: &Model, form: &Form, check: &mut FormCheck) -> Option<Option<i64>> {
    let text = form.get("space")?;
    if matches!(text, "" | "undefined") {
        return Some(None);
    }
    let found = model.db.spaces.values().find(|space| space.name == text || space.id.to_string() == text);
    if found.is_none() {
        check.add("space", "Select a valid choice. That choice is not one of the available choices.");
    }
    Some(found.map(|space| space.id))
}

/// DHCP needs a rack and a range to assign addresses from. From MAAS's source, not recorded.
fn check_dhcp(model: &Model, form: &Form, id: i64, check: &mut FormCheck) {
    let rack = form.get("primary_rack").filter(|text| !text.is_empty());
    if rack.is_some_and(|rack| !model.db.racks.iter().any(|row| row.system_id == rack)) {
        check.add("primary_rack", "Select a valid choice. That choice is not one of the available choices.");
    }
    if !form.get("dhcp_on").is_some_and(is_true) {
        return;
    }
    let on_vlan = |subnet: i64| model.db.subnets.get(&subnet).is_some_and(|subnet| subnet.vlan == id);
    if !model.db.ranges.values().any(|range| range.dynamic && on_vlan(range.subnet)) {
        check.add("dhcp_on", "dhcp can only be turned on when a dynamic IP range is defined.");
    } else if rack.is_none() && !model.db.vlans.get(&id).is_some_and(|vlan| vlan.dhcp_on) {
        check.add("__all__", "dhcp can only be turned on when a primary rack controller is set.");
    }
}

/// Names of fabrics and spaces: generated names are reserved for the object with that id. From MAAS's source, not
/// recorded.
fn check_name(form: &Form, noun: &str, own: Option<i64>, taken: impl Fn(&str) -> bool) -> Outcome<()> {
    let Some(name) = form.get("name").filter(|name| !name.is_empty()) else { return Ok(()) };
    let number = name.strip_prefix(&format!("{}-", noun.to_lowercase())).and_then(|number| number.parse::<i64>().ok());
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut check = FormCheck::default();
    if !name.starts_with(word) || !name.chars().all(|c| word(c) || c == ' ' || c == '-') {
        check.add("name", "Enter a valid value.");
    } else if number.is_some() && number != own {
        check.add("name", "This is a reserved name.");
    } else if taken(name) {
        check.add("name", format!("{noun} with this Name already exists."));
    }
    check.done()
}

pub(crate) fn spaces(model: &mut Model, call: &Call, action: Collection) -> Outcome<Reply> {
    let form = &call.body;
    match action {
        Collection::Read => {
            let mut values = vec![network::space(model, None)];
            values.extend(model.db.spaces.values().map(|row| network::space(model, Some(row))));
            list(values)
        }
        Collection::Create => {
            call.require_admin()?;
            check_name(form, "Space", None, |name| model.db.spaces.values().any(|space| space.name == name))?;
            let id = model.db.sequences.take(Table::Space);
            let name = form.text("name").filter(|name| !name.is_empty()).unwrap_or_else(|| format!("space-{id}"));
            let description = form.text("description").unwrap_or_default();
            model.db.spaces.insert(id, Named { id, name, description });
            Ok(Reply::json(&network::space(model, model.db.spaces.get(&id))))
        }
    }
}

pub(crate) fn space(model: &mut Model, call: &Call, action: Item) -> Outcome<Reply> {
    let form = &call.body;
    let wanted = call.parameter(0);
    if wanted == "undefined" || wanted == "-1" {
        return Ok(Reply::json(&network::space(model, None)));
    }
    let found = model.db.spaces.values().find(|space| space.name == wanted || space.id.to_string() == wanted);
    let id = found.map(|space| space.id).ok_or(Refusal::NotFound("Space"))?;
    match action {
        Item::Read => {}
        Item::Update => {
            call.require_right()?;
            let others = |name: &str| model.db.spaces.values().any(|row| row.name == name && row.id != id);
            check_name(form, "Space", Some(id), others)?;
            if let Some(space) = model.db.spaces.get_mut(&id) {
                space.name = form.text("name").filter(|name| !name.is_empty()).unwrap_or(space.name.clone());
                space.description = form.text("description").unwrap_or(space.description.clone());
            }
        }
        Item::Delete => {
            call.require_right()?;
            model.db.spaces.remove(&id);
            for vlan in model.db.vlans.values_mut().filter(|vlan| vlan.space == Some(id)) {
                vlan.space = None;
            }
            return Ok(Reply::deleted());
        }
    }
    Ok(Reply::json(&network::space(model, model.db.spaces.get(&id))))
}
