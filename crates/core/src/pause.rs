//! What the condition `Paused` says (safety rule S15).

use capmaas_api::{ConditionStatus, Severity, conditions, reasons};

use crate::conditions::Verdict;

/// What the condition `Paused` says of an object, by its own annotation and by its Cluster's pause. The annotation pauses it
/// whatever its Cluster says. While the Cluster cannot be read nothing is said: unknown is not "not paused".
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

    #[test]
    fn s15_the_annotation_or_the_cluster_pauses() {
        assert_eq!(verdict(true, false).status, ConditionStatus::True);
        assert_eq!(verdict(false, true).status, ConditionStatus::True);
        assert_eq!(verdict(false, false).status, ConditionStatus::False);
    }
}
