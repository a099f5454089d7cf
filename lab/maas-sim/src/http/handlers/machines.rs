//! The collection of machines: listing, creating, allocating.

use serde_json::{Map, Value, json};

use super::{
    super::{
        Call,
        forms::{Encoding, Form},
        render,
        reply::Reply,
        surface::MachinesAction as A,
    },
    filter::Filter,
    machine_form::{self, Fields},
    scripts, unsupported,
};
use crate::ledger::{Effect, MachineChange};
use crate::model::{
    Model, Outcome, Refusal, Status,
    allocate::AllocateRequest,
    db::{Machine, ScriptStatus, Table},
    machines::{Permission, hostname_error, is_mac},
    refusal::FormCheck,
    release::ReleaseRequest,
};
use crate::version::Change;

/// Kinds of chassis that every release can probe.
const PROBED_CHASSIS: &[&str] =
    &["mscm", "msftocs", "powerkvm", "proxmox", "recs_box", "seamicro15k", "sm15k", "ucsm", "virsh", "vmware"];

pub(crate) fn answer(model: &mut Model, call: &Call, action: A) -> Outcome<Reply> {
    match action {
        A::Read => Ok(Reply::machines(filtered(model, call)?)),
        A::Create => create(model, call),
        A::Allocate => allocate(model, call),
        A::Release => release(model, call),
        A::Accept => accept(model, call),
        A::AcceptAll => accept_all(model, call),
        A::SetZone => set_zone(model, call),
        A::IsRegistered => is_registered(model, call),
        A::IsActionInProgress => is_action_in_progress(model, call),
        A::ListAllocated => {
            // Only the caller's Allocated machines, which makes it useless as a status feed.
            let ids = call.query.all("id");
            let listed = model
                .machines_in_order()
                .into_iter()
                .filter(|m| m.owner == Some(call.user) && m.status == Status::Allocated)
                .filter(|m| ids.is_empty() || ids.contains(&m.system_id.as_str()))
                .map(|m| m.system_id.clone())
                .collect();
            Ok(Reply::machines(listed))
        }
        A::PowerParameters => {
            call.require_admin()?;
            let ids = call.query.all("id");
            let all: Map<String, Value> = model
                .machines_in_order()
                .into_iter()
                .filter(|machine| ids.is_empty() || ids.contains(&machine.system_id.as_str()))
                .map(|machine| (machine.system_id.clone(), json!(machine.power_parameters)))
                .collect();
            Ok(Reply::json(&Value::Object(all)))
        }
        A::AddChassis => add_chassis(call),
        A::Clone => clone(model, call),
    }
}

/// The machines that a list shows.
pub(super) fn filtered(model: &Model, call: &Call) -> Outcome<Vec<String>> {
    let filter = Filter::read(model, &call.query)?;
    let machines = &model.db.machines;
    let mut found: Vec<&Machine> = match filter.ids() {
        Some(ids) => ids.into_iter().filter_map(|id| machines.get(id)).collect(),
        None => machines.values().collect(),
    };
    found.retain(|machine| model.may(call.user, machine, Permission::View) && filter.fits(model, machine));
    found.sort_by_key(|machine| machine.id);
    Ok(found.into_iter().map(|machine| machine.system_id.clone()).collect())
}

fn allocate(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let form = &call.body;
    if form.encoding == Encoding::Json {
        return Err(Refusal::crash("'dict' object has no attribute 'lists'"));
    }
    for key in ["install_rackd", "install_kvm", "register_vmhost", "ephemeral_deploy"] {
        form.boolean(key)?;
    }
    let bridge_all = super::machine::bridging(form, false)?;
    let request = AllocateRequest {
        data: form.pairs.iter().filter(|(key, _)| key != "op").cloned().collect(),
        agent_name: form.text("agent_name").unwrap_or_default(),
        comment: form.text("comment"),
        dry_run: form.boolean("dry_run")?,
        verbose: form.boolean("verbose")?,
        bridge_all,
    };
    let system_id = model.allocate(call.user, &request)?;
    let mut value = render::machine::machine(model, model.machine(&system_id)?);
    value["constraints_by_type"] =
        if request.verbose { json!({"verbose_storage": {}, "verbose_interfaces": {}}) } else { json!({}) };
    Ok(Reply::json(&value))
}

