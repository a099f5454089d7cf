//! Request metrics.

use std::time::Duration;

use crate::ErrorKind;

/// One attempt of one request, for metrics. Contains no identifiers and no secrets, so every field may be a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observation {
    /// The call, for example `machines.allocate`.
    pub operation: &'static str,
    /// GET, POST, PUT or DELETE.
    pub method: &'static str,
    /// The path with its variable parts in braces, for example `machines/{system_id}/?op=deploy`.
    pub template: &'static str,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// None without an answer.
    pub status: Option<u16>,
    /// None on success.
    pub error: Option<ErrorKind>,
    /// From sending to the complete answer.
    pub duration: Duration,
    /// How long the attempt waited for a slot.
    pub queued: Duration,
}

/// Receives every attempt. Called on the task that made the request, so it should return quickly.
pub trait Observer: Send + Sync + 'static {
    /// Called when an attempt has ended.
    fn observe(&self, observation: &Observation);

    /// Called when a request was not sent because the server does not answer.
    fn held_back(&self, operation: &'static str) {
        let _ = operation;
    }
}

impl<F: Fn(&Observation) + Send + Sync + 'static> Observer for F {
    fn observe(&self, observation: &Observation) {
        self(observation);
    }
}

/// Ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unobserved;

impl Observer for Unobserved {
    fn observe(&self, _: &Observation) {}
}
