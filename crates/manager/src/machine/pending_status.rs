//! A status that was put off because the next pass follows immediately (see `reconcile/pending_status.rs`).

use capmaas_api::{MaasMachine, MaasMachineStatus};
use tokio::time::Instant;

use crate::kubernetes::{Guard, Key, Kind, Kubernetes};

/// A status that was not written because the next pass follows immediately.
#[derive(Debug)]
pub(super) struct Unwritten {
    pub(super) status: MaasMachineStatus,
    /// Since when the stored status is outdated: also the time of an earlier status that was not written either.
    pub(super) since: Instant,
}

/// Writes a status that no pass will write any more. If somebody else has changed the object since, that wakes it.
pub(super) async fn write(kubernetes: &dyn Kubernetes, key: &Key, object: &MaasMachine, status: &MaasMachineStatus) {
    let value = serde_json::to_value(status).unwrap_or_default();
    if let Err(error) = kubernetes.apply_status(Kind::MaasMachine, key, &Guard::of(object), value).await {
        tracing::debug!(%error, "a status could not be written");
    }
}
