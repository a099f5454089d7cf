//! The step `Registered`, in standalone mode: MAAS has this host, uses a certificate that LXD trusts, and has really
//! reached it.

use jiff::{SignedDuration, Timestamp};

use crate::{
    decide,
    effect::{Effect, Registration},
    observed::{Lookup, MaasFacts, Machine, Maker, NodeFacts, Observed, ServerFacts, VmHost},
    plan::Verdict,
    settings::Settings,
};

/// MAAS fills in a host's resources some seconds after it was registered or refreshed.
const DIGESTING: SignedDuration = SignedDuration::from_secs(30);

pub(crate) fn registered(
    settings: &Settings,
    observed: &Observed,
    node: &NodeFacts,
    server: &ServerFacts,
    now: Timestamp,
) -> Verdict {
    let view = match &observed.maas {
        MaasFacts::Here(view) => view,
        MaasFacts::NotAsked => return Verdict::Wait("MAAS was not queried yet".into()),
        MaasFacts::Away(why) => return Verdict::Wait(format!("MAAS does not answer: {why}")),
        MaasFacts::Denied(why) => {
            return Verdict::Block(format!("MAAS refuses the API key: {why}; it needs the key of an administrator"));
        }
        MaasFacts::Unusable(why) => return Verdict::Block(why.clone()),
        MaasFacts::NoVmHosts => {
            return Verdict::Block(
                "this MAAS has no VM hosts any more (410 Gone): versions 3.1 to 3.8 have them".into(),
            );
        }
        MaasFacts::TooOld(version) => {
            return Verdict::Block(format!(
                "MAAS {version} accepts no key pair for a VM host, and this agent sets no trust password: update MAAS to 3.1 or \
                 newer, or register the host by hand"
            ));
        }
    };
    let Some(address) = decide::address(settings, node, server).map(|at| format!("https://{at}")) else {
        return Verdict::Wait("LXD's address is not known".into());
    };
    let machine = match &view.machine {
        Lookup::Found(machine) => machine,
        Lookup::Unknown(why) => {
            return Verdict::Wait(format!("this node's machine in MAAS cannot be determined: {why}"));
        }
        Lookup::Absent => {
            return Verdict::Block(
                "MAAS knows no machine with a network interface of this node, so it cannot know where the VMs run: only nodes \
                 that MAAS deployed can be VM hosts"
                    .into(),
            );
        }
    };
    match &view.host {
        Lookup::Unknown(why) => Verdict::Wait(format!("the VM hosts of MAAS cannot be read: {why}")),
        Lookup::Absent => register(settings, observed, server, machine, address),
        Lookup::Found(host) => existing(settings, observed, machine, host, &address, now),
    }
}

/// S12: registering power-cycles and commissions every VM of the project, so there must be none.
fn register(
    settings: &Settings,
    observed: &Observed,
    server: &ServerFacts,
    machine: &Machine,
    address: String,
) -> Verdict {
    match &server.instances {
        Lookup::Unknown(why) => Verdict::Wait(format!("the instances of the project cannot be listed: {why}")),
        // The project step holds, so an absent list would be a contradiction; nothing is done then.
        Lookup::Absent => Verdict::Wait("the instances of the project cannot be listed".into()),
        Lookup::Found(instances) if !instances.is_empty() => Verdict::Block(too_late(&settings.project, instances)),
        Lookup::Found(_) => {
            let Lookup::Found(certificate) = decide::certificate(observed) else {
                return Verdict::Wait("there is no certificate to register with".into());
            };
            let or = |given: &str, own: &str| if given.is_empty() { own.to_owned() } else { given.to_owned() };
            let registration = Registration {
                name: settings.node_name.clone(),
                address,
                project: settings.project.clone(),
                zone: or(&settings.zone, &machine.zone),
                pool: or(&settings.resource_pool, &machine.pool),
                certificate: certificate.fingerprint,
            };
            let message = format!("registers VM host {} at {}", registration.name, registration.address);
            Verdict::Do(Effect::Register(registration), message)
        }
    }
}

