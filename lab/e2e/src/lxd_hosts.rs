//! LXD hosts of a MAAS: machines owned by someone else, each with a simulated LXD daemon that MAAS has registered as a
//! VM host.

use std::net::IpAddr;

use anyhow::Context as _;
use maas_sim::model::{Status, world::lxd_key};
use serde_json::{Value, json};

use crate::maas::{Maas, USER, ZONES};

/// The size of a host: its memory fits exactly seven VMs of [`vm`].
const CORES: u32 = 32;
const MEMORY_MIB: u32 = 16384;
const DISK_BYTES: u64 = 1_000_000_000_000;
/// The VID of the second network's VLAN.
const SECOND_VLAN: i64 = 77;

/// The spec of a small VM on an LXD host.
pub fn vm() -> Value {
    json!({"dynamicLXD": true, "minCPU": 2, "minMemory": 2048, "minDiskSize": 10})
}

/// A VM with a NIC in each of these networks; MAAS assigns an address in each. Written as users of the Go provider
/// write it.
pub fn vm_in_two_networks(networks: [&str; 2]) -> Value {
    let links = json!({"network": networks.join(","), "interfaceLinkModes": {"eth0": "auto", "eth1": "static"}});
    json!({"lxd": {"enabled": true, "vmConfig": links}, "minCPU": 2, "minMemory": 2048, "minDiskSize": 10})
}

/// A VM as MAAS shows it.
#[derive(Clone, Debug)]
pub struct VmFacts {
    pub system_id: String,
    pub hostname: String,
    /// The status name that MAAS shows.
    pub status: String,
    pub owner: Option<String>,
    pub host: String,
    pub zone: String,
    pub pool: String,
    pub addresses: Vec<IpAddr>,
}

impl Maas {
    /// Adds `count` hosts to each zone: `host-az1-1`, `host-az1-2`, …
    pub fn add_hosts(&self, count: usize) -> anyhow::Result<()> {
        for zone in ZONES {
            for number in 1..=count {
                self.add_host(&format!("host-{zone}-{number}"), zone, "default")?;
            }
        }
        Ok(())
    }

    /// Adds one host.
    pub fn add_host(&self, name: &str, zone: &str, pool: &str) -> anyhow::Result<()> {
        self.arrange(json!([
            {"pool": {"name": pool}},
            // Owned by someone else, so that no cluster allocates it and it does not count as a leftover.
            {"machine": {"hostname": name, "zone": zone, "pool": pool, "status": "Deployed", "owner": "admin",
                         "cpu_count": CORES, "memory": MEMORY_MIB}},
        ]))?;
        self.make_host(name, zone, pool)
    }

    /// Makes an existing machine a host.
    pub fn make_host(&self, name: &str, zone: &str, pool: &str) -> anyhow::Result<()> {
        let address = self.control().with_model(|model| format!("10.99.0.{}:8443", model.world.lxds.len() + 1));
        let disks = json!([{"name": "default", "driver": "dir", "total": DISK_BYTES}]);
        self.arrange(json!([
            {"lxd": {"address": address, "cores": CORES, "memory": MEMORY_MIB, "storage_pools": disks, "host": name}},
            {"vm_host": {"name": name, "power_address": address, "project": "maas", "zone": zone, "pool": pool,
                         "counted": true}},
        ]))
    }

    /// Attaches every host to a second network. Returns both: the one that all machines are in and the new one.
    pub fn add_second_network(&self) -> anyhow::Result<[String; 2]> {
        let first = self.control().with_model(|model| {
            let mut cidrs = model.db.subnets.values().map(|subnet| subnet.cidr.to_string());
            cidrs.find(|cidr| cidr.starts_with("127."))
        });
        let first = first.context("the machines are in no network")?;
        let second = format!("127.{}.0.0/16", 50 + rand::random_range(0..40u8));
        let hosts = self
            .control()
            .with_model(|model| model.db.vm_hosts.values().map(|host| host.name.clone()).collect::<Vec<_>>());
        let mut statements = vec![
            json!({"fabric": {"name": "second", "vlan_id": SECOND_VLAN}}),
            json!({"vlan": {"id": SECOND_VLAN, "dhcp_on": true}}),
            json!({"subnet": {"cidr": second, "vlan": SECOND_VLAN}}),
        ];
        statements.extend(hosts.into_iter().map(|host| {
            let link = json!({"mode": "auto", "subnet": second});
            json!({"interface": {"machine": host, "name": "eth1", "vlan": SECOND_VLAN, "links": [link]}})
        }));
        self.arrange(json!(statements))?;
        Ok([first, second])
    }

