//! Which hosts are going to leave, so that no VM is placed on them while others have room.
//!
//! Computed with every list of hosts, from the watches: a manager that has just started knows it before it places the
//! first VM.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use capmaas_api::MaasMachine;
use capmaas_api::capi::{self, owner};
use capmaas_core::Lookup;
use maas_client::Machine;

use super::Objects;
use crate::kubernetes::{Key, Kubernetes};
use crate::stamp;

/// Those of these machines of a MAAS whose Machine its owner is going to replace, or that are being deleted. One that
/// cannot be read counts, too: this is only a preference.
pub(super) async fn departing(
    objects: Objects<'_>,
    maas: &str,
    machines: &BTreeMap<String, Machine>,
) -> BTreeSet<String> {
    let claims = |id: &String| objects.index.holders(maas, id).into_iter().map(|(key, _)| key).collect();
    let claims: BTreeMap<&String, BTreeSet<Key>> = machines.keys().map(|id| (id, claims(id))).collect();
    let wanted: BTreeSet<&Key> = claims.values().flatten().collect();
    let mut departing = BTreeSet::new();
    if wanted.is_empty() {
        return departing;
    }
    let Ok(all) = objects.kubernetes.maas_machines(None).await else {
        return claims.iter().filter(|(_, keys)| !keys.is_empty()).map(|(id, _)| (*id).clone()).collect();
    };
    let known = all.into_iter().map(|object| (Key::of(object.as_ref()), object));
    let known: BTreeMap<Key, Arc<MaasMachine>> = known.filter(|(key, _)| wanted.contains(key)).collect();
    for (id, keys) in &claims {
        let Some(machine) = machines.get(*id) else { continue };
        let proven = keys.iter().filter_map(|key| known.get(key)).find(|object| stamp::is_of(machine, object));
        if let Some(object) = proven
            && leaves(objects.kubernetes, object).await
        {
            departing.insert((*id).clone());
        }
    }
    departing
}

async fn leaves(kubernetes: &dyn Kubernetes, object: &MaasMachine) -> bool {
    object.metadata.deletion_timestamp.is_some()
        || match machine_of(kubernetes, object).await {
            Lookup::Found(it) => it.metadata.deletion_timestamp.is_some() || it.is_up_to_date() == Some(false),
            Lookup::Absent => false,
            Lookup::Unknown(_) => true,
        }
}

/// The Machine that owns an object, from the watch.
pub(crate) async fn machine_of(kubernetes: &dyn Kubernetes, object: &MaasMachine) -> Lookup<capi::Machine> {
    let Some(owner) = owner(&object.metadata, "Machine") else { return Lookup::Absent };
    let found = kubernetes.machine(&Key::of(object).beside(&owner.name), &owner.uid).await;
    found.map(|machine| machine.filter(|it| it.metadata.uid.as_ref() == Some(&owner.uid))).into()
}
