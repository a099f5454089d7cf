//! The verdict on each host, as data and as text.

use std::collections::BTreeMap;
use std::fmt;

use capmaas_api::lxd_error::{LxdError, LxdErrorKind};

use super::host::{LEAVING_TAG, MAAS_PROFILE, MAINTENANCE_TAG, Named};

/// The result of a placement.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The host, or why there is none.
    pub choice: Result<Choice, LxdError>,
    /// Every host: the chosen one first, then those that would fit, then the others, the closest to fitting first.
    pub verdicts: Vec<Verdict>,
}

/// The chosen host, with everything that a compose needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// ID of the VM host.
    pub host: i64,
    pub name: String,
    /// The machine that it runs on.
    pub system_id: Option<String>,
    /// Its zone, which the VM gets; MAAS expects the ID.
    pub zone: Option<Named>,
    /// Its pool, which the VM gets; MAAS expects the ID.
    pub pool: Option<Named>,
    /// Its LXD project, if it was read.
    pub project: Option<String>,
    /// The storage pool of the root disk.
    pub storage_pool: String,
    /// NICs to create, in order; if empty, MAAS chooses them.
    pub interfaces: Vec<Attachment>,
}

/// A NIC to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// `eth0`, …
    pub name: String,
    /// The subnet it is attached to, as `10.0.0.0/24`: MAAS's constraint `subnet_cidr`.
    pub subnet: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// ID of the VM host.
    pub host: i64,
    pub name: String,
    pub why: Why,
}

/// Why a host was chosen or not. Refusals are in the order of the checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// It is the best one.
    Chosen {
        /// Siblings in its zone.
        siblings_in_zone: usize,
        /// Siblings on it.
        siblings_on_host: usize,
        /// How many more such VMs would fit.
        room_for: i64,
    },
    /// It would fit; another one is better.
    Behind {
        /// Siblings in its zone.
        siblings_in_zone: usize,
        /// Siblings on it.
        siblings_on_host: usize,
        /// How many more such VMs would fit.
        room_for: i64,
    },
    /// It would fit; a rollout is going to replace it, and another one stays.
    Departing {
        /// Siblings in its zone.
        siblings_in_zone: usize,
        /// Siblings on it.
        siblings_on_host: usize,
        /// How many more such VMs would fit.
        room_for: i64,
    },
    /// Another host was requested by name.
    NotNamed,
    OtherZone(Option<String>),
    OtherPool(Option<String>),
    /// It does not carry this tag.
    LacksTag(String),
    OtherProject(Option<String>),
    /// Its LXD project could not be read.
    ProjectUnknown(String),
    /// MAAS gives VMs no such profile, on any host.
    ProfileNotGiven,
    /// It has no such profile.
    NoProfile,
    /// Nothing reports its profiles.
    ProfilesNotReported,
    /// A tag keeps new VMs off it.
    Closed(String),
    /// It failed for this machine before.
    FailedBefore,
    /// Its machine is not deployed.
    NotDeployed,
    /// Its machine is off.
    Off,
    /// Its machine could not be read.
    HealthUnknown(String),
    /// MAAS has not reached its LXD, or cannot create VMs there.
    NotReached,
    /// MAAS does not know its resources yet.
    NotMeasured,
    /// Its networks are not known.
    NetworksUnknown,
    /// It boots from no network that MAAS knows.
    NoBootNetwork,
    /// It has no bridge of this name.
    NoBridge(String),
    /// Another bridge is on the same VLAN, and MAAS would choose between them.
    BridgeNotAlone(String),
    /// MAAS knows no subnet on the bridge.
    BridgeWithoutSubnet(String),
    /// It is not attached to this subnet.
    NoSubnet(String),
    /// It has no storage pool of this name.
    NoStoragePool(String),
    /// It has no storage pool at all.
    NoStoragePools,
    /// The storage pool is too full.
    TooLittleDisk {
        /// Its name.
        pool: String,
        /// GB that are left.
        free: i64,
    },
    /// It has too few cores.
    TooFewCores {
        /// Cores that are left.
        free: i64,
    },
    /// It has too little memory.
    TooLittleMemory {
        /// MB that are left.
        free: i64,
    },
}

