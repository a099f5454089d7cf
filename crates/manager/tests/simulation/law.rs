//! What must hold at every moment, and what must hold once the world has settled.

use std::collections::{BTreeMap, BTreeSet};

use capmaas_api::ProviderId;
use capmaas_api::names::{CLUSTER_NAME_LABEL, CONTROL_PLANE_LABEL};
use capmaas_core::machine::{JOURNAL_ANNOTATION, Journal};
use maas_sim::model::db::AllocType;
use serde_json::Value;

use crate::objects::{ADOPTED_NAME, HOME};
use crate::tenants::is_namesake;
use crate::vms;
use crate::world::{Cast, World};

/// Somebody else's record in MAAS's DNS.
pub(crate) const FOREIGN_NAME: &str = "www.maas";

/// A record in MAAS's DNS: each address with the machine that has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) addresses: BTreeSet<String>,
    pub(crate) machines: BTreeSet<String>,
}

/// The state after the last pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    names: BTreeMap<String, Name>,
    /// Updates of records that MAAS carried out.
    updates: usize,
}

/// The machine that a MaasMachine claims.
pub(crate) fn held(object: &Value) -> Option<String> {
    let record = object["metadata"]["annotations"][JOURNAL_ANNOTATION].as_str();
    let record =
        record.and_then(|text| serde_json::from_str::<Journal>(text).ok()).and_then(|record| record.machine().cloned());
    let named = || object["spec"]["providerID"].as_str()?.parse::<ProviderId>().ok()?.system_id().map(str::to_owned);
    record.or_else(named)
}

/// It is being deleted and has asked MAAS to release the machine that it still names: another object may have it.
fn gives_back(object: &Value) -> bool {
    let record = object["metadata"]["annotations"][JOURNAL_ANNOTATION].as_str();
    let record = record.and_then(|text| serde_json::from_str::<Journal>(text).ok());
    is_leaving(object) && record.and_then(|record| record.allocation).is_some_and(|it| it.is_released(&it.machine))
}

