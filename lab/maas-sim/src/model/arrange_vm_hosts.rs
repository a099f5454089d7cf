//! Statements about VM hosts and LXD daemons.

use serde_json::{Value, json};

use super::{
    DEFAULT_POOL, DEFAULT_ZONE, Model,
    arrange::{Nonsense, new_id},
    db::{Disk, StoragePool, Table, VmHost, VmRef},
    statement::{LxdState, MachineState, Ref, TrustState, VmHostState},
    world::{Instance, Lxd, Trust, lxd_key},
};

impl Model {
    pub(super) fn arrange_as_vm(
        &mut self,
        system_id: &str,
        reference: &Ref,
        state: &MachineState,
    ) -> Result<(), Nonsense> {
        let text = reference.text();
        let host = self
            .db
            .vm_hosts
            .values()
            .find(|host| host.name == text || host.id.to_string() == text)
            .cloned()
            .ok_or_else(|| format!("there is no VM host '{text}'"))?;
        let machine = self.arranged(system_id)?;
        let (name, cores, memory) = (machine.hostname.clone(), machine.cpu_count, machine.memory);
        let macs: Vec<String> = machine.interfaces.iter().map(|nic| nic.mac.clone()).collect();
        let pool = host.storage_pools.first().map_or_else(|| "default".to_owned(), |pool| pool.name.clone());
        let lies_in = |disk: &Disk| disk.storage_pool.clone().unwrap_or_else(|| pool.clone());
        let disks: Vec<(i64, String)> = machine.disks.iter().map(|disk| (disk.size, lies_in(disk))).collect();
        let tags = machine.tags.clone();
        let instance = Instance { cores: cores.max(1), memory: memory.max(1024), disks, macs, running: false };
        if let Some(lxd) = self.lxd_of_mut(host.id) {
            lxd.instances.entry((host.project.clone(), name.clone())).or_insert_with(|| instance.clone());
        }
        let known = self
            .db
            .vm_hosts
            .get(&host.id)
            .and_then(|h| h.vms.iter().find(|vm| vm.machine.as_deref() == Some(system_id)).map(|vm| vm.id));
        let vm_id = match known {
            Some(id) => id,
            None => self.note_vm(host.id, &host.project, &name, &instance, Some(system_id.to_owned())),
        };
        self.fill_vm(system_id, &host, &name, &instance, vm_id);
        let machine = self.arranged(system_id)?;
        machine.vm = Some(VmRef { vm_host: host.id, vm_id: state.vm_id.unwrap_or(Some(vm_id)) });
        if !tags.is_empty() {
            machine.tags = tags;
        }
        self.partition_boot_disk(system_id);
        Ok(())
    }

    /// Applies a statement about an LXD daemon.
    pub fn arrange_lxd(&mut self, state: &LxdState) -> Result<Value, Nonsense> {
        let key = lxd_key(&state.address);
        let lxd = self.world.lxds.entry(key.clone()).or_insert_with(Lxd::made_up);
        lxd.cores = state.cores.unwrap_or(lxd.cores);
        lxd.memory = state.memory.unwrap_or(lxd.memory);
        lxd.reachable = state.reachable.unwrap_or(lxd.reachable);
        lxd.in_vm = state.in_vm.unwrap_or(lxd.in_vm);
        for (into, value) in [
            (&mut lxd.version, &state.version),
            (&mut lxd.os_name, &state.os_name),
            (&mut lxd.os_version, &state.os_version),
        ] {
            if let Some(value) = value {
                into.clone_from(value);
            }
        }
        if let Some(pools) = &state.storage_pools {
            lxd.storage_pools = pools
                .iter()
                .map(|pool| StoragePool {
                    name: pool.name.clone(),
                    driver: pool.driver.clone().unwrap_or_else(|| "dir".to_owned()),
                    path: pool.path.clone().unwrap_or_else(|| format!("/var/lib/lxd/storage-pools/{}", pool.name)),
                    total: pool.total.unwrap_or(1_000_000_000_000),
                })
                .collect();
        }
        if state.restricted == Some(true) {
            for pool in &mut lxd.storage_pools {
                "Unknown".clone_into(&mut pool.path);
            }
        }
        if let Some(password) = &state.password {
            lxd.password = Some(password.clone().unwrap_or_default());
        }
        if let Some(trust) = &state.trusted {
            lxd.trust = match trust {
                TrustState::Word(word) if word == "any" => Trust::Any,
                TrustState::Word(word) if word == "all" => Trust::All,
                TrustState::Word(word) if word == "none" => Trust::Only(Vec::new()),
                TrustState::Word(word) => {
                    return Err(format!("'trusted' is \"any\", \"all\", \"none\" or a list, not '{word}'"));
                }
                TrustState::List(list) => Trust::Only(list.clone()),
            };
            if matches!(&lxd.trust, Trust::Only(list) if list.is_empty()) {
                lxd.trusted.clear();
            }
        }
        if let Some(host) = &state.host {
            lxd.host.clone_from(host);
        }
        if let Some(macs) = &state.macs {
            lxd.macs.clone_from(macs);
        }
        if let Some(networks) = &state.networks {
            lxd.networks.clone_from(networks);
        }
        for instance in state.instances.iter().flatten() {
            let place = (instance.project.clone().unwrap_or_else(|| "default".to_owned()), instance.name.clone());
            if instance.absent {
                lxd.instances.remove(&place);
                continue;
            }
            let pool = lxd.storage_pools.first().map_or_else(|| "default".to_owned(), |pool| pool.name.clone());
            let mac = match &instance.mac {
                Some(mac) => mac.to_lowercase(),
                None => self.rng.mac("00:16:3e"),
            };
            let entry = lxd.instances.entry(place).or_insert_with(|| Instance {
                cores: 1,
                memory: 2048,
                disks: vec![(8_000_000_000, pool.clone())],
                macs: vec![mac.clone()],
                running: false,
            });
            entry.cores = instance.cores.unwrap_or(entry.cores);
            entry.memory = instance.memory.unwrap_or(entry.memory);
            entry.running = instance.running.unwrap_or(entry.running);
            if let Some(disks) = &instance.disks {
                entry.disks = disks.iter().map(|size| (*size, pool.clone())).collect();
            }
            if instance.mac.is_some() {
                entry.macs = vec![mac];
            }
        }
        Ok(json!({"lxd": key}))
    }

