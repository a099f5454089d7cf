//! Disks and partitions.

use serde_json::{Value, json};

use super::uri;
use crate::model::{
    Model,
    db::{Disk, Machine, Partition},
    rng::uuid_from,
};

/// MAAS reserves this much of a disk for the partition table.
const TABLE_OVERHEAD: i64 = 5 * 1024 * 1024;

/// A disk with its partitions.
pub fn disk(model: &Model, machine: &Machine, disk: &Disk) -> Value {
    let partitions: Vec<Value> =
        disk.partitions.iter().enumerate().map(|(index, part)| partition(model, machine, disk, part, index)).collect();
    let used: i64 = disk.partitions.iter().map(|part| part.size).sum();
    let count = disk.partitions.len();
    let (used_for, table) = match count {
        0 => ("Unused".to_owned(), Value::Null),
        1 => ("GPT partitioned with 1 partition".to_owned(), json!("GPT")),
        more => (format!("GPT partitioned with {more} partitions"), json!("GPT")),
    };
    let id_path = if disk.serial.is_empty() {
        format!("/dev/{}", disk.name)
    } else {
        format!("/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_{}", disk.serial)
    };
    json!({
        "id": disk.id,
        "name": disk.name,
        "type": "physical",
        "path": format!("/dev/disk/by-dname/{}", disk.name),
        "id_path": id_path,
        "size": disk.size,
        "used_size": if count == 0 { 0 } else { used + TABLE_OVERHEAD },
        "available_size": if count == 0 { disk.size - 2 * TABLE_OVERHEAD } else { 0 },
        "block_size": 512,
        "model": disk.model,
        "serial": disk.serial,
        "firmware_version": "2.5+",
        "tags": disk.tags,
        "numa_node": 0,
        "storage_pool": disk.storage_pool,
        "partition_table_type": table,
        "partitions": partitions,
        "filesystem": null,
        "used_for": used_for,
        "uuid": null,
        "system_id": machine.system_id,
        "resource_uri": uri(&format!("nodes/{}/blockdevices/{}/", machine.system_id, disk.id)),
    })
}

fn partition(model: &Model, machine: &Machine, disk: &Disk, part: &Partition, index: usize) -> Value {
    let (fstype, label, mount) = if part.efi { ("fat32", "efi", "/boot/efi") } else { ("ext4", "root", "/") };
    let number = if disk.partitions.len() == 1 { 2 } else { index + 1 };
    let key = part.id.to_string();
    // An owned machine shows the file systems that were created for it, any other those of its layout.
    let formatted = machine.acquired_filesystems || !machine.status.is_allocated();
    json!({
        "id": part.id,
        "device_id": disk.id,
        "uuid": uuid_from(model.seed, &["partition", &machine.system_id, &key]),
        "size": part.size,
        "bootable": part.efi,
        "tags": [],
        "type": "partition",
        "path": format!("/dev/disk/by-dname/{}-part{number}", disk.name),
        "filesystem": formatted.then(|| json!({
            "fstype": fstype, "label": label, "mount_point": mount, "mount_options": null,
            "uuid": uuid_from(model.seed, &["filesystem", &machine.system_id, &key]),
        })),
        "used_for": if formatted {
            format!("{fstype} formatted filesystem mounted at {mount}")
        } else {
            "Unused".to_owned()
        },
        "system_id": machine.system_id,
        "resource_uri": uri(&format!("nodes/{}/blockdevices/{}/partition/{}", machine.system_id, disk.id, part.id)),
    })
}
