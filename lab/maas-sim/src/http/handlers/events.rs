//! The event log.

use serde_json::{Value, json};

use super::super::{Call, render, reply::Reply};
use crate::model::{Model, Outcome, events::EventQuery};

pub(crate) fn query(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let form = &call.query;
    let question = EventQuery {
        ids: form.all_texts("id"),
        hostnames: form.all_texts("hostname"),
        macs: form.all_texts("mac_address"),
        domains: form.all_texts("domain"),
        zones: form.text("zone").into_iter().collect(),
        pools: form.text("pool").into_iter().collect(),
        agent_name: form.text("agent_name"),
        owner: form.text("owner"),
        level: form.text("level"),
        limit: form.text("limit"),
        after: form.text("after"),
        before: form.text("before"),
    };
    let page = model.query_events(&question, call.user)?;
    let rows: Vec<Value> =
        page.rows.iter().filter_map(|row| model.db.events.get(*row)).map(|row| render::event(model, row)).collect();
    let next = neighbour(call, page.next_after.map(|id| ("after", id)));
    let prev = page.prev_before.map(|id| neighbour(call, Some(("before", id))));
    Ok(Reply::json(&json!({"count": rows.len(), "events": rows, "next_uri": next, "prev_uri": prev})))
}

/// The URL of another page: the parameters of this one in their order; of repeated ones the last.
fn neighbour(call: &Call, cursor: Option<(&str, i64)>) -> String {
    let mut pairs: Vec<(&str, &str)> = vec![("op", "query")];
    for (key, value) in &call.query.pairs {
        if matches!(key.as_str(), "op" | "after" | "before") || key.starts_with("oauth_") {
            continue;
        }
        match pairs.iter_mut().find(|(known, _)| known == key) {
            Some(pair) => pair.1 = value,
            None => pairs.push((key, value)),
        }
    }
    let mut serializer = form_urlencoded::Serializer::new(String::new());
    serializer.extend_pairs(pairs);
    if let Some((name, id)) = cursor {
        serializer.append_pair(name, &id.to_string());
    }
    render::uri(&format!("events/?{}", serializer.finish()))
}