    /// A user with the manager's account refreshes a host in MAAS.
    pub fn refresh_host(&self, name: &str) -> anyhow::Result<()> {
        let id = self.host_id(name)?;
        let refreshed = self.control().with_model(|model| {
            let user = model.db.users.values().find(|user| user.name == USER).map(|user| user.id);
            user.map(|user| model.refresh_vm_host(id, user))
        });
        let refreshed = refreshed.with_context(|| format!("there is no user {USER}"))?;
        refreshed.map_err(|refusal| anyhow::anyhow!("refresh {name}: {refusal:?}"))
    }

    pub fn vms(&self) -> Vec<VmFacts> {
        let machines = self.machines();
        self.control().with_model(|model| {
            let of = |(id, machine): (&String, &maas_sim::model::db::Machine)| {
                let host = model.db.vm_hosts.get(&machine.vm.as_ref()?.vm_host)?;
                let facts = machines.iter().find(|facts| facts.system_id == *id)?;
                Some(VmFacts {
                    system_id: id.clone(),
                    hostname: machine.hostname.clone(),
                    status: machine.status.name().to_owned(),
                    owner: facts.owner.clone(),
                    host: host.name.clone(),
                    zone: facts.zone.clone(),
                    pool: model.db.pools.get(&machine.pool).map(|pool| pool.name.clone()).unwrap_or_default(),
                    addresses: facts.addresses.clone(),
                })
            };
            model.db.machines.iter().filter_map(of).collect()
        })
    }

    /// The names of the instances that LXD really has, on any host.
    pub fn instances(&self) -> Vec<String> {
        self.control().with_model(|model| {
            model.world.lxds.values().flat_map(|lxd| lxd.instances.keys().map(|(_, name)| name.clone())).collect()
        })
    }

    /// Instances in LXD whose host is no longer deployed or no longer registered in MAAS.
    pub fn homeless(&self) -> Vec<String> {
        self.control().with_model(|model| {
            let mut found = Vec::new();
            for (address, lxd) in &model.world.lxds {
                let is_under = |machine: &&maas_sim::model::db::Machine| {
                    lxd.host.as_ref().is_some_and(|host| [&machine.hostname, &machine.system_id].contains(&host))
                };
                let deployed =
                    model.db.machines.values().find(is_under).is_some_and(|it| it.status == Status::Deployed);
                let registered = model.db.vm_hosts.values().any(|host| lxd_key(&host.power_address) == *address);
                if !deployed || !registered {
                    found.extend(lxd.instances.keys().map(|(_, name)| format!("{name} on {:?}", lxd.host)));
                }
            }
            found
        })
    }

    /// Powers a host off with everything on it. Its BMC still answers, its LXD does not.
    pub fn switch_host_off(&self, name: &str) -> anyhow::Result<()> {
        self.reach_host(name, false)?;
        let mut off = vec![json!({"machine": {"hostname": name, "power": "off"}})];
        off.extend(
            self.vms()
                .into_iter()
                .filter(|vm| vm.host == name)
                .map(|vm| json!({"machine": {"system_id": vm.system_id, "power": "off", "power_known": "error"}})),
        );
        self.arrange(json!(off))
    }

    /// Powers it on again. The instances on it stay off.
    pub fn switch_host_on(&self, name: &str) -> anyhow::Result<()> {
        self.reach_host(name, true)?;
        self.arrange(json!([{"machine": {"hostname": name, "power": "on"}}]))
    }

    /// The tags of a host, as VM host.
    pub fn host_tags(&self, name: &str) -> anyhow::Result<Vec<String>> {
        let tags = self.control().with_model(|model| {
            let host = model.db.vm_hosts.values().find(|host| host.name == name);
            host.map(|host| host.tags.clone())
        });
        tags.with_context(|| format!("there is no host {name}"))
    }

    /// Makes the LXD of a host reachable or unreachable.
    pub fn reach_host(&self, name: &str, reachable: bool) -> anyhow::Result<()> {
        self.arrange(json!([{"lxd": {"address": self.address_of_host(name)?, "reachable": reachable}}]))
    }

    /// The id of the VM host in MAAS.
    pub fn host_id(&self, name: &str) -> anyhow::Result<i64> {
        let id = self
            .control()
            .with_model(|model| model.db.vm_hosts.values().find(|host| host.name == name).map(|host| host.id));
        id.with_context(|| format!("there is no host {name}"))
    }

    fn address_of_host(&self, name: &str) -> anyhow::Result<String> {
        let address = self.control().with_model(|model| {
            let host = model.db.vm_hosts.values().find(|host| host.name == name);
            host.map(|host| host.power_address.clone())
        });
        address.with_context(|| format!("there is no host {name}"))
    }
}
