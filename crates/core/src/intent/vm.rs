//! A VM on an LXD host, and what of its settings cannot be done.

use capmaas_api::machine::{DEFAULT_VM_DISK_GB, LxdNetworkConfig, MINIMUM_VM_MEMORY_MB, MachineLxdConfig, VmConfig};
use capmaas_api::{MaasMachineSpec, reasons, size};

use super::address::FixedAddress;
use super::{Problem, Wipe, contradiction, count, image, unreadable, wipe};

/// A VM on an LXD host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vm {
    /// Exactly so many cores, at least one.
    pub cores: u32,
    /// Exactly so many MiB of memory, at least 1024.
    pub memory: u32,
    /// The root disk, in 10⁹ bytes, at least one.
    pub disk: u32,
    /// The storage pool of the root disk; the host's default one if none is named.
    pub storage_pool: Option<String>,
    /// The host carries all of these tags, and the VM gets them.
    pub tags: Vec<String>,
    /// The host is in this resource pool.
    pub pool: Option<String>,
    /// The host is in this zone. The Machine's failure domain wins over it.
    pub zone: Option<String>,
    /// This very host: its name, its number, or the system ID of its machine.
    pub host: Option<String>,
    /// The host is registered with this LXD project.
    pub project: Option<String>,
    /// The VM has this LXD profile.
    pub profile: Option<String>,
    /// The network cards, eth0 first. None: one card in the network that MAAS chooses.
    pub nics: Vec<Nic>,
    /// A fixed address, on the card whose subnet holds it.
    pub address: Option<FixedAddress>,
    /// The image, as MAAS is asked for it.
    pub image: String,
    /// What happens to the disk when the VM is given back.
    pub erase: Option<Wipe>,
}

/// A network card of a VM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nic {
    /// `eth0`, `eth1`, …
    pub name: String,
    /// What it is attached to.
    pub to: Attach,
    /// How it gets its address; `None` leaves it as MAAS made it, which is AUTO.
    pub mode: Option<Mode>,
}

/// What a network card is attached to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Attach {
    /// The network that the host boots from.
    #[default]
    Boot,
    /// This bridge of the host.
    Bridge(String),
    /// This subnet, by name or CIDR.
    Subnet(String),
}

/// How a network card gets its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// MAAS chooses an address at each deployment.
    Auto,
    /// From a DHCP server.
    Dhcp,
    /// An address of its own that MAAS chooses and the machine keeps.
    Static,
    /// Up, without an address.
    LinkUp,
}

/// Resolves a VM. Settings that cannot be done are a problem only while no VM is there (`strict`): one that runs is not
/// abandoned for a field that nobody ever honoured (S24).
pub(super) fn resolve(spec: &MaasMachineSpec, strict: bool) -> Result<Vm, Problem> {
    let config = spec.lxd_config.clone().unwrap_or_default();
    let old = spec.lxd.as_ref().and_then(|section| section.vm_config.clone()).unwrap_or_default();
    if strict {
        refuse(spec, &config, &old)?;
    }
    let nics = nics(config.network.as_ref(), &old);
    Ok(Vm {
        cores: sized("minCPU", spec.min_cpu, strict)?.max(1),
        memory: sized("minMemory", spec.min_memory.max(MINIMUM_VM_MEMORY_MB), strict)?,
        disk: match disk(spec, &config, &old) {
            Err(problem) if strict => return Err(problem),
            answer => answer.unwrap_or(1),
        },
        storage_pool: config
            .storage
            .as_ref()
            .and_then(|storage| given(storage.pool.as_ref()))
            .or(given(old.storage_pool.as_ref())),
        tags: spec.tags.iter().filter(|tag| !tag.is_empty()).cloned().collect(),
        pool: spec.resource_pool().map(str::to_owned),
        zone: spec.failure_domain().map(str::to_owned),
        host: given(config.vm_host.as_ref()).or(given(spec.parent.as_ref())),
        project: given(config.project.as_ref()),
        profile: given(config.profile.as_ref()),
        nics: match nics {
            Err(problem) if strict => return Err(problem),
            answer => answer.unwrap_or_default(),
        },
        address: match FixedAddress::of(spec) {
            Err(problem) if strict => return Err(problem),
            answer => answer.unwrap_or_default(),
        },
        image: image(&spec.image)?,
        erase: wipe(spec)?,
    })
}

