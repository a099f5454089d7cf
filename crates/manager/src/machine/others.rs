//! What other objects hold of that which a pass has seen.

use std::collections::BTreeSet;

use capmaas_api::MaasMachine;
use capmaas_core::credentials::Name;
use capmaas_core::machine::{Eyes, Observed, Others, Record};

use crate::census::{Asker, Census, stands_for};
use crate::port::{Key, Kubernetes, Result};

/// Looks it up.
pub(super) async fn others(
    kubernetes: &dyn Kubernetes,
    observed: &Observed,
    record: Option<&Record>,
    census: &Census,
) -> Result<Others> {
    let maas = match &observed.eyes {
        Eyes::Open { name, .. } => Name::parts(name).map(|(endpoint, _)| endpoint),
        Eyes::Closed { .. } => None,
    };
    let asker = Asker { uid: observed.object.metadata.uid.as_deref(), maas };
    let claims = match record {
        Some(record) => claims(kubernetes, &observed.object, record, census).await?,
        None => Others::default(),
    };
    Ok(Others {
        machines: held(kubernetes, census, asker, observed.machines()).await?,
        use_go_form: census.is_go_form_used_beside(&observed.object),
        ..claims
    })
}

/// Who else has the journal's key; nothing else is told. A copy is let go without a release, so whoever is said to be the
/// original is read before that is believed: the census may be behind.
pub(super) async fn claims(
    kubernetes: &dyn Kubernetes,
    object: &MaasMachine,
    record: &Record,
    census: &Census,
) -> Result<Others> {
    let own = Key::of(object);
    let mut original = census.original_of(&own, &record.key);
    if let Some(key) = &original {
        let now = kubernetes.maas_machine(key).await?;
        if now.and_then(|now| now.metadata.uid).as_deref() != Record::uid_in(&record.key) {
            original = None;
        }
    }
    let original = original.map(|key| key.to_string());
    Ok(Others { original, contested: census.is_key_of_another(&own, &record.key), ..Others::default() })
}

/// Those that other objects hold. The census may be behind: a machine that one object has given back and another one got would be
/// taken for a live node, be kept as it is (S6), and leak. So whoever is said to hold it is read before that is believed.
async fn held(
    kubernetes: &dyn Kubernetes,
    census: &Census,
    asker: Asker<'_>,
    machines: BTreeSet<String>,
) -> Result<BTreeSet<String>> {
    let mut held = BTreeSet::new();
    for id in machines {
        for holder in census.others_holding(asker, &id) {
            if kubernetes.maas_machine(&holder).await?.is_some_and(|object| stands_for(&object, asker.maas, &id)) {
                held.insert(id.clone());
            }
        }
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{noting, remembering};
    use super::*;
    use crate::clock::Clock;
    use crate::port::MemoryPort;

    #[tokio::test]
    async fn s06_a_census_that_is_behind_is_not_believed_about_a_machine_that_was_given_back() {
        let (clock, _driver) = Clock::driven(jiff::Timestamp::UNIX_EPOCH);
        let (port, key) = (MemoryPort::new(clock), Key::new("n", "a"));
        let holds = Record { machine: Some("abc123".into()), ..Record::new("a") };
        port.create(remembering("a", &holds)).unwrap();
        let behind = port.census().await.unwrap();
        let another = Asker { uid: Some("another"), maas: None };
        let seen = async || held(&port, &behind, another, BTreeSet::from(["abc123".into()])).await.unwrap();
        assert_eq!(seen().await, BTreeSet::from(["abc123".into()]), "a live node");
        let given_back = Record { released: Some("abc123".into()), ..holds };
        port.edit("MaasMachine", &key, &noting(&given_back)).unwrap();
        assert_eq!(behind.others_holding(another, "abc123").len(), 1, "it is behind");
        assert_eq!(seen().await, BTreeSet::new());
        port.delete("MaasMachine", &key);
        assert_eq!(seen().await, BTreeSet::new());
    }
}
