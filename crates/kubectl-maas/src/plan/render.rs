//! Renders an answer for people and for programs.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use capmaas_core::forecast::{Action, Fate, Impact, Missing, Server, Step, Supply};
use capmaas_core::placement::Placement;
use serde_json::{Value, json};

use super::Answer;
use crate::table::table;

/// For people. `wide` explains every host for every VM, not only the last of each group.
pub fn render(answer: &Answer, wide: bool) -> String {
    let mut out = String::new();
    for note in notes(answer) {
        let _ = writeln!(out, "Note: {note}");
    }
    if !out.is_empty() {
        out.push('\n');
    }
    if !answer.impacts.is_empty() {
        out += &render_impacts(&answer.impacts);
        if !answer.unplanned.is_empty() {
            let _ = writeln!(out, "It is unknown what else is lost: {}.", unplanned(answer));
        }
        return out;
    }
    let forecast = &answer.forecast;
    if forecast.steps.is_empty() {
        out.push_str("Nothing to do.\n");
    } else {
        let rows: Vec<Vec<String>> = forecast.steps.iter().enumerate().map(|(index, step)| row(index, step)).collect();
        out.push_str(&table(&["STEP", "CLUSTER", "GROUP", "MACHINE", "ACTION", "WHERE", "WHY"], &rows));
    }
    let metal: Vec<Vec<String>> = forecast.groups.iter().flat_map(metal_rows).collect();
    if !metal.is_empty() {
        let titles = ["CLUSTER", "GROUP", "ZONE", "POOL", "FREE NOW", "LEFT"];
        let _ = write!(out, "\nMetal that fits\n{}", table(&titles, &metal));
    }
    for step in forecast.steps.iter().filter(|_| wide) {
        if let Action::Create(Server::Metal { choices, .. }) = &step.action {
            let _ = write!(out, "\n{} of {} in {}\n  {}\n", step.machine, step.group, step.cluster, choices.join(", "));
        }
        if let Some(placement) = placement_of(step) {
            let _ = writeln!(out, "\n{} of {} in {}\n{}", step.machine, step.group, step.cluster, indented(placement));
        }
    }
    for supply in &forecast.groups {
        if let Some(next) = &supply.next_vm {
            let _ = writeln!(out, "\nOne more VM of {} in {}\n{}", supply.group, supply.cluster, indented(next));
        }
    }
    match answer.fits() {
        Some(true) => out.push_str("\nIt fits.\n"),
        Some(false) => out.push_str("\nIt does not fit. Missing:\n"),
        None => {
            let _ = writeln!(out, "\nIt is unknown whether it fits: {}.", unplanned(answer));
            if !forecast.fits() {
                out.push_str("Missing, unless machines that are not listed leave it:\n");
            }
        }
    }
    for missing in &forecast.missing {
        let _ = writeln!(out, "  {}", sentence(missing));
    }
    out
}

/// All notes, the same for people and programs.
fn notes(answer: &Answer) -> impl Iterator<Item = &String> {
    answer.notes.iter().chain(answer.unplanned.iter().map(|it| &it.why))
}

/// The clusters of which something is not planned.
fn unplanned(answer: &Answer) -> String {
    let clusters: BTreeSet<&str> = answer.unplanned.iter().map(|it| it.cluster.as_str()).collect();
    let clusters: Vec<&str> = clusters.into_iter().collect();
    format!("not everything in {} is planned", clusters.join(", "))
}

fn sentence(missing: &Missing) -> String {
    let why = if missing.why.is_empty() { String::new() } else { format!(" ({})", missing.why) };
    format!("{} for {} in {}{why}", missing.what, missing.group, missing.cluster)
}

fn indented(placement: &Placement) -> String {
    let lines = placement.verdicts.iter().map(|verdict| format!("  {}: {}", verdict.name, verdict.why));
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() { "  MAAS has no LXD VM host".to_owned() } else { lines.join("\n") }
}

fn placement_of(step: &Step) -> Option<&Placement> {
    match &step.action {
        Action::Create(Server::Vm(placement) | Server::Nothing { placement: Some(placement), .. }) => Some(placement),
        _ => None,
    }
}

fn row(index: usize, step: &Step) -> Vec<String> {
    let (action, place, why) = match &step.action {
        Action::Create(Server::Metal { id, hostname, zone, pool, choices }) => (
            "create",
            format!("metal {hostname} ({id}) in {zone}, pool {pool}"),
            match choices.as_slice() {
                [_] => "the only one that fits".to_owned(),
                all => format!("the cheapest of {} that fit", all.len()),
            },
        ),
        Action::Create(Server::Vm(placement)) => {
            let place = placement.choice.as_ref().map(|choice| {
                let zone = choice.zone.as_ref().map_or(String::new(), |zone| format!(" in {}", zone.name));
                format!("VM on {}{zone}", choice.name)
            });
            let why = placement.verdicts.first().map_or_else(String::new, |verdict| verdict.why.to_string());
            ("create", place.unwrap_or_default(), why)
        }
        Action::Create(Server::Nothing { why, .. }) => ("create", "nowhere".to_owned(), why.clone()),
        Action::Delete { hosted_vms: 0 } => ("delete", String::new(), String::new()),
        Action::Delete { hosted_vms: 1 } => {
            ("delete", String::new(), "its VM is replaced on another host first".to_owned())
        }
        Action::Delete { hosted_vms } => {
            ("delete", String::new(), format!("its {hosted_vms} VMs are replaced on other hosts first"))
        }
    };
    let text = [(index + 1).to_string(), step.cluster.clone(), step.group.clone(), step.machine.clone()];
    text.into_iter().chain([action.to_owned(), place, why]).collect()
}

