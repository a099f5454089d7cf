//! The other half of the model: what MAAS connects to. Restoring a backup does not change it.

use std::collections::BTreeMap;

use super::db::StoragePool;

/// How a BMC answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BmcMode {
    #[default]
    Ok,
    Hangs,
    Closes,
    Error,
    Garbage,
    /// In no network that MAAS knows. It works, but newer releases find no rack that can reach it.
    Unrouted,
}

impl BmcMode {
    /// By the name in a statement.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "ok" => Self::Ok,
            "hangs" => Self::Hangs,
            "closes" => Self::Closes,
            "error" => Self::Error,
            "garbage" => Self::Garbage,
            "unrouted" => Self::Unrouted,
            _ => return None,
        })
    }
}

/// The BMC of a machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bmc {
    pub on: bool,
    pub mode: BmcMode,
    /// A power action is in progress.
    pub busy: bool,
}

/// The hardware that commissioning finds.
#[derive(Clone, Debug)]
pub struct Hardware {
    pub cores: i64,
    pub memory: i64,
    pub disks: Vec<i64>,
}

impl Default for Hardware {
    fn default() -> Self {
        Self { cores: 4, memory: 8192, disks: vec![40_000_000_000] }
    }
}

/// Kinds of work that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    Commission,
    Test,
    Deploy,
    Release,
    Erase,
    Rescue,
}

impl Work {
    /// By the name in a statement.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "commission" => Self::Commission,
            "test" => Self::Test,
            "deploy" => Self::Deploy,
            "release" => Self::Release,
            "erase" => Self::Erase,
            "rescue" => Self::Rescue,
            _ => return None,
        })
    }
}

/// The physical machine.
#[derive(Clone, Debug, Default)]
pub struct Body {
    pub bmc: Bmc,
    pub hardware: Hardware,
    /// Work that will fail, once.
    pub fails: Vec<Work>,
    /// Deleted from MAAS when this work ends, as if by another user.
    pub vanishes: bool,
    /// Another user allocates it as soon as it is Ready.
    pub stolen_by: Option<i64>,
    /// The user data of its last deployment, base64 as sent. No answer of MAAS shows it; those who simulate the
    /// machines read it here.
    pub user_data: Option<String>,
}

/// An instance in LXD.
#[derive(Clone, Debug)]
pub struct Instance {
    pub cores: i64,
    pub memory: i64,
    /// Size and storage pool.
    pub disks: Vec<(i64, String)>,
    pub macs: Vec<String>,
    pub running: bool,
}

/// Which certificates a simulated LXD daemon trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Every certificate that a registration provides.
    Any,
    /// Every certificate, including those that MAAS generated itself.
    All,
    /// Only these, in PEM.
    Only(Vec<String>),
}

/// An LXD daemon.
#[derive(Clone, Debug)]
pub struct Lxd {
    /// A real one: its state is read before, and changed after, each operation of the model.
    pub real: bool,
    /// A real one that could not start a VM, as without nested virtualization: whether a VM runs is then decided by the model alone.
    pub starts_no_vms: bool,
    pub reachable: bool,
    pub version: String,
    pub cores: i64,
    pub memory: i64,
    pub storage_pools: Vec<StoragePool>,
    /// It runs in a VM itself, so MAAS tags its machine "virtual".
    pub in_vm: bool,
    pub os_name: String,
    pub os_version: String,
    /// `None`: every password is accepted; `Some("")`: none is set.
    pub password: Option<String>,
    pub trust: Trust,
    pub trusted: Vec<String>,
    pub host: Option<String>,
    pub macs: Vec<String>,
    pub networks: Vec<String>,
    /// The bridge for VMs of a real daemon.
    pub bridge: Option<String>,
    /// Keyed by project and name.
    pub instances: BTreeMap<(String, String), Instance>,
    /// Why a real daemon cannot be used.
    pub failure: Option<String>,
}

impl Lxd {
    /// A simulated daemon with capacity for a few VMs.
    pub fn made_up() -> Self {
        Self {
            real: false,
            starts_no_vms: false,
            reachable: true,
            version: "5.0.2".to_owned(),
            cores: 16,
            memory: 65536,
            storage_pools: vec![StoragePool {
                name: "default".to_owned(),
                driver: "dir".to_owned(),
                path: "/var/lib/lxd/storage-pools/default".to_owned(),
                total: 1_000_000_000_000,
            }],
            in_vm: false,
            os_name: "ubuntu".to_owned(),
            os_version: "22.04".to_owned(),
            password: None,
            trust: Trust::Any,
            trusted: Vec::new(),
            host: None,
            macs: Vec::new(),
            networks: Vec::new(),
            bridge: None,
            instances: BTreeMap::new(),
            failure: None,
        }
    }
}

/// A command for a real LXD daemon after the model has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LxdCommand {
    Create { host: i64, project: String, name: String },
    Delete { host: i64, project: String, name: String },
    Power { host: i64, project: String, name: String, on: bool },
}

/// Everything outside MAAS.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// Keyed by system id; kept when the machine is deleted in MAAS.
    pub bodies: BTreeMap<String, Body>,
    /// Keyed by address as "host:port".
    pub lxds: BTreeMap<String, Lxd>,
    /// Allocates the next VM that becomes Ready.
    pub vm_thief: Option<i64>,
}

/// Normalizes "https://ip:port", "ip:port" or "ip" to "ip:port".
pub fn lxd_key(power_address: &str) -> String {
    let bare = power_address.trim().trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
    let has_port = match bare.rsplit_once(':') {
        Some((host, port)) => port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')),
        None => false,
    };
    if has_port { bare.to_owned() } else { format!("{bare}:8443") }
}
