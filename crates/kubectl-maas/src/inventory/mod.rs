//! The inventory of a MAAS as a file: `kubectl maas export` writes it, `kubectl maas plan --inventory` reads it, and
//! maas-sim can be started with it. Its lists are those of the simulator's inventories (lab/maas-sim/ARRANGE.md);
//! fields that planning does not use are ignored.
//!
//! Planning against a live MAAS uses this form as well, so that a plan for a file and one for the MAAS it came from are
//! the same.

mod read;
mod view;

use std::path::Path;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::yaml;

pub use read::{Addresses, read, read_projects};
pub use view::view;

/// The name of MAAS's default zone and pool.
const DEFAULT: &str = "default";

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Inventory {
    /// Owners of machines. No keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<Name>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<Name>,
    /// Resource pools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<Name>,
    /// DNS domains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<Name>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fabrics: Vec<Fabric>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<Vlan>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<Subnet>,
    /// Ranges of addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ip_ranges: Vec<Range>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Machines, VMs too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<Machine>,
    /// The LXD daemons of the VM hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lxd: Vec<Lxd>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vm_hosts: Vec<VmHost>,
}

/// Something identified by its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Name {
    pub name: String,
}

impl From<&str> for Name {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned() }
    }
}

/// A fabric with its untagged VLAN.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fabric {
    pub id: Option<i64>,
    pub name: Option<String>,
    /// The ID of its untagged VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan_id: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Vlan {
    /// Its ID in MAAS.
    pub id: Option<i64>,
    pub fabric: Option<NameOrId>,
    /// Its tag on the wire.
    pub vid: Option<i64>,
    /// MAAS serves DHCP on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp_on: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Subnet {
    /// Its network; made up unless addresses were requested.
    pub cidr: String,
    /// Its name, if that is not its network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The ID of its VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_ip: Option<String>,
}

/// A range of addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Range {
    /// `dynamic` or `reserved`.
    #[serde(rename = "type")]
    pub kind: String,
    pub start_ip: String,
    pub end_ip: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Image {
    /// `ubuntu/jammy`, `custom/name`, …
    pub name: String,
    /// `amd64/generic`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
}

/// A name or an ID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum NameOrId {
    Id(i64),
    Name(String),
}

/// A machine. Absent fields get maas-sim's defaults.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_id: Option<String>,
    pub hostname: Option<String>,
    /// Its state in MAAS's terms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// `on` or `off`; absent if MAAS does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Its resource pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// `amd64/generic`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_count: Option<i64>,
    /// MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disks: Option<Vec<Disk>>,
    /// Its interfaces, the one that it boots from first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interfaces: Option<Vec<Interface>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_host: Option<NameOrId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Disk {
    /// Bytes.
    Size(i64),
    /// Bytes, and the storage pool that contains it.
    InPool {
        /// Bytes.
        size: i64,
        #[serde(default)]
        pool: Option<String>,
    },
}

impl Disk {
    fn size(&self) -> i64 {
        match self {
            Self::Size(size) | Self::InPool { size, .. } => *size,
        }
    }

    fn pool(&self) -> Option<&String> {
        match self {
            Self::Size(_) => None,
            Self::InPool { pool, .. } => pool.as_ref(),
        }
    }
}

/// A network interface. No hardware address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    pub name: String,
    /// `physical`, `bridge`, `bond` or `vlan`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The ID of its VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<String>,
}

/// An LXD daemon.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lxd {
    /// Its address; made up.
    pub address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<i64>,
    /// MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<i64>,
    /// The storage pools, the default one first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_pools: Option<Vec<StoragePool>>,
    /// The machine that it runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Other consumers of its cores and memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<Instance>,
}

/// A storage pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoragePool {
    pub name: String,
    /// `zfs`, `dir`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Bytes for VMs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
}

/// An instance in LXD that is not a machine of this list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Instance {
    /// The LXD project.
    pub project: Option<String>,
    pub name: String,
    pub cores: Option<i64>,
    /// MiB.
    pub memory: Option<i64>,
    /// Bytes of each disk.
    pub disks: Option<Vec<i64>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VmHost {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    pub name: Option<String>,
    /// The address of its LXD; made up.
    pub power_address: Option<String>,
    /// Its LXD project, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// `lxd` or `virsh`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Its resource pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_over_commit_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_over_commit_ratio: Option<f64>,
    /// The machine that it runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// false: MAAS has never reached its LXD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discovered: Option<bool>,
    /// false: MAAS does not know its resources yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<bool>,
}

impl Inventory {
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        yaml::document(text).map_err(|error| anyhow::anyhow!("this is not an inventory: {error}"))
    }

    /// Reads a file. One without machines and VM hosts is taken for another kind of file, not for an empty data centre.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let inventory = Self::parse(&text).with_context(|| path.display().to_string())?;
        if inventory.machines.is_empty() && inventory.vm_hosts.is_empty() {
            bail!("{}: this is not an inventory: it has neither machines nor vm_hosts", path.display());
        }
        Ok(inventory)
    }

    /// In JSON, which is YAML as well, so that whoever reads an inventory reads it.
    pub fn to_json(&self) -> anyhow::Result<String> {
        Ok(format!("{:#}\n", serde_json::to_value(self)?))
    }

    pub fn to_yaml(&self) -> anyhow::Result<String> {
        let header = "# Written by `kubectl maas export`. Start maas-sim with --inventory, or plan with kubectl maas plan --inventory.\n";
        Ok(format!("{header}{}", serde_saphyr::to_string(self)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_wide_machines_are_read_in_either_form() {
        let interface =
            |number: usize| Interface { name: format!("eth{number}"), vlan: Some(1), ..Interface::default() };
        let machine = |number: usize| Machine {
            hostname: Some(format!("m{number}")),
            tags: (0..40).map(|tag| format!("tag-{tag}")).collect(),
            disks: Some((0..24).map(|disk| Disk::InPool { size: disk, pool: Some("default".into()) }).collect()),
            interfaces: Some((0..40).map(interface).collect()),
            ..Machine::default()
        };
        let inventory = Inventory { machines: (0..1000).map(machine).collect(), ..Inventory::default() };
        for text in [inventory.to_yaml().unwrap(), inventory.to_json().unwrap()] {
            assert!(Inventory::parse(&text).unwrap() == inventory);
        }
    }

    #[test]
    fn another_file_is_not_an_empty_data_centre() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for text in ["kind: Cluster\nmetadata: {name: c}\n", "zones: [{name: az1}]\n", "{}"] {
            std::fs::write(file.path(), text).unwrap();
            let error = Inventory::read(file.path()).unwrap_err().to_string();
            assert!(error.contains("neither machines nor vm_hosts"), "{error}");
        }
        std::fs::write(file.path(), "machines: [{hostname: a}]\n").unwrap();
        assert_eq!(Inventory::read(file.path()).unwrap().machines.len(), 1);
    }
}
