//! VM hosts: registration, discovery, refresh, removal.

use super::{
    DEFAULT_POOL, DEFAULT_ZONE, Model, Outcome, Refusal,
    db::{Machine, PowerState, StoragePool, Table, VmHost, VmRef},
    refusal::FormCheck,
    world::{Instance, LxdCommand, lxd_key},
};
use crate::ledger::{Effect, ObjectChange, ObjectKind};
use crate::version::Change;

/// Parameters of registration and update.
#[derive(Clone, Debug, Default)]
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
    /// A fresh pair, used when none is given: the model does not generate keys.
    pub new_pair: (String, String),
}

const NO_CHOICE: &str = "Select a valid choice. That choice is not one of the available choices.";

struct Checked {
    zone: Option<i64>,
    pool: Option<i64>,
    cpu: Option<f64>,
    memory: Option<f64>,
}

impl Model {
    /// `host`: the one that is updated; `None` for a new one.
    fn check_vm_host(&self, request: &VmHostRequest, host: Option<&VmHost>) -> Outcome<Checked> {
        let mut check = FormCheck::default();
        let kind = request.kind.as_deref();
        match host {
            None => {
                let kind = check.require("type", kind);
                if let Some(kind) = kind.filter(|kind| !["lxd", "virsh"].contains(kind)) {
                    check.add("type", format!("Select a valid choice. {kind} is not one of the available choices."));
                }
            }
            // From MAAS's source, not recorded.
            Some(host) if kind.is_some_and(|kind| kind != host.kind) => {
                let words = "Cannot change the type of a pod. Delete and re-create the pod with a different type.";
                check.add("type", words);
            }
            Some(_) => {}
        }
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
        if let Some(mode) = request.macvlan_mode.as_deref().filter(|mode| !mode.is_empty())
            && !["bridge", "passthru", "private", "vepa"].contains(&mode)
        {
            check.add(
                "default_macvlan_mode",
                format!("Select a valid choice. {mode} is not one of the available choices."),
            );
        }
        // A new host has no storage pools yet. From MAAS's source, not recorded.
        if let Some(pool) = request.default_storage_pool.as_deref().filter(|pool| !pool.is_empty())
            && !host.is_some_and(|host| host.storage_pools.iter().any(|known| known.name == pool))
        {
            check.add("default_storage_pool", NO_CHOICE);
        }
        // The fields required by the type of host are checked only if everything else is valid.
        if check.is_fine() && host.is_none() {
            check.require("power_address", request.power_address.as_deref());
        }
        check.done()?;
        Ok(Checked { zone, pool, cpu, memory })
    }

    /// `POST vm-hosts/`. From 3.1 on the host is stored even if nothing answers at the address.
    pub fn create_vm_host(&mut self, user: i64, request: &VmHostRequest) -> Outcome<i64> {
        let certificate = request.certificate.as_deref().filter(|text| !text.is_empty());
        let key = request.key.as_deref().filter(|text| !text.is_empty());
        let checked = self.check_vm_host(request, None)?;
        let looks_like_pem = |text: &str| text.contains("-----BEGIN") || text.starts_with('<');
        if certificate.is_some() || key.is_some() {
            let pem = certificate.is_some_and(looks_like_pem) && key.is_some_and(looks_like_pem);
            if !pem && self.version.has(Change::VmHostCertificates) {
                return Err(Refusal::crash("Invalid PEM material"));
            }
        }
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
        // If a machine was created by hand with exactly these power parameters, MAAS turns its BMC into the host, and
        // ignores the name and zone of the request.
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
            password: Some(request.password.clone().unwrap_or_default()),
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
        if let Err(text) = outcome
            && !self.version.has(Change::VmHostCertificates)
        {
            self.db.vm_hosts.remove(&id);
            return Err(Refusal::unavailable(format!("Failed talking to pod: {text}")));
        }
        self.effect(Effect::object(ObjectKind::VmHost, id, ObjectChange::Created));
        Ok(id)
    }

    /// The initial properties of a machine that is a VM.
    pub fn fill_vm(&mut self, system_id: &str, host: &VmHost, name: &str, instance: &Instance, vm_id: i64) {
        let disks = instance.disks.iter().map(|(size, pool)| (*size, Some(pool.clone()))).collect();
        let disks = self.new_disks(disks, true);
        let vlan = self.dhcp_subnets().next().map(|subnet| subnet.vlan);
        for tag in &host.tags {
            self.ensure_tag(tag);
        }
        if let Some(machine) = self.db.machines.get_mut(system_id) {
            machine.min_hwe_kernel = None;
            machine.vm = Some(VmRef { vm_host: host.id, vm_id: Some(vm_id) });
            machine.pool = host.pool;
            machine.tags.clone_from(&host.tags);
            machine.cpu_count = instance.cores;
            machine.memory = instance.memory;
            machine.disks = disks;
            machine.bios_boot_method = Some("uefi".to_owned());
            machine.power_state = PowerState::Off;
            set_vm_power(machine, host, name);
            for nic in &mut machine.interfaces {
                nic.vlan = nic.vlan.or(vlan);
            }
        }
    }

