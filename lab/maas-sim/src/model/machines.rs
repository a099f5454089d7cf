//! Machines: creation, updates, permissions, ownership.

use std::collections::BTreeMap;

use super::{
    DEFAULT_DOMAIN, DEFAULT_POOL, DEFAULT_ZONE, Model, Outcome, Refusal, Status,
    db::{AllocType, Disk, Interface, Level, Machine, Partition, PowerState, ScriptStatus, SpecialFilesystem, Table},
    world::Body,
};
use crate::ledger::{Effect, MachineChange, ObjectChange, ObjectKind};

/// What a user wants to do with a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    View,
    Edit,
    Lock,
    Admin,
    /// What only administrators may read, also of a locked machine.
    AdminRead,
}

impl Machine {
    /// An empty machine, as MAAS creates it before it knows anything.
    pub fn empty(id: i64, system_id: &str, hostname: &str) -> Self {
        Self {
            id,
            system_id: system_id.to_owned(),
            hostname: hostname.to_owned(),
            description: String::new(),
            domain: DEFAULT_DOMAIN,
            zone: DEFAULT_ZONE,
            pool: DEFAULT_POOL,
            status: Status::New,
            previous_status: Status::New,
            owner: None,
            agent_name: String::new(),
            annotations: BTreeMap::new(),
            tags: Vec::new(),
            locked: false,
            architecture: "amd64/generic".to_owned(),
            cpu_count: 0,
            cpu_speed: 0,
            memory: 0,
            hardware_uuid: None,
            bios_boot_method: None,
            swap_size: None,
            osystem: String::new(),
            distro_series: String::new(),
            hwe_kernel: None,
            min_hwe_kernel: Some(String::new()),
            netboot: true,
            ephemeral_deploy: false,
            enable_hw_sync: false,
            last_sync: None,
            power_type: String::new(),
            power_parameters: BTreeMap::new(),
            power_state: PowerState::Unknown,
            status_message: None,
            error_description: String::new(),
            commissioning: ScriptStatus::Unknown,
            testing: ScriptStatus::Unknown,
            commissioning_set: None,
            testing_set: None,
            installation_set: None,
            enable_kernel_crash_dump: false,
            acquired_filesystems: false,
            special_filesystems: Vec::new(),
            interfaces: Vec::new(),
            boot_interface: None,
            gateway_link: None,
            disks: Vec::new(),
            vm: None,
            dynamic: false,
            described_by_lxd: false,
            becomes_vm_host: false,
            status_expires: None,
            work: 0,
        }
    }

    /// Whether one of its NICs has a MAC address.
    pub fn has_mac(&self, mac: &str) -> bool {
        self.interfaces.iter().any(|nic| nic.mac.eq_ignore_ascii_case(mac))
    }

    /// An allocation has file systems of its own, which begin as those of the layout.
    fn create_acquired_filesystems(&mut self) {
        self.acquired_filesystems = true;
        let of_layout = self.special_filesystems.iter().filter(|system| !system.acquired).cloned();
        let copies: Vec<_> = of_layout.map(|system| SpecialFilesystem { acquired: true, ..system }).collect();
        self.special_filesystems.extend(copies);
    }

    /// Those of the allocation end when a release begins.
    pub(super) fn clear_acquired_filesystems(&mut self) {
        self.acquired_filesystems = false;
        self.special_filesystems.retain(|system| !system.acquired);
    }

    /// The file systems without a disk that it shows: those of its allocation, or else those of its layout.
    pub fn shown_special_filesystems(&self) -> impl Iterator<Item = &SpecialFilesystem> {
        self.special_filesystems.iter().filter(|system| system.acquired == self.status.is_allocated())
    }

    /// Total size of the disks in MB, as MAAS shows it.
    pub fn storage_mb(&self) -> f64 {
        let bytes: i64 = self.disks.iter().map(|disk| disk.size).sum();
        #[allow(clippy::cast_precision_loss)]
        let bytes = bytes as f64;
        bytes / 1_000_000.0
    }

    /// How MAAS orders matching machines: the cheapest first.
    pub fn cost(&self) -> f64 {
        #[allow(clippy::cast_precision_loss)]
        let (cores, memory) = (self.cpu_count as f64, self.memory as f64);
        cores + memory / 1024.0
    }
}

/// Whether a text is six pairs of hexadecimal digits.
pub fn is_mac(text: &str) -> bool {
    let pairs: Vec<&str> = text.split([':', '-']).collect();
    pairs.len() == 6 && pairs.iter().all(|pair| pair.len() == 2 && pair.chars().all(|c| c.is_ascii_hexdigit()))
}

