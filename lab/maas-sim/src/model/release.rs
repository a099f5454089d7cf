//! Releasing machines: release, erasing, marking broken and fixed, deleting.

use super::{
    Model, Outcome, Refusal, Status,
    db::{Level, Machine, PowerState, ScriptStatus},
    due::Due,
    power::{PowerAction, Then},
    world::{LxdCommand, Work},
};
use crate::hardware::Action;
use crate::ledger::{Effect, MachineChange, ObjectChange, ObjectKind};
use crate::version::Change;

/// Parameters of `op=release`.
#[derive(Clone, Debug, Default)]
pub struct ReleaseRequest {
    pub erase: bool,
    pub force: bool,
    pub comment: Option<String>,
}

impl Model {
    /// `op=release`. Nothing happens to a machine that is Ready or Releasing.
    pub fn release(&mut self, system_id: &str, user: i64, request: &ReleaseRequest) -> Outcome<()> {
        let machine = self.machine(system_id)?;
        let status = machine.status;
        if matches!(status, Status::Ready | Status::Releasing) {
            return Ok(());
        }
        if !status.is_releasable() {
            return Err(Refusal::conflict(format!(
                "Machine cannot be released in its current state ('{}').",
                status.name()
            )));
        }
        let power_known_on = machine.power_state == PowerState::On;
        let needs_power_off = machine.power_state != PowerState::Off && machine.power_type != "manual";
        self.remove_vm_hosts_of(system_id, request.force)?;
        let erase = request.erase
            || self.db.settings.get("enable_disk_erasing_on_release").and_then(serde_json::Value::as_bool)
                == Some(true);
        if erase && status != Status::Broken && !self.machine(system_id)?.disks.is_empty() {
            return self.erase(system_id, user, request.comment.as_deref());
        }
        if needs_power_off && let Err(refusal) = self.check_bmc_reached(system_id, true) {
            // The status is restored, but not what the release had already removed.
            self.machine_mut(system_id)?.clear_acquired_filesystems();
            return Err(refusal.late());
        }
        if power_known_on {
            self.check_power_free(system_id, "off")?;
        }
        self.user_event(system_id, "User releasing node", user, request.comment.as_deref());
        self.start_release(system_id);
        Ok(())
    }

    fn erase(&mut self, system_id: &str, user: i64, comment: Option<&str>) -> Outcome<()> {
        self.check_can_boot(&self.machine(system_id)?.architecture)?;
        self.user_event(system_id, "User erasing disk", user, comment);
        self.set_status(system_id, Status::DiskErasing);
        self.new_work(system_id);
        let on = self.machine(system_id)?.power_state == PowerState::On;
        let action = if on { PowerAction::Cycle } else { PowerAction::On };
        self.plan_power(system_id, action, Then::Work(Work::Erase));
        Ok(())
    }

    /// Starts the actual release: agent name and operating system are cleared at once, owner and annotations at the
    /// end.
    pub(super) fn start_release(&mut self, system_id: &str) {
        self.set_status(system_id, Status::Releasing);
        self.new_work(system_id);
        self.event(system_id, Level::Info, "Releasing", "");
        let Some(machine) = self.db.machines.get_mut(system_id) else { return };
        machine.agent_name.clear();
        machine.netboot = true;
        machine.osystem.clear();
        machine.distro_series.clear();
        machine.hwe_kernel = None;
        machine.ephemeral_deploy &= self.version.has(Change::EphemeralKept);
        machine.enable_hw_sync = false;
        machine.last_sync = None;
        machine.locked = false;
        machine.becomes_vm_host = false;
        machine.clear_acquired_filesystems();
        if !self.version.has(Change::InstallationKept) {
            machine.installation_set = None;
        }
        let (dynamic, manual) = (machine.dynamic, machine.power_type == "manual");
        // MAAS uses the state that it assumes: a machine whose power-on is still in progress counts as off, and stays
        // on.
        let off = machine.power_state == PowerState::Off || manual;
        let work = machine.work;
        self.remove_devices_of(system_id);
        if dynamic && off {
            let machine = system_id.to_owned();
            self.later(self.durations.post_commit, Due::RemoveDynamic { machine, work });
        } else if off {
            self.finalize_release(system_id);
        } else {
            self.limit_status(system_id, 300.0 + self.durations.bmc_hang);
            self.plan_power(system_id, PowerAction::Off, Then::Released);
        }
    }

    /// The end of a release: Ready, or New if it was never commissioned, and without an owner.
    pub(super) fn finalize_release(&mut self, system_id: &str) {
        let Some(machine) = self.db.machines.get(system_id) else { return };
        if machine.dynamic {
            self.remove_machine(system_id, true);
            return;
        }
        let known = machine.commissioning == ScriptStatus::Passed
            || (machine.vm.is_some() && machine.commissioning == ScriptStatus::Unknown);
        let target = if known { Status::Ready } else { Status::New };
        self.forget_owner(system_id);
        self.set_status(system_id, target);
        self.event(system_id, Level::Info, "Released", "");
        self.order(system_id, Action::Release);
        self.new_work(system_id);
        self.steal(system_id);
    }

    /// Removes owner, annotations, addresses and acquired bridges.
    fn forget_owner(&mut self, system_id: &str) {
        self.drop_acquired_bridges(system_id);
        self.free_auto_addresses(system_id);
        if let Some(machine) = self.db.machines.get_mut(system_id) {
            machine.owner = None;
            machine.annotations.clear();
            machine.gateway_link = None;
        }
    }

