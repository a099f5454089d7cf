//! A machine: 78 keys in 3.4, rendered on demand.

use serde_json::{Map, Value, json};

use super::{domain, iso, network, pool, storage, uri, zone};
use crate::model::{
    Model,
    db::{AllocType, Machine, ScriptStatus},
    rng::uuid_from,
};
use crate::version::Change;

const SYNC_SECONDS: i64 = 900;

pub fn machine(model: &Model, machine: &Machine) -> Value {
    let mut out = Map::new();
    identity(model, machine, &mut out);
    state(model, machine, &mut out);
    tests(machine, &mut out);
    hardware(model, machine, &mut out);
    Value::Object(out)
}

fn put(out: &mut Map<String, Value>, value: Value) {
    if let Value::Object(fields) = value {
        out.extend(fields);
    }
}

fn identity(model: &Model, machine: &Machine, out: &mut Map<String, Value>) {
    let domain_row = model.db.domains.get(&machine.domain);
    let domain_name = domain_row.map_or("", |domain| domain.name.as_str());
    let host = machine.vm.as_ref().and_then(|vm| model.db.vm_hosts.get(&vm.vm_host));
    let pod =
        host.map(|host| json!({"id": host.id, "name": host.name, "resource_uri": uri(&format!("pods/{}/", host.id))}));
    let parent = host
        .and_then(|host| host.host.as_ref())
        .map(|id| json!({"system_id": id, "resource_uri": uri(&format!("machines/{id}/")), "__incomplete__": true}));
    put(
        out,
        json!({
            "system_id": machine.system_id,
            "hostname": machine.hostname,
            "fqdn": format!("{}.{domain_name}", machine.hostname),
            "description": machine.description,
            "domain": domain_row.map(|row| domain(model, row)),
            "zone": model.db.zones.get(&machine.zone).map(zone),
            "pool": model.db.pools.get(&machine.pool).map(pool),
            "owner": machine.owner.map(|owner| model.user_name(Some(owner)).to_owned()),
            "owner_data": machine.annotations,
            "workload_annotations": machine.annotations,
            "tag_names": machine.tags,
            "locked": machine.locked,
            "node_type": 0,
            "node_type_name": "Machine",
            "pod": pod,
            "virtualmachine_id": machine.vm.as_ref().and_then(|vm| vm.vm_id),
            "resource_uri": uri(&format!("machines/{}/", machine.system_id)),
        }),
    );
    if model.version.has(Change::ParentShown) {
        out.insert("parent".to_owned(), json!(parent));
        out.insert("ephemeral_deploy".to_owned(), json!(machine.ephemeral_deploy));
        out.insert("enable_hw_sync".to_owned(), json!(machine.enable_hw_sync));
    }
    if model.version.has(Change::HardwareSync) {
        let next =
            machine.last_sync.and_then(|last| last.checked_add(jiff::SignedDuration::from_secs(SYNC_SECONDS)).ok());
        put(
            out,
            json!({
                "last_sync": machine.last_sync.map(|time| iso(model, time)),
                "next_sync": next.map(|time| iso(model, time)),
                "sync_interval": machine.enable_hw_sync.then_some(SYNC_SECONDS),
            }),
        );
    }
    if model.version.has(Change::ErrorDescription) {
        out.insert("error_description".to_owned(), json!(machine.error_description));
    }
    if model.version.has(Change::KernelCrashDump) {
        out.insert("enable_kernel_crash_dump".to_owned(), json!(machine.enable_kernel_crash_dump));
    }
    if model.version.has(Change::DpuShown) {
        out.insert("is_dpu".to_owned(), json!(false));
    }
}

/// Addresses: the configured ones, or else the observed ones.
pub fn addresses(model: &Model, machine: &Machine) -> Vec<String> {
    let rows =
        || machine.interfaces.iter().flat_map(|nic| nic.addresses.iter()).filter_map(|id| model.db.addresses.get(id));
    let of = |observed: bool| -> Vec<String> {
        rows()
            .filter(|row| (row.alloc == AllocType::Discovered) == observed)
            .filter_map(|row| row.ip)
            .map(|ip| ip.to_string())
            .collect()
    };
    let fixed = of(false);
    if fixed.is_empty() { of(true) } else { fixed }
}

