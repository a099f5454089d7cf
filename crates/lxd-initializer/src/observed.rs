//! Facts: what one look at the node, the cluster, LXD and MAAS has shown. Nouns only; nothing here does anything.

use std::{collections::BTreeMap, net::IpAddr};

use jiff::Timestamp;
use lxd_client::Fingerprint;

use crate::effect::EffectKind;

/// The answer to "is it there?". Not having learnt it is a third answer (S1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup<T> {
    /// It is there.
    Found(T),
    /// Whoever knows said that it is not there.
    Absent,
    /// Nobody could be asked, or the answer was not understood; with the reason.
    Unknown(String),
}

impl<T> Lookup<T> {
    /// The value, if it was found.
    pub fn found(&self) -> Option<&T> {
        match self {
            Self::Found(value) => Some(value),
            Self::Absent | Self::Unknown(_) => None,
        }
    }

    /// The same answer about a part of the value.
    pub fn as_ref_with<U>(&self, part: impl FnOnce(&T) -> U) -> Lookup<U> {
        match self {
            Self::Found(value) => Lookup::Found(part(value)),
            Self::Absent => Lookup::Absent,
            Self::Unknown(why) => Lookup::Unknown(why.clone()),
        }
    }
}

/// Everything that one pass has seen.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The Node object of this node.
    pub node: Lookup<NodeFacts>,
    /// Whether an API key of MAAS was given.
    pub api_key: Lookup<()>,
    /// Whether MAAS's address was given.
    pub endpoint: Lookup<String>,
    /// The certificate that the manager gave to be trusted (managed mode).
    pub given_certificate: Lookup<Certificate>,
    /// The key pair of this node (standalone mode).
    pub own_certificate: Lookup<Certificate>,
    /// The local LXD.
    pub lxd: LxdFacts,
    /// What MAAS says (standalone mode).
    pub maas: MaasFacts,
    /// What the process remembers of its earlier passes.
    pub memory: Memory,
}

/// What a process remembers between two passes. Losing it costs at most a repeated try.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// What was tried and failed, and was not done since.
    pub failures: BTreeMap<EffectKind, Failure>,
    /// Whether LXD itself said that it listens, since this process started.
    pub listens: bool,
    /// In how many looks in a row, this one included, LXD was not found where it is set to listen.
    pub shut: u32,
    /// When MAAS was last asked to look at this host.
    pub refreshed: Option<Timestamp>,
    /// Whether the agent was told to leave when the Node was last read, or a person had the host unregistered.
    pub left: bool,
}

/// The Node object, as far as it matters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Labels under our prefix.
    pub labels: BTreeMap<String, String>,
    /// Annotations under our prefix.
    pub annotations: BTreeMap<String, String>,
    /// Its first InternalIP.
    pub internal_ip: Option<IpAddr>,
    /// The MAAS system id in its provider ID, if it has one of MAAS.
    pub system_id: Option<String>,
}

/// A certificate by what is needed of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    pub fingerprint: Fingerprint,
    /// Itself.
    pub pem: String,
}

/// The local LXD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LxdFacts {
    /// No socket in any of the places.
    NoSocket {
        /// Where it was looked for.
        tried: Vec<String>,
    },
    /// A socket, but nobody who answers.
    Away { why: String },
    /// It answers.
    Here(Box<ServerFacts>),
}

/// An LXD that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFacts {
    /// `lxd`, or what else it calls itself.
    pub product: String,
    pub version: String,
    /// Whether it trusts us.
    pub trusted: bool,
    /// Whether it is a member of a cluster.
    pub clustered: bool,
    /// Extensions that MAAS needs and it has not.
    pub missing_extensions: Vec<String>,
    /// Whether it can run VMs.
    pub virtual_machines: bool,
    /// Storage drivers that it could use.
    pub storage_drivers: Vec<String>,
    /// Whether a trust password is set.
    pub trust_password: bool,
    /// Its `core.https_address`.
    pub listener: Option<String>,
    /// What we noted in its configuration when we set that.
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
    /// The certificate that shall be trusted, in its trust store.
    pub trust: Lookup<TrustFacts>,
    /// Others there that were made for the same purpose before: after a new key pair they open the door to whoever has the old one.
    pub earlier: Lookup<Vec<Fingerprint>>,
    /// What answers at the address where LXD shall be.
    pub door: Door,
}

/// A storage pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolFacts {
    pub driver: String,
    /// LXD's status of it.
    pub status: String,
}

/// An interface of the bridge's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeFacts {
    /// LXD's type of it.
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
    /// Whether it is bound to projects.
    pub restricted: bool,
    /// To which.
    pub projects: Vec<String>,
}

/// What answers at the address on which LXD shall listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Door {
    /// Not tried, because it does not matter yet.
    NotTried,
    /// Nobody listens there.
    Closed,
    /// Somebody who is not this LXD listens there.
    Stranger,
    /// This LXD, and it trusts the certificate.
    Trusted,
    /// This LXD, and it does not trust the certificate (or none was shown).
    Untrusted,
    /// It could not be learnt.
    Unclear(String),
}

/// What MAAS says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MaasFacts {
    /// Not asked, because it does not matter yet.
    NotAsked,
    /// It does not answer, or not now.
    Away(String),
    /// It refuses the key.
    Denied(String),
    /// What it was told is unusable: a malformed key or address.
    Unusable(String),
    /// This MAAS has no VM hosts any more.
    NoVmHosts,
    /// This MAAS takes no key pair at registration.
    TooOld(String),
    /// It answered.
    Here(Box<MaasView>),
}

/// MAAS's view of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaasView {
    /// The machine that this node is.
    pub machine: Lookup<Machine>,
    /// The VM host that this node is.
    pub host: Lookup<VmHost>,
}

/// A machine of MAAS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub system_id: String,
    pub zone: String,
    /// Its resource pool.
    pub pool: String,
}

/// A VM host of MAAS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmHost {
    pub id: u64,
    pub name: String,
    /// The machine that MAAS matched it to.
    pub machine: Option<String>,
    /// Where MAAS looks for it.
    pub address: String,
    /// The project in which MAAS works.
    pub project: String,
    /// The certificate with which MAAS comes.
    pub certificate: Option<Fingerprint>,
    /// Who made that certificate, and with it the registration.
    pub maker: Maker,
    /// Whether this LXD trusts that certificate.
    pub certificate_trusted: Lookup<()>,
    /// Whether MAAS has ever really reached it.
    pub reached: bool,
    /// Whether MAAS has digested its resources.
    pub digested: bool,
    /// Instances in the project that MAAS does not know as VMs of this host.
    pub strangers: Lookup<Vec<String>>,
}

/// Who made something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// This agent, in an earlier life.
    ThisAgent,
    /// A person, the manager, or MAAS.
    SomebodyElse,
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
