//! Performs effects on the hosts of one cluster.

use capmaas_api::MaasMachine;
use capmaas_core::hosts::leaving::ASKED_ANNOTATION;
use capmaas_core::hosts::plan::{Effect, Registration};
use jiff::Timestamp;
use kube::ResourceExt as _;
use lxd_initializer::names;
use maas_client::{NewVmHost, VmHostAuth, VmHostUpdate};
use serde_json::json;

use super::observe::HostContext;
use super::{agent, key_pair};
use crate::kubernetes::{self, Guard};

/// Performs the effect once and remembers the result.
pub(crate) async fn perform(context: &HostContext<'_>, effect: &Effect) {
    match attempt(context, effect).await {
        Ok(()) => {
            tracing::info!(cluster = %context.key, effect = effect.name(), target = effect.target(), "done");
            context.memory.worked(context.key, effect.target(), context.now);
        }
        Err(why) => {
            tracing::warn!(cluster = %context.key, effect = effect.name(), target = effect.target(), "{why}");
            context.memory.failed(context.key, effect.target(), why, context.now);
        }
    }
}

async fn attempt(context: &HostContext<'_>, effect: &Effect) -> Result<(), String> {
    let HostContext { kubernetes, memory, home, key, cluster, object, now, .. } = *context;
    let hosts = context.identity.client.vm_hosts();
    let words = |error: kubernetes::Error| error.to_string();
    match effect {
        Effect::MakePair => key_pair::make(kubernetes, home, key, object, now).await,
        Effect::ApplyAgent { image, desired, note } => {
            for manifest in agent::manifests(image, desired, note)? {
                // The policy that limits the agent comes before the agent.
                if manifest["kind"] == "DaemonSet" {
                    limit(context).await?;
                }
                kubernetes.workload_apply(cluster, &manifest).await.map_err(words)?;
            }
            Ok(())
        }
        Effect::HandOver { certificate } => {
            kubernetes.workload_apply(cluster, &agent::trust_manifest(certificate)).await.map_err(words)
        }
        Effect::Register(registration) => register(context, registration).await,
        Effect::Renew { id, address, .. } => {
            let (certificate, private) = key_pair::whole(kubernetes, home, key).await?;
            let update = VmHostUpdate {
                power_address: Some(address.clone()),
                certificate: Some(certificate),
                key: Some(private),
                ..VmHostUpdate::default()
            };
            hosts.update(*id, &update).await.map_err(|error| format!("cannot change VM host {id}: {error}"))?;
            memory.note_refresh(key, *id, now);
            Ok(())
        }
        Effect::Move { id, place, .. } => {
            let update = VmHostUpdate {
                zone: Some(place.zone.clone()),
                pool: Some(place.pool.clone()),
                ..VmHostUpdate::default()
            };
            hosts.update(*id, &update).await.map(drop).map_err(|error| format!("cannot move VM host {id}: {error}"))
        }
        Effect::TellCertificate { node, fingerprint, .. } => {
            let found = kubernetes.node(cluster, node).await.map_err(words)?;
            let found = found.ok_or_else(|| format!("the Node {node} is gone"))?;
            kubernetes.annotate_node(cluster, &found, names::MAAS_CERTIFICATE, fingerprint).await.map_err(words)
        }
        Effect::Refresh { id, .. } => {
            memory.note_refresh(key, *id, now);
            hosts.refresh(*id).await.map(drop).map_err(|error| format!("MAAS cannot reach VM host {id}: {error}"))
        }
    }
}

/// Applies the policy that limits the agent to its own Node. Older API servers cannot serve it.
async fn limit(context: &HostContext<'_>) -> Result<(), String> {
    let words = |error: kubernetes::Error| error.to_string();
    for manifest in agent::policy()? {
        let text = |name: &str| manifest[name].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        if context.kubernetes.workload_serves(context.cluster, &version, &kind).await.map_err(words)? {
            context.kubernetes.workload_apply(context.cluster, &manifest).await.map_err(words)?;
        }
    }
    Ok(())
}

/// The time is written to the MaasMachine first: if the machine is released in the meantime, the release waits for a
/// request that may still land (S2).
async fn register(context: &HostContext<'_>, new: &Registration) -> Result<(), String> {
    let HostContext { kubernetes, now, .. } = *context;
    let key = context.key.beside(&new.host);
    let words = |error: kubernetes::Error| error.to_string();
    let machine = kubernetes.maas_machine(&key).await.map_err(words)?;
    let machine = machine.filter(|machine| machine.metadata.deletion_timestamp.is_none());
    let machine = machine.ok_or_else(|| format!("the MaasMachine {} is being deleted", new.host))?;
    let (certificate, private) = key_pair::whole(kubernetes, context.home, context.key).await?;
    let auth = VmHostAuth::Certificate { certificate, key: private };
    let note = |time: Option<String>| json!({ "metadata": { "annotations": { ASKED_ANNOTATION: time } } });
    let asked = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let machine: MaasMachine =
        kubernetes::patch(kubernetes, &key, &Guard::of(&machine), note(Some(asked))).await.map_err(words)?;
    let host = NewVmHost {
        zone: Some(new.place.zone.clone()).filter(|zone| !zone.is_empty()),
        pool: Some(new.place.pool.clone()).filter(|pool| !pool.is_empty()),
        ..NewVmHost::new(&new.name, &new.address, &new.project, auth)
    };
    match context.identity.client.vm_hosts().create(&host).await {
        Ok(made) => {
            context.memory.note_refresh(context.key, made.id, now);
            Ok(())
        }
        Err(error) => {
            if error.effect() != maas_client::Effect::Unknown {
                // Refused: no request is in flight. If this write is lost, the annotation merely expires.
                let _ = kubernetes::patch::<MaasMachine>(kubernetes, &key, &Guard::of(&machine), note(None)).await;
            }
            Err(format!("cannot register {} as VM host: {error}", machine.name_any()))
        }
    }
}
