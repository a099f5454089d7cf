//! What shall happen about a `MaasCluster`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use capmaas_api::MaasClusterStatus;
use capmaas_api::cluster::ControlPlaneEndpoint;
use jiff::SignedDuration;

use crate::hosts;

/// Everything that happens in one pass, in this order: the patch, the effect, the status, the events.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Plan {
    /// Change of metadata and spec. Written before the effect; if it cannot be written, nothing else happens.
    pub patch: Patch,
    /// The one change in MAAS.
    pub effect: Option<Effect>,
    /// The one change about its machines as LXD hosts. Never together with the other.
    pub hosts: Option<hosts::plan::Effect>,
    /// The whole status, if it differs from what is stored. Conditions of other writers are not in it.
    pub status: Option<MaasClusterStatus>,
    /// What to tell once the patch and the effect are done.
    pub events: Vec<Event>,
    /// When to look again, whatever happens meanwhile.
    pub requeue: Requeue,
    /// What is going on, for the log.
    pub why: String,
}

impl Plan {
    /// Nothing happens.
    pub fn nothing(requeue: Requeue, why: impl Into<String>) -> Self {
        Self {
            patch: Patch::default(),
            effect: None,
            hosts: None,
            status: None,
            events: Vec::new(),
            requeue,
            why: why.into(),
        }
    }

    /// Whether anything is written anywhere.
    pub fn is_idle(&self) -> bool {
        self.patch.is_empty() && self.effect.is_none() && self.hosts.is_none() && self.status.is_none()
    }
}

/// A change of metadata and spec.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Patch {
    /// What happens to the finalizer.
    pub finalizer: Finalizer,
    /// Where the API server is reached, if that is to be written.
    pub endpoint: Option<ControlPlaneEndpoint>,
    /// Annotations to write; `None` takes one away.
    pub annotations: BTreeMap<&'static str, Option<String>>,
}

impl Patch {
    /// Nothing is changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What happens to the finalizer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Finalizer {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is added, before anything is made in MAAS.
    Add,
    /// It goes: nothing of ours is left in MAAS.
    Remove,
}

/// A change in MAAS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Makes the record under the name of the API server.
    ///
    /// If this happened and we crashed before noting its number: the name was written down when it was free, and the time of
    /// asking before the request, so a record that is found under it while no number is noted is ours, and its number is noted
    /// then. A second request while the first is under way is refused by MAAS, which has every name only once.
    CreateDnsRecord {
        /// Its name.
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
}

/// Something that happened, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Somebody should look at it.
    pub warning: bool,
    /// One CamelCase word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// When to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requeue {
    /// At once: there is more to do.
    Now,
    /// After this time, unless something changes before.
    After(SignedDuration),
    /// When something changes.
    OnChange,
}

impl Requeue {
    /// After so many seconds.
    pub fn seconds(seconds: i64) -> Self {
        Self::After(SignedDuration::from_secs(seconds))
    }
}
