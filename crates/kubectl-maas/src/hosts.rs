//! `kubectl maas hosts`: VM hosts by zone, and how full they are.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use maas_client::VmHost;
use serde_json::{Value, json};

use crate::table::table;

const BAR: usize = 20;

/// How full something is: used and total, with a bar.
fn bar(used: i64, total: i64) -> String {
    let (used, total) = (usize::try_from(used).unwrap_or(0), usize::try_from(total).unwrap_or(0));
    // Rounded up, so that something used is something seen; promised more than there is fills it.
    let full = if total == 0 { 0 } else { (used * BAR).div_ceil(total).min(BAR) };
    format!("{}{} {used}/{total}", "█".repeat(full), "░".repeat(BAR - full))
}

fn amounts(host: &VmHost) -> [(i64, i64); 2] {
    let pair = |of: fn(&maas_client::VmHostResources) -> Option<i64>| {
        let amount = |it: &Option<maas_client::VmHostResources>| it.as_ref().and_then(of).unwrap_or(0);
        (amount(&host.used), amount(&host.total))
    };
    [pair(|it| it.cores), pair(|it| it.memory.map(|memory| memory / 1024))]
}

/// What is wrong with a host, if anything.
pub(crate) fn trouble(host: &VmHost) -> Option<&'static str> {
    if !host.is_reached() {
        Some("MAAS has never reached its LXD: refresh it in MAAS to see why")
    } else if !host.is_measured() {
        Some("MAAS does not know yet how much it has: wait, or refresh it")
    } else {
        None
    }
}

fn name_of(host: &VmHost) -> String {
    host.name.clone().unwrap_or_else(|| host.id.to_string())
}

/// The hosts, zone by zone.
pub fn render(hosts: &[VmHost]) -> String {
    if hosts.is_empty() {
        return "MAAS has no VM hosts. Nodes of a cluster with lxdControlPlaneCluster: true become some.\n".to_owned();
    }
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
                let [cores, memory] = amounts(host);
                let pool = host.pool.as_ref().map_or_else(String::new, |pool| pool.name.clone());
                let state = trouble(host).unwrap_or("ok").to_owned();
                vec![name_of(host), pool, bar(cores.0, cores.1), bar(memory.0, memory.1), state]
            })
            .collect();
        let _ = writeln!(out, "zone {zone}\n{}", table(&["HOST", "POOL", "CORES", "MEMORY GiB", "STATE"], &rows));
    }
    out
}

/// The same for programs.
pub fn to_json(hosts: &[VmHost]) -> Value {
    let one = |host: &VmHost| {
        let [cores, memory] = amounts(host);
        json!({
            "name": name_of(host),
            "zone": host.zone.as_ref().map(|zone| zone.name.clone()),
            "pool": host.pool.as_ref().map(|pool| pool.name.clone()),
            "cores": {"used": cores.0, "total": cores.1},
            "memoryGiB": {"used": memory.0, "total": memory.1},
            "trouble": trouble(host),
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
        }));
        let unreached = host(json!({"id": 2, "name": "h2", "version": "", "zone": {"name": "az2"}}));
        let shown = render(&[unreached, reached]);
        assert!(shown.starts_with("zone az1\n"), "{shown}");
        assert!(shown.contains(&format!("{}{} 4/16", "█".repeat(5), "░".repeat(15))), "{shown}");
        assert!(shown.contains("1/64"), "{shown}");
        assert!(shown.contains("never reached its LXD"), "{shown}");
        assert!(render(&[]).contains("no VM hosts"));
    }

    #[test]
    fn a_bar_shows_a_little_and_too_much() {
        assert!(bar(1, 1000).starts_with("█░"));
        assert_eq!(bar(30, 10), format!("{} 30/10", "█".repeat(BAR)));
        assert!(bar(0, 0).starts_with('░'));
    }
}
