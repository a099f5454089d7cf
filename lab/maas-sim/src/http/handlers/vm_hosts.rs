//! VM hosts, under both of their URLs.

use serde_json::{Map, Value, json};

use super::{
    super::{
        Call, render,
        reply::Reply,
        surface::{Collection, VmHostAction},
    },
    list,
};
use crate::model::{Model, Outcome, Refusal, compose::ComposeRequest, vm_hosts::VmHostRequest};

fn rendered(model: &Model, id: i64) -> Outcome<Reply> {
    let host = model.db.vm_hosts.get(&id).ok_or(Refusal::NotFound("Pod"))?;
    Ok(Reply::json(&render::vm_host::vm_host(model, host)))
}

fn request(call: &Call) -> VmHostRequest {
    let form = &call.body;
    VmHostRequest {
        kind: form.text("type"),
        power_address: form.text("power_address"),
        project: form.text("project"),
        password: form.text("password"),
        certificate: form.text("certificate"),
        key: form.text("key"),
        name: form.text("name"),
        zone: form.text("zone"),
        pool: form.text("pool"),
        tags: form.text("tags"),
        cpu_ratio: form.text("cpu_over_commit_ratio"),
        memory_ratio: form.text("memory_over_commit_ratio"),
        default_storage_pool: form.text("default_storage_pool"),
        macvlan_mode: form.text("default_macvlan_mode"),
        new_pair: call.new_pair.clone(),
    }
}

pub(crate) fn hosts(model: &mut Model, call: &Call, action: Collection) -> Outcome<Reply> {
    match action {
        Collection::Read => {
            list(model.db.vm_hosts.values().map(|host| render::vm_host::vm_host(model, host)).collect())
        }
        Collection::Create => {
            call.require_admin()?;
            let id = model.create_vm_host(call.user, &request(call))?;
            rendered(model, id)
        }
    }
}

pub(crate) fn host(model: &mut Model, call: &Call, action: VmHostAction) -> Outcome<Reply> {
    if action != VmHostAction::Read {
        call.require_admin()?;
    }
    // The tag is checked before the host is looked up.
    if matches!(action, VmHostAction::AddTag | VmHostAction::RemoveTag) {
        let tag = call.body.mandatory("tag")?;
        if action == VmHostAction::AddTag && tag.contains(',') {
            return Err(Refusal::bad_request("Tag may not contain a \",\"."));
        }
    }
    let text = call.parameter(0);
    let id: i64 =
        text.parse().map_err(|_| Refusal::crash(format!("Field 'id' expected a number but got '{text}'.")))?;
    let Some(host) = model.db.vm_hosts.get(&id) else {
        // A plain read answers with a different message than everything else.
        return Err(match action {
            VmHostAction::Read => Refusal::Handler { status: 404, body: "Not Found".to_owned() },
            _ => Refusal::NotFound("Pod"),
        });
    };
    match action {
        VmHostAction::Read => rendered(model, id),
        VmHostAction::Parameters => {
            let mut out = Map::new();
            for (name, value) in [
                ("power_address", host.power_address.as_str()),
                ("project", host.project.as_str()),
                ("certificate", host.certificate.as_str()),
                ("key", host.key.as_str()),
            ] {
                out.insert(name.to_owned(), Value::from(value));
            }
            if let Some(password) = &host.password {
                out.insert("password".to_owned(), Value::from(password.as_str()));
            }
            Ok(Reply::json(&Value::Object(out)))
        }
        VmHostAction::Update => {
            model.update_vm_host(id, call.user, &request(call))?;
            rendered(model, id)
        }
        VmHostAction::Delete => {
            model.remove_vm_host(id, call.query.checkbox("decompose"));
            Ok(Reply::deleted())
        }
        VmHostAction::Refresh => {
            model.refresh_vm_host(id, call.user)?;
            rendered(model, id)
        }
        VmHostAction::Compose => compose(model, call, id),
        VmHostAction::AddTag | VmHostAction::RemoveTag => {
            let tag = call.body.mandatory("tag")?.to_owned();
            let host = model.db.vm_hosts.get_mut(&id).ok_or(Refusal::NotFound("Pod"))?;
            let had = host.tags.contains(&tag);
            if action == VmHostAction::RemoveTag {
                host.tags.retain(|other| *other != tag);
            } else if !had {
                host.tags.push(tag);
            }
            rendered(model, id)
        }
    }
}

fn compose(model: &mut Model, call: &Call, id: i64) -> Outcome<Reply> {
    let form = &call.body;
    let request = ComposeRequest {
        cores: form.text("cores"),
        memory: form.text("memory"),
        pinned_cores: form.all_texts("pinned_cores"),
        architecture: form.text("architecture"),
        cpu_speed: form.text("cpu_speed"),
        storage: form.text("storage"),
        interfaces: form.text("interfaces"),
        hostname: form.text("hostname"),
        domain: form.text("domain"),
        zone: form.text("zone"),
        pool: form.text("pool"),
        skip_commissioning: form.checkbox("skip_commissioning"),
        dynamic: false,
    };
    let system_id = model.compose(id, call.user, &request)?;
    Ok(Reply::json(&json!({
        "system_id": system_id, "resource_uri": render::uri(&format!("machines/{system_id}/")),
    })))
}
