//! Conditions with correct transition times.

use capmaas_api::{Condition, ConditionStatus, Conditions as _, Severity};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// What a condition should be now. Its transition time follows from the stored condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub type_: &'static str,
    pub status: ConditionStatus,
    /// How bad it is that the condition is not True. Only written with False.
    pub severity: Severity,
    pub reason: &'static str,
    pub message: String,
}

impl Verdict {
    /// A condition that is True or Unknown.
    pub fn new(type_: &'static str, status: ConditionStatus, reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_, status, severity: Severity::Info, reason, message: message.into() }
    }

    /// A condition that is False.
    pub fn fault(type_: &'static str, severity: Severity, reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity, ..Self::new(type_, ConditionStatus::False, reason, message) }
    }

    /// The condition to write, or `None` if it is stored already.
    ///
    /// The transition time changes if and only if the status changes: a changed message is no transition. Times are whole
    /// seconds, because the API server treats `00.5Z` and `00Z` as two different writes.
    pub fn settle(self, previous: &[Condition], generation: Option<i64>, now: Timestamp) -> Option<Condition> {
        let before = previous.condition(self.type_);
        let since = before
            .filter(|before| before.status == self.status)
            .and_then(|before| before.last_transition_time.clone())
            .unwrap_or_else(|| Time(whole_seconds(now)));
        let condition = Condition {
            type_: self.type_.to_owned(),
            severity: (self.status == ConditionStatus::False).then_some(self.severity),
            status: self.status,
            reason: Some(self.reason.to_owned()),
            message: Some(self.message).filter(|message| !message.is_empty()),
            last_transition_time: Some(since),
            observed_generation: generation,
        };
        (before != Some(&condition)).then_some(condition)
    }
}

/// Adds a condition, or replaces the one of its type.
pub fn replace(conditions: &mut Vec<Condition>, new: Condition) {
    conditions.retain(|condition| condition.type_ != new.type_);
    conditions.push(new);
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
}

/// Stored times are whole seconds.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    // Cannot fail: dropping the fraction stays within the range of what is already a timestamp.
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn verdict(status: ConditionStatus, message: &str) -> Verdict {
        Verdict::new("Ready", status, "Because", message)
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn since(condition: &Condition) -> i64 {
        condition.last_transition_time.as_ref().unwrap().0.as_second()
    }

    #[test]
    fn saying_the_same_again_writes_nothing() {
        let first = verdict(ConditionStatus::True, "").settle(&[], Some(1), at(10)).unwrap();
        assert_eq!(verdict(ConditionStatus::True, "").settle(&[first], Some(1), at(99)), None);
    }

    #[test]
    fn a_new_message_is_written_but_is_no_transition() {
        let first = verdict(ConditionStatus::False, "one").settle(&[], Some(1), at(10)).unwrap();
        let second = verdict(ConditionStatus::False, "two").settle(&[first], Some(1), at(99)).unwrap();
        assert_eq!((since(&second), second.message.as_deref()), (10, Some("two")));
    }

    #[test]
    fn a_changed_status_is_a_transition() {
        let first = verdict(ConditionStatus::False, "").settle(&[], Some(1), at(10)).unwrap();
        assert_eq!(since(&verdict(ConditionStatus::True, "").settle(&[first], Some(1), at(99)).unwrap()), 99);
    }

    #[test]
    fn old_cores_rank_false_by_severity_so_false_always_has_one_and_nothing_else_has() {
        let settle = |status| verdict(status, "").settle(&[], None, at(0)).unwrap().severity;
        assert_eq!(settle(ConditionStatus::False), Some(Severity::Info));
        assert_eq!(settle(ConditionStatus::True), None);
        assert_eq!(settle(ConditionStatus::Undetermined), None);
    }

    proptest! {
        #[test]
        fn settling_is_a_fixpoint(nanos in 0..i64::MAX, later in 0i64..1000, holds: bool, generation in proptest::option::of(0i64..9)) {
            let status = if holds { ConditionStatus::True } else { ConditionStatus::False };
            let now = Timestamp::from_nanosecond(i128::from(nanos)).unwrap();
            let first = verdict(status.clone(), "m").settle(&[], generation, now).unwrap();
            prop_assert_eq!(first.last_transition_time.as_ref().unwrap().0.subsec_nanosecond(), 0);
            let again = verdict(status, "m").settle(&[first], generation, at(later));
            prop_assert_eq!(again, None);
        }
    }
}
