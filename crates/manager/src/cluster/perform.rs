//! Effects, as calls.

use std::collections::BTreeSet;
use std::net::IpAddr;

use capmaas_core::cluster::plan::Effect;
use maas_client::{Client, ErrorKind};

/// Seconds that answers about an API server's name may be kept: machines come and go.
const TTL: u32 = 10;

/// Does it, once. Answers the number of a record that was made. What is found done already, or gone already, is no failure:
/// the next look tells.
pub(super) async fn perform(client: &Client, effect: &Effect) -> Result<Option<i64>, String> {
    let list = |addresses: &BTreeSet<IpAddr>| addresses.iter().copied().collect::<Vec<_>>();
    let names = client.dns_resources();
    match effect {
        Effect::CreateDnsRecord { name, addresses } => match names.create(name, &list(addresses), Some(TTL)).await {
            Ok(record) => Ok(Some(record.id)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(error) if error.kind() == ErrorKind::UnknownReference => {
                Err(format!("cannot make the DNS record {name}; does spec.dnsDomain exist in MAAS? {error}"))
            }
            Err(error) => Err(format!("cannot make the DNS record {name}: {error}")),
        },
        Effect::UpdateDnsRecord { id, addresses } => match names.set_addresses(*id, &list(addresses)).await {
            Err(error) if !error.is_not_found() => Err(format!("cannot change the DNS record {id}: {error}")),
            _ => Ok(None),
        },
        Effect::DeleteDnsRecord { id } => match names.delete(*id).await {
            Err(error) if !error.is_not_found() => Err(format!("cannot delete the DNS record {id}: {error}")),
            _ => Ok(None),
        },
        Effect::ReleaseAddress { address } => match client.ip_addresses().release(*address).await {
            Err(error) => Err(format!("cannot give {address} back: {error}")),
            Ok(()) => Ok(None),
        },
    }
}
