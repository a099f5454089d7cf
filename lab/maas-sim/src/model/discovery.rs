//! What MAAS reads from an LXD daemon: the host's resources, its machine, its VMs.

use super::{
    Model, Status,
    db::{AllocType, InterfaceKind, PowerState, Table, VirtualMachine, VmRef},
    machines::hostname_error,
    vm_hosts::{connection_refused, set_vm_power},
    world::{Instance, Lxd, Trust, lxd_key},
};
use crate::ledger::{Effect, MachineChange};

impl Model {
    /// The machine that has the address of a daemon.
    pub(super) fn machine_at_address(&self, power_address: &str) -> Option<String> {
        let key = lxd_key(power_address);
        let ip = key.rsplit_once(':')?.0.trim_matches(['[', ']']).parse().ok()?;
        let row = self.db.taken.get(&ip)?;
        let (system_id, _) = self.db.addresses.get(row)?.on.clone()?;
        Some(system_id)
    }

    /// Connects to the daemon of a host and reads its state, or returns why it cannot.
    pub fn discover(&mut self, id: i64, user: i64, certificate_given: bool) -> Result<(), String> {
        if !self.rack_connected() {
            return Err("Unable to start the VM host discovery process. No rack controllers connected.".to_owned());
        }
        let Some(host) = self.db.vm_hosts.get(&id).cloned() else { return Err(String::new()) };
        let key = lxd_key(&host.power_address);
        if self.invent_lxd && !self.world.lxds.contains_key(&key) {
            self.world.lxds.insert(key.clone(), Lxd::made_up());
        }
        let Some(lxd) = self.world.lxds.get(&key).filter(|lxd| lxd.reachable) else {
            return Err(connection_refused(&host));
        };
        if let Some(failure) = &lxd.failure {
            return Err(failure.replace("{id}", &id.to_string()));
        }
        let trusted = lxd.real
            || lxd.trusted.iter().any(|pem| pem.trim() == host.certificate.trim())
            || lxd.trust == Trust::All
            || (certificate_given && lxd.trust == Trust::Any)
            || matches!(&lxd.trust, Trust::Only(list) if list.iter().any(|pem| pem.trim() == host.certificate.trim()));
        if !trusted {
            let given = host.password.as_deref().unwrap_or_default();
            let right = match &lxd.password {
                None => !given.is_empty(),
                Some(password) => !password.is_empty() && password == given,
            };
            if given.is_empty() {
                return Err(format!("VM Host {id}: Certificate is not trusted and no password was given"));
            }
            if !right {
                return Err(format!("VM Host {id}: Password authentication failed: not authorized"));
            }
        }
        let snapshot = lxd.clone();
        if let Some(lxd) = self.world.lxds.get_mut(&key)
            && !lxd.trusted.contains(&host.certificate)
        {
            lxd.trusted.push(host.certificate.clone());
        }
        self.take_over(id, user, &snapshot);
        Ok(())
    }

    fn take_over(&mut self, id: i64, user: i64, lxd: &Lxd) {
        let was_counted = self.db.vm_hosts.get(&id).is_some_and(|host| host.cores > 0);
        if let Some(host) = self.db.vm_hosts.get_mut(&id) {
            host.version.clone_from(&lxd.version);
            host.storage_pools.clone_from(&lxd.storage_pools);
            host.password = None;
        }
        self.find_host_machine(id, user, lxd);
        self.sync_instances(id, user, lxd);
        if was_counted {
            self.fill_vm_host_totals(id);
        } else {
            self.later(self.durations.vm_host_totals, super::due::Due::VmHostTotals { vm_host: id });
        }
    }

