//! The state of a real daemon as MAAS sees it.

use std::collections::BTreeMap;

use base64::Engine as _;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};

use super::{Access, caller::Caller};
use crate::model::{
    db::StoragePool,
    world::{Instance, Lxd},
};

/// Reads a daemon. One that cannot be used has a failure message; `{id}` in it is a placeholder for the host's id.
pub(super) async fn read(access: &Access) -> Lxd {
    let mut lxd = Lxd { real: true, instances: BTreeMap::new(), ..Lxd::made_up() };
    let caller = match access.caller() {
        Ok(caller) => caller,
        Err(error) => {
            lxd.failure = Some(error);
            return lxd;
        }
    };
    let Ok(server) = caller.get(&format!("/1.0?project={}", access.project)).await else {
        lxd.reachable = false;
        return lxd;
    };
    let server = match trust(&caller, access, server).await {
        Ok(server) => server,
        Err(error) => {
            lxd.failure = Some(error);
            return lxd;
        }
    };
    if let Err(error) = fill(&caller, access, &server, &mut lxd).await {
        lxd.failure = Some(format!("Pod {{id}}: {error}"));
    }
    lxd
}

/// Keeps what only the model knows about a daemon that is already known.
pub(super) fn merged(mut found: Lxd, old: Option<Lxd>) -> Lxd {
    if let Some(old) = old {
        found.trusted = old.trusted;
        found.starts_no_vms = old.starts_no_vms;
        if old.starts_no_vms {
            for (name, instance) in &mut found.instances {
                instance.running = old.instances.get(name).is_some_and(|instance| instance.running);
            }
        }
        if !found.reachable || found.failure.is_some() {
            found.instances = old.instances;
            found.storage_pools = old.storage_pools;
        }
    }
    found
}

async fn trust(caller: &Caller, access: &Access, server: Value) -> Result<Value, String> {
    if server["auth"] == "trusted" {
        return Ok(server);
    }
    if access.password.is_empty() {
        return Err("VM Host {id}: Certificate is not trusted and no password was given".to_owned());
    }
    let der =
        CertificateDer::from_pem_slice(access.certificate.as_bytes()).map_err(|_| "Invalid PEM material".to_owned())?;
    let certificate = base64::engine::general_purpose::STANDARD.encode(der.as_ref());
    let has_tokens =
        server["api_extensions"].as_array().is_some_and(|list| list.iter().any(|e| e == "explicit_trust_token"));
    let field = if has_tokens { "trust_token" } else { "password" };
    let body = json!({"type": "client", "name": "maas-sim", "certificate": certificate, field: access.password});
    caller
        .post("/1.0/certificates", &body)
        .await
        .map_err(|error| format!("VM Host {{id}}: Password authentication failed: {error}"))?;
    caller.get(&format!("/1.0?project={}", access.project)).await
}

