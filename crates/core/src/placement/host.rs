//! LXD hosts as placement sees them, and what is claimed on them.

use std::collections::BTreeSet;

use crate::Lookup;
use crate::maas::{Power, State};

/// Tags by which a person keeps new VMs off a host, on the VM host or on its machine. The names are the Go provider's.
pub const MAINTENANCE_TAGS: [&str; 2] = [MAINTENANCE_TAG, "maas-lxd-host-noschedule"];
/// The one of them that also evacuates the host.
pub const MAINTENANCE_TAG: &str = "maas-lxd-host-maintenance";
/// The tag of a VM host that is being released (S11). In MAAS, so that every manager sees it.
pub const LEAVING_TAG: &str = "capmaas-leaving";
/// Whether a tag keeps new VMs off a host.
pub fn is_closing(tag: &str) -> bool {
    tag == LEAVING_TAG || MAINTENANCE_TAGS.contains(&tag)
}

/// The one LXD profile that MAAS gives to the VMs that it creates, in projects that have it.
pub const MAAS_PROFILE: &str = "maas";

/// A zone or pool: MAAS composes by its ID, everything else uses its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    pub id: i64,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// ID of the VM host.
    pub id: i64,
    pub name: String,
    /// The machine that it runs on.
    pub system_id: Option<String>,
    pub zone: Option<Named>,
    pub pool: Option<Named>,
    /// Its tags as a VM host.
    pub tags: BTreeSet<String>,
    /// The LXD project it is registered with. Only an administrator may read it; read only if a VM names one.
    pub project: Lookup<String>,
    /// MAAS has reached its LXD and can compose VMs there.
    pub reached: bool,
    /// Its resources; zero until MAAS has processed the host. No single VM may be larger, whatever the overcommit.
    pub total: Room,
    /// What is left, overcommit included; below zero if more is used than allowed.
    pub free: Room,
    pub pools: Vec<StoragePool>,
    /// Its network interfaces; `None` if its machine could not be read.
    pub ports: Option<Vec<Port>>,
    /// LXD profiles, as the agent on it reports them; `None` without a report.
    pub profiles: Option<BTreeSet<String>>,
    /// A rollout is going to replace it, so a VM that is placed on it would have to be replaced again. Others are preferred.
    pub departing: bool,
    /// The machine that it runs on. `Absent`: MAAS knows none, and only `reached` shows its health.
    pub machine: Lookup<HostMachine>,
}

impl Host {
    /// Whether it carries a tag, as a VM host or by its machine.
    pub fn carries(&self, tag: &str) -> bool {
        self.tags.contains(tag) || self.machine.found().is_some_and(|machine| machine.tags.contains(tag))
    }

    /// The tag that keeps new VMs off it.
    pub fn closed_by(&self) -> Option<&str> {
        let closing = MAINTENANCE_TAGS.iter().chain([&LEAVING_TAG]);
        closing.copied().find(|tag| self.carries(tag))
    }
}

/// The machine that an LXD host runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostMachine {
    pub state: State,
    /// Its power, as MAAS last saw it.
    pub power: Power,
    pub tags: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    pub cores: i64,
    /// MiB.
    pub memory: i64,
}

impl Room {
    /// What is left of a resource, as MAAS evaluates a compose: the total times the overcommit ratio, less what is used. What
    /// MAAS calls available ignores the ratio.
    pub fn left(total: i64, over_commit: Option<f64>, used: i64) -> i64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            reason = "cores and MiB are small numbers"
        )]
        let promised = ((total as f64) * over_commit.unwrap_or(1.0)).floor() as i64;
        promised.saturating_sub(used)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoragePool {
    pub name: String,
    /// Free bytes.
    pub free: i64,
    /// Disks are created here unless specified otherwise.
    pub default: bool,
}

/// A network interface of a host, to which VMs can be attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// `br0`, …
    pub name: String,
    pub bridge: bool,
    /// The boot interface of the host, or the bridge on it.
    pub boot: bool,
    /// ID of its VLAN.
    pub vlan: i64,
    /// The subnets of its VLAN.
    pub subnets: Vec<SubnetRef>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubnetRef {
    pub name: String,
    /// `10.0.0.0/24`
    pub cidr: String,
}

/// What a `MaasMachine` has chosen and MAAS's figures do not show yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub host: i64,
    pub cores: u32,
    /// MiB.
    pub memory: u32,
    /// 10⁹ bytes.
    pub disk: u32,
    /// Where the disk is going to be; `None` if not known.
    pub storage_pool: Option<String>,
}

/// Another machine of the same control plane or machine set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sibling {
    /// The LXD host it is on; none for bare metal.
    pub host: Option<i64>,
    pub zone: Option<String>,
}
