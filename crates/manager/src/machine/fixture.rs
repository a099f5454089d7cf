//! Fixtures for the tests of this module.

use capmaas_core::machine::{JOURNAL_ANNOTATION, Journal};
use serde_json::{Value, json};

/// A patch that writes this journal to an object.
pub(super) fn noting(journal: &Journal) -> Value {
    json!({ "metadata": { "annotations": { JOURNAL_ANNOTATION: journal.text() } } })
}

/// A MaasMachine of this name in the namespace `n` with this journal.
pub(super) fn remembering(name: &str, journal: &Journal) -> Value {
    let mut object = noting(journal);
    object["apiVersion"] = "infrastructure.cluster.x-k8s.io/v1beta1".into();
    object["kind"] = "MaasMachine".into();
    object["metadata"]["name"] = name.into();
    object["metadata"]["namespace"] = "n".into();
    object["spec"] = json!({ "image": "jammy", "minCPU": 1, "minMemory": 1024 });
    object
}