fn release(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let form = call.posted();
    let mut ids = form.all_texts("machines");
    // A machine that is named twice is released once.
    ids.sort_by_key(|id| model.db.machines.get(id).map(|machine| machine.id));
    ids.dedup();
    check_known(model, &ids)?;
    check_permitted(model, call, &ids, Permission::Edit, "release")?;
    let mut wrong: Vec<String> = Vec::new();
    let mut wanted: Vec<String> = Vec::new();
    for id in &ids {
        let status = model.machine(id)?.status;
        if status.is_releasable() {
            wanted.push(id.clone());
        } else if status != Status::Ready {
            wrong.push(format!("{id} ('{}')", status.name()));
        }
    }
    if !wrong.is_empty() {
        return Err(Refusal::conflict(format!(
            "Machine(s) cannot be released in their current state: {}.",
            wrong.join(", ")
        )));
    }
    let request = ReleaseRequest { erase: false, force: false, comment: form.text("comment") };
    for id in &wanted {
        model.release(id, call.user, &request)?;
    }
    Ok(Reply::json(&json!(wanted)))
}

/// Whether some node has a MAC address. Without a signature, a node that is still to be commissioned does not count
/// (from MAAS's source, not recorded): it asks this to know whether it must enlist.
pub(super) fn is_registered(model: &Model, call: &Call) -> Outcome<Reply> {
    let mac = call.query.mandatory("mac_address")?;
    let counts = |node: &Machine| call.user != 0 || !matches!(node.status, Status::New | Status::Commissioning);
    Ok(Reply::json(&json!(model.mac_in_use(mac).is_some_and(counts))))
}

/// From MAAS's source, not recorded.
pub(super) fn is_action_in_progress(model: &Model, call: &Call) -> Outcome<Reply> {
    let mac = call.query.mandatory("mac_address")?;
    let busy = |node: &Machine| matches!(node.status, Status::Commissioning | Status::Deploying);
    Ok(Reply::json(&json!(model.mac_in_use(mac).is_some_and(busy))))
}

/// From MAAS's source, not recorded, as is `accept_all`.
fn accept(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let ids = call.posted().all_texts("machines");
    check_known(model, &ids)?;
    check_permitted(model, call, &ids, Permission::Admin, "accept")?;
    accepted(model, call, ids)
}

fn accept_all(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let new = |machine: &&Machine| call.admin && !machine.locked && machine.status == Status::New;
    let ids = model.machines_in_order().into_iter().filter(new).map(|machine| machine.system_id.clone()).collect();
    accepted(model, call, ids)
}

fn accepted(model: &mut Model, call: &Call, ids: Vec<String>) -> Outcome<Reply> {
    let mut accepted = Vec::new();
    for id in ids {
        if model.accept(&id, call.user)? {
            accepted.push(id);
        }
    }
    Ok(Reply::machines(accepted))
}

/// Only the checks, from MAAS's source and not recorded, as is `clone`.
fn add_chassis(call: &Call) -> Outcome<Reply> {
    call.require_admin()?;
    let form = call.posted();
    let kind = form.mandatory("chassis_type")?;
    if PROBED_CHASSIS.contains(&kind) {
        form.mandatory("hostname")?;
    }
    Err(unsupported(call))
}

fn clone(model: &Model, call: &Call) -> Outcome<Reply> {
    let form = call.posted();
    let named =
        form.get("source").into_iter().chain(form.get("destinations").into_iter().flat_map(|ids| ids.split(',')));
    // How machines that are not found are told is not known.
    if !named.filter(|id| !id.is_empty()).all(|id| model.db.machines.contains_key(id)) {
        return Err(unsupported(call));
    }
    let mut check = FormCheck::default();
    check.require("destinations", form.get("destinations"));
    check.require("source", form.get("source"));
    if !form.checkbox("storage") && !form.checkbox("interfaces") {
        check.add("__all__", "Either storage or interfaces must be true.");
    }
    check.done()?;
    Err(unsupported(call))
}

fn check_known(model: &Model, ids: &[String]) -> Outcome<()> {
    let unknown: Vec<&str> = ids.iter().filter(|id| !model.db.machines.contains_key(*id)).map(String::as_str).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(Refusal::bad_request(format!("Unknown machine(s): {}.", unknown.join(", "))))
}

fn check_permitted(model: &Model, call: &Call, ids: &[String], permission: Permission, what: &str) -> Outcome<()> {
    let refused: Vec<&str> =
        ids.iter().filter(|id| model.machine_for(id, call.user, permission).is_err()).map(String::as_str).collect();
    if refused.is_empty() {
        return Ok(());
    }
    let words =
        format!("You don't have the required permission to {what} the following machine(s): {}.", refused.join(", "));
    Err(Refusal::text(403, words))
}

