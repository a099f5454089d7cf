//! What a manifest changes about machines that exist: whether Cluster API replaces them.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::objects::version;
use crate::text;

/// Fields of a Machine's spec that Cluster API changes in place, in either version of its API. Labels and annotations of a
/// template are changed in place as well, but they are not part of the spec.
const IN_PLACE: [&str; 7] = [
    "deletion",
    "minReadySeconds",
    "nodeDeletionTimeout",
    "nodeDrainTimeout",
    "nodeVolumeDetachTimeout",
    "readinessGates",
    "taints",
];

/// Whether the spec of a template asks for other machines than those that were made from another spec.
pub(super) fn replaces(spec: &Value, made_from: &Value) -> bool {
    let fields = spec.as_object().into_iter().flatten();
    fields
        .filter(|(name, _)| !IN_PLACE.contains(&name.as_str()))
        .any(|(name, value)| differs(name, value, made_from.get(name)))
}

/// Whether a manifest changes the machines of a KubeadmControlPlane apart from their template and version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    None,
    Replaces,
    /// The versions of the API differ, and so do the names of fields.
    Unknown,
}

/// What the `kubeadmConfigSpec` of a control plane changes.
pub(super) fn of_control_plane(says: &Value, has: &Value) -> Change {
    let of = |object: &Value| object["spec"]["kubeadmConfigSpec"].clone();
    if !differs("kubeadmConfigSpec", &of(says), Some(&of(has))) {
        Change::None
    } else if version(says).is_empty() || version(says) == version(has) {
        Change::Replaces
    } else {
        Change::Unknown
    }
}

/// Whether a manifest says something else than the object has. The API server fills in defaults, so what the manifest
/// leaves out is no difference.
pub(super) fn differs(name: &str, says: &Value, has: Option<&Value>) -> bool {
    let has = has.unwrap_or(&Value::Null);
    match (says, has) {
        (Value::Null, _) => false,
        (_, Value::Null) => !is_nothing(says),
        (Value::Object(says), Value::Object(has)) => {
            // The version, and in some versions the namespace, of a reference say nothing about what it refers to.
            let counts = |field: &str| !name.ends_with("Ref") || matches!(field, "kind" | "name");
            says.iter().any(|(field, value)| counts(field) && differs(field, value, has.get(field)))
        }
        (Value::Array(says), Value::Array(has)) => {
            says.len() != has.len() || says.iter().zip(has).any(|(says, has)| differs("", says, Some(has)))
        }
        (Value::String(says), Value::String(has)) if name.ends_with("ersion") => !same_version(says, has),
        (Value::String(says), Value::String(has)) => says != has && !same_duration(says, has),
        _ => says != has,
    }
}

/// A value that the API server may leave out.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_nothing),
    }
}

/// Cluster API writes `v1.36.0` where somebody wrote `1.36.0`.
pub(super) fn same_version(one: &str, other: &str) -> bool {
    one.trim_start_matches('v') == other.trim_start_matches('v')
}

/// The API server writes `10m0s` where somebody wrote `10m`.
fn same_duration(one: &str, other: &str) -> bool {
    let length = |text: &str| text.parse::<SignedDuration>().ok();
    length(one).is_some_and(|one| Some(one) == length(other))
}

/// Whether somebody set a time for a rollout, and this object was made before. A time to come counts as well.
pub(super) fn is_before_rollout(group: &Value, made: &Value) -> bool {
    let time = |text: &str| text.parse::<Timestamp>().ok();
    let after = ["/spec/rollout/after", "/spec/rolloutAfter"].iter().find_map(|path| time(text(group, path)));
    let made = time(text(made, "/metadata/creationTimestamp"));
    matches!((made, after), (Some(made), Some(after)) if made < after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_a_manifest_says_is_a_difference() {
        let has = json!({
            "clusterConfiguration": {"apiServer": {"timeoutForControlPlane": "4m0s"}, "kubernetesVersion": "v1.36.0"},
            "files": [{"path": "/a", "content": "x", "owner": "root"}],
            "format": "cloud-config",
        });
        let same = [
            json!({}),
            json!(null),
            json!({"clusterConfiguration": {"apiServer": {"timeoutForControlPlane": "4m"}}}),
            json!({"clusterConfiguration": {"kubernetesVersion": "1.36.0"}}),
            json!({"files": [{"path": "/a", "content": "x"}]}),
            json!({"verbosity": null, "users": [], "mounts": {}, "ntp": {"enabled": false}}),
        ];
        for says in same {
            assert!(!differs("kubeadmConfigSpec", &says, Some(&has)), "{says}");
        }
        let other = [
            json!({"clusterConfiguration": {"apiServer": {"timeoutForControlPlane": "5m"}}}),
            json!({"files": [{"path": "/a", "content": "y"}]}),
            json!({"files": []}),
            json!({"files": [{"path": "/a", "content": "x"}, {"path": "/b"}]}),
            json!({"preKubeadmCommands": ["true"]}),
            json!({"format": "ignition"}),
        ];
        for says in other {
            assert!(differs("kubeadmConfigSpec", &says, Some(&has)), "{says}");
        }
    }

    #[test]
    fn a_reference_is_what_it_refers_to_in_any_version() {
        let has = json!({"configRef": {"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "KubeadmConfigTemplate", "name": "a", "namespace": "n"}});
        let same = json!({"configRef": {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfigTemplate", "name": "a"}});
        assert!(!differs("bootstrap", &same, Some(&has)));
        assert!(differs("bootstrap", &json!({"configRef": {"name": "b"}}), Some(&has)));
    }
}
