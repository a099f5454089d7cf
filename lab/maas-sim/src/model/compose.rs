//! Composing VMs.

use std::net::IpAddr;

use super::{
    DEFAULT_ZONE, Model, Outcome, Refusal, Status,
    db::{AllocType, Subnet, VmHost},
    machines::hostname_error,
    refusal::FormCheck,
    vm_hosts::{connection_refused, pool_used, used},
    world::Instance,
};
use crate::ledger::Effect;

/// Parameters of `op=compose`.
#[derive(Clone, Debug, Default)]
pub struct ComposeRequest {
    pub cores: Option<String>,
    pub memory: Option<String>,
    pub pinned_cores: Vec<String>,
    pub architecture: Option<String>,
    pub cpu_speed: Option<String>,
    pub storage: Option<String>,
    pub interfaces: Option<String>,
    pub hostname: Option<String>,
    pub domain: Option<String>,
    pub zone: Option<String>,
    pub pool: Option<String>,
    pub skip_commissioning: bool,
    pub dynamic: bool,
}

/// A disk in a storage constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedDisk {
    /// Its label; the first disk is the root disk, whatever its label.
    pub label: Option<String>,
    /// Bytes.
    pub size: i64,
    /// Tags, which may name storage pools.
    pub tags: Vec<String>,
}

/// "label:GB(tag,tag),…", "GB". `None`: malformed.
pub fn parse_storage(text: &str) -> Option<Vec<WantedDisk>> {
    let mut disks = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest
            .char_indices()
            .scan(0i32, |depth, (at, c)| {
                match c {
                    '(' => *depth += 1,
                    ')' => *depth -= 1,
                    _ => {}
                }
                Some((at, c, *depth))
            })
            .find(|(_, c, depth)| *c == ',' && *depth == 0)
            .map_or(rest.len(), |(at, ..)| at);
        let (item, tail) = rest.split_at(end);
        rest = tail.trim_start_matches(',');
        disks.push(parse_disk(item.trim())?);
    }
    (!disks.is_empty()).then_some(disks)
}

