//! Tags.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    super::{
        Call, render,
        reply::Reply,
        surface::{Collection, TagAction},
    },
    list,
};
use crate::ledger::{Effect, ObjectChange, ObjectKind};
use crate::model::{
    Model, Outcome, Refusal,
    db::{Machine, Table, Tag},
    machines::Permission,
    refusal::FormCheck,
};
use crate::version::Change;

pub(crate) fn tags(model: &mut Model, call: &Call, action: Collection) -> Outcome<Reply> {
    let form = &call.body;
    match action {
        Collection::Read => {
            let mut tags: Vec<&Tag> = model.db.tags.values().collect();
            tags.sort_by_key(|tag| tag.id);
            list(tags.into_iter().map(render::tag).collect())
        }
        Collection::Create => {
            call.require_right()?;
            let mut check = FormCheck::default();
            let name = check.require("name", form.get("name"));
            if let Some(name) = name {
                check_tag_name(model, name, None, &mut check);
            }
            check_definition(&mut check, form.get("definition"));
            check.done()?;
            let tag = Tag {
                id: model.db.sequences.take(Table::Tag),
                name: name.unwrap_or_default().to_owned(),
                definition: form.text("definition").unwrap_or_default(),
                comment: form.text("comment").unwrap_or_default(),
                kernel_opts: form.text("kernel_opts").unwrap_or_default(),
            };
            let reply = Reply::json(&render::tag(&tag));
            model.effect(Effect::object(ObjectKind::Tag, &tag.name, ObjectChange::Created));
            model.db.tags.insert(tag.name.clone(), tag);
            Ok(reply)
        }
    }
}

pub(crate) fn tag(model: &mut Model, call: &Call, action: TagAction) -> Outcome<Reply> {
    let form = &call.body;
    let name = call.parameter(0).to_owned();
    // A user who may not change tags is not told whether the tag exists.
    match action {
        TagAction::Update | TagAction::Delete | TagAction::Rebuild => call.require_right()?,
        TagAction::UpdateNodes if model.version.has(Change::SilentTagRefusal) => call.require_right()?,
        _ => {}
    }
    let tag = model.db.tags.get(&name).ok_or(Refusal::NotFound("Tag"))?;
    match action {
        TagAction::Read => Ok(Reply::json(&render::tag(tag))),
        TagAction::Update => {
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
            for other in nodes_mut(model).flat_map(|node| node.tags.iter_mut()).filter(|other| **other == name) {
                other.clone_from(&tag.name);
            }
            model.db.tags.insert(tag.name.clone(), tag);
            Ok(reply)
        }
        TagAction::Delete => {
            model.db.tags.remove(&name);
            for node in nodes_mut(model) {
                node.tags.retain(|tag| *tag != name);
            }
            model.effect(Effect::object(ObjectKind::Tag, &name, ObjectChange::Deleted));
            Ok(Reply::deleted())
        }
        TagAction::Machines => {
            let machines = model.machines_in_order().into_iter().filter(|machine| carries(model, call, machine, &name));
            Ok(Reply::machines(machines.map(|machine| machine.system_id.clone()).collect()))
        }
        TagAction::Devices => list(tagged_devices(model, call, &name)),
        TagAction::Nodes => {
            let mut nodes = tagged_devices(model, call, &name);
            let machines = model.machines_in_order().into_iter().filter(|machine| carries(model, call, machine, &name));
            nodes.extend(machines.map(|machine| render::machine::machine(model, machine)));
            list(nodes)
        }
        TagAction::RackControllers | TagAction::RegionControllers => list(Vec::new()),
        TagAction::UpdateNodes => update_nodes(model, call, &name),
        TagAction::Rebuild => Ok(Reply::json(&json!({"rebuilding": name}))),
    }
}

fn carries(model: &Model, call: &Call, node: &Machine, tag: &str) -> bool {
    node.tags.iter().any(|other| other == tag) && model.may(call.user, node, Permission::View)
}

fn tagged_devices(model: &Model, call: &Call, tag: &str) -> Vec<Value> {
    let tagged = model.db.devices.values().filter(|device| carries(model, call, &device.node, tag));
    tagged.map(|device| render::device(model, device)).collect()
}

/// All nodes that can have tags.
fn nodes_mut(model: &mut Model) -> impl Iterator<Item = &mut Machine> {
    model.db.machines.values_mut().chain(model.db.devices.values_mut().map(|device| &mut device.node))
}

fn node_mut<'a>(model: &'a mut Model, id: &str) -> Option<&'a mut Machine> {
    let device = model.db.devices.get_mut(id).map(|device| &mut device.node);
    model.db.machines.get_mut(id).or(device)
}

fn check_tag_name(model: &Model, name: &str, own: Option<&str>, check: &mut FormCheck) {
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        check.add("name", "Enter a valid value.");
    } else if model.db.tags.contains_key(name) && Some(name) != own {
        check.add("name", "Tag with this Name already exists.");
    }
}

/// Only unbalanced brackets are detected as an invalid XPath expression.
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
        return Err(Refusal::text(403, "Must be a superuser or supply a rack_controller"));
    }
    // From MAAS's source, not recorded: a client that evaluated a definition sends it along.
    let form = call.posted();
    let current = model.db.tags.get(name).map(|tag| tag.definition.clone()).unwrap_or_default();
    if let Some(definition) = form.get("definition").filter(|definition| *definition != current) {
        let words = format!("Definition supplied '{definition}' doesn't match current definition '{current}'");
        return Err(Refusal::conflict(words));
    }
    let (mut added, mut removed) = (0, 0);
    // Unknown ids are skipped. A node that is named twice counts once, one that already has the tag too.
    let named = |key: &str| form.all(key).into_iter().collect::<BTreeSet<_>>();
    for id in named("add") {
        if let Some(node) = node_mut(model, id) {
            added += 1;
            if !node.tags.iter().any(|tag| tag == name) {
                node.tags.push(name.to_owned());
            }
        }
    }
    for id in named("remove") {
        if let Some(node) = node_mut(model, id) {
            removed += 1;
            node.tags.retain(|tag| tag != name);
        }
    }
    model.effect(Effect::object(ObjectKind::Tag, name, ObjectChange::Updated));
    Ok(Reply::json(&json!({"added": added, "removed": removed})))
}
