//! A machine that is a VM host and should be released. Nothing is removed while anything is on it (S11). First it takes no more
//! VMs, the agent is asked to stop and seen stopped, no VM is left, and a refresh succeeds; only then is it unregistered.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Lookup;

/// Annotation on a `MaasMachine`: when its registration as VM host was last sent (S2).
pub const ASKED_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/lxd-host-asked-at";

/// How long to wait for an agent that does not answer. It reads its Node every minute. One that keeps running without having seen
/// the request does no harm: in managed mode it never contacts MAAS.
const AGENT: SignedDuration = SignedDuration::from_mins(3);
/// How long a successful refresh is trusted.
const FRESH: SignedDuration = SignedDuration::from_mins(2);
/// How many VMs a message names.
const NAMED: usize = 5;

/// What is known about a machine that is being released, as a VM host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AsHost {
    /// Not read: it does not matter now.
    NotAsked,
    /// It could not be read.
    Unknown(String),
    /// MAAS has no VM host on the machine.
    NoHost,
    Host(Box<LeavingHost>),
}

/// A VM host on a machine that is being released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeavingHost {
    pub id: i64,
    pub name: String,
    /// It carries [`LEAVING_TAG`](crate::placement::LEAVING_TAG).
    pub marked: bool,
    /// The VMs that MAAS knows on it, whoever owns them; each with its owner.
    pub vms: Lookup<Vec<String>>,
    pub agent: ObservedAgent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedAgent {
    /// It cannot be queried; the message states why.
    Silent(String),
    /// The machine has no Node any more, so no agent runs.
    NoNode,
    Node {
        name: String,
        /// The Node asks its agent to stop.
        told: bool,
        /// The agent has stopped, or there was none.
        left: bool,
        /// Instances of the project that MAAS does not know.
        strangers: Lookup<Vec<String>>,
    },
}

/// What the journal remembers of a VM host that is being released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// When its release began.
    pub since: Timestamp,
    /// Since then the agent reported once that MAAS knows every instance on it.
    #[serde(default)]
    pub clear: bool,
    /// When a refresh last succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refreshed: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeavingStep {
    Mark,
    /// Ask the agent of this Node to stop.
    Tell(String),
    /// Make MAAS refresh the VM host.
    Refresh,
    Unregister,
    /// VMs are on it; the message names them.
    Held(String),
    /// Something else has to happen first.
    Wait(String),
    /// A person has to act.
    Stuck(String),
}

/// Decides the next step, and updates the note.
pub fn step(host: &LeavingHost, note: &mut Note, now: Timestamp) -> LeavingStep {
    let LeavingHost { id, name, .. } = host;
    if !host.marked {
        return LeavingStep::Mark;
    }
    let patient = now.duration_since(note.since) < AGENT;
    let mut awaited = None;
    match &host.agent {
        ObservedAgent::NoNode => {}
        ObservedAgent::Silent(why) => {
            awaited = patient.then(|| format!("the agent on VM host {name} ({id}) cannot be told to stop: {why}"));
        }
        ObservedAgent::Node { name: of_node, told, left, strangers } => {
            match strangers {
                Lookup::Found(strangers) if strangers.is_empty() => note.clear = true,
                Lookup::Found(strangers) => {
                    note.clear = false;
                    return LeavingStep::Held(format!(
                        "VM host {name} ({id}) holds instances that MAAS does not know ({}); remove them, or move them away",
                        listed(strangers)
                    ));
                }
                Lookup::Absent | Lookup::Unknown(_) => {}
            }
            if !told {
                return LeavingStep::Tell(of_node.clone());
            }
            if !left && patient {
                awaited = Some(format!("the agent on node {of_node} was told to stop and has not confirmed it yet"));
            }
        }
    }
    match &host.vms {
        Lookup::Found(vms) if vms.is_empty() => {}
        Lookup::Found(vms) => {
            note.refreshed = None;
            let many = if vms.len() == 1 { "1 VM".to_owned() } else { format!("{} VMs", vms.len()) };
            let listed = listed(vms);
            return LeavingStep::Held(format!("VM host {name} ({id}) holds {many}: {listed}; delete or move them"));
        }
        Lookup::Absent => return LeavingStep::Wait(format!("the VMs on VM host {name} ({id}) cannot be counted")),
        Lookup::Unknown(why) => {
            return LeavingStep::Wait(format!("the VMs on VM host {name} ({id}) cannot be counted: {why}"));
        }
    }
    if let Some(why) = awaited {
        return LeavingStep::Wait(why);
    }
    // S12: a refresh would restart what MAAS does not know.
    if !note.clear {
        return LeavingStep::Stuck(format!(
            "it is unknown which instances are on VM host {name} ({id}), so MAAS does not refresh it; make sure that \
             nothing runs there and remove the VM host in MAAS, then the machine is released"
        ));
    }
    match note.refreshed {
        Some(at) if now.duration_since(at) < FRESH => LeavingStep::Unregister,
        _ => LeavingStep::Refresh,
    }
}

