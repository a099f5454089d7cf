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
            /// The number. The default domain is 0.
            id: i64,
        }
        /// The name, without a dot at the end.
        name: Option<String>,
        /// Whether MAAS answers for it.
        authoritative: Option<bool>,
        /// Seconds that answers may be kept.
        ttl: Option<i64>,
        /// Whether new machines get into it.
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

    /// Makes a domain that MAAS answers for.
    pub async fn create(&self, name: &str) -> Result<Domain> {
        self.client.json(Call::post("domains.create", "domains/", &[])?.field("name", name)).await
    }

    /// Deletes a domain. One that holds machines or records is [`InUse`](crate::ErrorKind::InUse).
    pub async fn delete(&self, id: i64) -> Result<()> {
        self.client.empty(Call::delete("domains.delete", "domains/{id}/", &[&id.to_string()])?.of(OBJECT)).await
    }
}