pub(super) fn set_zone(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let form = &call.body;
    let mut check = FormCheck::default();
    let zone = check.require("zone", form.get("zone")).and_then(|name| {
        let found = model.db.zones.values().find(|zone| zone.name == name).map(|zone| zone.id);
        if found.is_none() {
            check.add("zone", "Select a valid choice. That choice is not one of the available choices.");
        }
        found
    });
    let ids = form.all_texts("nodes");
    let known = |id: &String| model.db.machines.contains_key(id) || model.db.devices.contains_key(id);
    if ids.is_empty() {
        check.add("system_id", "This field is required.");
    } else if !ids.iter().all(known) || !call.admin {
        check.add("system_id", "Some of the given system ids are invalid system ids.");
    }
    check.done()?;
    let Some(zone) = zone else { return Err(Refusal::required("zone")) };
    for id in &ids {
        match model.db.devices.get_mut(id) {
            Some(device) => device.node.zone = zone,
            None => model.machine_mut(id)?.zone = zone,
        }
    }
    for id in &ids {
        model.effect(Effect::machine(id, MachineChange::Zone));
    }
    Ok(Reply::json(&Value::Null))
}

/// The form of a new machine with the second half of its architecture: "generic" unless it has a field of its own. From
/// MAAS's source, not recorded.
fn with_architecture(form: &Form) -> Outcome<Form> {
    let given = |key: &str| form.get(key).filter(|text| !text.is_empty());
    let mut form_with = form.clone();
    if let Some(architecture) = given("architecture") {
        let second = given("subarchitecture");
        if !architecture.contains('/') {
            let whole = format!("{architecture}/{}", second.unwrap_or("generic"));
            form_with.pairs.push(("architecture".to_owned(), whole));
        } else if second.is_some() {
            return Err(Refusal::bad_request("Subarchitecture cannot be specified twice."));
        }
    }
    Ok(form_with)
}

/// Kernels have a field of their own, which is read before the form.
fn check_kernel(form: &Form) -> Outcome<()> {
    let is_kernel = |text: &str| text.contains("hwe-") || text.contains("ga-");
    let in_architecture = ["architecture", "subarchitecture"].iter().filter_map(|key| form.get(key)).any(is_kernel);
    if in_architecture {
        return Err(Refusal::bad_request("hwe kernel must be specified using the min_hwe_kernel argument."));
    }
    match form.get("min_hwe_kernel").filter(|text| !text.is_empty() && !is_kernel(text)) {
        Some(_) => Err(Refusal::bad_request("min_hwe_kernel must start with \"hwe-\" or \"ga-\"")),
        None => Ok(()),
    }
}

/// The MAC addresses of a new node, and whether they are available. Each is a field of its own.
pub(super) fn check_macs(model: &Model, form: &Form, check: &mut FormCheck, required: bool) -> (Vec<String>, bool) {
    let macs: Vec<&str> = form.all("mac_addresses").into_iter().filter(|text| !text.is_empty()).collect();
    let mut wrong: Vec<String> =
        macs.iter().filter(|mac| !is_mac(mac)).map(|mac| format!("'{mac}' is not a valid MAC address.")).collect();
    // Whether they are in use is only checked when all are valid.
    if wrong.is_empty() {
        let in_use = macs.iter().filter_map(|mac| Some((mac, model.mac_in_use(mac)?)));
        wrong.extend(in_use.map(|(mac, other)| format!("MAC address {mac} already in use on {}.", other.hostname)));
    }
    if macs.is_empty() && required {
        check.add("mac_addresses", "This field is required.");
    } else if !wrong.is_empty() && macs.len() > 1 {
        // Several are reported in one message. From MAAS's source, not recorded.
        check.add("mac_addresses", format!("One or more MAC addresses is invalid. ({})", wrong.join(" \u{2014} ")));
    } else {
        for words in wrong {
            check.add("mac_addresses", words);
        }
    }
    let fine = !macs.is_empty() && !check.is_wrong("mac_addresses");
    (macs.into_iter().map(str::to_lowercase).collect(), fine)
}

/// The required parameters of a webhook, by the names that its form shows. From MAAS's source, not recorded.
const WEBHOOK_NEEDS: &[(&str, &str)] = &[
    ("power_on_uri", "URI to power on the node"),
    ("power_off_uri", "URI to power off the node"),
    ("power_query_uri", "URI to query the nodes power status"),
];

/// The parameters of a power type are checked as soon as one of them is given.
fn check_power(form: &Form, check: &mut FormCheck) {
    let given = |name: &str| form.get(&format!("power_parameters_{name}")).is_some_and(|text| !text.is_empty());
    let any = form.pairs.iter().any(|(key, text)| key.starts_with("power_parameters_") && !text.is_empty());
    if form.get("power_type") != Some("webhook") || !any || form.checkbox("power_parameters_skip_check") {
        return;
    }
    for (_, label) in WEBHOOK_NEEDS.iter().filter(|(name, _)| !given(name)) {
        check.add("power_parameters", format!("{label}: This field is required."));
    }
}

