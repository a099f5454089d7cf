//! What can be asked of machines.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use secrecy::{ExposeSecret, SecretSlice};

use super::model::Machine;
use super::status::MachineStatus;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::version::Capabilities;

/// Which machines to list. What is empty or None does not filter.
///
/// Older servers know fewer filters and call an unknown one an error; there the client filters the rest by itself.
#[derive(Debug, Clone, Default)]
pub struct MachineFilter {
    /// Any of these ids.
    pub system_ids: Vec<String>,
    /// Any of these names.
    pub hostnames: Vec<String>,
    /// Exactly this key, given to `allocate` or `deploy`; MAAS drops it the moment a release is accepted.
    pub agent_name: Option<String>,
    /// This owner.
    pub owner: Option<String>,
    /// Any of these states.
    pub statuses: Vec<MachineStatus>,
    /// In this zone. A zone that does not exist is an error, not an empty list.
    pub zone: Option<String>,
    /// In this pool. A pool that does not exist is an error, not an empty list.
    pub pool: Option<String>,
    /// With all of these tags. A tag that does not exist is an error, not an empty list.
    pub tags: Vec<String>,
    /// With none of these tags.
    pub not_tags: Vec<String>,
    /// VMs of the host of exactly this name.
    pub vm_host: Option<String>,
}

impl MachineFilter {
    /// Exactly this key.
    pub fn agent_name(agent_name: impl Into<String>) -> Self {
        Self { agent_name: Some(agent_name.into()), ..Self::default() }
    }

    /// Exactly this name.
    pub fn hostname(hostname: impl Into<String>) -> Self {
        Self { hostnames: vec![hostname.into()], ..Self::default() }
    }

    /// Whether an answer depends on the server's version.
    pub(super) fn needs_version(&self) -> bool {
        self.owner.is_some() || self.statuses.len() > 1 || !self.not_tags.is_empty()
    }

    pub(super) fn apply(&self, mut call: Call, capabilities: Option<Capabilities>) -> Call {
        call = call
            .query_all("id", &self.system_ids)
            .query_all("hostname", &self.hostnames)
            .query_all("agent_name", &self.agent_name)
            .query_all("zone", &self.zone)
            .query_all("pool", &self.pool)
            .query_all("tags", &self.tags)
            .query_all("pod", &self.vm_host);
        let new_filters = capabilities.is_some_and(|capabilities| capabilities.machine_filters);
        // A state that MAAS has no word for is left to the client, and then so are the others.
        let words: Option<Vec<_>> = self.statuses.iter().map(|status| status.filter()).collect();
        if let Some(words) = words.filter(|words| words.len() == 1 || new_filters) {
            call = call.query_all("status", words);
        }
        if new_filters {
            call = call.query_all("owner", &self.owner).query_all("not_tags", &self.not_tags);
        }
        call
    }

    /// Whether a machine is meant. Everything that a server may not have filtered, or not exactly, is looked at again;
    /// the others cannot be seen in what MAAS says about a machine (`agent_name`) or are exact everywhere.
    pub(super) fn admits(&self, machine: &Machine) -> bool {
        let is = |wanted: &Option<String>, found: Option<&String>| wanted.is_none() || wanted.as_ref() == found;
        is(&self.owner, machine.owner.as_ref())
            && is(&self.vm_host, machine.pod.as_ref().and_then(|pod| pod.name.as_ref()))
            && (self.statuses.is_empty() || machine.status.is_some_and(|status| self.statuses.contains(&status)))
            && !self.not_tags.iter().any(|tag| machine.tag_names.contains(tag))
    }
}

