//! VM hosts: registering, discovering, refreshing, removing.

use super::{
    DEFAULT_POOL, DEFAULT_ZONE, Model, Outcome, Refusal, Status,
    db::{AllocType, Machine, StoragePool, Table, VirtualMachine, VmHost, VmRef},
    refusal::FormCheck,
    world::{Instance, Lxd, LxdCommand, Trust, lxd_key},
};

/// Parameters of registering and updating.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct VmHostRequest {
    pub kind: Option<String>,
    pub power_address: Option<String>,
    pub project: Option<String>,
    pub password: Option<String>,
    pub certificate: Option<String>,
    pub key: Option<String>,
    pub name: Option<String>,
    pub zone: Option<String>,
    pub pool: Option<String>,
    pub tags: Option<String>,
    pub cpu_ratio: Option<String>,
    pub memory_ratio: Option<String>,
    pub default_storage_pool: Option<String>,
    pub macvlan_mode: Option<String>,
    /// A fresh pair, used when none is given: making one is not for the model.
    pub new_pair: (String, String),
}

struct Checked {
    zone: Option<i64>,
    pool: Option<i64>,
    cpu: Option<f64>,
    memory: Option<f64>,
}

impl Model {
    fn check_vm_host(&self, request: &VmHostRequest, create: bool) -> Outcome<Checked> {
        let mut check = FormCheck::default();
        if create {
            let kind = check.require("type", request.kind.as_deref());
            if let Some(kind) = kind.filter(|kind| !["lxd", "virsh"].contains(kind)) {
                check.add("type", format!("Select a valid choice. {kind} is not one of the available choices."));
            }
            if check.is_fine() {
                check.require("power_address", request.power_address.as_deref());
            }
        }
        const NO_CHOICE: &str = "Select a valid choice. That choice is not one of the available choices.";
        let zone = request.zone.as_deref().filter(|name| !name.is_empty()).and_then(|name| {
            let found = self.db.zones.values().find(|zone| zone.name == name).map(|zone| zone.id);
            if found.is_none() {
                check.add("zone", NO_CHOICE);
            }
            found
        });
        let pool = request.pool.as_deref().filter(|name| !name.is_empty()).and_then(|name| {
            let found = self.db.pools.values().find(|pool| pool.name == name).map(|pool| pool.id);
            if found.is_none() {
                check.add("pool", NO_CHOICE);
            }
            found
        });
        let mut ratio = |field: &str, text: Option<&str>| -> Option<f64> {
            let text = text.filter(|text| !text.is_empty())?;
            match text.parse::<f64>() {
                Err(_) => check.add(field, "Enter a number."),
                Ok(value) if value > 10.0 => check.add(field, "Ensure this value is less than or equal to 10."),
                Ok(value) if value < 0.0 => check.add(field, "Ensure this value is greater than or equal to 0."),
                Ok(value) => return Some(value),
            }
            None
        };
        let cpu = ratio("cpu_over_commit_ratio", request.cpu_ratio.as_deref());
        let memory = ratio("memory_over_commit_ratio", request.memory_ratio.as_deref());
        if let Some(mode) = request.macvlan_mode.as_deref().filter(|mode| !mode.is_empty()) {
            if !["bridge", "passthru", "private", "vepa"].contains(&mode) {
                check.add(
                    "default_macvlan_mode",
                    format!("Select a valid choice. {mode} is not one of the available choices."),
                );
            }
        }
        check.done()?;
        Ok(Checked { zone, pool, cpu, memory })
    }

