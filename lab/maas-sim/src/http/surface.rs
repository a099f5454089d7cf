//! The API surface: the existing URLs, and the methods and operations of each. Dispatch and `describe/` both use it.
//!
//! The operations of a kind of resource are an enum, and its handler matches on it: an operation that is listed here
//! but not handled there does not compile.

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// `op`, or one of create, read, update and delete.
    pub name: &'static str,
    pub method: &'static str,
    /// Selected by the method alone, without `op`.
    pub restful: bool,
}

impl Operation {
    const CREATE: Self = Self { name: "create", method: "POST", restful: true };
    const READ: Self = Self { name: "read", method: "GET", restful: true };
    const UPDATE: Self = Self { name: "update", method: "PUT", restful: true };
    const DELETE: Self = Self { name: "delete", method: "DELETE", restful: true };

    const fn get(name: &'static str) -> Self {
        Self { name, method: "GET", restful: false }
    }

    const fn post(name: &'static str) -> Self {
        Self { name, method: "POST", restful: false }
    }
}

macro_rules! crud {
    (Create) => {
        Operation::CREATE
    };
    (Read) => {
        Operation::READ
    };
    (Update) => {
        Operation::UPDATE
    };
    (Delete) => {
        Operation::DELETE
    };
}

macro_rules! actions {
    ($($(#[$doc:meta])* $kind:ident:
        crud [$($crud:ident)*], get [$($get:ident $get_op:literal)*], post [$($post:ident $post_op:literal)*];)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kind { $($crud,)* $($get,)* $($post,)* }

        impl $kind {
            const OPERATIONS: &'static [(Operation, Self)] = &[
                $((crud!($crud), Self::$crud),)*
                $((Operation::get($get_op), Self::$get),)*
                $((Operation::post($post_op), Self::$post),)*
            ];
        }
    )*};
}

macro_rules! resources {
    ($($variant:ident($kind:ident), $handler:literal, $path:literal;)*) => {
        /// What a request asks for: an operation of a resource.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Action { $($variant($kind),)* }

        /// Every resource with its path. Fixed paths come before those with parameters.
        pub const ROUTES: &[Route] = &[$(
            Route {
                handler: $handler,
                path: $path,
                operations: || $kind::OPERATIONS.iter().map(|(operation, _)| *operation).collect(),
                find: |wanted| {
                    let found = $kind::OPERATIONS.iter().find(|(operation, _)| wanted(operation));
                    found.map(|(operation, action)| (*operation, Action::$variant(*action)))
                },
            },
        )*];
    };
}

/// Whether an operation is the requested one.
pub type Wanted<'a> = &'a dyn Fn(&Operation) -> bool;