impl Why {
    /// Whether the host might fit, because what decides it could not be read.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::ProjectUnknown(_) | Self::HealthUnknown(_) | Self::NetworksUnknown)
    }

    /// How many checks the host passed.
    pub(super) fn stage(&self) -> u8 {
        match self {
            Self::NotNamed => 0,
            Self::OtherZone(_) => 1,
            Self::OtherPool(_) => 2,
            Self::LacksTag(_) => 3,
            Self::OtherProject(_) | Self::ProjectUnknown(_) => 4,
            Self::ProfileNotGiven | Self::NoProfile | Self::ProfilesNotReported => 5,
            Self::Closed(_)
            | Self::FailedBefore
            | Self::NotDeployed
            | Self::Off
            | Self::HealthUnknown(_)
            | Self::NotReached
            | Self::NotMeasured => 6,
            Self::NetworksUnknown
            | Self::NoBootNetwork
            | Self::NoBridge(_)
            | Self::BridgeNotAlone(_)
            | Self::BridgeWithoutSubnet(_)
            | Self::NoSubnet(_) => 7,
            Self::NoStoragePool(_)
            | Self::NoStoragePools
            | Self::TooLittleDisk { .. }
            | Self::TooFewCores { .. }
            | Self::TooLittleMemory { .. } => 8,
            Self::Departing { .. } => 9,
            Self::Behind { .. } => 10,
            Self::Chosen { .. } => 11,
        }
    }

    /// The kind of error if no host fits better.
    pub(super) fn kind(&self) -> LxdErrorKind {
        match self {
            Self::OtherProject(_) => LxdErrorKind::ProjectNotFound,
            Self::ProfileNotGiven | Self::NoProfile | Self::ProfilesNotReported => LxdErrorKind::ProfileNotFound,
            Self::NoStoragePool(_)
            | Self::NoStoragePools
            | Self::TooLittleDisk { .. }
            | Self::TooFewCores { .. }
            | Self::TooLittleMemory { .. } => LxdErrorKind::InsufficientResources,
            _ => LxdErrorKind::HostUnavailable,
        }
    }

    /// The text that hosts with the same verdict share, for a tally.
    fn short(&self) -> &'static str {
        match self {
            Self::Chosen { .. } => "chosen",
            Self::Behind { .. } => "would do as well",
            Self::Departing { .. } => "about to be replaced",
            Self::NotNamed => "not the one that lxdConfig.vmHost names",
            Self::OtherZone(_) => "in another zone",
            Self::OtherPool(_) => "in another resource pool",
            Self::LacksTag(_) => "without the tags",
            Self::OtherProject(_) => "of another project",
            Self::ProjectUnknown(_) => "whose project cannot be read",
            Self::ProfileNotGiven => "where MAAS gives VMs no such profile",
            Self::NoProfile => "without the profile",
            Self::ProfilesNotReported => "whose profiles are not reported",
            Self::Closed(_) => "closed by a tag",
            Self::FailedBefore => "that failed for this machine",
            Self::NotDeployed => "not deployed",
            Self::Off => "off",
            Self::HealthUnknown(_) => "whose machine cannot be read",
            Self::NotReached => "that MAAS does not reach",
            Self::NotMeasured => "that MAAS has not measured yet",
            Self::NetworksUnknown | Self::NoBootNetwork => "whose networks MAAS does not know",
            Self::NoBridge(_) | Self::BridgeNotAlone(_) | Self::BridgeWithoutSubnet(_) => "without a usable bridge",
            Self::NoSubnet(_) => "not on the subnet",
            Self::NoStoragePool(_) | Self::NoStoragePools => "without the storage pool",
            Self::TooLittleDisk { .. } => "with too little disk",
            Self::TooFewCores { .. } => "with too few cores",
            Self::TooLittleMemory { .. } => "with too little memory",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |name: &Option<String>| name.clone().unwrap_or_else(|| "none".into());
        match self {
            Self::Chosen { siblings_in_zone, siblings_on_host, room_for } => write!(
                f,
                "chosen: {} in its zone, {siblings_on_host} on it, room for {room_for} more",
                siblings(*siblings_in_zone)
            ),
            Self::Behind { siblings_in_zone, siblings_on_host, room_for } => write!(
                f,
                "would do: {} in its zone, {siblings_on_host} on it, room for {room_for} more",
                siblings(*siblings_in_zone)
            ),
            Self::Departing { room_for, .. } => {
                write!(f, "left out because a rollout is going to replace it; it would have room for {room_for} more")
            }
            Self::OtherZone(zone) => write!(f, "is in zone {}", or_none(zone)),
            Self::OtherPool(pool) => write!(f, "is in resource pool {}", or_none(pool)),
            Self::LacksTag(tag) => write!(f, "does not carry the tag {tag}"),
            Self::OtherProject(project) => write!(f, "is registered with project {}", or_none(project)),
            Self::ProjectUnknown(why) => write!(f, "its project cannot be read: {why}"),
            Self::ProfileNotGiven => {
                write!(f, "MAAS gives VMs the profile {MAAS_PROFILE:?} of their project and no other")
            }
            Self::NoProfile => f.write_str("does not have the profile"),
            Self::ProfilesNotReported => {
                f.write_str("its profiles are not reported; MAAS does not show them, lxd-initializer does")
            }
            Self::Closed(tag) if tag == LEAVING_TAG => {
                write!(f, "is being removed, so it takes no new VMs (tag {tag})")
            }
            Self::Closed(tag) if tag == MAINTENANCE_TAG => {
                write!(f, "is in maintenance, so it takes no new VMs (tag {tag})")
            }
            Self::Closed(tag) => write!(f, "carries the tag {tag}, which keeps new VMs off it"),
            Self::FailedBefore => f.write_str("failed for this machine before"),
            Self::NotDeployed => f.write_str("its machine is not deployed"),
            Self::Off => f.write_str("its machine is off; turn it on"),
            Self::HealthUnknown(why) => write!(f, "its machine cannot be read: {why}"),
            Self::NotReached => f.write_str(
                "MAAS does not reach its LXD or cannot create VMs there; refresh it in MAAS, which shows why",
            ),
            Self::NotMeasured => f.write_str("MAAS does not know its resources yet"),
            Self::NetworksUnknown => f.write_str("MAAS does not show its networks"),
            Self::NoBootNetwork => f.write_str("MAAS knows no subnet that it boots from"),
            Self::NoBridge(name) => write!(f, "has no bridge {name}"),
            Self::BridgeNotAlone(name) => {
                write!(f, "has another bridge beside {name} on the same VLAN, and MAAS would choose between them")
            }
            Self::BridgeWithoutSubnet(name) => write!(f, "MAAS knows no subnet on its bridge {name}"),
            Self::NoSubnet(name) => write!(f, "is not attached to the subnet {name}"),
            Self::NoStoragePool(name) => write!(f, "has no storage pool {name}"),
            Self::TooLittleDisk { pool, free } => write!(f, "has {free} GB left in storage pool {pool}"),
            Self::TooFewCores { free } => write!(f, "has {free} cores left"),
            Self::TooLittleMemory { free } => write!(f, "has {free} MB of memory left"),
            Self::NotNamed | Self::NoStoragePools => f.write_str(self.short()),
        }
    }
}

