//! Constraints on machines, for `op=allocate` and list filters alike: the same form of MAAS parses both.

use super::{
    Model,
    compose::{WantedDisk, parse_storage},
    db::{AllocType, Disk, Machine, PowerState},
    refusal::FormCheck,
    specifiers::WantedInterface,
};
use crate::version::Change;

/// Names of constraints.
pub const CONSTRAINTS: &[&str] = &[
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
    "not_deployment_target",
];
/// Constraints that were added in 3.3.
const MANY_FILTERS: &[&str] = &["owner", "not_owner", "power_state", "not_power_state", "not_arch", "link_speed"];
/// The possible constraints of a device.
const DEVICE_KEYS: &[&str] = &["vendor_id", "product_id", "vendor_name", "product_name", "commissioning_driver"];

/// The parameters of a request, including repeated ones.
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'a>(pub &'a [(String, String)]);

impl<'a> Parameters<'a> {
    /// All values of a key.
    pub fn all(self, name: &str) -> Vec<&'a str> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }

    /// The last value of a key, unless it is empty.
    pub fn one(self, name: &str) -> Option<&'a str> {
        self.all(name).last().copied().filter(|value| !value.is_empty())
    }

    /// Non-empty values. A value may also contain several tags, separated by commas or spaces.
    pub fn list(self, name: &str) -> Vec<String> {
        let many = name == "tags";
        self.all(name)
            .iter()
            .flat_map(|value| value.split(|c: char| many && (c == ',' || c.is_whitespace())))
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
            .collect()
    }
}

/// The parsed constraints.
#[derive(Debug, Default)]
pub struct Wanted {
    pub name: Option<String>,
    pub system_id: Vec<String>,
    pub arch: Vec<String>,
    pub not_arch: Vec<String>,
    pub cpu_count: Option<f64>,
    pub cpu_speed: Option<f64>,
    pub mem: Option<f64>,
    pub tags: Vec<String>,
    pub not_tags: Vec<String>,
    pub zone: Vec<String>,
    pub not_in_zone: Vec<String>,
    pub pool: Vec<String>,
    pub not_in_pool: Vec<String>,
    pub owner: Vec<String>,
    pub not_owner: Vec<String>,
    pub power_state: Vec<PowerState>,
    pub not_power_state: Vec<PowerState>,
    pub subnets: Vec<i64>,
    pub not_subnets: Vec<i64>,
    pub pod: Vec<String>,
    pub not_pod: Vec<String>,
    pub pod_type: Vec<String>,
    pub not_pod_type: Vec<String>,
    pub fabrics: Vec<String>,
    pub not_fabrics: Vec<String>,
    pub fabric_classes: Vec<String>,
    pub not_fabric_classes: Vec<String>,
    pub vlans: Vec<i64>,
    pub not_vlans: Vec<i64>,
    pub link_speed: Option<f64>,
    pub storage: Vec<WantedDisk>,
    pub interfaces: Vec<WantedInterface>,
    /// A device is requested, and machines here have none.
    pub devices: bool,
    pub ephemeral: Option<bool>,
}

impl Model {
    /// Whether this release supports a constraint.
    fn has_constraint(&self, key: &str) -> bool {
        CONSTRAINTS.contains(&key)
            && (!key.ends_with("deployment_target") || self.version.has(Change::DeploymentTarget))
            && (!MANY_FILTERS.contains(&key) || self.version.has(Change::ManyFilters))
    }

    /// Parses the constraints; errors are added to `check`. `further`: keys that are not constraints.
    pub fn parse_wanted(&self, given: Parameters<'_>, further: impl Fn(&str) -> bool, check: &mut FormCheck) -> Wanted {
        for (key, _) in given.0.iter().filter(|(key, _)| !self.has_constraint(key) && !further(key)) {
            if !check.is_wrong(key) {
                check.add(key, "No such constraint.");
            }
        }
        let known: Vec<_> = given.0.iter().filter(|(key, _)| !check.is_wrong(key)).cloned().collect();
        let given = Parameters(&known);
        let mut wanted = Wanted {
            name: given.one("name").map(str::to_owned),
            system_id: given.list("system_id"),
            arch: given.list("arch"),
            not_arch: given.list("not_arch"),
            tags: given.list("tags"),
            not_tags: given.list("not_tags"),
            zone: given.list("zone"),
            not_in_zone: given.list("not_in_zone"),
            pool: given.list("pool"),
            not_in_pool: given.list("not_in_pool"),
            owner: given.list("owner"),
            not_owner: given.list("not_owner"),
            pod: given.list("pod"),
            not_pod: given.list("not_pod"),
            pod_type: given.list("pod_type"),
            not_pod_type: given.list("not_pod_type"),
            fabrics: given.list("fabrics"),
            not_fabrics: given.list("not_fabrics"),
            fabric_classes: given.list("fabric_classes"),
            not_fabric_classes: given.list("not_fabric_classes"),
            ..Wanted::default()
        };
        self.check_names(&mut wanted, check);
        for (field, into, words) in [
            ("cpu_count", &mut wanted.cpu_count, "Invalid CPU count: number required."),
            ("cpu_speed", &mut wanted.cpu_speed, "Invalid CPU speed: number required."),
            ("mem", &mut wanted.mem, "Invalid memory: number of MiB required."),
            ("link_speed", &mut wanted.link_speed, "Invalid link speed: number required."),
        ] {
            *into = least_number(given, field, words, check);
        }
        for (field, into) in
            [("power_state", &mut wanted.power_state), ("not_power_state", &mut wanted.not_power_state)]
        {
            let asked = given.list(field);
            into.extend(asked.iter().filter_map(|text| PowerState::parse(text)));
            no_choice(check, field, asked.iter().find(|text| PowerState::parse(text).is_none()));
        }
        let targets = given.list("deployment_target");
        no_choice(check, "deployment_target", targets.iter().find(|text| !["disk", "memory"].contains(&text.as_str())));
        wanted.ephemeral = targets.first().map(|target| target == "memory");
        self.read_network(given, &mut wanted, check);
        if let Some(text) = given.one("storage") {
            match parse_storage(text) {
                Some(disks) => wanted.storage = disks,
                None => check.add("storage", format!("Malformed storage constraint, \"{text}\".")),
            }
        }
        if let Some(text) = given.one("devices") {
            wanted.devices = true;
            let unknown = text.split(',').map(|pair| pair.split_once('=').map_or(pair, |(key, _)| key));
            if let Some(key) = unknown.into_iter().find(|key| !DEVICE_KEYS.contains(key)) {
                check.add("devices", format!("Unknown devices constraint: '{key}"));
            }
        }
        wanted
    }

