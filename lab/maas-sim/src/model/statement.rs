//! Statements about the state of a simulator. ARRANGE.md documents them for users.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::config::ApiKey;

/// A name or an id.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum Ref {
    Id(i64),
    Name(String),
}

impl Ref {
    /// As text, for look-ups that accept both.
    pub fn text(&self) -> String {
        match self {
            Ref::Id(id) => id.to_string(),
            Ref::Name(name) => name.clone(),
        }
    }
}

/// Distinguishes "null" from "not given".
#[allow(clippy::option_option)]
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}

/// One statement.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statement {
    User(UserState),
    Zone(NamedState),
    Pool(NamedState),
    Domain(DomainState),
    Space(NamedState),
    Fabric(FabricState),
    Vlan(VlanState),
    Subnet(SubnetState),
    IpRange(RangeState),
    IpAddress(AddressState),
    Tag(TagState),
    Dns(DnsState),
    Image(ImageState),
    Rack(RackState),
    Config(BTreeMap<String, Value>),
    Machine(Box<MachineState>),
    Interface(Box<InterfaceStatement>),
    VmHost(Box<VmHostState>),
    Lxd(Box<LxdState>),
    Event(EventState),
    Sequence(BTreeMap<String, i64>),
    Absent(BTreeMap<String, Ref>),
    Clock(ClockState),
    Advance(AdvanceState),
    Settle(SettleState),
    Backup(NameState),
    Restore(NameState),
    Reset(ResetState),
}

macro_rules! state {
    ($(#[$doc:meta])* $name:ident { $($(#[$attr:meta])* $field:ident : $kind:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name { $($(#[$attr])* pub $field: $kind,)* }
    };
}

state! {
    /// A user.
    UserState {
        name: String,
        id: Option<i64>,
        admin: Option<bool>,
        email: Option<String>,
        local: Option<bool>,
        key: Option<ApiKey>,
        keys: Option<Vec<ApiKey>>,
    }
}
state! {
    /// A zone, a pool or a space.
    NamedState { name: Option<String>, id: Option<i64>, description: Option<String>, }
}
state! {
    /// A domain.
    DomainState {
        name: Option<String>,
        id: Option<i64>,
        authoritative: Option<bool>,
        #[serde(deserialize_with = "present")]
        ttl: Option<Option<i64>>,
    }
}
state! {
    /// A fabric.
    FabricState { name: Option<String>, id: Option<i64>, vlan_id: Option<i64>, }
}
state! {
    /// A VLAN.
    VlanState {
        id: Option<i64>,
        fabric: Option<Ref>,
        vid: Option<i64>,
        name: Option<String>,
        mtu: Option<i64>,
        dhcp_on: Option<bool>,
        #[serde(deserialize_with = "present")]
        space: Option<Option<String>>,
    }
}
state! {
    /// A subnet.
    SubnetState {
        cidr: Option<String>,
        id: Option<i64>,
        name: Option<String>,
        vlan: Option<i64>,
        #[serde(deserialize_with = "present")]
        gateway_ip: Option<Option<String>>,
        dns_servers: Option<Vec<String>>,
        managed: Option<bool>,
        description: Option<String>,
        dhcp: Option<bool>,
    }
}
state! {
    /// An address range.
    RangeState {
        id: Option<i64>,
        #[serde(rename = "type")]
        kind: Option<String>,
        start_ip: String,
        end_ip: Option<String>,
        subnet: Option<Ref>,
        user: Option<String>,
        comment: Option<String>,
    }
}
state! {
    /// An address that is in use, or free.
    AddressState { ip: String, user: Option<String>, kind: Option<String>, free: bool, }
}
state! {
    /// A tag.
    TagState {
        name: String,
        comment: Option<String>,
        definition: Option<String>,
        kernel_opts: Option<String>,
        machines: Option<Vec<String>>,
    }
}
state! {
    /// A DNS name.
    DnsState {
        fqdn: String,
        id: Option<i64>,
        #[serde(deserialize_with = "present")]
        ttl: Option<Option<i64>>,
        ip_addresses: Option<Vec<String>>,
        user: Option<String>,
        records: Option<Vec<RecordState>>,
    }
}
state! {
    /// Another DNS record of a name.
    RecordState { id: Option<i64>, rrtype: String, rrdata: String, ttl: Option<i64>, }
}
state! {
    /// An image.
    ImageState {
        name: String,
        id: Option<i64>,
        architecture: Option<String>,
        title: Option<String>,
        complete: Option<bool>,
        on_racks: Option<bool>,
        size: Option<i64>,
        last_deployed: Option<String>,
    }
}
state! {
    /// The rack controller.
    RackState { system_id: Option<String>, hostname: Option<String>, connected: Option<bool>, }
}
state! {
    /// A machine.
    MachineState {
        system_id: Option<String>,
        hostname: Option<String>,
        id: Option<i64>,
        status: Option<String>,
        #[serde(deserialize_with = "present")]
        owner: Option<Option<String>>,
        power: Option<String>,
        power_known: Option<String>,
        power_type: Option<String>,
        power_parameters: Option<BTreeMap<String, String>>,
        bmc: Option<String>,
        next: Option<BTreeMap<String, String>>,
        zone: Option<String>,
        pool: Option<String>,
        domain: Option<String>,
        tags: Option<Vec<String>>,
        description: Option<String>,
        agent_name: Option<String>,
        locked: Option<bool>,
        netboot: Option<bool>,
        #[serde(deserialize_with = "present")]
        swap_size: Option<Option<i64>>,
        #[serde(deserialize_with = "present")]
        status_message: Option<Option<String>>,
        error_description: Option<String>,
        annotations: Option<BTreeMap<String, String>>,
        osystem: Option<String>,
        distro_series: Option<String>,
        #[serde(deserialize_with = "present")]
        hwe_kernel: Option<Option<String>>,
        ephemeral_deploy: Option<bool>,
        enable_hw_sync: Option<bool>,
        architecture: Option<String>,
        cpu_count: Option<i64>,
        cpu_speed: Option<i64>,
        memory: Option<i64>,
        #[serde(deserialize_with = "present")]
        hardware_uuid: Option<Option<String>>,
        #[serde(deserialize_with = "present")]
        bios_boot_method: Option<Option<String>>,
        disks: Option<Vec<DiskState>>,
        interfaces: Option<Vec<InterfaceState>>,
        commissioned: Option<bool>,
        vm_host: Option<Ref>,
        dynamic: Option<bool>,
        #[serde(deserialize_with = "present")]
        vm_id: Option<Option<i64>>,
    }
}

/// A disk: a size in bytes, or more about it.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum DiskState {
    Size(i64),
    Full(DiskFields),
}

