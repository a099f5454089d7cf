//! Real LXD daemons behind VM hosts.

use std::sync::Arc;

use crate::{
    http::{Call, reply::Reply},
    model::world::LxdCommand,
    sim::Shared,
};

/// A fresh pair for a registration that brings none.
pub(crate) fn prepare_pair(call: &mut Call) {
    let registers = call.route.path == "vm-hosts/" || call.route.path == "pods/";
    if registers && call.action == "create" && call.body.get("certificate").is_none_or(str::is_empty) {
        if let Ok(pair) = rcgen::generate_simple_self_signed(["maas-sim".to_owned()]) {
            call.new_pair = (pair.cert.pem(), pair.signing_key.serialize_pem());
        }
    }
}

/// Reads the state of the daemon that a request is about.
pub(crate) async fn look(_shared: &Arc<Shared>, _call: &Call) {}

/// Tells daemons what the model has decided.
pub(crate) async fn apply(_shared: &Arc<Shared>, _commands: Vec<LxdCommand>) {}

/// Tells daemons, and takes an answer back if one of them refuses.
pub(crate) async fn finish(_shared: &Arc<Shared>, _call: &Call, reply: Reply, _commands: Vec<LxdCommand>) -> Reply {
    reply
}
