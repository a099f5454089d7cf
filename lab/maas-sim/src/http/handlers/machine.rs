//! One machine: reading, changing, and everything that is done to it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    super::{Call, forms::Form, render, reply::Reply, routes::Resource},
    list, unsupported,
};
use crate::model::{
    Model, Outcome, Refusal, Status, db::InterfaceKind, deploy::DeployRequest, machines::Permission,
    power::PowerAnswer, refusal::FormCheck, release::ReleaseRequest,
};
use crate::version::Change;

/// What a webhook BMC has when nothing else is said.
const WEBHOOK_DEFAULTS: &[(&str, &str)] = &[
    ("power_on_uri", ""),
    ("power_off_uri", ""),
    ("power_query_uri", ""),
    ("power_user", ""),
    ("power_pass", ""),
    ("power_token", ""),
    ("power_verify_ssl", "n"),
    ("power_on_regex", "status.*\\:.*running"),
    ("power_off_regex", "status.*\\:.*stopped"),
];

/// The `power_parameters_…` fields of a form.
pub(super) fn power_parameters(form: &Form, power_type: &str) -> BTreeMap<String, String> {
    let mut out: BTreeMap<String, String> = BTreeMap::new();
    if power_type == "webhook" {
        out.extend(WEBHOOK_DEFAULTS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    }
    for (key, value) in &form.pairs {
        if let Some(name) = key.strip_prefix("power_parameters_").filter(|name| *name != "skip_check") {
            out.insert(name.to_owned(), value.clone());
        }
    }
    out
}

fn rendered(model: &Model, system_id: &str) -> Outcome<Reply> {
    let machine = model.machine(system_id)?;
    Ok(Reply::json(&render::machine::machine(model, machine)))
}

fn required(action: &str) -> Permission {
    match action {
        "read" | "details" | "get_token" | "query_power_state" | "get_curtin_config" => Permission::View,
        "update"
        | "delete"
        | "commission"
        | "test"
        | "mark_fixed"
        | "override_failed_testing"
        | "power_parameters"
        | "set_storage_layout"
        | "restore_default_configuration"
        | "restore_networking_configuration"
        | "restore_storage_configuration"
        | "clear_default_gateways" => Permission::Admin,
        "lock" | "unlock" => Permission::Lock,
        _ => Permission::Edit,
    }
}

pub(crate) fn answer(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let system_id = call.parameter(0).to_owned();
    if call.route.resource == Resource::Node && !model.db.machines.contains_key(&system_id) {
        return Err(Refusal::NotFound("Node"));
    }
    model.machine_for(&system_id, call.user, required(call.action))?;
    let form = call.data();
    let comment = form.get("comment");
    let user = call.user;
    match call.action {
        "read" | "restore_default_configuration" | "restore_networking_configuration" => {}
        "update" => update(model, call, &system_id)?,
        "delete" => {
            model.delete_machine(&system_id, call.query.flag("force"))?;
            return Ok(Reply::deleted());
        }
        "deploy" => model.deploy(&system_id, user, &deploy_request(form))?,
        "release" => {
            if model.version.has(Change::ReleaseScripts) {
                check_release_scripts(form)?;
            }
            let request =
                ReleaseRequest { erase: form.flag("erase"), force: form.flag("force"), comment: form.text("comment") };
            model.release(&system_id, user, &request)?;
        }
        "abort" => model.abort(&system_id, user, comment)?,
        "commission" => {
            let test = form.get("testing_scripts").is_none_or(|scripts| scripts != "none");
            model.commission(&system_id, user, test)?;
        }
        "test" => model.test(&system_id, user)?,
        "override_failed_testing" => {
            if model.machine(&system_id)?.status == Status::FailedTesting {
                model.set_status(&system_id, Status::Ready);
                model.machine_mut(&system_id)?.owner = None;
            }
        }
        "rescue_mode" => model.rescue_mode(&system_id, user)?,
        "exit_rescue_mode" => model.exit_rescue_mode(&system_id, user)?,
        "mark_broken" => model.mark_broken(&system_id, user, comment.or_else(|| form.get("error_description")))?,
        "mark_fixed" => model.mark_fixed(&system_id, user, comment)?,
        "lock" => model.set_locked(&system_id, user, true, comment)?,
        "unlock" => model.set_locked(&system_id, user, false, comment)?,
        "power_on" => model.power_on(&system_id, user, comment)?,
        "power_off" => model.power_off(&system_id, user, comment)?,
        "set_workload_annotations" | "set_owner_data" => {
            // `op` is a key like any other, unless it was the operation.
            let op_in_body = !call.query.has("op");
            let pairs: Vec<(String, String)> =
                form.pairs.iter().filter(|(key, _)| !(op_in_body && key == "op")).cloned().collect();
            model.annotate(&system_id, user, &pairs)?;
        }
        "clear_default_gateways" => model.machine_mut(&system_id)?.gateway_link = None,
        "set_storage_layout" | "restore_storage_configuration" => storage_layout(model, &system_id)?,
        "query_power_state" => return query_power(model, &system_id),
        "power_parameters" => {
            return Ok(Reply::json(&json!(model.machine(&system_id)?.power_parameters)));
        }
        "get_token" => return get_token(model, &system_id),
        "get_curtin_config" => return curtin(model, &system_id),
        "details" => return Ok(Reply::raw("application/bson", details())),
        _ => return Err(unsupported(call)),
    }
    rendered(model, &system_id)
}

/// Disks and script results of a machine.
pub(crate) fn parts(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let machine = model.db.machines.get(call.parameter(0)).ok_or(Refusal::NotFound("Node"))?;
    if !model.may(call.user, machine, Permission::View) {
        return Err(Refusal::Forbidden);
    }
    if call.route.resource == Resource::BlockDevices {
        return list(machine.disks.iter().map(|disk| render::storage::disk(model, machine, disk)).collect());
    }
    list(Vec::new())
}

fn storage_layout(model: &mut Model, system_id: &str) -> Outcome<()> {
    let status = model.machine(system_id)?.status;
    if !matches!(status, Status::Ready | Status::Allocated) {
        return Err(Refusal::conflict("Cannot change the storage layout on a machine that is not Ready or Allocated."));
    }
    Ok(())
}

fn query_power(model: &mut Model, system_id: &str) -> Outcome<Reply> {
    match model.query_power(system_id)? {
        PowerAnswer::State(state) => Ok(Reply::json(&json!({"state": state.word()}))),
        PowerAnswer::Timeout => Err(Refusal::text(
            504,
            "Unexpected exception: TimeoutError. See /var/log/maas/regiond.log on the region server for more information.",
        )),
    }
}

fn get_token(model: &Model, system_id: &str) -> Outcome<Reply> {
    let machine = model.machine(system_id)?;
    if !matches!(machine.status, Status::Deploying | Status::Deployed | Status::Commissioning) {
        return Ok(Reply::json(&Value::Null));
    }
    let part = |what: &str| crate::model::rng::uuid_from(model.seed, &["token", what, system_id]).replace('-', "");
    Ok(Reply::json(&json!({
        "consumer_key": part("consumer"), "token_key": part("key"), "token_secret": part("secret"),
    })))
}

/// The only script for releases that MAAS brings along.
const RELEASE_SCRIPT: &str = "wipe-disks";

fn check_release_scripts(form: &Form) -> Outcome<()> {
    let mut check = FormCheck::default();
    let asked = form.all("scripts");
    for name in
        asked.iter().flat_map(|names| names.split(',')).filter(|name| !name.is_empty() && *name != RELEASE_SCRIPT)
    {
        check.add("scripts", format!("Select a valid choice. {name} is not one of the available choices."));
    }
    check.done()
}

fn deploy_request(form: &Form) -> DeployRequest {
    DeployRequest {
        distro_series: form.text("distro_series"),
        hwe_kernel: form.text("hwe_kernel"),
        agent_name: form.text("agent_name"),
        comment: form.text("comment"),
        ephemeral: form.flag("ephemeral_deploy"),
        enable_hw_sync: form.flag("enable_hw_sync"),
        enable_kernel_crash_dump: form.flag("enable_kernel_crash_dump"),
        vm_host: form.flag("register_vmhost") || form.flag("install_kvm"),
        install_rackd: form.flag("install_rackd"),
        bridge_all: form.flag("bridge_all").then(|| super::interfaces::bridge_options(form)),
        user_data: form.text("user_data"),
    }
}

/// Bytes, or a number with a unit of 1000.
fn parse_size(text: &str) -> Option<i64> {
    let text = text.trim();
    let (number, factor) = match text.char_indices().last()? {
        (at, 'K' | 'k') => (&text[..at], 1000),
        (at, 'M') => (&text[..at], 1_000_000),
        (at, 'G') => (&text[..at], 1_000_000_000),
        (at, 'T') => (&text[..at], 1_000_000_000_000),
        _ => (text, 1),
    };
    number.parse::<i64>().ok().map(|number| number * factor)
}

fn update(model: &mut Model, call: &Call, system_id: &str) -> Outcome<()> {
    let form = &call.body;
    let given = |key: &str| form.get(key).filter(|text| !text.is_empty());
    let mut check = FormCheck::default();
    super::machines::check_hostname(model, form, &mut check, Some(system_id));
    let choice = "Select a valid choice. That choice is not one of the available choices.";
    let zone = given("zone").map(|name| model.db.zones.values().find(|zone| zone.name == name).map(|zone| zone.id));
    if zone == Some(None) {
        check.add("zone", choice);
    }
    let pool = given("pool").map(|name| model.db.pools.values().find(|pool| pool.name == name).map(|pool| pool.id));
    if pool == Some(None) {
        check.add("pool", choice);
    }
    let domain = given("domain").map(|name| (name, model.find_domain(name).map(|domain| domain.id)));
    if let Some((name, None)) = domain {
        check.add("domain", format!("Unable to find domain {name}"));
    }
    let swap = given("swap_size").map(|text| (text, parse_size(text)));
    if let Some((text, None)) = swap {
        check.add("swap_size", format!("Invalid size for swap: {text}"));
    }
    let number = |check: &mut FormCheck, key: &str| -> Option<i64> {
        let text = given(key)?;
        let parsed = text.parse().ok();
        if parsed.is_none() {
            check.add(key, "Enter a whole number.");
        }
        parsed
    };
    let cpu_count = number(&mut check, "cpu_count");
    let memory = number(&mut check, "memory");
    check.done()?;
    let power_type = given("power_type").map(str::to_owned);
    if let Some(name) = given("hostname") {
        model.rename(system_id, name.split('.').next().unwrap_or(name));
    }
    let machine = model.machine_mut(system_id)?;
    if let Some(text) = form.text("description") {
        machine.description = text;
    }
    machine.zone = zone.flatten().unwrap_or(machine.zone);
    machine.pool = pool.flatten().unwrap_or(machine.pool);
    machine.domain = domain.and_then(|(_, id)| id).unwrap_or(machine.domain);
    machine.swap_size = swap.and_then(|(_, size)| size).or(machine.swap_size);
    machine.cpu_count = cpu_count.unwrap_or(machine.cpu_count);
    machine.memory = memory.unwrap_or(machine.memory);
    if let Some(text) = given("architecture") {
        text.clone_into(&mut machine.architecture);
    }
    if let Some(text) = form.text("min_hwe_kernel") {
        machine.min_hwe_kernel = Some(text);
    }
    if let Some(power_type) = power_type
        && power_type != machine.power_type
    {
        machine.power_parameters = power_parameters(form, &power_type);
        machine.power_type = power_type;
    }
    for (key, value) in &form.pairs {
        if let Some(name) = key.strip_prefix("power_parameters_").filter(|name| *name != "skip_check") {
            machine.power_parameters.insert(name.to_owned(), value.clone());
        }
    }
    model.effect(format!("{system_id}: updated"));
    Ok(())
}

/// The network part of what curtin would get. The rest of a real answer holds credentials of the machine.
fn curtin(model: &Model, system_id: &str) -> Outcome<Reply> {
    use std::fmt::Write as _;

    let machine = model.machine(system_id)?;
    if !matches!(machine.status, Status::Deploying | Status::Deployed) {
        return Err(Refusal::bad_request(format!("Machine {} is not in a deployment state.", machine.hostname)));
    }
    let mut text = String::from("network:\n");
    for (section, kind) in [("bridges", InterfaceKind::Bridge), ("ethernets", InterfaceKind::Physical)] {
        let nics: Vec<_> = machine.interfaces.iter().filter(|nic| nic.kind == kind).collect();
        if nics.is_empty() {
            continue;
        }
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {section}:");
        for nic in nics {
            let _ = writeln!(text, "    {}:", nic.name);
            let rows: Vec<_> = nic.addresses.iter().filter_map(|id| model.db.addresses.get(id)).collect();
            let mut first = true;
            for row in rows {
                let subnet = row.subnet.and_then(|id| model.db.subnets.get(&id));
                if let (Some(ip), Some(subnet)) = (row.ip, subnet)
                    && row.alloc != crate::model::db::AllocType::Discovered
                {
                    if first {
                        let _ = writeln!(text, "      addresses:");
                        first = false;
                    }
                    let _ = writeln!(text, "      - {ip}/{}", subnet.cidr.length());
                }
            }
            let _ = writeln!(text, "      macaddress: {}\n      mtu: 1500", nic.mac);
        }
    }
    text.push_str("  version: 2\nnetwork_commands:\n  builtin:\n  - curtin\n  - net-meta\n  - custom\n");
    Ok(Reply::raw("text/plain", text))
}

/// A BSON document with two binary values, `lldp` and `lshw`.
fn details() -> Vec<u8> {
    let lshw =
        b"<?xml version=\"1.0\"?><list><node id=\"sim\" class=\"system\"><product>maas-sim</product></node></list>";
    let mut body = Vec::new();
    for (name, content) in [("lldp", &b""[..]), ("lshw", &lshw[..])] {
        body.push(5);
        body.extend_from_slice(name.as_bytes());
        body.push(0);
        body.extend_from_slice(&u32::try_from(content.len()).unwrap_or(0).to_le_bytes());
        body.push(0);
        body.extend_from_slice(content);
    }
    body.push(0);
    let mut document = u32::try_from(body.len() + 4).unwrap_or(0).to_le_bytes().to_vec();
    document.extend_from_slice(&body);
    document
}
