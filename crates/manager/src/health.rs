//! `/healthz` and `/readyz`: what the manager waits for, in words.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use axum::{Router, extract::State, http::StatusCode, routing::get};

/// What must be true before the manager is ready. Each waiting part names itself with a sentence and removes it when it is done.
#[derive(Clone, Default)]
pub struct Readiness {
    waiting: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

impl Readiness {
    /// `part` is not ready, and `sentence` says what it waits for.
    pub fn waits_for(&self, part: &'static str, sentence: impl Into<String>) {
        self.lock().insert(part, sentence.into());
    }

    /// `part` has what it needs.
    pub fn has(&self, part: &'static str) {
        self.lock().remove(part);
    }

    /// The sentences of every part that still waits.
    pub fn sentences(&self) -> Vec<String> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, String>> {
        // The map is whole after any panic elsewhere: a single insert or remove.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves the probes until the process ends.
pub async fn serve(address: SocketAddr, readiness: Readiness) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address} (--health-addr)"))?;
    axum::serve(listener, router(readiness)).await.context("the health server stopped")
}

fn router(readiness: Readiness) -> Router {
    Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(ready)).with_state(readiness)
}

async fn ready(State(readiness): State<Readiness>) -> (StatusCode, String) {
    let sentences = readiness.sentences();
    if sentences.is_empty() {
        (StatusCode::OK, "ok".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, sentences.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn readyz_says_in_words_what_is_awaited() {
        let readiness = Readiness::default();
        readiness.waits_for("crds", "waiting for the CRDs");
        let (status, body) = ready(State(readiness.clone())).await;
        assert_eq!((status, body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "waiting for the CRDs"));

        readiness.has("crds");
        let (status, body) = ready(State(readiness)).await;
        assert_eq!((status, body.as_str()), (StatusCode::OK, "ok"));
    }
}
