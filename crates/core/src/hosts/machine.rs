//! One machine of a cluster on its way to being a VM host. The agent's report shows what is on the node; how it is registered is
//! decided in [`registration`].

use jiff::Timestamp;

use super::observed::{Host, Node, Observed, Pair, Report};
use super::plan::{Effect, Standing};
use crate::Lookup;
use crate::registration::{self, Facts, Lxd, Machine, Next, Wanted};

type Step = (Option<Effect>, Standing);

fn pending(why: impl Into<String>) -> Step {
    (None, Standing::Pending(why.into()))
}

fn failed(why: impl Into<String>) -> Step {
    (None, Standing::Failed(why.into()))
}

/// The next step for one machine.
pub(super) fn step(observed: &Observed, pair: &Pair, host: &Host, node: Option<&Node>, now: Timestamp) -> Step {
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
    if host.place == Lookup::Absent {
        return failed(format!("MAAS does not know its machine {} any more", host.machine));
    }
    if matches!(host.place, Lookup::Found(_)) && !host.stamped {
        return pending(format!(
            "machine {} does not carry the stamp of the MaasMachine {} in MAAS, so it is left alone",
            host.machine, host.name
        ));
    }
    match registration::next(&facts(observed, pair, host, (node, report)), now) {
        Next::Wait(why) => pending(why),
        Next::Blocked(why) => failed(why),
        Next::Do(call, message) => (Some(Effect::OnHost { host: host.name.clone(), call }), Standing::Pending(message)),
        Next::Right(_) => (tell(pair, host, (node, report)), Standing::Right),
    }
}

fn facts(observed: &Observed, pair: &Pair, host: &Host, (node, report): (&Node, &Report)) -> Facts {
    let listed = |instances: &Option<Vec<String>>| match instances {
        Some(instances) => Lookup::Found(instances.clone()),
        None => Lookup::Unknown("the agent's report does not have them".into()),
    };
    let lxd = match (&report.address, &report.project) {
        (Some(address), Some(project)) => Lookup::Found(Lxd {
            address: address.clone(),
            project: project.clone(),
            instances: listed(&report.instances),
        }),
        _ => Lookup::Unknown("the agent has not reported where LXD listens".into()),
    };
    let of_machine = |place| Machine { system_id: host.machine.clone(), place };
    Facts {
        machine: host.place.clone().map(of_machine),
        node: node.name.clone(),
        lxd,
        certificate: Lookup::Found(pair.fingerprint.clone()),
        vm_host: host.vm_host.clone(),
        wanted: Wanted { zone: observed.desired.zone.clone(), pool: observed.desired.pool.clone(), keep_place: true },
        intent: host.asked.clone(),
        refreshed: host.vm_host.found().and_then(|vm_host| observed.refreshed.get(&vm_host.id).copied()),
    }
}

/// The earlier key pair was lost, or somebody else knows it: once MAAS uses the new one, the agent stops trusting it.
fn tell(pair: &Pair, host: &Host, (node, report): (&Node, &Report)) -> Option<Effect> {
    let in_use = host.vm_host.found().is_some_and(|vm_host| vm_host.certificate.as_ref() == Some(&pair.fingerprint));
    let told = report.told.as_ref() == Some(&pair.fingerprint);
    (in_use && !told && !report.earlier.is_empty()).then(|| Effect::TellCertificate {
        host: host.name.clone(),
        node: node.name.clone(),
        fingerprint: pair.fingerprint.clone(),
    })
}

/// The agent cannot make the node a host. What MAAS sets up only before a deployment needs a new machine.
fn unready(report: &Report) -> Step {
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
fn standalone(host: &Host, report: &Report) -> Step {
    match &host.vm_host {
        Lookup::Found(vm_host) if vm_host.machine.as_ref() == Some(&host.machine) && vm_host.works() => {
            (None, Standing::Right)
        }
        _ if report.state == "Blocked" => failed(report.message.clone()),
        _ => pending(format!("the agent registers the node itself: {}", report.message)),
    }
}
