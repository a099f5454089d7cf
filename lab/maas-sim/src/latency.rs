//! How long a real MAAS takes, as measured with one region process on two cores.

use std::time::Duration;

use crate::http::reply::{Reply, ReplyBody};

/// The fixed duration of a list of machines, and the addition per machine.
const LIST_MS: u64 = 185;
const ROW_MS: u64 = 28;

/// The duration of a request of this kind with this answer.
pub(crate) fn real(kind: &str, reply: &Reply) -> Duration {
    let refused = reply.status >= 400;
    let rows = match &reply.body {
        ReplyBody::Machines(ids) => u64::try_from(ids.len()).unwrap_or(u64::MAX),
        ReplyBody::Bytes(_) => 0,
    };
    let milliseconds = match kind {
        "version.read" => 10,
        "machines.read" | "nodes.read" | "tag.machines" | "tag.nodes" => LIST_MS + ROW_MS * rows,
        "machines.allocate" | "machine.release" if refused => 45,
        "machines.allocate" => 250,
        "machine.read" => 210,
        "machine.deploy" if refused => 40,
        "machine.deploy" => 1100,
        "machine.release" => 350,
        "machine.query_power_state" => 80,
        "machine.set_workload_annotations" => 190,
        "machine.update" => 600,
        "machines.create" => 750,
        "vm-hosts.read" | "pods.read" | "vm-host.read" => 60,
        "vm-host.compose" => 450,
        "vm-host.refresh" => 500,
        "vm-hosts.create" => 1500,
        "vm-host.delete" => 300,
        "events.query" => 40,
        "dnsresources.create" | "dnsresource.update" => 100,
        "dnsresources.read" => 50,
        _ if kind.starts_with("machine.") => 250,
        _ if kind.starts_with("interface.") => 150,
        _ => 25,
    };
    Duration::from_millis(milliseconds)
}
