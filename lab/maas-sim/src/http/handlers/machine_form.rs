//! The form for creating and updating a machine: all its errors are reported at once.

use super::{
    super::{Call, forms::Form},
    machine::power_parameters,
    machines::check_hostname,
};
use crate::ledger::{Effect, MachineChange};
use crate::model::{Model, Outcome, Refusal, refusal::FormCheck};
use crate::version::Change;

const CHOICE: &str = "Select a valid choice. That choice is not one of the available choices.";
/// MAAS's built-in power drivers; from MAAS's source, not recorded.
const POWER_TYPES: &[&str] = &[
    "amt",
    "apc",
    "dli",
    "eaton",
    "fence_cdu",
    "hmc",
    "hmcz",
    "ipmi",
    "lxd",
    "manual",
    "moonshot",
    "mscm",
    "msftocs",
    "nova",
    "openbmc",
    "proxmox",
    "raritan",
    "recs_box",
    "redfish",
    "sm15k",
    "ucsm",
    "virsh",
    "vmware",
    "webhook",
    "wedge",
];

/// The parsed fields of a form.
#[derive(Default)]
pub(super) struct Fields {
    pub(super) hostname: Option<String>,
    pub(super) domain: Option<i64>,
    pub(super) zone: Option<i64>,
    pub(super) pool: Option<i64>,
    pub(super) architecture: Option<String>,
    pub(super) power_type: Option<String>,
    pub(super) swap_size: Option<i64>,
    pub(super) cpu_count: Option<i64>,
    pub(super) memory: Option<i64>,
}

/// Reads the fields, including administrator-only ones if `admin`. `node`: the machine that is updated.
pub(super) fn read(
    model: &Model,
    form: &Form,
    check: &mut FormCheck,
    node: Option<&str>,
    admin: bool,
) -> Outcome<Fields> {
    let given = |key: &str| form.get(key).filter(|text| !text.is_empty());
    let mut fields = Fields {
        hostname: check_hostname(model, form, check, node),
        domain: match given("domain") {
            Some(text) => domain(model, text, check)?,
            None => None,
        },
        swap_size: match given("swap_size") {
            Some(text) => swap_size(text, check)?,
            None => None,
        },
        ..Fields::default()
    };
    if let Some(text) = given("architecture") {
        let usable = model.usable_architectures();
        let usable: Vec<&str> = usable.iter().map(String::as_str).collect();
        check.choice("architecture", text, &usable);
        fields.architecture = Some(text.to_owned());
    }
    if let Some(text) = given("power_type") {
        if !POWER_TYPES.contains(&text) {
            check.add("power_type", format!("Select a valid choice. {text} is not one of the available choices."));
        }
        fields.power_type = Some(text.to_owned());
    }
    if form.checkbox("disable_ipv4") && form.get("disable_ipv4") != Some("0") {
        check.add("disable_ipv4", "If specified, disable_ipv4 must be False.");
    }
    if !admin {
        return Ok(fields);
    }
    if let Some(name) = given("zone") {
        fields.zone = model.db.zones.values().find(|zone| zone.name == name).map(|zone| zone.id);
        if fields.zone.is_none() {
            check.add("zone", CHOICE);
        }
    }
    if let Some(name) = given("pool") {
        fields.pool = model.db.pools.values().find(|pool| pool.name == name).map(|pool| pool.id);
        if fields.pool.is_none() {
            check.add("pool", CHOICE);
        }
    }
    fields.cpu_count = check.whole_number("cpu_count", given("cpu_count"));
    fields.memory = check.whole_number("memory", given("memory"));
    Ok(fields)
}

/// By name or id: MAAS does not handle an id that does not exist.
fn domain(model: &Model, text: &str, check: &mut FormCheck) -> Outcome<Option<i64>> {
    if let Ok(id) = text.parse::<i64>() {
        let known = model.db.domains.contains_key(&id);
        return if known { Ok(Some(id)) } else { Err(Refusal::crash("Domain matching query does not exist.")) };
    }
    let found = model.find_domain(text).map(|domain| domain.id);
    if found.is_none() {
        check.add("domain", format!("Unable to find domain {text}"));
    }
    Ok(found)
}

/// Bytes, or a number with a decimal unit. MAAS does not handle anything but a number before a unit.
fn swap_size(text: &str, check: &mut FormCheck) -> Outcome<Option<i64>> {
    let units = [("K", 1000), ("M", 1_000_000), ("G", 1_000_000_000), ("T", 1_000_000_000_000)];
    for (unit, factor) in units {
        if let Some(number) = text.strip_suffix(unit) {
            let wrong = |_| Refusal::crash(format!("invalid literal for int() with base 10: '{number}'"));
            return number.trim().parse::<i64>().map(|number| Some(number * factor)).map_err(wrong);
        }
    }
    let bytes = text.trim().parse().ok();
    if bytes.is_none() {
        check.add("swap_size", format!("Invalid size for swap: {text}"));
    }
    Ok(bytes)
}

/// The kernel must be one of a release whose image is there. From MAAS's source, not recorded.
fn check_min_kernel(model: &Model, form: &Form, check: &mut FormCheck) {
    let Some(asked) = form.get("min_hwe_kernel").filter(|text| !text.is_empty()) else { return };
    let release = |kernel: &str| {
        let of_release = kernel.strip_prefix("ga-").or_else(|| kernel.strip_prefix("hwe-"))?;
        Some(of_release.split('-').next().unwrap_or(of_release).to_owned())
    };
    let wanted = release(asked);
    if wanted.is_some() && model.db.images.values().any(|image| release(&image.kernel()) == wanted) {
        return;
    }
    check.add(
        "min_hwe_kernel",
        if model.version.has(Change::ImagesInRegion) {
            format!("No kernel matches \">={asked}\" requirement.")
        } else {
            format!("{asked} is not a usable kernel.")
        },
    );
}

/// `PUT` of a machine.
pub(super) fn update(model: &mut Model, call: &Call, system_id: &str) -> Outcome<()> {
    let form = &call.body;
    let mut check = FormCheck::default();
    let fields = read(model, form, &mut check, Some(system_id), true)?;
    check_min_kernel(model, form, &mut check);
    check.done()?;
    if let Some(name) = &fields.hostname {
        model.rename(system_id, name.split('.').next().unwrap_or(name));
    }
    let machine = model.machine_mut(system_id)?;
    if let Some(text) = form.text("description") {
        machine.description = text;
    }
    machine.zone = fields.zone.unwrap_or(machine.zone);
    machine.pool = fields.pool.unwrap_or(machine.pool);
    machine.domain = fields.domain.unwrap_or(machine.domain);
    machine.swap_size = fields.swap_size.or(machine.swap_size);
    machine.cpu_count = fields.cpu_count.unwrap_or(machine.cpu_count);
    machine.memory = fields.memory.unwrap_or(machine.memory);
    if let Some(text) = fields.architecture {
        machine.architecture = text;
    }
    machine.min_hwe_kernel =
        form.text("min_hwe_kernel").or(machine.min_hwe_kernel.take()).or_else(|| Some(String::new()));
    if let Some(power_type) = fields.power_type
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
    model.effect(Effect::machine(system_id, MachineChange::Updated));
    Ok(())
}
