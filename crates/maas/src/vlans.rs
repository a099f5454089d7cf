//! VLANs.

use crate::tolerant::wire_type;

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
