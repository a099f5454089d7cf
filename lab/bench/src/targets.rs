//! Performance targets, and whether they are met.

use serde::Serialize;

use crate::capi::Kind;
use crate::maas::Latency;
use crate::run::{Measured, fraction};

/// One target for one run.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    pub what: String,
    /// The limit.
    pub limit: f64,
    pub measured: f64,
    /// Whether it is met.
    pub kept: bool,
}

/// The requests of an idle minute that do not depend on the number of machines: polling the event log every 4 s, and
/// the requests for a cluster.
const IDLE_REQUESTS: f64 = 20.0;
/// How many machines a resync reads at once, and the resync interval in minutes.
const RESYNC_GROUP: f64 = 50.0;
const RESYNC_MINUTES: f64 = 30.0;
/// From this number on the larger memory limit applies.
const MANY: usize = 10_000;

/// The targets for a run: all at zero latency, none with that of a real MAAS.
pub fn judge(measured: &Measured) -> Vec<Target> {
    if measured.latency == Latency::Real {
        return Vec::new();
    }
    let mut targets = Vec::new();
    let mut promise = |what: &str, limit: f64, measured: f64| {
        targets.push(Target { what: what.to_owned(), limit, measured, kept: measured <= limit });
    };
    let minutes = measured.idle.seconds / 60.0;
    let memory = if measured.machines >= MANY { 256.0 } else { 64.0 };
    promise("memory at its peak, MiB", memory, measured.rss_peak_mib);
    promise("idle processor time, mCPU", 20.0, measured.idle.cpu_seconds / measured.idle.seconds * 1000.0);
    promise("idle Kubernetes writes", 0.0, fraction(measured.idle.writes()));
    let mutations = if measured.kind == Kind::Vm { 6.0 } else { 4.0 };
    promise("MAAS mutations of a machine until Deployed, at most", mutations, fraction(measured.most_mutations));
    let resync = (fraction(measured.machines) / RESYNC_GROUP / RESYNC_MINUTES * minutes).ceil();
    promise("idle MAAS requests in a minute", IDLE_REQUESTS + resync, fraction(measured.idle.requests()) / minutes);
    for phase in &measured.phases {
        promise(&format!("time added, {}, p99, s", phase.name), 2.0, phase.added.p99);
    }
    promise("restart until steady, s", 10.0, measured.restart.steady_seconds);
    promise("mutations repeated by a restart", 0.0, fraction(measured.restart.traffic.maas_mutations));
    promise("left behind in MAAS", 0.0, fraction(measured.left_over.len()));
    targets
}