/// What is wrong with a host name, as MAAS's message.
pub fn hostname_error(name: &str) -> Option<String> {
    let label = name.split('.').next().unwrap_or_default();
    if name.chars().count() <= LONGEST_NAME && label.contains('_') {
        return Some(format!("Host label cannot contain underscore: '{label}'."));
    }
    dns_name_error(name)
}

const LONGEST_NAME: usize = 255;
const LONGEST_LABEL: usize = 63;

/// What is wrong with the first invalid label of a name.
pub fn dns_name_error(name: &str) -> Option<String> {
    if name.chars().count() > LONGEST_NAME {
        return Some(format!("Hostname is too long.  Maximum allowed is {LONGEST_NAME} characters."));
    }
    name.split('.').find_map(|label| {
        if label.is_empty() {
            Some("DNS name contains an empty label.".to_owned())
        } else if label.chars().count() > LONGEST_LABEL {
            Some(format!("Label is too long: '{label}'.  Maximum allowed is {LONGEST_LABEL} characters."))
        } else if label.starts_with('-') || label.ends_with('-') {
            Some(format!("Label cannot start or end with hyphen: '{label}'."))
        } else if !label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            Some(format!("Label contains disallowed characters: '{label}'."))
        } else {
            None
        }
    })
}

impl Model {
    /// Whether a user may do something with a machine.
    pub fn may(&self, user: i64, machine: &Machine, permission: Permission) -> bool {
        let admin = self.db.users.get(&user).is_some_and(|user| user.admin);
        let own = machine.owner == Some(user);
        let free = machine.owner.is_none();
        match permission {
            Permission::View | Permission::Lock => admin || own || free,
            Permission::Edit => !machine.locked && (admin || own || free),
            Permission::Admin => admin && !machine.locked,
            Permission::AdminRead => admin,
        }
    }

    /// The machine if the user has that permission: 404 before 403.
    pub fn machine_for(&self, system_id: &str, user: i64, permission: Permission) -> Outcome<&Machine> {
        let machine = self.machine(system_id)?;
        if self.may(user, machine, permission) { Ok(machine) } else { Err(Refusal::Forbidden) }
    }

    /// Allocates a machine to a user.
    pub fn acquire(&mut self, system_id: &str, user: i64, agent_name: &str, comment: Option<&str>) {
        self.user_event(system_id, "User acquiring node", user, comment);
        if let Some(machine) = self.db.machines.get_mut(system_id) {
            machine.owner = Some(user);
            machine.create_acquired_filesystems();
            agent_name.clone_into(&mut machine.agent_name);
        }
        self.set_status(system_id, Status::Allocated);
        self.new_work(system_id);
    }

    /// A new machine with its NICs, not yet commissioned.
    pub fn add_machine(&mut self, hostname: &str, macs: &[String]) -> String {
        let system_id = self.new_system_id();
        let id = self.db.sequences.take(Table::Machine);
        let mut machine = Machine::empty(id, &system_id, hostname);
        machine.domain = self.db.default_domain;
        for (index, mac) in macs.iter().enumerate() {
            let nic = self.db.sequences.take(Table::Interface);
            machine.interfaces.push(Interface::physical(nic, &format!("eth{index}"), mac, None));
        }
        machine.boot_interface = machine.interfaces.first().map(|nic| nic.id);
        self.add_row(machine);
        system_id
    }

    /// Adds a machine to the database and to the hardware.
    pub fn add_row(&mut self, machine: Machine) {
        self.db.by_hostname.insert(machine.hostname.clone(), machine.system_id.clone());
        self.world.bodies.insert(machine.system_id.clone(), Body::default());
        self.db.machines.insert(machine.system_id.clone(), machine);
    }

    pub fn rename(&mut self, system_id: &str, hostname: &str) {
        let Some(machine) = self.db.machines.get_mut(system_id) else { return };
        let old = std::mem::replace(&mut machine.hostname, hostname.to_owned());
        if self.db.by_hostname.get(&old).is_some_and(|id| id == system_id) {
            self.db.by_hostname.remove(&old);
        }
        self.db.by_hostname.insert(hostname.to_owned(), system_id.to_owned());
    }

    /// The machine that has a MAC address.
    pub fn machine_with_mac(&self, mac: &str) -> Option<&Machine> {
        self.db.machines.values().find(|machine| machine.has_mac(mac))
    }

    /// The machine or the device that has a MAC address.
    pub fn mac_in_use(&self, mac: &str) -> Option<&Machine> {
        let device = || self.db.devices.values().map(|device| &device.node).find(|node| node.has_mac(mac));
        self.machine_with_mac(mac).or_else(device)
    }

