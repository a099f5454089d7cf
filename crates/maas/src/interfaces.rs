//! Network interfaces of machines.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use crate::Client;
use crate::call::Call;
use crate::error::Result;
use crate::subnets::Subnet;
use crate::tolerant::wire_type;
use crate::vlans::Vlan;

/// The name in MAAS's 404 shows which is missing: the interface or its machine.
const OBJECT: &[&str] = &["Interface", "Machine", "Node"];
const MACHINE: &[&str] = &["Machine", "Node"];

wire_type! {
    /// A network interface.
    Interface {
        required {
            /// The id.
            id: i64,
        }
        /// `eth0`, `br0`, …
        name: Option<String>,
        /// `physical`, `bridge`, `bond` or `vlan`.
        #[serde(rename = "type")]
        kind: Option<String>,
        /// The MAC address; a bridge has that of its parent.
        mac_address: Option<String>,
        /// Whether it is enabled.
        enabled: Option<bool>,
        /// The VLAN it is on.
        vlan: Option<Vlan>,
        /// How it is configured.
        links: Vec<InterfaceLink>,
        /// Addresses that were observed on it.
        discovered: Vec<DiscoveredAddress>,
        /// Names of the interfaces that it is built on.
        parents: Vec<String>,
        /// Names of the interfaces that are built on it.
        children: Vec<String>,
        /// Settings of a bridge or bond.
        params: BTreeMap<String, Value>,
        /// Its tags.
        tags: Vec<String>,
        /// Whether a cable is connected.
        link_connected: Option<bool>,
        /// The effective MTU.
        effective_mtu: Option<i64>,
        /// Its machine.
        system_id: Option<String>,
    }
}

impl Interface {
    /// Whether it is a bridge.
    pub fn is_bridge(&self) -> bool {
        self.kind.as_deref() == Some("bridge")
    }
}

wire_type! {
    /// How an interface is configured on one subnet.
    InterfaceLink {
        required {
            /// The id.
            id: i64,
        }
        /// `auto`, `dhcp`, `static` or `link_up`.
        mode: Option<String>,
        /// The subnet.
        subnet: Option<Subnet>,
        /// The address, once there is one.
        ip_address: Option<String>,
    }
}

wire_type! {
    /// An observed address.
    DiscoveredAddress {
        /// The address.
        ip_address: Option<String>,
        /// The subnet it is in.
        subnet: Option<Subnet>,
    }
}

/// How an interface gets an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkMode {
    /// MAAS chooses an address when the machine is deployed.
    Auto,
    /// Assigned by a DHCP server.
    Dhcp,
    /// A fixed address, chosen by the caller or by MAAS.
    Static,
    /// Up, without an address.
    LinkUp,
}

impl LinkMode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "AUTO",
            Self::Dhcp => "DHCP",
            Self::Static => "STATIC",
            Self::LinkUp => "LINK_UP",
        }
    }
}

/// How to link an interface to a subnet.
#[derive(Debug, Clone)]
pub struct Link {
    /// How it gets an address.
    pub mode: LinkMode,
    /// The subnet (id, or as `cidr:10.0.0.0/24`); it must be on the interface's VLAN.
    pub subnet: Option<String>,
    /// The address, for [`LinkMode::Static`]; without it MAAS chooses.
    pub ip_address: Option<IpAddr>,
    /// Use the subnet's gateway as the machine's.
    pub default_gateway: bool,
    /// Replace existing links.
    pub force: bool,
}

impl Link {
    /// A link of this mode to this subnet.
    pub fn new(mode: LinkMode, subnet: impl Into<String>) -> Self {
        Self { mode, subnet: Some(subnet.into()), ip_address: None, default_gateway: false, force: false }
    }
}

/// A new bridge.
///
/// Created on an Allocated machine, it takes over its parent's links and disappears on release. Created on a Ready
/// machine, it stays, and the links are lost: link it again.
#[derive(Debug, Clone)]
pub struct NewBridge {
    /// `br0`
    pub name: String,
    /// The id of its parent interface.
    pub parent: i64,
}

/// Calls about interfaces; see [`Client::interfaces`]. All changes need an administrator, and a machine that is New
/// (from 3.3), Ready, Allocated or Broken.
#[derive(Debug, Clone, Copy)]
pub struct Interfaces<'a> {
    client: &'a Client,
}

impl Client {
    /// Network interfaces of machines.
    pub fn interfaces(&self) -> Interfaces<'_> {
        Interfaces { client: self }
    }
}

impl Interfaces<'_> {
    /// Links an interface to a subnet. A taken address is [`AddressInUse`](crate::ErrorKind::AddressInUse).
    pub async fn link(&self, system_id: &str, interface: i64, link: &Link) -> Result<Interface> {
        const TEMPLATE: &str = "nodes/{system_id}/interfaces/{interface}/?op=link_subnet";
        let call = Call::post("interfaces.link", TEMPLATE, &[system_id, &interface.to_string()])?
            .of(OBJECT)
            .field("mode", link.mode.as_str())
            .maybe("subnet", link.subnet.as_ref())
            .maybe("ip_address", link.ip_address)
            .flag("default_gateway", link.default_gateway)
            .flag("force", link.force);
        self.client.json(call).await
    }

    /// Removes a link. Removing the last one leaves a `link_up`.
    pub async fn unlink(&self, system_id: &str, interface: i64, link: i64) -> Result<Interface> {
        const TEMPLATE: &str = "nodes/{system_id}/interfaces/{interface}/?op=unlink_subnet";
        let call = Call::post("interfaces.unlink", TEMPLATE, &[system_id, &interface.to_string()])?;
        self.client.json(call.of(OBJECT).field("id", link)).await
    }

    /// Creates a bridge.
    pub async fn create_bridge(&self, system_id: &str, bridge: &NewBridge) -> Result<Interface> {
        const TEMPLATE: &str = "nodes/{system_id}/interfaces/?op=create_bridge";
        let call = Call::post("interfaces.create_bridge", TEMPLATE, &[system_id])?
            .of(MACHINE)
            .field("name", &bridge.name)
            .field("parent", bridge.parent);
        self.client.json(call).await
    }
}