    /// Ensures that a tag exists that VM hosts pass on to their VMs.
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
        self.effect(Effect::object(ObjectKind::VmHost, id, ObjectChange::Refreshed));
        self.discover(id, user, false).map_err(|text| Refusal::unavailable(format!("Failed talking to pod: {text}")))
    }

    /// `PUT vm-hosts/{id}/`: absent fields are kept; a daemon that does not answer is not an error.
    pub fn update_vm_host(&mut self, id: i64, user: i64, request: &VmHostRequest) -> Outcome<()> {
        let host = self.db.vm_hosts.get(&id).ok_or(Refusal::NotFound("Pod"))?;
        let checked = self.check_vm_host(request, Some(host))?;
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
        host.password = given(&request.password).or(host.password.take()).or(Some(String::new()));
        if let (Some(certificate), Some(key)) = (given(&request.certificate), given(&request.key)) {
            host.certificate = certificate;
            host.key = key;
        }
        host.zone = checked.zone.unwrap_or(host.zone);
        host.pool = checked.pool.unwrap_or(host.pool);
        host.cpu_ratio = checked.cpu.unwrap_or(host.cpu_ratio);
        host.memory_ratio = checked.memory.unwrap_or(host.memory_ratio);
        host.default_storage_pool = given(&request.default_storage_pool).or_else(|| host.default_storage_pool.clone());
        // An absent mode becomes "" in MAAS's form.
        host.macvlan_mode = given(&request.macvlan_mode).or_else(|| host.macvlan_mode.clone()).or(Some(String::new()));
        if let Some(tags) = &request.tags {
            host.tags.retain(|tag| tag == "pod-console-logging");
            add_tags(&mut host.tags, Some(tags));
        }
        self.effect(Effect::object(ObjectKind::VmHost, id, ObjectChange::Updated));
        // The answer is the same whether or not the daemon was reached.
        let _ = self.discover(id, user, true);
        Ok(())
    }

    /// `DELETE vm-hosts/{id}/`: its machines are removed from MAAS, including locked ones; the VMs only if they are
    /// decomposed.
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
        self.effect(Effect::object(ObjectKind::VmHost, id, ObjectChange::Deleted));
    }

    /// Sends a real daemon the command to create an instance.
    pub(super) fn tell_create(&mut self, host: i64, project: &str, name: &str) {
        if self.lxd_of(host).is_some_and(|lxd| lxd.real) {
            self.outbox.push(LxdCommand::Create { host, project: project.to_owned(), name: name.to_owned() });
        }
    }
}

/// Power parameters of a machine that is a VM.
pub(super) fn set_vm_power(machine: &mut Machine, host: &VmHost, name: &str) {
    machine.power_type.clone_from(&host.kind);
    for (field, value) in [
        ("project", host.project.as_str()),
        ("certificate", host.certificate.as_str()),
        ("power_address", host.power_address.as_str()),
        ("key", host.key.as_str()),
        ("instance_name", name),
    ] {
        machine.power_parameters.insert(field.to_owned(), value.to_owned());
    }
    if let Some(password) = &host.password {
        machine.power_parameters.insert("password".to_owned(), password.clone());
    }
}

fn add_tags(tags: &mut Vec<String>, text: Option<&str>) {
    for tag in text.unwrap_or_default().split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
        if !tags.iter().any(|known| known == tag) {
            tags.push(tag.to_owned());
        }
    }
}

/// The message of MAAS's LXD library when nothing listens.
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

/// Cores, MiB and bytes used by a host's VMs.
pub fn used(host: &VmHost) -> (i64, i64, i64) {
    host.vms.iter().fold((0, 0, 0), |(cores, memory, storage), vm| {
        (cores + vm.cores, memory + vm.memory, storage + vm.disks.iter().map(|(size, _)| size).sum::<i64>())
    })
}

/// Bytes used in one storage pool.
pub fn pool_used(host: &VmHost, pool: &StoragePool) -> i64 {
    host.vms.iter().flat_map(|vm| vm.disks.iter()).filter(|(_, name)| *name == pool.name).map(|(size, _)| size).sum()
}