fn sized(field: &str, number: i64, strict: bool) -> Result<u32, Problem> {
    match count(field, number) {
        Err(problem) if strict => Err(problem),
        counted => Ok(counted.unwrap_or(u32::MAX)),
    }
}

/// What MAAS cannot do for a VM.
fn refuse(spec: &MaasMachineSpec, config: &MachineLxdConfig, old: &VmConfig) -> Result<(), Problem> {
    if spec.deploy_in_memory == Some(true) {
        return Err(contradiction("spec.deployInMemory works on physical machines only, and this is a VM; remove it"));
    }
    if old.auto_start == Some(false) {
        let message =
            "spec.lxd.vmConfig.autoStart is false, and MAAS cannot keep a VM from starting with its host; remove it";
        return Err(Problem { reason: reasons::VM_CREATION_FAILED, message: message.into() });
    }
    if config.network.is_some() && given(old.network.as_ref()).is_some() {
        let message = "spec.lxdConfig.network and spec.lxd.vmConfig.network both name the VM's networks; remove one";
        return Err(contradiction(message));
    }
    Ok(())
}

/// GB of 10⁹ bytes, as MAAS counts them; what is more than a whole one is rounded up.
fn disk(spec: &MaasMachineSpec, config: &MachineLxdConfig, old: &VmConfig) -> Result<u32, Problem> {
    let size = config.storage.as_ref().and_then(|storage| storage.size.as_ref()).filter(|size| !size.is_empty());
    let gigabytes = if let Some(size) = size {
        let bytes = size::bytes(size).map_err(|error| unreadable(format!("spec.lxdConfig.storage.size: {error}")))?;
        bytes.div_ceil(size::GB)
    } else {
        let size = [old.disk_size, spec.min_disk_size].into_iter().flatten().find(|size| *size > 0);
        u64::try_from(size.unwrap_or(DEFAULT_VM_DISK_GB)).unwrap_or(1)
    };
    u32::try_from(gigabytes).map_err(|_| unreadable(format!("a disk of {gigabytes} GB is more than MAAS can make")))
}

/// The cards, in the order of their names.
fn nics(network: Option<&LxdNetworkConfig>, old: &VmConfig) -> Result<Vec<Nic>, Problem> {
    let mut to: Vec<Attach> = Vec::new();
    if let Some(network) = network {
        let first = given(network.bridge.as_ref()).map_or(Attach::Boot, Attach::Bridge);
        if first != Attach::Boot || !network.devices.is_empty() {
            to.push(first);
        }
        to.extend(network.devices.iter().cloned().map(Attach::Subnet));
    } else if let Some(subnets) = &old.network {
        to.extend(
            subnets.split(',').map(str::trim).filter(|name| !name.is_empty()).map(|name| Attach::Subnet(name.into())),
        );
    }
    let mut modes = old.interface_link_modes.clone();
    if to.is_empty() && !modes.is_empty() {
        to.push(Attach::Boot);
    }
    let mut nics = Vec::with_capacity(to.len());
    for (index, to) in to.into_iter().enumerate() {
        let name = format!("eth{index}");
        let mode = match modes.remove(&name).filter(|word| !word.is_empty()) {
            Some(word) => Some(mode(&name, &word)?),
            // As the Go provider had it: AUTO for the first, DHCP for the others.
            None => (index > 0).then_some(Mode::Dhcp),
        };
        nics.push(Nic { name, to, mode });
    }
    if let Some((name, _)) = modes.into_iter().next() {
        let message = format!(
            "spec.lxd.vmConfig.interfaceLinkModes names {name}, and the VM has no such network card; name its subnet in \
             lxd.vmConfig.network or lxdConfig.network.devices, or remove it"
        );
        return Err(unreadable(message));
    }
    Ok(nics)
}

fn mode(nic: &str, word: &str) -> Result<Mode, Problem> {
    Ok(match word.to_ascii_lowercase().as_str() {
        "auto" => Mode::Auto,
        "dhcp" => Mode::Dhcp,
        "static" => Mode::Static,
        "link_up" => Mode::LinkUp,
        _ => {
            return Err(unreadable(format!(
                "spec.lxd.vmConfig.interfaceLinkModes says {word:?} for {nic}; write auto, dhcp, static or link_up"
            )));
        }
    })
}

fn given(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}