    /// Commissioning has inventoried the machine: hardware, links, an observed address.
    pub fn learn_hardware(&mut self, system_id: &str) {
        let place = self.vm_place(system_id);
        let instance = place.and_then(|(host, project, name)| {
            self.lxd_of(host).and_then(|lxd| lxd.instances.get(&(project, name)).cloned())
        });
        let hardware = self.world.bodies.get(system_id).map(|body| body.hardware.clone()).unwrap_or_default();
        let (cores, memory, disks) = match &instance {
            Some(vm) => {
                (vm.cores, vm.memory, vm.disks.iter().map(|(size, pool)| (*size, Some(pool.clone()))).collect())
            }
            None => (hardware.cores, hardware.memory, hardware.disks.iter().map(|size| (*size, None)).collect()),
        };
        let uuid = super::rng::uuid_from(self.seed, &["hardware", system_id]);
        if self.db.machines.get(system_id).is_some_and(|machine| machine.disks.is_empty()) {
            let disks: Vec<Disk> = self.new_disks(disks, instance.is_some());
            if let Some(machine) = self.db.machines.get_mut(system_id) {
                machine.disks = disks;
            }
        }
        self.partition_boot_disk(system_id);
        let vlan = self.booting_subnet().map(|subnet| subnet.vlan);
        let mut nics = Vec::new();
        if let Some(machine) = self.db.machines.get_mut(system_id) {
            machine.cpu_count = cores;
            machine.memory = memory;
            machine.cpu_speed = 2400;
            machine.commissioning = ScriptStatus::Passed;
            machine.hardware_uuid = machine.hardware_uuid.take().or(Some(uuid));
            if instance.is_some() && !machine.tags.iter().any(|tag| tag == "virtual") {
                machine.tags.insert(0, "virtual".to_owned());
            }
            for nic in &mut machine.interfaces {
                nic.vlan = nic.vlan.or(vlan);
                nic.speed = 10_000;
                nics.push(nic.id);
            }
        }
        for nic in nics {
            self.observe_address(system_id, nic);
            if self.interface(system_id, nic).is_ok_and(|interface| self.links_of(interface).is_empty()) {
                self.add_default_link(system_id, nic);
            }
        }
    }

    /// MAAS observed the machine with an address from a dynamic range while it was commissioned.
    fn observe_address(&mut self, system_id: &str, nic: i64) {
        let Ok(interface) = self.interface(system_id, nic) else { return };
        let seen = interface
            .addresses
            .iter()
            .any(|id| self.db.addresses.get(id).is_some_and(|row| row.alloc == AllocType::Discovered));
        let Some(vlan) = interface.vlan.filter(|_| !seen) else { return };
        let Some(subnet) = self.db.subnets.values().find(|subnet| subnet.vlan == vlan) else { return };
        let subnet_id = subnet.id;
        let Some(range) = self.db.ranges.values().find(|range| range.dynamic && range.subnet == subnet_id) else {
            return;
        };
        let (start, end, v4) =
            (super::net::to_number(range.start), super::net::to_number(range.end), range.start.is_ipv4());
        let free = |ip: &std::net::IpAddr| !self.db.observed.contains(ip) && !self.is_taken(*ip);
        let Some(ip) = (start..=end).map(|number| super::net::from_number(number, v4)).find(free) else { return };
        let row = self.new_address(AllocType::Discovered, Some(ip), Some(subnet_id), None);
        self.attach_address(system_id, nic, row);
    }

    /// Disks of the given sizes and storage pools.
    pub fn new_disks(&mut self, sizes: Vec<(i64, Option<String>)>, virtual_disk: bool) -> Vec<Disk> {
        sizes
            .into_iter()
            .zip(b'a'..=b'z')
            .map(|((size, storage_pool), letter)| {
                let root = letter == b'a';
                Disk {
                    id: self.db.sequences.take(Table::BlockDevice),
                    name: format!("sd{}", char::from(letter)),
                    size,
                    model: if virtual_disk { "QEMU HARDDISK".to_owned() } else { String::new() },
                    serial: match (virtual_disk, root) {
                        (true, true) => "lxd_root".to_owned(),
                        (true, false) => format!("lxd_disk{}", letter - b'a'),
                        (false, _) => String::new(),
                    },
                    tags: match &storage_pool {
                        Some(pool) if virtual_disk => vec![pool.clone()],
                        _ => vec!["ssd".to_owned(), "sata".to_owned()],
                    },
                    storage_pool,
                    partitions: Vec::new(),
                }
            })
            .collect()
    }

    /// The flat layout on the first disk.
    pub fn partition_boot_disk(&mut self, system_id: &str) {
        let Some(machine) = self.db.machines.get_mut(system_id) else { return };
        let efi = machine.bios_boot_method.as_deref() == Some("uefi");
        let Some(disk) = machine.disks.first_mut().filter(|disk| disk.partitions.is_empty()) else { return };
        let mut rest = disk.size - 8 * 1024 * 1024;
        if efi {
            let id = self.db.sequences.take(Table::Partition);
            disk.partitions.push(Partition { id, efi: true, size: 536_870_912 });
            rest -= 536_870_912;
        }
        let id = self.db.sequences.take(Table::Partition);
        disk.partitions.push(Partition { id, efi: false, size: rest.max(0) });
    }

