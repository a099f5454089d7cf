//! Other MaasClusters that claim the same record in MAAS's DNS (S25). Rare: copies, and names that were assigned twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use capmaas_api::{MaasCluster, MaasMachine};
use capmaas_core::Lookup;
use capmaas_core::cluster::endpoint;
use capmaas_core::cluster::journal::Source;
use capmaas_core::cluster::observed::{Observed, Owner, Rival};
use capmaas_core::cluster::provenance::is_plain_copy;

use super::Context;
use super::observe::{object_of, owner_of, owner_or_nobody};
use crate::belonging::cluster_name;
use crate::kubernetes::{Key, Result};

/// A rival and its MaasMachines. Which machines are its own, MAAS has to show.
type Found = (Rival, Vec<Arc<MaasMachine>>);

pub(super) async fn observe(context: &Context, key: &Key, observed: &Observed) -> Result<Vec<Found>> {
    let Some(name) = endpoint::name(&observed.object, &owner_or_nobody(&observed.owner)) else { return Ok(Vec::new()) };
    let mut rivals = Vec::new();
    for other in context.kubernetes.maas_clusters().await? {
        let its_key = Key::of(other.as_ref());
        if its_key != *key && speaks_of(&other, &name) {
            rivals.extend(rival(context, its_key, &other, &name, observed).await?);
        }
    }
    Ok(rivals)
}

/// Whether the object mentions the name anywhere. Cheap, because it runs over all objects.
fn speaks_of(object: &MaasCluster, name: &str) -> bool {
    let noted = object.metadata.annotations.as_ref().and_then(|all| all.get(capmaas_api::names::DNS_NAME_ANNOTATION));
    let endpoint = object.spec.control_plane_endpoint.as_ref().map(|endpoint| &endpoint.host);
    let stored = object.status.as_ref().and_then(|status| status.network.as_ref()?.dns_name.as_ref());
    [noted, endpoint, stored].into_iter().flatten().any(|said| said.eq_ignore_ascii_case(name))
}

async fn rival(
    context: &Context,
    key: Key,
    object: &MaasCluster,
    name: &str,
    observed: &Observed,
) -> Result<Option<Found>> {
    let owner = Owner { name: cluster_name(object), ..Owner::default() };
    let facts = object_of(object, &owner);
    let claims = endpoint::source(&facts, &owner) != Source::User
        && endpoint::name(&facts, &owner).is_some_and(|claimed| claimed.eq_ignore_ascii_case(name));
    let copy = is_plain_copy(&facts.itself, facts.journal.written_for.as_ref());
    let (ours, theirs) = (observed.object.journal.identity.as_deref(), facts.journal.identity.as_deref());
    let elsewhere = matches!((ours, theirs), (Some(ours), Some(theirs)) if maas_of(ours) != maas_of(theirs));
    if !claims || copy || elsewhere {
        return Ok(None);
    }
    let machines = context.kubernetes.maas_machines(Some(&key.beside(cluster_name(object)))).await?;
    let (_, owner) = owner_of(context, &key, object).await;
    let rival = Rival {
        who: key.to_string(),
        name_is_from_uid: facts.name_is_from_uid,
        numbered: facts.journal.record.is_some(),
        own: facts.journal.written_for.as_ref() == Some(&facts.itself),
        owned: matches!(owner, Lookup::Found(owner) if owner.refers_here),
        machines: BTreeSet::new(),
    };
    Ok(Some((rival, machines)))
}

/// The MAAS endpoint of a recorded identity. IDs and names of another MAAS mean nothing here.
fn maas_of(identity: &str) -> &str {
    identity.rsplit_once('#').map_or(identity, |(endpoint, _)| endpoint)
}