    /// The daemon's machine becomes Deployed with the daemon's operating system, whatever its status was.
    fn find_host_machine(&mut self, id: i64, user: i64, lxd: &Lxd) {
        let known = self.db.vm_hosts.get(&id).and_then(|host| host.host.clone());
        let by_name = lxd.host.as_ref().and_then(|text| self.machine_named(text).ok());
        let by_mac =
            || lxd.macs.iter().find_map(|mac| self.machine_with_mac(mac)).map(|machine| machine.system_id.clone());
        let by_registration = || {
            let key = |host: &super::db::VmHost| lxd_key(&host.power_address);
            let own = self.db.vm_hosts.get(&id).map(key)?;
            self.db.vm_hosts.values().filter(|host| key(host) == own).find_map(|host| host.host.clone())
        };
        let found = by_name.or(known).or_else(by_mac).or_else(by_registration);
        let name = self.db.vm_hosts.get(&id).map(|host| host.name.clone()).unwrap_or_default();
        let system_id = found.unwrap_or_else(|| {
            let taken = self.hostname_taken(&name, None) || hostname_error(&name).is_some();
            let hostname = if taken { self.new_hostname() } else { name };
            let system_id = self.add_machine(&hostname, &lxd.macs);
            if let Some(machine) = self.db.machines.get_mut(&system_id) {
                "manual".clone_into(&mut machine.power_type);
                machine.power_state = PowerState::On;
                machine.owner = Some(user);
                machine.dynamic = true;
            }
            self.set_real_power(&system_id, true);
            system_id
        });
        if let Some(host) = self.db.vm_hosts.get_mut(&id) {
            host.host = Some(system_id.clone());
        }
        if self.db.machines.get(&system_id).is_some_and(|machine| machine.status != Status::Deployed) {
            self.set_status(&system_id, Status::Deployed);
            self.new_work(&system_id);
        }
        self.drop_nics_unknown_to(&system_id, lxd);
        for row in self.link_ids(&system_id) {
            if let Some(row) = self.db.addresses.get_mut(&row)
                && row.alloc == AllocType::Auto
                && row.ip.is_some()
            {
                row.alloc = AllocType::Sticky;
            }
        }
        if let Some(machine) = self.db.machines.get_mut(&system_id) {
            machine.owner = machine.owner.or(Some(user));
            machine.osystem.clone_from(&lxd.os_name);
            machine.distro_series.clone_from(&lxd.os_version);
            machine.described_by_lxd = true;
            if lxd.in_vm && !machine.tags.iter().any(|tag| tag == "virtual") {
                machine.tags.push("virtual".to_owned());
            }
        }
    }

    /// NICs that the daemon does not list are deleted. A simulated daemon without a list knows those in use.
    fn drop_nics_unknown_to(&mut self, system_id: &str, lxd: &Lxd) {
        let Some(machine) = self.db.machines.get(system_id) else { return };
        let has_subnet =
            |ids: &[i64]| ids.iter().any(|id| self.db.addresses.get(id).is_some_and(|row| row.subnet.is_some()));
        let unknown: Vec<i64> = machine
            .interfaces
            .iter()
            .filter(|nic| nic.kind == InterfaceKind::Physical)
            .filter(|nic| {
                if lxd.macs.is_empty() {
                    let used = machine.interfaces.iter().any(|other| other.parents.contains(&nic.id));
                    !used && !has_subnet(&nic.addresses)
                } else {
                    !lxd.macs.iter().any(|mac| mac.eq_ignore_ascii_case(&nic.mac))
                }
            })
            .map(|nic| nic.id)
            .collect();
        if unknown.len() < machine.interfaces.len() {
            for nic in unknown {
                // It was listed a moment ago.
                let _ = self.delete_interface(system_id, nic);
            }
        }
    }

    /// VMs that MAAS does not know become machines and are commissioned at once; machines whose VM no longer exists are
    /// deleted.
    fn sync_instances(&mut self, id: i64, user: i64, lxd: &Lxd) {
        let Some(host) = self.db.vm_hosts.get(&id).cloned() else { return };
        let gone: Vec<String> = host
            .vms
            .iter()
            .filter(|vm| !lxd.instances.contains_key(&(vm.project.clone(), vm.name.clone())))
            .filter_map(|vm| vm.machine.clone())
            .filter(|machine| {
                self.db.machines.get(machine).is_some_and(|m| m.vm.as_ref().is_some_and(|vm| vm.vm_host == id))
            })
            .collect();
        for machine in gone {
            self.remove_machine(&machine, false);
        }
        if let Some(host) = self.db.vm_hosts.get_mut(&id) {
            host.vms.retain(|vm| lxd.instances.contains_key(&(vm.project.clone(), vm.name.clone())));
        }
        for ((project, name), instance) in &lxd.instances {
            let known = self.db.vm_hosts.get(&id).is_some_and(|host| {
                host.vms.iter().any(|vm| vm.project == *project && vm.name == *name && vm.machine.is_some())
            });
            let tracked = *project == host.project;
            if tracked && !known {
                self.adopt(id, user, name, instance);
            } else if !tracked && !self.has_vm(id, project, name) {
                self.note_vm(id, project, name, instance, None);
            }
        }
    }

