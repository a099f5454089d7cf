//! Effects: the writes that the agent can make. At most one per pass, and each documents how a later pass recognizes it
//! as done, in case the agent dies between performing it and getting the answer.

use std::collections::BTreeMap;

use capmaas_core::registration::Call;
use lxd_client::Fingerprint;

use crate::settings::PoolSettings;

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Create the storage pool. Observed afterwards: the pool exists; an interrupted one exists with another status.
    CreatePool(PoolSettings),
    /// Create the project. Observed afterwards: the project exists.
    CreateProject {
        name: String,
        /// The configuration of the project.
        config: BTreeMap<String, String>,
    },
    /// Make LXD listen, and record in LXD's own configuration that we did. Observed afterwards: both values are set,
    /// even if LXD failed to listen, so that only our own setting is ever reset.
    Listen {
        /// `address:port`.
        address: String,
    },
    /// Reset a listener that we set and LXD could not open. Observed afterwards: both values are gone.
    StopListening,
    /// Generate and store the key pair of this node. Observed afterwards: the file exists and is complete, or does not
    /// exist.
    MakeKey,
    /// Trust the certificate, restricted to the project. Observed afterwards: its fingerprint is in the trust store.
    Trust {
        /// The certificate in PEM form.
        pem: String,
        project: String,
    },
    /// Stop trusting a certificate that was replaced by another one. Observed afterwards: it is not in the trust store.
    Distrust {
        /// The fingerprint of the replaced certificate.
        fingerprint: Fingerprint,
    },
    /// A call to MAAS about the VM host of this node. Observed afterwards: see [`Call`]. A registration is preceded by its
    /// intent, in a file.
    OnHost(Call),
    /// Write labels and annotations of the Node. Observed afterwards: they are set.
    Report(NodePatch),
}

/// A change of the Node's labels and annotations; `None` removes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePatch {
    pub labels: BTreeMap<String, Option<String>>,
    pub annotations: BTreeMap<String, Option<String>>,
}

impl NodePatch {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

/// The effects by name, for metrics and for recording failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EffectKind {
    /// See [`Effect::CreatePool`].
    CreatePool,
    /// See [`Effect::CreateProject`].
    CreateProject,
    /// See [`Effect::Listen`].
    Listen,
    /// See [`Effect::StopListening`].
    StopListening,
    /// See [`Effect::MakeKey`].
    MakeKey,
    /// See [`Effect::Trust`].
    Trust,
    /// See [`Effect::Distrust`].
    Distrust,
    /// See [`Call::Register`].
    Register,
    /// See [`Call::Renew`].
    Renew,
    /// See [`Call::Move`].
    Move,
    /// See [`Call::Refresh`].
    Refresh,
    /// See [`Effect::Report`].
    Report,
}

impl EffectKind {
    /// Whether it changes something in MAAS.
    pub fn is_to_maas(self) -> bool {
        matches!(self, Self::Register | Self::Renew | Self::Move | Self::Refresh)
    }

    /// A short description for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::CreatePool => "creating the storage pool",
            Self::CreateProject => "creating the project",
            Self::Listen => "making LXD listen",
            Self::StopListening => "removing the listener",
            Self::MakeKey => "creating the key pair",
            Self::Trust => "trusting the certificate",
            Self::Distrust => "distrusting an earlier certificate",
            Self::Register => "registering the VM host",
            Self::Renew => "renewing the VM host's key",
            Self::Move => "moving the VM host",
            Self::Refresh => "refreshing the VM host",
            Self::Report => "writing the report to the Node",
        }
    }
}

impl Effect {
    pub fn kind(&self) -> EffectKind {
        match self {
            Self::CreatePool(_) => EffectKind::CreatePool,
            Self::CreateProject { .. } => EffectKind::CreateProject,
            Self::Listen { .. } => EffectKind::Listen,
            Self::StopListening => EffectKind::StopListening,
            Self::MakeKey => EffectKind::MakeKey,
            Self::Trust { .. } => EffectKind::Trust,
            Self::Distrust { .. } => EffectKind::Distrust,
            Self::OnHost(Call::Register(_)) => EffectKind::Register,
            Self::OnHost(Call::Renew { .. }) => EffectKind::Renew,
            Self::OnHost(Call::Move { .. }) => EffectKind::Move,
            Self::OnHost(Call::Refresh { .. }) => EffectKind::Refresh,
            Self::Report(_) => EffectKind::Report,
        }
    }
}
