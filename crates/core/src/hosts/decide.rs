//! The decision: the key pair, the agent, its certificate, then every machine.

use jiff::Timestamp;

use super::machine;
use super::observed::{Agent, Host, Node, Observed, Pair};
use super::plan::{Effect, Standing, Step};
use crate::Lookup;

/// How many machines a message names.
const NAMED: usize = 3;

/// The annotation of the DaemonSet that identifies its configuration: if it differs, the DaemonSet is applied again, and rolls
/// out.
pub fn note(observed: &Observed, image: &str) -> String {
    let desired = &observed.desired;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    format!(
        "image={image} storage={}/{} bridge={} zone={} pool={} manifest={}",
        desired.storage_backend,
        desired.storage_size,
        desired.bridge.name,
        text(&desired.zone),
        text(&desired.pool),
        observed.manifest
    )
}

/// Total: every observation yields a step, without a panic.
pub fn decide(observed: &Observed, now: Timestamp) -> Step {
    match set_up(observed, now) {
        Err(step) => step,
        Ok((pair, nodes, rollout)) => machines(observed, pair, nodes, rollout, now),
    }
}

fn only(standing: Standing) -> Step {
    Step { effect: None, standing, registered: 0 }
}

/// Performs the effect, unless it failed a moment ago.
fn attempt(observed: &Observed, effect: Effect, message: &str, now: Timestamp) -> Step {
    match observed.trouble.get(effect.target()) {
        Some(trouble) if trouble.holds(now) => only(Standing::Failed(trouble.message.clone())),
        _ => Step { effect: Some(effect), standing: Standing::Pending(message.to_owned()), registered: 0 },
    }
}

type Ground<'a> = (&'a Pair, &'a [Node], Option<String>);

/// What every machine needs. Returns the key pair, the Nodes, and what is still rolling out.
fn set_up(observed: &Observed, now: Timestamp) -> Result<Ground<'_>, Step> {
    let pair = match &observed.pair {
        Lookup::Found(pair) => pair,
        Lookup::Absent => {
            let message = "the key pair for the hosts is being created";
            return Err(attempt(observed, Effect::MakePair, message, now));
        }
        Lookup::Unknown(why) => return Err(only(Standing::Failed(why.clone()))),
    };
    let rollout = match (&observed.agent, &observed.image) {
        (Lookup::Unknown(why), _) => return Err(only(Standing::Pending(why.clone()))),
        (Lookup::Found(Agent { applied: None, .. }), _) => None,
        (Lookup::Found(agent), Some(image))
            if agent.missing.is_empty() && agent.applied.as_ref() == Some(&note(observed, image)) =>
        {
            rolling_out(agent)
        }
        // Without an image there is nothing to apply, but the running agent goes on.
        (Lookup::Found(agent), None) => rolling_out(agent),
        (Lookup::Absent, None) => {
            return Err(only(Standing::Failed(
                "the manager does not know the agent's image: start it with --lxd-initializer-image (or \
                 LXD_INITIALIZER_IMAGE), or apply lxd-initializer-daemonset.yaml to the cluster by hand"
                    .into(),
            )));
        }
        (Lookup::Absent | Lookup::Found(_), Some(image)) => {
            let desired = Box::new(observed.desired.clone());
            let effect = Effect::ApplyAgent { image: image.clone(), desired, note: note(observed, image) };
            let message = match &observed.agent {
                Lookup::Found(agent) if !agent.missing.is_empty() => {
                    format!(
                        "objects that the agent needs are gone and are being restored: {}",
                        agent.missing.join(", ")
                    )
                }
                _ => "the agent is being applied to the cluster".to_owned(),
            };
            return Err(attempt(observed, effect, &message, now));
        }
    };
    match &observed.handed_over {
        Lookup::Found(certificate) if *certificate == pair.certificate => {}
        Lookup::Unknown(why) => return Err(only(Standing::Pending(why.clone()))),
        Lookup::Found(_) | Lookup::Absent => {
            let effect = Effect::HandOver { certificate: pair.certificate.clone() };
            return Err(attempt(observed, effect, "the certificate is being distributed to the nodes", now));
        }
    }
    match &observed.nodes {
        Lookup::Found(nodes) => Ok((pair, nodes, rollout)),
        Lookup::Absent => Err(only(Standing::Pending("the cluster has no Nodes yet".into()))),
        Lookup::Unknown(why) => Err(only(Standing::Pending(why.clone()))),
    }
}

fn rolling_out(agent: &Agent) -> Option<String> {
    if !agent.observed {
        return Some("the agent's DaemonSet has not been observed by its controller yet".into());
    }
    (agent.updated < agent.desired)
        .then(|| format!("the agent is rolling out: {} of {} nodes have it", agent.updated, agent.desired))
}

/// One effect for the first machine that needs one; all of them count for the standing.
fn machines(observed: &Observed, pair: &Pair, nodes: &[Node], rollout: Option<String>, now: Timestamp) -> Step {
    let mut effect = None;
    let mut registered = 0;
    let (mut failed, mut pending) = (Vec::new(), Vec::new());
    for host in &observed.hosts {
        let node = nodes.iter().find(|node| node.provider_id.as_ref() == Some(&host.provider_id));
        let (mut wanted, mut standing) = machine::step(observed, pair, host, node, now);
        if let (Some(trouble), true) = (observed.trouble.get(&host.name), wanted.is_some())
            && trouble.holds(now)
        {
            wanted = None;
            standing = Standing::Failed(trouble.message.clone());
        }
        if effect.is_none() {
            effect = wanted;
        }
        if standing == Standing::Right {
            registered += 1;
        }
        match standing {
            Standing::Failed(why) if host.control_plane => failed.push(format!("{}: {why}", called(host, node))),
            Standing::Pending(why) if host.control_plane => pending.push(format!("{}: {why}", called(host, node))),
            _ => {}
        }
    }
    pending.extend(observed.awaited.iter().cloned());
    if pending.is_empty() {
        pending.extend(rollout);
    }
    if pending.is_empty() && !observed.hosts.iter().any(|host| host.control_plane) {
        pending.push("the control plane has no bare-metal machine yet".into());
    }
    let standing = match (failed.is_empty(), pending.is_empty()) {
        (false, _) => Standing::Failed(listed(&failed)),
        (true, false) => Standing::Pending(listed(&pending)),
        (true, true) => Standing::Right,
    };
    Step { effect, standing, registered }
}

fn called(host: &Host, node: Option<&Node>) -> String {
    match node {
        Some(node) => format!("node {}", node.name),
        None => format!("machine {}", host.name),
    }
}

fn listed(sentences: &[String]) -> String {
    let text = sentences.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    match sentences.len().saturating_sub(NAMED) {
        0 => text,
        more => format!("{text}; and {more} more"),
    }
}
