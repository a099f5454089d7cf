//! What a `MaasMachine` asks for, in one form whatever the dialect of its spec. Nothing downstream reads a dialect again.

use capmaas_api::machine::{Erase, LxdSection, ProvisioningMode};
use capmaas_api::{MaasMachineSpec, ProviderId, provider_id::Scheme, reasons};

mod address;
mod vm;

pub use address::FixedAddress;
pub use vm::{Attach, Mode, Nic, Vm};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    Metal(Metal),
    Vm(Box<Vm>),
}

/// A physical machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metal {
    /// Minimum number of cores.
    pub min_cpu: Option<u32>,
    /// Minimum memory in MB.
    pub min_memory: Option<u32>,
    /// Minimum disk in GB.
    pub min_disk: Option<u32>,
    /// All of these MAAS tags.
    pub tags: Vec<String>,
    pub pool: Option<String>,
    /// The Machine's failure domain wins over it.
    pub zone: Option<String>,
    /// Exactly this machine, requested by a person.
    pub pinned: Option<String>,
    /// The image, as MAAS expects it.
    pub image: String,
    /// Run from memory and leave the disks alone.
    pub in_memory: bool,
    /// How the disks are wiped on release; `None` is MAAS's own setting.
    pub erase: Option<Wipe>,
    /// A fixed address, on the interface whose subnet holds it.
    pub address: Option<FixedAddress>,
}

/// How the disks of a released machine are wiped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wipe {
    Nothing,
    /// Beginning and end of each disk.
    Quick,
    /// By the disk's own secure erase.
    Secure,
    /// Every block.
    Full,
}

/// A spec that cannot be acted upon. The machine is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub reason: &'static str,
    pub message: String,
}

/// Whether a spec asks for a VM, whatever else is wrong with it.
pub fn asks_for_vm(spec: &MaasMachineSpec) -> Result<bool, Problem> {
    let metal_said = spec.provisioning_mode == Some(ProvisioningMode::BareMetal);
    Ok(match is_vm(spec)? {
        Some(true) => true,
        None if spec.parent.as_ref().is_some_and(|parent| !parent.is_empty()) => true,
        // The Go provider wrote maas:// for VMs as well, so only the other scheme is conclusive.
        None | Some(false) => names_a_vm(spec) && !metal_said,
    })
}

/// Resolves a spec. `in_journal` is true once a machine is in the journal, so that `systemID` no longer requests one.
pub fn resolve(spec: &MaasMachineSpec, in_journal: bool) -> Result<Intent, Problem> {
    resolve_as(spec, in_journal, asks_for_vm(spec)?)
}

/// The same for a machine whose kind is fixed already, whatever the spec asks for now.
pub fn resolve_as(spec: &MaasMachineSpec, in_journal: bool, is_vm: bool) -> Result<Intent, Problem> {
    if !spec.unreadable.is_empty() {
        return Err(unreadable(format!("cannot read {} of the stored spec; correct it", spec.unreadable.join(", "))));
    }
    let is_new = !in_journal && spec.provider_id().is_none();
    if is_vm {
        return Ok(Intent::Vm(Box::new(vm::resolve(spec, is_new)?)));
    }
    if names_a_vm(spec) {
        return Err(contradiction("spec.providerID names a VM, and provisioningMode is bare-metal"));
    }
    let address = FixedAddress::of(spec)?;
    if let Some(address) = &address {
        return Err(not_for_metal_yet(address));
    }
    let at_least = |field: &str, number: i64| match count(field, number) {
        // Constraints mattered only for the allocation, which is done.
        Err(_) if !is_new => Ok(None),
        counted => counted.map(|number| Some(number).filter(|number| *number > 0)),
    };
    Ok(Intent::Metal(Metal {
        min_cpu: at_least("minCPU", spec.min_cpu)?,
        min_memory: at_least("minMemory", spec.min_memory)?,
        min_disk: at_least("minDiskSize", spec.min_disk_size.unwrap_or(0))?,
        tags: spec.tags.iter().filter(|tag| !tag.is_empty()).cloned().collect(),
        pool: spec.resource_pool().map(str::to_owned),
        zone: spec.failure_domain().map(str::to_owned),
        pinned: spec.system_id().filter(|_| is_new).map(str::to_owned),
        image: image(&spec.image)?,
        in_memory: spec.deploy_in_memory == Some(true),
        erase: wipe(spec)?,
        address,
    }))
}

