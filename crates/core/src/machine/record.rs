//! What a `MaasMachine` remembers across crashes, moves and backups: an annotation, because status survives neither.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The annotation that holds the [`Record`].
pub const RECORD_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/maas-record";
/// Annotation by which a person gives a machine up: its value is the system ID (S14).
pub const ABANDON_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/abandon-machine";
/// Annotation by which a person asks that the machine is never turned on by us; its presence counts (S20).
pub const LEAVE_POWER_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/leave-power";

/// How long a write that was sent may still take effect: the client's deadline, and some time for what MAAS does after that.
pub const IN_FLIGHT: SignedDuration = SignedDuration::from_secs(150);

/// What is remembered. Written before the first effect; the key is never computed again (S3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The key: `agent_name` in MAAS, and the stamp on the machine.
    pub key: String,
    /// System ID of the machine that is ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The machine was there before us: the Go provider allocated it, without any mark.
    #[serde(default, skip_serializing_if = "is_false")]
    pub adopted: bool,
    /// A write to MAAS that was going to be sent, and whose outcome is not known (S2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<InFlight>,
    /// When the deployment under way was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy_began: Option<Timestamp>,
    /// When the machine was last turned on by us, and how often in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turned_on: Option<TurnedOn>,
    /// The account may not turn swap off: it stays on.
    #[serde(default, skip_serializing_if = "is_false")]
    pub swap_denied: bool,
    /// System ID of the machine that we asked MAAS to release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<String>,
    /// Machines that failed, and that are not tried again (S17).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Failure>,
}

/// A write whose outcome is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InFlight {
    /// What was sent.
    pub write: Write,
    /// When.
    pub at: Timestamp,
}

/// The writes that must not be sent twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Write {
    /// An allocation.
    Allocate,
    /// A deployment, which on a Ready machine is an allocation too.
    Deploy,
    /// A release, which late would hit the machine's next owner.
    Release,
}

impl InFlight {
    /// Whether it may still take effect.
    pub fn may_still_land(&self, now: Timestamp) -> bool {
        now.duration_since(self.at) < IN_FLIGHT
    }
}

/// When and how often a machine was turned on by us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnedOn {
    /// The last time.
    pub at: Timestamp,
    /// How often since it was last seen on.
    pub times: u32,
}

/// A machine that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Its system ID.
    pub machine: String,
    /// The image that was being deployed.
    pub image: String,
    /// The machine's power is to blame, and not the image.
    #[serde(default, skip_serializing_if = "is_false")]
    pub power: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Record {
    /// A new record with a key that nobody else has. `uid` is the object's; it is used here and never again (S3).
    pub fn new(uid: &str) -> Self {
        Self {
            key: format!("capmaas-{uid}"),
            machine: None,
            adopted: false,
            in_flight: None,
            deploy_began: None,
            turned_on: None,
            swap_denied: false,
            released: None,
            failed: Vec::new(),
        }
    }

    /// What the annotations say: nothing yet, a record, or something that cannot be read, which is not nothing.
    pub fn read(annotations: Option<&BTreeMap<String, String>>) -> Result<Option<Self>, String> {
        let Some(text) = annotations.and_then(|annotations| annotations.get(RECORD_ANNOTATION)) else {
            return Ok(None);
        };
        match serde_json::from_str::<Self>(text) {
            Ok(record) if !record.key.is_empty() => Ok(Some(record)),
            Ok(_) => Err(format!("the annotation {RECORD_ANNOTATION} has an empty key; restore it")),
            Err(error) => Err(format!("cannot read the annotation {RECORD_ANNOTATION}: {error}; restore it")),
        }
    }

    /// The value of the annotation.
    pub fn text(&self) -> String {
        // Cannot fail: texts, numbers and times only.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// This write is going to be sent.
    #[must_use]
    pub fn sending(mut self, write: Write, now: Timestamp) -> Self {
        self.in_flight = Some(InFlight { write, at: whole_seconds(now) });
        self
    }

    /// Forgets the machine, and everything that was about it.
    #[must_use]
    pub fn without_machine(mut self) -> Self {
        self.machine = None;
        self.adopted = false;
        self.deploy_began = None;
        self.turned_on = None;
        self.swap_denied = false;
        self.released = None;
        self
    }
}

/// Times in annotations are whole seconds, for people.
pub(super) fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(text: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(RECORD_ANNOTATION.to_owned(), text.to_owned())])
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut record = Record::new("u-1").sending(Write::Deploy, Timestamp::UNIX_EPOCH);
        record.machine = Some("abc123".into());
        record.failed.push(Failure { machine: "def456".into(), image: "jammy".into(), power: true });
        assert_eq!(Record::read(Some(&annotations(&record.text()))), Ok(Some(record)));
        assert_eq!(Record::read(None), Ok(None));
        assert_eq!(Record::read(Some(&BTreeMap::new())), Ok(None));
    }

    #[test]
    fn s01_a_record_that_cannot_be_read_is_not_absent() {
        for text in ["", "{", "{}", "[]", "{\"key\":\"\"}", "{\"key\":\"k\",\"inFlight\":{\"write\":\"sing\"}}"] {
            assert!(Record::read(Some(&annotations(text))).is_err(), "{text}");
        }
    }

    #[test]
    fn s02_a_write_lands_before_its_deadline_or_never() {
        let sent = InFlight { write: Write::Allocate, at: Timestamp::UNIX_EPOCH };
        assert!(sent.may_still_land(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(149)));
        assert!(!sent.may_still_land(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(150)));
    }
}
