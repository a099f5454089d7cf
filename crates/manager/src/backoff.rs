//! Backoff for all kinds: a request that MAAS refused is not repeated before its backoff is over (S26).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capmaas_core::backoff::{self, Request};
use capmaas_core::plan::{Outcome, Requeue};
use jiff::Timestamp;

use crate::key::Key;

/// Refused requests per object. Clones share the state; a restart drops it.
#[derive(Clone, Default)]
pub struct Backoff(Arc<Mutex<backoff::Backoff<Key>>>);

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backoff").finish_non_exhaustive()
    }
}

impl Backoff {
    /// How long the object still has to wait before it may repeat this request.
    pub(crate) fn held(&self, object: &Key, request: Request, now: Timestamp) -> Option<Duration> {
        self.lock().held(object, request, now)
    }

    /// The request was refused. Returns how long to wait.
    pub(crate) fn refused(&self, object: &Key, request: Request, wait: Duration, now: Timestamp) -> Duration {
        self.lock().refused(object, request, wait, now)
    }

    pub(crate) fn done(&self, object: &Key, request: Request, now: Timestamp) {
        self.lock().done(object, request, now);
    }

    /// When to requeue an object after this outcome of its effect.
    pub(crate) fn conclude<A>(
        &self,
        object: &Key,
        request: Option<Request>,
        outcome: &Outcome<A>,
        requeue: Requeue,
        now: Timestamp,
    ) -> Requeue {
        match (request, outcome, requeue) {
            (Some(request), Outcome::Done(_), _) => {
                self.done(object, request, now);
                requeue
            }
            (Some(request), _, Requeue::After(wait)) => Requeue::After(self.refused(object, request, wait, now)),
            _ => requeue,
        }
    }

    /// Drops an object that is gone.
    pub(crate) fn forget(&self, object: &Key) {
        self.lock().forget(object);
    }

    fn lock(&self) -> MutexGuard<'_, backoff::Backoff<Key>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
