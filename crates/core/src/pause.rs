//! Whether anything may be done about an object (safety rule S15).

use capmaas_api::{Condition, ConditionStatus, Severity, conditions, reasons};
use jiff::Timestamp;

use crate::{Lookup, conditions::Verdict};

/// What is known about the pause of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The object itself carries the annotation `cluster.x-k8s.io/paused`.
    pub annotated: bool,
    /// Whether the Cluster that the object belongs to is paused (`spec.paused`).
    pub cluster: Lookup<bool>,
    /// The object's conditions as stored.
    pub conditions: Vec<Condition>,
    /// The object's generation.
    pub generation: Option<i64>,
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Plan {
    /// The condition to write; `None` if it is right already, or if nobody can tell.
    pub condition: Option<Condition>,
    /// What could not be found out, if anything: ask again later.
    pub unknown: Option<String>,
}

/// Decides what the condition `Paused` says.
///
/// An annotation on the object pauses it whatever its Cluster says. An object that belongs to no Cluster is paused by its
/// annotation only. While the Cluster cannot be read, the condition stays as it is: unknown is not "not paused".
pub fn decide(observed: &Observed, now: Timestamp) -> Plan {
    let cluster = match &observed.cluster {
        Lookup::Found(paused) => *paused,
        Lookup::Absent => false,
        Lookup::Unknown(_) if observed.annotated => false,
        Lookup::Unknown(why) => return Plan { condition: None, unknown: Some(why.clone()) },
    };
    let verdict = verdict(observed.annotated, cluster);
    Plan { condition: verdict.settle(&observed.conditions, observed.generation, now), unknown: None }
}

/// What the condition `Paused` says of an object, by its own annotation and by its Cluster's pause.
pub fn verdict(annotated: bool, cluster: bool) -> Verdict {
    let (status, reason, message) = match (annotated, cluster) {
        (true, _) => (ConditionStatus::True, reasons::PAUSED, "the object has the annotation cluster.x-k8s.io/paused"),
        (false, true) => (ConditionStatus::True, reasons::PAUSED, "the Cluster is paused"),
        (false, false) => (ConditionStatus::False, reasons::NOT_PAUSED, ""),
    };
    Verdict { type_: conditions::PAUSED, status, severity: Severity::Info, reason, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(annotated: bool, cluster: Lookup<bool>) -> Observed {
        Observed { annotated, cluster, conditions: Vec::new(), generation: Some(1) }
    }

    fn status(annotated: bool, cluster: Lookup<bool>) -> Option<ConditionStatus> {
        decide(&observed(annotated, cluster), Timestamp::UNIX_EPOCH).condition.map(|condition| condition.status)
    }

    #[test]
    fn s15_the_annotation_or_the_cluster_pauses() {
        assert_eq!(status(true, Lookup::Found(false)), Some(ConditionStatus::True));
        assert_eq!(status(true, Lookup::Unknown("away".into())), Some(ConditionStatus::True));
        assert_eq!(status(false, Lookup::Found(true)), Some(ConditionStatus::True));
        assert_eq!(status(false, Lookup::Found(false)), Some(ConditionStatus::False));
        assert_eq!(status(false, Lookup::Absent), Some(ConditionStatus::False));
    }

    #[test]
    fn s01_a_cluster_that_cannot_be_read_is_not_unpaused() {
        let plan = decide(&observed(false, Lookup::Unknown("forbidden".into())), Timestamp::UNIX_EPOCH);
        assert_eq!(plan, Plan { condition: None, unknown: Some("forbidden".into()) });
    }

    #[test]
    fn deciding_again_changes_nothing() {
        let mut observed = observed(false, Lookup::Found(true));
        let plan = decide(&observed, Timestamp::UNIX_EPOCH);
        observed.conditions = plan.condition.into_iter().collect();
        assert_eq!(decide(&observed, Timestamp::from_second(60).unwrap()).condition, None);
    }
}
