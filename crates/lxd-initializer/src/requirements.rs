//! MAAS's requirements for an LXD and its project. No flag skips any of them.

use std::collections::BTreeMap;

/// MAAS refuses a host without the first three; the others feed its commissioning data, without which no VM is
/// composed.
pub const EXTENSIONS: [&str; 8] = [
    "projects",
    "virtual-machines",
    "custom_block_volumes",
    "resources",
    "resources_v2",
    "api_os",
    "resources_system",
    "resources_usb_pci",
];

/// The configuration with which MAAS can do everything it needs and a VM cannot mount the host's file system.
///
/// `lowlevel` must be allowed because MAAS sets `limits.memory.hugepages` on every VM, which LXD counts as low-level;
/// it also permits `raw.qemu`, so MAAS remains trusted with the host. Images and volumes stay in the default project,
/// as in the project that MAAS itself creates.
pub fn project_config() -> BTreeMap<String, String> {
    [
        ("features.images", "false"),
        ("features.profiles", "true"),
        ("features.storage.volumes", "false"),
        ("restricted", "true"),
        ("restricted.devices.nic", "allow"),
        ("restricted.virtual-machines.lowlevel", "allow"),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

/// How a project that somebody else created suits MAAS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProjectFit {
    /// As we create it.
    AsOurs,
    /// MAAS can work in it, but it restricts less than ours.
    Open,
    /// It would refuse the VMs that MAAS composes, because of these settings.
    TooTight(Vec<String>),
}

/// Checks a project's configuration.
pub fn judge_project(config: &BTreeMap<String, String>) -> ProjectFit {
    let is = |key: &str, value: &str| config.get(key).is_some_and(|found| found == value);
    if !is("restricted", "true") {
        return ProjectFit::Open;
    }
    let needed = ["restricted.devices.nic", "restricted.virtual-machines.lowlevel"];
    let missing: Vec<String> =
        needed.into_iter().filter(|key| !is(key, "allow")).map(|key| format!("{key}=allow")).collect();
    if missing.is_empty() { ProjectFit::AsOurs } else { ProjectFit::TooTight(missing) }
}
