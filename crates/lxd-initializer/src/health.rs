//! `/healthz`, `/readyz` and `/metrics`.

use std::{
    fmt::Write,
    net::SocketAddr,
    sync::Arc,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{Router, extract::ConnectInfo, http::StatusCode, routing::get};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::{
    effect::EffectKind,
    observed::{LxdFacts, Observed},
    plan::{Plan, State, Step},
};

/// The longest possible pass: LXD may take three minutes for a pool, and MAAS two for an answer.
const LONGEST_PASS: Duration = Duration::from_secs(900);

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByName {
    name: String,
}

/// The state that the endpoints expose.
pub struct Status {
    last: Mutex<Last>,
    registry: Registry,
    passes: Counter,
    writes: Family<ByName, Counter>,
    failures: Family<ByName, Counter>,
    steps: Family<ByName, Gauge>,
    ready: Gauge,
    instances: Gauge,
}

struct Last {
    at: Instant,
    plan: Option<Plan>,
}

impl Default for Status {
    fn default() -> Self {
        let mut status = Self {
            last: Mutex::new(Last { at: Instant::now(), plan: None }),
            registry: Registry::with_prefix("lxd_initializer"),
            passes: Counter::default(),
            writes: Family::default(),
            failures: Family::default(),
            steps: Family::default(),
            ready: Gauge::default(),
            instances: Gauge::default(),
        };
        status.registry.register("passes", "Passes", status.passes.clone());
        status.registry.register("writes", "Attempted writes, by effect", status.writes.clone());
        status.registry.register("failures", "Failed writes, by effect", status.failures.clone());
        status.registry.register("step_holds", "Whether a step holds, by step", status.steps.clone());
        status.registry.register("ready", "Whether every step holds", status.ready.clone());
        status.registry.register("instances", "Instances in the project; -1 if not known", status.instances.clone());
        status
    }
}

impl Status {
    pub(crate) fn passed(&self, plan: &Plan, observed: &Observed) {
        self.passes.inc();
        self.ready.set((plan.state == State::Ready).into());
        for condition in &plan.conditions {
            let holds = i64::from(condition.status == "True");
            self.steps.get_or_create(&ByName { name: step_name(condition.step) }).set(holds);
        }
        let instances = match &observed.lxd {
            LxdFacts::Here(server) => server.instances.found().map(Vec::len),
            LxdFacts::NoSocket { .. } | LxdFacts::Away { .. } => None,
        };
        self.instances.set(instances.and_then(|count| i64::try_from(count).ok()).unwrap_or(-1));
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Last { at: Instant::now(), plan: Some(plan.clone()) };
    }

    pub(crate) fn wrote(&self, kind: EffectKind) {
        self.writes.get_or_create(&ByName { name: format!("{kind:?}") }).inc();
    }

    pub(crate) fn failed(&self, kind: EffectKind) {
        self.failures.get_or_create(&ByName { name: format!("{kind:?}") }).inc();
    }

    /// Alive: passes are running, whatever they find.
    fn health(&self) -> (StatusCode, String) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let age = last.at.elapsed();
        if age < LONGEST_PASS {
            (StatusCode::OK, "ok\n".into())
        } else {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("the last pass ended {} s ago\n", age.as_secs()))
        }
    }

    /// Ready: every step holds. The text lists each of them either way.
    fn readiness(&self) -> (StatusCode, String) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(plan) = &last.plan else {
            return (StatusCode::SERVICE_UNAVAILABLE, "no pass has ended yet\n".into());
        };
        let mut text = format!("{}: {}\n", plan.state.as_str(), plan.message);
        for condition in &plan.conditions {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{:<13} {:<8} {}", step_name(condition.step), condition.status, condition.message);
        }
        let code = if plan.state == State::Ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        (code, text)
    }

    /// Only for the node itself, and for clients that Kubernetes permits to forward a port to the Pod: the address is
    /// the node's, and there is no API server to authorize readers.
    fn metrics(&self, peer: SocketAddr) -> (StatusCode, String) {
        if !peer.ip().to_canonical().is_loopback() {
            return (
                StatusCode::FORBIDDEN,
                "the metrics are served only on loopback: use kubectl port-forward\n".into(),
            );
        }
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => (StatusCode::OK, text),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n".into()),
        }
    }
}

