//! The plan for the hosts of a cluster.

use super::{DesiredHosts, observed::Place};

/// One action. At most one is performed in a pass.
///
/// Each variant states how its result is seen again if it took effect and we crashed before recording it ("after a crash").
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Creates the key pair with which MAAS connects to the hosts of this cluster, and stores it in a Secret in the manager's
    /// namespace.
    ///
    /// After a crash: the Secret exists. The API server refuses a second one of its name.
    MakePair,
    /// Applies the agent with all it needs to the workload cluster; the DaemonSet comes last.
    ///
    /// After a crash, with all or some of it applied: the DaemonSet carries the annotation, or everything is applied again, which
    /// changes nothing that is as desired.
    ApplyAgent {
        image: String,
        /// Its settings.
        desired: Box<DesiredHosts>,
        /// The annotation for the DaemonSet.
        note: String,
    },
    /// Tells the Nodes which certificate to trust. It is public; no private key and no MAAS credentials are sent along (S22).
    ///
    /// After a crash: the ConfigMap holds it.
    HandOver {
        /// PEM.
        certificate: String,
    },
    /// Registers a machine as VM host, while its project is empty (S12). The time is stored on its MaasMachine before.
    ///
    /// After a crash: the VM host is found by its machine, or by its name and our certificate. Until the stored time is old
    /// enough, one that is not found may still appear (S2).
    Register(Box<Registration>),
    /// Gives a VM host another key and address.
    ///
    /// After a crash: the VM host shows them.
    Renew {
        /// ID of the VM host.
        id: i64,
        /// Name of the MaasMachine.
        host: String,
        /// As `https://address:port`.
        address: String,
    },
    /// Moves a VM host to the zone and pool that the cluster asks for.
    ///
    /// After a crash: the VM host shows them.
    Move {
        /// ID of the VM host.
        id: i64,
        /// Name of the MaasMachine.
        host: String,
        /// Where to.
        place: Place,
    },
    /// Tells the agent of a Node that MAAS uses this certificate now, so that it stops trusting earlier ones.
    ///
    /// After a crash: the Node shows it.
    TellCertificate {
        /// Name of the MaasMachine.
        host: String,
        node: String,
        /// Of the certificate.
        fingerprint: String,
    },
    /// Makes MAAS refresh a VM host that it has not reached yet, and report why.
    ///
    /// After a crash: a repetition does no harm while MAAS knows every instance (S12).
    Refresh {
        /// ID of the VM host.
        id: i64,
        /// Name of the MaasMachine.
        host: String,
    },
}

/// A VM host to register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Name of the MaasMachine.
    pub host: String,
    /// Its name: that of the Node.
    pub name: String,
    /// As `https://address:port`.
    pub address: String,
    pub project: String,
    pub place: Place,
}

impl Effect {
    /// What the effect is about; failures are remembered by it.
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

    /// For logs.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// As desired.
    Right,
    /// Not yet; the message states what is awaited.
    Pending(String),
    /// A person has to act; the message states how.
    Failed(String),
}

/// The next effect, and the state of all hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Step {
    pub effect: Option<Effect>,
    /// The hosts of the control plane, all together.
    pub standing: Standing,
    /// How many machines are VM hosts, workers included.
    pub registered: usize,
}
