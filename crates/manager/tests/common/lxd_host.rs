//! A fake LXD host for a simulated MAAS, as arrange statements.

use serde_json::{Value, json};

/// The address of the LXD daemon of a host.
pub(crate) fn address(number: u32) -> String {
    format!("10.0.0.{}:8443", 10 + number)
}

/// A running machine in this zone whose LXD has this many cores and this much memory, registered in MAAS.
pub(crate) fn lxd_host(number: u32, zone: &str, (cores, memory): (u32, u32)) -> Value {
    let (name, address) = (format!("host{number}"), address(number));
    let pools = json!([{"name": "default", "driver": "dir", "total": 500_000_000_000_i64}]);
    json!([
        {"zone": {"name": zone}},
        {"machine": {"hostname": name, "status": "Deployed", "owner": "admin", "power": "on", "zone": zone}},
        {"lxd": {"address": address, "cores": cores, "memory": memory, "host": name, "storage_pools": pools}},
        {"vm_host": {"name": name, "power_address": address, "project": "maas", "zone": zone}},
    ])
}
