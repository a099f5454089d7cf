//! VLANs.

use crate::Client;
use crate::call::Call;
use crate::error::Result;
use crate::tolerant::wire_type;

const OBJECT: &[&str] = &["VLAN"];

wire_type! {
    /// A VLAN.
    Vlan {
        required {
            /// The id in MAAS (not the VID).
            id: i64,
        }
        /// The VID; 0 for untagged.
        vid: Option<i64>,
        /// The name.
        name: Option<String>,
        /// The name of its fabric.
        fabric: Option<String>,
        /// The id of its fabric.
        fabric_id: Option<i64>,
        /// The MTU.
        mtu: Option<i64>,
        /// Whether MAAS serves DHCP here, which booting needs.
        dhcp_on: Option<bool>,
        /// The VLAN whose DHCP is relayed here, in MAAS's own form.
        relay_vlan: Option<serde_json::Value>,
        /// A DHCP server that MAAS has observed here and that is not its own.
        external_dhcp: Option<String>,
        /// The rack controller that serves it.
        primary_rack: Option<String>,
        /// The name of its space; `undefined` if there is none.
        space: Option<String>,
    }
}

/// Calls about VLANs; see [`Client::vlans`].
#[derive(Debug, Clone, Copy)]
pub struct Vlans<'a> {
    client: &'a Client,
}

impl Client {
    /// VLANs.
    pub fn vlans(&self) -> Vlans<'_> {
        Vlans { client: self }
    }
}

impl Vlans<'_> {
    /// All VLANs of a fabric.
    pub async fn list(&self, fabric: i64) -> Result<Vec<Vlan>> {
        let call = Call::get("vlans.list", "fabrics/{fabric}/vlans/", &[&fabric.to_string()])?;
        self.client.json(call.of(&["Fabric"])).await
    }

    /// One VLAN by its id.
    pub async fn read(&self, id: i64) -> Result<Vlan> {
        self.client.json(Call::get("vlans.read", "vlans/{id}/", &[&id.to_string()])?.of(OBJECT)).await
    }

    /// One VLAN by its fabric and VID.
    pub async fn read_tagged(&self, fabric: i64, vid: i64) -> Result<Vlan> {
        let arguments = [fabric.to_string(), vid.to_string()];
        let call = Call::get("vlans.read_tagged", "fabrics/{fabric}/vlans/{vid}/", &[&arguments[0], &arguments[1]])?;
        self.client.json(call.of(OBJECT)).await
    }
}
