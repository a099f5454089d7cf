//! Version, settings and controllers.

use serde_json::{Value, json};

use super::{
    super::{Call, render, reply::Reply, routes::Resource},
    is_item, unsupported,
};
use crate::model::{DEFAULT_DOMAIN, DEFAULT_ZONE, Model, Outcome, Refusal, boot::setting_names, db::Rack};

const CAPABILITIES: &[&str] = &[
    "networks-management",
    "static-ipaddresses",
    "ipv6-deployment-ubuntu",
    "devices-management",
    "storage-deployment-ubuntu",
    "network-deployment-ubuntu",
    "bridging-interface-ubuntu",
    "bridging-automatic-ubuntu",
    "authenticate-api",
];

pub(crate) fn version(model: &Model) -> Reply {
    let mut reply = Reply::json(&json!({
        "version": model.version.to_string(), "subversion": "", "capabilities": CAPABILITIES,
    }));
    reply.vary = Some("Authorization");
    reply
}

pub(crate) fn settings(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let form = call.data();
    let Some(name) = form.get("name").filter(|name| !name.is_empty()) else {
        return Err(Refusal::bad_request("No provided name!"));
    };
    let known = setting_names(model.version);
    if !known.contains(&name) {
        let text = format!("{name} is not a valid config setting (valid settings are: {}).", known.join(", "));
        return Err(Refusal::validation(name, text));
    }
    if call.action == "get_config" {
        return Ok(Reply::bare_json(model.db.settings.get(name).unwrap_or(&Value::Null)));
    }
    call.require_admin()?;
    let Some(value) = form.get("value") else { return Err(Refusal::bad_request("No provided value!")) };
    let value = match (model.db.settings.get(name), value) {
        (Some(Value::Bool(_)), text) => json!(super::super::forms::is_true(text)),
        (Some(Value::Number(_)), text) => text.parse::<i64>().map_or_else(|_| json!(text), |number| json!(number)),
        (_, text) => json!(text),
    };
    let (name, value) = (name.to_owned(), value);
    model.db.settings.insert(name, value);
    Ok(Reply::raw("text/plain", "OK"))
}

/// A controller that is region and rack at once. The names of its fields were only read in source.
pub(super) fn controller(model: &Model, rack: &Rack) -> Value {
    let domain = model.db.domains.get(&DEFAULT_DOMAIN);
    let mut value = json!({
        "system_id": rack.system_id, "hostname": rack.hostname, "description": "", "hardware_uuid": null,
        "domain": domain.map(|row| render::domain(model, row)),
        "fqdn": format!("{}.{}", rack.hostname, domain.map_or("", |row| row.name.as_str())),
        "architecture": "amd64/generic", "cpu_count": 2, "cpu_speed": 0, "memory": 8192, "swap_size": null,
        "osystem": "ubuntu", "distro_series": "jammy", "power_type": "", "power_state": "unknown",
        "ip_addresses": [], "interface_set": [], "zone": model.db.zones.get(&DEFAULT_ZONE).map(render::zone),
        "status_action": "", "node_type": 4, "node_type_name": "Region and rack controller", "service_set": [],
        "current_commissioning_result_id": null, "current_testing_result_id": null,
        "current_installation_result_id": null, "version": model.version.to_string(), "hardware_info": {},
        "tag_names": [], "resource_uri": render::uri(&format!("rackcontrollers/{}/", rack.system_id)),
    });
    for what in [
        "commissioning",
        "testing",
        "cpu_test",
        "memory_test",
        "network_test",
        "storage_test",
        "other_test",
        "interface_test",
    ] {
        value[format!("{what}_status")] = json!(-1);
        value[format!("{what}_status_name")] = json!("Unknown");
    }
    value
}

pub(crate) fn controllers(model: &mut Model, call: &Call) -> Outcome<Reply> {
    if !is_item(call) {
        if call.action != "read" {
            return Err(unsupported(call));
        }
        return Ok(Reply::json(&Value::from(
            model.db.racks.iter().map(|rack| controller(model, rack)).collect::<Vec<_>>(),
        )));
    }
    let what = if call.route.resource == Resource::RackController { "RackController" } else { "RegionController" };
    let rack = model
        .db
        .racks
        .iter()
        .find(|rack| rack.system_id == call.parameter(0) || rack.hostname == call.parameter(0))
        .ok_or(Refusal::NotFound(what))?;
    match call.action {
        "read" => Ok(Reply::json(&controller(model, rack))),
        "list_boot_images" => {
            call.require_right()?;
            let mut images: Vec<_> =
                model.db.images.values().filter(|image| image.on_racks && image.complete).collect();
            images.sort_by_key(|image| (!image.uploaded, image.id));
            let listed: Vec<Value> = images
                .iter()
                .map(|image| {
                    if image.uploaded {
                        json!({"name": image.series, "architecture": "amd64", "subarches": ["generic"]})
                    } else {
                        let name = format!("{}/{}", image.osystem, image.series);
                        json!({"name": name, "architecture": "amd64", "subarches": [image.kernel(), "generic"]})
                    }
                })
                .collect();
            let synced = model.db.images.values().all(|image| image.on_racks && image.complete);
            Ok(Reply::json(&json!({
                "images": listed, "connected": rack.connected,
                "status": if synced { "synced" } else { "out-of-sync" },
            })))
        }
        _ => Err(unsupported(call)),
    }
}
