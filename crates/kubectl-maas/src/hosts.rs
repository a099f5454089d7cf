//! `kubectl maas hosts`: VM hosts by zone, and how full they are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use capmaas_core::placement::{LEAVING_TAG, MAINTENANCE_TAG, MAINTENANCE_TAGS, Room};
use maas_client::{Client, Machine, MachineFilter, VmHost};
use serde_json::{Value, json};

use crate::table::table;

const BAR: usize = 16;

/// Used and total, with a bar.
fn bar(used: i64, total: i64) -> String {
    let (used, total) = (usize::try_from(used).unwrap_or(0), usize::try_from(total).unwrap_or(0));
    // Rounded up, so that any use is visible; overcommitment shows as full.
    let full = if total == 0 { 0 } else { (used * BAR).div_ceil(total).min(BAR) };
    format!("{}{} {used}/{total}", "█".repeat(full), "░".repeat(BAR - full))
}

const GIB: i64 = 1024;
const GB: i64 = 1_000_000_000;

/// Used and total of cores, memory in GiB and disk in GB. The first two as MAAS checks a compose: with overcommitment.
fn amounts(host: &VmHost) -> [(i64, i64); 3] {
    let pair = |of: fn(&maas_client::VmHostResources) -> Option<i64>, ratio: Option<f64>| {
        let amount = |it: &Option<maas_client::VmHostResources>| it.as_ref().and_then(of).unwrap_or(0);
        let promised = Room::left(amount(&host.total), ratio, 0);
        (amount(&host.used), promised)
    };
    let memory = pair(|it| it.memory, host.memory_over_commit_ratio);
    let disk = host.storage_pools.iter().fold((0, 0), |(used, total), pool| {
        let there = pool.total.unwrap_or(0);
        // What others than MAAS put there counts as used as well.
        (used + there - pool.available.unwrap_or(there), total + there)
    });
    [pair(|it| it.cores, host.cpu_over_commit_ratio), (memory.0 / GIB, memory.1 / GIB), (disk.0 / GB, disk.1 / GB)]
}

/// A VM host, and what keeps new VMs off it.
#[derive(Debug)]
pub struct Host<'a> {
    in_maas: &'a VmHost,
    closed: Option<Closed>,
    /// The key does not show the machine that it runs on, whose tags could close it.
    is_beneath_hidden: bool,
}

/// A host that takes no new VMs.
#[derive(Debug)]
struct Closed {
    tag: &'static str,
    /// The machine has the tag, not the VM host.
    by_machine: bool,
    /// How many VMs are left on it; `None` if the key does not show them.
    left: Option<usize>,
}

impl<'a> Host<'a> {
    /// Joins VM hosts with the machines that they run on and with the VMs on them. Placement and evacuation heed the
    /// tags of both.
    pub fn all(vm_hosts: &'a [VmHost], machines: &[Machine]) -> Vec<Self> {
        let one = |vm_host: &'a VmHost| {
            let machine = machine_of(vm_host, machines);
            let on_machine = machine.map(|it| it.tag_names.as_slice()).unwrap_or_default();
            let has = |tags: &[String], tag: &str| tags.iter().any(|it| it == tag);
            let closing = [LEAVING_TAG].into_iter().chain(MAINTENANCE_TAGS);
            let mut closing = closing.filter(|tag| has(&vm_host.tags, tag) || has(on_machine, tag));
            let closed = closing.next().map(|tag| Closed {
                tag,
                by_machine: !has(&vm_host.tags, tag),
                left: Some(vms_on(vm_host, machines).len()).filter(|vms| *vms > 0 || !is_used(vm_host)),
            });
            let has_machine = vm_host.host.as_ref().is_some_and(|beneath| !beneath.system_id.is_empty());
            Self { in_maas: vm_host, closed, is_beneath_hidden: has_machine && machine.is_none() }
        };
        vm_hosts.iter().map(one).collect()
    }

    /// The problem, or that there is none.
    fn state(&self) -> String {
        if let Some(trouble) = trouble(self.in_maas) {
            return trouble.to_owned();
        }
        let Some(closed) = &self.closed else {
            return if self.is_beneath_hidden { HIDDEN } else { "ok" }.to_owned();
        };
        let left = match closed.left {
            None => "your key does not show its VMs".to_owned(),
            Some(0) => "empty".to_owned(),
            Some(1) => "1 VM left".to_owned(),
            Some(vms) => format!("{vms} VMs left"),
        };
        let of = if closed.by_machine { " on its machine" } else { "" };
        match closed.tag {
            LEAVING_TAG => format!("being deleted, so it takes no new VMs, {left} (tag {LEAVING_TAG}{of})"),
            MAINTENANCE_TAG => format!("in maintenance, so it takes no new VMs, {left} (tag {MAINTENANCE_TAG}{of})"),
            tag => format!("takes no new VMs, {left} (tag {tag}{of}, set by a person)"),
        }
    }
}

