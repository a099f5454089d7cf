//! VM hosts.

use serde_json::{Value, json};

use super::{pool, uri, zone};
use crate::model::{
    Model,
    db::VmHost,
    vm_hosts::{pool_used, used},
};

/// A VM host under one of its two URLs, "vm-hosts" or "pods".
pub fn vm_host(model: &Model, host: &VmHost) -> Value {
    let (cores, memory, storage) = used(host);
    let total_storage: i64 = host.storage_pools.iter().map(|pool| pool.total).sum();
    let default = host.default_storage_pool.as_ref().or_else(|| host.storage_pools.first().map(|pool| &pool.name));
    let pools: Vec<Value> = host
        .storage_pools
        .iter()
        .map(|pool| {
            let used = pool_used(host, pool);
            json!({
                "id": pool.name, "name": pool.name, "type": pool.driver, "path": pool.path, "total": pool.total,
                "used": used, "available": pool.total - used, "default": Some(&pool.name) == default,
            })
        })
        .collect();
    let known = host.discovered();
    let capabilities: &[&str] =
        if known { &["composable", "dynamic_local_storage", "over_commit", "storage_pools"] } else { &[] };
    let architectures: &[&str] = if known { &["amd64/generic"] } else { &[] };
    let (cores, memory, storage) = if known { (cores, memory, storage) } else { (0, 0, 0) };
    json!({
        "id": host.id,
        "name": host.name,
        "type": host.kind,
        "tags": host.tags,
        "version": host.version,
        "architectures": architectures,
        "capabilities": capabilities,
        "total": {"cores": host.cores, "memory": host.memory, "local_storage": total_storage},
        "used": {"cores": cores, "memory": memory, "local_storage": storage},
        "available": {
            "cores": host.cores - cores, "memory": host.memory - memory, "local_storage": total_storage - storage,
        },
        "storage_pools": pools,
        "zone": model.db.zones.get(&host.zone).map(zone),
        "pool": model.db.pools.get(&host.pool).map(pool),
        "host": {"system_id": host.host, "__incomplete__": true},
        "cpu_over_commit_ratio": host.cpu_ratio,
        "memory_over_commit_ratio": host.memory_ratio,
        "default_macvlan_mode": host.macvlan_mode,
        "resource_uri": uri(&format!("vm-hosts/{}/", host.id)),
    })
}
