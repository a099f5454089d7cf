//! Everything that is observed about a `MaasCluster`.

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

/// The input of a decision about a `MaasCluster`, read in one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    pub object: Object,
    /// Its Cluster. Absent: none owns it, or its owner is gone.
    pub owner: Lookup<Owner>,
    /// The other MaasClusters that claim the same record in the same MAAS.
    pub rivals: Vec<Rival>,
    pub machines: Lookup<Vec<Machine>>,
    /// Preferred subnets of the namespace, as stored in its ConfigMap.
    pub preferred: Lookup<String>,
    /// Our MAAS identity.
    pub identity: Result<Known, Refusal>,
    /// A machine of this cluster that carries our key or stamp was seen through that identity. Checked only after a change (S5).
    pub sees_a_machine: bool,
    /// The record under the name of the API server. Also unknown if MAAS could not be queried.
    pub record: Lookup<Record>,
    /// A free name in MAAS, if one is needed, or one whose record can only be ours; that record is then in `record`. Absent:
    /// every name that was tried is taken.
    pub candidate: Lookup<String>,
    /// The addresses to be published that MAAS does not know yet and would reserve.
    pub unknown_to_maas: BTreeSet<IpAddr>,
    /// For addresses that are owed: whether they are reserved for our user, for no machine and in no other record.
    pub reserved: BTreeMap<IpAddr, Lookup<Reserved>>,
    /// All zones of MAAS, if they were queried.
    pub zones: Option<Lookup<BTreeSet<String>>>,
    /// Zones of MAAS with usable machines, if they were queried.
    pub usable_zones: Option<Lookup<BTreeSet<String>>>,
    pub api_server: ApiServer,
    /// Its machines as LXD hosts.
    pub hosts: Hosts,
    /// The effects that failed and have not succeeded since; they do not block other effects (S26).
    pub troubles: Vec<(Effect, Trouble)>,
    /// The format of failure domains that Cluster API reads.
    pub contract: Contract,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Object {
    pub itself: WrittenFor,
    /// Its name ([`super::endpoint::recorded`]) is one that only its UID yields: we generated it for this very object.
    pub name_is_from_uid: bool,
    pub generation: Option<i64>,
    pub deleting: bool,
    /// It has our finalizer, which the Go provider uses too.
    pub finalizer: bool,
    /// clusterctl is about to delete it because it was moved.
    pub moving: bool,
    /// It owes the removal of VMs, or its debts cannot be read (S16).
    pub owes: bool,
    /// It is paused by its own annotation.
    pub paused: bool,
    /// Another system manages it (`cluster.x-k8s.io/managed-by`).
    pub managed_elsewhere: bool,
    /// The annotation states that the user provides the endpoint.
    pub custom_endpoint: bool,
    pub spec: MaasClusterSpec,
    /// The stored status.
    pub status: MaasClusterStatus,
    pub journal: Journal,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owner {
    pub name: String,
    /// Its `infrastructureRef` names this very MaasCluster.
    pub refers_here: bool,
    pub paused: bool,
    pub host: Option<String>,
    pub port: Option<u16>,
    /// The port that the API server is configured with.
    pub api_server_port: Option<u16>,
}

impl Owner {
    /// Extracts what matters. A Cluster whose pause or endpoint cannot be read is unknown.
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

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    pub name: String,
    pub control_plane: bool,
    pub deleting: bool,
    /// The machine in MAAS that its provider ID names. Anybody can write an ID: only the stamp proves it.
    pub system_id: Option<String>,
    pub stamp: Stamp,
    /// It has a provider ID, so there is a machine behind it.
    pub provisioned: bool,
    /// MAAS may hold something for it: it has a provider ID, or its journal has a machine or a request whose answer is not known
    /// (S5).
    pub made: bool,
    /// Its state in MAAS, if it is known.
    pub state: Option<String>,
    pub powered: bool,
    /// In MAAS's order.
    pub addresses: Vec<IpAddr>,
    /// It is being released, perhaps as a VM host: its agent has to be reached by the cluster's name until the machine's status
    /// allows its address to be removed.
    pub needs_the_name: bool,
}

/// The stamp that MAAS shows on the machine that a `MaasMachine` names (S7).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Stamp {
    /// Not read, because nothing is decided by it.
    #[default]
    NotRead,
    /// The object's own. In MAAS the machine has these addresses.
    Own(BTreeSet<IpAddr>),
    /// None yet. A machine of the Go provider gets one when it is adopted (S24).
    Missing,
    /// None, and MAAS shows this other user as the machine's owner: nobody else can stamp it.
    OwnedBy(String),
    /// Another object's, or nobody owns the machine.
    Anothers,
    /// MAAS did not answer, for this reason.
    Unknown(String),
}

/// Our MAAS identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Endpoint and user.
    pub name: Name,
    /// How it compares with the recorded identity.
    pub standing: Standing,
}

/// Why MAAS could not be accessed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// `CredentialsInvalid` or `MAASUnavailable`.
    pub reason: &'static str,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub id: i64,
    pub addresses: BTreeSet<IpAddr>,
    /// The machines that own each address according to MAAS. Addresses that are only reserved are not in it.
    pub bound: BTreeMap<IpAddr, BTreeSet<String>>,
    /// Those of its addresses whose machine MAAS shows with the stamp of a MaasMachine in another namespace (S7).
    pub anothers: BTreeSet<IpAddr>,
    /// The machines of each entry without an address: the record follows them, also to their next owner (S18).
    pub dangling: Vec<BTreeSet<String>>,
}

/// An address that MAAS has reserved for our user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// Since this object exists, so a record of ours may be the reason.
    ForUs,
    /// Before this object was created: for somebody else, or for the object that it was before a move or a restore.
    Before,
}

/// Another MaasCluster that claims the same record, and whose journal does not mark it as a copy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rival {
    /// Namespace and name.
    pub who: String,
    /// The recorded name is one that only its UID yields.
    pub name_is_from_uid: bool,
    /// Its journal has the ID of the record.
    pub numbered: bool,
    /// Its journal was written for it.
    pub own: bool,
    /// A live Cluster owns it and names it.
    pub owned: bool,
    /// The machines in MAAS that the record resolves to and that carry the stamp of one of its MaasMachines.
    pub machines: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiServer {
    /// Not probed in this pass.
    NotAsked,
    /// It is being probed, and has not answered yet.
    BeingAsked,
    Answers,
    /// It does not answer, for this reason.
    Silent(String),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Hosts {
    /// Its machines are not LXD hosts.
    Off,
    /// The spec asks for something that cannot be understood or done; the message states what.
    Unclear(String),
    /// The cluster's API server does not answer (yet).
    TooEarly,
    /// Not read in this pass.
    NotAsked,
    /// They are being read, and are not known yet.
    BeingRead,
    Seen(Box<crate::hosts::Observed>),
}

/// The format of failure domains that Cluster API reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contract {
    /// A map of name to details: Cluster API cores that serve v1beta1 only.
    Map,
    /// A list of named entries.
    List,
}
