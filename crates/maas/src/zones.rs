//! Availability zones.

use crate::Client;
use crate::call::Call;
use crate::error::Result;
use crate::tolerant::wire_type;

wire_type! {
    /// An availability zone.
    Zone {
        required {
            /// The name, which is also the id in paths and filters.
            name: String,
        }
        /// The id, which `compose` takes instead of the name.
        id: Option<i64>,
        /// Free text.
        description: Option<String>,
    }
}

/// Calls about zones; see [`Client::zones`].
#[derive(Debug, Clone, Copy)]
pub struct Zones<'a> {
    client: &'a Client,
}

impl Client {
    /// Availability zones.
    pub fn zones(&self) -> Zones<'_> {
        Zones { client: self }
    }
}

impl Zones<'_> {
    /// All zones.
    pub async fn list(&self) -> Result<Vec<Zone>> {
        self.client.json(Call::get("zones.list", "zones/", &[])?).await
    }
}
