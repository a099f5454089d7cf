//! The scripts that a form may name: MAAS's built-in ones, by name and by tag. From MAAS's source, not recorded.

use super::super::forms::Form;
use crate::model::{Outcome, Status, due::COMMISSIONING_SCRIPTS, refusal::FormCheck};

const TESTING: &[&str] = &[
    "7z",
    "badblocks",
    "badblocks-destructive",
    "fio",
    "gateway-connectivity",
    "internet-connectivity",
    "memtester",
    "ntp",
    "rack-controller-connectivity",
    "smartctl-conveyance",
    "smartctl-long",
    "smartctl-short",
    "smartctl-validate",
    "stress-ng-cpu-long",
    "stress-ng-cpu-short",
    "stress-ng-memory-long",
    "stress-ng-memory-short",
    // Tags.
    "commissioning",
    "cpu",
    "destructive",
    "internet",
    "memory",
    "network",
    "network-validation",
    "node",
    "slow",
    "storage",
];
/// Tags of commissioning scripts.
const COMMISSIONING_TAGS: &[&str] =
    &["bmc-config", "commissioning", "configure_hba", "deploy-info", "enlisting", "node", "update_firmware"];
/// Scripts that must not run on a machine in use.
const DESTRUCTIVE: &[&str] = &["badblocks-destructive", "fio", "destructive"];
/// The only script for releases.
const RELEASE: &[&str] = &["wipe-disks"];
const NONE: &str = "none";

/// The names in a field; a field that is present and empty contains one empty name.
fn named<'a>(form: &'a Form, field: &str) -> Vec<&'a str> {
    form.get(field).map_or_else(Vec::new, |text| text.split(',').collect())
}

/// A multiple-choice field stops at the first invalid choice.
fn check_choices(check: &mut FormCheck, field: &str, names: &[&str], known: impl Fn(&str) -> bool) {
    if let Some(name) = names.iter().find(|name| !known(name)) {
        check.add(field, format!("Select a valid choice. {name} is not one of the available choices."));
    }
}

/// The form of `op=commission`; returns whether tests follow.
pub(super) fn check_commissioning(form: &Form, available: bool) -> Outcome<bool> {
    let mut check = FormCheck::default();
    let testing = named(form, "testing_scripts");
    let commissioning = named(form, "commissioning_scripts");
    check_choices(&mut check, "commissioning_scripts", &commissioning, |name| {
        name == NONE || COMMISSIONING_SCRIPTS.contains(&name) || COMMISSIONING_TAGS.contains(&name)
    });
    check_choices(&mut check, "testing_scripts", &testing, |name| name == NONE || TESTING.contains(&name));
    check_available(&mut check, "Commission", available);
    check.done()?;
    Ok(!testing.contains(&NONE))
}

/// The form of `op=test`.
pub(super) fn check_testing(form: &Form, status: Status) -> Outcome<()> {
    let mut check = FormCheck::default();
    let testing = named(form, "testing_scripts");
    check_choices(&mut check, "testing_scripts", &testing, |name| TESTING.contains(&name));
    check_available(&mut check, "Test", status.may_become(Status::Testing));
    if check.is_fine() && status == Status::Deployed && testing.iter().any(|name| DESTRUCTIVE.contains(name)) {
        check.add("testing_scripts", "Destructive tests may only be run on undeployed machines.");
    }
    check.done()
}

fn check_available(check: &mut FormCheck, what: &str, available: bool) {
    if !available {
        check.add("__all__", format!("{what} is not available because of the current state of the node."));
    }
}

/// The scripts of `op=release`.
pub(super) fn check_release(form: &Form) -> Outcome<()> {
    let mut check = FormCheck::default();
    let asked: Vec<&str> = form.all("scripts").iter().flat_map(|names| names.split(',')).collect();
    check_choices(&mut check, "scripts", &asked, |name| name.is_empty() || RELEASE.contains(&name));
    check.done()
}
