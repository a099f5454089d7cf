//! Fabrics: sets of VLANs.

use crate::Client;
use crate::call::Call;
use crate::error::Result;
use crate::tolerant::wire_type;
use crate::vlans::Vlan;

wire_type! {
    /// A set of VLANs with distinct VIDs.
    Fabric {
        required {
            /// The id.
            id: i64,
        }
        /// The name.
        name: Option<String>,
        /// The class, for constraints.
        class_type: Option<String>,
        /// Its VLANs.
        vlans: Vec<Vlan>,
    }
}

/// Calls about fabrics; see [`Client::fabrics`].
#[derive(Debug, Clone, Copy)]
pub struct Fabrics<'a> {
    client: &'a Client,
}

impl Client {
    /// Fabrics.
    pub fn fabrics(&self) -> Fabrics<'_> {
        Fabrics { client: self }
    }
}

impl Fabrics<'_> {
    /// All fabrics.
    pub async fn list(&self) -> Result<Vec<Fabric>> {
        self.client.json(Call::get("fabrics.list", "fabrics/", &[])?).await
    }
}
