//! `op=allocate`: constraints, the cheapest match, and VMs composed when nothing matches.

use super::{
    Model, Outcome, Refusal, Status,
    bridges::BridgeOptions,
    compose::ComposeRequest,
    constraints::{INTERFACE_KEYS, parse_labelled},
    db::{AllocType, Machine},
    machines::Permission,
    refusal::FormCheck,
};
use crate::version::Change;

/// Names of constraints, in the order in which MAAS checks them.
const CONSTRAINTS: &[&str] = &[
    "name",
    "system_id",
    "arch",
    "cpu_count",
    "mem",
    "tags",
    "not_tags",
    "not_arch",
    "cpu_speed",
    "owner",
    "not_owner",
    "power_state",
    "not_power_state",
    "zone",
    "not_in_zone",
    "pool",
    "not_in_pool",
    "storage",
    "interfaces",
    "link_speed",
    "vlans",
    "not_vlans",
    "fabrics",
    "not_fabrics",
    "fabric_classes",
    "not_fabric_classes",
    "subnets",
    "not_subnets",
    "pod",
    "not_pod",
    "pod_type",
    "not_pod_type",
    "devices",
    "deployment_target",
];
/// Parameters that are no constraints.
const OPTIONS: &[&str] =
    &["op", "agent_name", "comment", "bridge_all", "bridge_type", "bridge_stp", "bridge_fd", "dry_run", "verbose"];

/// A parsed request.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct AllocateRequest {
    /// All parameters as they came, without `op`: MAAS repeats them in its refusal.
    pub data: Vec<(String, String)>,
    pub agent_name: String,
    pub comment: Option<String>,
    pub dry_run: bool,
    pub verbose: bool,
    pub bridge_all: Option<BridgeOptions>,
}

#[derive(Debug, Default)]
struct Wanted {
    name: Option<String>,
    system_id: Option<String>,
    arch: Vec<String>,
    cpu_count: Option<f64>,
    mem: Option<f64>,
    tags: Vec<String>,
    not_tags: Vec<String>,
    zone: Vec<String>,
    not_in_zone: Vec<String>,
    pool: Vec<String>,
    not_in_pool: Vec<String>,
    subnets: Vec<i64>,
    not_subnets: Vec<i64>,
    pod: Option<String>,
    not_pod: Vec<String>,
    pod_type: Option<String>,
    not_pod_type: Vec<String>,
    fabrics: Vec<String>,
    not_fabrics: Vec<String>,
    vlans: Vec<i64>,
    link_speed: Option<f64>,
    storage: Vec<i64>,
    interfaces: Vec<i64>,
    diskless: bool,
}

impl AllocateRequest {
    fn all(&self, name: &str) -> Vec<&str> {
        self.data.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }

    fn one(&self, name: &str) -> Option<&str> {
        self.all(name).last().copied().filter(|value| !value.is_empty())
    }

    /// Repeated values. Tags may also be many in one value, with commas or blanks in between.
    fn list(&self, name: &str) -> Vec<String> {
        let many = name == "tags";
        self.all(name)
            .iter()
            .flat_map(|value| value.split(|c: char| many && (c == ',' || c.is_whitespace())))
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// Repeated values as they are: names of zones and pools may hold blanks.
    fn names(&self, name: &str) -> Vec<String> {
        self.all(name).into_iter().filter(|value| !value.is_empty()).map(str::to_owned).collect()
    }
}

impl Model {
    /// Returns the machine, which is the user's unless it was a dry run.
    pub fn allocate(&mut self, user: i64, request: &AllocateRequest) -> Outcome<String> {
        let wanted = self.parse_constraints(request)?;
        let found = self.cheapest(user, &wanted).map(|machine| machine.system_id.clone());
        let may_compose = wanted.system_id.is_none() || !self.version.has(Change::NoComposeById);
        let system_id = match found {
            Some(system_id) => system_id,
            None if may_compose => match self.compose_for(user, &wanted) {
                Some(system_id) => system_id,
                None => return Err(Self::nothing_matches(request, &wanted)),
            },
            None => return Err(Self::nothing_matches(request, &wanted)),
        };
        if !request.dry_run {
            self.acquire(&system_id, user, &request.agent_name, request.comment.as_deref());
            let name = self.user_name(Some(user)).to_owned();
            self.effect(format!("allocated {system_id} to {name}"));
            if let Some(options) = &request.bridge_all {
                self.bridge_all(&system_id, options);
            }
        }
        Ok(system_id)
    }