    /// `POST vm-hosts/`. From 3.1 on the host is stored even if nobody answers at the address.
    pub fn create_vm_host(&mut self, user: i64, request: &VmHostRequest) -> Outcome<i64> {
        let certificate = request.certificate.as_deref().filter(|text| !text.is_empty());
        let key = request.key.as_deref().filter(|text| !text.is_empty());
        let looks_like_pem = |text: &str| text.contains("-----BEGIN") || text.starts_with('<');
        if certificate.is_some() || key.is_some() {
            let pem = certificate.is_some_and(looks_like_pem) && key.is_some_and(looks_like_pem);
            if !pem && self.version.at_least(1) {
                return Err(Refusal::crash("Invalid PEM material"));
            }
        }
        let checked = self.check_vm_host(request, true)?;
        let address = request.power_address.clone().unwrap_or_default();
        let project =
            request.project.clone().filter(|project| !project.is_empty()).unwrap_or_else(|| "default".to_owned());
        let given = certificate.is_some();
        let (certificate, key) = match (certificate, key) {
            (Some(certificate), Some(key)) => (certificate.to_owned(), key.to_owned()),
            _ => request.new_pair.clone(),
        };
        if let Some(same) = self.db.vm_hosts.values().find(|host| {
            host.power_address == address && host.project == project && host.certificate.trim() == certificate.trim()
        }) {
            return Err(Refusal::bad_request(format!("Pod {} with type and parameters already exist.", same.name)));
        }
        // Machines that were recorded by hand with these very power parameters: MAAS turns their BMC into the host,
        // and forgets the name and the zone of the request.
        let prepared = self.db.machines.values().any(|machine| {
            machine.power_type == "lxd"
                && machine.vm.is_none()
                && machine.power_parameters.get("power_address") == Some(&address)
                && machine.power_parameters.get("project") == Some(&project)
                && machine.power_parameters.get("certificate").is_some_and(|pem| pem.trim() == certificate.trim())
        });
        let name = match request.name.clone().filter(|name| !name.is_empty() && !prepared) {
            Some(name) => name,
            None => self.rng.pet_name(),
        };
        let mut tags = vec!["pod-console-logging".to_owned()];
        add_tags(&mut tags, request.tags.as_deref());
        let id = self.db.sequences.take(Table::VmHost);
        let host = VmHost {
            id,
            name: name.clone(),
            kind: request.kind.clone().unwrap_or_default(),
            power_address: address,
            project,
            certificate,
            key,
            password: request.password.clone().unwrap_or_default(),
            zone: checked.zone.filter(|_| !prepared).unwrap_or(DEFAULT_ZONE),
            pool: checked.pool.unwrap_or(DEFAULT_POOL),
            tags,
            cpu_ratio: checked.cpu.unwrap_or(1.0),
            memory_ratio: checked.memory.unwrap_or(1.0),
            macvlan_mode: request.macvlan_mode.clone().filter(|mode| !mode.is_empty()),
            default_storage_pool: request.default_storage_pool.clone(),
            version: String::new(),
            storage_pools: Vec::new(),
            cores: 0,
            memory: 0,
            host: None,
            vms: Vec::new(),
        };
        let by_address = self.machine_at_address(&host.power_address);
        self.db.vm_hosts.insert(id, host);
        if let Some(host) = self.db.vm_hosts.get_mut(&id) {
            host.host = by_address;
        }
        let outcome = self.discover(id, user, given);
        if let Err(text) = outcome {
            if !self.version.at_least(1) {
                self.db.vm_hosts.remove(&id);
                return Err(Refusal::unavailable(format!("Failed talking to pod: {text}")));
            }
        }
        self.effect(format!("vm host {id} ({name}) registered"));
        Ok(id)
    }

    /// The machine that has the address of a daemon.
    fn machine_at_address(&self, power_address: &str) -> Option<String> {
        let key = lxd_key(power_address);
        let ip = key.rsplit_once(':')?.0.trim_matches(['[', ']']).parse().ok()?;
        let row = self.db.taken.get(&ip)?;
        let (system_id, _) = self.db.addresses.get(row)?.on.clone()?;
        Some(system_id)
    }

