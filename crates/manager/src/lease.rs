//! The leader Lease: one manager writes at a time, and a manager that cannot prove that it leads stops (S23).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use capmaas_core::lease::{LeaseRecord, Step, Timing, evaluate, may_write, released};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::Instant;

/// Proof that this manager may still write, to be checked right before every write.
///
/// A process that was frozen (a stopped machine, a busy disk) resumes in the middle of its work, long after another one
/// took over; only a clock can tell it so.
#[derive(Clone, Default)]
pub struct Fence {
    held: Option<Arc<Held>>,
}

struct Held {
    timing: Timing,
    last: Mutex<Option<(Instant, SystemTime)>>,
}

/// This manager must no longer write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the leader lease was not renewed in time, so another manager may be active: nothing is written")]
pub struct NotLeader;

impl Fence {
    /// A fence that always permits writes: for a manager without leader election, and for simulations.
    pub fn open() -> Self {
        Self::default()
    }

    pub(crate) fn closed(timing: Timing) -> Self {
        Self { held: Some(Arc::new(Held { timing, last: Mutex::default() })) }
    }

    /// Whether a write may be sent now.
    pub fn check(&self) -> Result<(), NotLeader> {
        let Some(held) = &self.held else { return Ok(()) };
        let last = *held.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((instant, system)) = last else { return Err(NotLeader) };
        // The monotonic clock may stop while a machine is suspended, and the system clock may be set back. Both must
        // agree.
        let ours =
            |since: Duration| may_write(SignedDuration::try_from(since).unwrap_or(SignedDuration::MAX), &held.timing);
        let by_system = system.elapsed().unwrap_or(Duration::ZERO);
        if ours(instant.elapsed()) && ours(by_system) { Ok(()) } else { Err(NotLeader) }
    }

    fn renewed(&self, began: (Instant, SystemTime)) {
        if let Some(held) = &self.held {
            *held.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(began);
        }
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence").field("open", &self.check().is_ok()).finish()
    }
}

/// One candidate in the election.
pub struct Election {
    api: Api<Lease>,
    name: String,
    me: String,
    timing: Timing,
    fence: Fence,
    /// The Lease as last observed, and since when it has been unchanged.
    seen: Option<(Lease, Instant)>,
}