    fn nothing_matches(request: &AllocateRequest, wanted: &Wanted) -> Refusal {
        if let Some(system_id) = &wanted.system_id {
            return Refusal::conflict(format!("No machine with system ID {system_id} available."));
        }
        if request.data.is_empty() {
            return Refusal::conflict("No machine available.");
        }
        let mut keys: Vec<&str> = Vec::new();
        for (key, _) in &request.data {
            if !keys.contains(&key.as_str()) {
                keys.push(key);
            }
        }
        let given: Vec<String> = keys
            .iter()
            .map(|key| {
                let values: Vec<String> = request.all(key).iter().map(|value| format!("'{value}'")).collect();
                format!("('{key}', [{}])", values.join(", "))
            })
            .collect();
        let ids = |ids: &[i64]| {
            let mut ids = ids.to_vec();
            ids.sort_unstable();
            ids.dedup();
            let texts: Vec<String> = ids.iter().map(ToString::to_string).collect();
            (!texts.is_empty()).then(|| texts.join(","))
        };
        let mut resolved: Vec<String> = Vec::new();
        for key in CONSTRAINTS {
            let text = match *key {
                "cpu_count" => wanted.cpu_count.map(|value| format!("{value:?}")),
                "mem" => wanted.mem.map(|value| format!("{value:?}")),
                "subnets" => ids(&wanted.subnets),
                "not_subnets" => ids(&wanted.not_subnets),
                "vlans" => ids(&wanted.vlans),
                "tags" => {
                    let mut values = request.list(key);
                    values.sort();
                    (!values.is_empty()).then(|| values.join(","))
                }
                "storage" | "interfaces" | "devices" | "deployment_target" => request.one(key).map(str::to_owned),
                _ => {
                    let values = request.list(key);
                    (!values.is_empty()).then(|| values.join(","))
                }
            };
            if let Some(text) = text {
                resolved.push(format!("{key}={text}"));
            }
        }
        resolved.sort();
        Refusal::conflict(format!(
            "No available machine matches constraints: [{}] (resolved to \"{}\")",
            given.join(", "),
            resolved.join(" ")
        ))
    }

    fn parse_constraints(&self, request: &AllocateRequest) -> Outcome<Wanted> {
        let mut check = FormCheck::default();
        for (key, _) in &request.data {
            let new = key == "deployment_target" && !self.version.has(Change::DeploymentTarget);
            if new || (!CONSTRAINTS.contains(&key.as_str()) && !OPTIONS.contains(&key.as_str())) {
                check.add(key, "No such constraint.");
            }
        }
        let mut wanted = Wanted {
            name: request.one("name").map(str::to_owned),
            system_id: request.one("system_id").map(str::to_owned),
            tags: request.list("tags"),
            not_tags: request.list("not_tags"),
            zone: request.names("zone"),
            not_in_zone: request.names("not_in_zone"),
            pool: request.names("pool"),
            not_in_pool: request.names("not_in_pool"),
            pod: request.one("pod").map(str::to_owned),
            not_pod: request.list("not_pod"),
            pod_type: request.one("pod_type").map(str::to_owned),
            not_pod_type: request.list("not_pod_type"),
            fabrics: request.list("fabrics"),
            not_fabrics: request.list("not_fabrics"),
            ..Wanted::default()
        };
        if let Some(arch) = request.one("arch") {
            wanted.arch = request.list("arch");
            if !["amd64", "i386", "arm64", "armhf", "ppc64el", "s390x"].contains(&arch.split('/').next().unwrap_or(""))
            {
                check.add("arch", "Architecture not recognised.");
            }
        }
        if let Some(text) = request.one("cpu_count") {
            match text.parse() {
                Ok(number) => wanted.cpu_count = Some(number),
                Err(_) => check.add("cpu_count", "Invalid CPU count: number required."),
            }
        }
        if let Some(text) = request.one("mem") {
            match text.parse() {
                Ok(number) => wanted.mem = Some(number),
                Err(_) => check.add("mem", "Invalid memory: number of MiB required."),
            }
        }
        if let Some(text) = request.one("deployment_target") {
            match text {
                "disk" => {}
                "memory" => wanted.diskless = true,
                _ => check.add(
                    "deployment_target",
                    format!("Select a valid choice. {text} is not one of the available choices."),
                ),
            }
        }
        if let Some(text) = request.one("link_speed") {
            match text.parse() {
                Ok(number) => wanted.link_speed = Some(number),
                Err(_) => check.add("link_speed", "Invalid link speed: number required."),
            }
        }
        for (field, names) in [("zone", &wanted.zone), ("not_in_zone", &wanted.not_in_zone)] {
            self.check_zones(field, names, &mut check);
        }
        for (field, names) in [("pool", &wanted.pool), ("not_in_pool", &wanted.not_in_pool)] {
            self.check_pools(field, names, &mut check);
        }
        // Tags of VM hosts count too: a VM composed there would carry them.
        let of_hosts = |name: &str| self.db.vm_hosts.values().any(|host| host.tags.iter().any(|tag| tag == name));
        let tags: Vec<String> = wanted.tags.iter().filter(|name| !of_hosts(name)).cloned().collect();
        self.check_tags(&tags, &mut check);
        self.check_owners(&request.list("owner"), &mut check);
        for (field, into) in [("subnets", &mut wanted.subnets), ("not_subnets", &mut wanted.not_subnets)] {
            let asked = request.list(field);
            into.extend(asked.iter().filter_map(|text| self.find_subnet(text)).map(|subnet| subnet.id));
            if into.is_empty() && !asked.is_empty() {
                check.add(field, "No matching subnets found.");
            }
        }
        for text in request.list("vlans") {
            let vid = text.trim_start_matches("vid:").parse::<i64>().ok();
            match self.db.vlans.values().find(|vlan| Some(vlan.id) == vid || Some(vlan.vid) == vid || vlan.name == text)
            {
                Some(vlan) => wanted.vlans.push(vlan.id),
                None => check.add("vlans", "No matching VLANs found."),
            }
        }
        if let Some(text) = request.one("storage") {
            match super::compose::parse_storage(text) {
                Some(disks) => wanted.storage = disks.iter().map(|disk| disk.size).collect(),
                None => check.add("storage", format!("Malformed storage constraint, \"{text}\".")),
            }
        }
        if let Some(text) = request.one("interfaces") {
            match self.parse_interfaces(text) {
                Ok(subnets) => wanted.interfaces = subnets,
                Err(words) => check.add("interfaces", words),
            }
        }
        check.done()?;
        Ok(wanted)
    }