    /// Applies a statement about a registered VM host.
    pub fn arrange_vm_host(&mut self, state: &VmHostState) -> Result<Value, Nonsense> {
        let existing = self
            .db
            .vm_hosts
            .values()
            .find(|host| match state.id {
                Some(id) => host.id == id,
                None => Some(&host.name) == state.name.as_ref(),
            })
            .map(|host| host.id);
        let id = match existing {
            Some(id) => id,
            None => self.new_arranged_vm_host(state)?,
        };
        let named = |rows: &std::collections::BTreeMap<i64, super::db::Named>, name: &str| {
            rows.values().find(|row| row.name == name).map(|row| row.id).ok_or_else(|| format!("there is no '{name}'"))
        };
        let zone = state.zone.as_deref().map(|name| named(&self.db.zones, name)).transpose()?;
        let pool = state.pool.as_deref().map(|name| named(&self.db.pools, name)).transpose()?;
        let machine = state.host.as_deref().map(|name| self.machine_named(name)).transpose()?;
        let Some(host) = self.db.vm_hosts.get_mut(&id) else { return Err("the VM host is gone".to_owned()) };
        host.zone = zone.unwrap_or(host.zone);
        host.pool = pool.unwrap_or(host.pool);
        host.host = machine.or_else(|| host.host.clone());
        for (into, value) in [
            (&mut host.name, &state.name),
            (&mut host.power_address, &state.power_address),
            (&mut host.project, &state.project),
            (&mut host.certificate, &state.certificate),
            (&mut host.key, &state.key),
        ] {
            if let Some(value) = value {
                into.clone_from(value);
            }
        }
        if let Some(tags) = &state.tags {
            host.tags.clone_from(tags);
        }
        host.cpu_ratio = state.cpu_over_commit_ratio.unwrap_or(host.cpu_ratio);
        host.memory_ratio = state.memory_over_commit_ratio.unwrap_or(host.memory_ratio);
        if let Some(mode) = &state.default_macvlan_mode {
            host.macvlan_mode.clone_from(mode);
        }
        match state.discovered {
            Some(false) => {
                host.version.clear();
                host.storage_pools.clear();
                host.cores = 0;
                host.memory = 0;
            }
            _ if existing.is_none() || state.discovered == Some(true) => {
                let admin = self.db.users.values().find(|user| user.admin).map_or(0, |user| user.id);
                self.discover(id, admin, true)?;
            }
            _ => {}
        }
        match state.counted {
            Some(false) => {
                if let Some(host) = self.db.vm_hosts.get_mut(&id) {
                    host.cores = 0;
                    host.memory = 0;
                }
            }
            _ if existing.is_none() || state.counted == Some(true) => {
                self.note_foreign_instances(id);
                self.fill_vm_host_totals(id);
            }
            _ => {}
        }
        Ok(json!({"vm_host": id, "host": self.db.vm_hosts.get(&id).and_then(|host| host.host.clone())}))
    }

    fn new_arranged_vm_host(&mut self, state: &VmHostState) -> Result<i64, Nonsense> {
        let address = state.power_address.clone().ok_or("a new VM host needs a power_address")?;
        let key = lxd_key(&address);
        self.world.lxds.entry(key).or_insert_with(Lxd::made_up);
        let id = new_id(&mut self.db, Table::VmHost, state.id);
        let name = match &state.name {
            Some(name) => name.clone(),
            None => self.rng.pet_name(),
        };
        let pem = |what: &str, model: &mut Model| {
            format!("-----BEGIN {what}-----\n{}\n-----END {what}-----\n", model.rng.hex(64))
        };
        let certificate = pem("CERTIFICATE", self);
        let key = pem("PRIVATE KEY", self);
        self.db.vm_hosts.insert(
            id,
            VmHost {
                id,
                name,
                kind: state.kind.clone().unwrap_or_else(|| "lxd".to_owned()),
                power_address: address,
                project: state.project.clone().unwrap_or_else(|| "default".to_owned()),
                certificate: state.certificate.clone().unwrap_or(certificate),
                key: state.key.clone().unwrap_or(key),
                password: None,
                zone: DEFAULT_ZONE,
                pool: DEFAULT_POOL,
                tags: vec!["pod-console-logging".to_owned()],
                cpu_ratio: 1.0,
                memory_ratio: 1.0,
                macvlan_mode: None,
                default_storage_pool: None,
                version: String::new(),
                storage_pools: Vec::new(),
                cores: 0,
                memory: 0,
                host: None,
                vms: Vec::new(),
            },
        );
        Ok(id)
    }
}
