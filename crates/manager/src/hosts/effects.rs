//! Performs effects on the hosts of one cluster.

use capmaas_api::MaasMachine;
use capmaas_core::Lookup;
use capmaas_core::hosts::leaving::ASKED_ANNOTATION;
use capmaas_core::hosts::plan::Effect;
use capmaas_core::registration::{self, Call};
use jiff::Timestamp;
use kube::ResourceExt as _;
use lxd_initializer::{names, registering};
use serde_json::{Value, json};

use super::observe::{HostContext, asked};
use super::{agent, key_pair};
use crate::kubernetes::{self, Guard, Key};

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
    let HostContext { kubernetes, home, key, cluster, object, now, .. } = *context;
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
        Effect::OnHost { host, call } => call_maas(context, host, call).await,
        Effect::TellCertificate { node, fingerprint, .. } => {
            let found = kubernetes.node(cluster, node).await.map_err(words)?;
            let found = found.ok_or_else(|| format!("the Node {node} is gone"))?;
            kubernetes.annotate_node(cluster, &found, names::MAAS_CERTIFICATE, fingerprint).await.map_err(words)
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

async fn call_maas(context: &HostContext<'_>, host: &str, call: &Call) -> Result<(), String> {
    let HostContext { kubernetes, home, key, now, .. } = *context;
    let pair = key_pair::whole(kubernetes, home, key).await?;
    let intent = match call {
        Call::Register(_) => Some(Intent::store(context, host).await?),
        Call::Renew { .. } | Call::Move { .. } | Call::Refresh { .. } => None,
    };
    let answer = registering::perform(&context.identity.client, call, pair).await;
    let after = registration::conclude(call, registering::outcome(&answer));
    if let (true, Ok(id)) = (after.refreshed, &answer) {
        context.memory.note_refresh(key, *id, now);
    }
    let Err(error) = answer else { return Ok(()) };
    if let (true, Some(intent)) = (after.forget_intent, intent) {
        intent.forget(context).await;
    }
    Err(registering::failure(call, &error))
}

/// The intent to register a machine, on its MaasMachine: if the machine is released in the meantime, the release waits for a
/// request that may still land (S2).
struct Intent {
    key: Key,
    machine: MaasMachine,
}

impl Intent {
    async fn store(context: &HostContext<'_>, host: &str) -> Result<Self, String> {
        let HostContext { kubernetes, now, .. } = *context;
        let key = context.key.beside(host);
        let words = |error: kubernetes::Error| error.to_string();
        let machine = kubernetes.maas_machine(&key).await.map_err(words)?;
        let machine = machine.filter(|machine| machine.metadata.deletion_timestamp.is_none());
        let machine = machine.ok_or_else(|| format!("the MaasMachine {host} is being deleted"))?;
        // The decision saw the object as the watch shows it, which may be older.
        not_in_flight(host, asked(machine.annotations()), now)?;
        let sent = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
        let machine =
            kubernetes::patch(kubernetes, &key, &Guard::of(&machine), note(Some(sent))).await.map_err(words)?;
        Ok(Self { key, machine })
    }

    /// No request is in flight. If this write is lost, and after a success, the annotation merely expires.
    async fn forget(self, context: &HostContext<'_>) {
        let guard = Guard::of(&self.machine);
        let _ = kubernetes::patch::<MaasMachine>(context.kubernetes, &self.key, &guard, note(None)).await;
    }
}

/// S2: no registration that was sent earlier may still land.
fn not_in_flight(host: &str, asked: Lookup<Timestamp>, now: Timestamp) -> Result<(), String> {
    match asked {
        Lookup::Found(sent) if registration::may_land(sent, now) => {
            Err(format!("a registration of {host} was sent a moment ago and may still take effect"))
        }
        Lookup::Unknown(why) => Err(why),
        Lookup::Found(_) | Lookup::Absent => Ok(()),
    }
}

fn note(sent: Option<String>) -> Value {
    json!({ "metadata": { "annotations": { ASKED_ANNOTATION: sent } } })
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn s02_a_live_intent_that_may_still_land_or_cannot_be_read_holds_the_registration() {
        let now = Timestamp::UNIX_EPOCH;
        let sent = |seconds| Lookup::Found(now - SignedDuration::from_secs(seconds));
        assert!(not_in_flight("cp1", sent(149), now).unwrap_err().contains("registration of cp1"));
        assert!(not_in_flight("cp1", Lookup::Unknown("is no time".into()), now).unwrap_err().contains("is no time"));
        assert_eq!(not_in_flight("cp1", sent(150), now), Ok(()));
        assert_eq!(not_in_flight("cp1", Lookup::Absent, now), Ok(()));
    }
}
