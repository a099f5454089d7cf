//! Writes a pending status while a pass waits.
//!
//! A status that the next pass overwrites immediately is not written: with a fast MAAS nobody could read it. With a
//! slow MAAS that is exactly when people read the status, so it is written after all once the wait gets long.

use std::time::Duration;

use capmaas_api::{MaasMachine, MaasMachineStatus};
use tokio::time::Instant;

use crate::kubernetes::{Guard, Key, Kind, Kubernetes};

/// How long the stored status may be outdated, over all waits of all passes that follow each other.
const SOON: Duration = Duration::from_secs(2);

/// A status that was not written because the next pass follows immediately.
#[derive(Debug)]
pub(super) struct Unwritten {
    pub(super) status: MaasMachineStatus,
    /// Since when the stored status is outdated: also the time of an earlier status that was not written either.
    pub(super) since: Instant,
}

/// Runs `work`, and writes `status` concurrently if the stored one has been outdated for long. `outdated` is since when
/// it is; `object` is updated to the stored version.
pub(super) async fn while_waiting<T>(
    kubernetes: &dyn Kubernetes,
    key: &Key,
    object: &mut MaasMachine,
    status: Option<&MaasMachineStatus>,
    outdated: &mut Option<Instant>,
    work: impl Future<Output = T>,
) -> T {
    let Some(status) = status else { return work.await };
    if object.status.as_ref() == Some(status) {
        *outdated = None;
        return work.await;
    }
    let mut work = Box::pin(work);
    let since = *outdated.get_or_insert_with(Instant::now);
    if let Ok(done) = tokio::time::timeout_at(since + SOON, work.as_mut()).await {
        return done;
    }
    let guard = Guard::of(object);
    let value = serde_json::to_value(status).unwrap_or_default();
    let (told, done) = tokio::join!(kubernetes.apply_status(Kind::MaasMachine, key, &guard, value), work);
    // If somebody else changed the object in the meantime, the next guarded write of this pass is refused.
    if let Ok(version) = told {
        object.metadata.resource_version = Some(version.resource_version);
        object.status = Some(status.clone());
        *outdated = None;
    }
    done
}

/// Writes a status that no pass will write any more. If somebody else has changed the object since, that wakes it.
pub(super) async fn write(kubernetes: &dyn Kubernetes, key: &Key, object: &MaasMachine, status: &MaasMachineStatus) {
    let value = serde_json::to_value(status).unwrap_or_default();
    if let Err(error) = kubernetes.apply_status(Kind::MaasMachine, key, &Guard::of(object), value).await {
        tracing::debug!(%error, "a status could not be written");
    }
}

#[cfg(test)]
mod tests {
    use capmaas_core::machine::Journal;

    use super::super::fixture::remembering;
    use super::*;
    use crate::clock::Clock;
    use crate::kubernetes::{self, MemoryKubernetes};

    #[tokio::test(start_paused = true)]
    async fn what_is_waited_for_is_told_when_the_wait_gets_long_and_not_before() {
        let (clock, _driver) = Clock::driven(jiff::Timestamp::UNIX_EPOCH);
        let (port, key) = (MemoryKubernetes::new(clock), Key::new("n", "m"));
        port.create(remembering("m", &Journal::new("u"))).unwrap();
        let mut object = port.maas_machine(&key).await.unwrap().unwrap();
        let status = MaasMachineStatus { machine_state: Some("Allocated".into()), ..MaasMachineStatus::default() };
        let short = tokio::time::sleep(Duration::from_millis(1_900));
        while_waiting(&port, &key, &mut object, Some(&status), &mut None, short).await;
        assert_eq!(port.maas_machine(&key).await.unwrap().unwrap().status, None);
        let look = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            port.maas_machine(&key).await.unwrap().unwrap().status
        };
        let (mut outdated, long) = (None, tokio::time::sleep(Duration::from_secs(20)));
        let long = while_waiting(&port, &key, &mut object, Some(&status), &mut outdated, long);
        let ((), told) = tokio::join!(long, look);
        assert_eq!(told.as_ref(), Some(&status), "while it is waited for");
        let patch = serde_json::json!({ "metadata": { "labels": { "a": "b" } } });
        let patched: kubernetes::Result<MaasMachine> = kubernetes::patch(&port, &key, &Guard::of(&object), patch).await;
        assert!(patched.is_ok(), "the version with the status is known");
        assert_eq!(outdated, None);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_that_are_short_one_by_one_count_together() {
        let (clock, _driver) = Clock::driven(jiff::Timestamp::UNIX_EPOCH);
        let (port, key) = (MemoryKubernetes::new(clock), Key::new("n", "m"));
        port.create(remembering("m", &Journal::new("u"))).unwrap();
        let mut object = port.maas_machine(&key).await.unwrap().unwrap();
        let mut outdated = None;
        for state in ["Ready", "Allocated"] {
            let status = MaasMachineStatus { machine_state: Some(state.into()), ..MaasMachineStatus::default() };
            let short = tokio::time::sleep(Duration::from_millis(1_900));
            while_waiting(&port, &key, &mut object, Some(&status), &mut outdated, short).await;
        }
        let stored = port.maas_machine(&key).await.unwrap().unwrap().status.unwrap();
        assert_eq!(stored.machine_state.as_deref(), Some("Allocated"));
    }
}