pub(crate) fn is_leaving(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// By its own status: a running control plane machine.
fn runs(object: &Value) -> bool {
    let status = &object["status"];
    let labels = &object["metadata"]["labels"];
    labels.get(CONTROL_PLANE_LABEL).is_some()
        && labels[CLUSTER_NAME_LABEL] == HOME.cluster
        && !is_leaving(object)
        && status["machineState"] == "Deployed"
        && status["machinePowered"] == true
        && addresses(object).next().is_some()
}

pub(crate) fn addresses(object: &Value) -> impl Iterator<Item = &str> {
    let addresses = object["status"]["addresses"].as_array().into_iter().flatten();
    addresses.filter(|address| address["type"] == "InternalIP").filter_map(|address| address["address"].as_str())
}

/// Every record in MAAS's DNS.
pub(crate) fn names(world: &World) -> BTreeMap<String, Name> {
    world.maas.control().with_model(|model| {
        let of = |dns: &maas_sim::model::db::DnsResource| {
            let rows: Vec<_> = dns.addresses.iter().filter_map(|id| model.db.addresses.get(id)).collect();
            Name {
                addresses: rows.iter().filter_map(|row| Some(row.ip?.to_string())).collect(),
                machines: rows.iter().filter_map(|row| row.on.as_ref().map(|(id, _)| id.clone())).collect(),
            }
        };
        model.db.dns.values().map(|dns| (model.dns_fqdn(dns), of(dns))).collect()
    })
}

/// The record of the cluster.
fn ours(names: &BTreeMap<String, Name>) -> Vec<(&String, &Name)> {
    names.iter().filter(|(name, _)| name.as_str() != FOREIGN_NAME).collect()
}

/// Addresses that somebody reserved.
pub(crate) fn reserved(world: &World) -> BTreeSet<String> {
    world.maas.control().with_model(|model| {
        let rows = model.db.addresses.values().filter(|row| row.alloc == AllocType::UserReserved);
        rows.filter_map(|row| Some(row.ip?.to_string())).collect()
    })
}

/// How many requests of a kind took effect without a fault.
fn undisturbed(world: &World, kind: &str) -> usize {
    let entries = world.maas.control().ledger(Some(kind));
    entries.iter().filter(|entry| entry.status == Some(200) && entry.faults.is_empty()).count()
}

impl Seen {
    /// The current state, without a check: after a change that no manager made.
    pub(crate) fn anew(world: &World) -> Self {
        Self { names: names(world), updates: undisturbed(world, "dnsresource.update") }
    }
}

/// Holds after every pass.
pub(crate) fn after_a_pass(world: &World, before: &Seen, of_cluster: bool) -> Seen {
    // Only a pass over a cluster writes records: the others need not search all requests.
    let updates = if of_cluster { undisturbed(world, "dnsresource.update") } else { before.updates };
    let now = Seen { names: names(world), updates };
    let objects = world.originals();
    let mut named = BTreeSet::new();
    for object in &objects {
        if let Some(id) = object["spec"]["providerID"].as_str()
            && !gives_back(object)
            && !named.insert(id.to_owned())
        {
            world.fail(&format!("{id} was given twice"));
        }
    }
    if world.cast == Cast::Vms {
        vms::after_a_pass(world);
    }
    if now.names.get(FOREIGN_NAME) != before.names.get(FOREIGN_NAME) {
        world.fail("somebody else's name was touched (S18)");
    }
    let (were, are) = (ours(&before.names), ours(&now.names));
    if are.len() > 1 {
        world.fail(&format!("more than one record of ours: {are:?}"));
    }
    let (was, is) = (were.first().map(|(_, name)| *name), are.first().map(|(_, name)| *name));
    // By the state of MAAS: an object's status about its machine may be lost, and the record stays nevertheless.
    let emptied = was.filter(|_| is.is_none_or(|name| name.addresses.is_empty()));
    if let Some(id) = emptied.and_then(|was| was.machines.iter().find(|id| runs_on(world, &objects, id))) {
        world.fail(&format!("the record was emptied although {id} runs (S18)"));
    }
    if now.updates > before.updates && was == is {
        world.fail("a record was written although nothing differed");
    }
    if let Some(id) = is.and_then(|name| redirected(world, name)) {
        world.fail(&format!("the record leads to {id}, which another cluster of this name has (S18)"));
    }
    if let Some(id) = is.and_then(|name| given_back(world, name)).filter(|_| !world.lenient) {
        world.fail(&format!("{id} was given back while the record led to it (S18)"));
    }
    now
}

/// Whether a machine is a desired control plane machine, Deployed and on.
fn runs_on(world: &World, objects: &[Value], id: &str) -> bool {
    let wanted = |object: &&Value| {
        object["metadata"]["labels"].get(CONTROL_PLANE_LABEL).is_some()
            && !is_leaving(object)
            && held(object).as_deref() == Some(id)
    };
    objects.iter().any(|object| wanted(&object))
        && world.inventory().get(id).is_some_and(|machine| machine.state == "Deployed" && machine.on)
}

/// A machine of another cluster that the name resolves to.
fn redirected(world: &World, name: &Name) -> Option<String> {
    let rivals = world.port.objects("MaasMachine").into_iter().filter(is_namesake);
    rivals.filter_map(|object| held(&object)).find(|id| name.machines.contains(id))
}

/// A machine without an owner that a name still resolves to.
fn given_back(world: &World, name: &Name) -> Option<String> {
    let machines = world.inventory();
    let free = |id: &&String| machines.get(*id).is_none_or(|held| held.owner.is_none() || held.state != "Deployed");
    name.machines.iter().find(free).cloned()
}

/// Why the record of the cluster is not as it should be once settled.
pub(crate) fn unsettled_name(world: &World) -> Option<String> {
    let names = names(world);
    let Some((_, name)) = ours(&names).pop() else { return Some("there is no record".to_owned()) };
    if let Some(id) = given_back(world, name).filter(|_| !world.ledgers.restored) {
        return Some(format!("the record leads to {id}, which was given back"));
    }
    let objects = world.originals();
    let up: Vec<&Value> = objects.iter().filter(|object| runs(object)).collect();
    let wanted: BTreeSet<String> = up.iter().filter_map(|object| addresses(object).next()).map(str::to_owned).collect();
    // A restored MAAS shows machines of the past as alive, and another object may hold one: its address stays.
    let fits = name.addresses == wanted || world.ledgers.restored && wanted.is_subset(&name.addresses);
    (!up.is_empty() && !fits).then(|| format!("the record has {:?}, not {wanted:?}", name.addresses))
}

/// Once the cluster is deleted: no record of ours, no reserved address; a record that another provider created is
/// empty.
pub(crate) fn nothing_named(world: &World, reserved_before: &BTreeSet<String>) {
    let names = names(world);
    for (name, record) in ours(&names) {
        if name != ADOPTED_NAME || !record.addresses.is_empty() || !record.machines.is_empty() {
            world.fail(&format!("the record {name} is left: {record:?}"));
        }
    }
    let reserved = reserved(world);
    if reserved != *reserved_before {
        world.fail(&format!("addresses are kept: {reserved:?}, before there were {reserved_before:?}"));
    }
}
