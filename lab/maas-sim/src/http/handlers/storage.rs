//! Disks of machines and what is built on them. Storage layouts (partitions, RAIDs, volume groups and the like) are
//! shown but cannot be changed: a deployment here writes no disk. From MAAS's source, not recorded.

use super::{
    super::{
        Call, render,
        reply::Reply,
        surface::{BlockDeviceAction, Collection, Kept, PartitionAction, ResultAction, Shown},
    },
    list, unsupported,
};
use serde_json::{Value, json};

use crate::model::{
    Model, Outcome, Refusal, Status,
    db::{Disk, Machine},
    machines::Permission,
};

/// The machine of a URL of one of its parts, if it is visible to the caller.
fn seen<'a>(model: &'a Model, call: &Call) -> Outcome<&'a Machine> {
    let machine = model.db.machines.get(call.parameter(0)).ok_or(Refusal::NotFound("Node"))?;
    if model.may(call.user, machine, Permission::View) { Ok(machine) } else { Err(Refusal::Forbidden) }
}

/// A disk by its id or its name, if the caller may do that with the machine. A missing machine is told as a missing disk.
fn disk<'a>(model: &'a Model, call: &Call, permission: Permission) -> Outcome<(&'a Machine, &'a Disk)> {
    let missing = Refusal::NotFound("BlockDevice");
    let wanted = call.parameter(1);
    let named = |disk: &&Disk| disk.id.to_string() == wanted || disk.name == wanted;
    let machine = model.db.machines.get(call.parameter(0)).ok_or(missing.clone())?;
    let disk = machine.disks.iter().find(named).ok_or(missing)?;
    if model.may(call.user, machine, permission) { Ok((machine, disk)) } else { Err(Refusal::Forbidden) }
}

/// What only a Ready machine allows: `what` is done to a part of a `node`, as MAAS calls both.
fn check_ready(machine: &Machine, what: &str, node: &str) -> Outcome<()> {
    if machine.status == Status::Ready {
        return Ok(());
    }
    Err(Refusal::conflict(format!("Cannot {what} because the {node} is not Ready.")))
}

/// The same for what the owner of an Allocated machine may do as well.
fn check_ready_or_allocated(machine: &Machine, call: &Call, what: &str, node: &str) -> Outcome<()> {
    match machine.status {
        Status::Allocated => Ok(()),
        Status::Ready if call.admin => Ok(()),
        Status::Ready => {
            let words = format!("Cannot {what} because you don't have the permissions on a Ready {node}.");
            Err(Refusal::text(403, words))
        }
        _ => Err(Refusal::conflict(format!("Cannot {what} because the {node} is not Ready or Allocated."))),
    }
}

pub(crate) fn block_devices(model: &mut Model, call: &Call, action: Collection) -> Outcome<Reply> {
    let machine = seen(model, call)?;
    match action {
        Collection::Read => {
            list(machine.disks.iter().map(|disk| render::storage::disk(model, machine, disk)).collect())
        }
        Collection::Create => Err(unsupported(call)),
    }
}

pub(crate) fn block_device(model: &mut Model, call: &Call, action: BlockDeviceAction) -> Outcome<Reply> {
    use BlockDeviceAction as A;
    let permission = match action {
        A::Read => Permission::View,
        A::Format | A::Mount | A::Unformat | A::Unmount => Permission::Edit,
        _ => Permission::Admin,
    };
    let (machine, found) = disk(model, call, permission)?;
    match action {
        A::Read => {}
        A::Update if machine.status == Status::Deployed => {}
        A::AddTag | A::RemoveTag | A::Update => check_ready(machine, "update block device", "machine")?,
        A::Delete => check_ready(machine, "delete block device", "machine")?,
        A::SetBootDisk => check_ready(machine, "set as boot disk", "machine")?,
        A::Format | A::Mount | A::Unformat | A::Unmount => {
            let what = format!("{} block device", call.operation.name);
            check_ready_or_allocated(machine, call, &what, "machine")?;
        }
    }
    let (system_id, id) = (machine.system_id.clone(), found.id);
    match action {
        A::Read => {}
        A::AddTag | A::RemoveTag => {
            let Some(tag) = call.body.text("tag").filter(|tag| !tag.is_empty()) else {
                return Err(Refusal::bad_request("No provided tag!"));
            };
            let disks = &mut model.machine_mut(&system_id)?.disks;
            if let Some(disk) = disks.iter_mut().find(|disk| disk.id == id) {
                disk.tags.retain(|other| *other != tag);
                if action == A::AddTag {
                    disk.tags.push(tag);
                }
            }
        }
        A::SetBootDisk => {
            // Machines boot from their first disk.
            model.machine_mut(&system_id)?.disks.sort_by_key(|disk| disk.id != id);
            return Ok(Reply::raw("text/plain", "OK"));
        }
        A::Update | A::Delete | A::Format | A::Mount | A::Unformat | A::Unmount => return Err(unsupported(call)),
    }
    let (machine, disk) = disk(model, call, permission)?;
    Ok(Reply::json(&render::storage::disk(model, machine, disk)))
}

