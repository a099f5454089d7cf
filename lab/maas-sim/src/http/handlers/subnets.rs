//! Subnets, ranges and addresses.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{
    super::{
        Call,
        forms::is_true,
        render::{long_time, network},
        reply::Reply,
    },
    is_item, list, numeric, unsupported,
};
use crate::model::{
    Model, Outcome, Refusal,
    arrange::new_subnet,
    db::{AllocType, IpRange, Subnet, Table},
    net::{from_number, to_number},
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
        let Some(text) = call.body.get("cidr").filter(|text| !text.is_empty()) else {
            return Err(Refusal::required("cidr"));
        };
        let cidr = text.parse().map_err(|_| Refusal::field("cidr", "Required format: <network>/<prefixlen>."))?;
        if model.db.subnets.values().any(|subnet| subnet.cidr == cidr) {
            let mut check = FormCheck::default();
            check.add("cidr", "Subnet with this Cidr already exists.");
            if model.version.has(Change::OverlapTold) {
                check.add("__all__", format!("Subnet {cidr} would overlap with existing subnets."));
            }
            check.done()?;
        }
        let vlan = choose_vlan(model, call)?.or_else(|| model.db.vlans.keys().next().copied()).unwrap_or(1);
        let id = model.db.sequences.take(Table::Subnet);
        let mut row = new_subnet(id, cidr, vlan);
        update_fields(&mut row, call)?;
        model.db.subnets.insert(id, row);
        return render_subnet(model, id);
    }
    let id = model.find_subnet(call.parameter(0)).map(|subnet| subnet.id).ok_or(Refusal::NotFound("Subnet"))?;
    match call.action {
        "read" => render_subnet(model, id),
        "update" => {
            call.require_right()?;
            let vlan = choose_vlan(model, call)?;
            let row = model.db.subnets.get_mut(&id).ok_or(Refusal::NotFound("Subnet"))?;
            row.vlan = vlan.unwrap_or(row.vlan);
            update_fields(row, call)?;
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

fn choose_vlan(model: &Model, call: &Call) -> Outcome<Option<i64>> {
    let no_choice =
        || Refusal::field("vlan", "Select a valid choice. That choice is not one of the available choices.");
    match call.body.get("vlan").filter(|text| !text.is_empty()) {
        None => {
            let fabric = call.body.get("fabric").filter(|text| !text.is_empty());
            let vid = call.body.get("vid").and_then(|vid| vid.parse::<i64>().ok()).unwrap_or(0);
            let Some(fabric) = fabric else { return Ok(None) };
            let row = model.db.vlans.values().find(|vlan| {
                vlan.vid == vid && (vlan.fabric.to_string() == fabric || model.fabric_name(Some(vlan)) == fabric)
            });
            row.map(|vlan| Some(vlan.id)).ok_or_else(no_choice)
        }
        Some(text) => {
            let id = text.parse::<i64>().ok().filter(|id| model.db.vlans.contains_key(id));
            id.map(Some).ok_or_else(no_choice)
        }
    }
}

fn update_fields(row: &mut Subnet, call: &Call) -> Outcome<()> {
    let form = &call.body;
    if let Some(name) = form.get("name").filter(|name| !name.is_empty()) {
        name.clone_into(&mut row.name);
    }
    if let Some(text) = form.get("description") {
        text.clone_into(&mut row.description);
    }
    if let Some(text) = form.get("gateway_ip") {
        row.gateway_ip = if text.is_empty() {
            None
        } else {
            let ip: IpAddr =
                text.parse().map_err(|_| Refusal::field("gateway_ip", "Enter a valid IPv4 or IPv6 address."))?;
            if !row.cidr.contains(ip) {
                return Err(Refusal::field("gateway_ip", "Gateway IP must be within CIDR range."));
            }
            Some(ip)
        };
    }
    if form.has("dns_servers") {
        row.dns_servers = form
            .all("dns_servers")
            .iter()
            .flat_map(|text| text.split([',', ' ']))
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .collect();
    }
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
    if let Some(mode) = form.get("rdns_mode").and_then(|mode| mode.parse().ok()) {
        row.rdns_mode = mode;
    }
    Ok(())
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

pub(crate) fn ranges(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let form = &call.body;
    let render = |model: &Model, id: i64| -> Outcome<Reply> {
        let row = model.db.ranges.get(&id).ok_or(Refusal::NotFound("IPRange"))?;
        Ok(Reply::json(&network::ip_range(model, row)))
    };
    if !is_item(call) {
        if call.action == "read" {
            return list(model.db.ranges.values().map(|row| network::ip_range(model, row)).collect());
        }
        let mut check = crate::model::refusal::FormCheck::default();
        let kind = check.require("type", form.get("type"));
        let start = check.require("start_ip", form.get("start_ip"));
        let end = check.require("end_ip", form.get("end_ip"));
        if let Some(kind) = kind.filter(|kind| !["dynamic", "reserved"].contains(kind)) {
            check.add("type", format!("Select a valid choice. {kind} is not one of the available choices."));
        }
        check.done()?;
        let dynamic = kind == Some("dynamic");
        if dynamic && !call.admin {
            return Err(Refusal::text(403, "Unable to create dynamic IP range. You don't have sufficient privileges."));
        }
        let parse = |field: &str, text: Option<&str>| -> Outcome<IpAddr> {
            text.unwrap_or_default().parse().map_err(|_| Refusal::field(field, "Enter a valid IPv4 or IPv6 address."))
        };
        let (start, end) = (parse("start_ip", start)?, parse("end_ip", end)?);
        let subnet = match form.get("subnet").filter(|text| !text.is_empty()) {
            Some(text) => model.find_subnet(text),
            None => model.subnet_of(start),
        };
        let Some(subnet) = subnet.map(|subnet| subnet.id) else { return Err(Refusal::required("subnet")) };
        let overlap = model.db.ranges.values().any(|range| {
            range.subnet == subnet
                && to_number(range.start) <= to_number(end)
                && to_number(start) <= to_number(range.end)
        });
        if overlap {
            let what = if dynamic { "dynamic" } else { "reserved" };
            return Err(Refusal::field("__all__", format!("Requested {what} range conflicts with an existing range.")));
        }
        let id = model.db.sequences.take(Table::IpRange);
        let comment = form.text("comment").unwrap_or_default();
        model.db.ranges.insert(id, IpRange { id, dynamic, start, end, subnet, user: Some(call.user), comment });
        return render(model, id);
    }
    let id = numeric(call.parameter(0), "IPRange")?;
    let row = model.db.ranges.get(&id).ok_or(Refusal::NotFound("IPRange"))?;
    if call.action != "read" && !call.admin && row.user != Some(call.user) {
        return Err(Refusal::text(403, "Unable to modify IP range. You don't own the IP range."));
    }
    match call.action {
        "read" => render(model, id),
        "update" => {
            let row = model.db.ranges.get_mut(&id).ok_or(Refusal::NotFound("IPRange"))?;
            for (field, into) in [("start_ip", &mut row.start), ("end_ip", &mut row.end)] {
                if let Some(text) = form.get(field).filter(|text| !text.is_empty()) {
                    *into = text.parse().map_err(|_| Refusal::field(field, "Enter a valid IPv4 or IPv6 address."))?;
                }
            }
            if let Some(text) = form.get("comment") {
                text.clone_into(&mut row.comment);
            }
            render(model, id)
        }
        "delete" => {
            model.db.ranges.remove(&id);
            Ok(Reply::deleted())
        }
        _ => Err(unsupported(call)),
    }
}

pub(crate) fn addresses(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let form = call.data();
    match call.action {
        "read" => {
            let all = form.flag("all");
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
            model.release_address(call.user, ip, form.flag("force"), form.flag("discovered"))?;
            Ok(Reply::deleted())
        }
        _ => Err(unsupported(call)),
    }
}
