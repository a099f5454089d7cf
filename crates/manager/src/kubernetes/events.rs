//! Events about objects, for `kubectl describe`.
//!
//! kube's recorder keeps every event in full for six minutes, and scans all of them whenever one is published. With ten
//! thousand machines that took 80 MiB (docs/numbers.md). Here a short entry is kept for a limited number of events.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capmaas_api::{GROUP, VERSION};
use capmaas_core::text::{beginning, first_lines};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use super::ObjectEvent;
use super::kube_client::FIELD_MANAGER;

/// An event that recurs within this time increments the count instead of creating a new one, as in client-go.
const LASTING: SignedDuration = SignedDuration::from_mins(6);
/// When the younger generation holds this many events, it becomes the older one, and the previous older one is dropped.
const REMEMBERED: usize = 500;
/// The API server refuses longer notes.
const LONGEST_NOTE: usize = 1024;
/// The part of an object's name used in an event's name, which leaves room for a numeric suffix.
const LONGEST_NAME: usize = 230;

/// Publishes events. Cheap to clone.
#[derive(Clone)]
pub(super) struct Recorder {
    client: Client,
    instance: String,
    recent: Arc<Mutex<Recent>>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("instance", &self.instance).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Publishes in the name of this pod, if it has a name.
    pub(super) fn new(client: Client, pod: Option<String>) -> Self {
        Self { client, instance: pod.unwrap_or_else(|| FIELD_MANAGER.to_owned()), recent: Arc::default() }
    }

    /// Publishes an event, or counts it if it recurs.
    pub(super) async fn publish(&self, event: &ObjectEvent) -> kube::Result<()> {
        let now = Timestamp::now();
        let events: Api<Event> = Api::namespaced(self.client.clone(), &event.key.namespace);
        let before = self.recent().find(event, now);
        if let Some(Line { name, count, .. }) = before {
            let count = count.saturating_add(1);
            let again = json!({ "series": { "count": count, "lastObservedTime": MicroTime(now) } });
            match events.patch(&name, &PatchParams::default(), &Patch::Merge(&again)).await {
                Ok(_) => {
                    self.recent().note(event.clone(), Line { name, count, last: now });
                    return Ok(());
                }
                // Deleted in the meantime.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        let name = name(event, now);
        events.create(&PostParams::default(), &self.stored(event, name.clone(), now)).await?;
        self.recent().note(event.clone(), Line { name, count: 1, last: now });
        Ok(())
    }

    fn stored(&self, event: &ObjectEvent, name: String, now: Timestamp) -> Event {
        let ObjectEvent { kind, key, uid, warning, reason, message } = event;
        Event {
            metadata: ObjectMeta { name: Some(name), namespace: Some(key.namespace.clone()), ..ObjectMeta::default() },
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(FIELD_MANAGER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            regarding: Some(ObjectReference {
                api_version: Some(format!("{GROUP}/{VERSION}")),
                kind: Some(kind.as_str().to_owned()),
                namespace: Some(key.namespace.clone()),
                name: Some(key.name.clone()),
                uid: Some(uid.clone()),
                ..ObjectReference::default()
            }),
            type_: Some(if *warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(reason.clone()),
            action: Some(reason.clone()),
            note: Some(first_lines(message, LONGEST_NOTE).to_owned()),
            ..Event::default()
        }
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(event: &ObjectEvent, now: Timestamp) -> String {
    let object = beginning(&event.key.name, LONGEST_NAME).trim_end_matches(['.', '-']);
    format!("{object}.{:x}", now.as_nanosecond())
}

/// Recent events, bounded: an event that is dropped too early is merely published anew instead of being counted.
#[derive(Debug, Default)]
struct Recent {
    younger: HashMap<ObjectEvent, Line>,
    older: HashMap<ObjectEvent, Line>,
}

/// The event as stored in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    name: String,
    count: i32,
    last: Timestamp,
}

impl Recent {
    fn find(&self, event: &ObjectEvent, now: Timestamp) -> Option<Line> {
        let line = self.younger.get(event).or_else(|| self.older.get(event))?;
        (now.duration_since(line.last) < LASTING).then(|| line.clone())
    }

    fn note(&mut self, event: ObjectEvent, line: Line) {
        if self.younger.len() >= REMEMBERED && !self.younger.contains_key(&event) {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(event, line);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Key, Kind};
    use super::*;

    fn event(message: &str) -> ObjectEvent {
        ObjectEvent {
            kind: Kind::MaasMachine,
            key: Key::new("team", "m1"),
            uid: "u1".into(),
            warning: true,
            reason: "MachineReleaseFailed".into(),
            message: message.into(),
        }
    }

    fn line(count: i32, last: Timestamp) -> Line {
        Line { name: "m1.1".into(), count, last }
    }

    fn minutes(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
    }

    #[test]
    fn only_the_same_sentence_is_the_same_and_only_for_a_while() {
        let mut recent = Recent::default();
        recent.note(event("it is locked"), line(1, minutes(0)));
        assert_eq!(recent.find(&event("it is locked"), minutes(5)), Some(line(1, minutes(0))));
        assert_eq!(recent.find(&event("it is off"), minutes(5)), None);
        assert_eq!(recent.find(&event("it is locked"), minutes(6)), None);
        recent.note(event("it is locked"), line(2, minutes(5)));
        assert_eq!(recent.find(&event("it is locked"), minutes(10)), Some(line(2, minutes(5))));
    }

    #[test]
    fn however_much_happens_only_the_latest_is_remembered() {
        let mut recent = Recent::default();
        for number in 0..10 * REMEMBERED {
            recent.note(event(&number.to_string()), line(1, minutes(0)));
            assert!(recent.younger.len() + recent.older.len() <= 2 * REMEMBERED);
        }
        for number in 9 * REMEMBERED..10 * REMEMBERED {
            assert!(recent.find(&event(&number.to_string()), minutes(1)).is_some(), "{number}");
        }
        assert!(recent.find(&event("0"), minutes(1)).is_none());
    }

    #[test]
    fn names_and_notes_are_as_long_as_the_api_server_takes_them() {
        let mut long = event(&"ü".repeat(1000));
        long.key.name = format!("{}-{}", "m".repeat(LONGEST_NAME - 1), "x".repeat(20));
        let name = name(&long, minutes(1));
        assert!(name.starts_with(&"m".repeat(LONGEST_NAME - 1)) && !name.contains('-') && name.len() <= 253, "{name}");
        assert_eq!(beginning(&long.message, LONGEST_NOTE).chars().count(), 512);
        assert_eq!(beginning("short", LONGEST_NOTE), "short");
    }
}
