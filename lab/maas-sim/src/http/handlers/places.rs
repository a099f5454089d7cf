//! Zones, resource pools and domains.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    super::{
        Call,
        forms::is_true,
        render,
        reply::Reply,
        surface::{Collection, DomainAction, DomainsAction, Item},
    },
    list,
};
use crate::ledger::{Effect, ObjectChange, ObjectKind};
use crate::model::{
    DEFAULT_POOL, DEFAULT_ZONE, Model, Outcome, Refusal,
    db::{Domain, Named, Table},
    machines::dns_name_error,
    refusal::FormCheck,
};

/// Word characters, spaces and hyphens, starting with a word character.
fn valid_model_name(name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    name.chars().next().is_some_and(word) && name.chars().all(|c| word(c) || c == ' ' || c == '-')
}

/// The maximum length of a zone's or pool's name.
const MAX_NAME: usize = 256;

fn check_name<'a>(
    check: &mut FormCheck,
    name: Option<&'a str>,
    taken: Option<&str>,
    exists: &dyn Fn(&str) -> bool,
) -> Option<&'a str> {
    let name = check.require("name", name)?;
    let length = name.chars().count();
    if !valid_model_name(name) {
        check.add("name", "Enter a valid value.");
    } else if length > MAX_NAME {
        check.add("name", format!("Ensure this value has at most {MAX_NAME} characters (it has {length})."));
    } else if let Some(noun) = taken.filter(|_| exists(name)) {
        check.add("name", format!("{noun} with this Name already exists."));
    }
    Some(name)
}

/// A new zone or pool from a form.
fn new_named(rows: &BTreeMap<i64, Named>, noun: &str, call: &Call) -> Outcome<Named> {
    let mut check = FormCheck::default();
    let exists = |name: &str| rows.values().any(|row| row.name == name);
    let name = check_name(&mut check, call.body.get("name"), Some(noun), &exists);
    check.done()?;
    let name = name.unwrap_or_default().to_owned();
    Ok(Named { id: 0, name, description: call.body.text("description").unwrap_or_default() })
}

pub(crate) fn zones(model: &mut Model, call: &Call, action: Collection) -> Outcome<Reply> {
    match action {
        Collection::Read => {
            let mut zones: Vec<&Named> = model.db.zones.values().collect();
            zones.sort_by(|a, b| a.name.cmp(&b.name));
            list(zones.into_iter().map(render::zone).collect())
        }
        Collection::Create => {
            call.require_admin()?;
            let mut zone = new_named(&model.db.zones, "Physical zone", call)?;
            zone.id = model.db.sequences.take(Table::Zone);
            let reply = Reply::json(&render::zone(&zone));
            model.effect(Effect::object(ObjectKind::Zone, &zone.name, ObjectChange::Created));
            model.db.zones.insert(zone.id, zone);
            Ok(reply)
        }
    }
}

pub(crate) fn zone(model: &mut Model, call: &Call, action: Item) -> Outcome<Reply> {
    let wanted = call.parameter(0);
    let found = model.db.zones.values().find(|zone| zone.name == wanted).map(|zone| zone.id);
    match action {
        // MAAS accepts the deletion of a zone that does not exist.
        Item::Delete => {
            call.require_admin()?;
            let Some(id) = found else { return Ok(Reply::deleted()) };
            if id == DEFAULT_ZONE {
                return Err(Refusal::bad_request("This zone is the default zone, it cannot be deleted."));
            }
            model.db.zones.remove(&id);
            for machine in model.db.machines.values_mut().filter(|machine| machine.zone == id) {
                machine.zone = DEFAULT_ZONE;
            }
            for host in model.db.vm_hosts.values_mut().filter(|host| host.zone == id) {
                host.zone = DEFAULT_ZONE;
            }
            Ok(Reply::deleted())
        }
        Item::Read => {
            let zone = found.and_then(|id| model.db.zones.get(&id)).ok_or(Refusal::NotFound("Zone"))?;
            Ok(Reply::json(&render::zone(zone)))
        }
        Item::Update => {
            call.require_admin()?;
            let id = found.ok_or(Refusal::NotFound("Zone"))?;
            let zone = update_named(&mut model.db.zones, id, "Physical zone", call)?;
            Ok(Reply::json(&render::zone(zone)))
        }
    }
}

fn update_named<'a>(
    rows: &'a mut BTreeMap<i64, Named>,
    id: i64,
    noun: &'static str,
    call: &Call,
) -> Outcome<&'a Named> {
    let name = call.body.get("name").filter(|name| !name.is_empty());
    if name.is_some() {
        let mut check = FormCheck::default();
        let exists = |name: &str| rows.values().any(|row| row.name == name && row.id != id);
        check_name(&mut check, name, Some(noun), &exists);
        check.done()?;
    }
    let row = rows.get_mut(&id).ok_or(Refusal::NotFound("Zone"))?;
    if let Some(name) = name {
        name.clone_into(&mut row.name);
    }
    if let Some(text) = call.body.get("description") {
        text.clone_into(&mut row.description);
    }
    Ok(row)
}

pub(crate) fn pools(model: &mut Model, call: &Call, action: Collection) -> Outcome<Reply> {
    match action {
        Collection::Read => list(model.db.pools.values().map(render::pool).collect()),
        Collection::Create => {
            call.require_right()?;
            let mut pool = new_named(&model.db.pools, "Resource pool", call)?;
            pool.id = model.db.sequences.take(Table::Pool);
            let reply = Reply::json(&render::pool(&pool));
            model.effect(Effect::object(ObjectKind::Pool, &pool.name, ObjectChange::Created));
            model.db.pools.insert(pool.id, pool);
            Ok(reply)
        }
    }
}

