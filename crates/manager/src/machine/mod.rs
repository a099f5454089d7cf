//! The reconciler of `MaasMachine`s: gather, let `capmaas_core::machine` decide, apply.

mod addresses;
mod apply;
pub(crate) mod change_filter;
mod controller;
pub(crate) mod debts;
mod dhcp;
#[cfg(test)]
mod fixture;
mod gather;
mod held_elsewhere;
mod hosts;
mod links;
mod node;
mod perform;
mod remove;
mod telling;

use std::sync::Arc;
use std::time::Duration;

use capmaas_api::{MaasMachine, MaasMachineStatus};
use capmaas_core::machine::{Effect, Format, Observed, Plan, decide};
use capmaas_core::plan::Requeue;
use jiff::{SignedDuration, Timestamp};

use crate::backoff::Backoff;
use crate::clock::{Clock, is_recent};
use crate::identity::Identities;
use crate::kubernetes::{ErrorKind, Key, Kubernetes, Result};
use crate::lease::Fence;
use crate::lxd_hosts::LxdHosts;
use crate::metrics::Metrics;
use capmaas_core::maas;
use gather::Session;

pub use change_filter::fingerprint;
pub use controller::run;

/// How long an effect waits for its turn among the requests to its MAAS. Nothing is written down meanwhile.
const PLACE: Duration = Duration::from_secs(30);
/// When to look again if it did not come.
const NO_PLACE: Duration = Duration::from_secs(5);
/// From the decision to the request: what took longer is not sent, because what is written down about it counts from the decision.
pub const SEND: Duration = Duration::from_secs(20);
/// What MAAS showed to the pass before counts for so long, if this one follows at once.
const JUST_SEEN: SignedDuration = SignedDuration::from_secs(5);

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
    /// What machines were refused a moment ago.
    pub backoff: Backoff,
}

/// What a pass has learnt that the next one, if it follows at once, need not ask for again. The object is the one that was last
/// written: whoever changed it since has every write that is guarded by its version refused, and what is destructive asks again
/// anyway (S15).
#[derive(Debug, Default)]
pub struct Carried {
    object: Option<MaasMachine>,
    bootstrap: Option<Format>,
    /// The machine as MAAS showed it at that time: in answer to what the pass did, or when the pass looked and did nothing.
    machine: Option<(Timestamp, maas::Machine)>,
    /// What was not told, because this pass was going to follow at once.
    untold: Option<MaasMachineStatus>,
}

impl Carried {
    /// The machine, if it was seen a moment ago.
    fn just_seen(&mut self, now: Timestamp) -> Option<maas::Machine> {
        self.machine.take().filter(|(at, _)| is_recent(*at, JUST_SEEN, now)).map(|(_, machine)| machine)
    }
}

/// One pass over one machine. Whatever a crash cuts off in it, the next pass finds out and goes on.
pub async fn reconcile(context: &Context, key: &Key) -> Result<Requeue> {
    reconcile_knowing(context, key, &mut Carried::default()).await
}

/// One pass that may follow another one at once.
pub async fn reconcile_knowing(context: &Context, key: &Key, known: &mut Carried) -> Result<Requeue> {
    let kubernetes = context.kubernetes.as_ref();
    let Some((mut observed, mut session)) = gather(context, key, known).await? else {
        context.backoff.forget(key);
        return Ok(Requeue::OnChange);
    };
    let mut plan = hold(context, key, session.as_ref(), decide(&observed, context.clock.now()));
    tracing::debug!(machine = %key, effect = plan.effect.as_ref().map(Effect::name), why = %plan.why, "decided");
    if let (Some(effect), Some(session)) = (&plan.effect, &mut session)
        && effect.asks_maas()
    {
        // A place first: from here to the request nothing waits for others, neither what is written down about it (S2) nor the last
        // look before it (S15).
        let place = session.identity.client.reserve(PLACE);
        let place = telling::while_waiting(kubernetes, key, &mut observed.object, plan.status.as_ref(), place).await;
        let Ok(client) = place else { return Ok(Requeue::After(NO_PLACE)) };
        session.identity = session.identity.with_client(client.sending_within(SEND));
        plan = hold(context, key, Some(&*session), decide(&observed, context.clock.now()));
    }
    match Box::pin(apply::apply(context, key, &observed, plan, session.as_ref())).await {
        // Somebody else wrote in between: look again.
        Err(error) if error.kind == ErrorKind::Conflict => Ok(Requeue::After(Duration::from_millis(500))),
        Err(error) => Err(error),
        Ok(applied) => {
            known.object = Some(applied.object);
            known.untold = applied.untold;
            known.machine = applied.machine.map(|machine| (context.clock.now(), machine));
            Ok(applied.requeue)
        }
    }
}

/// Gathers, and tells what the pass before has left untold if that takes long.
async fn gather(context: &Context, key: &Key, known: &mut Carried) -> Result<Option<(Box<Observed>, Option<Session>)>> {
    let untold = known.untold.take().and_then(|untold| Some((untold, known.object.clone()?)));
    // On the heap: everything that a pass holds across its many calls is large.
    let gathering = Box::pin(gather::gather(context, key, known));
    let Some((untold, mut object)) = untold else { return gathering.await };
    let version = object.metadata.resource_version.clone();
    let kubernetes = context.kubernetes.as_ref();
    let mut gathered = telling::while_waiting(kubernetes, key, &mut object, Some(&untold), gathering).await?;
    if let Some((observed, _)) = &mut gathered
        && observed.object.metadata.resource_version == version
    {
        observed.object.metadata.resource_version = object.metadata.resource_version;
        observed.object.status = object.status;
    }
    Ok(gathered)
}

/// A plan that asks for what was refused a moment ago asks for nothing (S26). What the refusal means was told then; nothing is written,
/// so that nobody is woken, but for a finalizer that somebody has taken away.
fn hold(context: &Context, key: &Key, session: Option<&Session>, plan: Plan) -> Plan {
    let held = |request| context.backoff.held(key, request, context.clock.now());
    let Some(left) = apply::asked(&plan, session).and_then(held) else { return plan };
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
