//! `describe/`: the API surface as MAAS describes it to clients that read it first.

use serde_json::{Value, json};

use crate::model::Model;

use super::{
    Call,
    render::ROOT,
    reply::{Reply, api_hash},
    routes::{Operation, ROUTES, Route},
};

/// The description, with URLs as the client sees them.
pub(super) fn reply(model: &Model, call: &Call) -> Reply {
    let mut resources = Vec::new();
    let mut handlers = Vec::new();
    for route in ROUTES.iter().filter(|route| !["describe/", "vlans/{id}/"].contains(&route.path)) {
        let whole = handler(route, &call.origin, route.handler, route.signed());
        let (auth, anon) = if route.is_public() {
            (None, Some(whole))
        } else {
            let name = format!("Anon{}", route.handler);
            (Some(whole), route.anonymous().map(|known| handler(route, &call.origin, &name, known.into_iter())))
        };
        handlers.extend(auth.clone());
        handlers.extend(anon.clone());
        resources.push(json!({"name": route.handler, "auth": auth, "anon": anon}));
    }
    let hash = api_hash(model.version);
    let value = json!({"doc": "MAAS API", "handlers": handlers, "resources": resources, "hash": hash});
    let mut reply = Reply::json(&value);
    reply.vary = Some("Cookie");
    reply
}

fn handler(route: &Route, origin: &str, name: &str, operations: impl Iterator<Item = Operation>) -> Value {
    let params: Vec<&str> = route
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{').and_then(|part| part.strip_suffix('}')))
        .collect();
    let actions: Vec<Value> = operations
        .map(|Operation { name, method, restful }| {
            let op = (!restful).then_some(name);
            json!({"doc": name, "method": method, "name": name, "op": op, "restful": restful})
        })
        .collect();
    json!({
        "name": name, "doc": name, "params": params, "path": format!("{ROOT}{}", route.path),
        "uri": format!("{origin}{ROOT}{}", route.path), "actions": actions,
    })
}