    /// `op=mark_broken`: only for the owner, who thereby loses the machine.
    pub fn mark_broken(&mut self, system_id: &str, user: i64, comment: Option<&str>) -> Outcome<()> {
        let machine = self.machine(system_id)?;
        if machine.owner != Some(user) {
            return Err(Refusal::Forbidden);
        }
        let on = machine.power_state == PowerState::On;
        let was_in_use = machine.status.is_releasable();
        self.user_event(system_id, "User marking node broken", user, comment);
        if was_in_use {
            self.event(system_id, Level::Info, "Releasing", "");
            self.remove_devices_of(system_id);
        }
        self.break_machine(system_id, comment.unwrap_or_default());
        if on {
            self.plan_power(system_id, PowerAction::Off, Then::FreeAddresses);
        } else if was_in_use {
            self.event(system_id, Level::Info, "Released", "");
        }
        Ok(())
    }

    /// Marks it broken, for whatever reason.
    pub fn break_machine(&mut self, system_id: &str, why: &str) {
        let on = self.db.machines.get(system_id).is_some_and(|machine| machine.power_state == PowerState::On);
        self.drop_acquired_bridges(system_id);
        if !on {
            self.free_auto_addresses(system_id);
        }
        self.set_status(system_id, Status::Broken);
        self.new_work(system_id);
        if let Some(machine) = self.db.machines.get_mut(system_id) {
            machine.owner = None;
            machine.annotations.clear();
            machine.agent_name.clear();
            machine.osystem.clear();
            machine.distro_series.clear();
            machine.hwe_kernel = None;
            machine.netboot = true;
            machine.ephemeral_deploy &= self.version.has(Change::EphemeralKept);
            machine.gateway_link = None;
            why.clone_into(&mut machine.error_description);
        }
    }

    /// `op=mark_fixed`.
    pub fn mark_fixed(&mut self, system_id: &str, user: i64, comment: Option<&str>) -> Outcome<()> {
        let machine = self.machine(system_id)?;
        if machine.status != Status::Broken {
            return Err(Refusal::conflict("Can't mark a non-broken node as 'Ready'."));
        }
        self.user_event(system_id, "User marking node fixed", user, comment);
        self.set_status(system_id, Status::Ready);
        self.new_work(system_id);
        let machine = self.machine_mut(system_id)?;
        machine.error_description.clear();
        Ok(())
    }

    /// What prevents the release or deletion of a machine with VM hosts; `force` removes them.
    pub(super) fn remove_vm_hosts_of(&mut self, system_id: &str, force: bool) -> Outcome<()> {
        let hosts: Vec<(i64, String)> = self
            .db
            .vm_hosts
            .values()
            .filter(|host| host.host.as_deref() == Some(system_id))
            .map(|host| (host.id, host.name.clone()))
            .collect();
        if hosts.is_empty() {
            return Ok(());
        }
        if !force {
            let names: Vec<&str> = hosts.iter().map(|(_, name)| name.as_str()).collect();
            return Err(Refusal::bad_request(format!(
                "The following VM hosts must be removed first: {}",
                names.join(", ")
            )));
        }
        for (id, _) in hosts {
            self.remove_vm_host(id, false);
        }
        Ok(())
    }

    /// `DELETE` of a machine: a VM is decomposed, metal stays as it is.
    pub fn delete_machine(&mut self, system_id: &str, force: bool) -> Outcome<()> {
        self.machine(system_id)?;
        self.remove_vm_hosts_of(system_id, force)?;
        self.effect(Effect::machine(system_id, MachineChange::Deleted));
        self.remove_machine(system_id, true);
        Ok(())
    }

    /// Removes a machine from the database, and its instance from LXD if requested and LXD answers.
    pub fn remove_machine(&mut self, system_id: &str, decompose: bool) {
        if decompose && self.vm_place(system_id).is_some() {
            self.order(system_id, Action::Release);
        }
        if let Some((host, project, name)) = self.vm_place(system_id).filter(|_| decompose) {
            let key = (project.clone(), name.clone());
            let mut gone = false;
            if let Some(lxd) = self.lxd_of_mut(host).filter(|lxd| lxd.reachable) {
                gone = lxd.instances.remove(&key).is_some();
            }
            if gone && self.lxd_of(host).is_some_and(|lxd| lxd.real) {
                self.outbox.push(LxdCommand::Delete { host, project, name });
            }
        }
        let Some(machine) = self.db.machines.remove(system_id) else { return };
        if self.db.by_hostname.get(&machine.hostname).is_some_and(|id| id == system_id) {
            self.db.by_hostname.remove(&machine.hostname);
        }
        self.drop_addresses_of(&machine);
        self.remove_devices_of(system_id);
        for host in self.db.vm_hosts.values_mut() {
            host.vms.retain(|vm| vm.machine.as_deref() != Some(system_id));
            if host.host.as_deref() == Some(system_id) {
                host.host = None;
            }
        }
        if machine.vm.is_some() {
            self.world.bodies.remove(system_id);
        }
    }

    /// Removes a device and the devices that belong to it.
    pub fn remove_device(&mut self, system_id: &str) {
        let Some(device) = self.db.devices.remove(system_id) else { return };
        self.drop_addresses_of(&device.node);
        self.effect(Effect::object(ObjectKind::Device, system_id, ObjectChange::Deleted));
        self.remove_devices_of(system_id);
    }

    /// The devices that belong to a node go with it, and when it is released. From MAAS's source, not recorded.
    fn remove_devices_of(&mut self, parent: &str) {
        let of_parent = self.db.devices.iter().filter(|(_, device)| device.parent.as_deref() == Some(parent));
        let ids: Vec<String> = of_parent.map(|(id, _)| id.clone()).collect();
        for id in ids {
            self.remove_device(&id);
        }
    }

    /// Deletes the addresses of a node that is gone.
    fn drop_addresses_of(&mut self, node: &Machine) {
        for id in node.interfaces.iter().flat_map(|nic| &nic.addresses) {
            self.drop_address(*id);
        }
    }
}
