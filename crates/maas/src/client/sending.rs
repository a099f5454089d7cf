//! What a request needs before it is sent: a slot, a server that answers, and for writes the caller's permission.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::{Client, LONGEST_DEADLINE};
use crate::breaker::Admitted;
use crate::call::Call;
use crate::error::{Effect, Error, ErrorKind, Result};

/// How long a write waits for a slot before it is not sent at all: a caller that journaled the intent to send counts
/// from then.
const PLACE_DEADLINE: Duration = Duration::from_secs(15);

impl Client {
    /// How long a write waits for a slot before it is not sent.
    pub fn place_deadline(&self) -> Duration {
        PLACE_DEADLINE.min(self.inner.write_deadline)
    }

    /// Waits for a slot and keeps it for this client, so that its requests no longer queue. Meant for one effect with
    /// several successive requests; the slot is freed with the last clone.
    pub async fn reserve(&self, wait: Duration) -> Result<Self> {
        const OPERATION: &str = "reserve";
        if self.place.is_some() {
            return Ok(self.clone());
        }
        match tokio::time::timeout(wait, self.inner.limiter.place()).await {
            Ok(Some(place)) => Ok(Self { place: Some(Arc::new(place)), ..self.clone() }),
            _ => Err(not_sent(OPERATION, waited(wait))),
        }
    }

    /// This client, with a limit: it does not send a write after this time.
    #[must_use]
    pub fn sending_within(&self, limit: Duration) -> Self {
        Self { send_by: Some(Instant::now() + limit.min(LONGEST_DEADLINE)), ..self.clone() }
    }

    /// Waiting for a slot is limited as well, but does not count against the answer: a request sent with a second left
    /// would be abandoned in the middle of its effect.
    pub(super) async fn place(
        &self,
        call: &Call,
        deadline: Option<Instant>,
        allowed: Duration,
    ) -> Result<Option<OwnedSemaphorePermit>> {
        if self.place.is_some() {
            return Ok(None);
        }
        let asked_at = Instant::now();
        let wait = if call.method == Method::GET { allowed } else { self.place_deadline() };
        let mut until = deadline.unwrap_or(asked_at + wait);
        if let (Some(send_by), false) = (self.send_by, call.method == Method::GET) {
            until = until.min(send_by);
        }
        let place = timeout_at(until, self.inner.limiter.place()).await;
        place.map_err(|_| not_sent(call.operation, waited(until - asked_at)))
    }

    pub(super) fn admit(&self, call: &Call) -> Result<Option<Admitted>> {
        let Some(breaker) = &self.inner.breaker else { return Ok(None) };
        breaker.admit().map(Some).map_err(|since| {
            self.inner.observer.held_back(call.operation);
            let began = self.inner.environment.unix_seconds().saturating_sub(since.elapsed().as_secs());
            let message = format!(
                "MAAS at {} does not answer since {}; one request at a time is sent to see whether it is back",
                self.inner.endpoint.origin(),
                time_of_day(began)
            );
            not_sent(call.operation, message)
        })
    }

    /// The last check before a write is sent: it is not too late, and the caller may still write.
    pub(super) fn check_before_write(&self, call: &Call) -> Result<()> {
        if self.send_by.is_some_and(|send_by| Instant::now() > send_by) {
            return Err(not_sent(call.operation, "not sent: it took too long to come to it".to_owned()));
        }
        let may_write = self.inner.before_writes.as_ref().map_or(Ok(()), |may_write| may_write());
        may_write.map_err(|why| not_sent(call.operation, format!("not sent: {why}")))
    }
}

fn not_sent(operation: &'static str, message: String) -> Error {
    Error::new(ErrorKind::Unreachable, operation, Effect::None, message).after_deadline()
}

fn waited(wait: Duration) -> String {
    format!("not sent: {} s of waiting for earlier requests to end", wait.as_secs())
}

/// `10:20:31 UTC`. Constant while a server does not answer, so that repeated messages are identical.
fn time_of_day(unix_seconds: u64) -> String {
    let (hours, minutes, seconds) = (unix_seconds / 3600 % 24, unix_seconds / 60 % 60, unix_seconds % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02} UTC")
}
