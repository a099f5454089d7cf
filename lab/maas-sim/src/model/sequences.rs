//! The ids that MAAS assigns, per table.

use std::collections::BTreeMap;

/// Tables that assign ids.
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
    /// By the name in a `sequence` statement.
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

/// The next id of every table.
#[derive(Clone, Debug, Default)]
pub struct Sequences(BTreeMap<Table, i64>);

impl Sequences {
    /// A new id.
    pub fn take(&mut self, table: Table) -> i64 {
        let next = self.0.entry(table).or_insert(1);
        let taken = *next;
        *next += 1;
        taken
    }

    /// Sets the next id.
    pub fn set(&mut self, table: Table, next: i64) {
        self.0.insert(table, next);
    }

    /// An id was fixed from outside: never assign it.
    pub fn used(&mut self, table: Table, id: i64) {
        let next = self.0.entry(table).or_insert(1);
        *next = (*next).max(id + 1);
    }
}
