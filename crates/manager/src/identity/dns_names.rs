//! A cache of the clusters' records in MAAS's DNS, so that not every pass reads them.
//!
//! Only we write these records, so the answer to our write holds until somebody else changes the record, which the next
//! resync notices. After a restart the cache is empty and every name is read once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capmaas_core::plan::IN_FLIGHT;
use jiff::{SignedDuration, Timestamp};
use maas_client::{Client, DnsFilter, DnsResource, Error, ErrorKind};

use crate::clock::is_recent;

/// How long an answer stays valid.
const RESYNC: SignedDuration = SignedDuration::from_mins(10);

/// Reads names in MAAS's DNS. Clones share the cache.
#[derive(Clone)]
pub struct DnsNames {
    client: Client,
    state: Arc<Mutex<HashMap<String, Name>>>,
}

/// A write in flight.
#[must_use]
pub(crate) struct Sending {
    name: String,
    /// Until when an earlier write may still land.
    before: Option<Timestamp>,
}

#[derive(Default)]
struct Name {
    record: Option<(Timestamp, DnsResource)>,
    /// Incremented by every write: an answer to a read that started before it is not cached.
    turn: u64,
    /// A write with unknown outcome is in flight: until then nothing that is read is cached (S2).
    unsettled_until: Option<Timestamp>,
}

impl fmt::Debug for DnsNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DnsNames").finish_non_exhaustive()
    }
}

impl DnsNames {
    pub fn new(client: Client) -> Self {
        Self { client, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, HashMap<String, Name>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cached record under a name, if it is recent. Absence is never cached (S1).
    pub fn remembered(&self, name: &str, now: Timestamp) -> Option<DnsResource> {
        let state = self.state();
        let (at, record) = state.get(&name.to_lowercase())?.record.as_ref()?;
        is_recent(*at, RESYNC, now).then(|| record.clone())
    }

    /// The record under a name, read from MAAS now.
    pub async fn read(&self, name: &str, now: Timestamp) -> Result<Option<DnsResource>, Error> {
        let key = name.to_lowercase();
        let turn = self.state().entry(key.clone()).or_default().turn;
        let found = match self.client.dns_resources().list(&DnsFilter::fqdn(name)).await {
            Ok(records) => {
                let ours = |record: &DnsResource| {
                    record.id >= 0 && record.fqdn.as_deref().is_none_or(|fqdn| fqdn.eq_ignore_ascii_case(name))
                };
                records.into_iter().find(ours)
            }
            // Without the domain there is no record: MAAS does not delete a domain that has any.
            Err(error) if matches!(error.kind(), ErrorKind::UnknownReference | ErrorKind::NotFound) => None,
            Err(error) => return Err(error),
        };
        let mut state = self.state();
        let known = state.entry(key).or_default();
        if known.turn == turn && known.unsettled_until.is_none_or(|until| now >= until) {
            known.record = found.clone().map(|record| (now, record));
        }
        Ok(found)
    }

    /// The record under a name, from the cache or read from MAAS now.
    pub async fn lookup(&self, name: &str, now: Timestamp) -> Result<Option<DnsResource>, Error> {
        match self.remembered(name, now) {
            Some(record) => Ok(Some(record)),
            None => self.read(name, now).await,
        }
    }

    /// A write to this name is about to be sent: whatever the outcome, the cached record is no longer valid. If no
    /// answer arrives, the write may land at any time until its deadline has passed.
    pub(crate) fn sending(&self, name: &str, now: Timestamp) -> Sending {
        let mut state = self.state();
        let known = state.entry(name.to_lowercase()).or_default();
        let before = known.unsettled_until.filter(|until| now < *until);
        let deadline = now.saturating_add(IN_FLIGHT).unwrap_or(now);
        *known = Name { record: None, turn: known.turn + 1, unsettled_until: Some(deadline) };
        Sending { name: name.to_lowercase(), before }
    }

    /// MAAS answered the write: with the updated record, or by refusing.
    pub(crate) fn answered(&self, sending: Sending, record: Option<&DnsResource>, now: Timestamp) {
        let mut state = self.state();
        let known = state.entry(sending.name).or_default();
        let record = record.filter(|_| sending.before.is_none()).map(|record| (now, record.clone()));
        *known = Name { record, turn: known.turn + 1, unsettled_until: sending.before };
    }

    /// Drops a name that is no longer used.
    pub(crate) fn drop_name(&self, name: &str) {
        self.state().remove(&name.to_lowercase());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: i64) -> DnsResource {
        serde_json::from_value(serde_json::json!({ "id": id, "fqdn": "C1.example", "ip_addresses": [] })).unwrap()
    }

    fn names() -> DnsNames {
        DnsNames::new(Client::builder("http://127.0.0.1:1/MAAS", "a:b:c").build().unwrap())
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[tokio::test]
    async fn the_answer_to_a_write_holds_for_ten_minutes() {
        let names = names();
        let sending = names.sending("c1.example", at(0));
        names.answered(sending, Some(&record(7)), at(0));
        assert_eq!(names.remembered("C1.example", at(599)).map(|record| record.id), Some(7));
        assert!(names.remembered("c1.example", at(600)).is_none());
        names.drop_name("c1.example");
        assert!(names.remembered("c1.example", at(1)).is_none());
    }

    #[tokio::test]
    async fn s02_while_a_write_may_still_happen_nothing_is_remembered() {
        let names = names();
        let write = |second| {
            let sending = names.sending("c1.example", at(second));
            names.answered(sending, Some(&record(7)), at(second));
            names.remembered("c1.example", at(second)).is_some()
        };
        assert!(write(0));
        // The answer to this write is lost.
        let _ = names.sending("c1.example", at(10));
        assert!(!write(20) && !write(159));
        assert!(write(160));
    }
}