    /// Subnets of "label:key=value,…;…". Keys that do not lead to one subnet are read and not matched.
    fn parse_interfaces(&self, text: &str) -> Result<Vec<i64>, String> {
        let mut subnets = Vec::new();
        for (key, value) in parse_labelled(text)? {
            if !INTERFACE_KEYS.contains(&key) {
                // The quotation mark that is missing is MAAS's.
                return Err(format!("Unknown interfaces constraint: '{key}"));
            }
            let found = match key {
                "subnet" | "subnet_cidr" => self.find_subnet(value),
                "ip" => value.parse().ok().and_then(|ip| self.subnet_of(ip)),
                _ => continue,
            };
            // No subnet of that name: no machine can match.
            subnets.push(found.map_or(-1, |subnet| subnet.id));
        }
        Ok(subnets)
    }

    fn cheapest(&self, user: i64, wanted: &Wanted) -> Option<&Machine> {
        self.db
            .machines
            .values()
            .filter(|machine| machine.status == Status::Ready && machine.owner.is_none())
            .filter(|machine| self.may(user, machine, Permission::View) && self.matches(machine, wanted))
            .min_by(|a, b| a.cost().total_cmp(&b.cost()).then(a.id.cmp(&b.id)))
    }

    fn matches(&self, machine: &Machine, wanted: &Wanted) -> bool {
        let zone = self.db.zones.get(&machine.zone).map_or("", |zone| zone.name.as_str());
        let pool = self.db.pools.get(&machine.pool).map_or("", |pool| pool.name.as_str());
        let name_fits = |name: &str| {
            let domain = self.db.domains.get(&machine.domain).map_or("", |domain| domain.name.as_str());
            machine.hostname == name || format!("{}.{domain}", machine.hostname) == name
        };
        #[allow(clippy::cast_precision_loss)]
        let (cores, memory) = (machine.cpu_count as f64, machine.memory as f64);
        let host = machine.vm.as_ref().and_then(|vm| self.db.vm_hosts.get(&vm.vm_host));
        let arch_fits = wanted.arch.is_empty()
            || wanted.arch.iter().any(|arch| {
                machine.architecture == *arch || machine.architecture.split('/').next() == Some(arch.as_str())
            });
        wanted.system_id.as_ref().is_none_or(|id| *id == machine.system_id)
            && wanted.name.as_deref().is_none_or(name_fits)
            && arch_fits
            && wanted.cpu_count.is_none_or(|count| cores >= count)
            && wanted.mem.is_none_or(|mem| memory >= mem)
            && wanted.tags.iter().all(|tag| machine.tags.contains(tag))
            && !wanted.not_tags.iter().any(|tag| machine.tags.contains(tag))
            && (wanted.zone.is_empty() || wanted.zone.iter().any(|name| name == zone))
            && !wanted.not_in_zone.iter().any(|name| name == zone)
            && (wanted.pool.is_empty() || wanted.pool.iter().any(|name| name == pool))
            && !wanted.not_in_pool.iter().any(|name| name == pool)
            && wanted.pod.as_ref().is_none_or(|name| host.is_some_and(|host| host.name == *name))
            && !host.is_some_and(|host| wanted.not_pod.contains(&host.name))
            && wanted.pod_type.as_ref().is_none_or(|kind| host.is_some_and(|host| host.kind == *kind))
            && !host.is_some_and(|host| wanted.not_pod_type.contains(&host.kind))
            && self.network_fits(machine, wanted)
            && storage_fits(machine, &wanted.storage)
            && (!wanted.diskless || machine.disks.is_empty())
    }

