//! One module per family of URLs.

pub(super) mod addresses;
pub(super) mod devices;
pub(super) mod dns;
pub(super) mod events;
pub(super) mod fabrics;
mod figures;
mod filter;
pub(super) mod images;
pub(super) mod interfaces;
mod layouts;
pub(super) mod machine;
mod machine_form;
pub(super) mod machines;
pub(super) mod misc;
mod nics;
pub(super) mod nodes;
pub(super) mod places;
pub(super) mod ranges;
pub(super) mod records;
mod scripts;
pub(super) mod storage;
pub(super) mod subnets;
pub(super) mod tags;
pub(super) mod users;
pub(super) mod vm_hosts;

use serde_json::Value;

use super::{Call, reply::Reply};
use crate::model::{Outcome, Refusal};

// An outcome, because that is what every handler ends with.
#[allow(clippy::unnecessary_wraps)]
fn list(values: Vec<Value>) -> Outcome<Reply> {
    Ok(Reply::json(&Value::from(values)))
}

/// An operation that is in the description but not simulated.
pub(super) fn unsupported(call: &Call) -> Refusal {
    Refusal::text(501, format!("maas-sim does not play {} of {}.", call.operation.name, call.route.handler))
}

/// The numeric id in a URL.
fn numeric(text: &str, what: &'static str) -> Outcome<i64> {
    text.parse().map_err(|_| Refusal::NotFound(what))
}
