//! One guard for every kind: what MAAS refused an object is not asked for again before its back-off is over (S26).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capmaas_core::backoff::{self, Request};
use capmaas_core::plan::{Outcome, Requeue};
use jiff::Timestamp;

use crate::key::Key;

/// Who was refused what. Clones share it; a restart forgets it.
#[derive(Clone, Default)]
pub struct Backoff(Arc<Mutex<backoff::Backoff<Key>>>);

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backoff").finish_non_exhaustive()
    }
}

impl Backoff {
    /// How long the object has still to wait before it may ask for this.
    pub(crate) fn held(&self, object: &Key, request: Request, now: Timestamp) -> Option<Duration> {
        self.lock().held(object, request, now)
    }

    /// It was refused. Answers how long to wait.
    pub(crate) fn refused(&self, object: &Key, request: Request, wait: Duration, now: Timestamp) -> Duration {
        self.lock().refused(object, request, wait, now)
    }

    pub(crate) fn done(&self, object: &Key, request: Request, now: Timestamp) {
        self.lock().done(object, request, now);
    }

    /// When to look again at an object whose effect ended like this.
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

    /// The object is gone.
    pub(crate) fn forget(&self, object: &Key) {
        self.lock().forget(object);
    }

    fn lock(&self) -> MutexGuard<'_, backoff::Backoff<Key>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
