//! One reconcile loop for every kind. A [`Reconciler`] implements the steps for its kind; deadlines, error handling,
//! scheduling and events are the same for all.

pub(crate) mod change_filter;
mod dispatch;
mod patch;
mod pending_status;
mod writing;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capmaas_core::plan::Requeue;
use futures::Stream;
use tracing::Instrument as _;

use self::dispatch::dispatch;
pub(crate) use self::dispatch::{SchedulingClass, spread};
pub(crate) use self::patch::of as patch_of;
pub(crate) use self::pending_status::while_waiting;
pub(crate) use self::writing::{is_still_wanted, publish};
use crate::kubernetes::{Error, ErrorKind, Key, Kind, Result};
use crate::metrics::Metrics;

/// Requeue delay after an error that is not MAAS's (those are handled by the decision).
const AFTER_ERROR: Duration = Duration::from_secs(10);
/// A pass that takes longer hangs: every call in it has its own, far shorter deadline.
const DEADLINE: Duration = Duration::from_secs(600);
/// From the decision to the request: a request that is later than this is not sent, because its journal entry counts
/// from the decision (S2).
pub const SEND: Duration = Duration::from_secs(20);

/// How one kind is reconciled. If a crash interrupts a pass, the next one observes the result and continues.
pub(crate) trait Reconciler: Send + Sync + 'static {
    const KIND: Kind;
    /// The controller's name in metrics.
    const CONTROLLER: &'static str;
    /// How many passes may follow each other directly when each asks for the next one immediately; then other objects
    /// get their turn.
    const IN_A_ROW: usize;
    /// Requeue delay after a write conflict.
    const AFTER_CONFLICT: Duration;
    /// The facts that a decision depends on, and what performing it needs in addition.
    type Observed: Send;
    type Plan: Send;
    /// What a pass has observed and the next one, if it follows immediately, need not read again.
    type Carried: Default + Send;

    fn metrics(&self) -> &Metrics;

    /// All reads; `None` if the object is gone.
    fn observe(
        &self,
        key: &Key,
        carried: &mut Self::Carried,
    ) -> impl Future<Output = Result<Option<Self::Observed>>> + Send;

    fn decide(&self, key: &Key, observed: &Self::Observed) -> Self::Plan;

    /// Acquires what a plan needs before it is performed, such as a request slot for MAAS or fresh data. This may
    /// replace the plan, or requeue the object instead.
    fn prepare(
        &self,
        key: &Key,
        observed: &mut Self::Observed,
        plan: Self::Plan,
    ) -> impl Future<Output = Result<ControlFlow<Requeue, Self::Plan>>> + Send;

    /// All writes: the journal, at most one effect and its result, the status.
    fn perform(
        &self,
        key: &Key,
        observed: Self::Observed,
        plan: Self::Plan,
        carried: &mut Self::Carried,
    ) -> impl Future<Output = Result<Requeue>> + Send;

    /// Called when no pass follows immediately, with what the last one has observed.
    fn leave(&self, _key: &Key, _carried: Self::Carried) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Drops cached data of an object that is gone.
    fn forget(&self, key: &Key);
}

/// One pass over one object.
pub(crate) async fn reconcile<R: Reconciler>(reconciler: &R, key: &Key, carried: &mut R::Carried) -> Result<Requeue> {
    // Boxed, because everything that a pass holds across its awaits is large.
    let Some(mut observed) = Box::pin(reconciler.observe(key, carried)).await? else {
        reconciler.forget(key);
        return Ok(Requeue::OnChange);
    };
    let plan = reconciler.decide(key, &observed);
    let plan = match Box::pin(reconciler.prepare(key, &mut observed, plan)).await? {
        ControlFlow::Continue(plan) => plan,
        ControlFlow::Break(requeue) => return Ok(requeue),
    };
    match Box::pin(reconciler.perform(key, observed, plan, carried)).await {
        Err(error) if error.kind == ErrorKind::Conflict => Ok(Requeue::After(R::AFTER_CONFLICT)),
        done => done,
    }
}

