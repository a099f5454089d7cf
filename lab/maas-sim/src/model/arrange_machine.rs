//! Statements about machines and their interfaces.

use serde_json::{Value, json};

use super::{
    Model, Status,
    arrange::{Nonsense, new_id},
    db::{Disk, Interface, InterfaceKind, Machine, PowerState, ScriptStatus, Table},
    statement::{DiskFields, DiskState, InterfaceState, InterfaceStatement, MachineState},
    world::{BmcMode, Hardware, Work},
};

impl Model {
    /// Applies a statement about a machine.
    pub fn arrange_machine(&mut self, state: &MachineState) -> Result<Value, Nonsense> {
        let by_id = state.system_id.as_ref().filter(|id| self.db.machines.contains_key(*id)).cloned();
        let by_name = state.hostname.as_ref().and_then(|name| self.machine_named(name).ok());
        let found = by_id.or(if state.system_id.is_none() { by_name } else { None });
        let is_new = found.is_none();
        let system_id = match found {
            Some(id) => id,
            None => self.new_arranged_machine(state),
        };
        if let Some(hostname) = &state.hostname {
            self.rename(&system_id, hostname);
        }
        self.arrange_hardware(&system_id, state)?;
        if is_new && state.commissioned != Some(false) {
            self.learn_hardware(&system_id);
            let machine = self.arranged(&system_id)?;
            machine.cpu_count = state.cpu_count.unwrap_or(machine.cpu_count);
            machine.cpu_speed = state.cpu_speed.unwrap_or(machine.cpu_speed);
            machine.memory = state.memory.unwrap_or(machine.memory);
        }
        if let Some(nics) = &state.interfaces {
            self.arrange_interfaces(&system_id, nics)?;
        }
        if let Some(reference) = &state.vm_host {
            self.arrange_as_vm(&system_id, reference, state)?;
        }
        if let Some(word) = &state.status {
            let status = Status::parse(word).ok_or_else(|| format!("there is no status '{word}'"))?;
            self.force_status(&system_id, status);
        } else if is_new {
            let status = if state.commissioned == Some(false) { Status::New } else { Status::Ready };
            self.force_status(&system_id, status);
        }
        self.arrange_words(&system_id, state)?;
        self.arrange_power(&system_id, state)?;
        Ok(json!({"machine": system_id}))
    }

    pub(super) fn arranged(&mut self, system_id: &str) -> Result<&mut Machine, Nonsense> {
        self.db.machines.get_mut(system_id).ok_or_else(|| format!("there is no machine '{system_id}'"))
    }

    fn new_arranged_machine(&mut self, state: &MachineState) -> String {
        let hostname = match &state.hostname {
            Some(name) => name.clone(),
            None => self.new_hostname(),
        };
        let system_id = match &state.system_id {
            Some(id) => id.clone(),
            None => self.new_system_id(),
        };
        let id = new_id(&mut self.db, Table::Machine, state.id);
        let mut machine = Machine::empty(id, &system_id, &hostname);
        "webhook".clone_into(&mut machine.power_type);
        if state.interfaces.is_none() {
            let nic = self.db.sequences.take(Table::Interface);
            let mac = self.rng.mac("52:54:00");
            machine.interfaces.push(Interface::physical(nic, "eth0", &mac, None));
            machine.boot_interface = Some(nic);
        }
        if state.commissioned != Some(false) {
            let hardware = Hardware::default();
            machine.cpu_count = hardware.cores;
            machine.cpu_speed = 2400;
            machine.memory = hardware.memory;
            machine.commissioning = ScriptStatus::Passed;
            machine.commissioning_set = Some(self.db.sequences.take(Table::ScriptSet));
        }
        self.add_row(machine);
        system_id
    }