fn siblings(count: usize) -> String {
    if count == 1 { "1 sibling".to_owned() } else { format!("{count} siblings") }
}

impl Verdict {
    pub(super) fn rank(&self) -> u8 {
        u8::MAX - self.why.stage()
    }
}

/// Counts the hosts of each verdict.
pub(super) fn tally<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> String {
    let mut counts: BTreeMap<(u8, &str), (usize, &Verdict)> = BTreeMap::new();
    for verdict in verdicts {
        counts.entry((verdict.rank(), verdict.why.short())).or_insert((0, verdict)).0 += 1;
    }
    let words = counts.into_iter().map(|((_, short), (count, verdict))| match count {
        1 => format!("{} {}", verdict.name, verdict.why),
        _ => format!("{count} {short}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

impl Placement {
    /// One sentence, for a condition.
    pub fn sentence(&self) -> String {
        match &self.choice {
            Err(error) => error.message.clone(),
            Ok(choice) => {
                let zone = choice.zone.as_ref().map_or(String::new(), |zone| format!(" in zone {}", zone.name));
                let others = tally(self.verdicts.iter().filter(|verdict| verdict.host != choice.host));
                let others = if others.is_empty() { "it is the only one".to_owned() } else { others };
                format!("{}{zone}: {others}", choice.name)
            }
        }
    }

    /// All of it, a line for each host, for an event. Hosts that leave come right after the chosen one, because an event holds only
    /// the first lines.
    pub fn full(&self) -> String {
        let order = |verdict: &&Verdict| match verdict.why {
            Why::Chosen { .. } => 0,
            Why::Departing { .. } | Why::Closed(_) => 1,
            _ => 2,
        };
        let mut verdicts: Vec<&Verdict> = self.verdicts.iter().collect();
        verdicts.sort_by_key(order);
        let lines = verdicts.into_iter().map(|verdict| format!("{}: {}", verdict.name, verdict.why));
        lines.collect::<Vec<_>>().join("\n")
    }
}