    /// `op=set_workload_annotations` and `op=set_owner_data`: only by the owner; "" removes a key. The same holds for
    /// devices, which is from MAAS's source and not recorded.
    pub fn annotate(&mut self, system_id: &str, user: i64, pairs: &[(String, String)]) -> Outcome<()> {
        let node = self.node(system_id)?;
        if node.owner != Some(user) {
            return Err(Refusal::conflict("Cannot set workload annotation: it hasn't been acquired."));
        }
        for (key, _) in pairs {
            if key.is_empty() || !key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-')) {
                return Err(Refusal::crash("Invalid character in key name"));
            }
            if key.chars().count() > 255 {
                return Err(Refusal::validation(
                    "key",
                    format!("Ensure this value has at most 255 characters (it has {}).", key.chars().count()),
                ));
            }
        }
        let node = self.node_mut(system_id)?;
        for (key, value) in pairs {
            if value.is_empty() {
                node.annotations.remove(key);
            } else {
                node.annotations.insert(key.clone(), value.clone());
            }
        }
        if !pairs.is_empty() {
            self.effect(if self.db.devices.contains_key(system_id) {
                Effect::object(ObjectKind::Device, system_id, ObjectChange::Updated)
            } else {
                Effect::machine(system_id, MachineChange::Annotated)
            });
        }
        Ok(())
    }

    /// `op=lock` and `op=unlock`.
    pub fn set_locked(&mut self, system_id: &str, user: i64, locked: bool, comment: Option<&str>) -> Outcome<()> {
        let machine = self.machine(system_id)?;
        // From MAAS's source, not recorded, all three.
        if locked == machine.locked {
            let is = if locked { "already" } else { "not" };
            return Err(Refusal::conflict(format!("Machine is {is} locked")));
        }
        if locked && !matches!(machine.status, Status::Deployed | Status::Deploying) {
            return Err(Refusal::conflict("Can't lock, node is not deployed or deploying"));
        }
        let kind = if locked { "User locking node" } else { "User unlocking node" };
        self.user_event(system_id, kind, user, comment);
        self.machine_mut(system_id)?.locked = locked;
        self.effect(Effect::machine(system_id, if locked { MachineChange::Locked } else { MachineChange::Unlocked }));
        Ok(())
    }

    /// Whether a machine's status allows commissioning, by MAAS's list for that action.
    pub fn can_commission(&self, system_id: &str) -> Outcome<bool> {
        use Status as S;
        let status = self.machine(system_id)?.status;
        Ok(matches!(status, S::New | S::FailedCommissioning | S::Ready | S::Broken))
    }

    /// `op=override_failed_testing`. From MAAS's source, not recorded.
    pub fn override_failed_testing(&mut self, system_id: &str, user: i64, comment: Option<&str>) -> Outcome<()> {
        let machine = self.machine(system_id)?;
        if machine.status != Status::FailedTesting {
            let words = "Unable to override node status. Node is not in 'Failed testing' status.";
            return Err(Refusal::conflict(words));
        }
        let next = if machine.osystem.is_empty() { Status::Ready } else { Status::Deployed };
        self.user_event(system_id, "User overriding failed testing", user, comment);
        self.set_status(system_id, next);
        self.new_work(system_id);
        Ok(())
    }

    /// `op=accept`: a new machine is commissioned; one that is past that is omitted from the answer.
    pub fn accept(&mut self, system_id: &str, user: i64) -> Outcome<bool> {
        let status = self.machine(system_id)?.status;
        match status {
            Status::Ready | Status::Commissioning => Ok(false),
            Status::New => self.commission(system_id, user, true).map(|()| true),
            other => Err(Refusal::conflict(format!(
                "Cannot accept node enlistment: node {system_id} is in state {}.",
                other.name()
            ))),
        }
    }

    /// Whether another machine or device has the host name.
    pub fn hostname_taken(&self, hostname: &str, except: Option<&str>) -> bool {
        let of_machine = self.db.by_hostname.get(hostname).is_some_and(|id| Some(id.as_str()) != except);
        let mut devices = self.db.devices.values().map(|device| &device.node);
        of_machine || devices.any(|node| node.hostname == hostname && Some(node.system_id.as_str()) != except)
    }

    /// Someone pulled the plug.
    pub fn lose_power(&mut self, system_id: &str) {
        self.set_real_power(system_id, false);
        if !self.version.has(crate::version::Change::TemporalPower) {
            self.event(system_id, Level::Debug, "Node powered off", "");
        }
    }
}
