//! Subnets.

use crate::Client;
use crate::call::Call;
use crate::error::Result;
use crate::tolerant::wire_type;
use crate::vlans::Vlan;

const OBJECT: &[&str] = &["Subnet"];

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

wire_type! {
    /// The address usage of a subnet.
    SubnetStatistics {
        /// Free addresses.
        num_available: Option<i64>,
        /// The size of the largest free range.
        largest_available: Option<i64>,
        /// Addresses in use or reserved.
        num_unavailable: Option<i64>,
        /// All addresses.
        total_addresses: Option<i64>,
        /// From 0 to 1.
        usage: Option<f64>,
        /// 4 or 6.
        ip_version: Option<i64>,
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

    /// One subnet by its id, name or CIDR.
    pub async fn read(&self, specifier: &str) -> Result<Subnet> {
        // MAAS expects the slash of a CIDR unescaped.
        let call = match specifier.split_once('/') {
            Some((address, length)) => Call::get("subnets.read", "subnets/{address}/{length}/", &[address, length])?,
            None => Call::get("subnets.read", "subnets/{specifier}/", &[specifier])?,
        };
        self.client.json(call.of(OBJECT)).await
    }

    /// The address usage of a subnet.
    pub async fn statistics(&self, id: i64) -> Result<SubnetStatistics> {
        let call = Call::get("subnets.statistics", "subnets/{id}/?op=statistics", &[&id.to_string()])?;
        self.client.json(call.of(OBJECT)).await
    }
}
