//! Subnets, ranges and addresses.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{
    super::{
        Call,
        forms::{Form, is_true},
        render::{long_time, network},
        reply::Reply,
    },
    is_item, list, unsupported,
};
use crate::model::{
    Model, Outcome, Refusal,
    arrange::new_subnet,
    db::{AllocType, Subnet, Table},
    net::{Cidr, from_number, to_number},
    network::ReserveRequest,
    refusal::FormCheck,
};
use crate::version::Change;

fn render_subnet(model: &Model, id: i64) -> Outcome<Reply> {
    let row = model.db.subnets.get(&id).ok_or(Refusal::NotFound("Subnet"))?;
    Ok(Reply::json(&network::subnet(model, row)))
}

pub(crate) fn answer(model: &mut Model, call: &Call) -> Outcome<Reply> {
    if !is_item(call) {
        if call.action == "read" {
            return list(model.db.subnets.values().map(|row| network::subnet(model, row)).collect());
        }
        call.require_admin()?;
        let mut check = FormCheck::default();
        let cidr = read_cidr(model, call.body.get("cidr"), None, true, &mut check);
        let vlan = choose_vlan(model, call, &mut check);
        let fields = read_fields(&call.body, cidr, &mut check);
        check.done()?;
        let Some(cidr) = cidr else { return Err(Refusal::required("cidr")) };
        let vlan = vlan.or_else(|| model.db.vlans.keys().next().copied()).unwrap_or(1);
        let id = model.db.sequences.take(Table::Subnet);
        let mut row = new_subnet(id, cidr, vlan);
        fields.write(&mut row, &call.body);
        model.db.subnets.insert(id, row);
        return render_subnet(model, id);
    }
    let id = model.find_subnet(call.parameter(0)).map(|subnet| subnet.id).ok_or(Refusal::NotFound("Subnet"))?;
    match call.action {
        "read" => render_subnet(model, id),
        "update" => {
            call.require_right()?;
            let mut check = FormCheck::default();
            let old = model.db.subnets.get(&id).map(|row| row.cidr);
            let cidr = read_cidr(model, call.body.get("cidr"), Some(id), false, &mut check).or(old);
            // Only a number names a VLAN here.
            let vlan = read_vlan(model, &call.body, &mut check);
            let fields = read_fields(&call.body, cidr, &mut check);
            check.done()?;
            let row = model.db.subnets.get_mut(&id).ok_or(Refusal::NotFound("Subnet"))?;
            if row.name == row.cidr.to_string()
                && let Some(cidr) = cidr
            {
                row.name = cidr.to_string();
            }
            row.cidr = cidr.unwrap_or(row.cidr);
            row.vlan = vlan.unwrap_or(row.vlan);
            fields.write(row, &call.body);
            render_subnet(model, id)
        }
        "delete" => {
            call.require_right()?;
            model.db.subnets.remove(&id);
            model.db.ranges.retain(|_, range| range.subnet != id);
            for row in model.db.addresses.values_mut().filter(|row| row.subnet == Some(id)) {
                row.subnet = None;
            }
            Ok(Reply::deleted())
        }
        "statistics" | "unreserved_ip_ranges" | "reserved_ip_ranges" => figures(model, id, call),
        "ip_addresses" => assigned(model, id),
        _ => Err(unsupported(call)),
    }
}

const CHOICE: &str = "Select a valid choice. That choice is not one of the available choices.";

fn given<'a>(form: &'a Form, key: &str) -> Option<&'a str> {
    form.get(key).filter(|text| !text.is_empty())
}

fn read_cidr(
    model: &Model,
    text: Option<&str>,
    own: Option<i64>,
    required: bool,
    check: &mut FormCheck,
) -> Option<Cidr> {
    let text = if required { check.require("cidr", text)? } else { text.filter(|text| !text.is_empty())? };
    let Ok(cidr) = text.parse::<Cidr>() else {
        check.add("cidr", "Required format: <network>/<prefixlen>.");
        return None;
    };
    if cidr.length() == 0 {
        check.add("cidr", "Prefix length must be greater than 0.");
    }
    let others = || model.db.subnets.values().filter(|subnet| Some(subnet.id) != own);
    if others().any(|subnet| subnet.cidr == cidr) {
        check.add("cidr", "Subnet with this Cidr already exists.");
    }
    if model.version.has(Change::OverlapTold) && others().any(|subnet| subnet.cidr.overlaps(cidr)) {
        check.add("__all__", format!("Subnet {cidr} would overlap with existing subnets."));
    }
    Some(cidr)
}

