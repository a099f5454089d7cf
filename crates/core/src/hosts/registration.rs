//! The registration of one machine as VM host in MAAS. The steps are those of the agent in standalone mode, with one difference:
//! here only the agent's report shows what is on the node.

use jiff::{SignedDuration, Timestamp};

use super::observed::{Host, Node, Observed, Pair, Place, Report, VmHost};
use super::plan::{Effect, Registration, Standing};
use crate::Lookup;
use crate::plan::IN_FLIGHT;

/// MAAS fills in a new host's resources some seconds after it was registered or refreshed.
const DIGESTING: SignedDuration = SignedDuration::from_secs(30);

type Next = (Option<Effect>, Standing);

fn pending(why: impl Into<String>) -> Next {
    (None, Standing::Pending(why.into()))
}

fn failed(why: impl Into<String>) -> Next {
    (None, Standing::Failed(why.into()))
}

/// The next step for one machine.
pub(super) fn step(observed: &Observed, pair: &Pair, host: &Host, node: Option<&Node>, now: Timestamp) -> Next {
    let Some(node) = node else { return pending("it has not joined the cluster as a Node yet") };
    let Some(report) = &node.report else { return pending("the agent has not reported yet; is its Pod running?") };
    if report.standalone {
        return standalone(host, report);
    }
    if report.state != "Ready" {
        return unready(report);
    }
    if report.certificate.as_ref() != Some(&pair.fingerprint) {
        return pending("LXD does not trust the certificate of this cluster yet");
    }
    let (Some(address), Some(project)) = (&report.address, &report.project) else {
        return pending("the agent has not reported where LXD listens");
    };
    let place = match &host.place {
        Lookup::Found(place) => place,
        Lookup::Absent => return failed(format!("MAAS does not know its machine {} any more", host.machine)),
        Lookup::Unknown(why) => return pending(why.clone()),
    };
    if !host.stamped {
        return pending(format!(
            "machine {} does not carry the stamp of the MaasMachine {} in MAAS, so it is left alone",
            host.machine, host.name
        ));
    }
    match &host.vm_host {
        Lookup::Unknown(why) => pending(why.clone()),
        Lookup::Found(vm_host) => existing(observed, pair, host, (node, report), vm_host, now),
        Lookup::Absent => {
            if host.asked.is_some_and(|asked| now.duration_since(asked) < IN_FLIGHT) {
                return pending("waiting for MAAS's answer to its registration");
            }
            match &report.instances {
                None => pending("the agent cannot list the instances of its project at the moment"),
                Some(instances) if !instances.is_empty() => failed(too_late(project, instances)),
                Some(_) => {
                    let registration = Registration {
                        host: host.name.clone(),
                        name: node.name.clone(),
                        address: address.clone(),
                        project: project.clone(),
                        place: wanted(observed, place),
                    };
                    (Some(Effect::Register(Box::new(registration))), Standing::Pending("it is being registered".into()))
                }
            }
        }
    }
}

/// The cluster's zone and pool, otherwise the machine's own.
fn wanted(observed: &Observed, own: &Place) -> Place {
    Place {
        zone: observed.desired.zone.clone().unwrap_or_else(|| own.zone.clone()),
        pool: observed.desired.pool.clone().unwrap_or_else(|| own.pool.clone()),
    }
}

/// The agent cannot make the node a host. What MAAS sets up only before a deployment needs a new machine.
fn unready(report: &Report) -> Next {
    let message = &report.message;
    match (report.open.as_deref(), report.state.as_str()) {
        (Some("Bridge"), _) => {
            failed(format!("{message}. A rollout fixes it: new machines get the bridge before they are deployed"))
        }
        (Some("Lxd"), _) => {
            failed(format!("{message}. Install LXD there, or a rollout with an image that has it fixes it"))
        }
        (_, "Blocked") => failed(message.clone()),
        _ => pending(message.clone()),
    }
}

/// A person gave the agent a MAAS API key: it registers the node, and we only observe.
fn standalone(host: &Host, report: &Report) -> Next {
    match &host.vm_host {
        Lookup::Found(vm_host) if vm_host.machine.as_ref() == Some(&host.machine) && works(vm_host) => {
            (None, Standing::Right)
        }
        _ if report.state == "Blocked" => failed(report.message.clone()),
        _ => pending(format!("the agent registers the node itself: {}", report.message)),
    }
}

