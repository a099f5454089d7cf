//! The names of the objects whose ids recordings use. An id may appear in a request before any answer paired it with
//! one of the simulator's: then its name, from any recording that contains it, identifies the object.

use std::collections::HashMap;

use serde_json::Value;

use crate::identity::Kind;
use crate::recording::Recording;

/// Names by kind and recorded id, with the index of the recording that contains them.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    names: HashMap<(Kind, String), Vec<(usize, String)>>,
    /// The machine of an interface.
    owners: HashMap<String, Vec<(usize, String)>>,
}

impl Directory {
    pub(crate) fn of(recordings: &[Recording]) -> Self {
        let mut directory = Self::default();
        for (at, recording) in recordings.iter().enumerate() {
            directory.read(at, &recording.response.body);
        }
        directory
    }

    fn read(&mut self, at: usize, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.read(at, item)),
            Value::Object(fields) => {
                self.enter(at, value);
                fields.values().for_each(|field| self.read(at, field));
            }
            _ => {}
        }
    }

    fn enter(&mut self, at: usize, object: &Value) {
        let text = |key: &str| object.get(key).and_then(Value::as_str);
        let Some(uri) = text("resource_uri") else { return };
        let mut parts = uri.trim_matches('/').rsplit('/');
        let (Some(id), Some(collection)) = (parts.next(), parts.next()) else { return };
        let Some(kind) = Kind::of_collection(collection) else { return };
        let name = match kind {
            Kind::System => text("hostname"),
            Kind::DnsResource => text("fqdn"),
            Kind::Interface | Kind::VmHost => text("name"),
            _ => None,
        };
        let Some(name) = name else { return };
        self.names.entry((kind, id.to_owned())).or_default().push((at, name.to_owned()));
        if kind == Kind::Interface
            && let Some(machine) = text("system_id")
        {
            self.owners.entry(id.to_owned()).or_default().push((at, machine.to_owned()));
        }
    }

    /// The name of an object: from the first recording at or after `at` that contains it, else from the last one
    /// before.
    pub(crate) fn name(&self, kind: Kind, id: &str, at: usize) -> Option<&str> {
        nearest(self.names.get(&(kind, id.to_owned()))?, at)
    }

    /// The recorded system id of the machine that an interface belongs to.
    pub(crate) fn machine_of_interface(&self, id: &str, at: usize) -> Option<&str> {
        nearest(self.owners.get(id)?, at)
    }
}

fn nearest(told: &[(usize, String)], at: usize) -> Option<&str> {
    told.iter().find(|(place, _)| *place >= at).or(told.last()).map(|(_, name)| name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_name_is_the_one_that_is_told_next() {
        let recording = |number: u32, name: &str| -> Recording {
            serde_json::from_value(json!({"name": format!("{number}-x"), "request": {"method": "GET", "path": "/"},
                "response": {"status": 200, "body": {"hostname": name, "resource_uri": "/MAAS/api/2.0/machines/abc123/"}}}))
            .unwrap()
        };
        let directory = Directory::of(&[recording(1, "old"), recording(2, "new")]);
        assert_eq!(directory.name(Kind::System, "abc123", 0), Some("old"));
        assert_eq!(directory.name(Kind::System, "abc123", 1), Some("new"));
        assert_eq!(directory.name(Kind::System, "abc123", 2), Some("new"));
        assert_eq!(directory.name(Kind::System, "zzzzzz", 0), None);
    }
}
