//! The API server's audit log: who read and wrote what.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Deserialize;

/// One request.
#[derive(Clone, Debug)]
pub struct Call {
    /// When it was received.
    pub at: Timestamp,
    /// `patch maasmachines/status`.
    pub kind: String,
    /// Whether it changes nothing.
    pub is_read: bool,
    /// Whether the API server accepted it.
    pub done: bool,
    /// How long the API server took.
    pub seconds: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    user: User,
    #[serde(default)]
    object_ref: Option<Object>,
    #[serde(default)]
    response_status: Option<Status>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

/// The requests of one user, read incrementally as the log grows.
pub struct AuditLog {
    file: BufReader<File>,
    user: String,
    line: String,
    calls: Vec<Call>,
}

impl AuditLog {
    pub fn open(path: &Path, user: &str) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("open the audit log {}", path.display()))?;
        Ok(Self { file: BufReader::new(file), user: user.to_owned(), line: String::new(), calls: Vec::new() })
    }

    /// Every request of the user since a time, except those for its lease, which a leader renews continually. Watches
    /// never end and are not included.
    pub fn since(&mut self, since: Timestamp) -> anyhow::Result<Vec<Call>> {
        // An incomplete last line stays in `line` until the rest of it arrives.
        while self.file.read_line(&mut self.line)? > 0 && self.line.ends_with('\n') {
            if self.line.contains(&self.user)
                && let Some(call) = self.understand()
            {
                self.calls.push(call);
            }
            self.line.clear();
        }
        Ok(self.calls.iter().filter(|call| call.at >= since).cloned().collect())
    }

    fn understand(&self) -> Option<Call> {
        let event: Event = serde_json::from_str(&self.line).ok()?;
        let object = event.object_ref?;
        if event.user.username != self.user || event.stage != "ResponseComplete" || object.resource == "leases" {
            return None;
        }
        let slash = if object.subresource.is_empty() { "" } else { "/" };
        let kind = format!("{} {}{slash}{}", event.verb, object.resource, object.subresource);
        let done = event.response_status.is_some_and(|status| status.code < 300);
        let at = event.request_received_timestamp;
        let is_read = matches!(event.verb.as_str(), "get" | "list");
        Some(Call { at, kind, is_read, done, seconds: event.stage_timestamp.duration_since(at).as_secs_f64() })
    }
}

/// The number of requests of each kind; refused ones are counted separately.
pub fn count<'a>(calls: impl IntoIterator<Item = &'a Call>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for call in calls {
        let name = if call.done { call.kind.clone() } else { format!("{} (refused)", call.kind) };
        *counts.entry(name).or_default() += 1;
    }
    counts
}
