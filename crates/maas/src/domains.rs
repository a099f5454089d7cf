//! DNS domains.

use crate::Client;
use crate::call::Call;
use crate::error::Result;
use crate::tolerant::wire_type;

const OBJECT: &[&str] = &["Domain"];

wire_type! {
    /// A DNS domain.
    Domain {
        required {
            /// The id. The default domain is 0.
            id: i64,
        }
        /// The name, without a trailing dot.
        name: Option<String>,
        /// Whether MAAS is authoritative for it.
        authoritative: Option<bool>,
        /// TTL in seconds.
        ttl: Option<i64>,
        /// Whether new machines are in it by default.
        is_default: Option<bool>,
        /// How many records it has.
        resource_record_count: Option<i64>,
    }
}

/// Calls about domains; see [`Client::domains`].
#[derive(Debug, Clone, Copy)]
pub struct Domains<'a> {
    client: &'a Client,
}

impl Client {
    /// DNS domains.
    pub fn domains(&self) -> Domains<'_> {
        Domains { client: self }
    }
}

impl Domains<'_> {
    /// All domains.
    pub async fn list(&self) -> Result<Vec<Domain>> {
        self.client.json(Call::get("domains.list", "domains/", &[])?).await
    }

    /// One domain.
    pub async fn read(&self, id: i64) -> Result<Domain> {
        self.client.json(Call::get("domains.read", "domains/{id}/", &[&id.to_string()])?.of(OBJECT)).await
    }

    /// Creates a domain that MAAS is authoritative for.
    pub async fn create(&self, name: &str) -> Result<Domain> {
        self.client.json(Call::post("domains.create", "domains/", &[])?.field("name", name)).await
    }

    /// Deletes a domain. One that contains machines or records is [`InUse`](crate::ErrorKind::InUse).
    pub async fn delete(&self, id: i64) -> Result<()> {
        self.client.empty(Call::delete("domains.delete", "domains/{id}/", &[&id.to_string()])?.of(OBJECT)).await
    }
}
