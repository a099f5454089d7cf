//! Fabrics, VLANs and spaces.

use super::{
    super::{
        Call,
        forms::{Form, is_true},
        render::network,
        reply::Reply,
        routes::Resource,
    },
    list, numeric, unsupported,
};
use crate::model::{
    Model, Outcome, Refusal,
    arrange::new_vlan,
    db::{Fabric, Named, Table},
    refusal::FormCheck,
};

pub(crate) fn answer(model: &mut Model, call: &Call) -> Outcome<Reply> {
    match call.route.resource {
        Resource::Fabrics | Resource::Fabric => fabrics(model, call),
        Resource::Spaces | Resource::Space => spaces(model, call),
        _ => vlans(model, call),
    }
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

fn fabrics(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let form = &call.body;
    match (call.route.resource, call.action) {
        (Resource::Fabrics, "read") => list(model.db.fabrics.values().map(|row| network::fabric(model, row)).collect()),
        (Resource::Fabrics, "create") => {
            call.require_admin()?;
            let taken = |name: &str| model.db.fabrics.values().any(|fabric| fabric.name == name);
            check_name(form, "Fabric", None, taken)?;
            let id = model.db.sequences.take(Table::Fabric);
            let name = form.text("name").filter(|name| !name.is_empty()).unwrap_or_else(|| format!("fabric-{id}"));
            let fabric = Fabric { id, name, class_type: form.text("class_type").filter(|text| !text.is_empty()) };
            model.db.fabrics.insert(id, fabric);
            let vlan = model.db.sequences.take(Table::Vlan);
            model.db.vlans.insert(vlan, new_vlan(vlan, id, 0, "untagged"));
            model
                .db
                .fabrics
                .get(&id)
                .map(|row| Reply::json(&network::fabric(model, row)))
                .ok_or(Refusal::NotFound("Fabric"))
        }
        (_, action) => {
            let id = fabric_id(model, call.parameter(0))?;
            match action {
                "read" => {}
                "update" => {
                    call.require_right()?;
                    let others = |name: &str| model.db.fabrics.values().any(|row| row.name == name && row.id != id);
                    check_name(form, "Fabric", Some(id), others)?;
                    if let Some(fabric) = model.db.fabrics.get_mut(&id) {
                        fabric.name = form.text("name").filter(|name| !name.is_empty()).unwrap_or(fabric.name.clone());
                        fabric.class_type = form.text("class_type").or(fabric.class_type.take());
                    }
                }
                "delete" => {
                    call.require_right()?;
                    if id == 0 {
                        return Err(Refusal::validation(
                            "__all__",
                            "This fabric is the default fabric, it cannot be deleted.",
                        ));
                    }
                    let in_use = model
                        .db
                        .subnets
                        .values()
                        .any(|subnet| model.db.vlans.get(&subnet.vlan).is_some_and(|vlan| vlan.fabric == id));
                    if in_use {
                        return Err(Refusal::validation(
                            "__all__",
                            "Can't delete fabric; there are still subnets in it.",
                        ));
                    }
                    model.db.fabrics.remove(&id);
                    model.db.vlans.retain(|_, vlan| vlan.fabric != id);
                    return Ok(Reply::deleted());
                }
                _ => return Err(unsupported(call)),
            }
            model
                .db
                .fabrics
                .get(&id)
                .map(|row| Reply::json(&network::fabric(model, row)))
                .ok_or(Refusal::NotFound("Fabric"))
        }
    }
}

fn vlans(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let form = &call.body;
    if call.route.resource == Resource::Vlans {
        let fabric = fabric_id(model, call.parameter(0))?;
        if call.action == "read" {
            let rows = model.db.vlans.values().filter(|vlan| vlan.fabric == fabric);
            return list(rows.map(|row| network::vlan(model, row)).collect());
        }
        call.require_admin()?;
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
        return model
            .db
            .vlans
            .get(&id)
            .map(|row| Reply::json(&network::vlan(model, row)))
            .ok_or(Refusal::NotFound("VLAN"));
    }
    let id = if call.route.resource == Resource::VlanById {
        numeric(call.parameter(0), "VLAN")?
    } else {
        let fabric = fabric_id(model, call.parameter(0))?;
        let vid = call.parameter(1).parse::<i64>().unwrap_or(0);
        let row = model.db.vlans.values().find(|vlan| vlan.fabric == fabric && vlan.vid == vid);
        row.map(|vlan| vlan.id).ok_or(Refusal::NotFound("VLAN"))?
    };
    if !model.db.vlans.contains_key(&id) {
        return Err(Refusal::NotFound("VLAN"));
    }
    match call.action {
        "read" => {}
        "update" => {
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
        "delete" => {
            call.require_right()?;
            model.db.vlans.remove(&id);
            return Ok(Reply::deleted());
        }
        _ => return Err(unsupported(call)),
    }
    model.db.vlans.get(&id).map(|row| Reply::json(&network::vlan(model, row))).ok_or(Refusal::NotFound("VLAN"))
}

fn read_mtu(form: &Form, check: &mut FormCheck) -> Option<i64> {
    // Linux takes no less.
    let mtu = check.at_least("mtu", form.get("mtu").filter(|text| !text.is_empty()), 552);
    if mtu.is_some_and(|mtu| mtu > 65535) {
        check.add("mtu", "Ensure this value is less than or equal to 65535.");
    }
    mtu
}

/// The space that a form names; none if it names none.
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

/// DHCP needs a rack and a range to give addresses from. Only read in source.
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

/// Names of fabrics and spaces: those that MAAS gives by itself belong to their numbers. Only read in source.
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

fn spaces(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let form = &call.body;
    if call.route.resource == Resource::Spaces {
        if call.action == "read" {
            let mut values = vec![network::space(model, None)];
            values.extend(model.db.spaces.values().map(|row| network::space(model, Some(row))));
            return list(values);
        }
        call.require_admin()?;
        check_name(form, "Space", None, |name| model.db.spaces.values().any(|space| space.name == name))?;
        let id = model.db.sequences.take(Table::Space);
        let name = form.text("name").filter(|name| !name.is_empty()).unwrap_or_else(|| format!("space-{id}"));
        let description = form.text("description").unwrap_or_default();
        model.db.spaces.insert(id, Named { id, name, description });
        let row = model.db.spaces.get(&id);
        return Ok(Reply::json(&network::space(model, row)));
    }
    let wanted = call.parameter(0);
    if wanted == "undefined" || wanted == "-1" {
        return Ok(Reply::json(&network::space(model, None)));
    }
    let found = model.db.spaces.values().find(|space| space.name == wanted || space.id.to_string() == wanted);
    let id = found.map(|space| space.id).ok_or(Refusal::NotFound("Space"))?;
    match call.action {
        "read" => {}
        "update" => {
            call.require_right()?;
            let others = |name: &str| model.db.spaces.values().any(|row| row.name == name && row.id != id);
            check_name(form, "Space", Some(id), others)?;
            if let Some(space) = model.db.spaces.get_mut(&id) {
                space.name = form.text("name").filter(|name| !name.is_empty()).unwrap_or(space.name.clone());
                space.description = form.text("description").unwrap_or(space.description.clone());
            }
        }
        "delete" => {
            call.require_right()?;
            model.db.spaces.remove(&id);
            for vlan in model.db.vlans.values_mut().filter(|vlan| vlan.space == Some(id)) {
                vlan.space = None;
            }
            return Ok(Reply::deleted());
        }
        _ => return Err(unsupported(call)),
    }
    Ok(Reply::json(&network::space(model, model.db.spaces.get(&id))))
}
