//! The reconciler of `MaasMachine`s: observe, let `capmaas_core::machine` decide, perform.

mod addresses;
mod bootstrap;
mod controller;
mod conversion;
pub(crate) mod debts;
mod dhcp;
mod effects;
#[cfg(test)]
mod fixture;
mod held_elsewhere;
mod hosts;
mod leaving_host;
mod links;
mod node;
mod observe;
mod orphans;
mod pending_status;
mod perform;
mod remove;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use capmaas_api::MaasMachine;
use capmaas_core::machine::{Effect, Format, Journal, Observed, Plan, decide};
use capmaas_core::plan::Requeue;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::clock::{Clock, is_recent};
use crate::identity::Identities;
use crate::kubernetes::{Key, Kind, Kubernetes, Result};
use crate::lease::Fence;
use crate::lxd_hosts::LxdHosts;
use crate::metrics::Metrics;
use crate::reconcile::{self, Reconciler, SEND, while_waiting};
use capmaas_core::maas;
use observe::Session;
use pending_status::Unwritten;

pub use crate::reconcile::change_filter::fingerprint;
pub(crate) use addresses::linked_addresses;
pub use controller::run;

/// How long an effect waits for a request slot of its MAAS. Nothing is journaled in the meantime.
pub(crate) const SLOT_WAIT: Duration = Duration::from_secs(30);
/// Requeue delay if it got no slot.
const NO_SLOT: Duration = Duration::from_secs(5);
/// How long the previous pass's observation of the machine stays valid for a pass that follows immediately.
const JUST_SEEN: SignedDuration = SignedDuration::from_secs(5);

#[derive(Clone)]
pub struct Context {
    pub kubernetes: Arc<dyn Kubernetes>,
    pub identities: Identities,
    pub clock: Clock,
    /// Checked right before every write to MAAS.
    pub fence: Fence,
    pub metrics: Metrics,
    /// The LXD hosts, and which of them were chosen recently.
    pub lxd_hosts: LxdHosts,
    /// Requests that were refused recently.
    pub backoff: Backoff,
}

/// What a pass has observed and the next one, if it follows immediately, need not read again. The object is the one
/// last written: if somebody has changed it since, every write guarded by its version is refused, and destructive
/// effects read it again anyway (S15).
#[derive(Debug, Default)]
pub struct Carried {
    object: Option<MaasMachine>,
    /// The journal, including what MAAS has shown but the stored object does not contain yet.
    journal: Option<Journal>,
    bootstrap: Option<Format>,
    /// The machine as MAAS showed it at that time: in answer to the effect of the pass, or read by a pass that had no
    /// effect.
    machine: Option<(Timestamp, maas::Machine)>,
    unwritten: Option<Unwritten>,
}

impl Carried {
    /// The machine, if it was observed a moment ago.
    fn just_seen(&mut self, now: Timestamp) -> Option<maas::Machine> {
        self.machine.take().filter(|(at, _)| is_recent(*at, JUST_SEEN, now)).map(|(_, machine)| machine)
    }
}

/// One pass over one machine.
pub async fn reconcile(context: &Context, key: &Key) -> Result<Requeue> {
    reconcile_knowing(context, key, &mut Carried::default()).await
}

/// One pass that may follow another one immediately.
pub async fn reconcile_knowing(context: &Context, key: &Key, carried: &mut Carried) -> Result<Requeue> {
    reconcile::reconcile(context, key, carried).await
}

/// The observed facts, and what performing needs in addition if MAAS could be reached.
pub(crate) struct Seen {
    observed: Box<Observed>,
    session: Option<Session>,
    /// Since when the stored status is outdated, if it is.
    outdated: Option<Instant>,
}

impl Reconciler for Context {
    const KIND: Kind = Kind::MaasMachine;
    const CONTROLLER: &'static str = "maasmachine";
    const IN_A_ROW: usize = 8;
    const AFTER_CONFLICT: Duration = Duration::from_millis(500);
    type Observed = Seen;
    type Plan = Plan;
    type Carried = Carried;

    fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    async fn observe(&self, key: &Key, carried: &mut Carried) -> Result<Option<Seen>> {
        observe::observe(self, key, carried).await
    }

    fn decide(&self, key: &Key, seen: &Seen) -> Plan {
        let plan = hold(self, key, seen.session.as_ref(), decide(&seen.observed, self.clock.now()));
        tracing::debug!(machine = %key, effect = plan.effect.as_ref().map(Effect::name), why = %plan.why, "decided");
        plan
    }

    /// Acquires a request slot first: from here to the request nothing waits for others, so neither the journal entry
    /// (S2) nor the last check before the effect (S15) gets old.
    async fn prepare(&self, key: &Key, seen: &mut Seen, plan: Plan) -> Result<ControlFlow<Requeue, Plan>> {
        let Some(session) = seen.session.as_mut().filter(|_| plan.effect.as_ref().is_some_and(Effect::asks_maas))
        else {
            return Ok(ControlFlow::Continue(plan));
        };
        let (kubernetes, object) = (self.kubernetes.as_ref(), &mut seen.observed.object);
        let slot = session.identity.client.reserve(SLOT_WAIT);
        let slot = while_waiting(kubernetes, key, object, plan.status.as_ref(), &mut seen.outdated, slot).await;
        let Ok(client) = slot else { return Ok(ControlFlow::Break(Requeue::After(NO_SLOT))) };
        session.identity = session.identity.with_client(client.sending_within(SEND));
        Ok(ControlFlow::Continue(self.decide(key, seen)))
    }

    async fn perform(&self, key: &Key, seen: Seen, plan: Plan, carried: &mut Carried) -> Result<Requeue> {
        let silent = plan.status.is_none();
        let done = Box::pin(perform::perform(self, key, &seen, plan)).await?;
        carried.object = Some(done.object);
        carried.journal = done.journal;
        // A pass without a status of its own leaves the one before it to be written.
        carried.unwritten = done.unwritten.or(carried.unwritten.take().filter(|_| silent));
        carried.machine = done.machine.map(|machine| (self.clock.now(), machine));
        Ok(done.requeue)
    }

    async fn leave(&self, key: &Key, carried: Carried) {
        if let (Some(object), Some(unwritten)) = (carried.object, carried.unwritten) {
            pending_status::write(self.kubernetes.as_ref(), key, &object, &unwritten.status).await;
        }
    }

    fn forget(&self, key: &Key) {
        self.backoff.forget(key);
    }
}

/// A plan whose request was refused a moment ago does not send it again (S26). The refusal was reported then. Nothing
/// is written, so that nothing wakes up, except a finalizer that somebody removed.
fn hold(context: &Context, key: &Key, session: Option<&Session>, plan: Plan) -> Plan {
    let held = |request| context.backoff.held(key, request, context.clock.now());
    let Some(left) = perform::asked(&plan, session).and_then(held) else { return plan };
    Plan { finalizer: plan.finalizer, ..Plan::nothing(Requeue::After(left), plan.why) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn s02_a_write_is_answered_or_given_up_before_it_counts_as_landed_or_lost() {
        let transport = maas_client::transport::answering(|_| http::Response::default());
        let client =
            maas_client::Client::builder("http://maas.test/MAAS", "a:b:c").transport(transport).build().unwrap();
        let in_flight = capmaas_core::plan::IN_FLIGHT.unsigned_abs();
        let margin = Duration::from_secs(10);
        assert!(SEND + client.write_deadline() + margin <= in_flight, "decided, sent, answered");
        assert!(client.place_deadline() + client.write_deadline() + margin <= in_flight, "where no place was reserved");
    }
}
