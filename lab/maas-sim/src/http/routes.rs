//! The surface: which paths there are, which methods and operations each knows. Dispatch and `describe/` both read it.

use Resource as R;

macro_rules! resources {
    ($($variant:ident, $handler:literal, $path:literal, crud [$($crud:literal)*], get [$($get:literal)*], post [$($post:literal)*];)*) => {
        /// A kind of thing that has an address.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Resource { $($variant,)* }

        /// Every resource with its address and what can be done there. Fixed paths come before those with parameters.
        pub const ROUTES: &[Route] = &[$(
            Route {
                resource: R::$variant,
                handler: $handler,
                path: $path,
                crud: &[$($crud,)*],
                get_ops: &[$($get,)*],
                post_ops: &[$($post,)*],
            },
        )*];
    };
}

/// One resource.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Route {
    pub resource: Resource,
    /// Name of MAAS's handler class.
    pub handler: &'static str,
    /// Path under the API's root, with parameters in braces.
    pub path: &'static str,
    /// create, read, update, delete; in the order of the `Allow` header.
    pub crud: &'static [&'static str],
    pub get_ops: &'static [&'static str],
    pub post_ops: &'static [&'static str],
}

resources! {
    Account, "AccountHandler", "account/", crud [], get ["list_authorisation_tokens"], post ["create_authorisation_token" "delete_authorisation_token" "update_token_name"];
    BootResources, "BootResourcesHandler", "boot-resources/", crud ["create" "read"], get ["is_importing"], post ["import" "stop_import"];
    BootResource, "BootResourceHandler", "boot-resources/{id}/", crud ["read" "delete"], get [], post [];
    Devices, "DevicesHandler", "devices/", crud ["create" "read"], get ["is_registered"], post ["set_zone"];
    Device, "DeviceHandler", "devices/{system_id}/", crud ["read" "delete" "update"], get ["details" "power_parameters"], post ["restore_default_configuration" "restore_networking_configuration" "set_owner_data" "set_workload_annotations"];
    DnsRecords, "DNSResourceRecordsHandler", "dnsresourcerecords/", crud ["create" "read"], get [], post [];
    DnsRecord, "DNSResourceRecordHandler", "dnsresourcerecords/{id}/", crud ["read" "delete" "update"], get [], post [];
    DnsResources, "DNSResourcesHandler", "dnsresources/", crud ["create" "read"], get [], post [];
    DnsResource, "DNSResourceHandler", "dnsresources/{id}/", crud ["read" "delete" "update"], get [], post [];
    Domains, "DomainsHandler", "domains/", crud ["create" "read"], get [], post ["set_serial"];
    Domain, "DomainHandler", "domains/{id}/", crud ["read" "delete" "update"], get [], post ["set_default"];
    Events, "EventsHandler", "events/", crud [], get ["query"], post [];
    Fabrics, "FabricsHandler", "fabrics/", crud ["create" "read"], get [], post [];
    Fabric, "FabricHandler", "fabrics/{id}/", crud ["read" "delete" "update"], get [], post [];
    Vlans, "VlansHandler", "fabrics/{fabric_id}/vlans/", crud ["create" "read"], get [], post [];
    Vlan, "VlanHandler", "fabrics/{fabric_id}/vlans/{vid}/", crud ["read" "delete" "update"], get [], post [];
    VlanById, "VlanHandler", "vlans/{id}/", crud ["read" "delete" "update"], get [], post [];
    IpAddresses, "IPAddressesHandler", "ipaddresses/", crud ["read"], get [], post ["release" "reserve"];
    IpRanges, "IPRangesHandler", "ipranges/", crud ["create" "read"], get [], post [];
    IpRange, "IPRangeHandler", "ipranges/{id}/", crud ["read" "delete" "update"], get [], post [];
    Maas, "MaasHandler", "maas/", crud [], get ["get_config"], post ["set_config"];
    Machines, "MachinesHandler", "machines/", crud ["create" "read"], get ["is_registered" "list_allocated" "power_parameters"], post ["accept" "accept_all" "add_chassis" "allocate" "clone" "release" "set_zone"];
    Machine, "MachineHandler", "machines/{system_id}/", crud ["read" "delete" "update"], get ["details" "get_curtin_config" "get_token" "power_parameters" "query_power_state"], post ["abort" "clear_default_gateways" "commission" "deploy" "exit_rescue_mode" "lock" "mark_broken" "mark_fixed" "mount_special" "override_failed_testing" "power_off" "power_on" "release" "rescue_mode" "restore_default_configuration" "restore_networking_configuration" "restore_storage_configuration" "set_owner_data" "set_storage_layout" "set_workload_annotations" "test" "unlock" "unmount_special"];
    Nodes, "NodesHandler", "nodes/", crud ["read"], get ["is_registered"], post ["set_zone"];
    Node, "NodeHandler", "nodes/{system_id}/", crud ["read" "delete"], get ["details" "power_parameters"], post [];
    Interfaces, "InterfacesHandler", "nodes/{system_id}/interfaces/", crud ["read"], get [], post ["create_bond" "create_bridge" "create_physical" "create_vlan"];
    Interface, "InterfaceHandler", "nodes/{system_id}/interfaces/{id}/", crud ["read" "delete" "update"], get [], post ["add_tag" "disconnect" "link_subnet" "remove_tag" "set_default_gateway" "unlink_subnet"];
    BlockDevices, "BlockDevicesHandler", "nodes/{system_id}/blockdevices/", crud ["read"], get [], post [];
    ScriptResults, "NodeScriptResultsHandler", "nodes/{system_id}/results/", crud ["read"], get [], post [];
    Pods, "PodsHandler", "pods/", crud ["create" "read"], get [], post [];
    Pod, "PodHandler", "pods/{id}/", crud ["read" "delete" "update"], get ["parameters"], post ["add_tag" "compose" "refresh" "remove_tag"];
    RackControllers, "RackControllersHandler", "rackcontrollers/", crud ["read"], get ["describe_power_types"], post ["import_boot_images"];
    RackController, "RackControllerHandler", "rackcontrollers/{system_id}/", crud ["read"], get ["list_boot_images"], post ["import_boot_images"];
    RegionControllers, "RegionControllersHandler", "regioncontrollers/", crud ["read"], get [], post [];
    ResourcePool, "ResourcePoolHandler", "resourcepool/{id}/", crud ["read" "delete" "update"], get [], post [];
    ResourcePools, "ResourcePoolsHandler", "resourcepools/", crud ["create" "read"], get [], post [];
    Spaces, "SpacesHandler", "spaces/", crud ["create" "read"], get [], post [];
    Space, "SpaceHandler", "spaces/{id}/", crud ["read" "delete" "update"], get [], post [];
    SshKeys, "SSHKeysHandler", "account/prefs/sshkeys/", crud ["create" "read"], get [], post ["import"];
    Subnets, "SubnetsHandler", "subnets/", crud ["create" "read"], get [], post [];
    Subnet, "SubnetHandler", "subnets/{id}/", crud ["read" "delete" "update"], get ["ip_addresses" "reserved_ip_ranges" "statistics" "unreserved_ip_ranges"], post [];
    Tags, "TagsHandler", "tags/", crud ["create" "read"], get [], post [];
    Tag, "TagHandler", "tags/{name}/", crud ["read" "delete" "update"], get ["devices" "machines" "nodes" "rack_controllers" "region_controllers"], post ["rebuild" "update_nodes"];
    Users, "UsersHandler", "users/", crud ["create" "read"], get ["whoami"], post [];
    User, "UserHandler", "users/{username}/", crud ["read" "delete"], get [], post [];
    Version, "VersionHandler", "version/", crud ["read"], get [], post [];
    VmClusters, "VmClustersHandler", "vm-clusters/", crud ["read"], get [], post [];
    VmHosts, "VmHostsHandler", "vm-hosts/", crud ["create" "read"], get [], post [];
    VmHost, "VmHostHandler", "vm-hosts/{id}/", crud ["read" "delete" "update"], get ["parameters"], post ["add_tag" "compose" "refresh" "remove_tag"];
    Zones, "ZonesHandler", "zones/", crud ["create" "read"], get [], post [];
    Zone, "ZoneHandler", "zones/{name}/", crud ["read" "delete" "update"], get [], post [];
    Describe, "describe", "describe/", crud ["read"], get [], post [];
}