    fn arrange_hardware(&mut self, system_id: &str, state: &MachineState) -> Result<(), Nonsense> {
        if let Some(disks) = &state.disks {
            let mut made: Vec<Disk> = Vec::new();
            for (disk, letter) in disks.iter().zip('a'..='z') {
                let full = match disk {
                    DiskState::Size(size) => DiskFields { size: *size, ..DiskFields::default() },
                    DiskState::Full(fields) => fields.clone(),
                };
                made.push(Disk {
                    id: new_id(&mut self.db, Table::BlockDevice, full.id),
                    name: full.name.unwrap_or_else(|| format!("sd{letter}")),
                    size: full.size,
                    model: full.model,
                    serial: full.serial,
                    tags: full.tags,
                    storage_pool: full.pool,
                    partitions: Vec::new(),
                });
            }
            self.arranged(system_id)?.disks = made;
        }
        let machine = self.arranged(system_id)?;
        machine.cpu_count = state.cpu_count.unwrap_or(machine.cpu_count);
        machine.cpu_speed = state.cpu_speed.unwrap_or(machine.cpu_speed);
        machine.memory = state.memory.unwrap_or(machine.memory);
        if let Some(architecture) = &state.architecture {
            machine.architecture.clone_from(architecture);
        }
        if let Some(uuid) = &state.hardware_uuid {
            machine.hardware_uuid.clone_from(uuid);
        }
        if let Some(method) = &state.bios_boot_method {
            machine.bios_boot_method.clone_from(method);
        }
        match state.commissioned {
            Some(false) => machine.commissioning = ScriptStatus::Unknown,
            Some(true) => machine.commissioning = ScriptStatus::Passed,
            None => {}
        }
        let hardware = Hardware {
            cores: if machine.cpu_count > 0 { machine.cpu_count } else { 4 },
            memory: if machine.memory > 0 { machine.memory } else { 8192 },
            disks: if machine.disks.is_empty() {
                Hardware::default().disks
            } else {
                machine.disks.iter().map(|disk| disk.size).collect()
            },
        };
        self.world.bodies.entry(system_id.to_owned()).or_default().hardware = hardware;
        Ok(())
    }

    fn arrange_words(&mut self, system_id: &str, state: &MachineState) -> Result<(), Nonsense> {
        let named = |rows: &std::collections::BTreeMap<i64, super::db::Named>, name: &str, what: &str| {
            rows.values()
                .find(|row| row.name == name)
                .map(|row| row.id)
                .ok_or_else(|| format!("there is no {what} '{name}'"))
        };
        let zone = state.zone.as_deref().map(|name| named(&self.db.zones, name, "zone")).transpose()?;
        let pool = state.pool.as_deref().map(|name| named(&self.db.pools, name, "pool")).transpose()?;
        let domain = match state.domain.as_deref() {
            Some(name) => {
                Some(self.find_domain(name).map(|d| d.id).ok_or_else(|| format!("there is no domain '{name}'"))?)
            }
            None => None,
        };
        let owner = match &state.owner {
            Some(Some(name)) => Some(Some(self.user_named(name)?)),
            Some(None) => Some(None),
            None => None,
        };
        for tag in state.tags.iter().flatten() {
            self.ensure_tag(tag);
        }
        let machine = self.arranged(system_id)?;
        machine.zone = zone.unwrap_or(machine.zone);
        machine.pool = pool.unwrap_or(machine.pool);
        machine.domain = domain.unwrap_or(machine.domain);
        machine.owner = owner.unwrap_or(machine.owner);
        machine.locked = state.locked.unwrap_or(machine.locked);
        machine.netboot = state.netboot.unwrap_or(machine.netboot);
        machine.swap_size = state.swap_size.unwrap_or(machine.swap_size);
        machine.ephemeral_deploy = state.ephemeral_deploy.unwrap_or(machine.ephemeral_deploy);
        machine.enable_hw_sync = state.enable_hw_sync.unwrap_or(machine.enable_hw_sync);
        machine.dynamic = state.dynamic.unwrap_or(machine.dynamic);
        for (into, value) in [
            (&mut machine.description, &state.description),
            (&mut machine.agent_name, &state.agent_name),
            (&mut machine.error_description, &state.error_description),
            (&mut machine.osystem, &state.osystem),
            (&mut machine.distro_series, &state.distro_series),
            (&mut machine.power_type, &state.power_type),
        ] {
            if let Some(value) = value {
                into.clone_from(value);
            }
        }
        if let Some(message) = &state.status_message {
            machine.status_message.clone_from(message);
        }
        if let Some(kernel) = &state.hwe_kernel {
            machine.hwe_kernel.clone_from(kernel);
        }
        if let Some(tags) = &state.tags {
            machine.tags.clone_from(tags);
        }
        if let Some(annotations) = &state.annotations {
            machine.annotations.clone_from(annotations);
        }
        if let Some(parameters) = &state.power_parameters {
            machine.power_parameters.clone_from(parameters);
        }
        Ok(())
    }