fn parse_disk(item: &str) -> Option<WantedDisk> {
    let (item, tags) = match item.split_once('(') {
        Some((before, tags)) => (before, tags.strip_suffix(')')?),
        None => (item, ""),
    };
    let (label, size) = match item.split_once(':') {
        Some((label, size)) => (Some(label), size),
        None => (None, item),
    };
    if label
        .is_some_and(|label| label.is_empty() || !label.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_'))
    {
        return None;
    }
    let gigabytes: f64 = size.parse().ok().filter(|size: &f64| size.is_finite() && *size > 0.0)?;
    #[allow(clippy::cast_possible_truncation)]
    let size = (gigabytes * 1_000_000_000.0) as i64;
    let tags = tags.split(',').map(str::trim).filter(|tag| !tag.is_empty()).map(str::to_owned).collect();
    Some(WantedDisk { label: label.map(str::to_owned), size, tags })
}

/// The validated request.
struct Checked {
    cores: Option<i64>,
    memory: i64,
    zone: Option<i64>,
    pool: Option<i64>,
    domain: Option<i64>,
}

struct WantedNic {
    name: String,
    subnet: i64,
    vlan: i64,
    ip: Option<IpAddr>,
}

/// The architecture of a simulated LXD.
const ARCHITECTURE: &str = "amd64/generic";
/// MHz.
const MIN_CPU_SPEED: i64 = 300;
const MIN_MEMORY: i64 = 1024;
const DEFAULT_MEMORY: i64 = 2048;
const DEFAULT_DISK: i64 = 8_000_000_000;

impl Model {
    /// Composes a VM on a host and creates a machine for it. Returns the machine.
    pub fn compose(&mut self, id: i64, user: i64, request: &ComposeRequest) -> Outcome<String> {
        let Some(host) = self.db.vm_hosts.get(&id).cloned() else { return Err(Refusal::NotFound("Pod")) };
        if !host.discovered() {
            return Err(Refusal::bad_request("VM host does not support composability."));
        }
        let checked = self.check_compose(&host, request)?;
        let asked = checked.cores.unwrap_or(1);
        let memory = checked.memory;
        // The requested cores are counted even if cores are pinned.
        check_over_commit(&host, asked, memory)?;
        let pinned = i64::try_from(request.pinned_cores.len()).unwrap_or(0);
        let cores = if pinned > 0 { pinned } else { asked };
        if host.host.is_none() && request.interfaces.as_ref().is_some_and(|text| !text.is_empty()) {
            return Err(Refusal::bad_request("Pod must be on a known host if interfaces are specified."));
        }
        let nics = self.wanted_nics(id, request.interfaces.as_deref())?;
        if !self.rack_connected() {
            return Err(Refusal::unavailable("Unable to connect to any rack controller ; no connections available.")
                .retry_after(10));
        }
        let cannot = |text: &str| {
            Refusal::unavailable(format!("Unable to compose machine because: Failed talking to pod: {text}"))
        };
        if !self.lxd_of(id).is_some_and(|lxd| lxd.reachable) {
            return Err(cannot(&connection_refused(&host)));
        }
        let disks = place_disks(&host, request.storage.as_deref())?;
        let hostname = match request.hostname.clone().filter(|name| !name.is_empty()) {
            Some(name) => name,
            None => self.new_hostname(),
        };
        let place = (host.project.clone(), hostname.clone());
        if self.lxd_of(id).is_some_and(|lxd| lxd.instances.contains_key(&place)) {
            return Err(cannot(
                "Failed creating instance record: Add instance info to the database: This \"instances\" entry already exists",
            ));
        }
        let macs: Vec<String> = nics.iter().map(|_| self.rng.mac("00:16:3e")).collect();
        let instance = Instance { cores, memory, disks, macs: macs.clone(), running: false };
        if let Some(lxd) = self.lxd_of_mut(id) {
            lxd.instances.insert(place, instance.clone());
        }
        self.tell_create(id, &host.project, &hostname);
        let system_id = self.add_machine(&hostname, &macs);
        let vm_id = self.note_vm(id, &host.project, &hostname, &instance, Some(system_id.clone()));
        self.fill_vm(&system_id, &host, &hostname, &instance, vm_id);
        self.finish_compose(&system_id, user, request, &nics, &checked);
        self.effect(Effect::Composed { machine: system_id.clone(), vm_host: id });
        Ok(system_id)
    }

    fn finish_compose(
        &mut self,
        system_id: &str,
        user: i64,
        request: &ComposeRequest,
        nics: &[WantedNic],
        checked: &Checked,
    ) {
        let mut ids = Vec::new();
        if let Some(machine) = self.db.machines.get_mut(system_id) {
            machine.zone = checked.zone.unwrap_or(DEFAULT_ZONE);
            machine.pool = checked.pool.unwrap_or(machine.pool);
            machine.domain = checked.domain.unwrap_or(machine.domain);
            machine.dynamic = request.dynamic;
            for (nic, wanted) in machine.interfaces.iter_mut().zip(nics) {
                nic.name.clone_from(&wanted.name);
                nic.vlan = Some(wanted.vlan);
                ids.push((nic.id, wanted.subnet, wanted.ip));
            }
        }
        for (nic, subnet, ip) in ids {
            let row = self.new_address(AllocType::Auto, ip, Some(subnet), None);
            self.attach_address(system_id, nic, row);
        }
        if request.skip_commissioning {
            self.partition_boot_disk(system_id);
            if let Some(machine) = self.db.machines.get_mut(system_id) {
                // No event: the first event of such a machine is an allocate.
                machine.status = Status::Ready;
            }
            self.steal(system_id);
        } else {
            // As for adopted VMs: without a boot image the machine stays New.
            let _ = self.commission(system_id, user, true);
        }
    }

    fn check_compose(&self, host: &VmHost, request: &ComposeRequest) -> Outcome<Checked> {
        let mut check = FormCheck::default();
        let bound = |check: &mut FormCheck, field: &str, text: &Option<String>, low: i64, high: i64| {
            let value = check.whole_number(field, text.as_deref().filter(|text| !text.is_empty()))?;
            if value > high {
                check.add(field, format!("Ensure this value is less than or equal to {high}."));
            } else if value < low {
                check.add(field, format!("Ensure this value is greater than or equal to {low}."));
            }
            Some(value)
        };
        let cores = bound(&mut check, "cores", &request.cores, 1, host.cores);
        let is_core = |text: &&String| text.parse().is_ok_and(|core: i64| (0..host.cores).contains(&core));
        if let Some(text) = request.pinned_cores.iter().find(|text| !is_core(text)) {
            check.add("pinned_cores", format!("Select a valid choice. {text} is not one of the available choices."));
        }
        let memory = bound(&mut check, "memory", &request.memory, MIN_MEMORY, host.memory);
        let given = |text: &'_ Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(text) = given(&request.architecture).filter(|text| text != ARCHITECTURE) {
            check.add("architecture", format!("Select a valid choice. {text} is not one of the available choices."));
        }
        check.at_least("cpu_speed", given(&request.cpu_speed).as_deref(), MIN_CPU_SPEED);
        if let Some(name) = given(&request.hostname) {
            if self.hostname_taken(&name, None) {
                check.add("hostname", format!("Node with hostname \"{name}\" already exists"));
            }
            if let Some(error) = hostname_error(&name) {
                check.add("hostname", error);
            }
        }
        if let Some(Err(words)) = given(&request.interfaces).map(|text| Self::parse_interfaces(&text)) {
            check.add("interfaces", words);
        }
        if let Some(text) = request.storage.as_deref().filter(|text| !text.is_empty())
            && parse_storage(text).is_none()
        {
            check.add("storage", format!("Malformed storage constraint, \"{text}\"."));
        }
        // Ids, not names.
        let mut choice = |field: &str, text: &Option<String>, known: &dyn Fn(i64) -> bool| -> Option<i64> {
            let text = text.as_deref().filter(|text| !text.is_empty())?;
            let found = text.parse().ok().filter(|id| known(*id));
            if found.is_none() {
                check.add(field, "Select a valid choice. That choice is not one of the available choices.");
            }
            found
        };
        let domain = choice("domain", &request.domain, &|id| self.db.domains.contains_key(&id));
        let zone = choice("zone", &request.zone, &|id| self.db.zones.contains_key(&id));
        let pool = choice("pool", &request.pool, &|id| self.db.pools.contains_key(&id));
        check.done()?;
        Ok(Checked { cores, memory: memory.unwrap_or(DEFAULT_MEMORY), zone, pool, domain })
    }

    /// Subnets that a VM on a host can be on.
    fn reachable_subnets(&self, host: i64) -> Vec<&Subnet> {
        let named = self.lxd_of(host).map(|lxd| lxd.networks.clone()).unwrap_or_default();
        if named.is_empty() {
            return self.dhcp_subnets().collect();
        }
        self.db.subnets.values().filter(|subnet| named.contains(&subnet.cidr.to_string())).collect()
    }

    fn wanted_nics(&self, host: i64, text: Option<&str>) -> Outcome<Vec<WantedNic>> {
        let reachable = self.reachable_subnets(host);
        let no_match = || Refusal::bad_request("This pod does not match the specified networks.");
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return Ok(reachable
                .first()
                .map(|subnet| WantedNic { name: "eth0".to_owned(), subnet: subnet.id, vlan: subnet.vlan, ip: None })
                .into_iter()
                .collect());
        };
        let labelled = Self::parse_interfaces(text).map_err(|words| Refusal::field("interfaces", words))?;
        let mut nics = Vec::new();
        for (name, wanted) in labelled {
            let pinned = match wanted.value("ip") {
                Some(text) => Some(self.pinned_address(text)?),
                None => None,
            };
            let fits = |subnet: &&Subnet| {
                pinned.is_none_or(|(_, of_address)| of_address == subnet.id) && self.subnet_fits(subnet, &wanted)
            };
            let subnet = reachable.iter().copied().find(fits).ok_or_else(no_match)?;
            nics.push(WantedNic { name, subnet: subnet.id, vlan: subnet.vlan, ip: pinned.map(|(ip, _)| ip) });
        }
        if nics.iter().any(|nic| self.db.vlans.get(&nic.vlan).is_some_and(|vlan| vlan.dhcp_on)) {
            Ok(nics)
        } else {
            Err(Refusal::bad_request(
                "MAAS DHCP must be enabled on at least one VLAN attached to the specified interfaces.",
            ))
        }
    }

    /// The requested address of a VM, with its subnet. MAAS handles neither an invalid address nor one in an unknown
    /// subnet.
    fn pinned_address(&self, text: &str) -> Outcome<(IpAddr, i64)> {
        let nonsense = |_| Refusal::crash(format!("failed to detect a valid IP address from '{text}'"));
        let ip: IpAddr = text.parse().map_err(nonsense)?;
        if self.is_taken(ip) {
            return Err(Refusal::conflict(format!("IP address ({ip}) is already in use.")));
        }
        let subnet = self.subnet_of(ip).ok_or_else(|| Refusal::crash("'NoneType' object has no attribute 'vlan'"))?;
        Ok((ip, subnet.id))
    }
}

