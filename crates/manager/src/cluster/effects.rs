//! Effects, as calls.

use std::collections::BTreeSet;
use std::net::IpAddr;

use capmaas_core::cluster::plan::Effect;
use jiff::Timestamp;
use maas_client::{DnsResource, Effect as Consequence, Error, ErrorKind};

use crate::identity::Identity;

/// Seconds that answers about an API server's name may be kept: machines come and go.
const TTL: u32 = 10;

/// Does it, once. Answers the number of a record that was made. What is found done already, or gone already, is no failure:
/// the next look tells. What MAAS answers to a write of the record under `name` is what is known about it from then on.
pub(super) async fn perform(
    identity: &Identity,
    name: Option<&str>,
    effect: &Effect,
    now: Timestamp,
) -> Result<Option<i64>, String> {
    let (client, names) = (&identity.client, identity.client.dns_resources());
    if let Effect::ReleaseAddress { address } = effect {
        let given = client.ip_addresses().release(*address).await;
        return given.map(|()| None).map_err(|error| format!("cannot give {address} back: {error}"));
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
                Err(format!("cannot make the DNS record {name}; does spec.dnsDomain exist in MAAS? {error}"))
            }
            _ => Err(format!("cannot make the DNS record {name}: {error}")),
        },
        (_, Err(error)) if error.is_not_found() => Ok(None),
        (Effect::DeleteDnsRecord { id }, Err(error)) => Err(format!("cannot delete the DNS record {id}: {error}")),
        (_, Err(error)) => Err(format!("cannot change the DNS record {}: {error}", name.unwrap_or_default())),
    }
}
