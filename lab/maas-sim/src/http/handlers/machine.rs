//! One machine: reading, changing, and everything that is done to it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    super::{Call, forms::Form, render, reply::Reply, routes::Resource},
    list, machine_form, scripts, unsupported,
};
use crate::model::{
    Model, Outcome, Refusal, Status, bridges::BridgeOptions, db::InterfaceKind, deploy::DeployRequest,
    machines::Permission, power::PowerAnswer, refusal::FormCheck, release::ReleaseRequest,
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
        "read" | "details" | "query_power_state" | "get_curtin_config" => Permission::View,
        "get_token" | "power_parameters" => Permission::AdminRead,
        "update"
        | "delete"
        | "commission"
        | "test"
        | "mark_fixed"
        | "override_failed_testing"
        | "rescue_mode"
        | "exit_rescue_mode"
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
    let form = call.data();
    if call.action == "release" && !model.version.has(Change::ReleaseScripts) {
        // MAAS reads these before it looks for the machine.
        for key in ["erase", "secure_erase", "quick_erase"] {
            form.boolean(key)?;
        }
    }
    model.machine_for(&system_id, call.user, required(call.action))?;
    let comment = form.get("comment");
    let user = call.user;
    match call.action {
        "read" => {}
        "restore_default_configuration" | "restore_networking_configuration" | "restore_storage_configuration" => {
            restore(model, &system_id, call.action)?;
        }
        "update" => machine_form::update(model, call, &system_id)?,
        "delete" => {
            model.delete_machine(&system_id, call.query.boolean("force")?)?;
            return Ok(Reply::deleted());
        }
        "deploy" => model.deploy(&system_id, user, &deploy_request(form)?)?,
        "release" => model.release(&system_id, user, &release_request(model, form)?)?,
        "abort" => model.abort(&system_id, user, comment)?,
        "commission" => {
            let test = scripts::check_commissioning(form, model.can_commission(&system_id)?)?;
            model.commission(&system_id, user, test)?;
        }
        "test" => {
            scripts::check_testing(form, model.machine(&system_id)?.status)?;
            model.test(&system_id, user)?;
        }
        "override_failed_testing" => model.override_failed_testing(&system_id, user, comment)?,
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
        "set_storage_layout" => storage_layout(model, form, &system_id)?,
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

/// Only read in source, as is what follows.
const LAYOUTS: &[&str] = &["bcache", "blank", "custom", "flat", "lvm", "vmfs6", "vmfs7"];

fn storage_layout(model: &mut Model, form: &Form, system_id: &str) -> Outcome<()> {
    let machine = model.machine(system_id)?;
    if machine.status != Status::Ready {
        return Err(Refusal::conflict("Cannot change the storage layout on a machine that is not Ready."));
    }
    let mut check = FormCheck::default();
    if let Some(layout) = check.require("storage_layout", form.get("storage_layout")) {
        check.choice("storage_layout", layout, LAYOUTS);
    }
    check.done()?;
    if machine.disks.is_empty() {
        return Err(Refusal::bad_request("Machine is missing a boot disk; no storage layout can be applied."));
    }
    Ok(())
}

/// Puts the network back as commissioning left it; disks always are as it left them.
fn restore(model: &mut Model, system_id: &str, action: &str) -> Outcome<()> {
    let status = model.machine(system_id)?.status;
    if !matches!(status, Status::Ready | Status::FailedTesting) {
        let what = match action {
            "restore_networking_configuration" => "networking configuration",
            "restore_storage_configuration" => "storage configuration.",
            _ => "default networking and storage configuration.",
        };
        let words = format!("Machine must be in a ready or failed testing state to restore {what}");
        return Err(Refusal::conflict(words));
    }
    if action != "restore_storage_configuration" {
        model.restore_networking(system_id)?;
    }
    Ok(())
}

fn release_request(model: &Model, form: &Form) -> Outcome<ReleaseRequest> {
    let comment = form.text("comment");
    if model.version.has(Change::ReleaseScripts) {
        scripts::check_release(form)?;
        return Ok(ReleaseRequest { erase: form.checkbox("erase"), force: form.checkbox("force"), comment });
    }
    Ok(ReleaseRequest { erase: form.boolean("erase")?, force: form.boolean("force")?, comment })
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

/// Options that allocating and deploying have in common.
pub(super) fn bridging(form: &Form, by_default: bool) -> Outcome<Option<BridgeOptions>> {
    let wanted = form.boolean("bridge_all")? || (by_default && form.get("bridge_all").is_none());
    form.boolean("bridge_stp")?;
    form.whole_number("bridge_fd")?;
    Ok(wanted.then(|| super::interfaces::bridge_options(form)))
}

fn deploy_request(form: &Form) -> Outcome<DeployRequest> {
    let install_rackd = form.boolean("install_rackd")?;
    let install_kvm = form.boolean("install_kvm")?;
    let register_vmhost = form.boolean("register_vmhost")?;
    let ephemeral = form.boolean("ephemeral_deploy")?;
    // VMs on a host need bridges.
    let bridge_all = bridging(form, (install_kvm || register_vmhost) && !ephemeral)?;
    Ok(DeployRequest {
        distro_series: form.text("distro_series"),
        hwe_kernel: form.text("hwe_kernel"),
        agent_name: form.text("agent_name"),
        comment: form.text("comment"),
        ephemeral,
        enable_hw_sync: form.boolean("enable_hw_sync")?,
        enable_kernel_crash_dump: form.flag("enable_kernel_crash_dump"),
        vm_host: register_vmhost || install_kvm,
        install_rackd,
        bridge_all,
        user_data: form.text("user_data"),
    })
}

/// The network part of what curtin would get. The rest of a real answer holds credentials of the machine.
fn curtin(model: &Model, system_id: &str) -> Outcome<Reply> {
    use std::fmt::Write as _;

    let machine = model.machine(system_id)?;
    if !matches!(machine.status, Status::Deploying | Status::Deployed | Status::FailedDeployment) {
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