    /// Names of things that must exist.
    fn check_names(&self, wanted: &mut Wanted, check: &mut FormCheck) {
        // An architecture includes all its subarchitectures.
        let usable = self.usable_architectures();
        let mut expanded = Vec::new();
        for arch in &wanted.arch {
            let meant = |full: &&String| *full == arch || full.split('/').next() == Some(arch);
            let before = expanded.len();
            expanded.extend(usable.iter().filter(meant).cloned());
            if expanded.len() == before && !check.is_wrong("arch") {
                check.add("arch", "Architecture not recognised.");
            }
        }
        wanted.arch = expanded;
        for (field, names) in [("zone", &wanted.zone), ("not_in_zone", &wanted.not_in_zone)] {
            self.check_zones(field, names, check);
        }
        for (field, names) in [("pool", &wanted.pool), ("not_in_pool", &wanted.not_in_pool)] {
            self.check_pools(field, names, check);
        }
        // Tags of VM hosts count too: a VM composed there would have them.
        let of_hosts = |name: &str| self.db.vm_hosts.values().any(|host| host.tags.iter().any(|tag| tag == name));
        let tags: Vec<String> = wanted.tags.iter().filter(|name| !of_hosts(name)).cloned().collect();
        self.check_tags(&tags, check);
        self.check_owners(&wanted.owner, check);
    }

    fn read_network(&self, given: Parameters<'_>, wanted: &mut Wanted, check: &mut FormCheck) {
        for (field, into) in [("subnets", &mut wanted.subnets), ("not_subnets", &mut wanted.not_subnets)] {
            let asked = given.list(field);
            into.extend(asked.iter().flat_map(|text| self.subnets_for(text)).map(|subnet| subnet.id));
            if into.is_empty() && !asked.is_empty() {
                check.add(field, "No matching subnets found.");
            }
        }
        for (field, into) in [("vlans", &mut wanted.vlans), ("not_vlans", &mut wanted.not_vlans)] {
            let asked = given.list(field);
            into.extend(asked.iter().flat_map(|text| self.vlans_for(text)).map(|vlan| vlan.id));
            if into.is_empty() && !asked.is_empty() {
                check.add(field, "No matching VLANs found.");
            }
        }
        if let Some(text) = given.one("interfaces") {
            match Self::parse_interfaces(text) {
                Ok(labelled) => wanted.interfaces = labelled.into_iter().map(|(_, wanted)| wanted).collect(),
                Err(words) => check.add("interfaces", words),
            }
        }
    }

    /// Whether a VM host's name is among the requested ones; in a few releases a substring was enough.
    pub(super) fn pod_fits(&self, wanted: &[String], name: &str) -> bool {
        let part = self.version.has(Change::ManyFilters) && !self.version.has(Change::ExactPodFilter);
        wanted.is_empty() || wanted.iter().any(|pod| if part { name.contains(pod.as_str()) } else { name == pod })
    }

