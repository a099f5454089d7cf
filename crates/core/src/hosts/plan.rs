//! What shall happen about the hosts of a cluster.

use super::{DesiredHosts, observed::Place};

/// One thing to do. At most one is done in a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Makes the key pair with which MAAS comes to the hosts of this cluster, and keeps it in a Secret of the manager's namespace.
    ///
    /// If this happened and we crashed: the Secret is there. A second one under its name is refused by the API server.
    MakePair,
    /// Applies the agent with all it needs to the workload cluster; the DaemonSet comes last.
    ///
    /// If this happened, as a whole or in part, and we crashed: the DaemonSet carries the note, or all is applied again, which
    /// changes nothing that is as it should be.
    ApplyAgent {
        image: String,
        /// Its settings.
        desired: Box<DesiredHosts>,
        /// The note for the DaemonSet.
        note: String,
    },
    /// Tells the nodes which certificate to trust. It is public; no key and no MAAS credentials go along (S22).
    ///
    /// If this happened and we crashed: the ConfigMap holds it.
    HandOver {
        /// In PEM.
        certificate: String,
    },
    /// Registers a machine as VM host, while its project is empty (S12). The time is noted on its MaasMachine before.
    ///
    /// If this happened and we crashed: the VM host is found by its machine, or by its name and our certificate. Until the note
    /// is old enough, one that is not found may still appear (S2).
    Register(Box<Registration>),
    /// Gives a VM host another key and address.
    ///
    /// If this happened and we crashed: the VM host shows them.
    Renew {
        /// Its number.
        id: i64,
        /// The MaasMachine.
        host: String,
        /// As `https://address:port`.
        address: String,
    },
    /// Puts a VM host into the zone and pool that the cluster asks for.
    ///
    /// If this happened and we crashed: the VM host shows them.
    Move {
        /// Its number.
        id: i64,
        /// The MaasMachine.
        host: String,
        /// Where to.
        place: Place,
    },
    /// Tells the agent of a node that MAAS comes with this certificate now, so that it trusts earlier ones no longer.
    ///
    /// If this happened and we crashed: the Node says so.
    TellCertificate {
        /// The MaasMachine.
        host: String,
        node: String,
        /// Of the certificate.
        fingerprint: String,
    },
    /// Has MAAS look at a VM host that it has not reached yet, and learn why not.
    ///
    /// If this happened and we crashed: doing it again does no harm while MAAS knows every instance (S12).
    Refresh {
        /// Its number.
        id: i64,
        /// The MaasMachine.
        host: String,
    },
}

/// A VM host to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The MaasMachine.
    pub host: String,
    /// Its name: that of the Node.
    pub name: String,
    /// As `https://address:port`.
    pub address: String,
    /// The LXD project.
    pub project: String,
    /// Where it goes.
    pub place: Place,
}

impl Effect {
    /// What it is about; failures are remembered by it.
    pub fn target(&self) -> &str {
        match self {
            Self::MakePair => "key pair",
            Self::ApplyAgent { .. } => "agent",
            Self::HandOver { .. } => "certificate",
            Self::Register(registration) => &registration.host,
            Self::Renew { host, .. }
            | Self::Move { host, .. }
            | Self::Refresh { host, .. }
            | Self::TellCertificate { host, .. } => host,
        }
    }

    /// One word for logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::MakePair => "make_pair",
            Self::ApplyAgent { .. } => "apply_agent",
            Self::HandOver { .. } => "hand_over",
            Self::Register(_) => "register",
            Self::Renew { .. } => "renew",
            Self::Move { .. } => "move",
            Self::Refresh { .. } => "refresh",
            Self::TellCertificate { .. } => "tell_certificate",
        }
    }
}

/// How one thing stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// As it should be.
    Right,
    /// Not yet; what is awaited, in a sentence.
    Pending(String),
    /// A person has to act; how, in a sentence.
    Failed(String),
}

/// What shall happen, and how all of it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Step {
    /// The one thing to do.
    pub effect: Option<Effect>,
    /// The hosts of the control plane, all together.
    pub standing: Standing,
    /// How many machines are VM hosts, workers included.
    pub registered: usize,
}
