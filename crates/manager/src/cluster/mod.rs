//! The reconciler of `MaasCluster`s: observe, let `capmaas_core::cluster` decide, perform.

mod controller;
mod effects;
mod maas;
mod memory;
mod observe;
mod perform;
mod rivals;
mod stamps;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use capmaas_core::backoff::Request;
use capmaas_core::cluster::observed::Contract;
use capmaas_core::cluster::plan::{Effect, Plan};
use capmaas_core::cluster::provenance::{Provenance, judge};
use capmaas_core::cluster::{decide, while_doing};
use capmaas_core::credentials::Standing;
use capmaas_core::machine::DEBTS_ANNOTATION;
use capmaas_core::plan::Requeue;
use kube::ResourceExt as _;

use self::observe::{Access, Seen};
use crate::clock::Clock;
use crate::identity::Identities;
use crate::kubernetes::{ErrorKind, Key, Kind, Kubernetes, Result};
use crate::lease::Fence;
use crate::lxd_hosts::Reports;
use crate::machine::SLOT_WAIT;
use crate::machine::debts::{self, Settled};
use crate::metrics::Metrics;
use crate::reconcile::{self, Reconciler, SEND, while_waiting};

pub use controller::run;
pub use memory::Memory;

/// Requeue delay after work on a debt; grows if the same debt has to be worked on again.
const PAID: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub struct Context {
    pub kubernetes: Arc<dyn Kubernetes>,
    pub identities: Identities,
    pub clock: Clock,
    /// Checked right before every write to MAAS (S23).
    pub fence: Fence,
    pub metrics: Metrics,
    /// The form of failure domains that Cluster API reads.
    pub contract: Contract,
    /// Caches that can be lost at any time.
    pub memory: Memory,
    /// The image of the agent that turns machines into LXD hosts, if configured.
    pub agent_image: Option<String>,
    /// Passes what agents report about their hosts to VM placement.
    pub reports: Reports,
}

/// The form of failure domains for the API version of the Cluster API kinds.
pub fn contract_of(core_version: &str) -> Contract {
    if core_version == "v1beta1" { Contract::Map } else { Contract::List }
}

/// One pass over one cluster.
pub async fn reconcile(context: &Context, key: &Key) -> Result<Requeue> {
    reconcile::reconcile(context, key, &mut ()).await
}

impl Reconciler for Context {
    const KIND: Kind = Kind::MaasCluster;
    const CONTROLLER: &'static str = "maascluster";
    const IN_A_ROW: usize = 1;
    const AFTER_CONFLICT: Duration = Duration::from_secs(1);
    type Observed = Seen;
    type Plan = Plan;
    type Carried = ();

    fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    async fn observe(&self, key: &Key, (): &mut ()) -> Result<Option<Seen>> {
        observe::observe(self, key, Access::MayRemember, self.memory.take_outdated(key)).await
    }

    fn decide(&self, key: &Key, seen: &Seen) -> Plan {
        let plan = decide(&seen.observed, self.clock.now());
        tracing::debug!(cluster = %key, effect = plan.effect.as_ref().map(Effect::name), why = %plan.why, "decided");
        plan
    }

    /// Settles debts first. Cached data is good enough to see that there is nothing to do; any action is based on what
    /// MAAS reports now.
    async fn prepare(&self, key: &Key, seen: &mut Seen, mut plan: Plan) -> Result<ControlFlow<Requeue, Plan>> {
        let owes = match self.pay(key, seen, &plan).await {
            ControlFlow::Continue(owes) => owes,
            ControlFlow::Break(requeue) => return Ok(ControlFlow::Break(requeue)),
        };
        if seen.remembered && plan.effect.as_ref().is_some_and(Effect::rests_on_record) {
            let Some(fresh) = observe::observe(self, key, Access::Fresh, seen.outdated).await? else {
                return Ok(ControlFlow::Break(Requeue::OnChange));
            };
            *seen = fresh;
            plan = self.decide(key, seen);
        }
        if owes {
            plan.requeue = plan.requeue.min(Requeue::seconds(60));
        }
        Ok(ControlFlow::Continue(plan))
    }

