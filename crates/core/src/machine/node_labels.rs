//! The labels that the machine's Node gets together with its provider ID.
//!
//! Cluster API propagates labels from the Machine to the Node, but only those of a few domains, and it takes none from MAAS. The
//! rest is done here, once and in the same write as the provider ID: a label that somebody changes or removes afterwards stays
//! that way.

use std::collections::BTreeMap;

use super::Observed;
use crate::Lookup;
use crate::maas;

/// The machine's zone, for the scheduler and for volumes.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Cluster API propagates Machine labels in these domains and their subdomains to the Node, and overwrites what is there.
const PROPAGATED: [&str; 3] = ["node-role.kubernetes.io", "node-restriction.kubernetes.io", "node.cluster.x-k8s.io"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeLabels {
    pub missing: BTreeMap<String, String>,
    /// The zone, if its name is not a valid label value.
    pub impossible_zone: Option<String>,
}

impl NodeLabels {
    /// The requested labels and MAAS's zone, as far as the Node lacks them.
    pub(super) fn of(observed: &Observed, metal: &maas::Machine, present: &BTreeMap<String, String>) -> Self {
        let wanted = &observed.object.spec.node_labels;
        let left_to_cluster_api = |name: &str| match &observed.machine {
            Lookup::Found(machine) => {
                is_propagated(name) && machine.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(name))
            }
            Lookup::Absent | Lookup::Unknown(_) => false,
        };
        let mut missing: BTreeMap<String, String> = wanted
            .iter()
            .filter(|(name, value)| is_label_name(name) && is_label_value(value) && !left_to_cluster_api(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let mut impossible_zone = None;
        if !missing.contains_key(ZONE_LABEL) {
            if !metal.zone.is_empty() && is_label_value(&metal.zone) {
                missing.insert(ZONE_LABEL.to_owned(), metal.zone.clone());
            } else {
                impossible_zone = Some(metal.zone.clone());
            }
        }
        missing.retain(|name, _| !present.contains_key(name));
        Self { missing, impossible_zone }
    }
}

fn is_propagated(name: &str) -> bool {
    let domain = name.split_once('/').map_or("", |(domain, _)| domain);
    PROPAGATED.iter().any(|it| domain == *it || domain.strip_suffix(it).is_some_and(|below| below.ends_with('.')))
}

/// The API server admits no others; an invalid one would make the whole write fail, and with it the provider ID.
pub(super) fn is_label_name(name: &str) -> bool {
    let (domain, name) = name.split_once('/').map_or((None, name), |(domain, name)| (Some(domain), name));
    let is_part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    !name.is_empty()
        && is_label_value(name)
        && domain.is_none_or(|domain| domain.len() <= 253 && domain.split('.').all(is_part))
}

pub(super) fn is_label_value(value: &str) -> bool {
    let at_an_end = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    value.len() <= 63
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && at_an_end(value.bytes().next())
        && at_an_end(value.bytes().last())
}
