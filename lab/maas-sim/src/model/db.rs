//! MAAS's half of the model: the content of its database, and thus of a backup.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use jiff::Timestamp;

use super::{
    Status,
    net::Cidr,
    records::{RecordKind, Row},
};
pub use super::{kinds::*, sequences::*};
use crate::config::ApiKey;

/// A user of MAAS.
#[derive(Clone, Debug)]
pub struct User {
    pub id: i64,
    pub name: String,
    pub email: String,
    pub admin: bool,
    pub local: bool,
    pub keys: Vec<UserKey>,
}

/// One API key of a user.
#[derive(Clone, Debug)]
pub struct UserKey {
    pub name: String,
    pub key: ApiKey,
}

/// Zones and pools: a name with a description.
#[derive(Clone, Debug)]
pub struct Named {
    pub id: i64,
    pub name: String,
    pub description: String,
}

/// A DNS domain.
#[derive(Clone, Debug)]
pub struct Domain {
    pub id: i64,
    pub name: String,
    pub authoritative: bool,
    pub ttl: Option<i64>,
}

/// A fabric.
#[derive(Clone, Debug)]
pub struct Fabric {
    pub id: i64,
    pub name: String,
    pub class_type: Option<String>,
}

/// A VLAN.
#[derive(Clone, Debug)]
pub struct Vlan {
    pub id: i64,
    pub fabric: i64,
    pub vid: i64,
    pub name: String,
    pub mtu: i64,
    pub dhcp_on: bool,
    pub space: Option<i64>,
}

/// A subnet.
#[derive(Clone, Debug)]
pub struct Subnet {
    pub id: i64,
    pub name: String,
    pub cidr: Cidr,
    pub vlan: i64,
    pub gateway_ip: Option<IpAddr>,
    pub dns_servers: Vec<String>,
    pub managed: bool,
    pub allow_dns: bool,
    pub allow_proxy: bool,
    pub active_discovery: bool,
    pub rdns_mode: i64,
    pub description: String,
}

/// A reserved or dynamic address range.
#[derive(Clone, Debug)]
pub struct IpRange {
    pub id: i64,
    pub dynamic: bool,
    pub start: IpAddr,
    pub end: IpAddr,
    pub subnet: i64,
    pub user: Option<i64>,
    pub comment: String,
}

/// A row of MAAS's address table. On an interface it is a link.
#[derive(Clone, Debug)]
pub struct Address {
    pub id: i64,
    pub ip: Option<IpAddr>,
    pub alloc: AllocType,
    pub subnet: Option<i64>,
    pub user: Option<i64>,
    pub created: Timestamp,
    /// The machine and interface that it is on.
    pub on: Option<(String, i64)>,
    /// MAC of an unmanaged device (`ipaddresses op=reserve mac=`), with the id of its interface.
    pub unknown_mac: Option<(i64, String)>,
}

/// A tag.
#[derive(Clone, Debug)]
pub struct Tag {
    pub id: i64,
    pub name: String,
    pub definition: String,
    pub comment: String,
    pub kernel_opts: String,
}

/// A name in a domain, with its addresses.
#[derive(Clone, Debug)]
pub struct DnsResource {
    pub id: i64,
    pub name: String,
    pub domain: i64,
    pub address_ttl: Option<i64>,
    /// Ids of addresses: a machine's address is bound to the machine, not copied.
    pub addresses: BTreeSet<i64>,
    pub records: Vec<Record>,
}

/// Any other DNS record of a name.
#[derive(Clone, Debug)]
pub struct Record {
    pub id: i64,
    pub rrtype: String,
    pub rrdata: String,
    pub ttl: Option<i64>,
}

/// An image.
#[derive(Clone, Debug)]
pub struct Image {
    pub id: i64,
    pub uploaded: bool,
    /// "ubuntu" or "custom".
    pub osystem: String,
    pub series: String,
    pub architecture: String,
    pub title: String,
    pub complete: bool,
    pub on_racks: bool,
    pub size: i64,
    pub sha256: String,
    pub filetype: String,
    pub version: String,
    pub last_deployed: Option<Timestamp>,
}

