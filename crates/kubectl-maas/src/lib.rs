//! The kubectl plugin: reads what the manager publishes in Kubernetes, and MAAS with the user's own key. Only
//! `maintenance` changes anything, and nothing reads the manager's Secret.

pub mod cluster;
pub mod completion;
pub mod doctor;
pub mod explain;
pub mod hosts;
pub mod inventory;
pub mod machines;
pub mod maintenance;
pub mod output;
pub mod plan;
mod table;
pub mod ui;
mod yaml;

use serde_json::Value;

/// The string at a JSON pointer; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A condition of an object. Those of Cluster API's v1beta2 are in a place of their own where only v1beta1 is served.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let all = ["/status/conditions", "/status/v1beta2/conditions"];
    let all = all.into_iter().filter_map(|pointer| object.pointer(pointer)?.as_array()).flatten();
    all.into_iter().find(|condition| condition["type"] == kind)
}
