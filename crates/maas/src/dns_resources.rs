//! DNS names and their addresses.

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
            /// The id: store it to identify one's own record later. -1 in a list of all for names that MAAS generated.
            id: i64,
        }
        /// The fully qualified name.
        fqdn: Option<String>,
        /// TTL in seconds.
        address_ttl: Option<i64>,
        /// The addresses, unordered. None in a list of all for names that MAAS generated.
        ip_addresses: Option<Vec<IpAddress>>,
        /// Records of other types (TXT, CNAME, …).
        resource_records: Vec<ResourceRecord>,
    }
}

wire_type! {
    /// A record that is not an address.
    ResourceRecord {
        /// The id.
        id: Option<i64>,
        /// TXT, CNAME, …
        rrtype: Option<String>,
        /// The content.
        rrdata: Option<String>,
        /// TTL in seconds.
        ttl: Option<i64>,
    }
}

/// Which names to list.
#[derive(Debug, Clone, Default)]
pub struct DnsFilter {
    /// Exactly this name. An unknown domain in it is [`UnknownReference`](crate::ErrorKind::UnknownReference).
    pub fqdn: Option<String>,
    /// Names in this domain.
    pub domain: Option<String>,
    /// Names with this first label.
    pub name: Option<String>,
    /// Include names that MAAS generated.
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

    /// Creates a name. A name that exists, whoever created it, is [`AlreadyExists`](crate::ErrorKind::AlreadyExists).
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

    /// Replaces all addresses of a name; an empty list clears it.
    ///
    /// An address that belongs to a machine is bound to that machine and follows it to its next owner, and an address
    /// that is removed here stays reserved until [`release`](crate::IpAddresses::release)d.
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

/// -1 marks names that MAAS generated, which cannot be changed.
fn number(id: i64) -> Result<String> {
    if id < 0 {
        return Err(Error::refused("dns_resources", "a name that MAAS made up by itself cannot be addressed"));
    }
    Ok(id.to_string())
}

/// Separated by spaces: MAAS answers 500 to commas.
fn joined(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
