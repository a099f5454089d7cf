//! Performs effects as calls to MAAS.

use std::collections::BTreeSet;
use std::net::IpAddr;

use capmaas_core::cluster::plan::Effect;
use jiff::Timestamp;
use maas_client::{DnsResource, Effect as Consequence, Error, ErrorKind};

use crate::identity::Identity;

/// TTL of an API server's record in seconds. Short, because the machines behind the name change.
const TTL: u32 = 10;

/// Performs the effect once and returns the ID of a newly created record. An effect that turns out to be done already,
/// or whose target is gone, is not a failure: the next pass observes the result. MAAS's answer to a write of the record
/// under `name` becomes the cached state of that record.
pub(super) async fn perform(
    identity: &Identity,
    name: Option<&str>,
    effect: &Effect,
    now: Timestamp,
) -> Result<Option<i64>, String> {
    let (client, names) = (&identity.client, identity.client.dns_resources());
    if let Effect::ReleaseAddress { address } = effect {
        let given = client.ip_addresses().release(*address).await;
        return given.map(|()| None).map_err(|error| format!("cannot release the address {address}: {error}"));
    }
    let sending = name.map(|name| identity.dns_names.sending(name, now));
    let list = |addresses: &BTreeSet<IpAddr>| addresses.iter().copied().collect::<Vec<_>>();
    let answer: Result<Option<DnsResource>, Error> = match effect {
        Effect::CreateDnsRecord { name, addresses } => names.create(name, &list(addresses), Some(TTL)).await.map(Some),
        Effect::UpdateDnsRecord { id, addresses } => names.set_addresses(*id, &list(addresses)).await.map(Some),
        Effect::DeleteDnsRecord { id } => names.delete(*id).await.map(|()| None),
        Effect::ReleaseAddress { .. } | Effect::Hosts(_) => Ok(None),
    };
    let is_final = answer.as_ref().map_or_else(|error| error.effect() == Consequence::None, |_| true);
    if let (Some(sending), true) = (sending, is_final) {
        identity.dns_names.answered(sending, answer.as_ref().ok().and_then(Option::as_ref), now);
    }
    match (effect, answer) {
        (Effect::CreateDnsRecord { .. }, Ok(record)) => Ok(record.map(|record| record.id)),
        (_, Ok(_)) => Ok(None),
        (Effect::CreateDnsRecord { name, .. }, Err(error)) => match error.kind() {
            ErrorKind::AlreadyExists => Ok(None),
            ErrorKind::UnknownReference => {
                Err(format!("cannot create the DNS record {name}; does spec.dnsDomain exist in MAAS? {error}"))
            }
            _ => Err(format!("cannot create the DNS record {name}: {error}")),
        },
        (_, Err(error)) if error.is_not_found() => Ok(None),
        (Effect::DeleteDnsRecord { id }, Err(error)) => Err(format!("cannot delete the DNS record {id}: {error}")),
        (_, Err(error)) => Err(format!("cannot change the DNS record {}: {error}", name.unwrap_or_default())),
    }
}