state! {
    /// A disk in detail.
    DiskFields {
        name: Option<String>,
        size: i64,
        id: Option<i64>,
        model: String,
        serial: String,
        tags: Vec<String>,
        pool: Option<String>,
    }
}
state! {
    /// An interface of a machine.
    InterfaceState {
        name: Option<String>,
        id: Option<i64>,
        mac: Option<String>,
        #[serde(rename = "type")]
        kind: Option<String>,
        #[serde(deserialize_with = "present")]
        vlan: Option<Option<i64>>,
        parents: Option<Vec<String>>,
        links: Option<Vec<LinkState>>,
        discovered: Option<Vec<String>>,
        tags: Option<Vec<String>>,
        acquired: Option<bool>,
        bridge_stp: Option<bool>,
        bridge_fd: Option<i64>,
    }
}
state! {
    /// A link of an interface.
    LinkState { id: Option<i64>, mode: String, subnet: Option<Ref>, ip_address: Option<String>, }
}

/// One interface of an existing machine.
#[derive(Clone, Debug, Deserialize)]
pub struct InterfaceStatement {
    pub machine: String,
    #[serde(flatten)]
    pub fields: BTreeMap<String, Value>,
}

state! {
    /// A registered VM host.
    VmHostState {
        id: Option<i64>,
        name: Option<String>,
        power_address: Option<String>,
        project: Option<String>,
        #[serde(rename = "type")]
        kind: Option<String>,
        zone: Option<String>,
        pool: Option<String>,
        tags: Option<Vec<String>>,
        cpu_over_commit_ratio: Option<f64>,
        memory_over_commit_ratio: Option<f64>,
        #[serde(deserialize_with = "present")]
        default_macvlan_mode: Option<Option<String>>,
        certificate: Option<String>,
        key: Option<String>,
        counted: Option<bool>,
        discovered: Option<bool>,
        host: Option<String>,
    }
}

/// Which certificates a daemon trusts.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum TrustState {
    Word(String),
    List(Vec<String>),
}

state! {
    /// A simulated LXD daemon.
    LxdState {
        address: String,
        version: Option<String>,
        cores: Option<i64>,
        memory: Option<i64>,
        storage_pools: Option<Vec<StoragePoolState>>,
        reachable: Option<bool>,
        #[serde(deserialize_with = "present")]
        password: Option<Option<String>>,
        trusted: Option<TrustState>,
        #[serde(deserialize_with = "present")]
        host: Option<Option<String>>,
        macs: Option<Vec<String>>,
        networks: Option<Vec<String>>,
        #[serde(rename = "virtual")]
        in_vm: Option<bool>,
        os_name: Option<String>,
        os_version: Option<String>,
        restricted: Option<bool>,
        instances: Option<Vec<InstanceState>>,
    }
}

state! {
    /// A storage pool.
    StoragePoolState { name: String, driver: Option<String>, path: Option<String>, total: Option<i64>, }
}
state! {
    /// An instance in LXD.
    InstanceState {
        project: Option<String>,
        name: String,
        cores: Option<i64>,
        memory: Option<i64>,
        disks: Option<Vec<i64>>,
        mac: Option<String>,
        running: Option<bool>,
        absent: bool,
    }
}
state! {
    /// A row of the event log.
    EventState {
        machine: Option<String>,
        #[serde(rename = "type")]
        kind: String,
        level: Option<String>,
        description: Option<String>,
        username: Option<String>,
        id: Option<i64>,
        created: Option<String>,
    }
}
state! {
    /// The clock.
    ClockState { now: String, }
}
state! {
    /// Advances the clock.
    AdvanceState { seconds: f64, }
}
state! {
    /// Completes work in progress.
    SettleState { machine: Option<String>, }
}
state! {
    /// Resets to a fresh installation.
    ResetState { }
}
state! {
    /// The name of a backup.
    NameState { name: String, }
}
