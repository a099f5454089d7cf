//! Writes a pending status while a pass waits.
//!
//! A status that the next pass overwrites immediately is not written: with a fast MAAS nobody could read it. With a
//! slow MAAS that is exactly when people read the status, so it is written after all once the wait gets long.

use std::time::Duration;

use capmaas_api::{MaasMachine, MaasMachineStatus};

use crate::kubernetes::{Guard, Key, Kind, Kubernetes};

/// How long a pending status may stay unwritten during a wait.
const SOON: Duration = Duration::from_secs(2);

/// Runs `work`, and writes `status` concurrently if that takes long. `object` is then updated to the stored version.
pub(super) async fn while_waiting<T>(
    kubernetes: &dyn Kubernetes,
    key: &Key,
    object: &mut MaasMachine,
    status: Option<&MaasMachineStatus>,
    work: impl Future<Output = T>,
) -> T {
    let Some(status) = status.filter(|status| object.status.as_ref() != Some(*status)) else { return work.await };
    let mut work = Box::pin(work);
    if let Ok(done) = tokio::time::timeout(SOON, work.as_mut()).await {
        return done;
    }
    let guard = Guard::of(object);
    let value = serde_json::to_value(status).unwrap_or_default();
    let (told, done) = tokio::join!(kubernetes.apply_status(Kind::MaasMachine, key, &guard, value), work);
    // If somebody else changed the object in the meantime, the next guarded write of this pass is refused.
    if let Ok(version) = told {
        object.metadata.resource_version = Some(version.resource_version);
        object.status = Some(status.clone());
    }
    done
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
        while_waiting(&port, &key, &mut object, Some(&status), short).await;
        assert_eq!(port.maas_machine(&key).await.unwrap().unwrap().status, None);
        let look = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            port.maas_machine(&key).await.unwrap().unwrap().status
        };
        let long = while_waiting(&port, &key, &mut object, Some(&status), tokio::time::sleep(Duration::from_secs(20)));
        let ((), told) = tokio::join!(long, look);
        assert_eq!(told.as_ref(), Some(&status), "while it is waited for");
        let patch = serde_json::json!({ "metadata": { "labels": { "a": "b" } } });
        let patched: kubernetes::Result<MaasMachine> = kubernetes::patch(&port, &key, &Guard::of(&object), patch).await;
        assert!(patched.is_ok(), "the version with the status is known");
    }
}
