//! Inventories: a YAML file that describes what a MAAS manages, and a generator of such files.

use serde::Deserialize;

use super::{
    Model,
    statement::{
        DnsState, DomainState, FabricState, ImageState, LxdState, MachineState, NamedState, RangeState, Statement,
        SubnetState, TagState, UserState, VlanState, VmHostState,
    },
};
use crate::config::Durations;

/// The file. Its lists contain the objects of ARRANGE.md.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Inventory {
    pub durations: Option<Durations>,
    pub users: Vec<UserState>,
    pub zones: Vec<NamedState>,
    pub pools: Vec<NamedState>,
    pub domains: Vec<DomainState>,
    pub spaces: Vec<NamedState>,
    pub fabrics: Vec<FabricState>,
    pub vlans: Vec<VlanState>,
    pub subnets: Vec<SubnetState>,
    pub ip_ranges: Vec<RangeState>,
    pub images: Vec<ImageState>,
    pub tags: Vec<TagState>,
    pub machines: Vec<MachineState>,
    pub lxd: Vec<LxdState>,
    pub vm_hosts: Vec<VmHostState>,
    pub dns: Vec<DnsState>,
}

/// An inventory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// Not YAML of that structure.
    #[error("the inventory cannot be read: {0}")]
    Yaml(String),
    /// An invalid entry.
    #[error("entry {index} of '{list}' in the inventory: {reason}")]
    Entry {
        list: &'static str,
        /// The index of the entry, from 0.
        index: usize,
        reason: String,
    },
}

impl Inventory {
    /// Reads a file's text. The parser's own limits are for files of strangers, and a large data centre exceeds them.
    pub fn parse(text: &str) -> Result<Self, InventoryError> {
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_events: 100_000_000,
                max_nodes: 50_000_000,
                max_total_scalar_bytes: 1 << 30,
            },
        };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| InventoryError::Yaml(error.to_string()))
    }

    fn statements(&self) -> Vec<(&'static str, usize, Statement)> {
        let mut all = Vec::new();
        macro_rules! take {
            ($list:ident, $make:expr) => {
                for (index, state) in self.$list.iter().cloned().enumerate() {
                    all.push((stringify!($list), index, $make(state)));
                }
            };
        }
        take!(users, Statement::User);
        take!(zones, Statement::Zone);
        take!(pools, Statement::Pool);
        take!(domains, Statement::Domain);
        take!(spaces, Statement::Space);
        take!(fabrics, Statement::Fabric);
        take!(vlans, Statement::Vlan);
        take!(subnets, Statement::Subnet);
        take!(ip_ranges, Statement::IpRange);
        take!(images, Statement::Image);
        take!(tags, Statement::Tag);
        // A VM needs its host, and a host needs its machine.
        let machines = self.machines.iter().cloned().enumerate();
        let machines = machines.map(|(index, state)| ("machines", index, Statement::Machine(Box::new(state))));
        let (vms, metal): (Vec<_>, Vec<_>) =
            machines.partition(|(_, _, it)| matches!(it, Statement::Machine(state) if state.vm_host.is_some()));
        all.extend(metal);
        take!(lxd, |state| Statement::Lxd(Box::new(state)));
        take!(vm_hosts, |state| Statement::VmHost(Box::new(state)));
        all.extend(vms);
        take!(dns, Statement::Dns);
        all
    }
}

impl Model {
    /// Fills the model from an inventory.
    pub fn load(&mut self, inventory: &Inventory) -> Result<(), InventoryError> {
        if let Some(durations) = &inventory.durations {
            self.durations = durations.clone();
        }
        for (list, index, statement) in inventory.statements() {
            self.arrange(&statement).map_err(|reason| InventoryError::Entry { list, index, reason })?;
        }
        Ok(())
    }
}

/// Writes an inventory of `machines` machines: three zones, three pools, a subnet that is large enough, every tenth
/// machine an LXD host with its own daemon.
pub fn generate(machines: usize) -> String {
    use std::fmt::Write as _;

    let mut text = String::from(
        "# Made by `maas-sim generate`. The keys are those of ARRANGE.md.\n\
         zones:\n- {name: az1}\n- {name: az2}\n- {name: az3}\n\
         pools:\n- {name: pool-a}\n- {name: pool-b}\n\
         domains:\n- {name: k8s.example, ttl: 30}\n",
    );
    let (cidr, gateway) = if machines > 200 { ("10.0.0.0/16", "10.0.255.254") } else { ("10.0.0.0/24", "10.0.0.254") };
    let (first, last) = if machines > 200 { ("10.0.250.1", "10.0.250.250") } else { ("10.0.0.200", "10.0.0.250") };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "subnets:\n- {{cidr: {cidr}, gateway_ip: {gateway}, dns_servers: [10.0.0.1], dhcp: true}}");
    let _ = writeln!(text, "ip_ranges:\n- {{type: dynamic, start_ip: {first}, end_ip: {last}}}");
    text.push_str("machines:\n");
    for index in 0..machines {
        let zone = index % 3 + 1;
        let pool = ["default", "pool-a", "pool-b"].get(index / 3 % 3).copied().unwrap_or("default");
        let (cores, memory) = [(4, 8192), (8, 32768), (16, 65536)].get(index % 3).copied().unwrap_or((4, 8192));
        let _ = writeln!(
            text,
            "- {{hostname: m{index:05}, zone: az{zone}, pool: {pool}, cpu_count: {cores}, memory: {memory}, disks: [500000000000]}}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_generated_inventory_can_be_loaded() {
        let inventory = Inventory::parse(&generate(10)).unwrap();
        let mut model = Model::new(&Config::driven("a:b:c".parse().unwrap()));
        model.load(&inventory).unwrap();
        assert_eq!(model.db.machines.len(), 10);
        assert!(model.db.machines.values().all(|machine| machine.status == super::super::Status::Ready));
    }

    #[test]
    fn an_inventory_may_have_more_entries_than_the_parser_allows_strangers() {
        let tags = vec!["t"; 300_000].join(", ");
        assert_eq!(
            Inventory::parse(&format!("machines:\n- {{hostname: x, tags: [{tags}]}}\n")).unwrap().machines.len(),
            1
        );
    }

    #[test]
    fn vms_are_made_after_their_hosts_with_disks_in_the_pools_that_are_named() {
        let text = "lxd:\n- {address: '192.0.2.1:8443', cores: 8, memory: 16384, host: bm, storage_pools: [{name: a, total: 100}, {name: b, total: 100}]}\n\
            machines:\n- {hostname: vm, cpu_count: 2, memory: 2048, vm_host: h, disks: [{size: 7, pool: b}]}\n- {hostname: bm, status: Deployed}\n\
            vm_hosts:\n- {name: h, power_address: '192.0.2.1:8443'}\n";
        let mut model = Model::new(&Config::driven("a:b:c".parse().unwrap()));
        model.load(&Inventory::parse(text).unwrap()).unwrap();
        let host = model.db.vm_hosts.values().next().unwrap();
        assert_eq!(super::super::vm_hosts::used(host), (2, 2048, 7));
        let used: Vec<i64> =
            host.storage_pools.iter().map(|pool| super::super::vm_hosts::pool_used(host, pool)).collect();
        assert_eq!(used, [0, 7]);
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_it() {
        let error = Inventory::parse("machines:\n- {hostnam: x}\n").unwrap_err();
        assert!(error.to_string().contains("hostnam"), "{error}");
    }
}