/// Whether a host has capacity, by its over-commit ratios.
fn check_over_commit(host: &VmHost, cores: i64, memory: i64) -> Outcome<()> {
    let (used_cores, used_memory, _) = used(host);
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
    let left = |total: i64, ratio: f64, used: i64| (total as f64 * ratio) as i64 - used;
    let too_little = |what: &str, ratio: f64, left: i64, wanted: i64| {
        Refusal::unavailable(format!(
            "Unable to compose KVM instance in '{}'. {what} overcommit ratio is {ratio:?} and there are {left} \
             available resources; {wanted} requested.",
            host.name
        ))
    };
    let cores_left = left(host.cores, host.cpu_ratio, used_cores);
    if cores > cores_left {
        return Err(too_little("CPU", host.cpu_ratio, cores_left, cores));
    }
    let memory_left = left(host.memory, host.memory_ratio, used_memory);
    if memory > memory_left {
        return Err(too_little("Memory", host.memory_ratio, memory_left, memory));
    }
    Ok(())
}

/// Each disk is placed in the storage pool that a tag names, or else in the default one; an unknown tag is ignored.
fn place_disks(host: &VmHost, text: Option<&str>) -> Outcome<Vec<(i64, String)>> {
    let wanted = match text.filter(|text| !text.is_empty()) {
        Some(text) => parse_storage(text).unwrap_or_default(),
        None => vec![WantedDisk { label: None, size: DEFAULT_DISK, tags: Vec::new() }],
    };
    let default = host
        .default_storage_pool
        .as_ref()
        .and_then(|name| host.storage_pools.iter().find(|pool| pool.name == *name))
        .or_else(|| host.storage_pools.first());
    let mut placed: Vec<(i64, String)> = Vec::new();
    for disk in wanted {
        let named = host.storage_pools.iter().find(|pool| disk.tags.contains(&pool.name));
        let Some(pool) = named.or(default) else {
            return Err(Refusal::crash("No storage pools available."));
        };
        let planned: i64 = placed.iter().filter(|(_, name)| *name == pool.name).map(|(size, _)| size).sum();
        if pool_used(host, pool) + planned + disk.size > pool.total {
            return Err(Refusal::crash(format!("Not enough space in default storage pool: {}", pool.name)));
        }
        placed.push((disk.size, pool.name.clone()));
    }
    Ok(placed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_words_are_read_as_maas_reads_them() {
        let one = |text: &str| parse_storage(text).unwrap();
        assert_eq!(one("10")[0].size, 10_000_000_000);
        let two = one("root:10(default),data:5");
        assert_eq!(two.len(), 2);
        assert_eq!(two[0].tags, ["default"]);
        assert_eq!(two[1].label.as_deref(), Some("data"));
        for malformed in ["garbage:::", "bogus::", "", "x:0"] {
            assert!(parse_storage(malformed).is_none(), "{malformed}");
        }
    }
}