fn metal_rows(supply: &Supply) -> Vec<Vec<String>> {
    let row = |free: &capmaas_core::forecast::Free| {
        let names = [&supply.cluster, &supply.group, &free.zone, &free.pool].map(String::clone);
        names.into_iter().chain([free.now.to_string(), free.left.to_string()]).collect()
    };
    supply.metal.iter().map(row).collect()
}

fn render_impacts(impacts: &[Impact]) -> String {
    let rows: Vec<Vec<String>> = impacts
        .iter()
        .map(|impact| {
            let (word, why) = fate(impact);
            vec![
                impact.cluster.clone(),
                format!("{} of {}", impact.lost_control_planes.len(), impact.control_planes),
                impact.lost_workers.len().to_string(),
                word.to_owned(),
                why,
            ]
        })
        .collect();
    let mut out = table(&["CLUSTER", "LOST CONTROL PLANES", "LOST WORKERS", "FATE", "WHY"], &rows);
    let quorum = impacts.iter().filter(|impact| impact.fate == Fate::LosesQuorum).count();
    let back = impacts.iter().filter(|it| matches!(it.fate, Fate::Untouched | Fate::Recovers)).count();
    let _ = writeln!(
        out,
        "\n{quorum} of {} clusters lose quorum; {back} lose nothing or recover by themselves.",
        impacts.len()
    );
    out
}

/// An identifier for programs and a message for people.
fn fate(impact: &Impact) -> (&'static str, String) {
    match &impact.fate {
        Fate::Untouched => ("untouched", String::new()),
        Fate::Recovers => ("recovers", "its MachineHealthChecks replace what is lost".to_owned()),
        Fate::NeedsPerson { why } => ("needs a person", why.clone()),
        Fate::CannotReplace { missing } => {
            let missing: Vec<String> = missing.iter().map(sentence).collect();
            ("cannot replace", format!("missing: {}", missing.join("; ")))
        }
        Fate::LosesQuorum => {
            let why = "its API server is unavailable until machines are back or etcd is restored";
            let already = &impact.unhealthy_control_planes;
            let already = if already.is_empty() {
                String::new()
            } else {
                format!(" (unhealthy already: {})", already.join(", "))
            };
            ("loses quorum", format!("{why}{already}"))
        }
    }
}

/// For programs.
pub fn to_json(answer: &Answer) -> Value {
    let forecast = &answer.forecast;
    let missing = |missing: &Missing| {
        json!({"cluster": missing.cluster, "group": missing.group, "count": missing.count,
               "what": missing.what, "why": missing.why})
    };
    let supply = |supply: &Supply| {
        let metal: Vec<Value> = supply
            .metal
            .iter()
            .map(|free| json!({"zone": free.zone, "pool": free.pool, "now": free.now, "left": free.left}))
            .collect();
        json!({"cluster": supply.cluster, "group": supply.group, "metal": metal,
               "nextVM": supply.next_vm.as_ref().map(|placement| hosts(placement))})
    };
    json!({
        "fits": answer.fits(),
        "steps": forecast.steps.iter().map(step_json).collect::<Vec<_>>(),
        "groups": forecast.groups.iter().map(supply).collect::<Vec<_>>(),
        "missing": forecast.missing.iter().map(missing).collect::<Vec<_>>(),
        "impacts": answer.impacts.iter().map(impact_json).collect::<Vec<_>>(),
        "notes": notes(answer).collect::<Vec<_>>(),
    })
}

fn hosts(placement: &Placement) -> Value {
    let one = |verdict: &capmaas_core::placement::Verdict| json!({"host": verdict.name, "id": verdict.host, "why": verdict.why.to_string()});
    json!({
        "host": placement.choice.as_ref().ok().map(|choice| &choice.name),
        "hosts": placement.verdicts.iter().map(one).collect::<Vec<_>>(),
    })
}

fn step_json(step: &Step) -> Value {
    let mut value = json!({"cluster": step.cluster, "group": step.group, "machine": step.machine});
    let more = match &step.action {
        Action::Create(Server::Metal { id, hostname, zone, pool, choices }) => json!({
            "action": "create",
            "metal": {"systemID": id, "hostname": hostname, "zone": zone, "pool": pool, "choices": choices},
        }),
        Action::Create(Server::Vm(placement)) => json!({"action": "create", "vm": hosts(placement)}),
        Action::Create(Server::Nothing { why, placement }) => json!({
            "action": "create", "nothing": why, "vm": placement.as_ref().map(|placement| hosts(placement)),
        }),
        Action::Delete { hosted_vms } => json!({"action": "delete", "hostedVMs": hosted_vms}),
    };
    for (key, field) in more.as_object().into_iter().flatten() {
        value[key] = field.clone();
    }
    value
}

fn impact_json(impact: &Impact) -> Value {
    let (word, why) = fate(impact);
    json!({"cluster": impact.cluster, "controlPlanes": impact.control_planes,
           "lostControlPlanes": impact.lost_control_planes,
           "unhealthyControlPlanes": impact.unhealthy_control_planes, "lostWorkers": impact.lost_workers, "fate": word, "why": why})
}
