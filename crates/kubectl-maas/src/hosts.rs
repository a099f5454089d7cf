//! `kubectl maas hosts`: VM hosts by zone, and how full they are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use capmaas_core::placement::{LEAVING_TAG, MAINTENANCE_TAG, Room, is_closing};
use maas_client::{Client, MachineFilter, VmHost};
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

/// The tag that keeps new VMs off a host.
fn closed_by(host: &VmHost) -> Option<&str> {
    host.tags.iter().map(String::as_str).find(|tag| is_closing(tag))
}

/// Reads how many VMs are left on each host that takes no new ones.
pub async fn left(client: &Client, hosts: &[VmHost]) -> maas_client::Result<BTreeMap<i64, usize>> {
    let mut vms = Vec::new();
    for host in hosts.iter().filter(|host| closed_by(host).is_some()) {
        let filter = MachineFilter { vm_host: host.name.clone(), ..MachineFilter::default() };
        vms.extend(client.machines().list(&filter).await?);
    }
    Ok(count_left(hosts, &vms))
}

/// How many of these machines are VMs on each host that takes no new ones, by its ID.
pub fn count_left(hosts: &[VmHost], machines: &[maas_client::Machine]) -> BTreeMap<i64, usize> {
    let closed = hosts.iter().filter(|host| closed_by(host).is_some());
    let on = |host: &VmHost| {
        // Two hosts of one name are read with the same filter.
        let vms: BTreeSet<&str> = machines
            .iter()
            .filter(|machine| machine.pod.as_ref().is_some_and(|pod| pod.id == host.id))
            .map(|machine| machine.system_id.as_str())
            .collect();
        vms.len()
    };
    closed.map(|host| (host.id, on(host))).collect()
}

/// The problem, or that there is none.
fn state(host: &VmHost, left: Option<usize>) -> String {
    let left = match left {
        None => String::new(),
        Some(0) => ", empty".to_owned(),
        Some(1) => ", 1 VM left".to_owned(),
        Some(vms) => format!(", {vms} VMs left"),
    };
    match (trouble(host), closed_by(host)) {
        (Some(trouble), _) => trouble.to_owned(),
        (None, Some(LEAVING_TAG)) => format!("being deleted, so it takes no new VMs{left} (tag {LEAVING_TAG})"),
        (None, Some(MAINTENANCE_TAG)) => {
            format!("in maintenance, so it takes no new VMs{left} (tag {MAINTENANCE_TAG})")
        }
        (None, Some(tag)) => format!("takes no new VMs{left} (tag {tag}, set by a person)"),
        (None, None) => "ok".to_owned(),
    }
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

/// The hosts, zone by zone; `left` has the number of VMs on those that take no new ones.
pub fn render(hosts: &[VmHost], left: &BTreeMap<i64, usize>) -> String {
    let mut zones: BTreeMap<&str, Vec<&VmHost>> = BTreeMap::new();
    for host in hosts {
        zones.entry(host.zone.as_ref().map_or("(no zone)", |zone| zone.name.as_str())).or_default().push(host);
    }
    let mut out = String::new();
    for (zone, mut hosts) in zones {
        hosts.sort_by_key(|host| name_of(host));
        let rows: Vec<Vec<String>> = hosts
            .iter()
            .map(|host| {
                let bars = amounts(host).map(|(used, total)| bar(used, total));
                let pool = host.pool.as_ref().map_or_else(String::new, |pool| pool.name.clone());
                [vec![name_of(host), pool], bars.to_vec(), vec![state(host, left.get(&host.id).copied())]].concat()
            })
            .collect();
        let titles = ["HOST", "POOL", "CORES", "MEMORY GiB", "DISK GB", "STATE"];
        let _ = writeln!(out, "zone {zone}\n{}", table(&titles, &rows));
    }
    out
}

/// The same for programs.
pub fn to_json(hosts: &[VmHost], left: &BTreeMap<i64, usize>) -> Value {
    let one = |host: &VmHost| {
        let [cores, memory, disk] = amounts(host);
        json!({
            "name": name_of(host),
            "zone": host.zone.as_ref().map(|zone| zone.name.clone()),
            "pool": host.pool.as_ref().map(|pool| pool.name.clone()),
            "cores": {"used": cores.0, "total": cores.1},
            "memoryGiB": {"used": memory.0, "total": memory.1},
            "diskGB": {"used": disk.0, "total": disk.1},
            "state": state(host, left.get(&host.id).copied()),
            "trouble": trouble(host),
            "closedBy": closed_by(host),
            "vmsLeft": left.get(&host.id),
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
        let shown = render(&[unreached, reached], &BTreeMap::new());
        assert!(shown.starts_with("zone az1\n"), "{shown}");
        assert!(shown.contains(&format!("{}{} 4/16", "█".repeat(4), "░".repeat(12))), "{shown}");
        assert!(shown.contains("1/64") && shown.contains("25/100"), "{shown}");
        assert!(shown.contains("never reached its LXD"), "{shown}");
        assert_eq!(render(&[], &BTreeMap::new()), "");
    }

    #[test]
    fn a_host_shows_what_may_be_promised_and_who_keeps_vms_off_it() {
        let mut described = json!({
            "id": 1, "name": "h1", "version": "5.21", "capabilities": ["composable"], "tags": ["fast", "maas-lxd-host-maintenance"],
            "total": {"cores": 8, "memory": 16384}, "cpu_over_commit_ratio": 2.5, "used": {"cores": 9, "memory": 0},
        });
        let shown = render(&[host(described.clone())], &BTreeMap::from([(1, 2)]));
        assert!(
            shown.contains(" 9/20 ")
                && shown.contains("in maintenance, so it takes no new VMs, 2 VMs left (tag maas-lxd-host-maintenance)"),
            "{shown}"
        );
        described["tags"] = json!([LEAVING_TAG]);
        let leaving = host(described);
        assert!(
            render(std::slice::from_ref(&leaving), &BTreeMap::new()).contains("being deleted, so it takes no new VMs")
        );
        assert_eq!(to_json(&[leaving], &BTreeMap::new())[0]["closedBy"], LEAVING_TAG);
    }

    #[test]
    fn a_bar_shows_a_little_and_too_much() {
        assert!(bar(1, 1000).starts_with("█░"));
        assert_eq!(bar(30, 10), format!("{} 30/10", "█".repeat(BAR)));
        assert!(bar(0, 0).starts_with('░'));
    }
}