/// What the switches ask for. Two that disagree are a contradiction; an unknown mode never counts as bare metal.
fn is_vm(spec: &MaasMachineSpec) -> Result<Option<bool>, Problem> {
    let mode = match &spec.provisioning_mode {
        Some(ProvisioningMode::Unknown(mode)) => {
            return Err(unreadable(format!("spec.provisioningMode is {mode:?}, which this version does not know")));
        }
        Some(ProvisioningMode::Lxd) => Some(true),
        Some(ProvisioningMode::BareMetal) => Some(false),
        None => None,
    };
    let section = spec.lxd.as_ref().and_then(|LxdSection { enabled, .. }| *enabled);
    let asked = [("provisioningMode", mode), ("dynamicLXD", spec.dynamic_lxd), ("lxd.enabled", section)];
    let mut answer: Option<(&str, bool)> = None;
    for (field, value) in asked.into_iter().filter_map(|(field, value)| Some((field, value?))) {
        match answer {
            Some((other, before)) if before != value => {
                return Err(contradiction(&format!("spec.{other} and spec.{field} disagree on whether this is a VM")));
            }
            _ => answer = Some((field, value)),
        }
    }
    Ok(answer.map(|(_, value)| value))
}

/// A number of cores, MB or GB. One that no machine can have is reported, not dropped.
fn count(field: &str, number: i64) -> Result<u32, Problem> {
    let unit = match field {
        "minCPU" => "cores",
        "minMemory" => "MB, so 8 GiB are 8192",
        _ => "GB",
    };
    u32::try_from(number.max(0))
        .map_err(|_| unreadable(format!("spec.{field} is {number}, which no machine has; it is a number of {unit}")))
}

fn names_a_vm(spec: &MaasMachineSpec) -> bool {
    let id = spec.provider_id().and_then(|id| id.parse::<ProviderId>().ok());
    id.is_some_and(|id| id.scheme() == Scheme::MaasLxd)
}

/// MAAS ignores the operating system and resolves the series by itself, so the whole name is sent.
fn image(image: &str) -> Result<String, Problem> {
    let image = image.trim();
    if image.is_empty() {
        return Err(unreadable("spec.image is empty".into()));
    }
    Ok(image.to_owned())
}

fn wipe(spec: &MaasMachineSpec) -> Result<Option<Wipe>, Problem> {
    Ok(Some(match spec.release.as_ref().and_then(|release| release.erase.as_ref()) {
        None => return Ok(None),
        Some(Erase::None) => Wipe::Nothing,
        Some(Erase::Quick) => Wipe::Quick,
        Some(Erase::Secure) => Wipe::Secure,
        Some(Erase::Full) => Wipe::Full,
        Some(Erase::Unknown(word)) => {
            return Err(unreadable(format!("spec.release.erase is {word:?}, which this version does not know")));
        }
    }))
}

/// MAAS keeps a static link, and with it the address, on a bare-metal machine that it releases, and allows removing it only while
/// the machine is allocated. So freeing the address would mean allocating the released machine once more, and another user may be
/// faster and get the machine together with the address. Until that can be done safely it is refused.
fn not_for_metal_yet(address: &FixedAddress) -> Problem {
    if *address == FixedAddress::Awaited {
        return FixedAddress::awaited();
    }
    Problem {
        reason: reasons::STATIC_IP_FAILED,
        message:
            "spec.staticIP is not supported for bare metal by this version; remove it, or reserve the address in MAAS"
                .into(),
    }
}

fn unreadable(message: String) -> Problem {
    Problem { reason: reasons::UNREADABLE_SPEC, message }
}

fn contradiction(message: &str) -> Problem {
    Problem { reason: reasons::CONTRADICTORY_SPEC, message: message.to_owned() }
}

#[cfg(test)]
mod tests;