/// Which machine to allocate.
///
/// When nothing fits, MAAS by itself composes a VM on any LXD host that has room, even for `dry_run`. [`Allocate::metal`]
/// keeps it from that.
#[derive(Debug, Clone, Default)]
pub struct Allocate {
    /// This very machine.
    pub system_id: Option<String>,
    /// A machine of this name.
    pub name: Option<String>,
    /// The caller's key: the machine can be found by it afterwards. Not a constraint, not unique.
    pub agent_name: Option<String>,
    /// `amd64`, …
    pub architecture: Option<String>,
    /// At least so many cores.
    pub min_cpu_count: Option<u32>,
    /// At least so many MiB.
    pub min_memory_mib: Option<u32>,
    /// All of these tags.
    pub tags: Vec<String>,
    /// None of these tags.
    pub not_tags: Vec<String>,
    /// In this zone.
    pub zone: Option<String>,
    /// Not in these zones.
    pub not_in_zones: Vec<String>,
    /// In this pool.
    pub pool: Option<String>,
    /// Not in these pools.
    pub not_in_pools: Vec<String>,
    /// Not on VM hosts of these types.
    pub not_pod_types: Vec<String>,
    /// Disks, as MAAS words them: `root:100(ssd),data:500`.
    pub storage: Option<String>,
    /// Interfaces, as MAAS words them: `eth0:space=a;eth1:space=b`.
    pub interfaces: Option<String>,
    /// Appears in the event log.
    pub comment: Option<String>,
    /// Say what would be allocated. Refused here unless it can make no VM: see [`Allocate::metal`].
    pub dry_run: bool,
}

/// The kinds of VM host that exist. Excluding both excludes every VM, and keeps MAAS from composing one.
const POD_TYPES: [&str; 2] = ["lxd", "virsh"];

impl Allocate {
    /// A machine that is no VM, and that does not become one.
    pub fn metal() -> Self {
        Self { not_pod_types: POD_TYPES.map(String::from).to_vec(), ..Self::default() }
    }

    /// This very machine.
    pub fn by_id(system_id: impl Into<String>) -> Self {
        Self { system_id: Some(system_id.into()), ..Self::default() }
    }

    /// Whether MAAS would make a VM rather than say that nothing fits.
    pub(super) fn may_compose(&self, capabilities: Option<Capabilities>) -> bool {
        let excluded = POD_TYPES.iter().all(|kind| self.not_pod_types.iter().any(|excluded| excluded == kind));
        let named = self.system_id.is_some()
            && capabilities.is_some_and(|capabilities| !capabilities.allocate_by_id_may_compose);
        !(excluded || named)
    }

    pub(super) fn apply(&self, call: Call) -> Call {
        call.maybe("system_id", self.system_id.as_ref())
            .maybe("name", self.name.as_ref())
            .maybe("agent_name", self.agent_name.as_ref())
            .maybe("arch", self.architecture.as_ref())
            .maybe("cpu_count", self.min_cpu_count)
            .maybe("mem", self.min_memory_mib)
            .fields("tags", &self.tags)
            .fields("not_tags", &self.not_tags)
            .maybe("zone", self.zone.as_ref())
            .fields("not_in_zone", &self.not_in_zones)
            .maybe("pool", self.pool.as_ref())
            .fields("not_in_pool", &self.not_in_pools)
            .fields("not_pod_type", &self.not_pod_types)
            .maybe("storage", self.storage.as_ref())
            .maybe("interfaces", self.interfaces.as_ref())
            .maybe("comment", self.comment.as_ref())
            .flag("dry_run", self.dry_run)
    }
}

/// How to deploy.
#[derive(Debug, Clone, Default)]
pub struct Deploy {
    /// `jammy`, `ubuntu/jammy`, or the name of a custom image. None means the server's default. There is no field for
    /// the operating system: MAAS ignores it.
    pub distro_series: Option<String>,
    /// What cloud-init runs, as it is; the client encodes it. MAAS takes some 7 MB.
    pub user_data: Option<SecretSlice<u8>>,
    /// The kernel.
    pub hwe_kernel: Option<String>,
    /// The caller's key, if the machine is still Ready and so becomes the caller's by this.
    pub agent_name: Option<String>,
    /// Appears in the event log.
    pub comment: Option<String>,
    /// Run from memory and leave the disks alone.
    pub ephemeral: bool,
    /// Report hardware afterwards (from 3.2).
    pub enable_hw_sync: bool,
    /// Keep kernel crash dumps (from 3.6).
    pub enable_kernel_crash_dump: bool,
}