    /// Counts what other projects of a daemon use.
    pub fn note_foreign_instances(&mut self, id: i64) {
        let Some(project) = self.db.vm_hosts.get(&id).map(|host| host.project.clone()) else { return };
        let instances = self.lxd_of(id).map(|lxd| lxd.instances.clone()).unwrap_or_default();
        for ((of, name), instance) in &instances {
            if *of != project && !self.has_vm(id, of, name) {
                self.note_vm(id, of, name, instance, None);
            }
        }
    }

    fn has_vm(&self, id: i64, project: &str, name: &str) -> bool {
        self.db.vm_hosts.get(&id).is_some_and(|host| host.vms.iter().any(|vm| vm.project == project && vm.name == name))
    }

    /// Records an instance on a host. Returns the id of the VM.
    pub fn note_vm(&mut self, id: i64, project: &str, name: &str, instance: &Instance, machine: Option<String>) -> i64 {
        let vm_id = self.db.sequences.take(Table::Vm);
        let vm = VirtualMachine {
            id: vm_id,
            name: name.to_owned(),
            project: project.to_owned(),
            cores: instance.cores,
            memory: instance.memory,
            disks: instance.disks.clone(),
            machine,
        };
        if let Some(host) = self.db.vm_hosts.get_mut(&id) {
            host.vms.retain(|other| other.project != project || other.name != name);
            host.vms.push(vm);
        }
        vm_id
    }

    fn adopt(&mut self, id: i64, user: i64, name: &str, instance: &Instance) {
        let Some(host) = self.db.vm_hosts.get(&id).cloned() else { return };
        let existing = instance.macs.iter().find_map(|mac| self.machine_with_mac(mac)).map(|m| m.system_id.clone());
        if let Some(system_id) = existing {
            let vm_id = self.note_vm(id, &host.project, name, instance, Some(system_id.clone()));
            if let Some(machine) = self.db.machines.get_mut(&system_id) {
                machine.vm = Some(VmRef { vm_host: id, vm_id: Some(vm_id) });
                machine.cpu_count = instance.cores;
                machine.memory = instance.memory;
                set_vm_power(machine, &host, name);
                machine.power_state = if instance.running { PowerState::On } else { PowerState::Off };
            }
            return;
        }
        let hostname = if self.hostname_taken(name, None) { self.new_hostname() } else { name.to_owned() };
        let system_id = self.add_machine(&hostname, &instance.macs);
        let vm_id = self.note_vm(id, &host.project, name, instance, Some(system_id.clone()));
        self.fill_vm(&system_id, &host, name, instance, vm_id);
        self.partition_boot_disk(&system_id);
        if let Some(machine) = self.db.machines.get_mut(&system_id) {
            machine.zone = host.zone;
            machine.power_state = if instance.running { PowerState::On } else { PowerState::Off };
        }
        self.effect(Effect::machine(&system_id, MachineChange::Adopted));
        // A failure only means that there is no boot image: the machine then stays New, as in MAAS.
        let _ = self.commission(&system_id, user, true);
    }

    pub(super) fn fill_vm_host_totals(&mut self, id: i64) {
        let Some((cores, memory)) = self.lxd_of(id).map(|lxd| (lxd.cores, lxd.memory)) else { return };
        let Some(host) = self.db.vm_hosts.get_mut(&id).filter(|host| host.discovered()) else { return };
        host.cores = cores;
        host.memory = memory;
        if let Some(machine) = host.host.clone().and_then(|id| self.db.machines.get_mut(&id)) {
            machine.cpu_count = cores;
            machine.memory = memory;
        }
    }
}