async fn fill(caller: &Caller, access: &Access, server: &Value, lxd: &mut Lxd) -> Result<(), String> {
    let environment = &server["environment"];
    lxd.version = text(&environment["server_version"]);
    let os_name = text(&environment["os_name"]);
    if !os_name.is_empty() {
        lxd.os_name = os_name.to_lowercase();
    }
    let os_version = text(&environment["os_version"]);
    if !os_version.is_empty() {
        lxd.os_version = os_version;
    }
    let project = &access.project;
    if caller.get(&format!("/1.0/projects/{project}")).await.is_err() {
        let body = json!({"name": project, "description": "Project managed by MAAS"});
        caller.post("/1.0/projects", &body).await?;
    }
    let resources = caller.get("/1.0/resources").await?;
    lxd.cores = resources["cpu"]["total"].as_i64().unwrap_or(0);
    lxd.memory = resources["memory"]["total"].as_i64().unwrap_or(0) / (1024 * 1024);
    lxd.in_vm = resources["system"]["type"] == "virtual-machine";
    lxd.storage_pools = storage_pools(caller).await?;
    let networks = networks(caller, project).await?;
    lxd.macs = networks.macs;
    lxd.bridge = networks.bridge;
    lxd.instances = instances(caller, project).await?;
    Ok(())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn rows(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

async fn storage_pools(caller: &Caller) -> Result<Vec<StoragePool>, String> {
    let listed = caller.get("/1.0/storage-pools?recursion=1").await?;
    let mut pools = Vec::new();
    for pool in rows(&listed) {
        let name = text(&pool["name"]);
        let space = caller.get(&format!("/1.0/storage-pools/{name}/resources")).await.unwrap_or_default();
        // A restricted certificate cannot read the configuration.
        let path = pool["config"]["source"].as_str().unwrap_or("Unknown").to_owned();
        let total = space["space"]["total"].as_i64().unwrap_or(0);
        pools.push(StoragePool { name, driver: text(&pool["driver"]), path, total });
    }
    Ok(pools)
}

struct Networks {
    macs: Vec<String>,
    bridge: Option<String>,
}

/// MACs of physical and unknown networks, by which MAAS finds the machine, and a bridge for VMs: preferably an
/// unmanaged one rather than one of LXD's own.
async fn networks(caller: &Caller, project: &str) -> Result<Networks, String> {
    let listed = caller.get(&format!("/1.0/networks?recursion=1&project={project}")).await?;
    let mut macs = Vec::new();
    let mut bridges: Vec<(bool, String)> = Vec::new();
    for network in rows(&listed) {
        let name = text(&network["name"]);
        match network["type"].as_str() {
            Some("physical" | "unknown") => {
                let state =
                    caller.get(&format!("/1.0/networks/{name}/state?project={project}")).await.unwrap_or_default();
                let mac = text(&state["hwaddr"]).to_lowercase();
                if !mac.is_empty() && mac != "00:00:00:00:00:00" && !macs.contains(&mac) {
                    macs.push(mac);
                }
            }
            Some("bridge") => bridges.push((network["managed"].as_bool().unwrap_or(false), name)),
            _ => {}
        }
    }
    bridges.sort();
    Ok(Networks { macs, bridge: bridges.into_iter().next().map(|(_, name)| name) })
}

async fn instances(caller: &Caller, project: &str) -> Result<BTreeMap<(String, String), Instance>, String> {
    // A restricted certificate may not read all projects.
    let listed = match caller.get("/1.0/instances?recursion=1&all-projects=true").await {
        Ok(listed) => listed,
        Err(_) => caller.get(&format!("/1.0/instances?recursion=1&project={project}")).await?,
    };
    let mut found = BTreeMap::new();
    for row in rows(&listed).iter().filter(|row| row["type"] == "virtual-machine") {
        let empty = serde_json::Map::new();
        let config = row["expanded_config"].as_object().or_else(|| row["config"].as_object()).unwrap_or(&empty);
        let devices = row["expanded_devices"].as_object().or_else(|| row["devices"].as_object()).unwrap_or(&empty);
        let mut macs: Vec<String> = Vec::new();
        for (name, device) in devices.iter().filter(|(_, device)| device["type"] == "nic") {
            let volatile = config.get(&format!("volatile.{name}.hwaddr")).map(text).unwrap_or_default();
            let given = text(&device["hwaddr"]);
            let mac = if given.is_empty() { volatile } else { given };
            if !mac.is_empty() {
                macs.push(mac.to_lowercase());
            }
        }
        let disks = devices
            .values()
            .filter(|device| device["type"] == "disk" && device["pool"].is_string())
            .map(|device| (size(&text(&device["size"])).unwrap_or(10 * 1024 * 1024 * 1024), text(&device["pool"])))
            .collect();
        let cores = config.get("limits.cpu").map(text).and_then(|text| text.parse().ok()).unwrap_or(1);
        let memory = config.get("limits.memory").map(text).and_then(|text| size(&text)).unwrap_or(1024 * 1024 * 1024);
        let name = text(&row["name"]);
        let of = row["project"].as_str().unwrap_or(project).to_owned();
        let running = row["status_code"].as_i64() == Some(103);
        found.insert((of, name), Instance { cores, memory: memory / (1024 * 1024), disks, macs, running });
    }
    Ok(found)
}

/// Parses LXD's sizes into bytes: a number, optionally with a unit of 1000 or 1024.
fn size(text: &str) -> Option<i64> {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor = match unit.trim() {
        "" | "B" => 1,
        "kB" | "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    number.parse::<i64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_lxd_writes_them() {
        assert_eq!(size("50GiB"), Some(50 << 30));
        assert_eq!(size("8000000000"), Some(8_000_000_000));
        assert_eq!(size("2GB"), Some(2_000_000_000));
        assert_eq!(size("two"), None);
    }
}