/// Reconciles every requested object until `stop`. `class` returns the scheduling class of an object, or `None` if the
/// object does not exist.
pub(crate) async fn run<R: Reconciler>(
    reconciler: R,
    asked: impl Stream<Item = Key>,
    at_once: u16,
    class: impl Fn(&Key) -> Option<SchedulingClass>,
    stop: impl Future<Output = ()>,
) {
    let reconciler = Arc::new(reconciler);
    let pass = move |key: Key| {
        let span = match R::KIND {
            Kind::MaasMachine => tracing::info_span!("pass", machine = %key),
            Kind::MaasCluster => tracing::info_span!("pass", cluster = %key),
        };
        let reconciler = reconciler.clone();
        async move { passes(reconciler.as_ref(), &key).await }.instrument(span)
    };
    dispatch(asked, at_once, class, pass, stop).await;
}

/// Returns when to requeue the object if nothing else triggers it.
async fn passes<R: Reconciler>(reconciler: &R, key: &Key) -> Option<Duration> {
    let mut carried = R::Carried::default();
    let mut result = once(reconciler, key, &mut carried).await;
    // Directly one after the other instead of back to the end of the queue, where an object in progress would wait for
    // all others.
    for _ in 1..R::IN_A_ROW {
        if !matches!(result, Ok(Requeue::NOW)) {
            break;
        }
        result = once(reconciler, key, &mut carried).await;
    }
    reconciler.leave(key, carried).await;
    match result {
        Ok(Requeue::OnChange) => None,
        Ok(Requeue::After(wait)) => Some(spread(wait)),
        Err(error) => {
            tracing::warn!(error = %chain(&error), "a {} could not be reconciled", R::KIND.as_str());
            Some(spread(AFTER_ERROR))
        }
    }
}

async fn once<R: Reconciler>(reconciler: &R, key: &Key, carried: &mut R::Carried) -> Result<Requeue> {
    let began = Instant::now();
    let result = tokio::time::timeout(DEADLINE, reconcile(reconciler, key, carried)).await.unwrap_or_else(|_| {
        let doing = format!("reconcile {} {key}", R::KIND.as_str());
        Err(Error::new(ErrorKind::Unavailable, doing, "it took too long"))
    });
    reconciler.metrics().reconciled(R::CONTROLLER, result.is_ok(), began.elapsed());
    result
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Asks for another pass immediately, for ever, and carries how many there were.
    struct Restless {
        metrics: Metrics,
        left: Mutex<Vec<usize>>,
    }

    impl Reconciler for Restless {
        const KIND: Kind = Kind::MaasMachine;
        const CONTROLLER: &'static str = "restless";
        const IN_A_ROW: usize = 3;
        const AFTER_CONFLICT: Duration = Duration::from_secs(1);
        type Observed = ();
        type Plan = ();
        type Carried = usize;

        fn metrics(&self) -> &Metrics {
            &self.metrics
        }

        async fn observe(&self, _: &Key, _: &mut usize) -> Result<Option<()>> {
            Ok(Some(()))
        }

        fn decide(&self, _: &Key, (): &()) {}

        async fn prepare(&self, _: &Key, (): &mut (), (): ()) -> Result<ControlFlow<Requeue>> {
            Ok(ControlFlow::Continue(()))
        }

        async fn perform(&self, _: &Key, (): (), (): (), carried: &mut usize) -> Result<Requeue> {
            *carried += 1;
            Ok(Requeue::NOW)
        }

        async fn leave(&self, _: &Key, carried: usize) {
            self.left.lock().unwrap().push(carried);
        }

        fn forget(&self, _: &Key) {}
    }

    #[tokio::test]
    async fn what_passes_in_a_row_put_off_is_done_after_the_last_one() {
        let reconciler = Restless { metrics: Metrics::new(), left: Mutex::default() };
        assert!(passes(&reconciler, &Key::new("n", "m")).await.is_some());
        assert_eq!(*reconciler.left.lock().unwrap(), [3]);
    }
}