    fn network_fits(&self, machine: &Machine, wanted: &Wanted) -> bool {
        let subnets: Vec<i64> = machine
            .interfaces
            .iter()
            .flat_map(|nic| nic.addresses.iter())
            .filter_map(|id| self.db.addresses.get(id))
            .filter(|row| row.alloc != AllocType::Discovered)
            .filter_map(|row| row.subnet)
            .collect();
        let fabrics: Vec<&str> = machine
            .interfaces
            .iter()
            .filter_map(|nic| nic.vlan)
            .map(|vlan| self.fabric_name(self.db.vlans.get(&vlan)))
            .collect();
        wanted.subnets.iter().chain(&wanted.interfaces).all(|id| subnets.contains(id))
            && !wanted.not_subnets.iter().any(|id| subnets.contains(id))
            && wanted.vlans.iter().all(|id| machine.interfaces.iter().any(|nic| nic.vlan == Some(*id)))
            && wanted.fabrics.iter().all(|name| fabrics.contains(&name.as_str()))
            && !wanted.not_fabrics.iter().any(|name| fabrics.contains(&name.as_str()))
            && wanted.link_speed.is_none_or(|speed| {
                #[allow(clippy::cast_precision_loss)]
                machine.interfaces.iter().any(|nic| nic.speed as f64 >= speed)
            })
    }

    /// Composes a VM for a request that no machine matches. Zone, tags and the pod words are matched against the VM
    /// hosts; name, pool and subnets are not looked at.
    fn compose_for(&mut self, user: i64, wanted: &Wanted) -> Option<String> {
        #[allow(clippy::cast_possible_truncation)]
        let (cores, memory) = (
            wanted.cpu_count.map_or(1, |count| count.ceil().max(1.0) as i64),
            wanted.mem.map_or(2048, |mem| mem.ceil().max(1024.0) as i64),
        );
        let candidates: Vec<i64> = self
            .db
            .vm_hosts
            .values()
            .filter(|host| host.discovered())
            .filter(|host| {
                let zone = self.db.zones.get(&host.zone).map_or("", |zone| zone.name.as_str());
                (wanted.zone.is_empty() || wanted.zone.iter().any(|name| name == zone))
                    && !wanted.not_in_zone.iter().any(|name| name == zone)
                    && wanted.pod.as_ref().is_none_or(|name| host.name == *name)
                    && !wanted.not_pod.contains(&host.name)
                    && wanted.pod_type.as_ref().is_none_or(|kind| host.kind == *kind)
                    && !wanted.not_pod_type.contains(&host.kind)
                    && wanted.tags.iter().all(|tag| host.tags.contains(tag))
                    && (wanted.not_tags.is_empty() || !wanted.not_tags.iter().all(|tag| host.tags.contains(tag)))
            })
            .map(|host| host.id)
            .collect();
        for host in candidates {
            let request = ComposeRequest {
                cores: Some(cores),
                memory: Some(memory),
                skip_commissioning: true,
                dynamic: true,
                ..ComposeRequest::default()
            };
            if let Ok(system_id) = self.compose(host, user, &request) {
                return Some(system_id);
            }
        }
        None
    }
}

/// Every wanted size finds a disk of its own.
fn storage_fits(machine: &Machine, wanted: &[i64]) -> bool {
    let mut left: Vec<i64> = machine.disks.iter().map(|disk| disk.size).collect();
    wanted.iter().all(|size| match left.iter().position(|have| have >= size) {
        Some(at) => {
            left.remove(at);
            true
        }
        None => false,
    })
}
