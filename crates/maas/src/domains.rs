//! DNS domains.

use crate::Client;
use crate::call::Call;
use crate::error::Result;
use crate::tolerant::wire_type;

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
}
