//! DNS resources and records.

use std::{collections::BTreeMap, net::IpAddr};

use serde_json::{Value, json};

use super::{
    super::{
        Call, render,
        reply::Reply,
        surface::{Collection, Item},
    },
    list, numeric,
};
use crate::ledger::{Effect, ObjectChange, ObjectKind};
use crate::model::{
    Model, Outcome, Refusal,
    db::{AllocType, DnsResource},
    dns::{DnsRequest, check_record},
};

fn request(call: &Call) -> DnsRequest {
    let form = &call.body;
    DnsRequest {
        fqdn: form.text("fqdn"),
        name: form.text("name"),
        domain: form.text("domain"),
        address_ttl: form.text("address_ttl"),
        ip_addresses: form.text("ip_addresses"),
    }
}

fn rendered(model: &Model, id: i64) -> Outcome<Reply> {
    let dns = model.db.dns.get(&id).ok_or(Refusal::NotFound("DNSResource"))?;
    Ok(Reply::json(&render::dns(model, dns)))
}

pub(crate) fn resources(model: &mut Model, call: &Call, action: Collection) -> Outcome<Reply> {
    match action {
        Collection::Read => listed(model, call),
        Collection::Create => {
            call.require_admin()?;
            let id = model.create_dns(call.user, &request(call))?;
            rendered(model, id)
        }
    }
}

fn listed(model: &Model, call: &Call) -> Outcome<Reply> {
    let query = &call.query;
    let all = query.boolean("all")?;
    let given = |key: &str| query.get(key).filter(|text| !text.is_empty());
    let mut name = given("name").map(str::to_owned);
    let mut domain = None;
    if let Some(text) = given("domain") {
        domain = Some(model.find_domain(text).map(|domain| domain.id).ok_or(Refusal::NotFound("Domain"))?);
    } else if let Some(fqdn) = given("fqdn").filter(|_| name.is_none()) {
        let (label, id) = model.split_fqdn(fqdn)?;
        name = Some(label);
        domain = Some(id);
    }
    let rrtype = given("rrtype").map(str::to_uppercase);
    let shown: Vec<&DnsResource> = model
        .db
        .dns
        .values()
        .filter(|dns| name.as_ref().is_none_or(|name| dns.name == *name))
        .filter(|dns| domain.is_none_or(|domain| dns.domain == domain))
        // Addresses are not records: nothing has the type A. From MAAS's source, not recorded.
        .filter(|dns| rrtype.as_ref().is_none_or(|kind| dns.records.iter().any(|record| record.rrtype == *kind)))
        .collect();
    let mut values: Vec<Value> = shown.into_iter().map(|dns| render::dns(model, dns)).collect();
    if all {
        let mut all = implicit(model, name.as_deref(), domain);
        all.extend(values);
        values = all;
    }
    list(values)
}

/// With `all=true` MAAS lists every name that it serves once more, including generated ones: names of machines and of
/// reserved addresses.
fn implicit(model: &Model, name: Option<&str>, domain: Option<i64>) -> Vec<Value> {
    let mut rows: BTreeMap<(i64, String), Vec<Value>> = BTreeMap::new();
    let mut add = |label: &str,
                   domain_id: i64,
                   ip: IpAddr,
                   system_id: Option<&str>,
                   user: Option<i64>,
                   dns: Option<i64>| {
        if name.is_some_and(|name| name != label) || domain.is_some_and(|domain| domain != domain_id) {
            return;
        }
        rows.entry((domain_id, label.to_owned())).or_default().push(json!({
            "system_id": system_id, "node_type": system_id.map(|_| 0), "user_id": user, "dnsresource_id": dns,
            "ttl": null, "rrtype": if ip.is_ipv4() { "A" } else { "AAAA" }, "rrdata": ip.to_string(), "dnsdata_id": null,
        }));
    };
    for machine in model.machines_in_order() {
        for ip in render::machine::addresses(model, machine).iter().filter_map(|ip| ip.parse().ok()) {
            add(&machine.hostname, machine.domain, ip, Some(&machine.system_id), machine.owner, None);
        }
    }
    for dns in model.db.dns.values() {
        for row in dns.addresses.iter().filter_map(|id| model.db.addresses.get(id)) {
            if let Some(ip) = row.ip {
                add(&dns.name, dns.domain, ip, None, row.user, Some(dns.id));
            }
        }
    }
    for row in model.db.addresses.values().filter(|row| row.alloc == AllocType::UserReserved) {
        let named = model.db.dns.values().any(|dns| dns.addresses.contains(&row.id));
        if let Some(ip) = row.ip.filter(|_| !named) {
            let label = match ip {
                IpAddr::V4(ip) => ip.to_string().replace('.', "-"),
                IpAddr::V6(ip) => ip.segments().map(|segment| format!("{segment:x}")).join("-"),
            };
            add(&label, model.db.default_domain, ip, None, row.user, None);
        }
    }
    rows.into_iter()
        .map(|((domain_id, label), mut records)| {
            // MAAS keeps one machine, one user and one resource for a name, and shows them in each of its records.
            for field in ["system_id", "node_type", "user_id", "dnsresource_id"] {
                let known = records.iter().map(|record| record[field].clone()).find(|value| !value.is_null());
                for record in &mut records {
                    record[field] = known.clone().unwrap_or_default();
                }
            }
            let zone = model.db.domains.get(&domain_id).map_or("", |domain| domain.name.as_str());
            json!({
                "id": -1, "fqdn": format!("{label}.{zone}"), "address_ttl": null, "ip_addresses": null,
                "resource_records": records, "resource_uri": render::uri("dnsresources/-1/"),
            })
        })
        .collect()
}

