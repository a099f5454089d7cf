//! What a program may count about requests.

use std::time::Duration;

use crate::ErrorKind;

/// One try of one request, for metrics. Holds no identifiers and no secrets, so every field may be a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observation {
    /// The call, for example `machines.allocate`.
    pub operation: &'static str,
    /// GET, POST, PUT or DELETE.
    pub method: &'static str,
    /// The path with its variable parts in braces, for example `machines/{system_id}/?op=deploy`.
    pub template: &'static str,
    /// 1 for the first try.
    pub attempt: u32,
    /// None if there was no answer.
    pub status: Option<u16>,
    /// None if the answer was the wanted one.
    pub error: Option<ErrorKind>,
    /// From sending to the whole answer.
    pub duration: Duration,
    /// How long the try waited for a place among the requests under way.
    pub queued: Duration,
}

/// Is told of every try. Called on the task that made the request: it should count and return.
pub trait Observer: Send + Sync + 'static {
    /// A try has ended.
    fn observe(&self, observation: &Observation);

    /// A request was not sent, because the server does not answer.
    fn held_back(&self, operation: &'static str) {
        let _ = operation;
    }
}

impl<F: Fn(&Observation) + Send + Sync + 'static> Observer for F {
    fn observe(&self, observation: &Observation) {
        self(observation);
    }
}

/// Counts nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unobserved;

impl Observer for Unobserved {
    fn observe(&self, _: &Observation) {}
}
