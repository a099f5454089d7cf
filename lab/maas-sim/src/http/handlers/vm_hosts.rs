//! VM hosts, under both of their names.

use serde_json::{Map, Value, json};

use super::{
    super::{Call, forms::is_true, render, reply::Reply},
    is_item, list, unsupported,
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

pub(crate) fn answer(model: &mut Model, call: &Call) -> Outcome<Reply> {
    if !is_item(call) {
        if call.action == "read" {
            return list(model.db.vm_hosts.values().map(|host| render::vm_host::vm_host(model, host)).collect());
        }
        call.require_admin()?;
        let id = model.create_vm_host(call.user, &request(call))?;
        return rendered(model, id);
    }
    if call.action != "read" {
        call.require_admin()?;
    }
    let text = call.parameter(0);
    let id: i64 =
        text.parse().map_err(|_| Refusal::crash(format!("Field 'id' expected a number but got '{text}'.")))?;
    let Some(host) = model.db.vm_hosts.get(&id) else {
        // A plain read answers in other words than everything else.
        return Err(match call.action {
            "read" => Refusal::Handler { status: 404, body: "Not Found".to_owned() },
            _ => Refusal::NotFound("Pod"),
        });
    };
    match call.action {
        "read" => rendered(model, id),
        "parameters" => {
            let mut out = Map::new();
            for (name, value) in [
                ("power_address", host.power_address.as_str()),
                ("project", host.project.as_str()),
                ("certificate", host.certificate.as_str()),
                ("key", host.key.as_str()),
            ] {
                out.insert(name.to_owned(), Value::from(value));
            }
            if !host.password.is_empty() {
                out.insert("password".to_owned(), Value::from(host.password.as_str()));
            }
            Ok(Reply::json(&Value::Object(out)))
        }
        "update" => {
            model.update_vm_host(id, call.user, &request(call))?;
            rendered(model, id)
        }
        "delete" => {
            let decompose = match call.query.get("decompose") {
                None | Some("") => false,
                Some(text) if is_boolean(text) => is_true(text),
                Some(text) => {
                    return Err(Refusal::field("decompose", format!("Enter a valid value for decompose: '{text}'")));
                }
            };
            model.remove_vm_host(id, decompose);
            Ok(Reply::deleted())
        }
        "refresh" => {
            model.refresh_vm_host(id, call.user)?;
            rendered(model, id)
        }
        "compose" => compose(model, call, id),
        "add_tag" | "remove_tag" => {
            let Some(tag) = call.body.text("tag").filter(|tag| !tag.is_empty()) else {
                return Err(Refusal::bad_request("No provided tag!"));
            };
            if tag.contains(',') {
                return Err(Refusal::bad_request("Tag may not contain a \",\"."));
            }
            let host = model.db.vm_hosts.get_mut(&id).ok_or(Refusal::NotFound("Pod"))?;
            let had = host.tags.contains(&tag);
            if call.action == "remove_tag" {
                host.tags.retain(|other| *other != tag);
            } else if !had {
                host.tags.push(tag);
            }
            rendered(model, id)
        }
        _ => Err(unsupported(call)),
    }
}

fn is_boolean(text: &str) -> bool {
    is_true(text) || matches!(text.to_ascii_lowercase().as_str(), "false" | "0" | "no" | "off" | "n" | "f")
}

fn compose(model: &mut Model, call: &Call, id: i64) -> Outcome<Reply> {
    let form = &call.body;
    let request = ComposeRequest {
        cores: form.text("cores"),
        memory: form.text("memory"),
        pinned_cores: form
            .all("pinned_cores")
            .iter()
            .flat_map(|text| text.split(','))
            .filter(|t| !t.is_empty())
            .count(),
        storage: form.text("storage"),
        interfaces: form.text("interfaces"),
        hostname: form.text("hostname"),
        domain: form.text("domain"),
        zone: form.text("zone"),
        pool: form.text("pool"),
        skip_commissioning: form.flag("skip_commissioning"),
        dynamic: false,
    };
    let system_id = model.compose(id, call.user, &request)?;
    Ok(Reply::json(&json!({
        "system_id": system_id, "resource_uri": render::uri(&format!("machines/{system_id}/")),
    })))
}