fn step_name(step: Step) -> String {
    format!("{step:?}")
}

/// The three endpoints, to be served with the peer's address.
pub fn router(status: &Arc<Status>) -> Router {
    let (health, ready, metrics) = (Arc::clone(status), Arc::clone(status), Arc::clone(status));
    Router::new()
        .route("/healthz", get(async move || health.health()))
        .route("/readyz", get(async move || ready.readiness()))
        .route("/metrics", get(async move |ConnectInfo(peer): ConnectInfo<SocketAddr>| metrics.metrics(peer)))
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use tower::ServiceExt;

    use super::*;
    use crate::plan::Condition;

    async fn ask(status: &Arc<Status>, path: &str) -> (StatusCode, String) {
        ask_from(status, path, "127.0.0.1:4000").await
    }

    async fn ask_from(status: &Arc<Status>, path: &str, peer: &str) -> (StatusCode, String) {
        let peer: SocketAddr = peer.parse().unwrap();
        let request = Request::get(path).extension(ConnectInfo(peer)).body(Body::empty()).unwrap();
        let answer = router(status).oneshot(request).await.unwrap();
        let code = answer.status();
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        (code, String::from_utf8(body.into()).unwrap())
    }

    fn told(status: &Status, state: State) {
        let held = if state == State::Ready { "True" } else { "False" };
        let condition = Condition { step: Step::Bridge, status: held, message: "there is no bridge".into() };
        *status.last.lock().unwrap() = Last {
            at: Instant::now(),
            plan: Some(Plan { effect: None, state, message: "sentence".into(), conditions: vec![condition] }),
        };
    }

    #[tokio::test]
    async fn health_is_about_passes_and_readiness_about_what_they_find() {
        let status = Arc::new(Status::default());
        assert_eq!(ask(&status, "/healthz").await.0, StatusCode::OK);
        assert_eq!(ask(&status, "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
        told(&status, State::Blocked);
        assert_eq!(ask(&status, "/healthz").await.0, StatusCode::OK);
        let (code, text) = ask(&status, "/readyz").await;
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
        assert!(
            text.starts_with("Blocked: sentence\n") && text.contains("Bridge        False    there is no bridge"),
            "{text}"
        );
        told(&status, State::Ready);
        assert_eq!(ask(&status, "/readyz").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn metrics_are_for_the_node_itself_and_health_for_everybody() {
        let status = Arc::new(Status::default());
        for peer in ["127.0.0.1:4000", "[::1]:4000", "[::ffff:127.0.0.1]:4000"] {
            assert_eq!(ask_from(&status, "/metrics", peer).await.0, StatusCode::OK, "{peer}");
        }
        for peer in ["10.0.0.7:4000", "[::ffff:10.0.0.7]:4000", "[2001:db8::7]:4000"] {
            assert_eq!(ask_from(&status, "/metrics", peer).await.0, StatusCode::FORBIDDEN, "{peer}");
            assert_eq!(ask_from(&status, "/healthz", peer).await.0, StatusCode::OK, "{peer}");
        }
    }

    #[tokio::test]
    async fn metrics_count_writes_and_failures_by_effect() {
        let status = Arc::new(Status::default());
        status.wrote(EffectKind::CreatePool);
        status.wrote(EffectKind::CreatePool);
        status.failed(EffectKind::CreatePool);
        let (code, text) = ask(&status, "/metrics").await;
        assert_eq!(code, StatusCode::OK);
        for line in [
            "lxd_initializer_writes_total{name=\"CreatePool\"} 2",
            "lxd_initializer_failures_total{name=\"CreatePool\"} 1",
            "lxd_initializer_ready 0",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
