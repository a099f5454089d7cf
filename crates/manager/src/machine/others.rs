//! What other objects hold of that which a pass has seen.

use std::collections::BTreeSet;

use capmaas_core::machine::{Observed, Others, Record};

use crate::census::{Census, stands_for};
use crate::port::{Kubernetes, Result};

/// Looks it up.
pub(super) async fn others(
    kubernetes: &dyn Kubernetes,
    observed: &Observed,
    record: Option<&Record>,
    census: &Census,
) -> Result<Others> {
    let uid = observed.object.metadata.uid.as_deref();
    Ok(Others {
        machines: held(kubernetes, census, uid, observed.machines()).await?,
        share_key: record.is_some_and(|record| census.is_key_of_another(uid, &record.key)),
        use_go_form: census.is_go_form_used_beside(&observed.object),
    })
}

/// Those that other objects hold. The census may be behind: a machine that one object has given back and another one got would be
/// taken for a live node, be kept as it is (S6), and leak. So whoever is said to hold it is read before that is believed.
async fn held(
    kubernetes: &dyn Kubernetes,
    census: &Census,
    uid: Option<&str>,
    machines: BTreeSet<String>,
) -> Result<BTreeSet<String>> {
    let mut held = BTreeSet::new();
    for id in machines {
        for holder in census.others_holding(uid, &id) {
            if kubernetes.maas_machine(&holder).await?.is_some_and(|object| stands_for(&object, &id)) {
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
    use crate::port::{Key, MemoryPort};

    #[tokio::test]
    async fn s06_a_census_that_is_behind_is_not_believed_about_a_machine_that_was_given_back() {
        let (clock, _driver) = Clock::driven(jiff::Timestamp::UNIX_EPOCH);
        let (port, key) = (MemoryPort::new(clock), Key::new("n", "a"));
        let holds = Record { machine: Some("abc123".into()), ..Record::new("a") };
        port.create(remembering("a", &holds)).unwrap();
        let behind = port.census().await.unwrap();
        let seen = async || held(&port, &behind, Some("another"), BTreeSet::from(["abc123".into()])).await.unwrap();
        assert_eq!(seen().await, BTreeSet::from(["abc123".into()]), "a live node");
        let given_back = Record { released: Some("abc123".into()), ..holds };
        port.edit("MaasMachine", &key, &noting(&given_back)).unwrap();
        assert_eq!(behind.others_holding(Some("another"), "abc123").len(), 1, "it is behind");
        assert_eq!(seen().await, BTreeSet::new());
        port.delete("MaasMachine", &key);
        assert_eq!(seen().await, BTreeSet::new());
    }
}
