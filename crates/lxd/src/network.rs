//! Networks: both those that LXD manages and the interfaces of the host.

use serde::Deserialize;

use crate::{
    client::{Client, segment},
    error::Error,
    tolerant,
};

/// A network or an interface of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Network {
    /// Its name.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub name: String,
    /// `bridge`, `physical`, `unknown`, …
    #[serde(default, rename = "type", deserialize_with = "tolerant::text")]
    pub kind: String,
    /// Whether LXD manages it.
    #[serde(default, deserialize_with = "tolerant::or_default")]
    pub managed: bool,
    /// What uses it.
    #[serde(default, deserialize_with = "tolerant::texts")]
    pub used_by: Vec<String>,
}

/// The state of a network's interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct NetworkState {
    /// `up` or `down`.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub state: String,
    /// `broadcast`, `loopback`, …
    #[serde(default, rename = "type", deserialize_with = "tolerant::text")]
    pub kind: String,
    /// The MAC address.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub hwaddr: String,
    /// The addresses.
    #[serde(default, deserialize_with = "tolerant::or_default")]
    pub addresses: Vec<NetworkAddress>,
    /// Properties of bridges.
    #[serde(default, deserialize_with = "tolerant::or_default")]
    pub bridge: Option<BridgeState>,
}

/// An address of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct NetworkAddress {
    /// `inet` or `inet6`.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub family: String,
    /// The address.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub address: String,
    /// `global`, `link` or `local`.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub scope: String,
}

/// Properties of bridges.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct BridgeState {
    /// The ports of the bridge (under LXD's name for them).
    #[serde(default, deserialize_with = "tolerant::texts")]
    pub upper_devices: Vec<String>,
}

impl Client {
    /// One network or interface.
    pub async fn network(&self, name: &str) -> Result<Option<Network>, Error> {
        self.find(&format!("/1.0/networks/{}", segment(name))).await
    }

    /// All networks and interfaces.
    pub async fn networks(&self) -> Result<Vec<Network>, Error> {
        self.get::<Option<_>>("/1.0/networks?recursion=1").await.map(Option::unwrap_or_default)
    }

    /// The state of a network or interface.
    pub async fn network_state(&self, name: &str) -> Result<Option<NetworkState>, Error> {
        self.find(&format!("/1.0/networks/{}/state", segment(name))).await
    }
}
