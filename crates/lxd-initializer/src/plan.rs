//! What a look at the facts leads to: one effect at most, the state of every step, and why.

use serde::Serialize;

use crate::effect::Effect;

/// The steps, in their order. Each needs those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Step {
    /// The Node object was read, and does not ask to leave.
    Node,
    /// It is clear who registers the host.
    Credentials,
    /// LXD answers on its socket.
    Lxd,
    /// LXD is what MAAS can use.
    Requirements,
    /// The storage pool works.
    StoragePool,
    /// The bridge is there.
    Bridge,
    /// The project is there.
    Project,
    /// LXD listens on the node's address.
    Listener,
    /// There is a certificate to trust.
    Certificate,
    /// LXD trusts it, bound to the project.
    Trust,
    /// LXD was reached over the network, as MAAS will.
    Reachable,
    /// MAAS has the host and has really reached it (standalone mode only).
    Registered,
    /// LXD trusts no certificate that this one has taken the place of, once MAAS does not come with it any more.
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

/// Where the node stands as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum State {
    /// Everything holds.
    Ready,
    /// Something is being done.
    Working,
    /// Something else has to happen first, and may by itself.
    Waiting,
    /// A person has to do something.
    Blocked,
    /// Told to leave: nothing is written to LXD or MAAS.
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

/// One step and how it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Condition {
    #[serde(rename = "type")]
    pub step: Step,
    /// `True`, `False`, or `Unknown` if a step before it does not hold.
    pub status: &'static str,
    /// A sentence for a person.
    pub message: String,
}

/// What shall happen.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Plan {
    /// The one write, if any.
    pub effect: Option<Effect>,
    /// Where the node stands.
    pub state: State,
    /// The sentence that belongs to it.
    pub message: String,
    /// Every step.
    pub conditions: Vec<Condition>,
}

impl Plan {
    /// The first step that does not hold.
    pub fn first_open(&self) -> Option<Step> {
        self.conditions.iter().find(|condition| condition.status != "True").map(|condition| condition.step)
    }
}

/// What one step comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Holds(String),
    /// It will hold after this effect.
    Do(Effect, String),
    /// Something else has to happen first.
    Wait(String),
    /// A person has to do something.
    Block(String),
    /// Told to leave.
    Leave(String),
}
