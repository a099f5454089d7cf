//! The other half of the model: what MAAS talks to. A restored backup does not change it.

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
    /// In no network that MAAS knows. It works, but newer releases find no rack that would reach it.
    Unrouted,
}

impl BmcMode {
    /// By the word of an arrangement.
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

/// Hardware that commissioning finds.
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
    /// By the word of an arrangement.
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

/// A machine as it stands in the rack.
#[derive(Clone, Debug, Default)]
pub struct Body {
    pub bmc: Bmc,
    pub hardware: Hardware,
    /// Work that will fail, once.
    pub fails: Vec<Work>,
    /// Disappears from MAAS when this work ends, as if somebody had deleted it.
    pub vanishes: bool,
    /// Another user allocates it the moment it is Ready.
    pub stolen_by: Option<i64>,
    /// What it is told when it boots into its last deployment, base64 as it was sent. No answer of MAAS shows it; those who
    /// play the machines read it here.
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

/// Whom a made-up LXD daemon trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Every certificate that a registration brings along.
    Any,
    /// Every certificate, also those that MAAS made itself.
    All,
    /// Only these, in PEM.
    Only(Vec<String>),
}

/// An LXD daemon.
#[derive(Clone, Debug)]
pub struct Lxd {
    /// A real one: its state is read before, and changed after, whatever the model does.
    pub real: bool,
    pub reachable: bool,
    pub version: String,
    pub cores: i64,
    pub memory: i64,
    pub storage_pools: Vec<StoragePool>,
    /// It runs in a VM itself, so that MAAS tags its machine "virtual".
    pub in_vm: bool,
    pub os_name: String,
    pub os_version: String,
    /// `None`: every password is right; `Some("")`: none is set.
    pub password: Option<String>,
    pub trust: Trust,
    pub trusted: Vec<String>,
    pub host: Option<String>,
    pub macs: Vec<String>,
    pub networks: Vec<String>,
    /// The bridge that VMs of a real daemon are put on.
    pub bridge: Option<String>,
    /// By project and name.
    pub instances: BTreeMap<(String, String), Instance>,
    /// Why it cannot be used, if a real one said so.
    pub failure: Option<String>,
}

impl Lxd {
    /// A daemon with room for a few VMs.
    pub fn made_up() -> Self {
        Self {
            real: false,
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

/// What a real LXD daemon is told after the model has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LxdCommand {
    Create { host: i64, project: String, name: String },
    Delete { host: i64, project: String, name: String },
    Power { host: i64, project: String, name: String, on: bool },
}

/// Everything outside MAAS.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// By system id; it stays when the machine is deleted in MAAS.
    pub bodies: BTreeMap<String, Body>,
    /// By address as "host:port".
    pub lxds: BTreeMap<String, Lxd>,
    /// Takes the next VM that becomes Ready.
    pub vm_thief: Option<i64>,
}

/// "https://ip:port", "ip:port" or "ip" as "ip:port".
pub fn lxd_key(power_address: &str) -> String {
    let bare = power_address.trim().trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
    let has_port = match bare.rsplit_once(':') {
        Some((host, port)) => port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')),
        None => false,
    };
    if has_port { bare.to_owned() } else { format!("{bare}:8443") }
}
