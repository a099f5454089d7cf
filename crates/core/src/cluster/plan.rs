//! The plan for a `MaasCluster`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use capmaas_api::MaasClusterStatus;
use capmaas_api::cluster::ControlPlaneEndpoint;
use serde_json::{Map, Value};

use crate::{hosts, plan};

pub type Plan = plan::Plan<Effect, Patch, MaasClusterStatus>;

/// The outcome of an effect. `Done` holds the ID of a DNS record that was created.
pub type Outcome = plan::Outcome<Option<i64>>;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Patch {
    /// The endpoint of the API server, if it has to be written.
    pub endpoint: Option<ControlPlaneEndpoint>,
    /// Annotations to write; `None` removes one.
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

/// One action. At most one is performed in a pass.
///
/// Each variant states how its result is seen again if it took effect and we crashed before recording it ("after a crash").
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Creates the record under the name of the API server.
    ///
    /// After a crash: the name was stored when it was free, and the time of the request before the request. So a record that is
    /// found under the name while no ID is stored is ours, and its ID is stored then. A second request while the first is in
    /// flight is refused by MAAS, which accepts every name only once.
    CreateDnsRecord {
        name: String,
        /// Its initial addresses.
        addresses: BTreeSet<IpAddr>,
    },
    /// Replaces the addresses of the record.
    ///
    /// After a crash: the next read of the record shows the addresses.
    UpdateDnsRecord {
        /// The record's ID, found under its name in the same pass.
        id: i64,
        /// All its addresses from now on.
        addresses: BTreeSet<IpAddr>,
    },
    /// Deletes the record that we created.
    ///
    /// After a crash: the next read finds no record under the name.
    DeleteDnsRecord {
        /// The record's ID, stored when we created it and found under its name in the same pass.
        id: i64,
    },
    /// Releases an address that MAAS reserved because our record had it.
    ///
    /// After a crash: the journal has the address as owed, and the next read shows that it is free.
    ReleaseAddress {
        /// The reserved address.
        address: IpAddr,
    },
    /// An effect on its machines as LXD hosts.
    Hosts(hosts::plan::Effect),
}

impl Effect {
    /// Whether it depends on the state of the DNS record, which may be cached so far.
    pub fn rests_on_record(&self) -> bool {
        !matches!(self, Self::Hosts(_))
    }

    /// For logs.
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
