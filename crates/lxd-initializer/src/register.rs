//! The step `Registered`, in standalone mode: MAAS has this host, uses a certificate that LXD trusts, and has really
//! reached it.

use capmaas_core::registration::{self, Facts, Lxd, Next, Wanted};
use jiff::Timestamp;

use crate::{
    decide,
    effect::Effect,
    observed::{Lookup, MaasFacts, NodeFacts, Observed, ServerFacts},
    plan::Verdict,
    settings::Settings,
};

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
    let own = |given: &String| Some(given.clone()).filter(|given| !given.is_empty());
    let lxd = decide::address(settings, node, server).map(|at| Lxd {
        address: format!("https://{at}"),
        project: settings.project.clone(),
        instances: server.instances.clone(),
    });
    let facts = Facts {
        machine: view.machine.clone(),
        node: settings.node_name.clone(),
        lxd: lxd.map_or(Lookup::Absent, Lookup::Found),
        certificate: decide::certificate(observed).map(|certificate| certificate.fingerprint.to_string()),
        vm_host: view.host.clone(),
        // Where a VM host is later moved to is a person's decision.
        wanted: Wanted { zone: own(&settings.zone), pool: own(&settings.resource_pool), keep_place: false },
        intent: observed.intent.clone(),
        refreshed: observed.memory.refreshed,
    };
    match registration::next(&facts, now) {
        Next::Right(message) => Verdict::Holds(message),
        Next::Wait(why) => Verdict::Wait(why),
        Next::Blocked(why) => Verdict::Block(why),
        Next::Do(call, message) => Verdict::Do(Effect::OnHost(call), message),
    }
}
