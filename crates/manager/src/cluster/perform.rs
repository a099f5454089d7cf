//! All writes of a pass: journal first, then the one effect, then the status.

use capmaas_api::names::{CLUSTER_FINALIZER, DNS_RECORD_ANNOTATION};
use capmaas_api::{MaasCluster, MaasClusterStatus};
use capmaas_core::cluster::plan::{Effect, Plan};
use capmaas_core::cluster::while_doing;
use capmaas_core::plan::{Finalizer, Requeue};
use kube::ResourceExt as _;
use serde_json::json;
use tokio::time::Instant;

use super::Context;
use super::effects;
use super::observe::{Seen, host_context};
use crate::hosts;
use crate::identity::Identity;
use crate::kubernetes::{self, Error, ErrorKind, Guard, Key, Kind, Result};
use crate::reconcile::{self, SEND, patch_of, while_waiting};

/// Performs a plan. A write that conflicts with another version of the object ends the pass. `outdated` is since when the stored
/// status is.
pub(super) async fn perform(
    context: &Context,
    key: &Key,
    seen: Seen,
    plan: Plan,
    outdated: &mut Option<Instant>,
) -> Result<Requeue> {
    let kubernetes = context.kubernetes.as_ref();
    let Seen { observed, mut object, cluster, identity, dns_name, .. } = seen;
    // The journal entry about a request counts from the decision (S2).
    let identity = identity.map(|identity| identity.with_client(identity.client.sending_within(SEND)));
    let uid = object.uid().unwrap_or_default();
    if let Some(patch) = patch_of(&object, &plan, &[CLUSTER_FINALIZER]) {
        object = kubernetes::patch(kubernetes, key, &Guard::of(&object), patch).await?;
    }
    if plan.finalizer == Finalizer::Remove {
        context.memory.forget(key);
        if let (Some(identity), Some(name)) = (&identity, &dns_name) {
            identity.dns_names.drop_name(name);
        }
        reconcile::publish(kubernetes, Kind::MaasCluster, key, &uid, &plan.events).await;
        return Ok(Requeue::OnChange);
    }
    if let (Some(effect), Some(identity)) = (&plan.effect, &identity) {
        if !is_still_wanted(context, key, cluster.as_ref(), &object).await? {
            return Ok(Requeue::seconds(1));
        }
        match (effect, &cluster) {
            (Effect::Hosts(effect), Some(cluster)) => {
                fenced(context, key)?;
                let observed = object.clone();
                let host_context = host_context(context, key, cluster, &observed, identity);
                let performing = hosts::perform(&host_context, effect);
                while_waiting(kubernetes, key, &mut object, plan.status.as_ref(), outdated, performing).await;
            }
            (Effect::Hosts(_), None) => {}
            (effect, _) => {
                let status = while_doing(&observed, effect, context.clock.now());
                let meanwhile = (status.as_ref(), &mut *outdated);
                if !act(context, key, &mut object, effect, (identity, dns_name.as_deref()), meanwhile).await? {
                    return Ok(Requeue::NOW);
                }
            }
        }
    }
    if let Some(status) = plan.status.as_ref().filter(|status| object.status.as_ref() != Some(status)) {
        let status = serde_json::to_value(status).unwrap_or_default();
        kubernetes.apply_status(Kind::MaasCluster, key, &Guard::of(&object), status).await?;
        *outdated = None;
    }
    reconcile::publish(kubernetes, Kind::MaasCluster, key, &uid, &plan.events).await;
    Ok(plan.requeue)
}

fn fenced(context: &Context, key: &Key) -> Result<()> {
    let doing = || format!("change MAAS for MaasCluster {key}");
    context.fence.check().map_err(|error| Error::new(ErrorKind::Denied, doing(), error.to_string()))
}

/// Performs the effect and journals MAAS's answer. False if MAAS refused: the next decision reports that. The status is written
/// if it takes long.
async fn act(
    context: &Context,
    key: &Key,
    object: &mut MaasCluster,
    effect: &Effect,
    (identity, dns_name): (&Identity, Option<&str>),
    (status, outdated): (Option<&MaasClusterStatus>, &mut Option<Instant>),
) -> Result<bool> {
    fenced(context, key)?;
    let performing = effects::perform(identity, dns_name, effect, context.clock.now());
    match while_waiting(context.kubernetes.as_ref(), key, object, status, outdated, performing).await {
        Ok(made) => {
            tracing::info!(cluster = %key, ?effect, "done");
            context.memory.worked(key, effect, context.clock.now());
            if let Some(id) = made {
                let patch = json!({ "metadata": { "annotations": { DNS_RECORD_ANNOTATION: id.to_string() } } });
                *object = kubernetes::patch(context.kubernetes.as_ref(), key, &Guard::of(object), patch).await?;
            }
            Ok(true)
        }
        Err(message) => {
            tracing::warn!(cluster = %key, ?effect, "{message}");
            context.memory.failed(key, effect, message, context.clock.now());
            Ok(false)
        }
    }
}

/// Reads the object and its Cluster again, right before a change in MAAS (S15).
pub(super) async fn is_still_wanted(
    context: &Context,
    key: &Key,
    cluster: Option<&Key>,
    object: &MaasCluster,
) -> Result<bool> {
    let kubernetes = context.kubernetes.as_ref();
    reconcile::is_still_wanted(kubernetes, object, kubernetes.maas_cluster(key).await?, cluster).await
}
