//! Whether an object is paused, and its condition `Paused` (safety rule S15). Shared by all kinds.

use capmaas_api::capi::Cluster;
use capmaas_api::tolerant::WHOLE_VALUE;
use capmaas_api::{ConditionStatus, conditions, reasons};

use crate::Lookup;
use crate::conditions::Verdict;

/// Whether a Cluster is paused. An unreadable pause is unknown, not "not paused" (S1).
pub fn of_cluster(cluster: &Cluster) -> Lookup<bool> {
    let hidden = |path: &&String| *path == "paused" || *path == WHOLE_VALUE;
    match cluster.spec.unreadable.iter().find(hidden) {
        _ if cluster.is_paused() => Lookup::Found(true),
        Some(_) => Lookup::Unknown("cannot read spec.paused of the Cluster".to_owned()),
        None => Lookup::Found(false),
    }
}

/// Whether an object is paused: by its own annotation, whatever its Cluster's state, or with its Cluster. Without a Cluster only
/// its annotation counts.
pub fn is_paused(annotated: bool, cluster: Lookup<bool>) -> Lookup<bool> {
    match cluster {
        _ if annotated => Lookup::Found(true),
        Lookup::Absent => Lookup::Found(false),
        cluster => cluster,
    }
}

/// The condition `Paused`. It is not written while the pause is unknown.
pub fn verdict(annotated: bool, paused: bool) -> Verdict {
    let (status, reason, message) = match (annotated, paused) {
        (true, _) => (ConditionStatus::True, reasons::PAUSED, "the object has the annotation cluster.x-k8s.io/paused"),
        (false, true) => (ConditionStatus::True, reasons::PAUSED, "the Cluster is paused"),
        (false, false) => (ConditionStatus::False, reasons::NOT_PAUSED, ""),
    };
    Verdict::new(conditions::PAUSED, status, reason, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{cluster, machine};

    fn cluster(spec: &serde_json::Value, annotations: &serde_json::Value) -> Cluster {
        serde_json::from_value(json!({ "metadata": { "name": "c1", "annotations": annotations }, "spec": spec }))
            .unwrap()
    }

    #[test]
    fn s15_the_annotation_or_the_cluster_pauses() {
        assert_eq!(is_paused(true, Lookup::Unknown("away".into())), Lookup::Found(true));
        assert_eq!(is_paused(false, Lookup::Found(true)), Lookup::Found(true));
        assert_eq!(is_paused(false, Lookup::Found(false)), Lookup::Found(false));
        assert_eq!(is_paused(false, Lookup::Absent), Lookup::Found(false));
        assert_eq!(is_paused(false, Lookup::Unknown("away".into())), Lookup::Unknown("away".into()));
        assert_eq!(verdict(true, false).status, ConditionStatus::True);
        assert_eq!(verdict(false, true).status, ConditionStatus::True);
        assert_eq!(verdict(false, false).status, ConditionStatus::False);
    }

    /// What each kind does with an object of this Cluster: nothing at all, only the condition `Paused`, or a reconcile.
    fn served(cluster: &Cluster) -> [&'static str; 2] {
        let (said, idle) = machine::tests::under_cluster(cluster);
        let machine = if idle && said {
            "paused"
        } else if idle {
            "nothing"
        } else {
            "served"
        };
        let (said, idle) = cluster::tests::under_cluster(cluster);
        [
            machine,
            if idle && said {
                "paused"
            } else if idle {
                "nothing"
            } else {
                "served"
            },
        ]
    }

    #[test]
    fn s15_an_unreadable_pause_is_unknown_to_machines_and_clusters_alike() {
        let (none, paused) = (json!({}), json!({ "cluster.x-k8s.io/paused": "" }));
        for (spec, annotations, expected) in [
            (json!({}), &none, "served"),
            (json!({ "paused": false }), &none, "served"),
            (json!(null), &none, "served"),
            (json!({ "paused": true }), &none, "paused"),
            (json!({}), &paused, "paused"),
            (json!({ "paused": "maybe" }), &none, "nothing"),
            (json!("nonsense"), &none, "nothing"),
            (json!(["paused"]), &none, "nothing"),
        ] {
            assert_eq!(served(&cluster(&spec, annotations)), [expected; 2], "{spec} {annotations}");
        }
    }
}