pub(crate) fn resource(model: &mut Model, call: &Call, action: Item) -> Outcome<Reply> {
    if action == Item::Update {
        // The domain is looked up before the resource.
        model.resolve_dns_name(&request(call))?;
    }
    // By id or by name.
    let wanted = call.parameter(0);
    let found = model.db.dns.values().find(|dns| dns.id.to_string() == wanted || dns.name == wanted);
    let id = found.map(|dns| dns.id).ok_or(Refusal::NotFound("DNSResource"))?;
    match action {
        Item::Read => rendered(model, id),
        Item::Update => {
            call.require_right()?;
            model.update_dns(call.user, id, &request(call))?;
            rendered(model, id)
        }
        Item::Delete => {
            call.require_right()?;
            // Its addresses stay reserved.
            model.db.dns.remove(&id);
            model.effect(Effect::object(ObjectKind::Dns, id, ObjectChange::Deleted));
            Ok(Reply::deleted())
        }
    }
}

fn find_record(model: &Model, id: i64) -> Outcome<(i64, usize)> {
    model
        .db
        .dns
        .values()
        .find_map(|dns| dns.records.iter().position(|record| record.id == id).map(|at| (dns.id, at)))
        .ok_or(Refusal::NotFound("DNSData"))
}

fn render_record(model: &Model, dns: i64, id: i64) -> Outcome<Reply> {
    let dns = model.db.dns.get(&dns).ok_or(Refusal::NotFound("DNSData"))?;
    let record = dns.records.iter().find(|record| record.id == id).ok_or(Refusal::NotFound("DNSData"))?;
    Ok(Reply::json(&render::record(&model.dns_fqdn(dns), record)))
}

pub(crate) fn records(model: &mut Model, call: &Call, action: Collection) -> Outcome<Reply> {
    match action {
        Collection::Read => {
            let values = model.db.dns.values().flat_map(|dns| {
                let fqdn = model.dns_fqdn(dns);
                dns.records.iter().map(move |record| render::record(&fqdn, record))
            });
            list(values.collect())
        }
        Collection::Create => {
            call.require_admin()?;
            let ttl = call.body.get("ttl").and_then(|ttl| ttl.parse().ok());
            let (dns, record) =
                model.create_record(&request(call), call.body.get("rrtype"), call.body.get("rrdata"), ttl)?;
            render_record(model, dns, record)
        }
    }
}

pub(crate) fn record(model: &mut Model, call: &Call, action: Item) -> Outcome<Reply> {
    let id = numeric(call.parameter(0), "DNSData")?;
    let (dns, at) = find_record(model, id)?;
    match action {
        Item::Read => render_record(model, dns, id),
        Item::Update => {
            call.require_right()?;
            let given = |key: &str| call.body.text(key).filter(|text| !text.is_empty());
            if let Some(record) = model.db.dns.get_mut(&dns).and_then(|dns| dns.records.get_mut(at)) {
                let rrtype = given("rrtype").map_or_else(|| record.rrtype.clone(), |text| text.to_uppercase());
                let rrdata = given("rrdata").unwrap_or_else(|| record.rrdata.clone());
                check_record(&rrtype, &rrdata)?;
                (record.rrtype, record.rrdata) = (rrtype, rrdata);
                if let Some(ttl) = call.body.get("ttl") {
                    record.ttl = ttl.parse().ok();
                }
            }
            render_record(model, dns, id)
        }
        Item::Delete => {
            call.require_right()?;
            if let Some(resource) = model.db.dns.get_mut(&dns) {
                resource.records.remove(at);
                if resource.records.is_empty() && resource.addresses.is_empty() {
                    model.db.dns.remove(&dns);
                }
            }
            Ok(Reply::deleted())
        }
    }
}
