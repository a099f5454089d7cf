//! DNS names and the addresses behind them.

use std::net::IpAddr;

use crate::Client;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::ip_addresses::IpAddress;
use crate::tolerant::wire_type;

const OBJECT: &[&str] = &["DNSResource"];

wire_type! {
    /// A DNS name.
    DnsResource {
        required {
            /// The number: what to store in order to know one's own record again. -1 in a list of all for names that
            /// MAAS made up by itself.
            id: i64,
        }
        /// The whole name.
        fqdn: Option<String>,
        /// Seconds that answers may be kept.
        address_ttl: Option<i64>,
        /// The addresses, in no order. None in a list of all for names that MAAS made up by itself.
        ip_addresses: Option<Vec<IpAddress>>,
        /// Records of other types (TXT, CNAME, …).
        resource_records: Vec<ResourceRecord>,
    }
}

wire_type! {
    /// A record that is no address.
    ResourceRecord {
        /// The number.
        id: Option<i64>,
        /// TXT, CNAME, …
        rrtype: Option<String>,
        /// What it says.
        rrdata: Option<String>,
        /// Seconds that answers may be kept.
        ttl: Option<i64>,
    }
}

/// Which names to list.
#[derive(Debug, Clone, Default)]
pub struct DnsFilter {
    /// Exactly this name. An unknown domain in it is [`UnknownReference`](crate::ErrorKind::UnknownReference).
    pub fqdn: Option<String>,
    /// Names of this domain.
    pub domain: Option<String>,
    /// Names with this first part.
    pub name: Option<String>,
    /// Names that MAAS made up by itself, too.
    pub all: bool,
}

impl DnsFilter {
    /// Exactly this name.
    pub fn fqdn(fqdn: impl Into<String>) -> Self {
        Self { fqdn: Some(fqdn.into()), ..Self::default() }
    }
}

/// Calls about DNS names; see [`Client::dns_resources`].
#[derive(Debug, Clone, Copy)]
pub struct DnsResources<'a> {
    client: &'a Client,
}

impl Client {
    /// DNS names.
    pub fn dns_resources(&self) -> DnsResources<'_> {
        DnsResources { client: self }
    }
}

impl DnsResources<'_> {
    /// Names that match.
    pub async fn list(&self, filter: &DnsFilter) -> Result<Vec<DnsResource>> {
        let mut call = Call::get("dns_resources.list", "dnsresources/", &[])?;
        for (name, value) in [("fqdn", &filter.fqdn), ("domain", &filter.domain), ("name", &filter.name)] {
            call = call.query_all(name, value);
        }
        if filter.all {
            call = call.query("all", true);
        }
        self.client.json(call).await
    }

    /// One name.
    pub async fn read(&self, id: i64) -> Result<DnsResource> {
        self.client.json(Call::get("dns_resources.read", "dnsresources/{id}/", &[&number(id)?])?.of(OBJECT)).await
    }

    /// Makes a name. A name that exists, whoever made it, is [`AlreadyExists`](crate::ErrorKind::AlreadyExists).
    pub async fn create(&self, fqdn: &str, addresses: &[IpAddr], ttl: Option<u32>) -> Result<DnsResource> {
        // MAAS answers 500 to a name without labels.
        if fqdn.split('.').filter(|label| !label.is_empty()).count() < 2 {
            return Err(Error::refused("dns_resources.create", format!("{fqdn:?} is no name within a domain")));
        }
        let call = Call::post("dns_resources.create", "dnsresources/", &[])?
            .field("fqdn", fqdn)
            .field("ip_addresses", joined(addresses))
            .maybe("address_ttl", ttl);
        self.client.json(call).await
    }

    /// Replaces all addresses of a name; none clears it.
    ///
    /// An address that belongs to a machine is bound to that machine and follows it to its next owner, and an address
    /// that is dropped here stays reserved until [`release`](crate::IpAddresses::release)d.
    pub async fn set_addresses(&self, id: i64, addresses: &[IpAddr]) -> Result<DnsResource> {
        let call = Call::put("dns_resources.update", "dnsresources/{id}/", &[&number(id)?])?.of(OBJECT);
        self.client.json(call.field("ip_addresses", joined(addresses))).await
    }

    /// Deletes a name. Its addresses stay reserved until [`release`](crate::IpAddresses::release)d.
    pub async fn delete(&self, id: i64) -> Result<()> {
        let call = Call::delete("dns_resources.delete", "dnsresources/{id}/", &[&number(id)?])?;
        self.client.empty(call.of(OBJECT)).await
    }
}

/// -1 stands for names that MAAS made up: nothing can be done to them.
fn number(id: i64) -> Result<String> {
    if id < 0 {
        return Err(Error::refused("dns_resources", "a name that MAAS made up by itself cannot be addressed"));
    }
    Ok(id.to_string())
}

/// Separated by spaces: commas make MAAS answer 500.
fn joined(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