const HIDDEN: &str =
    "unknown whether it takes new VMs: your key does not show the machine that it runs on, whose tags may prevent that";

/// Whether MAAS counts anything on it.
fn is_used(vm_host: &VmHost) -> bool {
    vm_host.used.as_ref().and_then(|used| used.cores).is_some_and(|cores| cores > 0)
}

fn machine_of<'a>(vm_host: &VmHost, machines: &'a [Machine]) -> Option<&'a Machine> {
    let beneath = vm_host.host.as_ref()?;
    machines.iter().find(|machine| machine.system_id == beneath.system_id)
}

/// Two hosts of one name are read with the same filter, so a VM may be listed twice.
fn vms_on<'a>(vm_host: &VmHost, machines: &'a [Machine]) -> BTreeSet<&'a str> {
    let on_it = |machine: &&Machine| machine.pod.as_ref().is_some_and(|pod| pod.id == vm_host.id);
    machines.iter().filter(on_it).map(|machine| machine.system_id.as_str()).collect()
}

/// Reads the machines that are needed to show these hosts: those that they run on, and the VMs on the closed ones.
pub async fn machines(client: &Client, vm_hosts: &[VmHost]) -> maas_client::Result<Vec<Machine>> {
    let beneath = vm_hosts.iter().filter_map(|host| Some(host.host.as_ref()?.system_id.clone()));
    let system_ids: Vec<String> = beneath.filter(|id| !id.is_empty()).collect();
    if system_ids.is_empty() {
        // Without any ID the filter would be none.
        return vms(client, vm_hosts, Vec::new()).await;
    }
    let filter = MachineFilter { system_ids, ..MachineFilter::default() };
    let found = client.machines().list(&filter).await?;
    vms(client, vm_hosts, found).await
}

async fn vms(client: &Client, vm_hosts: &[VmHost], mut found: Vec<Machine>) -> maas_client::Result<Vec<Machine>> {
    let hosts = Host::all(vm_hosts, &found);
    let names: BTreeSet<&String> =
        hosts.iter().filter(|host| host.closed.is_some()).filter_map(|host| host.in_maas.name.as_ref()).collect();
    for name in names {
        let filter = MachineFilter { vm_host: Some(name.clone()), ..MachineFilter::default() };
        found.extend(client.machines().list(&filter).await?);
    }
    Ok(found)
}

/// The problem of a host, if any.
pub(crate) fn trouble(host: &VmHost) -> Option<&'static str> {
    if !host.is_reached() {
        Some("MAAS has never reached its LXD: refresh it in MAAS to see why")
    } else if !host.is_measured() {
        Some("MAAS does not know its capacity yet: wait, or refresh it")
    } else {
        None
    }
}

fn name_of(host: &VmHost) -> String {
    host.name.clone().unwrap_or_else(|| host.id.to_string())
}

/// The message if there are no hosts.
pub const NONE: &str = "MAAS has no VM hosts. Nodes of a cluster with lxdControlPlaneCluster: true become VM hosts.";

/// The hosts, zone by zone.
pub fn render(hosts: &[Host]) -> String {
    let mut zones: BTreeMap<&str, Vec<&Host>> = BTreeMap::new();
    for host in hosts {
        zones.entry(host.in_maas.zone.as_ref().map_or("(no zone)", |zone| zone.name.as_str())).or_default().push(host);
    }
    let mut out = String::new();
    for (zone, mut hosts) in zones {
        hosts.sort_by_key(|host| name_of(host.in_maas));
        let rows: Vec<Vec<String>> = hosts
            .iter()
            .map(|host| {
                let bars = amounts(host.in_maas).map(|(used, total)| bar(used, total));
                let pool = host.in_maas.pool.as_ref().map_or_else(String::new, |pool| pool.name.clone());
                [vec![name_of(host.in_maas), pool], bars.to_vec(), vec![host.state()]].concat()
            })
            .collect();
        let titles = ["HOST", "POOL", "CORES", "MEMORY GiB", "DISK GB", "STATE"];
        let _ = writeln!(out, "zone {zone}\n{}", table(&titles, &rows));
    }
    out
}