    async fn perform(&self, key: &Key, seen: Seen, plan: Plan, (): &mut ()) -> Result<Requeue> {
        let mut outdated = seen.outdated;
        match Box::pin(perform::perform(self, key, seen, plan, &mut outdated)).await {
            // Deleted in the meantime: there is nothing left to do.
            Err(error) if error.kind == ErrorKind::NotFound => Ok(Requeue::OnChange),
            Ok(Requeue::NOW) => {
                if let Some(since) = outdated {
                    self.memory.keep_outdated(key, since);
                }
                Ok(Requeue::NOW)
            }
            done => done,
        }
    }

    fn forget(&self, key: &Key) {
        self.memory.forget(key);
    }
}

impl Context {
    /// Settles the debts of the cluster as far as possible now. Returns whether there are debts left, or when to
    /// requeue after work on one. If MAAS refuses, the same debts are not retried at every wake-up (S26).
    async fn pay(&self, key: &Key, seen: &mut Seen, plan: &Plan) -> ControlFlow<Requeue, bool> {
        let debts = seen.object.annotations().get(DEBTS_ANNOTATION);
        let debts = debts.map(|debts| Request::new(&(key.to_string(), debts)));
        let held = debts.and_then(|debts| self.memory.backoff.held(key, debts, self.clock.now()));
        let settled = if held.is_some() { Ok(Settled::Waiting) } else { self.settle_in_time(key, seen, plan).await };
        match (&settled, debts) {
            (Ok(Settled::Worked), Some(debts)) => {
                let wait = self.memory.backoff.refused(key, debts, PAID, self.clock.now());
                return ControlFlow::Break(Requeue::After(wait));
            }
            (Err(error), _) if error.kind == ErrorKind::Conflict => {
                return ControlFlow::Break(Requeue::After(Self::AFTER_CONFLICT));
            }
            (Err(error), _) => tracing::warn!(cluster = %key, %error, "cannot settle debts"),
            (Ok(_), _) => {}
        }
        ControlFlow::Continue(matches!(settled, Ok(Settled::Waiting)))
    }

    /// Settles debts. If that takes long, the status that was decided does not wait for it; writing it puts off the settling to
    /// the next pass, which finds it stored.
    async fn settle_in_time(&self, key: &Key, seen: &mut Seen, plan: &Plan) -> Result<Settled> {
        let status = match &plan.effect {
            Some(effect) => while_doing(&seen.observed, effect, self.clock.now()),
            None => plan.status.clone(),
        };
        let (mut object, mut outdated) = (seen.object.clone(), seen.outdated);
        let (kubernetes, settling) = (self.kubernetes.as_ref(), settle(self, key, seen));
        let settled = while_waiting(kubernetes, key, &mut object, status.as_ref(), &mut outdated, settling).await;
        (seen.object, seen.outdated) = (object, outdated);
        seen.observed.object.status = seen.object.status.clone().unwrap_or_default();
        settled
    }
}

/// Removes a VM that the cluster owes if its host is back. Only through the recorded identity: another one may not see
/// the VM, or may see a different machine under the same ID, and the debt would be dropped (S5). Only while the object
/// and its Cluster are unchanged since they were observed (S15), and only debts that belong to this object (S25).
async fn settle(context: &Context, key: &Key, seen: &Seen) -> Result<Settled> {
    let Some(identity) = &seen.identity else { return Ok(Settled::Even) };
    if !seen.object.annotations().contains_key(DEBTS_ANNOTATION)
        || !seen.observed.object.journal.unreadable.is_empty()
        || !matches!(judge(&seen.observed), Provenance::Own | Provenance::Unwritten)
    {
        return Ok(Settled::Even);
    }
    let is_still_wanted = || perform::is_still_wanted(context, key, seen.cluster.as_ref(), &seen.object);
    if matches!(identity.standing, Standing::Changed { .. }) || !is_still_wanted().await? {
        return Ok(Settled::Waiting);
    }
    // With a request slot nothing waits for others from here on. A BMC may take its time to answer, so the object is
    // read once more before the removal.
    let Ok(client) = identity.client.reserve(SLOT_WAIT).await else { return Ok(Settled::Waiting) };
    let identity = identity.with_client(client);
    match debts::settle(context.kubernetes.as_ref(), key, &seen.object, &identity).await? {
        Settled::Due(_) if !is_still_wanted().await? => Ok(Settled::Waiting),
        Settled::Due(machine) => {
            let identity = identity.with_client(identity.client.sending_within(SEND));
            debts::remove(&context.fence, key, &identity, &machine).await
        }
        settled => Ok(settled),
    }
}
