//! Numbers that MAAS hands out, table by table.

use std::collections::BTreeMap;

/// Tables that hand out numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    User,
    Zone,
    Pool,
    Domain,
    Space,
    Fabric,
    Vlan,
    Subnet,
    IpRange,
    /// Addresses; the id of an interface's link is the id of its address.
    Link,
    Tag,
    Dns,
    Record,
    Image,
    Machine,
    Interface,
    BlockDevice,
    Partition,
    ScriptSet,
    VmHost,
    Vm,
    Event,
}

impl Table {
    /// By the word of a `sequence` statement.
    pub fn parse(word: &str) -> Option<Table> {
        Some(match word {
            "user" => Table::User,
            "zone" => Table::Zone,
            "pool" => Table::Pool,
            "domain" => Table::Domain,
            "space" => Table::Space,
            "fabric" => Table::Fabric,
            "vlan" => Table::Vlan,
            "subnet" => Table::Subnet,
            "ip_range" => Table::IpRange,
            "link" | "ip_address" => Table::Link,
            "tag" => Table::Tag,
            "dns" => Table::Dns,
            "record" => Table::Record,
            "image" => Table::Image,
            "machine" => Table::Machine,
            "interface" => Table::Interface,
            "block_device" => Table::BlockDevice,
            "partition" => Table::Partition,
            "script_set" => Table::ScriptSet,
            "vm_host" => Table::VmHost,
            "vm" => Table::Vm,
            "event" => Table::Event,
            _ => return None,
        })
    }
}

/// Next number of every table.
#[derive(Clone, Debug, Default)]
pub struct Sequences(BTreeMap<Table, i64>);

impl Sequences {
    /// A new number.
    pub fn take(&mut self, table: Table) -> i64 {
        let next = self.0.entry(table).or_insert(1);
        let taken = *next;
        *next += 1;
        taken
    }

    /// What is taken next.
    pub fn set(&mut self, table: Table, next: i64) {
        self.0.insert(table, next);
    }

    /// A number was fixed from outside: never hand it out.
    pub fn used(&mut self, table: Table, id: i64) {
        let next = self.0.entry(table).or_insert(1);
        *next = (*next).max(id + 1);
    }
}