    fn arrange_power(&mut self, system_id: &str, state: &MachineState) -> Result<(), Nonsense> {
        if let Some(word) = &state.power {
            let on = match word.as_str() {
                "on" => true,
                "off" => false,
                other => return Err(format!("power is 'on' or 'off', not '{other}'")),
            };
            self.set_real_power(system_id, on);
            self.arranged(system_id)?.power_state = if on { PowerState::On } else { PowerState::Off };
        }
        if let Some(word) = &state.power_known {
            let known = PowerState::parse(word).ok_or_else(|| format!("there is no power state '{word}'"))?;
            self.arranged(system_id)?.power_state = known;
        }
        let body = self.world.bodies.entry(system_id.to_owned()).or_default();
        if let Some(word) = &state.bmc {
            body.bmc.mode = BmcMode::parse(word).ok_or_else(|| format!("there is no BMC behaviour '{word}'"))?;
        }
        for (work, outcome) in state.next.iter().flatten() {
            let work = Work::parse(work).ok_or_else(|| format!("there is no work '{work}'"))?;
            body.fails.retain(|other| *other != work);
            match outcome.as_str() {
                "fail" => body.fails.push(work),
                "pass" => {}
                other => return Err(format!("an outcome is 'pass' or 'fail', not '{other}'")),
            }
        }
        Ok(())
    }

    /// Puts a machine into a status as if it had reached it by itself, whatever the state machine allows.
    pub fn force_status(&mut self, system_id: &str, status: Status) {
        self.new_work(system_id);
        if let Some(body) = self.world.bodies.get_mut(system_id) {
            body.bmc.busy = false;
        }
        let default_series =
            self.db.settings.get("default_distro_series").and_then(Value::as_str).unwrap_or("jammy").to_owned();
        let admin = self.db.users.values().find(|user| user.admin).map(|user| user.id);
        let owned = !matches!(status, Status::Ready | Status::New | Status::Broken | Status::Missing | Status::Retired);
        let installed = matches!(status, Status::Deployed | Status::Deploying | Status::FailedDeployment);
        let on = matches!(
            status,
            Status::Deployed
                | Status::Deploying
                | Status::FailedDeployment
                | Status::Commissioning
                | Status::Testing
                | Status::Releasing
                | Status::DiskErasing
                | Status::RescueMode
                | Status::FailedCommissioning
        );
        let Some(machine) = self.db.machines.get_mut(system_id) else { return };
        machine.status = status;
        machine.status_expires = None;
        machine.status_message = match status {
            Status::Allocated | Status::New => machine.status_message.clone(),
            other => Some(other.name().to_owned()),
        };
        if installed {
            machine.min_hwe_kernel.get_or_insert_default();
        }
        if owned {
            machine.owner = machine.owner.or(admin);
        } else {
            machine.owner = None;
            machine.annotations.clear();
            machine.agent_name.clear();
            machine.locked = false;
            machine.ephemeral_deploy = false;
            machine.enable_hw_sync = false;
        }
        if installed && machine.osystem.is_empty() {
            "ubuntu".clone_into(&mut machine.osystem);
            machine.distro_series = default_series;
            machine.hwe_kernel = Some("ga-22.04".to_owned());
        }
        if !installed && !matches!(status, Status::DiskErasing | Status::FailedDiskErasing) {
            machine.osystem.clear();
            machine.distro_series.clear();
            machine.hwe_kernel = None;
        }
        machine.acquired_filesystems =
            installed || matches!(status, Status::Allocated | Status::DiskErasing | Status::FailedDiskErasing);
        if installed && machine.installation_set.is_none() {
            machine.installation_set = Some(self.db.sequences.take(Table::ScriptSet));
        }
        machine.netboot = status != Status::Deployed || machine.ephemeral_deploy;
        if status == Status::Deployed {
            let (osystem, series) = (machine.osystem.clone(), machine.distro_series.clone());
            let image = self.db.images.values_mut().find(|i| i.osystem == osystem && i.series == series);
            if let Some(image) = image {
                image.last_deployed = Some(self.now);
            }
        }
        match status {
            Status::FailedCommissioning => machine.commissioning = ScriptStatus::Failed,
            Status::Commissioning => machine.commissioning = ScriptStatus::Pending,
            Status::Ready if machine.commissioning == ScriptStatus::Pending => {
                machine.commissioning = ScriptStatus::Passed;
            }
            _ => {}
        }
        if status != Status::New {
            machine.power_state = if on { PowerState::On } else { PowerState::Off };
            self.set_real_power(system_id, on);
        }
        if installed {
            self.assign_auto_addresses(system_id);
        } else if !matches!(status, Status::Releasing | Status::DiskErasing | Status::ReleasingFailed) {
            // A machine that is being released keeps its addresses.
            self.drop_acquired_bridges_unless(system_id, status == Status::Allocated);
            self.free_auto_addresses(system_id);
        }
    }

    fn drop_acquired_bridges_unless(&mut self, system_id: &str, keep: bool) {
        if !keep {
            self.drop_acquired_bridges(system_id);
        }
    }

