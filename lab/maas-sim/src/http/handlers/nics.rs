//! The forms of interfaces: physical interfaces, VLAN interfaces and bonds are created, and all kinds are updated. What
//! is not recorded comes from the source of MAAS's forms.

use serde_json::json;

use super::super::forms::{Form, is_true};
use crate::ledger::{Effect, MachineChange};
use crate::model::{
    Model, Outcome, Refusal, Status,
    db::{Interface, InterfaceKind, Table},
    machines::is_mac,
    refusal::FormCheck,
};

const CHOICE: &str = "Select a valid choice. That choice is not one of the available choices.";
/// Linux accepts no smaller MTU.
const LEAST_MTU: i64 = 552;
pub(super) const BRIDGE_TYPES: &[&str] = &["standard", "ovs"];
const BOND_MODES: &[&str] =
    &["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"];
const LACP_RATES: &[&str] = &["slow", "fast"];
const HASH_POLICIES: &[&str] = &["layer2", "layer2+3", "layer3+4", "encap2+3", "encap3+4"];

/// What all kinds have in common.
#[allow(clippy::option_option)]
struct Common {
    /// The VLAN, if one is given; `Some(None)` if it is given as empty.
    vlan: Option<Option<i64>>,
    mtu: Option<i64>,
}

fn given<'a>(form: &'a Form, key: &str) -> Option<&'a str> {
    form.get(key).filter(|text| !text.is_empty())
}

fn common(model: &Model, form: &Form, check: &mut FormCheck) -> Common {
    let vlan = form.get("vlan").map(|text| {
        let id = text.parse::<i64>().ok().filter(|id| model.db.vlans.contains_key(id));
        if id.is_none() && !text.is_empty() {
            check.add("vlan", CHOICE);
        }
        id
    });
    check.at_least("interface_speed", given(form, "interface_speed"), 0);
    check.at_least("link_speed", given(form, "link_speed"), 0);
    Common { vlan, mtu: check.at_least("mtu", given(form, "mtu"), LEAST_MTU) }
}

/// A MAC address that no other NIC has.
fn check_mac(model: &Model, system_id: &str, mac: &str, own: Option<i64>, check: &mut FormCheck) {
    if !is_mac(mac) {
        check.add("mac_address", format!("'{mac}' is not a valid MAC address."));
        return;
    }
    let is_own = |node: &str, nic: &Interface| node == system_id && Some(nic.id) == own;
    let other = model.mac_in_use(mac).filter(|node| {
        node.interfaces.iter().any(|nic| nic.mac.eq_ignore_ascii_case(mac) && !is_own(&node.system_id, nic))
    });
    if let Some(other) = other {
        check.add("mac_address", format!("This MAC address is already in use by {}.", other.hostname));
    }
}

/// For physical and VLAN interfaces the form reports a taken name, for the others the database does.
fn check_name(model: &Model, system_id: &str, name: &str, own: Option<i64>, check: &mut FormCheck) -> Outcome<()> {
    let machine = model.node(system_id)?;
    if machine.interfaces.iter().any(|nic| nic.name == name && Some(nic.id) != own) {
        let domain = model.db.domains.get(&machine.domain).map_or("", |domain| domain.name.as_str());
        let node = format!("{system_id} ({}.{domain})", machine.hostname);
        check.add("name", format!("Node {node} already has an interface named '{name}'."));
    }
    Ok(())
}

fn tags(form: &Form) -> Option<Vec<String>> {
    let names = || form.all("tags").into_iter().flat_map(|text| text.split(',')).filter(|text| !text.is_empty());
    form.has("tags").then(|| names().map(str::to_owned).collect())
}

fn add(model: &mut Model, system_id: &str, mut nic: Interface, form: &Form, common: &Common) -> Outcome<i64> {
    let id = nic.id;
    nic.tags = tags(form).unwrap_or_default();
    if let Some(mtu) = common.mtu {
        nic.params.insert("mtu".to_owned(), json!(mtu));
    }
    let parents = nic.parents.clone();
    let connected = nic.vlan.is_some();
    let bond = nic.kind == InterfaceKind::Bond;
    model.node_mut(system_id)?.interfaces.push(nic);
    if bond {
        for parent in parents {
            model.drop_links(system_id, parent);
        }
    }
    if connected {
        model.add_link_up(system_id, id, None);
    }
    model.effect(Effect::machine(system_id, MachineChange::Interfaces));
    Ok(id)
}

/// `op=create_physical`.
pub(super) fn create_physical(model: &mut Model, form: &Form, system_id: &str) -> Outcome<i64> {
    let mut check = FormCheck::default();
    let common = common(model, form, &mut check);
    if let Some(mac) = check.require("mac_address", form.get("mac_address")) {
        check_mac(model, system_id, mac, None, &mut check);
    }
    if given(form, "parents").is_some() {
        check.add("parents", "A physical interface cannot have parents.");
    }
    if let Some(name) = given(form, "name") {
        check_name(model, system_id, name, None, &mut check)?;
    }
    check.done()?;
    let taken = &model.node(system_id)?.interfaces;
    let free = || (0..=taken.len()).map(|n| format!("eth{n}")).find(|name| !taken.iter().any(|nic| nic.name == *name));
    let name = given(form, "name").map(str::to_owned).or_else(free).unwrap_or_default();
    let id = model.db.sequences.take(Table::Interface);
    let mac = form.get("mac_address").unwrap_or_default();
    let nic = Interface::physical(id, &name, mac, common.vlan.flatten());
    add(model, system_id, nic, form, &common)
}

