//! One machine: reading, updating, and all operations on it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    super::{Call, forms::Form, render, reply::Reply, surface::MachineAction as A},
    layouts, machine_form,
    nics::BRIDGE_TYPES,
    scripts,
};
use crate::model::{
    Model, Outcome, Refusal, Status, bridges::BridgeOptions, db::InterfaceKind, deploy::DeployRequest,
    machines::Permission, power::PowerAnswer, refusal::FormCheck, release::ReleaseRequest,
};
use crate::version::Change;

/// The default parameters of a webhook BMC.
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

fn required(action: A) -> Permission {
    match action {
        A::Read | A::Details | A::QueryPowerState | A::GetCurtinConfig => Permission::View,
        A::GetToken | A::PowerParameters => Permission::AdminRead,
        A::Update
        | A::Delete
        | A::Commission
        | A::Test
        | A::MarkFixed
        | A::OverrideFailedTesting
        | A::RescueMode
        | A::ExitRescueMode
        | A::SetStorageLayout
        | A::RestoreDefault
        | A::RestoreNetworking
        | A::RestoreStorage
        | A::ClearDefaultGateways => Permission::Admin,
        A::Lock | A::Unlock => Permission::Lock,
        A::Abort
        | A::Deploy
        | A::MarkBroken
        | A::MountSpecial
        | A::PowerOff
        | A::PowerOn
        | A::Release
        | A::SetOwnerData
        | A::SetWorkloadAnnotations
        | A::UnmountSpecial => Permission::Edit,
    }
}

/// Whether an operation reads JSON too. From MAAS's source, not recorded.
fn reads_json(model: &Model, action: A) -> bool {
    match action {
        A::Commission | A::Test | A::SetStorageLayout | A::MountSpecial | A::UnmountSpecial => true,
        A::Release => model.version.has(Change::ReleaseScripts),
        _ => false,
    }
}

pub(crate) fn answer(model: &mut Model, call: &Call, action: A) -> Outcome<Reply> {
    let system_id = call.parameter(0).to_owned();
    let form = if reads_json(model, action) { call.data() } else { call.posted() };
    if action == A::Release && !model.version.has(Change::ReleaseScripts) {
        // MAAS parses these before it looks up the machine.
        for key in ["erase", "secure_erase", "quick_erase"] {
            form.boolean(key)?;
        }
    }
    model.machine_for(&system_id, call.user, required(action))?;
    let comment = form.get("comment");
    let user = call.user;
    match action {
        A::Read => {}
        A::RestoreDefault | A::RestoreNetworking | A::RestoreStorage => restore(model, &system_id, action)?,
        A::Update => machine_form::update(model, call, &system_id)?,
        A::Delete => {
            model.delete_machine(&system_id, call.query.boolean("force")?)?;
            return Ok(Reply::deleted());
        }
        A::Deploy => model.deploy(&system_id, user, &deploy_request(form)?)?,
        A::Release => model.release(&system_id, user, &release_request(model, form)?)?,
        A::Abort => model.abort(&system_id, user, comment)?,
        A::Commission => {
            let test = scripts::check_commissioning(form, model.can_commission(&system_id)?)?;
            model.commission(&system_id, user, test)?;
        }
        A::Test => {
            scripts::check_testing(form, model.machine(&system_id)?.status)?;
            model.test(&system_id, user)?;
        }
        A::OverrideFailedTesting => model.override_failed_testing(&system_id, user, comment)?,
        A::RescueMode => model.rescue_mode(&system_id, user)?,
        A::ExitRescueMode => model.exit_rescue_mode(&system_id, user)?,
        A::MarkBroken => model.mark_broken(&system_id, user, comment.or_else(|| form.get("error_description")))?,
        A::MarkFixed => model.mark_fixed(&system_id, user, comment)?,
        A::Lock => model.set_locked(&system_id, user, true, comment)?,
        A::Unlock => model.set_locked(&system_id, user, false, comment)?,
        A::PowerOn => model.power_on(&system_id, user, comment)?,
        A::PowerOff => model.power_off(&system_id, user, comment)?,
        A::SetWorkloadAnnotations | A::SetOwnerData => {
            model.annotate(&system_id, user, &form.annotations())?;
        }
        A::ClearDefaultGateways => model.machine_mut(&system_id)?.gateway_link = None,
        A::SetStorageLayout => layouts::set(model.machine(&system_id)?, form)?,
        A::MountSpecial => layouts::mount(model.machine_mut(&system_id)?, form)?,
        A::UnmountSpecial => layouts::unmount(model.machine_mut(&system_id)?, form)?,
        A::QueryPowerState => return query_power(model, &system_id),
        A::PowerParameters => return Ok(Reply::json(&json!(model.machine(&system_id)?.power_parameters))),
        A::GetToken => return get_token(model, &system_id),
        A::GetCurtinConfig => return curtin(model, &system_id),
        A::Details => return Ok(Reply::raw("application/bson", details())),
    }
    rendered(model, &system_id)
}

/// Restores the network to the state after commissioning; disks are always in that state.
fn restore(model: &mut Model, system_id: &str, action: A) -> Outcome<()> {
    let status = model.machine(system_id)?.status;
    if !matches!(status, Status::Ready | Status::FailedTesting) {
        let what = match action {
            A::RestoreNetworking => "networking configuration",
            A::RestoreStorage => "storage configuration.",
            _ => "default networking and storage configuration.",
        };
        let words = format!("Machine must be in a ready or failed testing state to restore {what}");
        return Err(Refusal::conflict(words));
    }
    if action != A::RestoreStorage {
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

/// Options that allocate and deploy have in common.
pub(super) fn bridging(form: &Form, by_default: bool) -> Outcome<Option<BridgeOptions>> {
    let wanted = form.boolean("bridge_all")? || (by_default && form.get("bridge_all").is_none());
    if form.get("bridge_type").is_some_and(|kind| !BRIDGE_TYPES.contains(&kind)) {
        // MAAS leaves the place for the value as it is. From its source, not recorded.
        let mut check = FormCheck::default();
        check.choice("bridge_type", "%(value)s", BRIDGE_TYPES);
        check.done()?;
    }
    form.boolean("bridge_stp")?;
    // Unlike for a bridge that is created on its own, there is no delay unless one is given.
    let fd = form.whole_number("bridge_fd")?.unwrap_or(0);
    Ok(wanted.then(|| BridgeOptions { fd, ..super::interfaces::bridge_options(form) }))
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
        agent_name: form.text("agent_name").unwrap_or_default(),
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

/// The network part of what curtin would get. The rest of a real answer contains credentials of the machine.
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
