//! Subnets.

use crate::Client;
use crate::call::Call;
use crate::error::Result;
use crate::tolerant::wire_type;
use crate::vlans::Vlan;

wire_type! {
    /// A subnet.
    Subnet {
        required {
            /// The id.
            id: i64,
        }
        /// The name, which is the CIDR by default.
        name: Option<String>,
        /// The network, for example `10.0.0.0/24`.
        cidr: Option<String>,
        /// The gateway.
        gateway_ip: Option<String>,
        /// The DNS servers that machines here are configured with.
        dns_servers: Vec<String>,
        /// The VLAN it is on.
        vlan: Option<Vlan>,
        /// The name of the space; `undefined` if there is none.
        space: Option<String>,
        /// Whether MAAS assigns addresses here.
        managed: Option<bool>,
        /// Free text.
        description: Option<String>,
    }
}

/// Calls about subnets; see [`Client::subnets`].
#[derive(Debug, Clone, Copy)]
pub struct Subnets<'a> {
    client: &'a Client,
}

impl Client {
    /// Subnets.
    pub fn subnets(&self) -> Subnets<'_> {
        Subnets { client: self }
    }
}

impl Subnets<'_> {
    /// All subnets.
    pub async fn list(&self) -> Result<Vec<Subnet>> {
        self.client.json(Call::get("subnets.list", "subnets/", &[])?).await
    }
}
