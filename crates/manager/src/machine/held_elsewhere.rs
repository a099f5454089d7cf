//! Which of the observed machines and keys belong to other objects.

use std::collections::{BTreeMap, BTreeSet};

use capmaas_api::MaasMachine;
use capmaas_core::credentials::Name;
use capmaas_core::machine::{Access, HeldElsewhere, Journal, Observed};

use crate::kubernetes::{Key, Kubernetes, Result};
use crate::machine_index::{Asker, MachineIndex, holds};

pub(super) async fn held_elsewhere(
    kubernetes: &dyn Kubernetes,
    observed: &Observed,
    journal: Option<&Journal>,
    machine_index: &MachineIndex,
) -> Result<HeldElsewhere> {
    let maas = match &observed.access {
        Access::Granted { name, .. } => Name::parts(name).map(|(endpoint, _)| endpoint),
        Access::Denied { .. } => None,
    };
    let asker = Asker { uid: observed.object.metadata.uid.as_deref(), maas };
    let claims = match journal {
        Some(journal) => claims(kubernetes, &observed.object, journal, machine_index).await?,
        None => HeldElsewhere::default(),
    };
    let holders = held(kubernetes, machine_index, asker, observed.machines()).await?;
    Ok(HeldElsewhere {
        machines: holders.keys().cloned().collect(),
        holders,
        use_go_form: machine_index.is_go_form_used_beside(&observed.object),
        ..claims
    })
}

/// Other objects with the journal's idempotency key; fills in no other field. A copy is removed without a release, so
/// the supposed original is read live first: the index may lag behind.
pub(super) async fn claims(
    kubernetes: &dyn Kubernetes,
    object: &MaasMachine,
    journal: &Journal,
    machine_index: &MachineIndex,
) -> Result<HeldElsewhere> {
    let own = Key::of(object);
    let mut original = machine_index.original_of(&own, &journal.key);
    if let Some(key) = &original {
        let now = kubernetes.maas_machine(key).await?;
        if now.and_then(|now| now.metadata.uid).as_deref() != Journal::uid_in(&journal.key) {
            original = None;
        }
    }
    let original = original.map(|key| key.to_string());
    Ok(HeldElsewhere {
        original,
        contested: machine_index.is_key_of_another(&own, &journal.key),
        ..HeldElsewhere::default()
    })
}

/// The machines that other objects hold, each with one of these objects. The index may lag behind: a machine that one object has released and another
/// one now holds would be mistaken for a live node, be left alone (S6), and leak. So the supposed holder is read live
/// first.
async fn held(
    kubernetes: &dyn Kubernetes,
    machine_index: &MachineIndex,
    asker: Asker<'_>,
    machines: BTreeSet<String>,
) -> Result<BTreeMap<String, String>> {
    let mut held = BTreeMap::new();
    for id in machines {
        for holder in machine_index.others_holding(asker, &id) {
            if kubernetes.maas_machine(&holder).await?.is_some_and(|object| holds(&object, asker.maas, &id)) {
                held.insert(id.clone(), holder.to_string());
            }
        }
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use capmaas_core::machine::Allocation;

    use super::super::fixture::{noting, remembering};
    use super::*;
    use crate::clock::Clock;
    use crate::kubernetes::MemoryKubernetes;

    #[tokio::test]
    async fn s06_a_stale_index_is_not_trusted_about_a_machine_that_was_given_back() {
        let (clock, _driver) = Clock::driven(jiff::Timestamp::UNIX_EPOCH);
        let (port, key) = (MemoryKubernetes::new(clock), Key::new("n", "a"));
        let holds = Journal { allocation: Some(Allocation::of("abc123")), ..Journal::new("a") };
        port.create(remembering("a", &holds)).unwrap();
        let behind = port.machine_index().await.unwrap();
        let another = Asker { uid: Some("another"), maas: None };
        let seen = async || held(&port, &behind, another, BTreeSet::from(["abc123".into()])).await.unwrap();
        assert_eq!(seen().await, BTreeMap::from([("abc123".into(), "n/a".into())]), "a live node");
        let released = Allocation { released: Some("abc123".into()), ..Allocation::of("abc123") };
        let given_back = Journal { allocation: Some(released), ..holds };
        port.edit("MaasMachine", &key, &noting(&given_back)).unwrap();
        assert_eq!(behind.others_holding(another, "abc123").len(), 1, "it is behind");
        assert_eq!(seen().await, BTreeMap::new());
        port.delete("MaasMachine", &key);
        assert_eq!(seen().await, BTreeMap::new());
    }
}
