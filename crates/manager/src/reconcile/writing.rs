//! Steps around an effect that all kinds share: the last check before it, and events.

use capmaas_api::names::{DELETE_FOR_MOVE_ANNOTATION, PAUSED_ANNOTATION};
use capmaas_core::plan::Event;
use capmaas_core::{Lookup, pause};
use kube::{Resource, ResourceExt as _};

use crate::kubernetes::{Key, Kind, Kubernetes, ObjectEvent, Result};

/// Whether an object, read again right before a destructive effect, is still the one that the decision was made for,
/// and neither it nor its Cluster is paused or being moved (S15).
pub(crate) async fn is_still_wanted<K: Resource>(
    kubernetes: &dyn Kubernetes,
    seen: &K,
    now: Option<K>,
    cluster: Option<&Key>,
) -> Result<bool> {
    let Some(now) = now else { return Ok(false) };
    if now.uid() != seen.uid() || now.resource_version() != seen.resource_version() {
        return Ok(false);
    }
    if [PAUSED_ANNOTATION, DELETE_FOR_MOVE_ANNOTATION].iter().any(|name| now.annotations().contains_key(*name)) {
        return Ok(false);
    }
    let Some(cluster) = cluster else { return Ok(true) };
    let cluster = kubernetes.cluster(cluster).await?;
    Ok(cluster.is_none_or(|cluster| pause::of_cluster(&cluster) == Lookup::Found(false)))
}

/// Publishes events about an object. A lost event has no consequences.
pub(crate) async fn publish(kubernetes: &dyn Kubernetes, kind: Kind, key: &Key, uid: &str, events: &[Event]) {
    for event in events {
        let event = ObjectEvent {
            kind,
            key: key.clone(),
            uid: uid.to_owned(),
            warning: event.warning,
            reason: event.reason.to_owned(),
            message: event.message.clone(),
        };
        if let Err(error) = kubernetes.publish(&event).await {
            tracing::debug!(%error, "an event could not be published");
        }
    }
}
