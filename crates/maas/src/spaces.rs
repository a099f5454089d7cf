//! Spaces: subnets that can reach each other.

use crate::Client;
use crate::call::Call;
use crate::error::Result;
use crate::subnets::Subnet;
use crate::tolerant::wire_type;
use crate::vlans::Vlan;

wire_type! {
    /// A space.
    Space {
        required {
            /// The id; -1 for the placeholder of everything without a space.
            id: i64,
        }
        /// The name.
        name: Option<String>,
        /// Free text.
        description: Option<String>,
        /// Its VLANs.
        vlans: Vec<Vlan>,
        /// Its subnets.
        subnets: Vec<Subnet>,
    }
}

/// Calls about spaces; see [`Client::spaces`].
#[derive(Debug, Clone, Copy)]
pub struct Spaces<'a> {
    client: &'a Client,
}

impl Client {
    /// Spaces.
    pub fn spaces(&self) -> Spaces<'_> {
        Spaces { client: self }
    }
}

impl Spaces<'_> {
    /// All spaces.
    pub async fn list(&self) -> Result<Vec<Space>> {
        self.client.json(Call::get("spaces.list", "spaces/", &[])?).await
    }

    /// One space.
    pub async fn read(&self, id: i64) -> Result<Space> {
        self.client.json(Call::get("spaces.read", "spaces/{id}/", &[&id.to_string()])?.of(&["Space"])).await
    }
}