fn state(model: &Model, machine: &Machine, out: &mut Map<String, Value>) {
    put(
        out,
        json!({
            "status": machine.status.id(),
            "status_name": machine.status.name(),
            "status_message": machine.status_message,
            // Null until something has happened.
            "status_action": machine.status_message.as_ref().map(|_| ""),
            "power_state": machine.power_state.word(),
            "power_type": machine.power_type,
            "netboot": machine.netboot,
            "osystem": machine.osystem,
            "distro_series": machine.distro_series,
            "hwe_kernel": machine.hwe_kernel,
            "min_hwe_kernel": machine.min_hwe_kernel,
            "swap_size": machine.swap_size,
            "ip_addresses": addresses(model, machine),
            "address_ttl": null,
            "disable_ipv4": false,
            "default_gateways": gateways(model, machine),
            "current_commissioning_result_id": machine.commissioning_set,
            "current_testing_result_id": machine.testing_set,
            "current_installation_result_id": machine.installation_set,
        }),
    );
}

fn gateways(model: &Model, machine: &Machine) -> Value {
    let subnets = machine
        .interfaces
        .iter()
        .flat_map(|nic| nic.addresses.iter())
        .filter_map(|id| model.db.addresses.get(id))
        .filter(|row| row.alloc != AllocType::Discovered)
        .filter_map(|row| row.subnet)
        .filter_map(|id| model.db.subnets.get(&id));
    let first = |v4: bool| {
        subnets.clone().filter_map(|subnet| subnet.gateway_ip).find(|ip| ip.is_ipv4() == v4).map(|ip| ip.to_string())
    };
    json!({
        "ipv4": {"gateway_ip": first(true), "link_id": machine.gateway_link},
        "ipv6": {"gateway_ip": first(false), "link_id": null},
    })
}

fn tests(machine: &Machine, out: &mut Map<String, Value>) {
    let mut status = |name: &str, value: ScriptStatus| {
        out.insert(format!("{name}_status"), json!(value as i64));
        out.insert(format!("{name}_status_name"), json!(value.name()));
    };
    status("commissioning", machine.commissioning);
    status("testing", machine.testing);
    status("storage_test", machine.testing);
    for name in ["cpu_test", "memory_test", "network_test", "interface_test", "other_test"] {
        status(name, ScriptStatus::Unknown);
    }
}

/// The information that an inventory would have collected.
pub fn unknown_hardware() -> Value {
    let names = [
        "system_vendor",
        "system_product",
        "system_family",
        "system_version",
        "system_sku",
        "system_serial",
        "cpu_model",
        "mainboard_vendor",
        "mainboard_product",
        "mainboard_serial",
        "mainboard_version",
        "mainboard_firmware_vendor",
        "mainboard_firmware_date",
        "mainboard_firmware_version",
        "chassis_vendor",
        "chassis_type",
        "chassis_serial",
        "chassis_version",
    ];
    names.into_iter().map(|name| (name.to_owned(), json!("Unknown"))).collect::<Map<String, Value>>().into()
}

fn special_filesystems(model: &Model, machine: &Machine) -> Vec<Value> {
    let shown = machine.shown_special_filesystems();
    shown
        .map(|system| {
            json!({
                "fstype": system.fstype, "label": null, "mount_point": system.mount_point,
                "mount_options": system.mount_options,
                "uuid": uuid_from(model.seed, &["special", &machine.system_id, &system.mount_point]),
            })
        })
        .collect()
}

fn hardware(model: &Model, machine: &Machine, out: &mut Map<String, Value>) {
    let disks: Vec<Value> = machine.disks.iter().map(|disk| storage::disk(model, machine, disk)).collect();
    let interfaces: Vec<Value> = machine.interfaces.iter().map(|nic| network::interface(model, machine, nic)).collect();
    let boot_interface = machine
        .interfaces
        .iter()
        .position(|nic| Some(nic.id) == machine.boot_interface)
        .and_then(|index| interfaces.get(index).cloned());
    put(
        out,
        json!({
            "architecture": machine.architecture,
            "cpu_count": machine.cpu_count,
            "cpu_speed": machine.cpu_speed,
            "memory": machine.memory,
            "storage": machine.storage_mb(),
            "hardware_uuid": machine.hardware_uuid,
            "bios_boot_method": machine.bios_boot_method,
            "hardware_info": unknown_hardware(),
            "numanode_set": [{
                "index": 0, "memory": machine.memory, "cores": (0..machine.cpu_count).collect::<Vec<_>>(), "hugepages_set": if machine.described_by_lxd { json!([{"page_size": 2_097_152, "total": 0}]) } else { json!([]) },
            }],
            "boot_disk": disks.first(),
            "boot_interface": boot_interface,
            "interface_set": interfaces,
            "virtualblockdevice_set": [],
            "physicalblockdevice_set": disks,
            "volume_groups": [],
            "raids": [],
            "bcaches": [],
            "cache_sets": [],
            "special_filesystems": special_filesystems(model, machine),
        }),
    );
    let set = out.get("physicalblockdevice_set").cloned().unwrap_or_default();
    out.insert("blockdevice_set".to_owned(), set);
}