/// A rack controller.
#[derive(Clone, Debug)]
pub struct Rack {
    pub system_id: String,
    pub hostname: String,
    pub connected: bool,
}

/// An interface of a machine.
#[derive(Clone, Debug)]
pub struct Interface {
    pub id: i64,
    pub name: String,
    pub kind: InterfaceKind,
    pub mac: String,
    pub vlan: Option<i64>,
    pub parents: Vec<i64>,
    pub tags: Vec<String>,
    /// Ids of its addresses, both links and observed ones, in order of creation.
    pub addresses: Vec<i64>,
    /// A bridge created while Allocated: removed on release.
    pub acquired: bool,
    /// Created by a request: MAAS knows its parameters. An interface that was discovered on a host has none.
    pub has_params: bool,
    /// Parameters other than those of a bridge: the MTU, those of a bond.
    pub params: BTreeMap<String, serde_json::Value>,
    pub bridge_stp: bool,
    pub bridge_fd: i64,
    pub bridge_type: String,
    pub speed: i64,
    pub enabled: bool,
}

/// A partition of a disk.
#[derive(Clone, Debug)]
pub struct Partition {
    pub id: i64,
    pub efi: bool,
    pub size: i64,
}

/// A file system that needs no disk, such as tmpfs.
#[derive(Clone, Debug)]
pub struct SpecialFilesystem {
    pub fstype: String,
    pub mount_point: String,
    pub mount_options: String,
    /// It was mounted for an allocation.
    pub acquired: bool,
}

/// A disk.
#[derive(Clone, Debug)]
pub struct Disk {
    pub id: i64,
    pub name: String,
    pub size: i64,
    pub model: String,
    pub serial: String,
    pub tags: Vec<String>,
    pub storage_pool: Option<String>,
    pub partitions: Vec<Partition>,
}

/// The location of a machine that is a VM.
#[derive(Clone, Debug)]
pub struct VmRef {
    pub vm_host: i64,
    pub vm_id: Option<i64>,
}

/// A machine.
#[derive(Clone, Debug)]
pub struct Machine {
    pub id: i64,
    pub system_id: String,
    pub hostname: String,
    pub description: String,
    pub domain: i64,
    pub zone: i64,
    pub pool: i64,
    pub status: Status,
    /// The status to return to after rescue mode and testing.
    pub previous_status: Status,
    pub owner: Option<i64>,
    pub agent_name: String,
    pub annotations: BTreeMap<String, String>,
    pub tags: Vec<String>,
    pub locked: bool,
    pub architecture: String,
    pub cpu_count: i64,
    pub cpu_speed: i64,
    pub memory: i64,
    pub hardware_uuid: Option<String>,
    pub bios_boot_method: Option<String>,
    pub swap_size: Option<i64>,
    pub osystem: String,
    pub distro_series: String,
    pub hwe_kernel: Option<String>,
    pub min_hwe_kernel: Option<String>,
    pub netboot: bool,
    pub ephemeral_deploy: bool,
    pub enable_hw_sync: bool,
    pub last_sync: Option<Timestamp>,
    pub power_type: String,
    pub power_parameters: BTreeMap<String, String>,
    pub power_state: PowerState,
    pub status_message: Option<String>,
    pub error_description: String,
    pub commissioning: ScriptStatus,
    pub testing: ScriptStatus,
    pub commissioning_set: Option<i64>,
    pub testing_set: Option<i64>,
    pub installation_set: Option<i64>,
    pub enable_kernel_crash_dump: bool,
    /// The file systems of its allocation exist: from the allocation until a release begins.
    pub acquired_filesystems: bool,
    pub special_filesystems: Vec<SpecialFilesystem>,
    pub interfaces: Vec<Interface>,
    pub boot_interface: Option<i64>,
    pub gateway_link: Option<i64>,
    pub disks: Vec<Disk>,
    pub vm: Option<VmRef>,
    /// Composed by an allocate: deleted on release.
    pub dynamic: bool,
    /// Its hardware information comes from an LXD daemon on it.
    pub described_by_lxd: bool,
    /// Deployed as a VM host (`register_vmhost`, `install_kvm`).
    pub becomes_vm_host: bool,
    /// When the status times out. `None` in a transitional status is one of the inconsistent states after a crash.
    pub status_expires: Option<Timestamp>,
    /// Incremented by whatever ends or replaces the work in progress, so that scheduled steps of older work are
    /// ignored.
    pub work: u64,
}

