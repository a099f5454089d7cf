//! The labels that the machine's Node gets together with its provider ID.
//!
//! Cluster API puts labels of the Machine on the Node by itself, but only those of a few domains, and none of them is known to it
//! from MAAS. What it does not do is done here, once and in the same write as the provider ID: a label that somebody changes or
//! removes afterwards stays as it is.

use std::collections::BTreeMap;

use super::Observed;
use crate::Lookup;
use crate::maas;

/// Where the machine stands, for the scheduler and for volumes.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Labels of a Machine in these domains, and below them, are put on its Node by Cluster API, which overwrites what is there.
const PROPAGATED: [&str; 3] = ["node-role.kubernetes.io", "node-restriction.kubernetes.io", "node.cluster.x-k8s.io"];

/// What a Node is labelled with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeLabels {
    /// Those that the Node does not have yet.
    pub missing: BTreeMap<String, String>,
    /// The zone, if its name cannot be the value of a label.
    pub impossible_zone: Option<String>,
}

impl NodeLabels {
    /// Of what is asked for, and MAAS's zone, that which the Node lacks.
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

/// The API server admits no others; one that reached it all the same would keep the Node from its provider ID.
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