/// One resource.
#[derive(Debug)]
pub struct Route {
    /// Name of MAAS's handler class.
    pub handler: &'static str,
    /// Path under the API's root, with parameters in braces.
    pub path: &'static str,
    /// Its operations, in the order of the `Allow` header.
    pub operations: fn() -> Vec<Operation>,
    /// The first matching operation.
    pub find: fn(Wanted<'_>) -> Option<(Operation, Action)>,
}

actions! {
    /// Of a collection.
    Collection: crud [Create Read], get [], post [];
    /// Of one object.
    Item: crud [Read Delete Update], get [], post [];
    /// Of what is read-only.
    Shown: crud [Read], get [], post [];
    /// Of one object that cannot be updated.
    Kept: crud [Read Delete], get [], post [];
    AccountAction: crud [], get [ListTokens "list_authorisation_tokens"],
        post [CreateToken "create_authorisation_token" DeleteToken "delete_authorisation_token" UpdateTokenName "update_token_name"];
    BlockDeviceAction: crud [Read Delete Update], get [],
        post [AddTag "add_tag" Format "format" Mount "mount" RemoveTag "remove_tag" SetBootDisk "set_boot_disk" Unformat "unformat" Unmount "unmount"];
    BootResourcesAction: crud [Create Read], get [IsImporting "is_importing"], post [Import "import" StopImport "stop_import"];
    DeviceAction: crud [Read Delete Update], get [Details "details" PowerParameters "power_parameters"],
        post [RestoreDefault "restore_default_configuration" RestoreNetworking "restore_networking_configuration" SetOwnerData "set_owner_data" SetWorkloadAnnotations "set_workload_annotations"];
    DevicesAction: crud [Create Read], get [IsRegistered "is_registered" IsActionInProgress "is_action_in_progress"], post [SetZone "set_zone"];
    DhcpSnippetAction: crud [Read Delete Update], get [], post [Revert "revert"];
    DiscoveriesAction: crud [Read],
        get [ByUnknownIp "by_unknown_ip" ByUnknownIpAndMac "by_unknown_ip_and_mac" ByUnknownMac "by_unknown_mac"],
        post [Clear "clear" ClearByMacAndIp "clear_by_mac_and_ip" Scan "scan"];
    DomainAction: crud [Read Delete Update], get [], post [SetDefault "set_default"];
    DomainsAction: crud [Create Read], get [], post [SetSerial "set_serial"];
    EventsAction: crud [], get [Query "query"], post [];
    FilesAction: crud [Create Read Delete], get [Get "get" GetByKey "get_by_key"], post [];
    InterfaceAction: crud [Read Delete Update], get [],
        post [AddTag "add_tag" Disconnect "disconnect" LinkSubnet "link_subnet" RemoveTag "remove_tag" SetDefaultGateway "set_default_gateway" UnlinkSubnet "unlink_subnet"];
    InterfacesAction: crud [Read], get [],
        post [CreateBond "create_bond" CreateBridge "create_bridge" CreatePhysical "create_physical" CreateVlan "create_vlan"];
    IpAddressesAction: crud [Read], get [], post [Release "release" Reserve "reserve"];
    MaasAction: crud [], get [GetConfig "get_config"], post [SetConfig "set_config"];
    MachineAction: crud [Read Delete Update],
        get [Details "details" GetCurtinConfig "get_curtin_config" GetToken "get_token" PowerParameters "power_parameters" QueryPowerState "query_power_state"],
        post [
            Abort "abort" ClearDefaultGateways "clear_default_gateways" Commission "commission" Deploy "deploy"
            ExitRescueMode "exit_rescue_mode" Lock "lock" MarkBroken "mark_broken" MarkFixed "mark_fixed"
            MountSpecial "mount_special" OverrideFailedTesting "override_failed_testing" PowerOff "power_off"
            PowerOn "power_on" Release "release" RescueMode "rescue_mode"
            RestoreDefault "restore_default_configuration" RestoreNetworking "restore_networking_configuration"
            RestoreStorage "restore_storage_configuration" SetOwnerData "set_owner_data"
            SetStorageLayout "set_storage_layout" SetWorkloadAnnotations "set_workload_annotations" Test "test"
            Unlock "unlock" UnmountSpecial "unmount_special"
        ];
    MachinesAction: crud [Create Read],
        get [IsRegistered "is_registered" ListAllocated "list_allocated" PowerParameters "power_parameters" IsActionInProgress "is_action_in_progress"],
        post [Accept "accept" AcceptAll "accept_all" AddChassis "add_chassis" Allocate "allocate" Clone "clone" Release "release" SetZone "set_zone"];
    NetworkAction: crud [Read Delete Update], get [ListConnectedMacs "list_connected_macs"],
        post [ConnectMacs "connect_macs" DisconnectMacs "disconnect_macs"];
    NodeAction: crud [Read Delete], get [Details "details" PowerParameters "power_parameters"], post [];
    NodesAction: crud [Read], get [IsRegistered "is_registered" IsActionInProgress "is_action_in_progress"], post [SetZone "set_zone"];
    NotificationAction: crud [Read Delete Update], get [], post [Dismiss "dismiss"];
    PartitionAction: crud [Read Delete], get [],
        post [AddTag "add_tag" Format "format" Mount "mount" RemoveTag "remove_tag" Unformat "unformat" Unmount "unmount"];
    RackControllerAction: crud [Read Delete Update],
        get [Details "details" ListBootImages "list_boot_images" PowerParameters "power_parameters" QueryPowerState "query_power_state"],
        post [Abort "abort" ImportBootImages "import_boot_images" OverrideFailedTesting "override_failed_testing" PowerOff "power_off" PowerOn "power_on" Test "test"];
    RackControllersAction: crud [Read],
        get [DescribePowerTypes "describe_power_types" IsRegistered "is_registered" PowerParameters "power_parameters"],
        post [ImportBootImages "import_boot_images" SetZone "set_zone"];
    RegionControllerAction: crud [Read Delete Update], get [Details "details" PowerParameters "power_parameters"], post [];
    RegionControllersAction: crud [Read], get [IsRegistered "is_registered"], post [SetZone "set_zone"];
    ResultAction: crud [Read Delete Update], get [Download "download"], post [];
    ScriptAction: crud [Read Delete Update], get [Download "download"], post [AddTag "add_tag" RemoveTag "remove_tag" Revert "revert"];
    SshKeysAction: crud [Create Read], get [], post [Import "import"];
    SubnetAction: crud [Read Delete Update],
        get [IpAddresses "ip_addresses" ReservedIpRanges "reserved_ip_ranges" Statistics "statistics" UnreservedIpRanges "unreserved_ip_ranges"], post [];
    TagAction: crud [Read Delete Update],
        get [Devices "devices" Machines "machines" Nodes "nodes" RackControllers "rack_controllers" RegionControllers "region_controllers"],
        post [Rebuild "rebuild" UpdateNodes "update_nodes"];
    UsersAction: crud [Create Read], get [Whoami "whoami"], post [];
    VmHostAction: crud [Read Delete Update], get [Parameters "parameters"],
        post [AddTag "add_tag" Compose "compose" Refresh "refresh" RemoveTag "remove_tag"];
    VolumeGroupAction: crud [Read Delete Update], get [],
        post [CreateLogicalVolume "create_logical_volume" DeleteLogicalVolume "delete_logical_volume"];
}

resources! {
    Account(AccountAction), "AccountHandler", "account/";
    BootResources(BootResourcesAction), "BootResourcesHandler", "boot-resources/";
    BootResource(Kept), "BootResourceHandler", "boot-resources/{id}/";
    BootSources(Collection), "BootSourcesHandler", "boot-sources/";
    BootSource(Item), "BootSourceHandler", "boot-sources/{id}/";
    BootSourceSelections(Collection), "BootSourceSelectionsHandler", "boot-sources/{boot_source_id}/selections/";
    BootSourceSelection(Item), "BootSourceSelectionHandler", "boot-sources/{boot_source_id}/selections/{id}/";
    CommissioningScripts(Collection), "CommissioningScriptsHandler", "commissioning-scripts/";
    CommissioningScript(Item), "CommissioningScriptHandler", "commissioning-scripts/{name}";
    Devices(DevicesAction), "DevicesHandler", "devices/";
    Device(DeviceAction), "DeviceHandler", "devices/{system_id}/";
    DhcpSnippets(Collection), "DHCPSnippetsHandler", "dhcp-snippets/";
    DhcpSnippet(DhcpSnippetAction), "DHCPSnippetHandler", "dhcp-snippets/{id}/";
    Discoveries(DiscoveriesAction), "DiscoveriesHandler", "discovery/";
    Discovery(Shown), "DiscoveryHandler", "discovery/{discovery_id}/";
    DnsRecords(Collection), "DNSResourceRecordsHandler", "dnsresourcerecords/";
    DnsRecord(Item), "DNSResourceRecordHandler", "dnsresourcerecords/{id}/";
    DnsResources(Collection), "DNSResourcesHandler", "dnsresources/";
    DnsResource(Item), "DNSResourceHandler", "dnsresources/{id}/";
    Domains(DomainsAction), "DomainsHandler", "domains/";
    Domain(DomainAction), "DomainHandler", "domains/{id}/";
    Events(EventsAction), "EventsHandler", "events/";
    Fabrics(Collection), "FabricsHandler", "fabrics/";
    Fabric(Item), "FabricHandler", "fabrics/{id}/";
    Vlans(Collection), "VlansHandler", "fabrics/{fabric_id}/vlans/";
    Vlan(Item), "VlanHandler", "fabrics/{fabric_id}/vlans/{vid}/";
    VlanById(Item), "VlanHandler", "vlans/{id}/";
    Files(FilesAction), "FilesHandler", "files/";
    File(Kept), "FileHandler", "files/{filename}/";
    InstallationResults(Shown), "NodeResultsHandler", "installation-results/";
    IpAddresses(IpAddressesAction), "IPAddressesHandler", "ipaddresses/";
    IpRanges(Collection), "IPRangesHandler", "ipranges/";
    IpRange(Item), "IPRangeHandler", "ipranges/{id}/";
    LicenseKeys(Collection), "LicenseKeysHandler", "license-keys/";
    LicenseKey(Item), "LicenseKeyHandler", "license-key/{osystem}/{distro_series}";
    Maas(MaasAction), "MaasHandler", "maas/";
    Machines(MachinesAction), "MachinesHandler", "machines/";
    Machine(MachineAction), "MachineHandler", "machines/{system_id}/";
    Networks(Collection), "NetworksHandler", "networks/";
    Network(NetworkAction), "NetworkHandler", "networks/{name}/";
    Nodes(NodesAction), "NodesHandler", "nodes/";
    Node(NodeAction), "NodeHandler", "nodes/{system_id}/";
    Interfaces(InterfacesAction), "InterfacesHandler", "nodes/{system_id}/interfaces/";
    Interface(InterfaceAction), "InterfaceHandler", "nodes/{system_id}/interfaces/{id}/";
    Bcaches(Collection), "BcachesHandler", "nodes/{system_id}/bcaches/";
    Bcache(Item), "BcacheHandler", "nodes/{system_id}/bcache/{id}/";
    BcacheCacheSets(Collection), "BcacheCacheSetsHandler", "nodes/{system_id}/bcache-cache-sets/";
    BcacheCacheSet(Item), "BcacheCacheSetHandler", "nodes/{system_id}/bcache-cache-set/{id}/";
    BlockDevices(Collection), "BlockDevicesHandler", "nodes/{system_id}/blockdevices/";
    BlockDevice(BlockDeviceAction), "BlockDeviceHandler", "nodes/{system_id}/blockdevices/{id}/";
    Partitions(Collection), "PartitionsHandler", "nodes/{system_id}/blockdevices/{device_id}/partitions/";
    Partition(PartitionAction), "PartitionHandler", "nodes/{system_id}/blockdevices/{device_id}/partition/{id}";
    NodeDevices(Shown), "NodeDevicesHandler", "nodes/{system_id}/devices/";
    NodeDevice(Kept), "NodeDeviceHandler", "nodes/{system_id}/devices/{id}/";
    Raids(Collection), "RaidsHandler", "nodes/{system_id}/raids/";
    Raid(Item), "RaidHandler", "nodes/{system_id}/raid/{id}/";
    ScriptResults(Shown), "NodeScriptResultsHandler", "nodes/{system_id}/results/";
    ScriptResult(ResultAction), "NodeScriptResultHandler", "nodes/{system_id}/results/{id}/";
    VmfsDatastores(Collection), "VmfsDatastoresHandler", "nodes/{system_id}/vmfs-datastores/";
    VmfsDatastore(Item), "VmfsDatastoreHandler", "nodes/{system_id}/vmfs-datastore/{id}/";
    VolumeGroups(Collection), "VolumeGroupsHandler", "nodes/{system_id}/volume-groups/";
    VolumeGroup(VolumeGroupAction), "VolumeGroupHandler", "nodes/{system_id}/volume-group/{id}/";
    Notifications(Collection), "NotificationsHandler", "notifications/";
    Notification(NotificationAction), "NotificationHandler", "notifications/{id}/";
    PackageRepositories(Collection), "PackageRepositoriesHandler", "package-repositories/";
    PackageRepository(Item), "PackageRepositoryHandler", "package-repositories/{id}/";
    Pods(Collection), "PodsHandler", "pods/";
    Pod(VmHostAction), "PodHandler", "pods/{id}/";
    RackControllers(RackControllersAction), "RackControllersHandler", "rackcontrollers/";
    RackController(RackControllerAction), "RackControllerHandler", "rackcontrollers/{system_id}/";
    RegionControllers(RegionControllersAction), "RegionControllersHandler", "regioncontrollers/";
    RegionController(RegionControllerAction), "RegionControllerHandler", "regioncontrollers/{system_id}/";
    ResourcePool(Item), "ResourcePoolHandler", "resourcepool/{id}/";
    ResourcePools(Collection), "ResourcePoolsHandler", "resourcepools/";
    Scripts(Collection), "NodeScriptsHandler", "scripts/";
    Script(ScriptAction), "NodeScriptHandler", "scripts/{name}";
    Spaces(Collection), "SpacesHandler", "spaces/";
    Space(Item), "SpaceHandler", "spaces/{id}/";
    SshKeys(SshKeysAction), "SSHKeysHandler", "account/prefs/sshkeys/";
    SshKey(Kept), "SSHKeyHandler", "account/prefs/sshkeys/{id}/";
    SslKeys(Collection), "SSLKeysHandler", "account/prefs/sslkeys/";
    SslKey(Kept), "SSLKeyHandler", "account/prefs/sslkeys/{id}/";
    StaticRoutes(Collection), "StaticRoutesHandler", "static-routes/";
    StaticRoute(Item), "StaticRouteHandler", "static-routes/{id}/";
    Subnets(Collection), "SubnetsHandler", "subnets/";
    Subnet(SubnetAction), "SubnetHandler", "subnets/{id}/";
    Tags(Collection), "TagsHandler", "tags/";
    Tag(TagAction), "TagHandler", "tags/{name}/";
    Users(UsersAction), "UsersHandler", "users/";
    User(Kept), "UserHandler", "users/{username}/";
    Version(Shown), "VersionHandler", "version/";
    VmClusters(Shown), "VmClustersHandler", "vm-clusters/";
    VmCluster(Item), "VmClusterHandler", "vm-clusters/{id}";
    VmHosts(Collection), "VmHostsHandler", "vm-hosts/";
    VmHost(VmHostAction), "VmHostHandler", "vm-hosts/{id}/";
    Zones(Collection), "ZonesHandler", "zones/";
    Zone(Item), "ZoneHandler", "zones/{name}/";
    Describe(Shown), "describe", "describe/";
}
