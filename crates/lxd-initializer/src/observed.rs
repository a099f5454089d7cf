//! Facts: what one pass has observed of the node, the cluster, LXD and MAAS. Data only.

use std::{collections::BTreeMap, net::IpAddr};

pub use capmaas_core::Lookup;
pub use capmaas_core::registration::{Machine, Maker, Place, VmHost};
use jiff::Timestamp;
use lxd_client::Fingerprint;

use crate::effect::EffectKind;

/// Everything that one pass has observed.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The Node object of this node.
    pub node: Lookup<NodeFacts>,
    /// Whether an API key for MAAS was given.
    pub api_key: Lookup<()>,
    /// The endpoint of MAAS, if given.
    pub endpoint: Lookup<String>,
    /// The certificate that the manager provides to be trusted (managed mode).
    pub given_certificate: Lookup<Certificate>,
    /// The key pair of this node (standalone mode).
    pub own_certificate: Lookup<Certificate>,
    /// The local LXD.
    pub lxd: LxdFacts,
    /// MAAS's answer (standalone mode).
    pub maas: MaasFacts,
    /// When a registration was last sent, if its answer is not known (standalone mode).
    pub intent: Lookup<Timestamp>,
    /// State of the process from earlier passes.
    pub memory: Memory,
}

/// State that a process keeps between two passes. Losing it costs at most a repeated attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// Effects that failed and did not succeed since.
    pub failures: BTreeMap<EffectKind, Failure>,
    /// Whether LXD itself has confirmed since the start of this process that it listens.
    pub listens: bool,
    /// The number of consecutive passes, including this one, in which LXD was not found where it is set to listen.
    pub shut: u32,
    /// When MAAS was last made to refresh this host.
    pub refreshed: Option<Timestamp>,
    /// Whether the agent was asked to leave when the Node was last read, or a person had the host unregistered.
    pub left: bool,
}

/// The relevant part of the Node object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Labels under our prefix.
    pub labels: BTreeMap<String, String>,
    /// Annotations under our prefix.
    pub annotations: BTreeMap<String, String>,
    /// Its first InternalIP.
    pub internal_ip: Option<IpAddr>,
    /// The MAAS system ID in its provider ID, if that is one of MAAS.
    pub system_id: Option<String>,
}

/// The relevant parts of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    pub fingerprint: Fingerprint,
    pub pem: String,
}

/// The local LXD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LxdFacts {
    /// No socket in any of the usual places.
    NoSocket {
        /// The places that were tried.
        tried: Vec<String>,
    },
    /// A socket, but nothing answers.
    Away { why: String },
    /// It answers.
    Here(Box<ServerFacts>),
}

/// An LXD that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFacts {
    /// `lxd`, or another product.
    pub product: String,
    pub version: String,
    /// Whether it trusts us.
    pub trusted: bool,
    /// Whether it is a member of a cluster.
    pub clustered: bool,
    /// API extensions that MAAS needs and that are missing.
    pub missing_extensions: Vec<String>,
    /// Whether it can run VMs.
    pub virtual_machines: bool,
    /// Storage drivers that it could use.
    pub storage_drivers: Vec<String>,
    /// Whether a trust password is set.
    pub trust_password: bool,
    /// Its `core.https_address`.
    pub listener: Option<String>,
    /// Our marker in its configuration from when we set that.
    pub listener_note: Option<String>,
    /// The fingerprint of its certificate.
    pub fingerprint: Option<Fingerprint>,
    /// The storage pool.
    pub pool: Lookup<PoolFacts>,
    pub bridge: Lookup<BridgeFacts>,
    pub project: Lookup<BTreeMap<String, String>>,
    /// The instances in the project, by name.
    pub instances: Lookup<Vec<String>>,
    /// The profiles that instances of the project can have, by name.
    pub profiles: Lookup<Vec<String>>,
    /// The certificate to be trusted, in its trust store.
    pub trust: Lookup<TrustFacts>,
    /// Earlier certificates for the same purpose in its trust store: after a new key pair they still admit the holder
    /// of the old one.
    pub earlier: Lookup<Vec<Fingerprint>>,
    /// What answers at the address on which LXD should listen.
    pub probe: Probe,
}

/// A storage pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolFacts {
    pub driver: String,
    /// Its status in LXD.
    pub status: String,
}

/// An interface with the bridge's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeFacts {
    /// Its type in LXD.
    pub kind: String,
    /// Ports that are not NICs of instances.
    pub ports: Vec<String>,
}

impl BridgeFacts {
    /// Whether a VM on it reaches a network outside of the node.
    pub fn leads_out(&self) -> bool {
        self.kind == "bridge" && !self.ports.is_empty()
    }
}

/// A certificate in the trust store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustFacts {
    /// Whether it is restricted to projects.
    pub restricted: bool,
    /// Those projects.
    pub projects: Vec<String>,
}

/// What answers at the address on which LXD should listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// Not tried, because it does not matter yet.
    NotTried,
    /// Nothing listens there.
    Closed,
    /// Something other than this LXD listens there.
    Stranger,
    /// This LXD, and it trusts the certificate.
    Trusted,
    /// This LXD, and it does not trust the certificate (or none was shown).
    Untrusted,
    /// It could not be determined.
    Unclear(String),
}

/// MAAS's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MaasFacts {
    /// Not asked, because it does not matter yet.
    NotAsked,
    /// It does not answer at present.
    Away(String),
    /// It refuses the key.
    Denied(String),
    /// The configuration is unusable: a malformed key or address.
    Unusable(String),
    /// This MAAS no longer supports VM hosts.
    NoVmHosts,
    /// This MAAS does not accept a key pair at registration.
    TooOld(String),
    /// It answered.
    Here(Box<MaasView>),
}

/// MAAS's view of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaasView {
    /// The machine of this node.
    pub machine: Lookup<Machine>,
    /// The VM host of this node.
    pub host: Lookup<VmHost>,
}

/// Something that was tried and failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub why: String,
    /// How often in a row.
    pub times: u32,
    /// When it may be tried again.
    pub retry: Timestamp,
}