/// Operations of those resources that answer without authentication.
pub fn anonymous_ops(resource: Resource) -> Option<(&'static [&'static str], &'static [&'static str])> {
    match resource {
        R::Machines => Some((&["is_action_in_progress", "is_registered"], &["accept", "create"])),
        R::Nodes | R::Devices => Some((&["is_action_in_progress", "is_registered"], &[])),
        _ => None,
    }
}

impl Route {
    /// Whether anybody may use it.
    pub fn is_public(&self) -> bool {
        matches!(self.resource, R::Version | R::Describe)
    }

    /// Methods that some action has.
    pub fn methods(&self) -> Vec<&'static str> {
        let mut methods: Vec<&'static str> = self.crud.iter().map(|action| crud_method(action)).collect();
        if !self.get_ops.is_empty() && !methods.contains(&"GET") {
            methods.push("GET");
        }
        if !self.post_ops.is_empty() && !methods.contains(&"POST") {
            methods.push("POST");
        }
        methods
    }

    /// The action for a method and an operation.
    pub fn action(&self, method: &str, op: Option<&str>) -> Option<&'static str> {
        match op {
            None => self.crud.iter().copied().find(|action| crud_method(action) == method),
            Some(op) => {
                let ops = match method {
                    "GET" => self.get_ops,
                    "POST" => self.post_ops,
                    _ => return None,
                };
                ops.iter().copied().find(|known| *known == op)
            }
        }
    }
}

