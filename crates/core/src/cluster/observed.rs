//! What is known about a `MaasCluster` and what belongs to it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use capmaas_api::capi::Cluster;
use capmaas_api::tolerant::WHOLE_VALUE;
use capmaas_api::{MaasClusterSpec, MaasClusterStatus};

use super::Journal;
use super::plan::Effect;
use crate::Lookup;
use crate::backoff::Trouble;
use crate::credentials::{Name, Standing};
use crate::origin::WrittenFor;
use crate::pause;

/// Everything that a decision about a `MaasCluster` rests on, read in one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The object itself.
    pub object: Object,
    /// Its Cluster. Absent: none owns it, or the one that does is gone.
    pub owner: Lookup<Owner>,
    /// The other MaasClusters that claim the same record in the same MAAS.
    pub rivals: Vec<Rival>,
    /// The MaasMachines of the cluster.
    pub machines: Lookup<Vec<Machine>>,
    /// Preferred subnets of the namespace, as its ConfigMap has them.
    pub preferred: Lookup<String>,
    /// Who we are to MAAS.
    pub identity: Result<Known, Refusal>,
    /// A machine of this cluster, with our mark on it, was seen through that identity. Only looked for after a change (S5).
    pub sees_a_machine: bool,
    /// The record under the name of the API server. Unknown also when there was nobody to ask.
    pub record: Lookup<Record>,
    /// A name that is free in MAAS, if one is needed, or whose record can only be ours and is in `record` then. Absent: every one that was
    /// tried is taken.
    pub candidate: Lookup<String>,
    /// Of the addresses that are going to be published, those that MAAS does not know yet and would reserve.
    pub unheard_of: BTreeSet<IpAddr>,
    /// For addresses that are owed: whether they are reserved for us and nobody has them.
    pub reserved: BTreeMap<IpAddr, Lookup<()>>,
    /// All zones of MAAS, if they were asked for.
    pub zones: Option<Lookup<BTreeSet<String>>>,
    /// Zones of MAAS that hold usable machines, if they were asked for.
    pub usable_zones: Option<Lookup<BTreeSet<String>>>,
    /// Whether the cluster's API server answers.
    pub api_server: ApiServer,
    /// Its machines as LXD hosts.
    pub hosts: Hosts,
    /// The last effect that failed, if none has worked since: something else is not held up by it (S26).
    pub trouble: Option<(Effect, Trouble)>,
    /// Which shape of failure domains Cluster API reads.
    pub contract: Contract,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Object {
    /// Which object it is.
    pub itself: WrittenFor,
    /// The name that it has ([`super::endpoint::recorded`]) is one that only its UID leads to: we made it up for this very object.
    pub made_its_name: bool,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// It is being deleted.
    pub deleting: bool,
    /// It has our finalizer, which is the Go provider's too.
    pub finalizer: bool,
    /// clusterctl is about to delete it because it was moved.
    pub moving: bool,
    /// It owes VMs, or what it owes cannot be read (S16).
    pub owes: bool,
    /// It is paused by its own annotation.
    pub paused: bool,
    /// Somebody else manages it.
    pub managed_elsewhere: bool,
    /// The annotation says that the user provides the endpoint.
    pub custom_endpoint: bool,
    /// What it should be.
    pub spec: MaasClusterSpec,
    /// What was last seen of it.
    pub status: MaasClusterStatus,
    /// What is written down on it.
    pub journal: Journal,
}

/// The Cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owner {
    pub name: String,
    /// Its `infrastructureRef` names this very MaasCluster.
    pub refers_here: bool,
    pub paused: bool,
    /// Host of its endpoint, if it has one.
    pub host: Option<String>,
    /// Port of its endpoint, if it has one.
    pub port: Option<u16>,
    /// The port that the API server is meant to have.
    pub api_server_port: Option<u16>,
}

impl Owner {
    /// What matters about a Cluster. One whose pause, or whose endpoint, cannot be read is not known.
    pub fn of(cluster: &Cluster, maas_cluster: &str) -> Lookup<Self> {
        pause::of_cluster(cluster).and_then(|paused| {
            let name = cluster.metadata.name.clone().unwrap_or_default();
            let matters = ["controlPlaneEndpoint", "clusterNetwork", WHOLE_VALUE];
            if let Some(path) = cluster.spec.unreadable.iter().find(|path| matters.contains(&path.as_str())) {
                return Lookup::Unknown(format!("cannot read spec of the Cluster {name}: {path}"));
            }
            let endpoint = cluster.endpoint();
            let refers_here = cluster
                .spec
                .infrastructure_ref
                .as_ref()
                .is_some_and(|reference| reference.is_ours("MaasCluster") && reference.name == maas_cluster);
            Lookup::Found(Self {
                name,
                refers_here,
                paused,
                host: endpoint.map(|(host, _)| host.to_owned()),
                port: endpoint.map(|(_, port)| port),
                api_server_port: cluster.api_server_port(),
            })
        })
    }
}

/// One MaasMachine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    pub name: String,
    /// It belongs to the control plane.
    pub control_plane: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// The machine in MAAS that its provider ID names.
    pub system_id: Option<String>,
    /// It has a provider ID: a machine stands behind it.
    pub provisioned: bool,
    /// MAAS may hold something for it: it has a provider ID, or its journal tells of a machine or of a request whose answer is not
    /// known (S5).
    pub made: bool,
    /// Its state in MAAS's words, if it is known.
    pub state: Option<String>,
    /// Its power is on.
    pub powered: bool,
    /// Its addresses, in MAAS's order.
    pub addresses: Vec<IpAddr>,
    /// It is a VM host that leaves: its agent has to be reached by the cluster's name until it says that its address may go.
    pub needs_the_name: bool,
}

/// Who we are to MAAS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Endpoint and user.
    pub name: Name,
    /// How that stands to what is written down.
    pub standing: Standing,
}

/// Why we are nobody to MAAS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// `CredentialsInvalid` or `MAASUnavailable`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// A record in MAAS's DNS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub id: i64,
    pub addresses: BTreeSet<IpAddr>,
    /// By address: the machines whose it is in MAAS's own words. Addresses that are only reserved are not in it.
    pub bound: BTreeMap<IpAddr, BTreeSet<String>>,
    /// It is bound to a machine that has no address at the moment: it would follow that machine to its next owner (S18).
    pub dangling: bool,
}

/// Another MaasCluster that claims the same record, and does not say itself that it is a copy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rival {
    /// Namespace and name.
    pub who: String,
    /// The name on record is one that only its UID leads to.
    pub made_its_name: bool,
    /// It has the number of the record.
    pub numbered: bool,
    /// Its journal was written for it.
    pub own: bool,
    /// A Cluster that lives owns it and names it.
    pub owned: bool,
    /// The machines in MAAS that its MaasMachines name.
    pub machines: BTreeSet<String>,
}

/// Whether the cluster's API server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiServer {
    /// Nobody asked this time.
    NotAsked,
    /// It does.
    Answers,
    /// It does not, for this reason.
    Silent(String),
}

/// A cluster's machines as LXD hosts.
#[derive(Debug, Clone, PartialEq)]
pub enum Hosts {
    /// They are none.
    Off,
    /// The spec asks for something that cannot be understood or done; the sentence says what.
    Unclear(String),
    /// The cluster's API server does not answer (yet).
    TooEarly,
    /// Nobody looked this time.
    NotAsked,
    /// They were looked at.
    Seen(Box<crate::hosts::Observed>),
}

/// Which shape of failure domains Cluster API reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contract {
    /// A map of name to details: cores that serve v1beta1 only.
    Map,
    /// A list of named entries.
    List,
}
