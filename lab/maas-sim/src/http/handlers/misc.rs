//! Version, settings and controllers.

use std::{collections::BTreeSet, net::IpAddr};

use serde_json::{Value, json};

use super::{
    super::{
        Call,
        forms::is_ticked,
        render,
        reply::Reply,
        surface::{
            DiscoveriesAction, MaasAction, RackControllerAction, RackControllersAction, RegionControllerAction,
            RegionControllersAction,
        },
    },
    list,
    machines::{is_registered, set_zone},
    unsupported,
};
use crate::model::{
    DEFAULT_ZONE, Model, Outcome, Refusal,
    boot::setting_names,
    db::{Interface, Machine, Rack},
    refusal::FormCheck,
};
use crate::version::Change;

const CAPABILITIES: &[&str] = &[
    "networks-management",
    "static-ipaddresses",
    "ipv6-deployment-ubuntu",
    "devices-management",
    "storage-deployment-ubuntu",
    "network-deployment-ubuntu",
    "bridging-interface-ubuntu",
    "bridging-automatic-ubuntu",
    "authenticate-api",
];

pub(crate) fn version(model: &Model) -> Reply {
    let mut reply = Reply::json(&json!({
        "version": model.version.to_string(), "subversion": "", "capabilities": CAPABILITIES,
    }));
    reply.vary = Some("Authorization");
    reply
}

pub(crate) fn settings(model: &mut Model, call: &Call, action: MaasAction) -> Outcome<Reply> {
    let form = call.data();
    if action == MaasAction::SetConfig {
        call.require_admin()?;
    }
    let name = form.mandatory("name")?;
    if name.is_empty() {
        return Err(Refusal::bad_request("Invalid name: Please enter a value"));
    }
    let value = if action == MaasAction::SetConfig { Some(form.mandatory("value")?) } else { None };
    let known = setting_names(model.version);
    if !known.contains(&name) {
        let text = format!("{name} is not a valid config setting (valid settings are: {}).", known.join(", "));
        return Err(Refusal::validation(name, text));
    }
    match action {
        MaasAction::GetConfig => Ok(Reply::bare_json(model.db.settings.get(name).unwrap_or(&Value::Null))),
        MaasAction::SetConfig => {
            let value = setting(model, name, value.unwrap_or_default())?;
            model.db.settings.insert(name.to_owned(), value);
            Ok(Reply::raw("text/plain", "OK"))
        }
    }
}

/// The value of a setting as its form parses it. The rule for a series comes from MAAS's source and is not recorded.
fn setting(model: &Model, name: &str, text: &str) -> Outcome<Value> {
    let mut check = FormCheck::default();
    let value = match model.db.settings.get(name) {
        Some(Value::Bool(_)) => json!(is_ticked(text)),
        Some(Value::Number(_)) => json!(check.whole_number(name, Some(text))),
        _ => json!(text),
    };
    if name.ends_with("distro_series") {
        let of_ubuntu = model.db.images.values().filter(|image| !image.uploaded);
        let series: BTreeSet<&str> = of_ubuntu.map(|image| image.series.as_str()).collect();
        if !series.contains(text) {
            let quoted: Vec<String> = series.iter().map(|name| format!("'{name}'")).collect();
            let words = format!("'{text}' is not a valid release.  It should be one of: {}.", quoted.join(", "));
            check.add(name, words);
        }
    }
    check.done()?;
    Ok(value)
}

const SERVICES: &[&str] = &[
    "bind9",
    "dhcpd",
    "dhcpd6",
    "dns_rack",
    "http",
    "ntp_rack",
    "ntp_region",
    "proxy",
    "proxy_rack",
    "rackd",
    "regiond",
    "reverse_proxy",
    "syslog_rack",
    "syslog_region",
    "tftp",
];
const NEWER_SERVICES: &[&str] = &["agent", "temporal", "temporal-worker"];