fn read_vlan(model: &Model, form: &Form, check: &mut FormCheck) -> Option<i64> {
    let text = given(form, "vlan")?;
    let id = text.parse::<i64>().ok().filter(|id| model.db.vlans.contains_key(id));
    if id.is_none() {
        check.add("vlan", CHOICE);
    }
    id
}

/// The VLAN of a new subnet: by its number, or by a fabric and a VID. Only read in source.
fn choose_vlan(model: &Model, call: &Call, check: &mut FormCheck) -> Option<i64> {
    let form = &call.body;
    let vlan = read_vlan(model, form, check);
    let fabric = given(form, "fabric").and_then(|text| {
        let id = text.parse::<i64>().ok().filter(|id| model.db.fabrics.contains_key(id));
        if id.is_none() {
            check.add("fabric", CHOICE);
        }
        id
    });
    let vid = check.at_least("vid", given(form, "vid"), 0);
    if vid.is_some_and(|vid| vid > 4094) {
        check.add("vid", "Ensure this value is less than or equal to 4094.");
    }
    if check.is_wrong("vid") || check.is_wrong("fabric") || check.is_wrong("vlan") {
        return None;
    }
    let name_of = |id: i64| model.db.fabrics.get(&id).map_or("", |fabric| fabric.name.as_str());
    match (vlan.and_then(|id| model.db.vlans.get(&id)), fabric) {
        (Some(vlan), Some(fabric)) if vlan.fabric != fabric => {
            let words =
                format!("VLAN {}.{} is not in fabric name={}.", name_of(vlan.fabric), vlan.name, name_of(fabric));
            check.add("vlan", words);
            None
        }
        (Some(vlan), _) => Some(vlan.id),
        (None, None) if vid.unwrap_or(0) == 0 => None,
        (None, fabric) => {
            let of = fabric.unwrap_or(0);
            let vid = vid.unwrap_or(0);
            let found = model.db.vlans.values().find(|vlan| vlan.fabric == of && vlan.vid == vid).map(|vlan| vlan.id);
            if found.is_none() {
                let place =
                    fabric.map_or_else(|| "default fabric".to_owned(), |id| format!("fabric name={}", name_of(id)));
                check.add("vid", format!("No VLAN with vid {vid} in {place}."));
            }
            found
        }
    }
}

/// What a form says about a subnet besides its network and its VLAN.
#[allow(clippy::option_option)]
struct SubnetFields {
    gateway_ip: Option<Option<IpAddr>>,
    dns_servers: Option<Vec<String>>,
    rdns_mode: Option<i64>,
}

fn read_fields(form: &Form, cidr: Option<Cidr>, check: &mut FormCheck) -> SubnetFields {
    let gateway_ip = form.get("gateway_ip").map(|text| {
        let ip = text.parse::<IpAddr>().ok();
        if ip.is_none() && !text.is_empty() {
            check.add("gateway_ip", "Enter a valid IPv4 or IPv6 address.");
        }
        if ip.is_some_and(|ip| cidr.is_some_and(|cidr| !cidr.contains(ip))) {
            check.add("gateway_ip", "Gateway IP must be within CIDR range.");
        }
        ip
    });
    let servers = || form.all("dns_servers").into_iter().flat_map(|text| text.split([',', ' ']));
    let dns_servers: Option<Vec<String>> =
        form.has("dns_servers").then(|| servers().filter(|text| !text.is_empty()).map(str::to_owned).collect());
    if let Some(wrong) = dns_servers.iter().flatten().find(|text| text.parse::<IpAddr>().is_err()) {
        let words = format!("Invalid IP address: {wrong}; provide a list of space-separated IP addresses");
        check.add("__all__", words);
    }
    let rdns_mode = given(form, "rdns_mode").and_then(|text| {
        let mode = text.parse().ok().filter(|mode| (0..=2).contains(mode));
        if mode.is_none() {
            check.add("rdns_mode", format!("Select a valid choice. {text} is not one of the available choices."));
        }
        mode
    });
    if form.has("space") {
        check.add("space", "Spaces may no longer be set on subnets. Set the space on the underlying VLAN.");
    }
    SubnetFields { gateway_ip, dns_servers, rdns_mode }
}

