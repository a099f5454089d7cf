//! Everything that is observed about a cluster whose machines become LXD hosts.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::DesiredHosts;
use crate::Lookup;
use crate::backoff::Trouble;
pub use crate::registration::{Maker, Place, VmHost};

/// The input of a decision about the hosts of one cluster, read in one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    pub desired: DesiredHosts,
    /// The agent's image, from the manager's configuration.
    pub image: Option<String>,
    /// The version of the agent's manifest in this manager.
    pub manifest: String,
    /// The key pair with which MAAS connects to the hosts. The private key is never here.
    pub pair: Lookup<Pair>,
    /// The agent's DaemonSet on the workload cluster.
    pub agent: Lookup<Agent>,
    /// The certificate that the Nodes are told to trust.
    pub handed_over: Lookup<String>,
    pub nodes: Lookup<Vec<Node>>,
    /// The bare-metal machines of the cluster that are not being deleted.
    pub hosts: Vec<Host>,
    /// Control plane machines that cannot be handled yet, each with the reason.
    pub awaited: Vec<String>,
    /// When each VM host was last refreshed, by ID. May be lost at any time.
    pub refreshed: BTreeMap<i64, Timestamp>,
    /// Failures that must not be retried yet, by the target of the effect. May be lost at any time.
    pub trouble: BTreeMap<String, Trouble>,
}

/// The public half of a key pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// PEM.
    pub certificate: String,
    /// Of the certificate, in hexadecimal.
    pub fingerprint: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agent {
    /// The annotation that we wrote when we applied it; `None`: a person applied it, and it is left as it is.
    pub applied: Option<String>,
    /// Its controller has observed its latest generation.
    pub observed: bool,
    /// How many Nodes should run it.
    pub desired: i64,
    /// How many Nodes run its latest version.
    pub updated: i64,
    /// Other objects that belong to it and are missing, such as its RBAC rules, if we applied it.
    pub missing: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub provider_id: Option<String>,
    pub report: Option<Report>,
}

/// The agent's report about its Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// `Ready`, `Working`, `Waiting`, `Blocked` or `Left`.
    pub state: String,
    /// The message for the state.
    pub message: String,
    /// The first step that is not done.
    pub open: Option<String>,
    /// The agent registers the host itself, with its own MAAS API key.
    pub standalone: bool,
    /// Where LXD listens, as `https://address:port`.
    pub address: Option<String>,
    /// Fingerprint of the client certificate that LXD trusts.
    pub certificate: Option<String>,
    /// Fingerprints of earlier certificates of this cluster that LXD still trusts.
    pub earlier: Vec<String>,
    /// Fingerprint of the certificate that MAAS uses, as we told the agent.
    pub told: Option<String>,
    pub project: Option<String>,
    /// Names of the instances in it; `None` if not known right now.
    pub instances: Option<Vec<String>>,
    /// Names of the profiles that they can have; `None` if not known right now.
    pub profiles: Option<Vec<String>>,
}

/// A bare-metal machine of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name of the MaasMachine.
    pub name: String,
    pub control_plane: bool,
    /// Identifies its Node.
    pub provider_id: String,
    /// Its system ID, as the MaasMachine states it.
    pub machine: String,
    /// MAAS shows the stamp of the MaasMachine on that machine. Nothing else proves that the host is ours (S22).
    pub stamped: bool,
    /// Its zone and pool in MAAS.
    pub place: Lookup<Place>,
    pub vm_host: Lookup<VmHost>,
    /// When its registration was last sent, unless MAAS refused it.
    pub asked: Lookup<Timestamp>,
}
