//! The address usage of a subnet.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{
    super::{render::long_time, reply::Reply},
    list,
};
use crate::model::{
    Model, Outcome, Refusal,
    db::AllocType,
    net::{from_number, to_number},
};

/// Addresses as numbers, inclusive.
type Range = (u128, u128);

/// The gaps between used ranges.
fn gaps(first: u128, last: u128, taken: &[(Range, &str)]) -> Vec<Range> {
    let mut free = Vec::new();
    let mut at = first;
    for ((start, end), _) in taken {
        if *start > at {
            free.push((at, start - 1));
        }
        at = at.max(end + 1);
    }
    if at <= last {
        free.push((at, last));
    }
    free
}

/// How the addresses of a subnet are used.
pub(super) struct Figures {
    first: u128,
    last: u128,
    v4: bool,
    /// With their purposes, in order.
    taken: Vec<(Range, &'static str)>,
    free: Vec<Range>,
}

impl Figures {
    pub(super) fn of(model: &Model, id: i64) -> Outcome<Self> {
        let subnet = model.db.subnets.get(&id).ok_or(Refusal::NotFound("Subnet"))?;
        let (first, last) = subnet.cidr.host_range();
        let one = |ip: &IpAddr| (to_number(*ip), to_number(*ip));
        let mut taken: Vec<_> = subnet.gateway_ip.iter().map(|ip| (one(ip), "gateway-ip")).collect();
        taken.extend(model.db.ranges.values().filter(|range| range.subnet == id).map(|range| {
            ((to_number(range.start), to_number(range.end)), if range.dynamic { "dynamic" } else { "reserved" })
        }));
        let in_subnet = model.db.taken.keys().filter(|ip| subnet.cidr.contains(**ip));
        taken.extend(in_subnet.map(|ip| (one(ip), "assigned-ip")));
        taken.sort_unstable();
        let free = gaps(first, last, &taken);
        Ok(Self { first, last, v4: subnet.cidr.is_v4(), taken, free })
    }

    fn range(&self, (start, end): Range) -> Value {
        json!({
            "start": from_number(start, self.v4).to_string(),
            "end": from_number(end, self.v4).to_string(),
            "num_addresses": clamp(end - start + 1),
        })
    }

    pub(super) fn unreserved(&self) -> Outcome<Reply> {
        list(self.free.iter().map(|range| self.range(*range)).collect())
    }

    /// Adjacent ranges with the same purpose are merged. From MAAS's source, not recorded.
    pub(super) fn reserved(&self) -> Outcome<Reply> {
        let mut rows: Vec<(Range, &str)> = Vec::new();
        for ((start, end), purpose) in &self.taken {
            match rows.last_mut() {
                Some(((_, last), before)) if before == purpose && *start <= *last + 1 => *last = (*last).max(*end),
                _ => rows.push(((*start, *end), purpose)),
            }
        }
        let shown = rows.into_iter().map(|(range, purpose)| {
            let mut value = self.range(range);
            value["purpose"] = json!([purpose]);
            value
        });
        list(shown.collect())
    }

    pub(super) fn statistics(&self) -> Reply {
        let size = |(start, end): &Range| end - start + 1;
        let total = self.last - self.first + 1;
        let available: u128 = self.free.iter().map(size).sum();
        let largest = self.free.iter().map(size).max().unwrap_or(0);
        #[allow(clippy::cast_precision_loss)]
        let usage = (total - available) as f64 / total as f64;
        Reply::json(&json!({
            "num_available": clamp(available),
            "largest_available": clamp(largest),
            "num_unavailable": clamp(total - available),
            "total_addresses": clamp(total),
            "usage": usage,
            "usage_string": format!("{:.0}%", usage * 100.0),
            "available_string": format!("{:.0}%", (1.0 - usage) * 100.0),
            "first_address": from_number(self.first, self.v4).to_string(),
            "last_address": from_number(self.last, self.v4).to_string(),
            "ip_version": if self.v4 { 4 } else { 6 },
        }))
    }
}

fn clamp(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// The assigned addresses of a subnet.
pub(super) fn assigned(model: &Model, id: i64) -> Outcome<Reply> {
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