    /// Talks to the daemon of a host and takes over what it says, or says why it cannot.
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
            let right = match &lxd.password {
                None => !host.password.is_empty(),
                Some(password) => !password.is_empty() && *password == host.password,
            };
            if host.password.is_empty() {
                return Err(format!("VM Host {id}: Certificate is not trusted and no password was given"));
            }
            if !right {
                return Err(format!("VM Host {id}: Password authentication failed: not authorized"));
            }
        }
        let snapshot = lxd.clone();
        if let Some(lxd) = self.world.lxds.get_mut(&key) {
            if !lxd.trusted.iter().any(|pem| *pem == host.certificate) {
                lxd.trusted.push(host.certificate.clone());
            }
        }
        self.take_over(id, user, &snapshot);
        Ok(())
    }

    fn take_over(&mut self, id: i64, user: i64, lxd: &Lxd) {
        let was_counted = self.db.vm_hosts.get(&id).is_some_and(|host| host.cores > 0);
        if let Some(host) = self.db.vm_hosts.get_mut(&id) {
            host.version.clone_from(&lxd.version);
            host.storage_pools.clone_from(&lxd.storage_pools);
            host.password.clear();
        }
        self.find_host_machine(id, user, lxd);
        self.sync_instances(id, user, lxd);
        if was_counted {
            self.fill_vm_host_totals(id);
        } else {
            self.later(self.durations.vm_host_totals, super::due::Due::VmHostTotals { vm_host: id });
        }
    }

    /// The machine under the daemon becomes Deployed with the daemon's operating system, whatever it was.
    fn find_host_machine(&mut self, id: i64, user: i64, lxd: &Lxd) {
        let known = self.db.vm_hosts.get(&id).and_then(|host| host.host.clone());
        let by_name = lxd.host.as_ref().and_then(|text| {
            self.machine_named(text).ok()
        });
        let by_mac =
            || lxd.macs.iter().find_map(|mac| self.machine_with_mac(mac)).map(|machine| machine.system_id.clone());
        let found = by_name.or(known).or_else(by_mac);
        let system_id = found.unwrap_or_else(|| {
            let hostname = self.new_hostname();
            let system_id = self.add_machine(&hostname, &lxd.macs);
            if let Some(machine) = self.db.machines.get_mut(&system_id) {
                machine.power_type = "manual".to_owned();
                machine.power_state = super::db::PowerState::On;
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
            if let Some(row) = self.db.addresses.get_mut(&row) {
                if row.alloc == AllocType::Auto && row.ip.is_some() {
                    row.alloc = AllocType::Sticky;
                }
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

    /// NICs that the daemon does not list go. A made-up daemon without a list knows those that are in use.
    fn drop_nics_unknown_to(&mut self, system_id: &str, lxd: &Lxd) {
        let Some(machine) = self.db.machines.get(system_id) else { return };
        let has_subnet = |ids: &[i64]| {
            ids.iter().any(|id| self.db.addresses.get(id).is_some_and(|row| row.subnet.is_some()))
        };
        let unknown: Vec<i64> = machine
            .interfaces
            .iter()
            .filter(|nic| nic.kind == super::db::InterfaceKind::Physical)
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

    /// VMs that MAAS does not know become machines and are commissioned at once; machines whose VM is gone, go.
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

    /// Notes an instance on a host. Returns the number of the VM.
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
                machine.power_state =
                    if instance.running { super::db::PowerState::On } else { super::db::PowerState::Off };
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
            machine.power_state = if instance.running { super::db::PowerState::On } else { super::db::PowerState::Off };
        }
        self.effect(format!("{system_id}: adopted VM {name}"));
        // A failure would only mean that there is no image to boot: the machine then stays New, as in MAAS.
        let _ = self.commission(&system_id, user, true);
    }

    /// What a machine that is a VM is known to have from the start.
    pub fn fill_vm(&mut self, system_id: &str, host: &VmHost, name: &str, instance: &Instance, vm_id: i64) {
        let disks = instance.disks.iter().map(|(size, pool)| (*size, Some(pool.clone()))).collect();
        let disks = self.new_disks(disks, true);
        let vlan = self.dhcp_subnets().next().map(|subnet| subnet.vlan);
        for tag in &host.tags {
            self.ensure_tag(tag);
        }
        if let Some(machine) = self.db.machines.get_mut(system_id) {
            machine.vm = Some(VmRef { vm_host: host.id, vm_id: Some(vm_id) });
            machine.pool = host.pool;
            machine.tags.clone_from(&host.tags);
            machine.cpu_count = instance.cores;
            machine.memory = instance.memory;
            machine.disks = disks;
            machine.bios_boot_method = Some("uefi".to_owned());
            machine.power_state = super::db::PowerState::Off;
            set_vm_power(machine, host, name);
            for nic in &mut machine.interfaces {
                nic.vlan = nic.vlan.or(vlan);
            }
        }
    }

    /// A tag that VM hosts hand to their VMs exists.
    pub fn ensure_tag(&mut self, name: &str) {
        if !self.db.tags.contains_key(name) {
            let id = self.db.sequences.take(Table::Tag);
            let tag = super::db::Tag {
                id,
                name: name.to_owned(),
                definition: String::new(),
                comment: String::new(),
                kernel_opts: String::new(),
            };
            self.db.tags.insert(name.to_owned(), tag);
        }
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

    /// `op=refresh`.
    pub fn refresh_vm_host(&mut self, id: i64, user: i64) -> Outcome<()> {
        if !self.db.vm_hosts.contains_key(&id) {
            return Err(Refusal::NotFound("Pod"));
        }
        if !self.rack_connected() {
            return Err(Refusal::unavailable(
                "Unable to start the VM host discovery process. No rack controllers connected.",
            ));
        }
        self.effect(format!("vm host {id} refreshed"));
        self.discover(id, user, false).map_err(|text| Refusal::unavailable(format!("Failed talking to pod: {text}")))
    }

    /// `PUT vm-hosts/{id}/`: what is absent stays; a daemon that does not answer is no error.
    pub fn update_vm_host(&mut self, id: i64, user: i64, request: &VmHostRequest) -> Outcome<()> {
        if !self.db.vm_hosts.contains_key(&id) {
            return Err(Refusal::NotFound("Pod"));
        }
        let checked = self.check_vm_host(request, false)?;
        let Some(host) = self.db.vm_hosts.get_mut(&id) else { return Err(Refusal::NotFound("Pod")) };
        let given = |value: &Option<String>| value.clone().filter(|text| !text.is_empty());
        if let Some(name) = given(&request.name) {
            host.name = name;
        }
        if let Some(address) = given(&request.power_address) {
            host.power_address = address;
        }
        if let Some(project) = given(&request.project) {
            host.project = project;
        }
        if let Some(password) = given(&request.password) {
            host.password = password;
        }
        if let (Some(certificate), Some(key)) = (given(&request.certificate), given(&request.key)) {
            host.certificate = certificate;
            host.key = key;
        }
        host.zone = checked.zone.unwrap_or(host.zone);
        host.pool = checked.pool.unwrap_or(host.pool);
        host.cpu_ratio = checked.cpu.unwrap_or(host.cpu_ratio);
        host.memory_ratio = checked.memory.unwrap_or(host.memory_ratio);
        host.default_storage_pool = given(&request.default_storage_pool).or_else(|| host.default_storage_pool.clone());
        // An absent mode comes out of MAAS's form as "".
        host.macvlan_mode = given(&request.macvlan_mode).or_else(|| host.macvlan_mode.clone()).or(Some(String::new()));
        if let Some(tags) = &request.tags {
            host.tags.retain(|tag| tag == "pod-console-logging");
            add_tags(&mut host.tags, Some(tags));
        }
        self.effect(format!("vm host {id} updated"));
        // The answer is the same whether or not the daemon could be reached.
        let _ = self.discover(id, user, true);
        Ok(())
    }

    /// `DELETE vm-hosts/{id}/`: its machines vanish from MAAS, locked ones too; the VMs only if they are decomposed.
    pub fn remove_vm_host(&mut self, id: i64, decompose: bool) {
        let machines: Vec<String> = self
            .db
            .machines
            .values()
            .filter(|machine| machine.vm.as_ref().is_some_and(|vm| vm.vm_host == id))
            .map(|machine| machine.system_id.clone())
            .collect();
        for machine in machines {
            self.remove_machine(&machine, decompose);
        }
        self.db.vm_hosts.remove(&id);
        self.effect(format!("vm host {id} deleted"));
    }

    /// Tells a real daemon to make an instance.
    pub(super) fn tell_create(&mut self, host: i64, project: &str, name: &str) {
        if self.lxd_of(host).is_some_and(|lxd| lxd.real) {
            self.outbox.push(LxdCommand::Create { host, project: project.to_owned(), name: name.to_owned() });
        }
    }
}

fn set_vm_power(machine: &mut Machine, host: &VmHost, name: &str) {
    machine.power_type.clone_from(&host.kind);
    for (field, value) in [
        ("project", host.project.as_str()),
        ("certificate", host.certificate.as_str()),
        ("power_address", host.power_address.as_str()),
        ("key", host.key.as_str()),
        ("password", ""),
        ("instance_name", name),
    ] {
        machine.power_parameters.insert(field.to_owned(), value.to_owned());
    }
}

fn add_tags(tags: &mut Vec<String>, text: Option<&str>) {
    for tag in text.unwrap_or_default().split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
        if !tags.iter().any(|known| known == tag) {
            tags.push(tag.to_owned());
        }
    }
}

/// What MAAS's LXD library says when nobody listens.
pub fn connection_refused(host: &VmHost) -> String {
    let key = lxd_key(&host.power_address);
    let (address, port) = key.rsplit_once(':').unwrap_or((key.as_str(), "8443"));
    format!(
        "Pod {}: Failed to connect to the LXD REST API: HTTPSConnectionPool(host='{address}', port={port}): Max retries \
         exceeded with url: /1.0?project={} (Caused by NewConnectionError('<urllib3.connection.HTTPSConnection object \
         at 0x7fa38b5d2080>: Failed to establish a new connection: [Errno 111] Connection refused'))",
        host.id, host.project
    )
}

/// Cores, MiB and bytes that a host's VMs use.
pub fn used(host: &VmHost) -> (i64, i64, i64) {
    host.vms.iter().fold((0, 0, 0), |(cores, memory, storage), vm| {
        (cores + vm.cores, memory + vm.memory, storage + vm.disks.iter().map(|(size, _)| size).sum::<i64>())
    })
}

/// Bytes used in one storage pool.
pub fn pool_used(host: &VmHost, pool: &StoragePool) -> i64 {
    host.vms.iter().flat_map(|vm| vm.disks.iter()).filter(|(_, name)| *name == pool.name).map(|(size, _)| size).sum()
}