fn partitions_of(model: &Model, machine: &Machine, disk: &Disk) -> Vec<Value> {
    let shown = render::storage::disk(model, machine, disk);
    shown["partitions"].as_array().cloned().unwrap_or_default()
}

pub(crate) fn partitions(model: &mut Model, call: &Call, action: Collection) -> Outcome<Reply> {
    match action {
        Collection::Read => {
            let (machine, disk) = disk(model, call, Permission::View)?;
            list(partitions_of(model, machine, disk))
        }
        Collection::Create => {
            let (machine, _) = disk(model, call, Permission::Admin)?;
            check_ready(machine, "create partition", "node")?;
            Err(unsupported(call))
        }
    }
}

pub(crate) fn partition(model: &mut Model, call: &Call, action: PartitionAction) -> Outcome<Reply> {
    use PartitionAction as A;
    let permission = match action {
        A::Read => Permission::View,
        A::Format | A::Mount | A::Unformat | A::Unmount => Permission::Edit,
        A::Delete | A::AddTag | A::RemoveTag => Permission::Admin,
    };
    let (machine, disk) = disk(model, call, permission)?;
    let partitions = partitions_of(model, machine, disk);
    let wanted = call.parameter(2).parse::<i64>().ok();
    let found = partitions.iter().find(|partition| wanted.is_some() && partition["id"].as_i64() == wanted);
    let found = found.ok_or(Refusal::NotFound("Partition"))?;
    match action {
        A::Read => return Ok(Reply::json(found)),
        // MAAS says "block device" here.
        A::Delete => check_ready(machine, "delete block device", "node")?,
        A::Format | A::Mount | A::Unformat | A::Unmount => {
            check_ready_or_allocated(machine, call, &format!("{} partition", call.operation.name), "node")?;
        }
        A::AddTag | A::RemoveTag => {}
    }
    Err(unsupported(call))
}

/// What is built on several disks: machines have none.
pub(crate) fn made_of_disks(model: &mut Model, call: &Call, action: Collection) -> Outcome<Reply> {
    seen(model, call)?;
    match action {
        Collection::Read => list(Vec::new()),
        Collection::Create => Err(unsupported(call)),
    }
}

/// One of those: none exists.
pub(crate) fn made_of_disk(model: &mut Model, call: &Call, noun: &'static str) -> Outcome<Reply> {
    seen(model, call)?;
    Err(Refusal::NotFound(noun))
}

/// Devices on the buses of a machine: none are simulated.
pub(crate) fn node_devices(model: &mut Model, call: &Call, _: Shown) -> Outcome<Reply> {
    seen(model, call)?;
    list(Vec::new())
}

pub(crate) fn node_device(model: &mut Model, call: &Call, _: Kept) -> Outcome<Reply> {
    seen(model, call)?;
    Err(Refusal::NotFound("NodeDevice"))
}

/// The sets of scripts that ran on a machine: id, and the id and name of the type.
fn script_sets(machine: &Machine) -> Vec<Value> {
    let kinds = [
        (machine.commissioning_set, 0, "Commissioning", "current-commissioning"),
        (machine.installation_set, 1, "Installation", "current-installation"),
        (machine.testing_set, 2, "Testing", "current-testing"),
    ];
    let sets = kinds.into_iter().filter_map(|(id, kind, name, word)| id.map(|id| (id, kind, name, word)));
    sets.map(|(id, kind, name, word)| {
        json!({
            "id": id, "system_id": machine.system_id, "type": kind, "type_name": name, "word": word,
            "last_ping": null, "status": 2, "status_name": "Passed", "started": "", "ended": "", "runtime": "",
            "suppressed": false, "results": [],
            "resource_uri": render::uri(&format!("nodes/{}/results/{id}/", machine.system_id)),
        })
    })
    .collect()
}

fn without_word(mut set: Value) -> Value {
    if let Some(fields) = set.as_object_mut() {
        fields.remove("word");
    }
    set
}

pub(crate) fn results(model: &mut Model, call: &Call, _: Shown) -> Outcome<Reply> {
    list(script_sets(seen(model, call)?).into_iter().map(without_word).collect())
}

pub(crate) fn result(model: &mut Model, call: &Call, action: ResultAction) -> Outcome<Reply> {
    let wanted = call.parameter(1);
    let number = wanted.parse::<i64>().ok();
    let sets = script_sets(seen(model, call)?);
    let found =
        sets.into_iter().find(|set| set["id"].as_i64().is_some_and(|id| Some(id) == number) || set["word"] == wanted);
    let found = found.ok_or(Refusal::NotFound("ScriptSet"))?;
    match action {
        ResultAction::Read => Ok(Reply::json(&without_word(found))),
        ResultAction::Update | ResultAction::Delete | ResultAction::Download => Err(unsupported(call)),
    }
}