pub(crate) fn pool(model: &mut Model, call: &Call, action: Item) -> Outcome<Reply> {
    let wanted = call.parameter(0);
    let named = |pool: &&Named| pool.name == wanted || pool.id.to_string() == wanted;
    let pool = model.db.pools.values().find(named).ok_or(Refusal::NotFound("ResourcePool"))?;
    let id = pool.id;
    match action {
        Item::Read => Ok(Reply::json(&render::pool(pool))),
        Item::Update => {
            call.require_right()?;
            let pool = update_named(&mut model.db.pools, id, "Resource pool", call)?;
            Ok(Reply::json(&render::pool(pool)))
        }
        Item::Delete => {
            call.require_right()?;
            if id == DEFAULT_POOL {
                return Err(Refusal::bad_request("This is the default pool, it cannot be deleted."));
            }
            if model.db.machines.values().any(|machine| machine.pool == id) {
                return Err(Refusal::bad_request("Pool has machines; unable to delete."));
            }
            model.db.pools.remove(&id);
            Ok(Reply::deleted())
        }
    }
}

const MAX_SERIAL: i64 = 4_294_967_295;
/// The maximum TTL of a record.
const MAX_TTL: i64 = 604_800;

fn read_ttl(text: Option<&str>, check: &mut FormCheck) -> Option<i64> {
    let ttl = check.at_least("ttl", text.filter(|text| !text.is_empty()), 1);
    if ttl.is_some_and(|ttl| ttl > MAX_TTL) {
        check.add("ttl", format!("Ensure this value is less than or equal to {MAX_TTL}."));
    }
    ttl
}

fn check_domain_name(model: &Model, name: &str, own: Option<i64>, check: &mut FormCheck) {
    let length = name.chars().count();
    let wrong = dns_name_error(name);
    // The model and its field are checked separately, each with its own message; the first accepts a trailing dot.
    if length > 255 {
        check.add("name", "Domain name length cannot exceed 255 characters.");
    } else if dns_name_error(name.strip_suffix('.').unwrap_or(name)).is_some() {
        check.add("name", "Domain name contains invalid characters.");
    }
    if let Some(wrong) = wrong {
        check.add("name", wrong);
    } else if model.db.domains.values().any(|domain| domain.name == name && Some(domain.id) != own) {
        check.add("name", "Domain with this Name already exists.");
    }
}

pub(crate) fn domains(model: &mut Model, call: &Call, action: DomainsAction) -> Outcome<Reply> {
    match action {
        DomainsAction::Read => list(model.db.domains.values().map(|row| render::domain(model, row)).collect()),
        DomainsAction::Create => {
            call.require_admin()?;
            let form = &call.body;
            let mut check = FormCheck::default();
            let name = check.require("name", form.get("name"));
            if let Some(name) = name {
                check_domain_name(model, name, None, &mut check);
            }
            let ttl = read_ttl(form.get("ttl"), &mut check);
            check.done()?;
            let row = Domain {
                id: model.db.sequences.take(Table::Domain),
                name: name.unwrap_or_default().to_owned(),
                authoritative: form.get("authoritative").is_none_or(is_true),
                ttl,
            };
            let reply = Reply::json(&render::domain(model, &row));
            model.db.domains.insert(row.id, row);
            Ok(reply)
        }
        DomainsAction::SetSerial => set_serial(call),
    }
}

/// The serial number of the zones, which the DNS server here does not publish. From MAAS's source, not recorded.
fn set_serial(call: &Call) -> Outcome<Reply> {
    call.require_admin()?;
    let Some(text) = call.body.get("serial") else { return Err(Refusal::field("serial", "Missing parameter")) };
    match text.trim().parse::<i64>() {
        Err(_) => Err(Refusal::field("serial", "Expected a serial number")),
        Ok(serial) if serial == 0 || serial > MAX_SERIAL => {
            Err(Refusal::field("serial", format!("Expected a serial number between 1 and {MAX_SERIAL}")))
        }
        Ok(_) => Ok(Reply::json(&Value::Null)),
    }
}

pub(crate) fn domain(model: &mut Model, call: &Call, action: DomainAction) -> Outcome<Reply> {
    let form = &call.body;
    // By id or by name.
    let domain = model.find_domain(call.parameter(0)).ok_or(Refusal::NotFound("Domain"))?;
    let id = domain.id;
    match action {
        DomainAction::Read => Ok(Reply::json(&render::domain(model, domain))),
        DomainAction::Update => {
            call.require_right()?;
            let mut check = FormCheck::default();
            if let Some(name) = form.get("name").filter(|name| !name.is_empty()) {
                check_domain_name(model, name, Some(id), &mut check);
            }
            let ttl = read_ttl(form.get("ttl"), &mut check);
            check.done()?;
            let domain = model.db.domains.get_mut(&id).ok_or(Refusal::NotFound("Domain"))?;
            if let Some(name) = form.get("name").filter(|name| !name.is_empty()) {
                name.clone_into(&mut domain.name);
            }
            if let Some(text) = form.get("authoritative") {
                domain.authoritative = is_true(text);
            }
            if form.has("ttl") {
                domain.ttl = ttl;
            }
            let domain = model.db.domains.get(&id).ok_or(Refusal::NotFound("Domain"))?;
            Ok(Reply::json(&render::domain(model, domain)))
        }
        DomainAction::Delete => {
            call.require_right()?;
            model.delete_domain(id)?;
            Ok(Reply::deleted())
        }
        DomainAction::SetDefault => {
            call.require_right()?;
            model.set_default_domain(id);
            let domain = model.db.domains.get(&id).ok_or(Refusal::NotFound("Domain"))?;
            Ok(Reply::json(&render::domain(model, domain)))
        }
    }
}
