//! Address ranges with a purpose.

use crate::Client;
use crate::call::Call;
use crate::error::Result;
use crate::subnets::Subnet;
use crate::tolerant::wire_type;
use crate::users::User;

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
}
