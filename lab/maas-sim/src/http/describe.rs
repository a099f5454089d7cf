//! `describe/`: the surface as MAAS describes it to clients that read it first.

use serde_json::{Value, json};

use super::{
    Call,
    render::ROOT,
    reply::{API_HASH, Reply},
    routes::{ROUTES, Resource, Route, anonymous_ops, crud_method},
};

/// The description, with addresses as the client sees them.
pub(super) fn reply(call: &Call) -> Reply {
    let mut resources = Vec::new();
    let mut handlers = Vec::new();
    for route in
        ROUTES.iter().filter(|route| route.resource != Resource::Describe && route.resource != Resource::VlanById)
    {
        let auth = (!route.is_public()).then(|| handler(route, &call.origin));
        let anon = if route.is_public() { Some(handler(route, &call.origin)) } else { anonymous(route, &call.origin) };
        handlers.extend(auth.clone());
        handlers.extend(anon.clone());
        resources.push(json!({"name": route.handler, "auth": auth, "anon": anon}));
    }
    let value = json!({"doc": "MAAS API", "handlers": handlers, "resources": resources, "hash": API_HASH});
    let mut reply = Reply::json(&value);
    reply.vary = Some("Cookie");
    reply
}

fn action(method: &str, name: &str, op: Option<&str>) -> Value {
    json!({"doc": name, "method": method, "name": name, "op": op, "restful": op.is_none()})
}

fn with_place(route: &Route, origin: &str, name: &str, actions: &[Value]) -> Value {
    let params: Vec<&str> = route
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{').and_then(|part| part.strip_suffix('}')))
        .collect();
    json!({
        "name": name, "doc": name, "params": params, "path": format!("{ROOT}{}", route.path),
        "uri": format!("{origin}{ROOT}{}", route.path), "actions": actions,
    })
}

fn handler(route: &Route, origin: &str) -> Value {
    let mut actions: Vec<Value> = route.crud.iter().map(|name| action(crud_method(name), name, None)).collect();
    actions.extend(route.get_ops.iter().map(|op| action("GET", op, Some(op))));
    actions.extend(route.post_ops.iter().map(|op| action("POST", op, Some(op))));
    with_place(route, origin, route.handler, &actions)
}

fn anonymous(route: &Route, origin: &str) -> Option<Value> {
    let (gets, posts) = anonymous_ops(route.resource)?;
    let mut actions: Vec<Value> = gets.iter().map(|op| action("GET", op, Some(op))).collect();
    actions.extend(posts.iter().map(|op| action("POST", op, (*op != "create").then_some(*op))));
    Some(with_place(route, origin, &format!("Anon{}", route.handler), &actions))
}