/// The services of a region and rack controller, from MAAS's source and not recorded. DHCP runs where a VLAN has it;
/// those of a rack that is away are dead.
fn services(model: &Model, rack: &Rack) -> Vec<Value> {
    let newer = if model.version.has(Change::TemporalPower) { NEWER_SERVICES } else { &[] };
    let dhcp = model.db.vlans.values().any(|vlan| vlan.dhcp_on);
    let status = |name: &str| match name {
        "rackd" | "tftp" | "ntp_rack" | "dhcpd" | "dhcpd6" if !rack.connected => "dead",
        "http" | "dns_rack" | "proxy_rack" | "syslog_rack" | "agent" if !rack.connected => "unknown",
        "dhcpd" if !dhcp => "off",
        "dhcpd6" => "off",
        _ => "running",
    };
    let names = SERVICES.iter().chain(newer);
    names.map(|name| json!({"name": name, "status": status(name), "status_info": ""})).collect()
}

/// The NIC of a controller and its address: that of the router, which no machine ever gets.
fn connection(model: &Model, rack: &Rack) -> (Value, Option<IpAddr>) {
    let subnet = model.booting_subnet().or_else(|| model.db.subnets.values().next());
    let ip = subnet.and_then(|subnet| subnet.gateway_ip);
    let node = Machine::empty(0, &rack.system_id, &rack.hostname);
    let nic = Interface::physical(0, "eth0", "52:54:00:00:00:01", subnet.map(|subnet| subnet.vlan));
    let mut shown = render::network::interface(model, &node, &nic);
    if let (Some(subnet), Some(ip)) = (subnet, ip) {
        let subnet = render::network::subnet(model, subnet);
        shown["links"] = json!([{"id": 0, "mode": "static", "ip_address": ip.to_string(), "subnet": subnet}]);
    }
    (shown, ip)
}

/// A controller that is both region and rack. The names of its fields come from MAAS's source and are not recorded.
pub(super) fn controller(model: &Model, rack: &Rack) -> Value {
    let domain = model.db.domains.get(&model.db.default_domain);
    let (nic, ip) = connection(model, rack);
    let mut value = json!({
        "system_id": rack.system_id, "hostname": rack.hostname, "description": "", "hardware_uuid": null,
        "domain": domain.map(|row| render::domain(model, row)),
        "fqdn": format!("{}.{}", rack.hostname, domain.map_or("", |row| row.name.as_str())),
        "architecture": "amd64/generic", "cpu_count": 2, "cpu_speed": 0, "memory": 8192, "swap_size": null,
        "osystem": "ubuntu", "distro_series": "jammy", "power_type": "", "power_state": "unknown",
        "ip_addresses": ip.map(|ip| vec![ip.to_string()]).unwrap_or_default(), "interface_set": [nic],
        "zone": model.db.zones.get(&DEFAULT_ZONE).map(render::zone),
        "status_action": "", "node_type": 4, "node_type_name": "Region and rack controller",
        "service_set": services(model, rack),
        "current_commissioning_result_id": null, "current_testing_result_id": null,
        "current_installation_result_id": null, "version": model.version.to_string(), "hardware_info": render::machine::unknown_hardware(),
        "tag_names": [], "resource_uri": render::uri(&format!("rackcontrollers/{}/", rack.system_id)),
    });
    for what in [
        "commissioning",
        "testing",
        "cpu_test",
        "memory_test",
        "network_test",
        "storage_test",
        "other_test",
        "interface_test",
    ] {
        value[format!("{what}_status")] = json!(-1);
        value[format!("{what}_status_name")] = json!("Unknown");
    }
    value
}

/// The same as a region controller: it has another URL and does not show its services.
fn region_controller(model: &Model, rack: &Rack) -> Value {
    let mut value = controller(model, rack);
    if let Some(fields) = value.as_object_mut() {
        fields.remove("service_set");
    }
    value["resource_uri"] = json!(render::uri(&format!("regioncontrollers/{}/", rack.system_id)));
    value
}