/// The same for programs.
pub fn to_json(hosts: &[Host]) -> Value {
    let one = |shown: &Host| {
        let host = shown.in_maas;
        let [cores, memory, disk] = amounts(host);
        json!({
            "name": name_of(host),
            "zone": host.zone.as_ref().map(|zone| zone.name.clone()),
            "pool": host.pool.as_ref().map(|pool| pool.name.clone()),
            "cores": {"used": cores.0, "total": cores.1},
            "memoryGiB": {"used": memory.0, "total": memory.1},
            "diskGB": {"used": disk.0, "total": disk.1},
            "state": shown.state(),
            "trouble": trouble(host),
            "closedBy": shown.closed.as_ref().map(|closed| closed.tag),
            "vmsLeft": shown.closed.as_ref().and_then(|closed| closed.left),
        })
    };
    hosts.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(value: Value) -> VmHost {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn hosts_are_shown_by_zone_with_how_full_they_are() {
        let reached = host(json!({
            "id": 1, "name": "h1", "version": "5.21", "capabilities": ["composable"], "zone": {"name": "az1"}, "pool": {"name": "vms"},
            "total": {"cores": 16, "memory": 65536}, "used": {"cores": 4, "memory": 1024},
            "storage_pools": [{"name": "default", "total": 100_000_000_000_i64, "available": 75_000_000_000_i64}],
        }));
        let unreached = host(json!({"id": 2, "name": "h2", "version": "", "zone": {"name": "az2"}}));
        let shown = render(&Host::all(&[unreached, reached], &[]));
        assert!(shown.starts_with("zone az1\n"), "{shown}");
        assert!(shown.contains(&format!("{}{} 4/16", "█".repeat(4), "░".repeat(12))), "{shown}");
        assert!(shown.contains("1/64") && shown.contains("25/100"), "{shown}");
        assert!(shown.contains("never reached its LXD"), "{shown}");
        assert_eq!(render(&[]), "");
    }

    #[test]
    fn a_host_shows_what_may_be_promised_and_who_keeps_vms_off_it() {
        let mut described = json!({
            "id": 1, "name": "h1", "version": "5.21", "capabilities": ["composable"], "tags": ["fast", "maas-lxd-host-maintenance"],
            "total": {"cores": 8, "memory": 16384}, "cpu_over_commit_ratio": 2.5, "used": {"cores": 9, "memory": 0},
        });
        let on = |id: &str| serde_json::from_value(json!({"system_id": id, "pod": {"id": 1}})).unwrap();
        let shown = render(&Host::all(&[host(described.clone())], &[on("a"), on("b"), on("b")]));
        assert!(
            shown.contains(" 9/20 ")
                && shown.contains("in maintenance, so it takes no new VMs, 2 VMs left (tag maas-lxd-host-maintenance)"),
            "{shown}"
        );
        described["tags"] = json!([LEAVING_TAG]);
        described["used"]["cores"] = json!(0);
        let leaving = [host(described)];
        let leaving = Host::all(&leaving, &[]);
        assert!(render(&leaving).contains("being deleted, so it takes no new VMs, empty"));
        assert_eq!(to_json(&leaving)[0]["closedBy"], LEAVING_TAG);
    }

    #[test]
    fn a_tag_on_the_machine_closes_its_host_and_no_other() {
        let described = |id: i64, machine: &str| {
            host(json!({"id": id, "name": format!("h{id}"), "version": "5.21", "capabilities": ["composable"],
                "total": {"cores": 8, "memory": 16384}, "host": {"system_id": machine}}))
        };
        let tagged = json!({"system_id": "abc", "tag_names": ["fast", "maas-lxd-host-noschedule"]});
        let machines = [tagged, json!({"system_id": "def"})].map(|it| serde_json::from_value(it).unwrap());
        let vm_hosts = [described(1, "abc"), described(2, "def")];
        let shown = to_json(&Host::all(&vm_hosts, &machines));
        let words = "takes no new VMs, empty (tag maas-lxd-host-noschedule on its machine, set by a person)";
        assert_eq!((&shown[0]["state"], &shown[1]["state"]), (&json!(words), &json!("ok")));
        assert_eq!((&shown[0]["vmsLeft"], &shown[1]["vmsLeft"]), (&json!(0), &Value::Null));
    }

    #[test]
    fn a_host_whose_vms_or_machine_the_key_does_not_show_is_neither_empty_nor_ok() {
        let described = json!({"id": 1, "name": "h1", "version": "5.21", "capabilities": ["composable"],
            "total": {"cores": 8, "memory": 16384}, "used": {"cores": 2, "memory": 0}, "host": {"system_id": "abc"}});
        let shown = |tags: Value| {
            let mut described = described.clone();
            described["tags"] = tags;
            to_json(&Host::all(&[host(described)], &[]))[0].clone()
        };
        let open = shown(json!([]));
        assert!(open["state"].as_str().unwrap().starts_with("unknown whether it takes new VMs: your key"), "{open}");
        let closed = shown(json!([MAINTENANCE_TAG]));
        let words =
            "in maintenance, so it takes no new VMs, your key does not show its VMs (tag maas-lxd-host-maintenance)";
        assert_eq!((&closed["state"], &closed["vmsLeft"]), (&json!(words), &Value::Null));
    }

    #[test]
    fn a_bar_shows_a_little_and_too_much() {
        assert!(bar(1, 1000).starts_with("█░"));
        assert_eq!(bar(30, 10), format!("{} 30/10", "█".repeat(BAR)));
        assert!(bar(0, 0).starts_with('░'));
    }
}
