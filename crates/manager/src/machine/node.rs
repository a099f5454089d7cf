//! The Node of a machine in its workload cluster.

use capmaas_core::Lookup;
use capmaas_core::maas::State;
use capmaas_core::machine::{Observed, ObservedNode};

use super::Context;
use crate::kubernetes::Key;

/// Looks up the machine's Node until Cluster API has found it by its provider ID.
pub(super) async fn node(context: &Context, key: &Key, observed: &Observed) -> ObservedNode {
    let (Some(provider_id), Lookup::Found(metal), Lookup::Found(machine), Lookup::Found(cluster)) =
        (observed.object.spec.provider_id(), &observed.in_journal, &observed.machine, &observed.cluster)
    else {
        return ObservedNode::NotAsked;
    };
    let early = metal.state != State::Deployed || observed.object.metadata.deletion_timestamp.is_some();
    if early || machine.status.node_ref.as_ref().is_some_and(|node| !node.name.is_empty()) {
        return ObservedNode::NotAsked;
    }
    let cluster = key.beside(cluster.metadata.name.clone().unwrap_or_default());
    for name in [metal.hostname.to_lowercase(), metal.fqdn.to_lowercase()] {
        if name.is_empty() {
            continue;
        }
        let node = match context.kubernetes.node(&cluster, &name).await {
            Ok(Some(node)) => node,
            Ok(None) => continue,
            // The watch names the Node again (joining.rs).
            Err(_) => return ObservedNode::NotYet,
        };
        if !node.addresses.iter().any(|address| metal.addresses.contains(address)) {
            return ObservedNode::Foreign(format!(
                "the Node {name} has none of the machine's addresses; it is not touched"
            ));
        }
        return match node.provider_id.as_deref() {
            None => ObservedNode::Joined { name, named: false, labels: node.labels },
            Some(theirs) if theirs == provider_id => ObservedNode::Joined { name, named: true, labels: node.labels },
            Some(theirs) => {
                ObservedNode::Foreign(format!("the Node {name} carries the provider ID {theirs}; it is not touched"))
            }
        };
    }
    ObservedNode::NotYet
}