/// A device: a node that MAAS does not manage.
#[derive(Clone, Debug)]
pub struct Device {
    /// The properties that it shares with a machine.
    pub node: Machine,
    pub parent: Option<String>,
}

/// A storage pool of a VM host, as last discovered.
#[derive(Clone, Debug, PartialEq)]
pub struct StoragePool {
    pub name: String,
    pub driver: String,
    pub path: String,
    pub total: i64,
}

/// An instance on a VM host, as last discovered.
#[derive(Clone, Debug)]
pub struct VirtualMachine {
    pub id: i64,
    pub name: String,
    pub project: String,
    pub cores: i64,
    pub memory: i64,
    /// Size and storage pool of each disk.
    pub disks: Vec<(i64, String)>,
    pub machine: Option<String>,
}

/// A registered VM host.
#[derive(Clone, Debug)]
pub struct VmHost {
    pub id: i64,
    pub name: String,
    pub kind: String,
    pub power_address: String,
    pub project: String,
    pub certificate: String,
    pub key: String,
    /// The trust password, deleted as soon as the daemon trusts the certificate.
    pub password: Option<String>,
    pub zone: i64,
    pub pool: i64,
    pub tags: Vec<String>,
    pub cpu_ratio: f64,
    pub memory_ratio: f64,
    pub macvlan_mode: Option<String>,
    pub default_storage_pool: Option<String>,
    /// Empty until MAAS has reached it.
    pub version: String,
    pub storage_pools: Vec<StoragePool>,
    /// Cores and MiB; set some seconds after the discovery.
    pub cores: i64,
    pub memory: i64,
    pub host: Option<String>,
    pub vms: Vec<VirtualMachine>,
}

impl VmHost {
    /// Whether MAAS has reached it at least once.
    pub fn discovered(&self) -> bool {
        !self.version.is_empty()
    }
}

/// A row of the event log.
#[derive(Clone, Debug)]
pub struct Event {
    pub id: i64,
    pub node: String,
    pub hostname: String,
    pub level: Level,
    pub kind: Cow<'static, str>,
    pub description: String,
    pub username: String,
    pub created: Timestamp,
}

#[derive(Clone, Debug, Default)]
pub struct Db {
    pub sequences: Sequences,
    pub users: BTreeMap<i64, User>,
    pub zones: BTreeMap<i64, Named>,
    pub pools: BTreeMap<i64, Named>,
    pub domains: BTreeMap<i64, Domain>,
    pub default_domain: i64,
    pub spaces: BTreeMap<i64, Named>,
    pub fabrics: BTreeMap<i64, Fabric>,
    pub vlans: BTreeMap<i64, Vlan>,
    pub subnets: BTreeMap<i64, Subnet>,
    pub ranges: BTreeMap<i64, IpRange>,
    pub addresses: BTreeMap<i64, Address>,
    /// The row of each address. No two rows have the same address, except observed ones.
    pub taken: BTreeMap<IpAddr, i64>,
    /// Addresses that were only observed on machines.
    pub observed: BTreeSet<IpAddr>,
    pub tags: BTreeMap<String, Tag>,
    pub dns: BTreeMap<i64, DnsResource>,
    pub images: BTreeMap<i64, Image>,
    pub racks: Vec<Rack>,
    pub settings: BTreeMap<String, serde_json::Value>,
    pub machines: BTreeMap<String, Machine>,
    /// The machine with a host name; maintained by `Model::rename`, `add_row` and `remove_machine`.
    pub by_hostname: BTreeMap<String, String>,
    pub devices: BTreeMap<String, Device>,
    pub vm_hosts: BTreeMap<i64, VmHost>,
    pub events: Vec<Event>,
    /// What MAAS stores and nothing here depends on, by kind and id.
    pub records: BTreeMap<(RecordKind, i64), Row>,
}