impl SubnetFields {
    fn write(self, row: &mut Subnet, form: &Form) {
        if let Some(name) = given(form, "name") {
            name.clone_into(&mut row.name);
        }
        if let Some(text) = form.get("description") {
            text.clone_into(&mut row.description);
        }
        row.gateway_ip = self.gateway_ip.unwrap_or(row.gateway_ip);
        row.dns_servers = self.dns_servers.unwrap_or_else(|| row.dns_servers.clone());
        row.rdns_mode = self.rdns_mode.unwrap_or(row.rdns_mode);
        for (name, field) in [
            ("managed", &mut row.managed),
            ("allow_dns", &mut row.allow_dns),
            ("allow_proxy", &mut row.allow_proxy),
            ("active_discovery", &mut row.active_discovery),
        ] {
            if let Some(text) = form.get(name) {
                *field = is_true(text);
            }
        }
    }
}

/// Gaps between what is taken, as pairs of numbers.
fn gaps(first: u128, last: u128, mut taken: Vec<(u128, u128)>) -> Vec<(u128, u128)> {
    taken.sort_unstable();
    let mut free = Vec::new();
    let mut at = first;
    for (start, end) in taken {
        if start > at {
            free.push((at, start - 1));
        }
        at = at.max(end + 1);
    }
    if at <= last {
        free.push((at, last));
    }
    free
}

fn figures(model: &Model, id: i64, call: &Call) -> Outcome<Reply> {
    let subnet = model.db.subnets.get(&id).ok_or(Refusal::NotFound("Subnet"))?;
    let (first, last) = subnet.cidr.host_range();
    let v4 = subnet.cidr.is_v4();
    let mut taken: Vec<(u128, u128)> = subnet.gateway_ip.iter().map(|ip| (to_number(*ip), to_number(*ip))).collect();
    taken.extend(
        model.db.ranges.values().filter(|range| range.subnet == id).map(|r| (to_number(r.start), to_number(r.end))),
    );
    taken.extend(
        model.db.taken.keys().filter(|ip| subnet.cidr.contains(**ip)).map(|ip| (to_number(*ip), to_number(*ip))),
    );
    let free = gaps(first, last, taken.clone());
    let span = |ranges: &[(u128, u128)]| -> u128 { ranges.iter().map(|(start, end)| end - start + 1).sum() };
    let range_json = |(start, end): &(u128, u128)| {
        json!({
            "start": from_number(*start, v4).to_string(),
            "end": from_number(*end, v4).to_string(),
            "num_addresses": clamp(end - start + 1),
        })
    };
    if call.action == "unreserved_ip_ranges" {
        return list(free.iter().map(range_json).collect());
    }
    if call.action == "reserved_ip_ranges" {
        let mut rows: Vec<(u128, u128)> = taken;
        rows.sort_unstable();
        rows.dedup();
        return list(
            rows.iter()
                .map(|row| {
                    let mut value = range_json(row);
                    value["purpose"] = json!(["assigned-ip"]);
                    value
                })
                .collect(),
        );
    }
    let total = last - first + 1;
    let available = span(&free);
    let largest = free.iter().map(|(start, end)| end - start + 1).max().unwrap_or(0);
    #[allow(clippy::cast_precision_loss)]
    let usage = (total - available) as f64 / total as f64;
    Ok(Reply::json(&json!({
        "num_available": clamp(available),
        "largest_available": clamp(largest),
        "num_unavailable": clamp(total - available),
        "total_addresses": clamp(total),
        "usage": usage,
        "usage_string": format!("{:.0}%", usage * 100.0),
        "available_string": format!("{:.0}%", (1.0 - usage) * 100.0),
        "first_address": from_number(first, v4).to_string(),
        "last_address": from_number(last, v4).to_string(),
        "ip_version": if v4 { 4 } else { 6 },
    })))
}