/// The parents that a form names, each of which must be an interface of the machine.
fn parents(model: &Model, form: &Form, field: &str, system_id: &str, check: &mut FormCheck) -> Outcome<Vec<i64>> {
    let machine = model.node(system_id)?;
    let named = form.all(field).into_iter().chain(if field == "parent" { form.all("parents") } else { Vec::new() });
    let mut found = Vec::new();
    for text in named.flat_map(|text| text.split(',')).filter(|text| !text.is_empty()) {
        match text.parse::<i64>() {
            Err(_) => check.add(field, format!("“{text}” is not a valid value.")),
            Ok(id) if machine.interfaces.iter().any(|nic| nic.id == id) => found.push(id),
            Ok(id) => {
                check.add(field, format!("Select a valid choice. {id} is not one of the available choices."));
            }
        }
    }
    Ok(found)
}

/// `op=create_vlan`.
pub(super) fn create_vlan(model: &mut Model, form: &Form, system_id: &str) -> Outcome<i64> {
    let mut check = FormCheck::default();
    let common = common(model, form, &mut check);
    let parents = parents(model, form, "parent", system_id, &mut check)?;
    let machine = model.node(system_id)?;
    let parent = parents.first().and_then(|id| machine.interfaces.iter().find(|nic| nic.id == *id));
    if !check.is_wrong("parent") {
        let in_bond =
            |id: i64| machine.interfaces.iter().any(|nic| nic.kind == InterfaceKind::Bond && nic.parents.contains(&id));
        match (parent, parents.len()) {
            (Some(nic), 1) if nic.kind == InterfaceKind::Vlan => {
                check.add("parent", "A VLAN interface can't have another VLAN interface as parent.");
            }
            (Some(nic), 1) if in_bond(nic.id) => {
                check.add("parent", "A VLAN interface can't have a parent that is already in a bond.");
            }
            (Some(_), 1) => {}
            _ => check.add("parent", "A VLAN interface must have exactly one parent."),
        }
    }
    let vlan = common.vlan.flatten().and_then(|id| model.db.vlans.get(&id));
    if !check.is_wrong("vlan") {
        match vlan {
            None => check.add("vlan", "A VLAN interface must be connected to a tagged VLAN."),
            Some(vlan) if vlan.vid == 0 => check.add("vlan", "A VLAN interface can only belong to a tagged VLAN."),
            Some(_) => {}
        }
    }
    let mut made = None;
    if let (Some(vlan), Some(parent)) = (vlan, parent)
        && !check.is_wrong("vlan")
        && !check.is_wrong("parent")
    {
        let fabric = parent.vlan.and_then(|id| model.db.vlans.get(&id)).map(|vlan| vlan.fabric);
        if fabric != Some(vlan.fabric) {
            check.add(
                "vlan",
                "A VLAN interface can only belong to a tagged VLAN on the same fabric as its parent interface.",
            );
        }
        let name = given(form, "name").map_or_else(|| format!("{}.{}", parent.name, vlan.vid), str::to_owned);
        check_name(model, system_id, &name, None, &mut check)?;
        made = Some((name, parent.mac.clone(), parent.id, vlan.id));
    }
    check.done()?;
    let Some((name, mac, parent, vlan)) = made else { return Err(Refusal::required("parent")) };
    let mut nic = Interface::physical(model.db.sequences.take(Table::Interface), &name, &mac, Some(vlan));
    nic.kind = InterfaceKind::Vlan;
    nic.parents = vec![parent];
    add(model, system_id, nic, form, &common)
}

