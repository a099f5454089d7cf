//! The condition shape that every Cluster API core from v1.5 on understands.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text_enum::text_enum;

text_enum! {
    /// Whether a condition holds.
    ConditionStatus, open {
        /// It holds.
        True => "True",
        /// It does not hold.
        False => "False",
        /// Not known at the moment.
        Undetermined => "Unknown",
    }
}

text_enum! {
    /// How bad a False condition is. Cores before v1.11 rank False conditions by it; one without it ranks below
    /// True, so it is always written with False.
    Severity, open {
        /// A person must act.
        Error => "Error",
        /// Not as it should be, but may resolve itself.
        Warning => "Warning",
        /// Nothing is wrong, something is still pending.
        Info => "Info",
    }
}

/// One observation about the object: whether it holds, since when, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Name of the condition, for instance Ready or MachineDeployed. There is at most one condition of each type.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// How bad a False condition is: Error (a person must act), Warning (may resolve itself) or Info (still pending).
    /// Absent when the status is not False.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// One CamelCase word for programs that states why; the reference of reasons lists what to do about each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same for people, with the details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the status last changed (not when it was last checked).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// The metadata.generation that this observation was made for; an older number means that it may be out of date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Looking things up in a list of conditions.
pub trait Conditions {
    /// The condition of this type, if it was ever reported.
    fn condition(&self, type_: &str) -> Option<&Condition>;

    /// Whether the condition of this type is reported as True.
    fn is_true(&self, type_: &str) -> bool {
        self.has_status(type_, &ConditionStatus::True)
    }

    /// Whether the condition of this type is reported with this status.
    fn has_status(&self, type_: &str, status: &ConditionStatus) -> bool {
        self.condition(type_).is_some_and(|condition| condition.status == *status)
    }
}

impl Conditions for [Condition] {
    fn condition(&self, type_: &str) -> Option<&Condition> {
        self.iter().find(|condition| condition.type_ == type_)
    }
}