fn found<'a>(model: &'a Model, call: &Call, what: &'static str) -> Outcome<&'a Rack> {
    let wanted = call.parameter(0);
    let named = |rack: &&Rack| rack.system_id == wanted || rack.hostname == wanted;
    model.db.racks.iter().find(named).ok_or(Refusal::NotFound(what))
}

pub(crate) fn racks(model: &mut Model, call: &Call, action: RackControllersAction) -> Outcome<Reply> {
    use RackControllersAction as A;
    match action {
        A::Read => list(model.db.racks.iter().map(|rack| controller(model, rack)).collect()),
        A::IsRegistered => is_registered(model, call),
        A::SetZone => set_zone(model, call),
        A::ImportBootImages => import_started(call),
        A::DescribePowerTypes | A::PowerParameters => Err(unsupported(call)),
    }
}

pub(crate) fn regions(model: &mut Model, call: &Call, action: RegionControllersAction) -> Outcome<Reply> {
    match action {
        RegionControllersAction::Read => {
            list(model.db.racks.iter().map(|rack| region_controller(model, rack)).collect())
        }
        RegionControllersAction::IsRegistered => is_registered(model, call),
        RegionControllersAction::SetZone => set_zone(model, call),
    }
}

pub(crate) fn region(model: &mut Model, call: &Call, action: RegionControllerAction) -> Outcome<Reply> {
    use RegionControllerAction as A;
    let region = found(model, call, "RegionController")?;
    match action {
        A::Read => Ok(Reply::json(&region_controller(model, region))),
        A::Delete | A::Update | A::Details | A::PowerParameters => Err(unsupported(call)),
    }
}

pub(crate) fn rack(model: &mut Model, call: &Call, action: RackControllerAction) -> Outcome<Reply> {
    use RackControllerAction as A;
    if action == A::ListBootImages {
        call.require_admin()?;
    }
    let rack = found(model, call, "RackController")?;
    match action {
        A::Read => Ok(Reply::json(&controller(model, rack))),
        A::ListBootImages => Ok(boot_images(model, rack)),
        A::ImportBootImages => import_started(call),
        A::Delete
        | A::Update
        | A::Details
        | A::PowerParameters
        | A::QueryPowerState
        | A::Abort
        | A::OverrideFailedTesting
        | A::PowerOff
        | A::PowerOn
        | A::Test => Err(unsupported(call)),
    }
}

/// From MAAS's source, not recorded.
fn import_started(call: &Call) -> Outcome<Reply> {
    call.require_admin()?;
    let mut reply = Reply::raw("text/plain", "Import of boot images started on all rack controllers");
    reply.status = 202;
    Ok(reply)
}

fn boot_images(model: &Model, rack: &Rack) -> Reply {
    let mut images: Vec<_> = model.db.images.values().filter(|image| image.on_racks && image.complete).collect();
    images.sort_by_key(|image| (!image.uploaded, image.id));
    let listed: Vec<Value> = images
        .iter()
        .map(|image| {
            if image.uploaded {
                json!({"name": image.series, "architecture": "amd64", "subarches": ["generic"]})
            } else {
                let name = format!("{}/{}", image.osystem, image.series);
                json!({"name": name, "architecture": "amd64", "subarches": [image.kernel(), "generic"]})
            }
        })
        .collect();
    let synced = model.db.images.values().all(|image| image.on_racks && image.complete);
    Reply::json(&json!({
        "images": listed, "connected": rack.connected,
        "status": if synced { "synced" } else { "out-of-sync" },
    }))
}

/// Observed hosts that are not nodes: there are none here. From MAAS's source, not recorded.
pub(crate) fn discoveries(call: &Call, action: DiscoveriesAction) -> Outcome<Reply> {
    use DiscoveriesAction as A;
    match action {
        A::Read | A::ByUnknownIp | A::ByUnknownIpAndMac | A::ByUnknownMac => list(Vec::new()),
        A::Clear | A::ClearByMacAndIp => {
            call.require_admin()?;
            Ok(Reply::deleted())
        }
        A::Scan => Err(unsupported(call)),
    }
}
