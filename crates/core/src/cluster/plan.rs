//! What shall happen about a `MaasCluster`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use capmaas_api::MaasClusterStatus;
use capmaas_api::cluster::ControlPlaneEndpoint;
use serde_json::{Map, Value};

use crate::{hosts, plan};

/// Everything that happens in one pass over a cluster.
pub type Plan = plan::Plan<Effect, Patch, MaasClusterStatus>;

/// How an effect ended. Done, the answer is the number of a DNS record that was made.
pub type Outcome = plan::Outcome<Option<i64>>;

/// A change of metadata and spec.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Patch {
    /// Where the API server is reached, if that is to be written.
    pub endpoint: Option<ControlPlaneEndpoint>,
    /// Annotations to write; `None` takes one away.
    pub annotations: BTreeMap<&'static str, Option<String>>,
}

impl plan::Patch for Patch {
    fn annotations(&self) -> BTreeMap<&'static str, Option<String>> {
        self.annotations.clone()
    }

    fn spec(&self) -> Map<String, Value> {
        let endpoint = self.endpoint.as_ref().and_then(|endpoint| serde_json::to_value(endpoint).ok());
        endpoint.map(|endpoint| ("controlPlaneEndpoint".to_owned(), endpoint)).into_iter().collect()
    }
}

/// One thing to do. At most one is done in a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Makes the record under the name of the API server.
    ///
    /// If this happened and we crashed before noting its number: the name was written down when it was free, and the time of
    /// asking before the request, so a record that is found under it while no number is noted is ours, and its number is noted
    /// then. A second request while the first is under way is refused by MAAS, which has every name only once.
    CreateDnsRecord {
        name: String,
        /// Its addresses from the start.
        addresses: BTreeSet<IpAddr>,
    },
    /// Replaces the addresses of the record.
    ///
    /// If this happened and we crashed: the next look at the record sees the addresses.
    UpdateDnsRecord {
        /// The record's number, found under its name in the same pass.
        id: i64,
        /// All its addresses from now on.
        addresses: BTreeSet<IpAddr>,
    },
    /// Deletes the record that we made.
    ///
    /// If this happened and we crashed: the next look finds no record under the name.
    DeleteDnsRecord {
        /// The record's number, noted when we made it and found under its name in the same pass.
        id: i64,
    },
    /// Gives back an address that MAAS reserved because our record had it.
    ///
    /// If this happened and we crashed: the address is written down as owed, and the next look at it finds it free.
    ReleaseAddress {
        /// Which.
        address: IpAddr,
    },
    /// Something about its machines as LXD hosts.
    Hosts(hosts::plan::Effect),
}

impl Effect {
    /// Whether it rests on what MAAS says about the DNS record, which may have been remembered so far.
    pub fn rests_on_record(&self) -> bool {
        !matches!(self, Self::Hosts(_))
    }

    /// One word for logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CreateDnsRecord { .. } => "create_dns_record",
            Self::UpdateDnsRecord { .. } => "update_dns_record",
            Self::DeleteDnsRecord { .. } => "delete_dns_record",
            Self::ReleaseAddress { .. } => "release_address",
            Self::Hosts(effect) => effect.name(),
        }
    }
}
