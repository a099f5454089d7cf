//! The reconciler of `MaasCluster`s: gather, let `capmaas_core::cluster` decide, apply.

mod apply;
mod controller;
mod gather;
mod maas;
mod memory;
mod perform;
mod rivals;

use std::sync::Arc;
use std::time::Duration;

use capmaas_core::backoff::Request;
use capmaas_core::cluster::decide;
use capmaas_core::cluster::observed::Contract;
use capmaas_core::cluster::plan::Effect;
use capmaas_core::cluster::provenance::{Provenance, judge};
use capmaas_core::credentials::Standing;
use capmaas_core::machine::DEBTS_ANNOTATION;
use capmaas_core::plan::Requeue;
use kube::ResourceExt as _;

use self::gather::{Access, Gathered};
use crate::clock::Clock;
use crate::identity::Identities;
use crate::kubernetes::{ErrorKind, Key, Kubernetes, Result};
use crate::lease::Fence;
use crate::lxd_hosts::Reports;
use crate::machine::debts::{self, Settled};
use crate::metrics::Metrics;

pub use controller::run;
pub(crate) use controller::tenant;
pub(crate) use gather::cluster_name;
pub use memory::Memory;

/// After something was done about what is owed; longer if it has to be done again.
const PAID: Duration = Duration::from_secs(5);

/// What every pass needs.
#[derive(Clone)]
pub struct Context {
    /// The door to Kubernetes.
    pub kubernetes: Arc<dyn Kubernetes>,
    /// The MAAS identities.
    pub identities: Identities,
    /// What time it is.
    pub clock: Clock,
    /// To be asked right before every write to MAAS (S23).
    pub fence: Fence,
    /// What is counted.
    pub metrics: Metrics,
    /// Which shape of failure domains Cluster API reads.
    pub contract: Contract,
    /// What may be forgotten at any time.
    pub memory: Memory,
    /// The image of the agent that makes machines LXD hosts, if this manager was told.
    pub agent_image: Option<String>,
    /// Where those who place VMs are told what agents report about their hosts.
    pub reports: Reports,
}

/// The shape of failure domains for the version in which Cluster API's kinds are read.
pub fn contract_of(core_version: &str) -> Contract {
    if core_version == "v1beta1" { Contract::Map } else { Contract::List }
}

/// One pass over one cluster. Whatever a crash cuts off in it, the next pass finds out and goes on.
pub async fn reconcile(context: &Context, key: &Key) -> Result<Requeue> {
    // On the heap: everything that a pass holds across its many calls is large.
    let Some(mut gathered) = Box::pin(gather::gather(context, key, Access::MayRemember)).await? else {
        context.memory.forget(key);
        return Ok(Requeue::OnChange);
    };
    // The same debts are not paid at every wake-up, should MAAS refuse (S26).
    let debts =
        gathered.object.annotations().get(DEBTS_ANNOTATION).map(|debts| Request::new(&(key.to_string(), debts)));
    let held = debts.and_then(|debts| context.memory.backoff.held(key, debts, context.clock.now()));
    let settled = if held.is_some() { Ok(Settled::Waiting) } else { settle(context, key, &gathered).await };
    match (&settled, debts) {
        (Ok(Settled::Worked), Some(debts)) => {
            let wait = context.memory.backoff.refused(key, debts, PAID, context.clock.now());
            return Ok(Requeue::After(wait));
        }
        (Err(error), _) if error.kind == ErrorKind::Conflict => return Ok(Requeue::seconds(1)),
        (Err(error), _) => tracing::warn!(cluster = %key, %error, "what is owed could not be looked at"),
        (Ok(_), _) => {}
    }
    let owes = matches!(settled, Ok(Settled::Waiting));
    let mut plan = decide(&gathered.observed, context.clock.now());
    // What was remembered is good enough to see that nothing is to be done; what is done rests on what MAAS says now.
    if gathered.remembered && plan.effect.as_ref().is_some_and(Effect::rests_on_record) {
        let gathering = Box::pin(gather::gather(context, key, Access::Fresh));
        let Some(fresh) = gathering.await? else { return Ok(Requeue::OnChange) };
        gathered = fresh;
        plan = decide(&gathered.observed, context.clock.now());
    }
    if owes {
        plan.requeue = plan.requeue.min(Requeue::seconds(60));
    }
    tracing::debug!(cluster = %key, effect = plan.effect.as_ref().map(Effect::name), why = %plan.why, "decided");
    match Box::pin(apply::apply(context, key, gathered, plan)).await {
        // Somebody else wrote in between: look again.
        Err(error) if error.kind == ErrorKind::Conflict => Ok(Requeue::seconds(1)),
        // Deleted meanwhile: there is nothing left to look after.
        Err(error) if error.kind == ErrorKind::NotFound => Ok(Requeue::OnChange),
        result => result,
    }
}

/// Removes a VM that the cluster owes, if its host is back. Only through the identity that is on record: another one may not see
/// the VM, or see another machine of its ID, and the debt would be forgotten (S5). And only while the object and its Cluster
/// still are what was looked at (S15), and what they owe is theirs (S25).
async fn settle(context: &Context, key: &Key, gathered: &Gathered) -> Result<Settled> {
    let Some(identity) = &gathered.identity else { return Ok(Settled::Even) };
    if !gathered.object.annotations().contains_key(DEBTS_ANNOTATION)
        || !gathered.observed.object.journal.unreadable.is_empty()
        || !matches!(judge(&gathered.observed), Provenance::Own | Provenance::Unwritten)
    {
        return Ok(Settled::Even);
    }
    if matches!(identity.standing, Standing::Changed { .. })
        || !apply::is_still_wanted(context, key, gathered.cluster.as_ref(), &gathered.object).await?
    {
        return Ok(Settled::Waiting);
    }
    debts::settle(context.kubernetes.as_ref(), &context.fence, key, &gathered.object, identity).await
}
