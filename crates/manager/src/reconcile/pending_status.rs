//! Writes a pending status while a pass waits.
//!
//! A status that the next pass overwrites immediately is not written: with a fast MAAS nobody could read it. With a
//! slow MAAS that is exactly when people read the status, so it is written after all once the wait gets long.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::object::HasStatus;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::kubernetes::{ErrorKind, Guard, Key, Kind, Kubernetes, OwnKind};

/// How long the stored status may be outdated, over all waits of all passes that follow each other.
const SOON: Duration = Duration::from_secs(2);

/// Runs `work`, and writes `status` concurrently if the stored one has been outdated for long. `outdated` is since when
/// it is; `object` is updated to the stored version.
pub(crate) async fn while_waiting<K, T>(
    kubernetes: &dyn Kubernetes,
    key: &Key,
    object: &mut K,
    status: Option<&K::Status>,
    outdated: &mut Option<Instant>,
    work: impl Future<Output = T>,
) -> T
where
    K: OwnKind + HasStatus<Status: Clone + PartialEq + Serialize>,
{
    let Some(status) = status else { return work.await };
    if object.status() == Some(status) {
        *outdated = None;
        return work.await;
    }
    let mut work = Box::pin(work);
    let since = *outdated.get_or_insert_with(Instant::now);
    if let Ok(done) = tokio::time::timeout_at(since + SOON, work.as_mut()).await {
        return done;
    }
    let value = serde_json::to_value(status).unwrap_or_default();
    let (told, done) = tokio::join!(tell(kubernetes, key, object, value), work);
    match told {
        Told::ThisVersion(version) => {
            object.meta_mut().resource_version = Some(version.resource_version);
            *object.status_mut() = Some(status.clone());
            *outdated = None;
        }
        // The next guarded write of this pass is refused, because the pass has not seen that version.
        Told::AnotherVersion => *outdated = None,
        Told::Nobody => {}
    }
    done
}

enum Told {
    ThisVersion(Guard),
    /// Somebody changed the object meanwhile, but not what the status is about.
    AnotherVersion,
    Nobody,
}

async fn tell<K: OwnKind>(kubernetes: &dyn Kubernetes, key: &Key, object: &K, status: Value) -> Told {
    match kubernetes.apply_status(K::KIND, key, &Guard::of(object), status.clone()).await {
        Ok(version) => return Told::ThisVersion(version),
        Err(error) if error.kind == ErrorKind::Conflict => {}
        Err(_) => return Told::Nobody,
    }
    let now = match K::KIND {
        Kind::MaasMachine => kubernetes.maas_machine(key).await.map(|now| now.map(|now| now.metadata)),
        Kind::MaasCluster => kubernetes.maas_cluster(key).await.map(|now| now.map(|now| now.metadata)),
    };
    let (Ok(Some(now)), seen) = (now, object.meta()) else { return Told::Nobody };
    let about = |meta: &ObjectMeta| (meta.uid.clone(), meta.generation, meta.deletion_timestamp.is_some());
    if about(&now) != about(seen) {
        return Told::Nobody;
    }
    let guard = Guard { resource_version: now.resource_version.unwrap_or_default() };
    match kubernetes.apply_status(K::KIND, key, &guard, status).await {
        Ok(_) => Told::AnotherVersion,
        Err(_) => Told::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use capmaas_api::{MaasMachine, MaasMachineStatus};
    use serde_json::json;

    use super::*;
    use crate::clock::Clock;
    use crate::kubernetes::{self, MemoryKubernetes};

    fn machine() -> Value {
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
            "metadata": { "name": "m", "namespace": "n" },
            "spec": { "image": "jammy", "minCPU": 1, "minMemory": 1024 },
        })
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_waited_for_is_told_when_the_wait_gets_long_and_not_before() {
        let (clock, _driver) = Clock::driven(jiff::Timestamp::UNIX_EPOCH);
        let (port, key) = (MemoryKubernetes::new(clock), Key::new("n", "m"));
        port.create(machine()).unwrap();
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
        let patch = json!({ "metadata": { "labels": { "a": "b" } } });
        let patched: kubernetes::Result<MaasMachine> = kubernetes::patch(&port, &key, &Guard::of(&object), patch).await;
        assert!(patched.is_ok(), "the version with the status is known");
        assert_eq!(outdated, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_is_told_although_somebody_changed_the_metadata_and_not_if_it_was_the_spec() {
        let (clock, _driver) = Clock::driven(jiff::Timestamp::UNIX_EPOCH);
        let (port, key) = (MemoryKubernetes::new(clock), Key::new("n", "m"));
        port.create(machine()).unwrap();
        let metadata = json!({ "metadata": { "labels": { "a": "b" } } });
        for (change, state, is_told) in
            [(metadata, "Ready", true), (json!({ "spec": { "minCPU": 2 } }), "Allocated", false)]
        {
            let mut object = port.maas_machine(&key).await.unwrap().unwrap();
            port.edit("MaasMachine", &key, &change).unwrap();
            let status = MaasMachineStatus { machine_state: Some(state.into()), ..MaasMachineStatus::default() };
            let (mut outdated, long) = (None, tokio::time::sleep(Duration::from_secs(20)));
            while_waiting(&port, &key, &mut object, Some(&status), &mut outdated, long).await;
            let stored = port.maas_machine(&key).await.unwrap().unwrap().status.and_then(|status| status.machine_state);
            assert_eq!((stored.as_deref() == Some(state), outdated.is_none()), (is_told, is_told));
            let patched: kubernetes::Result<MaasMachine> =
                kubernetes::patch(&port, &key, &Guard::of(&object), json!({ "metadata": { "labels": { "c": "d" } } }))
                    .await;
            assert!(patched.is_err(), "the pass has not seen the change");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waits_that_are_short_one_by_one_count_together() {
        let (clock, _driver) = Clock::driven(jiff::Timestamp::UNIX_EPOCH);
        let (port, key) = (MemoryKubernetes::new(clock), Key::new("n", "m"));
        port.create(machine()).unwrap();
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
