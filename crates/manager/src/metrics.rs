//! Prometheus metrics: reconciles, requests to MAAS, machines by state, time per phase.
//!
//! Labels come from fixed sets only: kinds, operations, states. Never a name, an ID or an error text.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::{Router, extract::State, http::header, routing::get};
use maas_client::{Observation, Observer};
use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram};
use prometheus_client::registry::Registry;

/// From a millisecond, which a quick reconcile takes, to two minutes, which a write to MAAS may take.
const SECONDS: [f64; 14] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];
/// From a second to two hours: wiping disks can take that long.
const LONG_SECONDS: [f64; 11] = [1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0, 7200.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabels {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    operation: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

type Seconds<L> = Family<L, Histogram, fn() -> Histogram>;
/// Counts the machines per state at scrape time.
type CountMachines = Box<dyn Fn() -> BTreeMap<String, i64> + Send + Sync>;

/// All metrics of this process.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Registry,
    reconciles: Family<ReconcileLabels, Counter>,
    reconcile_seconds: Seconds<ControllerLabels>,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Seconds<OperationLabels>,
    queue_seconds: Seconds<OperationLabels>,
    machines: Family<StateLabels, Gauge>,
    phase_seconds: Seconds<PhaseLabels>,
    held_back: Counter,
    woken: Counter,
    resets: Counter,
    abandoned: Counter,
    leader: Gauge<i64, AtomicI64>,
    evacuating: Family<StateLabels, Gauge>,
    evacuated: Counter,
    count_machines: Mutex<Option<CountMachines>>,
}

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

fn long_seconds() -> Histogram {
    Histogram::new(LONG_SECONDS)
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("capmaas");
        let reconciles = Family::<ReconcileLabels, Counter>::default();
        registry.register("reconciles", "Reconciles, by controller and result", reconciles.clone());
        let reconcile_seconds = Seconds::new_with_constructor(seconds as fn() -> Histogram);
        registry.register("reconcile_seconds", "How long a reconcile took", reconcile_seconds.clone());
        let requests = Family::<RequestLabels, Counter>::default();
        registry.register(
            "maas_requests",
            "Requests to MAAS, including retries, by operation and result",
            requests.clone(),
        );
        let request_seconds = Seconds::new_with_constructor(seconds as fn() -> Histogram);
        registry.register("maas_request_seconds", "How long MAAS took to answer", request_seconds.clone());
        let queue_seconds = Seconds::new_with_constructor(seconds as fn() -> Histogram);
        registry.register("maas_queue_seconds", "How long a request waited for a request slot", queue_seconds.clone());
        let machines = Family::<StateLabels, Gauge>::default();
        registry.register("machines", "MaasMachines by the state that MAAS reports", machines.clone());
        let phase_seconds = Seconds::new_with_constructor(long_seconds as fn() -> Histogram);
        registry.register(
            "machine_phase_seconds",
            "How long machines stayed in a state of MAAS",
            phase_seconds.clone(),
        );
        let held_back = Counter::<u64, AtomicU64>::default();
        registry.register(
            "maas_requests_held_back",
            "Requests that were not sent because their MAAS does not answer",
            held_back.clone(),
        );
        let woken = Counter::<u64, AtomicU64>::default();
        registry.register("feed_woken", "Machines woken by MAAS's event log", woken.clone());
        let resets = Counter::<u64, AtomicU64>::default();
        registry.register("feed_resets", "Resets of the event log", resets.clone());
        let abandoned = Counter::<u64, AtomicU64>::default();
        registry.register("machines_abandoned", "Machines abandoned without release", abandoned.clone());
        let leader = Gauge::<i64, AtomicI64>::default();
        registry.register("leader", "1 while this manager may write", leader.clone());
        let evacuating = Family::<StateLabels, Gauge>::default();
        registry.register(
            "evacuation_vms",
            "VMs on LXD hosts that are being deleted or in maintenance, by what they wait for",
            evacuating.clone(),
        );
        let evacuated = Counter::<u64, AtomicU64>::default();
        registry.register(
            "evacuation_machines_deleted",
            "Machines that were deleted to evacuate their LXD host",
            evacuated.clone(),
        );
        let count_machines = Mutex::default();
        let inner = Inner {
            registry,
            reconciles,
            reconcile_seconds,
            requests,
            request_seconds,
            queue_seconds,
            machines,
            phase_seconds,
            held_back,
            woken,
            resets,
            abandoned,
            leader,
            evacuating,
            evacuated,
            count_machines,
        };
        Self { inner: Arc::new(inner) }
    }

    /// A reconcile of this controller has ended.
    pub fn reconciled(&self, controller: &'static str, succeeded: bool, took: Duration) {
        let result = if succeeded { "ok" } else { "error" };
        self.inner.reconciles.get_or_create(&ReconcileLabels { controller, result }).inc();
        self.inner.reconcile_seconds.get_or_create(&ControllerLabels { controller }).observe(took.as_secs_f64());
    }

    /// A machine has left a MAAS state, `Deploying` for instance, after this time.
    pub fn phase(&self, phase: &'static str, took: Duration) {
        self.inner.phase_seconds.get_or_create(&PhaseLabels { phase }).observe(took.as_secs_f64());
    }

    /// The event log named this many machines.
    pub fn woken(&self, machines: u64) {
        self.inner.woken.inc_by(machines);
    }

    /// The event log was replaced or truncated, so the feed started over.
    pub fn feed_reset(&self) {
        self.inner.resets.inc();
    }

    /// A person told us to abandon a machine (S14).
    pub fn abandoned(&self) {
        self.inner.abandoned.inc();
    }

    /// The number of VMs on LXD hosts that are being evacuated, by what they wait for.
    pub fn evacuating(&self, vms: &BTreeMap<&'static str, i64>) {
        self.inner.evacuating.clear();
        for (state, count) in vms {
            self.inner.evacuating.get_or_create(&StateLabels { state: (*state).to_owned() }).set(*count);
        }
    }

    /// A Machine was deleted because its LXD host is being evacuated.
    pub fn evacuated(&self) {
        self.inner.evacuated.inc();
    }

    /// Whether this manager may write.
    pub fn leads(&self, leads: bool) {
        self.inner.leader.set(i64::from(leads));
    }

    /// Registers the function that counts machines by state at scrape time.
    pub fn count_machines_by(&self, count: impl Fn() -> BTreeMap<String, i64> + Send + Sync + 'static) {
        *self.inner.count_machines.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(count));
    }

    /// The metrics in Prometheus text format.
    pub fn text(&self) -> String {
        if let Some(count) = &*self.inner.count_machines.lock().unwrap_or_else(PoisonError::into_inner) {
            // A state without machines must disappear.
            self.inner.machines.clear();
            for (state, machines) in count() {
                self.inner.machines.get_or_create(&StateLabels { state }).set(machines);
            }
        }
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.inner.registry);
        text
    }
}