/// The method of create, read, update or delete.
pub fn crud_method(action: &str) -> &'static str {
    match action {
        "create" => "POST",
        "update" => "PUT",
        "delete" => "DELETE",
        _ => "GET",
    }
}

/// A path that leads somewhere.
#[derive(Debug)]
pub struct Match {
    /// Where.
    pub route: &'static Route,
    /// Values of the parameters, in order.
    pub parameters: Vec<String>,
    /// An operation in the path (3.3 and later).
    pub op: Option<String>,
}

/// Finds the resource of a path below the API's root, after decoding.
pub fn find(path: &str, op_in_path: bool) -> Option<Match> {
    if let Some(found) = find_exact(path) {
        return Some(Match { route: found.0, parameters: found.1, op: None });
    }
    let (parent, last) = path.rsplit_once('/')?;
    let op = last.strip_prefix("op-").filter(|op| op_in_path && !op.is_empty())?;
    let (route, parameters) = find_exact(&format!("{parent}/"))?;
    Some(Match { route, parameters, op: Some(op.to_owned()) })
}

fn find_exact(path: &str) -> Option<(&'static Route, Vec<String>)> {
    let body = path.strip_suffix('/')?;
    let segments: Vec<&str> = body.split('/').collect();
    // The id of a subnet may be a network and hold a slash.
    if let ["subnets", rest @ ..] = segments.as_slice()
        && rest.len() == 2
        && rest[0].contains(['.', ':'])
        && rest[1].parse::<u8>().is_ok()
    {
        let route = ROUTES.iter().find(|route| route.resource == R::Subnet)?;
        return Some((route, vec![rest.join("/")]));
    }
    ROUTES.iter().find_map(|route| {
        let pattern: Vec<&str> = route.path.trim_end_matches('/').split('/').collect();
        if pattern.len() != segments.len() {
            return None;
        }
        let mut parameters = Vec::new();
        for (wanted, have) in pattern.iter().zip(&segments) {
            if wanted.starts_with('{') {
                if have.is_empty() {
                    return None;
                }
                parameters.push((*have).to_owned());
            } else if wanted != have {
                return None;
            }
        }
        Some((route, parameters))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_needs_its_slash_and_an_operation_in_the_path_must_not_have_one() {
        assert!(find("zones/", true).is_some());
        assert!(find("zones", true).is_none());
        let op = find("machines/abc/op-power_on", true).unwrap();
        assert_eq!((op.op.as_deref(), op.parameters), (Some("power_on"), vec!["abc".to_owned()]));
        assert!(find("machines/abc/op-power_on/", true).is_none());
        assert!(find("machines/abc/op-power_on", false).is_none());
    }

    #[test]
    fn a_subnet_is_found_by_its_network() {
        assert_eq!(find("subnets/10.42.0.0/24/", true).unwrap().parameters, ["10.42.0.0/24"]);
    }
}