    fn arrange_interfaces(&mut self, system_id: &str, nics: &[InterfaceState]) -> Result<(), Nonsense> {
        let old: Vec<i64> = self.arranged(system_id)?.interfaces.iter().map(|nic| nic.id).collect();
        let named = |model: &Model, state: &InterfaceState| -> Option<i64> {
            let machine = model.db.machines.get(system_id)?;
            machine
                .interfaces
                .iter()
                .find(|nic| Some(nic.id) == state.id || (state.id.is_none() && Some(&nic.name) == state.name.as_ref()))
                .map(|nic| nic.id)
        };
        let kept: Vec<Option<i64>> = nics.iter().map(|state| named(self, state)).collect();
        for id in old {
            if !kept.contains(&Some(id)) && self.interface(system_id, id).is_ok() {
                self.delete_interface(system_id, id).map_err(|_| "an interface cannot be replaced".to_owned())?;
            }
        }
        for (index, state) in nics.iter().enumerate() {
            self.put_interface(system_id, state, Some(index))?;
        }
        let machine = self.arranged(system_id)?;
        machine.boot_interface =
            machine.interfaces.iter().find(|nic| nic.kind == InterfaceKind::Physical).map(|n| n.id);
        Ok(())
    }

    /// Applies a statement about one interface.
    pub fn arrange_interface(&mut self, statement: &InterfaceStatement) -> Result<Value, Nonsense> {
        let system_id = self.machine_named(&statement.machine)?;
        let fields: serde_json::Map<String, Value> = statement.fields.clone().into_iter().collect();
        let state: InterfaceState = serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())?;
        let id = self.put_interface(&system_id, &state, None)?;
        Ok(json!({"interface": id}))
    }

    fn put_interface(
        &mut self,
        system_id: &str,
        state: &InterfaceState,
        index: Option<usize>,
    ) -> Result<i64, Nonsense> {
        let machine = self.arranged(system_id)?;
        let existing = machine
            .interfaces
            .iter()
            .find(|nic| Some(nic.id) == state.id || (state.id.is_none() && Some(&nic.name) == state.name.as_ref()))
            .map(|nic| nic.id);
        let parents: Vec<i64> = state
            .parents
            .iter()
            .flatten()
            .filter_map(|name| machine.interfaces.iter().find(|nic| nic.name == *name).map(|nic| nic.id))
            .collect();
        let parent_mac =
            parents.first().and_then(|id| machine.interfaces.iter().find(|nic| nic.id == *id)).map(|n| n.mac.clone());
        let parent_vlan =
            parents.first().and_then(|id| machine.interfaces.iter().find(|nic| nic.id == *id)).and_then(|n| n.vlan);
        let default_vlan = self.dhcp_subnets().next().map(|subnet| subnet.vlan);
        let id = if let Some(id) = existing {
            id
        } else {
            let id = new_id(&mut self.db, Table::Interface, state.id);
            let name = state.name.clone().unwrap_or_else(|| format!("eth{}", index.unwrap_or(0)));
            let mac = match (&state.mac, parent_mac) {
                (Some(mac), _) => mac.clone(),
                (None, Some(mac)) => mac,
                (None, None) => self.rng.mac("52:54:00"),
            };
            let mut nic = Interface::physical(id, &name, &mac, parent_vlan.or(default_vlan));
            nic.speed = 10_000;
            self.arranged(system_id)?.interfaces.push(nic);
            id
        };
        let nic = self.interface_mut(system_id, id).map_err(|_| "the interface is gone".to_owned())?;
        if let Some(name) = &state.name {
            nic.name.clone_from(name);
        }
        if let Some(mac) = &state.mac {
            nic.mac = mac.to_lowercase();
        }
        if let Some(word) = &state.kind {
            nic.kind = InterfaceKind::parse(word).ok_or_else(|| format!("there is no interface type '{word}'"))?;
            if nic.kind != InterfaceKind::Physical {
                nic.speed = 0;
            }
        }
        nic.vlan = state.vlan.unwrap_or(nic.vlan);
        if state.parents.is_some() {
            nic.parents = parents;
        }
        if let Some(tags) = &state.tags {
            nic.tags.clone_from(tags);
        }
        nic.acquired = state.acquired.unwrap_or(nic.acquired);
        nic.has_params |= nic.acquired || state.bridge_stp.is_some() || state.bridge_fd.is_some();
        nic.bridge_stp = state.bridge_stp.unwrap_or(nic.bridge_stp);
        nic.bridge_fd = state.bridge_fd.unwrap_or(nic.bridge_fd);
        self.arrange_addresses(system_id, id, state, existing.is_none())?;
        Ok(id)
    }
}
