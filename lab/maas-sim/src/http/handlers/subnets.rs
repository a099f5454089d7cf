//! Subnets, ranges and addresses.

use std::net::IpAddr;

use super::{
    super::{
        Call,
        forms::{Form, is_true},
        render::network,
        reply::Reply,
        surface::{Collection, SubnetAction},
    },
    figures::{Figures, assigned},
    list,
};
use crate::model::{
    Model, Outcome, Refusal,
    arrange::new_subnet,
    db::{Subnet, Table},
    net::Cidr,
    refusal::FormCheck,
};
use crate::version::Change;

fn render_subnet(model: &Model, id: i64) -> Outcome<Reply> {
    let row = model.db.subnets.get(&id).ok_or(Refusal::NotFound("Subnet"))?;
    Ok(Reply::json(&network::subnet(model, row)))
}

pub(crate) fn subnets(model: &mut Model, call: &Call, action: Collection) -> Outcome<Reply> {
    match action {
        Collection::Read => list(model.db.subnets.values().map(|row| network::subnet(model, row)).collect()),
        Collection::Create => {
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
            render_subnet(model, id)
        }
    }
}

pub(crate) fn subnet(model: &mut Model, call: &Call, action: SubnetAction) -> Outcome<Reply> {
    let id = model.find_subnet(call.parameter(0)).map(|subnet| subnet.id).ok_or(Refusal::NotFound("Subnet"))?;
    match action {
        SubnetAction::Read => render_subnet(model, id),
        SubnetAction::Update => {
            call.require_right()?;
            let mut check = FormCheck::default();
            let old = model.db.subnets.get(&id).map(|row| row.cidr);
            let cidr = read_cidr(model, call.body.get("cidr"), Some(id), false, &mut check).or(old);
            // Only an id identifies a VLAN here.
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
        SubnetAction::Delete => {
            call.require_right()?;
            model.db.subnets.remove(&id);
            model.db.ranges.retain(|_, range| range.subnet != id);
            for row in model.db.addresses.values_mut().filter(|row| row.subnet == Some(id)) {
                row.subnet = None;
            }
            Ok(Reply::deleted())
        }
        SubnetAction::Statistics => Ok(Figures::of(model, id)?.statistics()),
        SubnetAction::UnreservedIpRanges => Figures::of(model, id)?.unreserved(),
        SubnetAction::ReservedIpRanges => Figures::of(model, id)?.reserved(),
        SubnetAction::IpAddresses => assigned(model, id),
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

/// The VLAN of a new subnet: by its id, or by a fabric and a VID. From MAAS's source, not recorded.
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

/// The fields of a subnet's form except its network and VLAN.
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
