//! The server itself: `/1.0`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{
    client::{Client, segment},
    error::Error,
    tolerant,
};

/// What the server reports about itself.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Server {
    /// Its capabilities, as names of API extensions.
    #[serde(default, deserialize_with = "tolerant::texts")]
    pub api_extensions: Vec<String>,
    /// `trusted` or `untrusted`: whether it trusts this client.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub auth: String,
    /// The server's configuration; `None` for clients that may not read it.
    #[serde(default, deserialize_with = "tolerant::config")]
    pub config: Option<BTreeMap<String, String>>,
    /// The rest; empty for untrusted clients.
    #[serde(default, deserialize_with = "tolerant::or_default")]
    pub environment: Environment,
}

/// The part of `/1.0` that only trusted clients can read.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Environment {
    /// `lxd`, or `incus` for the fork.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub server: String,
    /// Its version.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub server_version: String,
    /// Its name (of the member, in a cluster).
    #[serde(default, deserialize_with = "tolerant::text")]
    pub server_name: String,
    /// Whether it is a member of a cluster.
    #[serde(default, deserialize_with = "tolerant::or_default")]
    pub server_clustered: bool,
    /// The addresses that it actually listens on, as `host:port`.
    #[serde(default, deserialize_with = "tolerant::texts")]
    pub addresses: Vec<String>,
    /// Its certificate, PEM.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub certificate: String,
    /// The fingerprint of its certificate.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub certificate_fingerprint: String,
    /// The instance drivers, as `lxc | qemu` in any order.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub driver: String,
    /// The instance types (from LXD 5.21 on).
    #[serde(default, deserialize_with = "tolerant::texts")]
    pub instance_types: Vec<String>,
    /// The storage drivers whose tools are installed.
    #[serde(default, deserialize_with = "tolerant::or_default")]
    pub storage_supported_drivers: Vec<StorageDriver>,
}

/// A storage driver that the server could use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct StorageDriver {
    /// Its name, such as `zfs`. Unlike other keys, LXD capitalises this one.
    #[serde(default, rename = "Name", alias = "name", deserialize_with = "tolerant::text")]
    pub name: String,
}

impl Server {
    /// Whether this client is trusted.
    pub fn is_trusted(&self) -> bool {
        self.auth == "trusted"
    }

    /// Whether the server has an API extension.
    pub fn has_extension(&self, name: &str) -> bool {
        self.api_extensions.iter().any(|extension| extension == name)
    }

    /// Whether it supports VMs: by `instance_types` where the server reports them, otherwise by its drivers.
    pub fn supports_virtual_machines(&self) -> bool {
        if self.environment.instance_types.is_empty() {
            self.environment.driver.split('|').any(|driver| driver.trim() == "qemu")
        } else {
            self.environment.instance_types.iter().any(|kind| kind == "virtual-machine")
        }
    }

    /// Whether a storage driver's tools are installed (a missing kernel module only shows when a pool is created).
    pub fn supports_storage(&self, driver: &str) -> bool {
        self.environment.storage_supported_drivers.iter().any(|supported| supported.name == driver)
    }

    /// One value of the configuration, if it is visible and set.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.config.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }
}

impl Client {
    /// What the server reports about itself.
    pub async fn server(&self) -> Result<Server, Error> {
        self.get("/1.0").await
    }

    /// The same, in the context of a project, as MAAS requests it.
    pub async fn server_in_project(&self, project: &str) -> Result<Server, Error> {
        self.get(&format!("/1.0?project={}", segment(project))).await
    }
}
