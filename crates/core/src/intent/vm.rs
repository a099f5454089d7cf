//! A VM on an LXD host, and which of its settings cannot be honoured.

use capmaas_api::machine::{DEFAULT_VM_DISK_GB, LxdNetworkConfig, MINIMUM_VM_MEMORY_MB, MachineLxdConfig, VmConfig};
use capmaas_api::{MaasMachineSpec, reasons, size};

use super::address::FixedAddress;
use super::{Problem, Wipe, contradiction, count, image, unreadable, wipe};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vm {
    /// Exact number of cores, at least one.
    pub cores: u32,
    /// Exact memory in MiB, at least 1024.
    pub memory: u32,
    /// The root disk, in 10⁹ bytes, at least one.
    pub disk: u32,
    /// The storage pool of the root disk; the host's default if none is named.
    pub storage_pool: Option<String>,
    /// The host must carry all of these tags, and the VM gets them.
    pub tags: Vec<String>,
    /// The resource pool of the host.
    pub pool: Option<String>,
    /// The zone of the host. The Machine's failure domain wins over it.
    pub zone: Option<String>,
    /// Exactly this host: its name, its ID, or the system ID of its machine.
    pub host: Option<String>,
    /// The LXD project that the host is registered with.
    pub project: Option<String>,
    /// The LXD profile of the VM.
    pub profile: Option<String>,
    /// The NICs, eth0 first. Empty: one NIC in the network that MAAS chooses.
    pub nics: Vec<Nic>,
    /// A fixed address, on the NIC whose subnet holds it.
    pub address: Option<FixedAddress>,
    /// The image, as MAAS expects it.
    pub image: String,
    /// How the disk is wiped on release.
    pub erase: Option<Wipe>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nic {
    /// `eth0`, `eth1`, …
    pub name: String,
    pub to: Attach,
    /// How it gets its address; `None` leaves MAAS's default, which is AUTO.
    pub mode: Option<Mode>,
}

/// What a NIC is attached to.
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

/// How a NIC gets its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// MAAS chooses an address at each deployment.
    Auto,
    /// From a DHCP server.
    Dhcp,
    /// A fixed address that MAAS chooses and the machine keeps.
    Static,
    /// Up, without an address.
    LinkUp,
}

/// Resolves a VM. Settings that cannot be honoured are a problem only while there is no VM (`strict`): a running one is not
/// abandoned for a field that was never honoured (S24).
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

/// Refuses what MAAS cannot do for a VM.
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

/// GB of 10⁹ bytes, as MAAS counts them; fractions are rounded up.
fn disk(spec: &MaasMachineSpec, config: &MachineLxdConfig, old: &VmConfig) -> Result<u32, Problem> {
    let size = config.storage.as_ref().and_then(|storage| storage.size.as_ref()).filter(|size| !size.is_empty());
    let gigabytes = if let Some(size) = size {
        let bytes = size::bytes(size).map_err(|error| unreadable(format!("spec.lxdConfig.storage.size: {error}")))?;
        bytes.div_ceil(size::GB)
    } else {
        let size = [old.disk_size, spec.min_disk_size].into_iter().flatten().find(|size| *size > 0);
        u64::try_from(size.unwrap_or(DEFAULT_VM_DISK_GB)).unwrap_or(1)
    };
    u32::try_from(gigabytes).map_err(|_| unreadable(format!("a disk of {gigabytes} GB is more than MAAS can create")))
}

/// The NICs, in the order of their names.
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
            // As in the Go provider: AUTO for the first, DHCP for the others.
            None => (index > 0).then_some(Mode::Dhcp),
        };
        nics.push(Nic { name, to, mode });
    }
    if let Some((name, _)) = modes.into_iter().next() {
        let message = format!(
            "spec.lxd.vmConfig.interfaceLinkModes names {name}, and the VM has no such NIC; name its subnet in \
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
                "spec.lxd.vmConfig.interfaceLinkModes sets {nic} to {word:?}; use auto, dhcp, static or link_up"
            )));
        }
    })
}

fn given(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}
