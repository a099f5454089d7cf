//! `/healthz`, `/readyz` and `/log-level`: whether the manager makes progress, what it waits for, and how much it logs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::{ConnectInfo, State};
use axum::{Router, http::StatusCode, routing::get};
use tokio::time::Instant;

use crate::log_level::LogLevel;

/// What must hold before the manager is ready. Each waiting part registers a message and removes it when it is done.
#[derive(Clone, Default)]
pub struct Readiness {
    waiting: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

impl Readiness {
    /// `part` is not ready, and `sentence` tells what it waits for.
    pub fn waits_for(&self, part: &'static str, sentence: impl Into<String>) {
        self.lock().insert(part, sentence.into());
    }

    /// `part` has what it needs.
    pub fn has(&self, part: &'static str) {
        self.lock().remove(part);
    }

    /// The messages of all parts that still wait.
    pub fn sentences(&self) -> Vec<String> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, String>> {
        // The map stays consistent after a panic elsewhere: it only has single inserts and removes.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watch shows a sign of life at least every four minutes: the API server ends it and it is reopened. A watch without
/// one for this long, while the API server answers other requests, will not recover by itself.
const STALLED: Duration = Duration::from_secs(600);

/// Whether the watches make progress. A manager that cannot reach the API server at all counts as alive: a restart
/// would not help.
#[derive(Clone, Default)]
pub struct Liveness {
    inner: Arc<Mutex<Lives>>,
}

#[derive(Default)]
struct Lives {
    answered: Option<Instant>,
    watches: BTreeMap<&'static str, WatchHealth>,
}

struct WatchHealth {
    made: Instant,
    trouble: Option<String>,
}

impl Liveness {
    /// Registers a watch. It replaces an earlier one of the same name.
    pub fn watch(&self, name: &'static str) -> Progress {
        self.lock().watches.insert(name, WatchHealth { made: Instant::now(), trouble: None });
        Progress { name, liveness: self.clone() }
    }

    /// The API server has answered a request other than a watch.
    pub fn answered(&self) {
        self.lock().answered = Some(Instant::now());
    }

    /// Messages about watches that make no progress.
    pub fn stalled(&self) -> Vec<String> {
        let lives = self.lock();
        let Some(answered) = lives.answered else { return Vec::new() };
        let stalled =
            |life: &WatchHealth| answered.checked_duration_since(life.made).is_some_and(|silent| silent > STALLED);
        let sentence = |(name, life): (&&str, &WatchHealth)| {
            let trouble = life.trouble.as_deref().unwrap_or("no event was received");
            format!("the watch of {name} makes no progress although the API server answers: {trouble}")
        };
        lives.watches.iter().filter(|(_, life)| stalled(life)).map(sentence).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Lives> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handle by which a watch reports.
pub struct Progress {
    name: &'static str,
    liveness: Liveness,
}

impl Progress {
    pub fn made(&self) {
        if let Some(life) = self.liveness.lock().watches.get_mut(self.name) {
            *life = WatchHealth { made: Instant::now(), trouble: None };
        }
    }

    /// Something went wrong; it is retried.
    pub fn failed(&self, why: String) {
        if let Some(life) = self.liveness.lock().watches.get_mut(self.name) {
            life.trouble = Some(why);
        }
    }
}

/// The state that the server exposes.
#[derive(Clone)]
pub struct Health {
    pub readiness: Readiness,
    pub liveness: Liveness,
    pub log_level: LogLevel,
}

/// Serves the probes until the process ends.
pub async fn serve(address: SocketAddr, health: Health) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address} (--health-addr)"))?;
    let service = router(health).into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await.context("the health server stopped")
}

fn router(health: Health) -> Router {
    Router::new()
        .route("/healthz", get(live))
        .route("/readyz", get(ready))
        .route("/log-level", get(log_level).put(set_log_level))
        .with_state(health)
}

async fn live(State(health): State<Health>) -> (StatusCode, String) {
    response(&health.liveness.stalled())
}

async fn ready(State(health): State<Health>) -> (StatusCode, String) {
    response(&health.readiness.sentences())
}

fn response(sentences: &[String]) -> (StatusCode, String) {
    if sentences.is_empty() {
        (StatusCode::OK, "ok".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, sentences.join("\n"))
    }
}

async fn log_level(State(health): State<Health>) -> String {
    health.log_level.current()
}

/// The port of the probes is open to the whole network, so only clients that can connect from inside the Pod (`kubectl
/// port-forward`) may change anything here.
async fn set_log_level(
    State(health): State<Health>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    body: String,
) -> (StatusCode, String) {
    if !peer.ip().to_canonical().is_loopback() {
        let hint =
            "the log level can only be changed from within the Pod: kubectl port-forward, then curl -X PUT localhost";
        return (StatusCode::FORBIDDEN, hint.to_owned());
    }
    match health.log_level.set(body.trim()) {
        Ok(()) => (StatusCode::OK, health.log_level.current()),
        Err(sentence) => (StatusCode::BAD_REQUEST, sentence),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health() -> Health {
        let (log_level, _) = LogLevel::new("info").unwrap();
        Health { readiness: Readiness::default(), liveness: Liveness::default(), log_level }
    }

    #[tokio::test]
    async fn readyz_says_in_words_what_is_awaited() {
        let health = health();
        health.readiness.waits_for("crds", "waiting for the CRDs");
        let (status, body) = ready(State(health.clone())).await;
        assert_eq!((status, body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "waiting for the CRDs"));

        health.readiness.has("crds");
        let (status, body) = ready(State(health)).await;
        assert_eq!((status, body.as_str()), (StatusCode::OK, "ok"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_without_a_sign_of_life_is_a_reason_to_restart_only_while_the_api_server_answers() {
        let health = health();
        let progress = health.liveness.watch("MaasMachine");
        progress.failed("forbidden".to_owned());
        tokio::time::advance(STALLED * 2).await;
        assert_eq!(live(State(health.clone())).await.0, StatusCode::OK, "nobody answers: a restart would not help");
        health.liveness.answered();
        let (status, body) = live(State(health.clone())).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(body.contains("MaasMachine") && body.contains("forbidden"), "{body}");
        progress.made();
        assert_eq!(live(State(health)).await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn the_log_level_is_changed_from_within_the_pod_only() {
        let health = health();
        let put = async |peer: &str, level: &str| {
            let peer = ConnectInfo(peer.parse().unwrap());
            set_log_level(State(health.clone()), peer, level.to_owned()).await
        };
        assert_eq!(put("10.0.0.7:40000", "debug").await.0, StatusCode::FORBIDDEN);
        assert_eq!(put("127.0.0.1:40000", "debug\n").await, (StatusCode::OK, "debug".to_owned()));
        assert_eq!(put("[::ffff:127.0.0.1]:40000", "warn").await, (StatusCode::OK, "warn".to_owned()));
        let (status, sentence) = put("127.0.0.1:40000", "loud").await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(sentence.contains("error, warn, info, debug or trace"), "{sentence}");
        assert_eq!(log_level(State(health.clone())).await, "warn");
    }
}
