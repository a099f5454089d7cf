//! The metadata and spec changes of a plan as a merge patch.

use capmaas_core::plan::{Finalizer, Patch, Plan};
use kube::{Resource, ResourceExt as _};
use serde_json::{Map, Value, json};

/// The patch, if there are changes. The first of `finalizers` is the one to add; all of them are removed.
pub(crate) fn of<E, P: Patch, S>(object: &impl Resource, plan: &Plan<E, P, S>, finalizers: &[&str]) -> Option<Value> {
    let mut metadata = Map::new();
    let annotations = plan.patch.annotations();
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), json!(annotations));
    }
    let labels = plan.patch.labels();
    if !labels.is_empty() {
        metadata.insert("labels".to_owned(), json!(labels));
    }
    let mut after = object.finalizers().to_vec();
    match (plan.finalizer, finalizers) {
        (Finalizer::Add, [ours, ..]) if !after.iter().any(|name| name == ours) => after.push((*ours).to_owned()),
        (Finalizer::Add | Finalizer::Keep, _) => {}
        (Finalizer::Remove, ours) => after.retain(|name| !ours.contains(&name.as_str())),
    }
    if after != object.finalizers() {
        metadata.insert("finalizers".to_owned(), after.into());
    }
    let spec = plan.patch.spec();
    let parts = [("metadata", metadata), ("spec", spec)].into_iter().filter(|(_, part)| !part.is_empty());
    let patch: Map<String, Value> = parts.map(|(name, part)| (name.to_owned(), part.into())).collect();
    (!patch.is_empty()).then(|| patch.into())
}
