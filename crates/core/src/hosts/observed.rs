//! What is known about a cluster whose machines become LXD hosts.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::DesiredHosts;
use crate::Lookup;
use crate::backoff::Trouble;

/// Everything that a decision about the hosts of one cluster rests on, read in one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// What they shall be.
    pub desired: DesiredHosts,
    /// The agent's image, as the manager was told.
    pub image: Option<String>,
    /// Which manifest of the agent this manager brings along.
    pub manifest: String,
    /// The key pair with which MAAS comes to the hosts. The private key is never here.
    pub pair: Lookup<Pair>,
    /// The agent's DaemonSet on the cluster itself.
    pub agent: Lookup<Agent>,
    /// The certificate that the nodes are told to trust.
    pub handed_over: Lookup<String>,
    pub nodes: Lookup<Vec<Node>>,
    /// The metal of the cluster that is there to stay.
    pub hosts: Vec<Host>,
    /// Control plane machines that cannot be looked after yet, each with the reason.
    pub awaited: Vec<String>,
    /// When MAAS last was made to look at a VM host, by its number. May be forgotten at any time.
    pub refreshed: BTreeMap<i64, Timestamp>,
    /// What failed and is not to be tried again yet, by what it was about. May be forgotten at any time.
    pub trouble: BTreeMap<String, Trouble>,
}

/// The public half of a key pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// In PEM.
    pub certificate: String,
    /// Of the certificate, in hexadecimal.
    pub fingerprint: String,
}

/// The agent's DaemonSet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agent {
    /// What we noted when we applied it; `None`: a person applied it, and it is left as it is.
    pub applied: Option<String>,
    /// Its controller has seen its latest version.
    pub observed: bool,
    /// How many nodes shall have it.
    pub desired: i64,
    /// How many have its latest version.
    pub updated: i64,
    /// What else belongs to it and is not there, such as its rights, if we applied it.
    pub missing: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub provider_id: Option<String>,
    /// What the agent says on it.
    pub report: Option<Report>,
}

/// What the agent says about its node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// `Ready`, `Working`, `Waiting`, `Blocked` or `Left`.
    pub state: String,
    /// The sentence that belongs to the state.
    pub message: String,
    /// The first step that does not hold.
    pub open: Option<String>,
    /// The agent registers the host itself, with a MAAS key of its own.
    pub standalone: bool,
    /// Where LXD listens, as `https://address:port`.
    pub address: Option<String>,
    /// Fingerprint of the client certificate that LXD trusts.
    pub certificate: Option<String>,
    /// Fingerprints of earlier certificates of this cluster that LXD still trusts.
    pub earlier: Vec<String>,
    /// Fingerprint of the certificate that MAAS comes with, as we told the agent.
    pub told: Option<String>,
    /// The LXD project.
    pub project: Option<String>,
    /// Names of the instances in it; `None` if that is not known right now.
    pub instances: Option<Vec<String>>,
    /// Names of the profiles that they can have; `None` if that is not known right now.
    pub profiles: Option<Vec<String>>,
}

/// A metal machine of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The MaasMachine.
    pub name: String,
    /// It belongs to the control plane.
    pub control_plane: bool,
    /// By which its Node is known.
    pub provider_id: String,
    /// Its system ID.
    pub machine: String,
    /// Where it is in MAAS.
    pub place: Lookup<Place>,
    pub vm_host: Lookup<VmHost>,
    /// When its registration was last sent.
    pub asked: Option<Timestamp>,
}

/// Where a machine is in MAAS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    pub zone: String,
    /// Its resource pool.
    pub pool: String,
}

/// A VM host as MAAS has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmHost {
    /// Its number.
    pub id: i64,
    pub name: String,
    /// The machine that MAAS takes it for.
    pub machine: Option<String>,
    /// Where MAAS looks for it, as `https://address:port`.
    pub address: String,
    /// The project that MAAS works in.
    pub project: String,
    /// Fingerprint of the certificate that MAAS comes with.
    pub certificate: Option<String>,
    /// That certificate was made for this cluster by a manager of ours.
    pub ours: bool,
    /// MAAS has really reached it.
    pub reached: bool,
    /// MAAS knows what it has.
    pub measured: bool,
    /// Where it is.
    pub place: Place,
    /// Instances of the project that MAAS does not know (S12).
    pub strangers: Lookup<Vec<String>>,
}