/// `op=create_bond`.
pub(super) fn create_bond(model: &mut Model, form: &Form, system_id: &str) -> Outcome<i64> {
    let mut check = FormCheck::default();
    let common = common(model, form, &mut check);
    let name = check.require("name", form.get("name"));
    let parents = parents(model, form, "parents", system_id, &mut check)?;
    for (field, choices) in
        [("bond_mode", BOND_MODES), ("bond_lacp_rate", LACP_RATES), ("bond_xmit_hash_policy", HASH_POLICIES)]
    {
        if let Some(text) = given(form, field) {
            check.choice(field, text, choices);
        }
    }
    let numbers = [("bond_miimon", 100), ("bond_downdelay", 0), ("bond_updelay", 0), ("bond_num_grat_arp", 1)];
    for (field, _) in numbers {
        check.at_least(field, given(form, field), 0);
    }
    if parents.is_empty() && !check.is_wrong("parents") {
        check.add("parents", "A bond interface must have one or more parents.");
    }
    let machine = model.node(system_id)?;
    let nics: Vec<&Interface> = machine.interfaces.iter().filter(|nic| parents.contains(&nic.id)).collect();
    if !check.is_wrong("parents") {
        let used = |id: i64| machine.interfaces.iter().any(|nic| nic.parents.contains(&id));
        let mut names: Vec<&str> = nics.iter().filter(|nic| used(nic.id)).map(|nic| nic.name.as_str()).collect();
        names.sort_unstable();
        if !names.is_empty() {
            check.add("parents", format!("Interfaces already in-use: {}.", names.join(", ")));
        }
        let vlan = common.vlan.flatten().or_else(|| nics.first().and_then(|nic| nic.vlan));
        if nics.iter().any(|nic| nic.vlan != vlan) {
            check.add("parents", "All parents must belong to the same VLAN.");
        }
    } else if given(form, "mac_address").is_none() {
        check.add("mac_address", "This field cannot be blank.");
    }
    if let Some(mac) = given(form, "mac_address").filter(|mac| !is_mac(mac)) {
        check.add("mac_address", format!("'{mac}' is not a valid MAC address."));
    }
    check.done()?;
    let name = name.unwrap_or_default();
    if machine.interfaces.iter().any(|nic| nic.name == name) {
        return Err(Refusal::validation("__all__", "Interface with this Node config and Name already exists."));
    }
    let first = nics.first().map(|nic| (nic.mac.clone(), nic.vlan)).unwrap_or_default();
    let mac = given(form, "mac_address").map_or(first.0, str::to_owned);
    let vlan = common.vlan.flatten().or(first.1);
    let mut bond = Interface::physical(model.db.sequences.take(Table::Interface), name, &mac, vlan);
    bond.kind = InterfaceKind::Bond;
    bond.parents = parents;
    for (field, default) in
        [("bond_mode", "active-backup"), ("bond_lacp_rate", "fast"), ("bond_xmit_hash_policy", "layer2")]
    {
        bond.params.insert(field.to_owned(), json!(given(form, field).unwrap_or(default)));
    }
    for (field, default) in numbers {
        let number = given(form, field).and_then(|text| text.parse().ok()).unwrap_or(default);
        bond.params.insert(field.to_owned(), json!(number));
    }
    add(model, system_id, bond, form, &common)
}

/// Fields that only bridges have.
pub(super) fn check_bridge(form: &Form) -> Outcome<()> {
    let mut check = FormCheck::default();
    bridge_fields(form, &mut check);
    check.done()
}

fn bridge_fields(form: &Form, check: &mut FormCheck) {
    if let Some(kind) = given(form, "bridge_type") {
        check.choice("bridge_type", kind, BRIDGE_TYPES);
    }
    check.at_least("bridge_fd", given(form, "bridge_fd"), 0);
}

/// `PUT` of an interface. On a Deployed machine only the identifying fields can be changed.
pub(super) fn update(model: &mut Model, form: &Form, system_id: &str, nic: i64) -> Outcome<()> {
    let deployed = model.node(system_id)?.status == Status::Deployed;
    let kind = model.interface(system_id, nic)?.kind;
    let mut check = FormCheck::default();
    let common = if deployed { Common { vlan: None, mtu: None } } else { common(model, form, &mut check) };
    let name = given(form, "name").map(str::to_owned);
    let mac = given(form, "mac_address").map(str::to_lowercase);
    if let Some(mac) = mac.as_deref().filter(|_| kind == InterfaceKind::Physical) {
        check_mac(model, system_id, mac, Some(nic), &mut check);
    }
    let told_by_form = !deployed && matches!(kind, InterfaceKind::Physical | InterfaceKind::Vlan);
    if let Some(name) = name.as_deref().filter(|_| told_by_form) {
        check_name(model, system_id, name, Some(nic), &mut check)?;
    }
    if kind == InterfaceKind::Physical && !deployed && given(form, "parents").is_some() {
        check.add("parents", "A physical interface cannot have parents.");
    }
    if kind == InterfaceKind::Bridge && !deployed {
        bridge_fields(form, &mut check);
    }
    check.done()?;
    if let Some(name) = &name
        && model.node(system_id)?.interfaces.iter().any(|other| other.name == *name && other.id != nic)
    {
        return Err(Refusal::validation("__all__", "Interface with this Node config and Name already exists."));
    }
    let row = model.interface_mut(system_id, nic)?;
    row.name = name.unwrap_or_else(|| row.name.clone());
    row.mac = mac.unwrap_or_else(|| row.mac.clone());
    if deployed {
        return Ok(());
    }
    row.vlan = common.vlan.unwrap_or(row.vlan);
    row.tags = tags(form).unwrap_or_else(|| row.tags.clone());
    if let Some(mtu) = common.mtu {
        row.params.insert("mtu".to_owned(), json!(mtu));
    }
    if let Some(text) = form.get("bridge_stp") {
        row.bridge_stp = is_true(text);
    }
    if let Some(fd) = form.get("bridge_fd").and_then(|text| text.parse().ok()) {
        row.bridge_fd = fd;
    }
    if let Some(text) = given(form, "bridge_type") {
        text.clone_into(&mut row.bridge_type);
    }
    if let Some(text) = form.get("enabled") {
        row.enabled = is_true(text);
    }
    Ok(())
}
