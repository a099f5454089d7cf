//! Tags.

use serde_json::json;

use super::{
    super::{Call, render, reply::Reply},
    is_item, list, unsupported,
};
use crate::ledger::{Effect, ObjectChange, ObjectKind};
use crate::model::{
    Model, Outcome, Refusal,
    db::{Table, Tag},
    machines::Permission,
    refusal::FormCheck,
};
use crate::version::Change;

pub(crate) fn answer(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let form = &call.body;
    if !is_item(call) {
        if call.action == "read" {
            let mut tags: Vec<&Tag> = model.db.tags.values().collect();
            tags.sort_by_key(|tag| tag.id);
            return list(tags.into_iter().map(render::tag).collect());
        }
        call.require_right()?;
        let mut check = FormCheck::default();
        let name = check.require("name", form.get("name"));
        if let Some(name) = name {
            check_tag_name(model, name, None, &mut check);
        }
        check_definition(&mut check, form.get("definition"));
        check.done()?;
        let id = model.db.sequences.take(Table::Tag);
        let tag = Tag {
            id,
            name: name.unwrap_or_default().to_owned(),
            definition: form.text("definition").unwrap_or_default(),
            comment: form.text("comment").unwrap_or_default(),
            kernel_opts: form.text("kernel_opts").unwrap_or_default(),
        };
        let reply = Reply::json(&render::tag(&tag));
        model.effect(Effect::object(ObjectKind::Tag, &tag.name, ObjectChange::Created));
        model.db.tags.insert(tag.name.clone(), tag);
        return Ok(reply);
    }
    let name = call.parameter(0).to_owned();
    let tag = model.db.tags.get(&name).ok_or(Refusal::NotFound("Tag"))?;
    match call.action {
        "read" => Ok(Reply::json(&render::tag(tag))),
        "update" => {
            call.require_right()?;
            let mut check = FormCheck::default();
            if let Some(new) = form.get("name").filter(|new| !new.is_empty()) {
                check_tag_name(model, new, Some(&name), &mut check);
            }
            check_definition(&mut check, form.get("definition"));
            check.done()?;
            let Some(mut tag) = model.db.tags.remove(&name) else { return Err(Refusal::NotFound("Tag")) };
            for (field, into) in [
                ("definition", &mut tag.definition),
                ("comment", &mut tag.comment),
                ("kernel_opts", &mut tag.kernel_opts),
            ] {
                if let Some(text) = form.text(field) {
                    *into = text;
                }
            }
            if let Some(renamed) = form.text("name").filter(|text| !text.is_empty()) {
                tag.name = renamed;
            }
            let reply = Reply::json(&render::tag(&tag));
            for machine in model.db.machines.values_mut() {
                for other in machine.tags.iter_mut().filter(|other| **other == name) {
                    other.clone_from(&tag.name);
                }
            }
            model.db.tags.insert(tag.name.clone(), tag);
            Ok(reply)
        }
        "delete" => {
            call.require_right()?;
            model.db.tags.remove(&name);
            for machine in model.db.machines.values_mut() {
                machine.tags.retain(|tag| *tag != name);
            }
            model.effect(Effect::object(ObjectKind::Tag, &name, ObjectChange::Deleted));
            Ok(Reply::deleted())
        }
        "machines" | "nodes" => {
            let ids = model
                .machines_in_order()
                .into_iter()
                .filter(|machine| machine.tags.contains(&name) && model.may(call.user, machine, Permission::View))
                .map(|machine| machine.system_id.clone())
                .collect();
            Ok(Reply::machines(ids))
        }
        "devices" | "rack_controllers" | "region_controllers" => list(Vec::new()),
        "update_nodes" => update_nodes(model, call, &name),
        "rebuild" => Ok(Reply::json(&json!({"rebuilding": name}))),
        _ => Err(unsupported(call)),
    }
}

fn check_tag_name(model: &Model, name: &str, own: Option<&str>, check: &mut FormCheck) {
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        check.add("name", "Enter a valid value.");
    } else if model.db.tags.contains_key(name) && Some(name) != own {
        check.add("name", "Tag with this Name already exists.");
    }
}

/// An XPath expression with unbalanced brackets is the only kind of nonsense that is recognised.
fn check_definition(check: &mut FormCheck, definition: Option<&str>) {
    let text = definition.unwrap_or_default();
    let opened = text.matches('[').count();
    let closed = text.matches(']').count();
    if opened != closed || text.matches('(').count() != text.matches(')').count() {
        check.add("definition", "Invalid xpath expression: Invalid expression");
    }
}

fn update_nodes(model: &mut Model, call: &Call, name: &str) -> Outcome<Reply> {
    if !call.admin {
        let words = if model.version.has(Change::SilentTagRefusal) {
            ""
        } else {
            "Must be a superuser or supply a rack_controller"
        };
        return Err(Refusal::text(403, words));
    }
    let (mut added, mut removed) = (0, 0);
    for id in call.body.all("add") {
        // Unknown ids are passed over; one that has the tag counts all the same.
        if let Some(machine) = model.db.machines.get_mut(id) {
            added += 1;
            if !machine.tags.iter().any(|tag| tag == name) {
                machine.tags.push(name.to_owned());
            }
        }
    }
    for id in call.body.all("remove") {
        if let Some(machine) = model.db.machines.get_mut(id) {
            removed += 1;
            machine.tags.retain(|tag| tag != name);
        }
    }
    model.effect(Effect::object(ObjectKind::Tag, name, ObjectChange::Updated));
    Ok(Reply::json(&json!({"added": added, "removed": removed})))
}
