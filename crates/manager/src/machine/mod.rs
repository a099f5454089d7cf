//! The reconciler of `MaasMachine`s: gather, let `capmaas_core::machine` decide, apply.

mod apply;
mod controller;
pub(crate) mod debts;
mod gather;
mod hosts;
mod links;
mod news;
mod perform;
mod turns;

use std::sync::Arc;

use capmaas_core::machine::{Requeue, decide};

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

/// One pass over one machine. Whatever a crash cuts off in it, the next pass finds out and goes on.
pub async fn reconcile(context: &Context, key: &Key) -> Result<Requeue> {
    // On the heap: everything that a pass holds across its many calls is large.
    let Some((observed, sight)) = Box::pin(gather::gather(context, key)).await? else { return Ok(Requeue::OnChange) };
    let plan = decide(&observed, context.clock.now());
    tracing::debug!(machine = %key, effect = plan.effect.as_ref().map(capmaas_core::machine::Effect::name), why = %plan.why, "decided");
    match Box::pin(apply::apply(context, key, &observed, plan, sight.as_ref())).await {
        // Somebody else wrote in between: look again.
        Err(error) if error.kind == ErrorKind::Conflict => Ok(Requeue::After(std::time::Duration::from_millis(500))),
        result => result,
    }
}