impl Election {
    /// A candidate for the Lease `name` in `namespace`. Its identity is different at every start.
    pub fn new(client: Client, namespace: &str, name: &str, timing: Timing) -> Self {
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "capmaas-manager".to_owned());
        let me = format!("{host}_{:032x}", rand::random::<u128>());
        let api = Api::namespaced(client, namespace);
        Self { api, name: name.to_owned(), me, timing, fence: Fence::closed(timing), seen: None }
    }

    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Waits until the Lease is ours.
    pub async fn win(&mut self) {
        let mut said = String::new();
        loop {
            let sentence = match self.attempt().await {
                Ok(None) => {
                    tracing::info!(lease = %self.name, me = %self.me, "leading");
                    return;
                }
                Ok(Some(holder)) => format!("another manager leads: {holder} holds the Lease {}", self.name),
                Err(why) => format!("cannot get the Lease {}: {why}", self.name),
            };
            if sentence != said {
                tracing::info!("{sentence}");
                said.clone_from(&sentence);
            }
            tokio::time::sleep(self.retry()).await;
        }
    }

    /// Renews until that fails for too long. Then another manager may lead: the caller ends the process.
    pub async fn keep(&mut self) -> NotLeader {
        loop {
            tokio::time::sleep(self.retry()).await;
            match self.attempt().await {
                Ok(None) => {}
                Ok(Some(holder)) => {
                    tracing::error!(%holder, "the leader lease was taken by another manager");
                    return NotLeader;
                }
                Err(why) => tracing::warn!("cannot renew the leader lease: {why}"),
            }
            if let Err(lost) = self.fence.check() {
                return lost;
            }
        }
    }

    /// Releases the Lease after the last write, so that the next manager need not wait.
    pub async fn give_up(&mut self) {
        let Some((lease, _)) = self.seen.take() else { return };
        let record = record_of(&lease);
        if record.holder() != Some(self.me.as_str()) {
            return;
        }
        let body = with(&lease, &released(&record, Timestamp::now()));
        let done =
            tokio::time::timeout(self.retry(), self.api.replace(&self.name, &PostParams::default(), &body)).await;
        if !matches!(done, Ok(Ok(_))) {
            tracing::warn!("the leader lease could not be released; the next manager waits until it expires");
        }
    }

    fn retry(&self) -> Duration {
        self.timing.retry.unsigned_abs()
    }

    /// One read, and a write if it is due: `None` if we lead, otherwise the leader.
    async fn attempt(&mut self) -> Result<Option<String>, String> {
        let began = (Instant::now(), SystemTime::now());
        // Bounded, so that a hanging connection leaves time for another attempt before the deadline.
        let limit = (self.timing.renew_deadline / 2).unsigned_abs();
        let outcome =
            tokio::time::timeout(limit, self.read_and_write()).await.map_err(|_| "no answer in time".to_owned())?;
        if let Ok(None) = &outcome {
            self.fence.renewed(began);
        }
        outcome.map_err(|error| error.to_string())
    }

    async fn read_and_write(&mut self) -> Result<Option<String>, kube::Error> {
        let found = self.api.get_opt(&self.name).await?;
        let unchanged = match (&found, &self.seen) {
            (Some(now), Some((before, since))) if now.metadata.resource_version == before.metadata.resource_version => {
                since.elapsed()
            }
            (Some(now), _) => {
                self.seen = Some((now.clone(), Instant::now()));
                Duration::ZERO
            }
            (None, _) => Duration::ZERO,
        };
        let unchanged = SignedDuration::try_from(unchanged).unwrap_or(SignedDuration::MAX);
        let record = found.as_ref().map(record_of);
        match evaluate(record.as_ref(), unchanged, &self.me, &self.timing, Timestamp::now()) {
            Step::Wait { holder } => Ok(Some(holder)),
            Step::Write(record) => {
                let params = PostParams::default();
                // A replace carries the version that was read, so of two managers that write at once one is refused.
                let written = match &found {
                    Some(lease) => self.api.replace(&self.name, &params, &with(lease, &record)).await?,
                    None => self.api.create(&params, &with(&self.new_lease(), &record)).await?,
                };
                self.seen = Some((written, Instant::now()));
                Ok(None)
            }
        }
    }

    fn new_lease(&self) -> Lease {
        Lease { metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() }, spec: None }
    }
}

fn record_of(lease: &Lease) -> LeaseRecord {
    let spec = lease.spec.clone().unwrap_or_default();
    LeaseRecord {
        holder: spec.holder_identity,
        duration_seconds: spec.lease_duration_seconds,
        acquired: spec.acquire_time.map(|time| time.0),
        renewed: spec.renew_time.map(|time| time.0),
        transitions: spec.lease_transitions,
    }
}

fn with(lease: &Lease, record: &LeaseRecord) -> Lease {
    let spec = LeaseSpec {
        holder_identity: record.holder.clone(),
        lease_duration_seconds: record.duration_seconds,
        acquire_time: record.acquired.map(MicroTime),
        renew_time: record.renewed.map(MicroTime),
        lease_transitions: record.transitions,
        ..lease.spec.clone().unwrap_or_default()
    };
    Lease { metadata: lease.metadata.clone(), spec: Some(spec) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn s23_the_fence_closes_by_itself_when_the_lease_is_not_renewed() {
        let fence = Fence::closed(Timing::default());
        assert_eq!(fence.check(), Err(NotLeader), "never led");
        fence.renewed((Instant::now(), SystemTime::now()));
        assert_eq!(fence.check(), Ok(()));
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(fence.check(), Err(NotLeader), "frozen for longer than the deadline");
    }

    #[tokio::test]
    async fn s23_the_fence_closes_when_the_machine_was_suspended() {
        let fence = Fence::closed(Timing::default());
        let past = SystemTime::now() - Duration::from_secs(3600);
        fence.renewed((Instant::now(), past));
        assert_eq!(fence.check(), Err(NotLeader));
    }

    #[test]
    fn without_an_election_the_fence_is_open() {
        assert_eq!(Fence::open().check(), Ok(()));
    }
}