fn clamp(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn assigned(model: &Model, id: i64) -> Outcome<Reply> {
    let mut rows: Vec<_> =
        model.db.addresses.values().filter(|row| row.subnet == Some(id) && row.ip.is_some()).collect();
    rows.sort_by_key(|row| row.ip);
    list(
        rows.into_iter()
            .map(|row| {
                let mut value = json!({
                    "ip": row.ip.map(|ip| ip.to_string()), "alloc_type": row.alloc as i64,
                    "created": long_time(row.created), "updated": long_time(row.created),
                });
                if let Some(machine) = row.on.as_ref().and_then(|(system_id, _)| model.db.machines.get(system_id)) {
                    let via = row.on.as_ref().and_then(|(_, nic)| machine.interfaces.iter().find(|n| n.id == *nic));
                    let domain = model.db.domains.get(&machine.domain).map_or("", |domain| domain.name.as_str());
                    value["node_summary"] = json!({
                        "system_id": machine.system_id, "node_type": 0, "hostname": machine.hostname,
                        "fqdn": format!("{}.{domain}", machine.hostname), "is_container": machine.vm.is_some(),
                        "via": via.map(|nic| nic.name.clone()),
                    });
                }
                let user = row.user.or_else(|| {
                    let machine = row.on.as_ref().and_then(|(system_id, _)| model.db.machines.get(system_id))?;
                    machine.owner.filter(|_| row.alloc != AllocType::Discovered)
                });
                let bmcs = bmcs_at(model, row.ip);
                if !bmcs.is_empty() {
                    value["bmcs"] = Value::from(bmcs);
                }
                if user.is_some() {
                    value["user"] = json!(model.user_name(user));
                }
                value
            })
            .collect(),
    )
}

/// VM hosts whose daemon has the address.
fn bmcs_at(model: &Model, ip: Option<IpAddr>) -> Vec<Value> {
    let Some(ip) = ip else { return Vec::new() };
    let at = |address: &str| {
        let key = crate::model::world::lxd_key(address);
        key.rsplit_once(':').and_then(|(host, _)| host.trim_matches(['[', ']']).parse::<IpAddr>().ok()) == Some(ip)
    };
    model
        .db
        .vm_hosts
        .values()
        .filter(|host| at(&host.power_address))
        .map(|host| {
            let nodes: Vec<Value> = host
                .vms
                .iter()
                .filter_map(|vm| vm.machine.as_ref())
                .filter_map(|id| model.db.machines.get(id))
                .map(|machine| json!({"system_id": machine.system_id, "hostname": machine.hostname}))
                .collect();
            json!({"id": host.id, "power_type": host.kind, "nodes": nodes})
        })
        .collect()
}

pub(crate) fn addresses(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let form = call.data();
    match call.action {
        "read" => {
            let all = form.boolean("all")?;
            let owner = form.get("owner").filter(|name| !name.is_empty());
            if all && !call.admin {
                return Err(Refusal::Handler {
                    status: 403,
                    body: "Listing all IP addresses requires admin privileges.".to_owned(),
                });
            }
            if owner.is_some() && !call.admin {
                return Err(Refusal::Handler {
                    status: 403,
                    body: "Listing another user's IP addresses requires admin privileges.".to_owned(),
                });
            }
            let user = owner.map_or(Some(call.user), |name| model.user_by_name(name).map(|user| user.id));
            let ip: Option<IpAddr> = form.get("ip").and_then(|text| text.parse().ok());
            let rows = model.db.addresses.values().filter(|row| {
                let mine = row.alloc == AllocType::UserReserved && row.user == user;
                let by_ip = ip.is_none_or(|ip| row.ip == Some(ip));
                let shown = if all && owner.is_none() { row.ip.is_some() } else { mine };
                shown && by_ip
            });
            list(rows.map(|row| network::address(model, row)).collect::<Vec<Value>>())
        }
        "reserve" => {
            let request = ReserveRequest {
                subnet: form.text("subnet"),
                ip: form.text("ip").filter(|text| !text.is_empty()).or_else(|| form.text("ip_address")),
                hostname: form.text("hostname"),
                mac: form.text("mac").filter(|mac| !mac.is_empty()),
            };
            let id = model.reserve_address(call.user, &request)?;
            let row = model.db.addresses.get(&id).ok_or(Refusal::NotFound("StaticIPAddress"))?;
            Ok(Reply::json(&network::address(model, row)))
        }
        "release" => {
            let Some(ip) = form.get("ip").filter(|ip| !ip.is_empty()) else {
                return Err(Refusal::bad_request("No provided ip!"));
            };
            model.release_address(call.user, ip, form.boolean("force")?, form.boolean("discovered")?)?;
            Ok(Reply::deleted())
        }
        _ => Err(unsupported(call)),
    }
}
