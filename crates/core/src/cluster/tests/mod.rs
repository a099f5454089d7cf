//! Decisions about clusters, as tables and as properties.

mod ending;
mod living;
mod odd;
mod pending;
mod proofs;
mod properties;
mod publishing;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use capmaas_api::{Condition, Conditions as _, MaasClusterStatus, conditions};
use jiff::Timestamp;

use super::journal::{Journal, Source};
use super::observed::{ApiServer, Contract, Hosts, Known, Machine, Object, Observed, Owner, Record, Reserved, Stamp};
use crate::Lookup;
use crate::credentials::{Name, Standing};
use crate::origin::WrittenFor;

const NAME: &str = "c1-0abc12.maas";

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn later(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ips(texts: &[&str]) -> BTreeSet<IpAddr> {
    texts.iter().map(|text| ip(text)).collect()
}

fn known() -> Known {
    Known { name: Name { endpoint: "http://maas/MAAS".into(), user: "admin".into() }, standing: Standing::Same }
}

fn changed() -> Known {
    Known { standing: Standing::Changed { recorded: "http://other/MAAS#admin".into() }, ..known() }
}

/// A MaasCluster that was applied a moment ago.
fn fresh() -> Observed {
    let mut object = Object { itself: itself(), generation: Some(1), ..Object::default() };
    object.spec.dns_domain = "maas".into();
    Observed {
        object,
        owner: Lookup::Found(Owner { name: "c1".into(), refers_here: true, ..Owner::default() }),
        rivals: Vec::new(),
        machines: Lookup::Found(Vec::new()),
        preferred: Lookup::Absent,
        identity: Ok(Known { standing: Standing::First, ..known() }),
        sees_a_machine: false,
        record: Lookup::Unknown("there is no name to look for yet".into()),
        candidate: Lookup::Found(NAME.into()),
        unknown_to_maas: BTreeSet::new(),
        reserved: BTreeMap::new(),
        zones: None,
        usable_zones: None,
        api_server: ApiServer::NotAsked,
        hosts: Hosts::Off,
        troubles: Vec::new(),
        contract: Contract::List,
    }
}

/// A MaasCluster whose record (ID 7) exists, with these addresses.
fn settled(addresses: &[&str], machines: Vec<Machine>) -> Observed {
    let mut observed = fresh();
    observed.object.finalizer = true;
    observed.object.spec.control_plane_endpoint =
        Some(capmaas_api::cluster::ControlPlaneEndpoint { host: NAME.into(), port: 6443 });
    observed.object.journal = Journal {
        source: Some(Source::Dns),
        name: Some(NAME.into()),
        record: Some(7),
        asked: Some(now()),
        identity: Some(known().name.to_string()),
        written_for: Some(itself()),
        ..Journal::default()
    };
    observed.object.name_is_from_uid = true;
    observed.identity = Ok(known());
    observed.record = Lookup::Found(record(7, addresses));
    observed.machines = Lookup::Found(machines);
    observed
}

fn itself() -> WrittenFor {
    WrittenFor { namespace: "team".into(), name: "c1".into(), uid: "u1".into() }
}

/// A record whose addresses belong to the machines `at-<address>` in MAAS.
fn record(id: i64, addresses: &[&str]) -> Record {
    let bound = addresses.iter().map(|address| (ip(address), BTreeSet::from([format!("at-{address}")]))).collect();
    Record { id, addresses: ips(addresses), bound, anothers: BTreeSet::new(), dangling: Vec::new() }
}

/// A control plane machine that is up and stamped.
fn up(name: &str, addresses: &[&str]) -> Machine {
    Machine {
        name: name.into(),
        control_plane: true,
        deleting: false,
        system_id: addresses.first().map(|address| format!("at-{address}")),
        stamp: Stamp::Own(ips(addresses)),
        provisioned: true,
        made: true,
        state: Some("Deployed".into()),
        powered: true,
        addresses: addresses.iter().map(|text| ip(text)).collect(),
        needs_the_name: false,
    }
}

fn leaving(machine: Machine) -> Machine {
    Machine { deleting: true, ..machine }
}

fn condition<'a>(status: &'a MaasClusterStatus, type_: &str) -> &'a Condition {
    status.conditions.condition(type_).unwrap_or_else(|| panic!("no condition {type_} in {status:?}"))
}

fn reason<'a>(status: &'a MaasClusterStatus, type_: &str) -> &'a str {
    condition(status, type_).reason.as_deref().unwrap_or_default()
}

fn ready_reason(status: &MaasClusterStatus) -> &str {
    reason(status, conditions::READY)
}

/// Whether a status is written, and whether nothing else happens, for a new MaasCluster of this Cluster.
pub(crate) fn under_cluster(cluster: &capmaas_api::capi::Cluster) -> (bool, bool) {
    let plan = super::decide(&Observed { owner: Owner::of(cluster, "c1"), ..fresh() }, now());
    (plan.status.is_some(), plan.effect.is_none() && plan.leaves_object())
}
