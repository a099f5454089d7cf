//! Fabrics, VLANs and spaces.

use super::{
    super::{Call, forms::is_true, render::network, reply::Reply, routes::Resource},
    list, numeric, unsupported,
};
use crate::model::{
    Model, Outcome, Refusal,
    arrange::new_vlan,
    db::{Fabric, Named, Table},
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
            let id = model.db.sequences.take(Table::Fabric);
            let name = form.text("name").filter(|name| !name.is_empty()).unwrap_or_else(|| format!("fabric-{id}"));
            if model.db.fabrics.values().any(|fabric| fabric.name == name) {
                return Err(Refusal::field("name", "Fabric with this Name already exists."));
            }
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
                    if let (Some(name), Some(fabric)) = (form.text("name"), model.db.fabrics.get_mut(&id)) {
                        fabric.name = name;
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
        let Some(vid) = form.get("vid").filter(|vid| !vid.is_empty()) else { return Err(Refusal::required("vid")) };
        let vid: i64 = vid.parse().map_err(|_| Refusal::field("vid", "Enter a whole number."))?;
        if !(0..=4094).contains(&vid) {
            return Err(Refusal::field("vid", "VID must be between 0 and 4094."));
        }
        if model.db.vlans.values().any(|vlan| vlan.fabric == fabric && vlan.vid == vid) {
            return Err(Refusal::field(
                "__all__",
                "A VLAN with the specified VID already exists in the destination fabric.",
            ));
        }
        let id = model.db.sequences.take(Table::Vlan);
        let name = form.text("name").filter(|name| !name.is_empty()).unwrap_or_else(|| vid.to_string());
        let mut row = new_vlan(id, fabric, vid, &name);
        row.mtu = form.get("mtu").and_then(|mtu| mtu.parse().ok()).unwrap_or(1500);
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
            let space = match form.get("space") {
                Some("" | "undefined") => Some(None),
                Some(text) => {
                    let row = model.db.spaces.values().find(|space| space.name == text || space.id.to_string() == text);
                    Some(Some(row.map(|space| space.id).ok_or_else(|| {
                        Refusal::field(
                            "space",
                            "Select a valid choice. That choice is not one of the available choices.",
                        )
                    })?))
                }
                None => None,
            };
            let vlan = model.db.vlans.get_mut(&id).ok_or(Refusal::NotFound("VLAN"))?;
            vlan.space = space.unwrap_or(vlan.space);
            if let Some(name) = form.get("name") {
                name.clone_into(&mut vlan.name);
            }
            if let Some(mtu) = form.get("mtu").and_then(|mtu| mtu.parse().ok()) {
                vlan.mtu = mtu;
            }
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

fn spaces(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let form = &call.body;
    if call.route.resource == Resource::Spaces {
        if call.action == "read" {
            let mut values = vec![network::space(model, None)];
            values.extend(model.db.spaces.values().map(|row| network::space(model, Some(row))));
            return list(values);
        }
        call.require_admin()?;
        let id = model.db.sequences.take(Table::Space);
        let name = form.text("name").filter(|name| !name.is_empty()).unwrap_or_else(|| format!("space-{id}"));
        if model.db.spaces.values().any(|space| space.name == name) {
            return Err(Refusal::field("name", "Space with this Name already exists."));
        }
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
            if let Some(space) = model.db.spaces.get_mut(&id)
                && let Some(name) = form.text("name")
            {
                space.name = name;
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