impl Deploy {
    pub(super) fn needs_version(&self) -> bool {
        self.enable_hw_sync || self.enable_kernel_crash_dump
    }

    /// MAAS ignores what it does not know, so an option that is too new would be lost without a word.
    pub(super) fn check(&self, capabilities: Capabilities) -> Result<()> {
        for (asked, can, what) in [
            (self.enable_hw_sync, capabilities.hardware_sync, "hardware sync needs MAAS 3.2"),
            (self.enable_kernel_crash_dump, capabilities.kernel_crash_dump, "kernel crash dumps need MAAS 3.6"),
        ] {
            if asked && !can {
                let message = format!("{what}, this is {}", capabilities.version);
                return Err(Error::unsupported("machines.deploy", message));
            }
        }
        Ok(())
    }

    pub(super) fn apply(&self, mut call: Call) -> Call {
        call = call
            .maybe("distro_series", self.distro_series.as_ref())
            .maybe("hwe_kernel", self.hwe_kernel.as_ref())
            .maybe("agent_name", self.agent_name.as_ref())
            .maybe("comment", self.comment.as_ref())
            .flag("ephemeral_deploy", self.ephemeral)
            .flag("enable_hw_sync", self.enable_hw_sync)
            .flag("enable_kernel_crash_dump", self.enable_kernel_crash_dump);
        if let Some(user_data) = &self.user_data {
            let plain = user_data.expose_secret();
            call =
                call.secret("user_data", &BASE64_STANDARD.encode(plain).into()).hiding(&String::from_utf8_lossy(plain));
        }
        call
    }
}

/// What to do with the disks on release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Erase {
    /// What the server is set to.
    #[default]
    ServerDefault,
    /// Ask for no erasing.
    None,
    /// The first and last part of each disk.
    Quick,
    /// By the disk's own means where it has them, else all of it.
    Secure,
    /// All of each disk.
    Full,
}

/// How to release.
#[derive(Debug, Clone, Default)]
pub struct Release {
    /// What to do with the disks.
    pub erase: Erase,
    /// Appears in the event log.
    pub comment: Option<String>,
}

impl Release {
    pub(super) fn apply(&self, call: Call) -> Call {
        let call = call.maybe("comment", self.comment.as_ref());
        let modes = |quick: bool, secure: bool| [("erase", true), ("quick_erase", quick), ("secure_erase", secure)];
        let switches: &[(&str, bool)] = match self.erase {
            Erase::ServerDefault => &[],
            Erase::None => &[("erase", false)],
            Erase::Quick => &modes(true, false),
            Erase::Secure => &modes(false, true),
            Erase::Full => &modes(false, false),
        };
        switches.iter().fold(call, |call, (name, on)| call.field(name, on))
    }
}

/// What to change about a machine. What is None stays as it is.
#[derive(Debug, Clone, Default)]
pub struct MachineUpdate {
    /// The first part of its name.
    pub hostname: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// The domain, by name.
    pub domain: Option<String>,
    /// The zone, by name.
    pub zone: Option<String>,
    /// The pool, by name.
    pub pool: Option<String>,
    /// Bytes, or with a unit: `2G`.
    pub swap_size: Option<String>,
}

impl MachineUpdate {
    pub(super) fn apply(&self, call: Call) -> Call {
        call.maybe("hostname", self.hostname.as_ref())
            .maybe("description", self.description.as_ref())
            .maybe("domain", self.domain.as_ref())
            .maybe("zone", self.zone.as_ref())
            .maybe("pool", self.pool.as_ref())
            .maybe("swap_size", self.swap_size.as_ref())
    }
}

/// How to power off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StopMode {
    /// At once.
    #[default]
    Hard,
    /// By asking the operating system.
    Soft,
}

impl StopMode {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Hard => "hard",
            Self::Soft => "soft",
        }
    }
}