    /// Whether a machine matches the constraints.
    pub fn fits(&self, machine: &Machine, wanted: &Wanted) -> bool {
        let zone = self.db.zones.get(&machine.zone).map_or("", |zone| zone.name.as_str());
        let pool = self.db.pools.get(&machine.pool).map_or("", |pool| pool.name.as_str());
        let name_fits = |name: &str| {
            let domain = self.db.domains.get(&machine.domain).map_or("", |domain| domain.name.as_str());
            machine.hostname == name || format!("{}.{domain}", machine.hostname) == name
        };
        #[allow(clippy::cast_precision_loss)]
        let (cores, memory, speed) = (machine.cpu_count as f64, machine.memory as f64, machine.cpu_speed as f64);
        let host = machine.vm.as_ref().and_then(|vm| self.db.vm_hosts.get(&vm.vm_host));
        let has_arch =
            |arch: &String| machine.architecture == *arch || machine.architecture.split('/').next() == Some(arch);
        let one_of = |wanted: &[String], have: &str| wanted.is_empty() || wanted.iter().any(|name| name == have);
        let owner = self.user_name(machine.owner);
        wanted.name.as_deref().is_none_or(name_fits)
            && one_of(&wanted.system_id, &machine.system_id)
            && (wanted.arch.is_empty() || wanted.arch.iter().any(has_arch))
            && !wanted.not_arch.iter().any(has_arch)
            && wanted.cpu_count.is_none_or(|count| cores >= count)
            && wanted.cpu_speed.is_none_or(|least| speed >= least)
            && wanted.mem.is_none_or(|mem| memory >= mem)
            && wanted.tags.iter().all(|tag| machine.tags.contains(tag))
            && !wanted.not_tags.iter().any(|tag| machine.tags.contains(tag))
            && one_of(&wanted.zone, zone)
            && !wanted.not_in_zone.iter().any(|name| name == zone)
            && one_of(&wanted.pool, pool)
            && !wanted.not_in_pool.iter().any(|name| name == pool)
            && one_of(&wanted.owner, owner)
            && !wanted.not_owner.iter().any(|name| name == owner)
            && (wanted.power_state.is_empty() || wanted.power_state.contains(&machine.power_state))
            && !wanted.not_power_state.contains(&machine.power_state)
            && (wanted.pod.is_empty() || host.is_some_and(|host| self.pod_fits(&wanted.pod, &host.name)))
            && !host.is_some_and(|host| wanted.not_pod.contains(&host.name))
            && (wanted.pod_type.is_empty() || host.is_some_and(|host| wanted.pod_type.contains(&host.kind)))
            && !host.is_some_and(|host| wanted.not_pod_type.contains(&host.kind))
            && self.network_fits(machine, wanted)
            && storage_fits(machine, &wanted.storage)
            && !wanted.devices
            && wanted.ephemeral.is_none_or(|ephemeral| machine.ephemeral_deploy == ephemeral)
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
        let on_vlan = |id: i64| machine.interfaces.iter().any(|nic| nic.vlan == Some(id));
        let in_class = |class: &String| {
            let vlans = machine.interfaces.iter().filter_map(|nic| self.db.vlans.get(&nic.vlan?));
            let mut rows = vlans.filter_map(|vlan| self.db.fabrics.get(&vlan.fabric));
            rows.any(|fabric| fabric.class_type.as_ref() == Some(class))
        };
        let has =
            |wanted: &WantedInterface| machine.interfaces.iter().any(|nic| self.interface_fits(machine, nic, wanted));
        wanted.subnets.iter().all(|id| subnets.contains(id))
            && wanted.interfaces.iter().all(has)
            && !wanted.not_subnets.iter().any(|id| subnets.contains(id))
            && (wanted.vlans.is_empty() || wanted.vlans.iter().any(|id| on_vlan(*id)))
            && !wanted.not_vlans.iter().any(|id| on_vlan(*id))
            && (wanted.fabrics.is_empty() || wanted.fabrics.iter().any(|name| fabrics.contains(&name.as_str())))
            && (wanted.fabric_classes.is_empty() || wanted.fabric_classes.iter().any(in_class))
            && !wanted.not_fabric_classes.iter().any(in_class)
            && !wanted.not_fabrics.iter().any(|name| fabrics.contains(&name.as_str()))
            && wanted.link_speed.is_none_or(|speed| {
                #[allow(clippy::cast_precision_loss)]
                machine.interfaces.iter().any(|nic| nic.speed as f64 >= speed)
            })
    }
}

/// The smallest of the numbers in a field.
fn least_number(given: Parameters<'_>, field: &str, words: &str, check: &mut FormCheck) -> Option<f64> {
    let asked = given.list(field);
    if asked.iter().any(|text| text.parse::<f64>().is_err()) {
        check.add(field, words);
    }
    asked.iter().filter_map(|text| text.parse().ok()).reduce(f64::min)
}

/// A multiple-choice field stops at the first invalid choice.
pub fn no_choice(check: &mut FormCheck, field: &str, wrong: Option<&String>) {
    if let Some(text) = wrong {
        check.add(field, format!("Select a valid choice. {text} is not one of the available choices."));
    }
}

/// Every requested disk must match a different disk of the machine, large enough and with all tags; the first is the
/// boot disk.
fn storage_fits(machine: &Machine, wanted: &[WantedDisk]) -> bool {
    let mut left: Vec<&Disk> = machine.disks.iter().collect();
    wanted.iter().enumerate().all(|(index, disk)| {
        let fits = |have: &&Disk| have.size >= disk.size && disk.tags.iter().all(|tag| have.tags.contains(tag));
        let at =
            if index == 0 { left.first().filter(|have| fits(have)).map(|_| 0) } else { left.iter().position(fits) };
        at.map(|at| left.remove(at)).is_some()
    })
}
