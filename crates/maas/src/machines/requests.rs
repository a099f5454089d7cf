//! Parameters of calls about machines.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use secrecy::{ExposeSecret, SecretSlice};

use super::model::Machine;
use super::status::MachineStatus;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::version::Capabilities;

/// Which machines to list. Empty and None fields do not filter.
///
/// Older servers know fewer filters and reject an unknown one; there the client applies the rest itself.
#[derive(Debug, Clone, Default)]
pub struct MachineFilter {
    /// Any of these ids.
    pub system_ids: Vec<String>,
    /// Any of these names.
    pub hostnames: Vec<String>,
    /// Exactly this agent name, given to `allocate` or `deploy`; MAAS removes it as soon as a release is accepted.
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
    /// Exactly this agent name.
    pub fn agent_name(agent_name: impl Into<String>) -> Self {
        Self { agent_name: Some(agent_name.into()), ..Self::default() }
    }

    /// Exactly this name.
    pub fn hostname(hostname: impl Into<String>) -> Self {
        Self { hostnames: vec![hostname.into()], ..Self::default() }
    }

    /// Whether the query depends on the server's version.
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
        // A status that MAAS has no filter name for is filtered by the client, and then so are the others.
        let words: Option<Vec<_>> = self.statuses.iter().map(|status| status.filter()).collect();
        if let Some(words) = words.filter(|words| words.len() == 1 || new_filters) {
            call = call.query_all("status", words);
        }
        if new_filters {
            call = call.query_all("owner", &self.owner).query_all("not_tags", &self.not_tags);
        }
        call
    }

    /// Whether a machine matches. Checks again everything that a server may not have filtered, or not exactly. The
    /// other filters are not visible in a machine's JSON (`agent_name`) or are exact on every server.
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
/// When nothing matches, MAAS composes a VM on any LXD host with capacity, even for `dry_run`. [`Allocate::metal`]
/// prevents that.
#[derive(Debug, Clone, Default)]
pub struct Allocate {
    /// This machine.
    pub system_id: Option<String>,
    /// A machine of this name.
    pub name: Option<String>,
    /// The caller's idempotency key, by which the machine can be found afterwards. Not a constraint, not unique.
    pub agent_name: Option<String>,
    /// `amd64`, …
    pub architecture: Option<String>,
    /// At least this many cores.
    pub min_cpu_count: Option<u32>,
    /// At least this many MiB.
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
    /// Disks, in MAAS's syntax: `root:100(ssd),data:500`.
    pub storage: Option<String>,
    /// Interfaces, in MAAS's syntax: `eth0:space=a;eth1:space=b`.
    pub interfaces: Option<String>,
    /// Appears in the event log.
    pub comment: Option<String>,
    /// Only report what would be allocated. Refused here unless no VM can be composed: see [`Allocate::metal`].
    pub dry_run: bool,
}

/// The existing types of VM hosts. Excluding both excludes every VM and keeps MAAS from composing one.
const POD_TYPES: [&str; 2] = ["lxd", "virsh"];

impl Allocate {
    /// A machine that is not a VM; MAAS composes none either.
    pub fn metal() -> Self {
        Self { not_pod_types: POD_TYPES.map(String::from).to_vec(), ..Self::default() }
    }

    /// This machine.
    pub fn by_id(system_id: impl Into<String>) -> Self {
        Self { system_id: Some(system_id.into()), ..Self::default() }
    }

    /// Whether MAAS would compose a VM rather than report that nothing matches.
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
    /// the operating system, because MAAS ignores it.
    pub distro_series: Option<String>,
    /// User data for cloud-init, unencoded; the client encodes it. MAAS accepts some 7 MB.
    pub user_data: Option<SecretSlice<u8>>,
    /// The kernel.
    pub hwe_kernel: Option<String>,
    /// The caller's idempotency key, if the machine is still Ready and is allocated by this call.
    pub agent_name: Option<String>,
    /// Appears in the event log.
    pub comment: Option<String>,
    /// Run from memory and leave the disks untouched.
    pub ephemeral: bool,
    /// Report hardware periodically afterwards (from 3.2).
    pub enable_hw_sync: bool,
    /// Enable kernel crash dumps (from 3.6).
    pub enable_kernel_crash_dump: bool,
}

impl Deploy {
    pub(super) fn needs_version(&self) -> bool {
        self.enable_hw_sync || self.enable_kernel_crash_dump
    }

    /// MAAS ignores unknown options, so one that is too new would be lost silently.
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
    /// The server's default.
    #[default]
    ServerDefault,
    /// Do not request erasing.
    None,
    /// The first and last part of each disk.
    Quick,
    /// With the disk's own secure erase where it is supported, otherwise the whole disk.
    Secure,
    /// The whole of each disk.
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

/// What to change about a machine. None leaves a field unchanged.
#[derive(Debug, Clone, Default)]
pub struct MachineUpdate {
    /// The first label of its name.
    pub hostname: Option<String>,
    /// Free text.
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
