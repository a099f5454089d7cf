//! Effects: the writes that the agent can make. One a pass at most, and each says how a later look finds it done, should the
//! agent die between doing it and knowing it.

use std::collections::BTreeMap;

use lxd_client::Fingerprint;

use crate::settings::PoolSettings;

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Make the storage pool. Seen afterwards: the pool is there; one that was cut off is there with another status.
    CreatePool(PoolSettings),
    /// Make the project. Seen afterwards: the project is there.
    CreateProject {
        name: String,
        /// Its configuration.
        config: BTreeMap<String, String>,
    },
    /// Let LXD listen, and note in LXD's own configuration that this was us. Seen afterwards: both values are there, even
    /// where LXD failed to listen, so that only our own setting is ever taken back.
    Listen {
        /// `address:port`.
        address: String,
    },
    /// Take back a listener that we set and LXD could not open. Seen afterwards: both values are gone.
    StopListening,
    /// Make the key pair of this node and keep it. Seen afterwards: the file is there, whole, or it is not.
    MakeKey,
    /// Trust the certificate, bound to the project. Seen afterwards: its fingerprint is in the trust store.
    Trust {
        /// The certificate.
        pem: String,
        project: String,
    },
    /// Trust a certificate no longer that another one has taken the place of. Seen afterwards: it is not in the trust store.
    Distrust {
        /// Which.
        fingerprint: Fingerprint,
    },
    /// Register the VM host. Seen afterwards: MAAS lists it under the node's name with our certificate; a second POST with
    /// the same certificate, address and project is refused by MAAS.
    Register(Registration),
    /// Give the existing VM host this node's certificate, key and address. Seen afterwards: its parameters.
    Renew {
        /// Its id in MAAS.
        id: u64,
        /// Where it is.
        address: String,
    },
    /// Ask MAAS to look at the host. Harmless to repeat: it runs only while MAAS knows every instance (S12).
    Refresh {
        /// Its id in MAAS.
        id: u64,
    },
    /// Write labels and annotations of the Node. Seen afterwards: they are there.
    Report(NodePatch),
}

/// A VM host to be registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    pub name: String,
    /// Where it is.
    pub address: String,
    /// The LXD project.
    pub project: String,
    pub zone: String,
    /// The resource pool.
    pub pool: String,
    /// The certificate with which MAAS shall come.
    pub certificate: Fingerprint,
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

/// The effects by name, for metrics and for remembering failures.
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
    /// See [`Effect::Register`].
    Register,
    /// See [`Effect::Renew`].
    Renew,
    /// See [`Effect::Refresh`].
    Refresh,
    /// See [`Effect::Report`].
    Report,
}

impl EffectKind {
    /// Whether it changes something in MAAS.
    pub fn is_to_maas(self) -> bool {
        matches!(self, Self::Register | Self::Renew | Self::Refresh)
    }

    /// What it does, as a person says it.
    pub fn words(self) -> &'static str {
        match self {
            Self::CreatePool => "making the storage pool",
            Self::CreateProject => "making the project",
            Self::Listen => "letting LXD listen",
            Self::StopListening => "taking the listener back",
            Self::MakeKey => "making the key pair",
            Self::Trust => "trusting the certificate",
            Self::Distrust => "distrusting an earlier certificate",
            Self::Register => "registering the VM host",
            Self::Renew => "renewing the VM host's key",
            Self::Refresh => "letting MAAS look at the VM host",
            Self::Report => "reporting on the Node",
        }
    }
}

impl Effect {
    /// Its name.
    pub fn kind(&self) -> EffectKind {
        match self {
            Self::CreatePool(_) => EffectKind::CreatePool,
            Self::CreateProject { .. } => EffectKind::CreateProject,
            Self::Listen { .. } => EffectKind::Listen,
            Self::StopListening => EffectKind::StopListening,
            Self::MakeKey => EffectKind::MakeKey,
            Self::Trust { .. } => EffectKind::Trust,
            Self::Distrust { .. } => EffectKind::Distrust,
            Self::Register(_) => EffectKind::Register,
            Self::Renew { .. } => EffectKind::Renew,
            Self::Refresh { .. } => EffectKind::Refresh,
            Self::Report(_) => EffectKind::Report,
        }
    }
}
