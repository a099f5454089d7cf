//! Address ranges.

use std::net::IpAddr;

use super::{
    super::{
        Call,
        forms::Form,
        render::network,
        reply::Reply,
        surface::{Collection, Item},
    },
    list, numeric,
};
use crate::model::{
    Model, Outcome, Refusal,
    db::{IpRange, Table},
    net::to_number,
    refusal::FormCheck,
};

const BOTH: &[&str] = &["start_ip", "end_ip"];
/// The minimum size of a dynamic IPv6 range.
const LEAST_V6: u128 = 256;

fn rendered(model: &Model, id: i64) -> Outcome<Reply> {
    let row = model.db.ranges.get(&id).ok_or(Refusal::NotFound("IPRange"))?;
    Ok(Reply::json(&network::ip_range(model, row)))
}

pub(crate) fn ranges(model: &mut Model, call: &Call, action: Collection) -> Outcome<Reply> {
    let form = &call.body;
    match action {
        Collection::Read => list(model.db.ranges.values().map(|row| network::ip_range(model, row)).collect()),
        Collection::Create => {
            if form.get("type") == Some("dynamic") && !call.admin {
                let words = "Unable to create dynamic IP range. You don't have sufficient privileges.";
                return Err(Refusal::text(403, words));
            }
            let mut row = read(model, form, None)?;
            row.id = model.db.sequences.take(Table::IpRange);
            row.user = Some(call.user);
            let id = row.id;
            model.db.ranges.insert(id, row);
            rendered(model, id)
        }
    }
}

pub(crate) fn range(model: &mut Model, call: &Call, action: Item) -> Outcome<Reply> {
    let form = &call.body;
    let id = numeric(call.parameter(0), "IPRange")?;
    let row = model.db.ranges.get(&id).ok_or(Refusal::NotFound("IPRange"))?.clone();
    if action != Item::Read && !call.admin && row.user != Some(call.user) {
        return Err(Refusal::text(403, "Unable to modify IP range. You don't own the IP range."));
    }
    match action {
        Item::Read => rendered(model, id),
        Item::Update => {
            let row = read(model, form, Some(row))?;
            model.db.ranges.insert(id, row);
            rendered(model, id)
        }
        Item::Delete => {
            model.db.ranges.remove(&id);
            Ok(Reply::deleted())
        }
    }
}

/// The range that a form describes; missing fields are taken from `old`.
fn read(model: &Model, form: &Form, old: Option<IpRange>) -> Outcome<IpRange> {
    let mut check = FormCheck::default();
    let given = |field: &str| form.get(field).filter(|text| !text.is_empty());
    let kind = given("type").or(old.as_ref().map(|row| if row.dynamic { "dynamic" } else { "reserved" }));
    match kind {
        None => check.add("type", "This field is required."),
        Some("dynamic" | "reserved") => {}
        Some(kind) => {
            check.add("type", format!("Select a valid choice. {kind} is not one of the available choices."));
        }
    }
    let mut address = |field: &str, old: Option<IpAddr>| -> Option<IpAddr> {
        let Some(text) = given(field) else {
            if old.is_none() {
                check.add(field, "This field is required.");
            }
            return old;
        };
        let ip = text.parse().ok();
        if ip.is_none() {
            check.add(field, "Enter a valid IPv4 or IPv6 address.");
        }
        ip
    };
    let start = address("start_ip", old.as_ref().map(|row| row.start));
    let end = address("end_ip", old.as_ref().map(|row| row.end));
    let (subnet, words) = if let Some(text) = given("subnet") {
        let found = model.find_subnet(text).map(|subnet| subnet.id);
        (found, "Select a valid choice. That choice is not one of the available choices.")
    } else {
        let known = old.as_ref().map(|row| row.subnet);
        let found = known.or_else(|| start.and_then(|ip| model.subnet_of(ip)).map(|subnet| subnet.id));
        (found, "This field is required.")
    };
    if subnet.is_none() {
        check.add("subnet", words);
    }
    let (Some(start), Some(end)) = (start, end) else {
        for field in BOTH.iter().filter(|_| start.is_none() || end.is_none()) {
            check.add(field, "Start IP address and end IP address are both required.");
        }
        check.done()?;
        return Err(Refusal::required("start_ip"));
    };
    let row = IpRange {
        id: old.as_ref().map_or(0, |row| row.id),
        dynamic: kind == Some("dynamic"),
        start,
        end,
        subnet: subnet.unwrap_or(0),
        user: old.as_ref().and_then(|row| row.user),
        comment: form.text("comment").or(old.map(|row| row.comment)).unwrap_or_default(),
    };
    check_range(model, &row, subnet.is_some(), &mut check);
    check.done()?;
    Ok(row)
}

/// The rules of the model behind the form; it stops at the first violation. From MAAS's source, not recorded.
fn check_range(model: &Model, row: &IpRange, in_subnet: bool, check: &mut FormCheck) {
    let mut refuse = |fields: &[&str], words: &str| fields.iter().for_each(|field| check.add(field, words));
    let (first, last) = (to_number(row.start), to_number(row.end));
    if row.start.is_ipv4() != row.end.is_ipv4() {
        return refuse(BOTH, "Start IP address and end IP address must be in the same address family.");
    }
    if last < first {
        return refuse(&["end_ip"], "End IP address must not be less than Start IP address.");
    }
    let Some(subnet) = model.db.subnets.get(&row.subnet).filter(|_| in_subnet) else { return };
    let cidr = subnet.cidr;
    match (cidr.contains(row.start), cidr.contains(row.end)) {
        (false, false) => return refuse(BOTH, &format!("IP addresses must be within subnet: {cidr}.")),
        (false, true) => return refuse(&["start_ip"], &format!("Start IP address must be within subnet: {cidr}.")),
        (true, false) => return refuse(&["end_ip"], &format!("End IP address must be within subnet: {cidr}.")),
        (true, true) => {}
    }
    if cidr.base() == row.start {
        return refuse(&["start_ip"], "Reserved network address cannot be included in IP range.");
    }
    if cidr.is_v4() && cidr.last() == row.end {
        return refuse(&["end_ip"], "Broadcast address cannot be included in IP range.");
    }
    if !cidr.is_v4() && row.dynamic && last - first + 1 < LEAST_V6 {
        return refuse(BOTH, "IPv6 dynamic range must be at least 256 addresses in size.");
    }
    let within = |ip: IpAddr| (first..=last).contains(&to_number(ip)) && ip.is_ipv4() == row.start.is_ipv4();
    let ranges = model.db.ranges.values().any(|other| {
        other.id != row.id
            && other.subnet == row.subnet
            && to_number(other.start) <= last
            && first <= to_number(other.end)
    });
    // A dynamic range must not contain an address in use; the gateway counts for both kinds.
    let addresses = row.dynamic && model.db.taken.keys().any(|ip| within(*ip));
    if ranges || addresses || subnet.gateway_ip.is_some_and(within) {
        let (kind, what) = if row.dynamic { ("dynamic", "IP address or range") } else { ("reserved", "range") };
        refuse(BOTH, &format!("Requested {kind} range conflicts with an existing {what}."));
    }
}