impl Observer for Metrics {
    fn observe(&self, observation: &Observation) {
        let operation = observation.operation;
        let result = observation.error.map_or("ok", maas_client::ErrorKind::as_str);
        self.inner.requests.get_or_create(&RequestLabels { operation, result }).inc();
        let labels = OperationLabels { operation };
        self.inner.request_seconds.get_or_create(&labels).observe(observation.duration.as_secs_f64());
        self.inner.queue_seconds.get_or_create(&labels).observe(observation.queued.as_secs_f64());
    }

    fn held_back(&self, _: &'static str) {
        self.inner.held_back.inc();
    }
}

/// The router for `/metrics`.
pub fn router(metrics: Metrics) -> Router {
    Router::new().route("/metrics", get(show)).with_state(metrics)
}

async fn show(State(metrics): State<Metrics>) -> ([(header::HeaderName, &'static str); 1], String) {
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], metrics.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconciles_phases_and_states_are_counted_under_fixed_names() {
        let metrics = Metrics::new();
        metrics.reconciled("maasmachine", true, Duration::from_millis(3));
        metrics.phase("Deploying", Duration::from_secs(400));
        metrics.count_machines_by(|| BTreeMap::from([("Deployed".to_owned(), 3)]));
        let text = metrics.text();
        for line in [
            r#"capmaas_reconciles_total{controller="maasmachine",result="ok"} 1"#,
            r#"capmaas_machines{state="Deployed"} 3"#,
            r#"capmaas_machine_phase_seconds_count{phase="Deploying"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        metrics.count_machines_by(BTreeMap::new);
        assert!(!metrics.text().contains("Deployed"), "a state without machines is not reported for ever");
    }
}