fn works(vm_host: &VmHost) -> bool {
    vm_host.reached && vm_host.measured
}

fn too_late(project: &str, instances: &[String]) -> String {
    format!(
        "project {project:?} holds instances that MAAS does not know ({}): registering or refreshing this host would restart \
         and commission them, so nothing is done; move or remove them first",
        instances.join(", ")
    )
}

fn existing(
    observed: &Observed,
    pair: &Pair,
    host: &Host,
    (node, report): (&Node, &Report),
    vm_host: &VmHost,
    now: Timestamp,
) -> Next {
    let VmHost { id, name, .. } = vm_host;
    if let Some(matched) = vm_host.machine.as_ref().filter(|matched| **matched != host.machine) {
        return failed(format!(
            "MAAS matched VM host {name} ({id}) to machine {matched}, but this is machine {}: MAAS matches by MAC \
             address; remove the VM host in MAAS while it has no VMs, and the interface that both machines show",
            host.machine
        ));
    }
    if !vm_host.ours {
        return if works(vm_host) {
            (None, Standing::Right)
        } else {
            pending(format!(
                "somebody else registered VM host {name} ({id}) and MAAS has not reached it; refresh it in MAAS"
            ))
        };
    }
    if report.project.as_ref() != Some(&vm_host.project) {
        return failed(format!(
            "VM host {name} ({id}) works in project {:?}, but the agent prepared {:?}; remove the VM host in MAAS while it has \
             no VMs",
            vm_host.project,
            report.project.as_deref().unwrap_or_default()
        ));
    }
    // S12 again: MAAS reads the project whenever the host is changed or refreshed.
    let guarded = |effect: Effect, message: String| match &vm_host.strangers {
        Lookup::Found(strangers) if strangers.is_empty() => (Some(effect), Standing::Pending(message)),
        Lookup::Found(strangers) => failed(too_late(&vm_host.project, strangers)),
        Lookup::Absent => pending("which instances MAAS knows cannot be determined"),
        Lookup::Unknown(why) => pending(format!("which instances MAAS knows cannot be determined: {why}")),
    };
    let address = report.address.clone().unwrap_or_default();
    let host_name = host.name.clone();
    if vm_host.certificate.as_ref() != Some(&pair.fingerprint) {
        let message = format!("VM host {name} ({id}) gets the new key of this cluster, since the old one is lost");
        return guarded(Effect::Renew { id: *id, host: host_name, address }, message);
    }
    if vm_host.address != address {
        let message =
            format!("MAAS is told that VM host {name} ({id}) is at {address} now, not at {}", vm_host.address);
        return guarded(Effect::Renew { id: *id, host: host_name, address }, message);
    }
    // What the cluster does not specify was settled when the host was registered, and is a person's to change.
    let place = wanted(observed, &vm_host.place);
    if place != vm_host.place {
        let message = format!("VM host {name} ({id}) moves to zone {} and pool {}", place.zone, place.pool);
        return guarded(Effect::Move { id: *id, host: host_name, place }, message);
    }
    if !works(vm_host) {
        let soon = observed.refreshed.get(id).is_some_and(|last| now.duration_since(*last) < DIGESTING);
        if soon {
            return pending(format!("MAAS is adding VM host {name} ({id})"));
        }
        let message = format!("MAAS has not reached VM host {name} ({id}) yet; refreshing it");
        return guarded(Effect::Refresh { id: *id, host: host_name }, message);
    }
    match &vm_host.machine {
        None => pending(format!("MAAS has not matched VM host {name} ({id}) to a machine yet")),
        // The earlier key pair was lost, or somebody else knows it.
        Some(_) if !report.earlier.is_empty() && report.told.as_ref() != Some(&pair.fingerprint) => {
            let (node, fingerprint) = (node.name.clone(), pair.fingerprint.clone());
            (Some(Effect::TellCertificate { host: host_name, node, fingerprint }), Standing::Right)
        }
        Some(_) => (None, Standing::Right),
    }
}
