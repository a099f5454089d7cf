//! Address ranges with a purpose.

use std::net::IpAddr;

use crate::Client;
use crate::call::Call;
use crate::error::Result;
use crate::subnets::Subnet;
use crate::tolerant::wire_type;
use crate::users::User;

const OBJECT: &[&str] = &["IPRange"];

wire_type! {
    /// A range of addresses.
    IpRange {
        required {
            /// The id.
            id: i64,
        }
        /// `dynamic` (for DHCP) or `reserved`.
        #[serde(rename = "type")]
        kind: Option<String>,
        /// The first address.
        start_ip: Option<String>,
        /// The last address.
        end_ip: Option<String>,
        /// The subnet.
        subnet: Option<Subnet>,
        /// Its owner.
        user: Option<User>,
        /// Free text.
        comment: Option<String>,
    }
}

/// Calls about ranges; see [`Client::ip_ranges`].
#[derive(Debug, Clone, Copy)]
pub struct IpRanges<'a> {
    client: &'a Client,
}

impl Client {
    /// Ranges of addresses.
    pub fn ip_ranges(&self) -> IpRanges<'_> {
        IpRanges { client: self }
    }
}

impl IpRanges<'_> {
    /// All ranges.
    pub async fn list(&self) -> Result<Vec<IpRange>> {
        self.client.json(Call::get("ip_ranges.list", "ipranges/", &[])?).await
    }

    /// One range.
    pub async fn read(&self, id: i64) -> Result<IpRange> {
        self.client.json(Call::get("ip_ranges.read", "ipranges/{id}/", &[&id.to_string()])?.of(OBJECT)).await
    }

    /// Reserves a range, from which MAAS then assigns no addresses.
    pub async fn reserve(&self, first: IpAddr, last: IpAddr, comment: &str) -> Result<IpRange> {
        let call = Call::post("ip_ranges.create", "ipranges/", &[])?
            .field("type", "reserved")
            .field("start_ip", first)
            .field("end_ip", last)
            .field("comment", comment);
        self.client.json(call).await
    }

    /// Deletes a range.
    pub async fn delete(&self, id: i64) -> Result<()> {
        self.client.empty(Call::delete("ip_ranges.delete", "ipranges/{id}/", &[&id.to_string()])?.of(OBJECT)).await
    }
}