/// Whether a name is derived from an address, as reverse look-ups return them: MAAS then chooses another one.
pub(super) fn is_of_address(name: &str) -> bool {
    let parts: Vec<&str> = name.split('-').collect();
    let number = |part: &&str| (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.len() == 4 && parts.iter().all(number)
}

/// The host name that a form gives to a node, which may already have it.
pub(super) fn check_hostname(model: &Model, form: &Form, check: &mut FormCheck, node: Option<&str>) -> Option<String> {
    let name = form.get("hostname").filter(|name| !name.is_empty())?;
    if let Some(error) = hostname_error(name) {
        check.add("hostname", error);
    } else if model.hostname_taken(name, node) {
        check.add("hostname", "Node with this Hostname already exists.");
    }
    Some(name.to_owned())
}

fn create(model: &mut Model, call: &Call) -> Outcome<Reply> {
    let form = &call.body;
    let commission = form.get("commission").is_none() || form.boolean("commission")?;
    let deployed = model.version.has(Change::CreateDeployed) && form.boolean("deployed")?;
    let form = &with_architecture(form)?;
    check_kernel(form)?;
    let mut check = FormCheck::default();
    // A machine with IPMI, or one that is already deployed, needs fewer fields.
    let needed = form.get("power_type").map_or(!deployed, |kind| kind != "ipmi");
    let (macs, macs_fine) = check_macs(model, form, &mut check, needed);
    if needed {
        check.require("architecture", form.get("architecture"));
    }
    check_power(form, &mut check);
    let fields = machine_form::read(model, form, &mut check, None, call.admin)?;
    if let Some(power_type) = fields.power_type.as_deref().filter(|kind| *kind != "ipmi" && !macs_fine)
        && !check.is_wrong("power_type")
    {
        check.add("power_type", format!("Can't set power type to {power_type} without network interfaces"));
    }
    let is_dpu = model.version.has(Change::DpuShown) && form.checkbox("is_dpu") && form.get("is_dpu") != Some("false");
    if is_dpu && fields.architecture.as_deref().is_some_and(|text| !text.starts_with("arm64/")) {
        // From MAAS's source, not recorded.
        check.add("__all__", "Invalid DPU architecture provided. Only 'arm64' architecture is supported.");
    }
    check.done()?;
    // Unknown scripts are not reported: the machine is created, but not commissioned.
    let scripts = scripts::check_commissioning(form, true);
    let deployed = deployed && call.admin;
    let commission = call.admin && !deployed && commission && scripts.is_ok();
    let Fields { hostname, domain, zone, pool, architecture, power_type, .. } = fields;
    let power_type = power_type.unwrap_or_default();
    // Where a rack is needed for the images, its absence is detected before anything is created.
    if commission && !model.version.has(Change::TemporalPower) {
        model.check_can_boot(architecture.as_deref().unwrap_or_default())?;
    }
    let hostname = hostname.filter(|name| !is_of_address(name)).unwrap_or_else(|| model.new_hostname());
    let label = hostname.split('.').next().unwrap_or_default().to_owned();
    let of_name = hostname.split_once('.').and_then(|(_, domain)| model.find_domain(domain)).map(|domain| domain.id);
    let system_id = model.add_machine(&label, &macs);
    let parameters = super::machine::power_parameters(form, &power_type);
    let set = deployed.then(|| model.db.sequences.take(Table::ScriptSet));
    let machine = model.machine_mut(&system_id)?;
    machine.architecture = architecture.unwrap_or_default();
    machine.power_type = power_type;
    machine.power_parameters = parameters;
    machine.zone = zone.unwrap_or(machine.zone);
    machine.pool = pool.unwrap_or(machine.pool);
    machine.domain = domain.or(of_name).unwrap_or(machine.domain);
    machine.description = form.text("description").unwrap_or_default();
    if let Some(text) = form.text("distro_series").filter(|_| deployed) {
        machine.distro_series = text;
    }
    if deployed {
        machine.status = Status::Deployed;
        machine.owner = Some(call.user);
        machine.commissioning = ScriptStatus::Pending;
        machine.commissioning_set = set;
    }
    model.effect(Effect::machine(&system_id, MachineChange::Created));
    if commission {
        model.commission(&system_id, call.user, scripts?)?;
    }
    let machine = model.machine(&system_id)?;
    Ok(Reply::json(&render::machine::machine(model, machine)))
}
