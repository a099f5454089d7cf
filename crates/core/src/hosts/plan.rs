//! The plan for the hosts of a cluster.

use super::DesiredHosts;
use crate::registration::Call;

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
    /// A call to MAAS about the VM host of one machine. The time of a registration is stored on its MaasMachine before.
    ///
    /// After a crash: see [`Call`].
    OnHost {
        /// Name of the MaasMachine.
        host: String,
        call: Call,
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
}

impl Effect {
    /// What the effect is about; failures are remembered by it.
    pub fn target(&self) -> &str {
        match self {
            Self::MakePair => "key pair",
            Self::ApplyAgent { .. } => "agent",
            Self::HandOver { .. } => "certificate",
            Self::OnHost { host, .. } | Self::TellCertificate { host, .. } => host,
        }
    }

    /// For logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::MakePair => "make_pair",
            Self::ApplyAgent { .. } => "apply_agent",
            Self::HandOver { .. } => "hand_over",
            Self::OnHost { call, .. } => call.name(),
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
