//! The result of a decision: at most one effect, the state of every step, and why.

use serde::Serialize;

use crate::effect::Effect;

/// The steps in order. Each needs those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Step {
    /// The Node object was read, and does not ask to leave.
    Node,
    /// It is clear who registers the host.
    Credentials,
    /// LXD answers on its socket.
    Lxd,
    /// LXD meets MAAS's requirements.
    Requirements,
    /// The storage pool works.
    StoragePool,
    /// The bridge exists.
    Bridge,
    /// The project exists.
    Project,
    /// LXD listens on the node's address.
    Listener,
    /// There is a certificate to trust.
    Certificate,
    /// LXD trusts it, restricted to the project.
    Trust,
    /// LXD was reached over the network, as MAAS will reach it.
    Reachable,
    /// MAAS has the host and has really reached it (standalone mode only).
    Registered,
    /// LXD trusts no replaced certificate, once MAAS no longer uses it.
    Earlier,
}

impl Step {
    /// All of them, in order.
    pub const ALL: [Self; 13] = [
        Self::Node,
        Self::Credentials,
        Self::Lxd,
        Self::Requirements,
        Self::StoragePool,
        Self::Bridge,
        Self::Project,
        Self::Listener,
        Self::Certificate,
        Self::Trust,
        Self::Reachable,
        Self::Registered,
        Self::Earlier,
    ];
}

/// The overall state of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum State {
    /// Everything holds.
    Ready,
    /// An effect is in progress.
    Working,
    /// Something else has to happen first, and may happen by itself.
    Waiting,
    /// A person has to act.
    Blocked,
    /// Asked to leave: nothing is written to LXD or MAAS.
    Left,
}

impl State {
    /// As written on the Node.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Working => "Working",
            Self::Waiting => "Waiting",
            Self::Blocked => "Blocked",
            Self::Left => "Left",
        }
    }
}

/// One step and its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Condition {
    #[serde(rename = "type")]
    pub step: Step,
    /// `True`, `False`, or `Unknown` if a step before it does not hold.
    pub status: &'static str,
    /// For people.
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Plan {
    /// The one write, if any.
    pub effect: Option<Effect>,
    pub state: State,
    /// The message for the state.
    pub message: String,
    pub conditions: Vec<Condition>,
}

impl Plan {
    /// The first step that does not hold.
    pub fn first_open(&self) -> Option<Step> {
        self.conditions.iter().find(|condition| condition.status != "True").map(|condition| condition.step)
    }
}

/// The result of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Holds(String),
    /// It will hold after this effect.
    Do(Effect, String),
    /// Something else has to happen first.
    Wait(String),
    /// A person has to act.
    Block(String),
    /// Asked to leave.
    Leave(String),
}
