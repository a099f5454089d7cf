//! What the Node should show about this host: the label when everything holds, and a small status as annotations.

use std::collections::BTreeMap;

use crate::{
    decide,
    effect::NodePatch,
    names,
    observed::{Lookup, LxdFacts, MaasFacts, Observed},
    plan::{Plan, State},
    settings::Settings,
};

/// The change that the Node needs, if any.
pub(crate) fn patch(settings: &Settings, observed: &Observed, plan: &Plan) -> Option<NodePatch> {
    let node = observed.node.found()?;
    let mut patch = NodePatch::default();
    for (key, value) in wanted(settings, observed, plan) {
        if node.annotations.get(key) != value.as_ref() {
            patch.annotations.insert(key.to_owned(), value);
        }
    }
    let initialized = node.labels.get(names::LABEL_INITIALIZED).map(String::as_str);
    if plan.state == State::Ready && initialized != Some("true") {
        patch.labels.insert(names::LABEL_INITIALIZED.to_owned(), Some("true".to_owned()));
    }
    (!patch.is_empty()).then_some(patch)
}

/// The annotations that are known now. Unknown values stay as they were, except lists: an outdated one could be
/// mistaken for an empty project.
fn wanted(settings: &Settings, observed: &Observed, plan: &Plan) -> BTreeMap<&'static str, Option<String>> {
    let mut wanted = BTreeMap::from([
        (names::STATE, Some(plan.state.as_str().to_owned())),
        (names::MESSAGE, Some(plan.message.clone())),
        (names::CONDITIONS, serde_json::to_string(&plan.conditions).ok()),
        (names::PROJECT, Some(settings.project.clone())),
        (names::INSTANCES, None),
        (names::PROFILES, None),
        (names::BRIDGES, None),
    ]);
    if let Some(mode) = decide::mode(observed) {
        wanted.insert(names::MODE, Some(mode.as_str().to_owned()));
    }
    if let (LxdFacts::Here(server), Some(node)) = (&observed.lxd, observed.node.found()) {
        if let Some(print) = server.fingerprint {
            wanted.insert(names::FINGERPRINT, Some(print.to_string()));
        }
        if let (Some(_), Some(at)) = (&server.listener, decide::address(settings, node, server)) {
            wanted.insert(names::ADDRESS, Some(format!("https://{at}")));
        }
        if let (Lookup::Found(certificate), Lookup::Found(_)) = (decide::certificate(observed), &server.trust) {
            wanted.insert(names::CERTIFICATE, Some(certificate.fingerprint.to_string()));
        }
        if let Lookup::Found(earlier) = &server.earlier {
            let prints: Vec<String> = earlier.iter().map(ToString::to_string).collect();
            let list = (!prints.is_empty()).then(|| serde_json::to_string(&prints).ok()).flatten();
            wanted.insert(names::EARLIER, list);
        }
        let bridges = match &server.bridge {
            Lookup::Found(bridge) if bridge.leads_out() => Lookup::Found(vec![settings.bridge.clone()]),
            Lookup::Found(_) | Lookup::Absent => Lookup::Found(Vec::new()),
            Lookup::Unknown(why) => Lookup::Unknown(why.clone()),
        };
        let lists =
            [(names::INSTANCES, &server.instances), (names::PROFILES, &server.profiles), (names::BRIDGES, &bridges)];
        for (name, list) in lists {
            wanted.insert(name, list.found().and_then(|list| serde_json::to_string(list).ok()));
        }
    }
    if let MaasFacts::Here(view) = &observed.maas {
        match &view.host {
            Lookup::Found(host) => drop(wanted.insert(names::VM_HOST, Some(host.id.to_string()))),
            Lookup::Absent => drop(wanted.insert(names::VM_HOST, None)),
            Lookup::Unknown(_) => {}
        }
    }
    wanted
}
