//! What we promise, and whether it is kept.

use serde::Serialize;

use crate::capi::Kind;
use crate::maas::Latency;
use crate::run::{Measured, fraction};

/// One promise about one run.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// What is promised.
    pub what: String,
    /// At most this.
    pub limit: f64,
    /// What was measured.
    pub measured: f64,
    /// Whether it is kept.
    pub kept: bool,
}

/// The requests of an idle minute that are there whatever the number of machines: the question for news every 4 s, and what a
/// cluster asks.
const IDLE_REQUESTS: f64 = 20.0;
/// Machines that a resync reads at once, and how many resyncs fit into an hour.
const RESYNC_GROUP: f64 = 50.0;
const RESYNC_MINUTES: f64 = 30.0;
/// From here on memory is judged by the larger limit.
const MANY: usize = 10_000;

/// The promises that hold for a run: all at zero latency, none with that of a real MAAS.
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