fn too_late(project: &str, instances: &[String]) -> String {
    format!(
        "project {project:?} holds instances that MAAS does not know ({}): registering or refreshing this host would restart \
         and commission them, so nothing is done; move or remove them first",
        instances.join(", ")
    )
}

fn existing(
    settings: &Settings,
    observed: &Observed,
    machine: &Machine,
    host: &VmHost,
    address: &str,
    now: Timestamp,
) -> Verdict {
    let VmHost { id, name, .. } = host;
    if let Some(matched) = host.machine.as_ref().filter(|matched| **matched != machine.system_id) {
        return Verdict::Block(format!(
            "MAAS matched VM host {name} ({id}) to machine {matched}, but this node is machine {}: MAAS matches by MAC \
             addresses; remove the VM host in MAAS while it has no VMs, and the interface that both machines show",
            machine.system_id
        ));
    }
    if host.maker == Maker::SomebodyElse {
        return foreign(machine, host);
    }
    if host.project != settings.project {
        return Verdict::Block(format!(
            "VM host {name} ({id}) works in project {:?}, but LXD_PROJECT is {:?}: set it back, or remove the VM host in MAAS \
             while it has no VMs",
            host.project, settings.project
        ));
    }
    // S12 again: MAAS scans the project whenever the host is changed or refreshed.
    let guarded = |effect: Effect, message: String| match &host.strangers {
        Lookup::Found(strangers) if strangers.is_empty() => Verdict::Do(effect, message),
        Lookup::Found(strangers) => Verdict::Block(too_late(&host.project, strangers)),
        Lookup::Absent => Verdict::Wait("the instances that MAAS knows cannot be read".into()),
        Lookup::Unknown(why) => Verdict::Wait(format!("the instances that MAAS knows cannot be read: {why}")),
    };
    let renew = || Effect::Renew { id: *id, address: address.to_owned() };
    let Lookup::Found(certificate) = decide::certificate(observed) else {
        return Verdict::Wait("there is no certificate to compare with".into());
    };
    if host.certificate != Some(certificate.fingerprint) {
        return guarded(
            renew(),
            format!("updates VM host {name} ({id}) with the new key of this node, since the old one is lost"),
        );
    }
    if host.address != address {
        let message = format!("tells MAAS that VM host {name} ({id}) is at {address} now, not at {}", host.address);
        return guarded(renew(), message);
    }
    if !host.reached || !host.digested {
        let soon = observed.memory.refreshed.is_some_and(|last| now.duration_since(last) < DIGESTING);
        if soon {
            return Verdict::Wait(format!("MAAS is taking in VM host {name} ({id})"));
        }
        let message = format!("refreshes VM host {name} ({id}), which it has not reached yet");
        return guarded(Effect::Refresh { id: *id }, message);
    }
    match &host.machine {
        None => Verdict::Wait(format!("MAAS has not matched VM host {name} ({id}) to a machine yet")),
        Some(_) => Verdict::Holds(format!("VM host {name} ({id}) is this machine, {}", machine.system_id)),
    }
}

/// A VM host on this very machine that somebody else registered: accepted if it works, and never changed.
fn foreign(machine: &Machine, host: &VmHost) -> Verdict {
    let VmHost { id, name, .. } = host;
    match &host.certificate_trusted {
        Lookup::Unknown(why) => Verdict::Wait(format!(
            "it cannot be determined whether LXD trusts the certificate of VM host {name} ({id}): {why}"
        )),
        Lookup::Absent => Verdict::Block(format!(
            "somebody else registered this machine as VM host {name} ({id}), with a certificate that its LXD does not trust: \
             trust that certificate, or remove the VM host in MAAS while it has no VMs"
        )),
        Lookup::Found(()) if !host.reached || !host.digested => Verdict::Wait(format!(
            "somebody else registered this machine as VM host {name} ({id}), and MAAS has not reached it yet: refresh it in \
             MAAS"
        )),
        Lookup::Found(()) => Verdict::Holds(format!(
            "VM host {name} ({id}) is this machine, {}; somebody else registered it and it is accepted as it is",
            machine.system_id
        )),
    }
}
