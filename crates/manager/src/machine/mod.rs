//! The reconciler of `MaasMachine`s: gather, let `capmaas_core::machine` decide, apply.

mod addresses;
mod apply;
mod controller;
pub(crate) mod debts;
mod dispatch;
#[cfg(test)]
mod fixture;
mod gather;
mod hosts;
mod links;
mod news;
mod others;
mod perform;
mod queue;

use std::sync::Arc;

use capmaas_api::MaasMachine;
use capmaas_core::machine::{Format, Requeue, decide};

use crate::clock::Clock;
use crate::identity::Identities;
use crate::lease::Fence;
use crate::lxd_hosts::LxdHosts;
use crate::metrics::Metrics;
use crate::port::{ErrorKind, Key, Kubernetes, Result};

pub use controller::run;
pub use news::fingerprint;

/// What every pass needs.
#[derive(Clone)]
pub struct Context {
    /// The door to Kubernetes.
    pub kubernetes: Arc<dyn Kubernetes>,
    /// The MAAS identities.
    pub identities: Identities,
    /// What time it is.
    pub clock: Clock,
    /// To be asked right before every write to MAAS.
    pub fence: Fence,
    /// What is counted.
    pub metrics: Metrics,
    /// The LXD hosts, and which were chosen a moment ago.
    pub lxd_hosts: LxdHosts,
}

/// What a pass has learnt that the next one, if it follows at once, need not ask for again. The object is the one that was last
/// written: whoever changed it since has every write that is guarded by its version refused, and what is destructive asks again
/// anyway (S15).
#[derive(Debug, Default)]
pub struct Known {
    object: Option<MaasMachine>,
    bootstrap: Option<Format>,
}

/// One pass over one machine. Whatever a crash cuts off in it, the next pass finds out and goes on.
pub async fn reconcile(context: &Context, key: &Key) -> Result<Requeue> {
    reconcile_knowing(context, key, &mut Known::default()).await
}

/// One pass that may follow another one at once.
pub async fn reconcile_knowing(context: &Context, key: &Key, known: &mut Known) -> Result<Requeue> {
    // On the heap: everything that a pass holds across its many calls is large.
    let Some((observed, sight)) = Box::pin(gather::gather(context, key, known)).await? else {
        return Ok(Requeue::OnChange);
    };
    let plan = decide(&observed, context.clock.now());
    tracing::debug!(machine = %key, effect = plan.effect.as_ref().map(capmaas_core::machine::Effect::name), why = %plan.why, "decided");
    match Box::pin(apply::apply(context, key, &observed, plan, sight.as_ref())).await {
        // Somebody else wrote in between: look again.
        Err(error) if error.kind == ErrorKind::Conflict => Ok(Requeue::After(std::time::Duration::from_millis(500))),
        Err(error) => Err(error),
        Ok((requeue, stored)) => {
            known.object = stored;
            Ok(requeue)
        }
    }
}