fn listed(names: &[String]) -> String {
    let text = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-15T12:00:00Z".parse().unwrap()
    }

    fn ago(seconds: i64) -> Timestamp {
        now() - SignedDuration::from_secs(seconds)
    }

    fn note() -> Note {
        Note { since: ago(60), clear: false, refreshed: None }
    }

    fn node(told: bool, left: bool) -> ObservedAgent {
        ObservedAgent::Node { name: "n1".into(), told, left, strangers: Lookup::Found(Vec::new()) }
    }

    fn empty() -> LeavingHost {
        LeavingHost { id: 4, name: "n1".into(), marked: true, vms: Lookup::Found(Vec::new()), agent: node(true, true) }
    }

    fn of(host: &LeavingHost, mut note: Note) -> LeavingStep {
        step(host, &mut note, now())
    }

    #[test]
    fn s11_a_host_leaves_step_by_step() {
        assert_eq!(of(&LeavingHost { marked: false, ..empty() }, note()), LeavingStep::Mark);
        assert_eq!(of(&LeavingHost { agent: node(false, false), ..empty() }, note()), LeavingStep::Tell("n1".into()));
        assert!(matches!(of(&LeavingHost { agent: node(true, false), ..empty() }, note()), LeavingStep::Wait(_)));
        assert_eq!(of(&empty(), note()), LeavingStep::Refresh);
        assert_eq!(of(&empty(), Note { refreshed: Some(ago(5)), ..note() }), LeavingStep::Unregister);
        assert_eq!(of(&empty(), Note { refreshed: Some(ago(600)), ..note() }), LeavingStep::Refresh);
    }

    #[test]
    fn s11_vms_hold_the_host_and_are_named() {
        let vms = vec!["vm1 of cluster default/c2".to_owned(), "vm2 of bob".to_owned()];
        let step = of(&LeavingHost { vms: Lookup::Found(vms), ..empty() }, note());
        assert!(
            matches!(&step, LeavingStep::Held(why) if why.contains("vm1 of cluster default/c2, vm2 of bob")),
            "{step:?}"
        );
        let strangers = Lookup::Found(vec!["web".to_owned()]);
        let agent = ObservedAgent::Node { name: "n1".into(), told: true, left: true, strangers };
        assert!(matches!(of(&LeavingHost { agent, ..empty() }, note()), LeavingStep::Held(why) if why.contains("web")));
    }

    #[test]
    fn an_agent_that_cannot_be_asked_is_waited_for_only_so_long_and_its_last_word_counts() {
        let silent = LeavingHost { agent: ObservedAgent::Silent("no quorum".into()), ..empty() };
        assert!(matches!(of(&silent, note()), LeavingStep::Wait(why) if why.contains("no quorum")));
        let long = Note { since: ago(200), ..note() };
        assert!(matches!(of(&silent, long.clone()), LeavingStep::Stuck(_)), "nobody ever said what is on it");
        assert_eq!(of(&silent, Note { clear: true, ..long }), LeavingStep::Refresh);
    }

    proptest! {
        #[test]
        fn s11_nothing_is_unregistered_or_looked_at_while_anything_may_be_on_it(
            marked: bool, told: bool, left: bool, clear: bool, since in 0i64..400,
            refreshed in proptest::option::of(0i64..400), vms in 0..3usize, strangers in 0..3usize, way in 0..3usize,
        ) {
            let list = |which: usize| match which {
                0 => Lookup::Found(Vec::new()),
                1 => Lookup::Found(vec!["vm".to_owned()]),
                _ => Lookup::Unknown("away".into()),
            };
            let agent = match way {
                0 => ObservedAgent::NoNode,
                1 => ObservedAgent::Silent("away".into()),
                _ => ObservedAgent::Node { name: "n1".into(), told, left, strangers: list(strangers) },
            };
            let host = LeavingHost { marked, vms: list(vms), agent, ..empty() };
            let mut note = Note { since: ago(since), clear, refreshed: refreshed.map(ago) };
            let next = step(&host, &mut note, now());
            if matches!(next, LeavingStep::Refresh | LeavingStep::Unregister) {
                prop_assert!(marked && vms == 0 && note.clear);
                prop_assert!(way != 2 || (told && strangers != 1));
            }
            if next == LeavingStep::Unregister {
                prop_assert!(refreshed.is_some_and(|at| at < 120));
            }
        }
    }
}
