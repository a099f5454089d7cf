//! One engine for every kind of object. What its verbs mean, a [`Reconciler`] says for each kind; how long a pass may take, what follows
//! from an error, who comes next and how what was decided is told is the same for all.

pub(crate) mod change_filter;
mod dispatch;
mod patch;
mod writing;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capmaas_core::plan::Requeue;
use futures::Stream;
use tracing::Instrument as _;

pub(crate) use self::dispatch::Turn;
use self::dispatch::{dispatch, spread};
pub(crate) use self::patch::of as patch_of;
pub(crate) use self::writing::{is_still_wanted, tell};
use crate::kubernetes::{Error, ErrorKind, Key, Kind, Result};
use crate::metrics::Metrics;

/// After an error that is not MAAS's (those are decided upon).
const AFTER_ERROR: Duration = Duration::from_secs(10);
/// A pass that takes longer hangs: every call in it has a deadline of its own that is far shorter.
const DEADLINE: Duration = Duration::from_secs(600);
/// From the decision to the request: what took longer is not sent, because what is written down about it counts from the decision (S2).
pub const SEND: Duration = Duration::from_secs(20);

/// What is done about one kind of object. Whatever a crash cuts off, the next pass finds out and goes on.
pub(crate) trait Reconciler: Send + Sync + 'static {
    const KIND: Kind;
    /// How metrics call it.
    const CONTROLLER: &'static str;
    /// So many passes follow each other at most when each asks for the next one at once; then it is others' turn.
    const IN_A_ROW: usize;
    /// When to look again if somebody else wrote in between.
    const AFTER_CONFLICT: Duration;
    /// Everything that a decision rests on, and what performing it needs besides.
    type Observed: Send;
    type Plan: Send;
    /// What a pass has learnt that the next one, if it follows at once, need not ask for again.
    type Carried: Default + Send;

    fn metrics(&self) -> &Metrics;

    /// Every read; `None` if the object is gone.
    fn observe(
        &self,
        key: &Key,
        carried: &mut Self::Carried,
    ) -> impl Future<Output = Result<Option<Self::Observed>>> + Send;

    fn decide(&self, key: &Key, observed: &Self::Observed) -> Self::Plan;

    /// What has to be had before a plan is performed, such as a place among the requests to MAAS or a fresh look. The plan may be
    /// another one then, or nothing happens and the object is looked at again.
    fn prepare(
        &self,
        key: &Key,
        observed: &mut Self::Observed,
        plan: Self::Plan,
    ) -> impl Future<Output = Result<ControlFlow<Requeue, Self::Plan>>> + Send;

    /// Every write: what is remembered, at most one effect and what follows from its answer, the status.
    fn perform(
        &self,
        key: &Key,
        observed: Self::Observed,
        plan: Self::Plan,
        carried: &mut Self::Carried,
    ) -> impl Future<Output = Result<Requeue>> + Send;

    /// The object is gone.
    fn forget(&self, key: &Key);
}

/// One pass over one object.
pub(crate) async fn reconcile<R: Reconciler>(reconciler: &R, key: &Key, carried: &mut R::Carried) -> Result<Requeue> {
    // On the heap: everything that a pass holds across its many calls is large.
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

/// Takes care of every object that is asked for until `stop`. `turn` tells in whose turn one is looked at; `None` if there is no such
/// object.
pub(crate) async fn run<R: Reconciler>(
    reconciler: R,
    asked: impl Stream<Item = Key>,
    at_once: u16,
    turn: impl Fn(&Key) -> Option<Turn>,
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
    dispatch(asked, at_once, turn, pass, stop).await;
}

/// Answers when the object is to be looked at again, if nothing happens before.
async fn passes<R: Reconciler>(reconciler: &R, key: &Key) -> Option<Duration> {
    let mut carried = R::Carried::default();
    let mut result = once(reconciler, key, &mut carried).await;
    // One after the other instead of back to the end of the queue, where an object that is half prepared waits for all others.
    for _ in 1..R::IN_A_ROW {
        if !matches!(result, Ok(Requeue::NOW)) {
            break;
        }
        result = once(reconciler, key, &mut carried).await;
    }
    match result {
        Ok(Requeue::OnChange) => None,
        Ok(Requeue::After(wait)) => Some(spread(wait)),
        Err(error) => {
            tracing::warn!(error = %chain(&error), "a {} could not be looked after", R::KIND.as_str());
            Some(spread(AFTER_ERROR))
        }
    }
}

async fn once<R: Reconciler>(reconciler: &R, key: &Key, carried: &mut R::Carried) -> Result<Requeue> {
    let began = Instant::now();
    let result = tokio::time::timeout(DEADLINE, reconcile(reconciler, key, carried)).await.unwrap_or_else(|_| {
        let doing = format!("look after {} {key}", R::KIND.as_str());
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
