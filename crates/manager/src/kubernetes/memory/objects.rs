//! Stored objects and the API server's own bookkeeping: versions, generations, finalizers, owners.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::{Error, ErrorKind, Guard, Key, Result};

/// Kind and key of a stored object.
pub(super) type Id = (String, Key);

#[derive(Debug, Default)]
pub(super) struct Objects {
    stored: BTreeMap<Id, Value>,
    versions: u64,
    uids: u64,
    /// Each object as left by every write; `None` if it is gone.
    changes: VecDeque<(Id, Option<Value>)>,
}

impl Objects {
    pub(super) fn get(&self, kind: &str, key: &Key) -> Option<&Value> {
        self.stored.get(&(kind.to_owned(), key.clone()))
    }

    pub(super) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a Key, &'a Value)> {
        self.stored.iter().filter(move |((of, _), _)| of == kind).map(|((_, key), object)| (key, object))
    }

    pub(super) fn take_changes(&mut self) -> Vec<(Id, Option<Value>)> {
        self.changes.drain(..).collect()
    }

    /// Stores a new object. As with a status subresource, a status in the manifest is dropped.
    pub(super) fn create(&mut self, mut object: Value, now: Timestamp) -> Result<Value> {
        let id = id_of(&object);
        if self.stored.contains_key(&id) {
            return Err(Error::new(ErrorKind::Conflict, format!("create {}", id.1), "it exists already"));
        }
        self.uids += 1;
        let uid = format!("00000000-0000-0000-0000-{:012}", self.uids);
        if ["MaasCluster", "MaasMachine", "Cluster", "Machine"].contains(&id.0.as_str()) {
            take(&mut object, "status");
        }
        let metadata = metadata(&mut object);
        metadata.insert("uid".into(), json!(uid));
        metadata.insert("generation".into(), json!(1));
        metadata.insert("creationTimestamp".into(), json!(whole_seconds(now)));
        metadata.remove("deletionTimestamp");
        Ok(self.put(id, object))
    }

    /// Applies a merge patch to everything but the status.
    pub(super) fn patch(&mut self, id: &Id, patch: &Value) -> Result<Value> {
        let doing = || format!("change the {} {}", id.0, id.1);
        let Some(before) = self.stored.get(id) else {
            return Err(Error::new(ErrorKind::NotFound, doing(), "it does not exist"));
        };
        let wanted = &patch["metadata"]["resourceVersion"];
        if !wanted.is_null() && *wanted != before["metadata"]["resourceVersion"] {
            return Err(Error::new(ErrorKind::Conflict, doing(), "the object has been modified"));
        }
        let mut after = before.clone();
        merge(&mut after, patch);
        // Fields that a writer cannot change.
        for field in ["uid", "generation", "creationTimestamp", "deletionTimestamp", "name", "namespace"] {
            restore(metadata(&mut after), field, &before["metadata"][field]);
        }
        let status = before.get("status").cloned();
        match (after.as_object_mut(), status) {
            (Some(fields), Some(status)) => drop(fields.insert("status".into(), status)),
            (Some(fields), None) => drop(fields.remove("status")),
            (None, _) => {}
        }
        let deleting = !before["metadata"]["deletionTimestamp"].is_null();
        let added = finalizers(&after).iter().any(|name| !finalizers(before).contains(name));
        if deleting && added {
            let why = "no new finalizers can be added if the object is being deleted";
            return Err(Error::new(ErrorKind::Refused, doing(), why));
        }
        if let Some(provider_id) = before["spec"]["providerID"].as_str().filter(|id| !id.is_empty())
            && id.0 == "MaasMachine"
            && after["spec"]["providerID"] != provider_id
        {
            return Err(Error::new(ErrorKind::Refused, doing(), "spec.providerID cannot be replaced"));
        }
        if after["spec"] != before["spec"] {
            let generation = before["metadata"]["generation"].as_u64().unwrap_or(0) + 1;
            metadata(&mut after).insert("generation".into(), json!(generation));
        }
        if deleting && finalizers(&after).is_empty() {
            self.remove(id);
            return Ok(after);
        }
        Ok(self.put(id.clone(), after))
    }

    /// Replaces the status, but keeps conditions of other types.
    pub(super) fn apply_status(&mut self, id: &Id, guard: Option<&Guard>, mut status: Value) -> Result<Guard> {
        let doing = || format!("write the status of the {} {}", id.0, id.1);
        let Some(before) = self.stored.get(id) else {
            return Err(Error::new(ErrorKind::NotFound, doing(), "it does not exist"));
        };
        if guard.is_some_and(|guard| before["metadata"]["resourceVersion"] != guard.resource_version.as_str()) {
            return Err(Error::new(ErrorKind::Conflict, doing(), "the object has been modified"));
        }
        let given: Vec<Value> = status["conditions"].as_array().cloned().unwrap_or_default();
        let kept = before["status"]["conditions"].as_array().into_iter().flatten();
        let kept: Vec<Value> = kept.filter(|old| given.iter().all(|new| new["type"] != old["type"])).cloned().collect();
        if !kept.is_empty()
            && let Some(fields) = status.as_object_mut()
        {
            fields.insert("conditions".into(), kept.into_iter().chain(given).collect());
        }
        let mut after = before.clone();
        if let Some(fields) = after.as_object_mut() {
            fields.insert("status".into(), status);
        }
        let stored = self.put(id.clone(), after);
        Ok(Guard::of_version(stored["metadata"]["resourceVersion"].as_str().map(str::to_owned)))
    }

    /// Deletes an object, or marks it as being deleted while it has finalizers.
    pub(super) fn delete(&mut self, id: &Id, now: Timestamp) {
        let Some(object) = self.stored.get(id) else { return };
        if finalizers(object).is_empty() {
            self.remove(id);
        } else if object["metadata"]["deletionTimestamp"].is_null() {
            let mut object = object.clone();
            metadata(&mut object).insert("deletionTimestamp".into(), json!(whole_seconds(now)));
            let generation = object["metadata"]["generation"].as_u64().unwrap_or(0) + 1;
            metadata(&mut object).insert("generation".into(), json!(generation));
            self.put(id.clone(), object);
        }
    }

    /// Deletes objects whose owners are all gone, as the garbage collector does.
    pub(super) fn collect_garbage(&mut self, now: Timestamp) {
        loop {
            let uids: Vec<&str> =
                self.stored.values().filter_map(|object| object["metadata"]["uid"].as_str()).collect();
            let orphan = self.stored.iter().find(|(_, object)| {
                let owners = object["metadata"]["ownerReferences"].as_array();
                let alone = owners.is_some_and(|owners| {
                    !owners.is_empty()
                        && owners.iter().all(|owner| owner["uid"].as_str().is_none_or(|uid| !uids.contains(&uid)))
                });
                alone && object["metadata"]["deletionTimestamp"].is_null()
            });
            match orphan.map(|(id, _)| id.clone()) {
                Some(id) => self.delete(&id, now),
                None => return,
            }
        }
    }

    fn put(&mut self, id: Id, mut object: Value) -> Value {
        // A write without a change is a no-op.
        if self.stored.get(&id) == Some(&object) {
            return object;
        }
        self.versions += 1;
        metadata(&mut object).insert("resourceVersion".into(), json!(self.versions.to_string()));
        self.stored.insert(id.clone(), object.clone());
        self.changes.push_back((id, Some(object.clone())));
        object
    }

    fn remove(&mut self, id: &Id) {
        self.stored.remove(id);
        self.changes.push_back((id.clone(), None));
    }
}

fn id_of(object: &Value) -> Id {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    (text(&object["kind"]), Key::new(text(&metadata["namespace"]), text(&metadata["name"])))
}

fn finalizers(object: &Value) -> Vec<&Value> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().collect()
}

/// The metadata of an object, created if it has none.
fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    match metadata {
        Value::Object(metadata) => metadata,
        _ => unreachable!("made an object above"),
    }
}

fn restore(fields: &mut Map<String, Value>, name: &str, value: &Value) {
    if value.is_null() {
        fields.remove(name);
    } else {
        fields.insert(name.to_owned(), value.clone());
    }
}

fn take(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

fn whole_seconds(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Value::Object(fields) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}
