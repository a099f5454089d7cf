//! The decision: as tables, and asked at random.

mod ending;
mod living;
mod odd;
mod properties;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use capmaas_api::{Condition, Conditions as _, MaasClusterStatus, conditions};
use jiff::Timestamp;

use super::notes::{Notes, Source};
use super::observed::{ApiServer, Contract, Hosts, Known, Machine, Object, Observed, Owner, Record};
use crate::Lookup;
use crate::credentials::{Name, Standing};

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
    let mut object = Object { generation: Some(1), ..Object::default() };
    object.spec.dns_domain = "maas".into();
    Observed {
        object,
        owner: Lookup::Found(Owner { name: "c1".into(), ..Owner::default() }),
        machines: Lookup::Found(Vec::new()),
        preferred: Lookup::Absent,
        identity: Ok(Known { standing: Standing::First, ..known() }),
        sees_a_machine: false,
        record: Lookup::Unknown("there is no name to look for yet".into()),
        candidate: Lookup::Found(NAME.into()),
        unheard_of: BTreeSet::new(),
        reserved: BTreeMap::new(),
        zones: None,
        usable_zones: None,
        api_server: ApiServer::NotAsked,
        hosts: Hosts::Off,
        trouble: None,
        contract: Contract::List,
    }
}

/// A MaasCluster whose record (number 7) is there, with these addresses.
fn settled(addresses: &[&str], machines: Vec<Machine>) -> Observed {
    let mut observed = fresh();
    observed.object.finalizer = true;
    observed.object.spec.control_plane_endpoint =
        Some(capmaas_api::cluster::ControlPlaneEndpoint { host: NAME.into(), port: 6443 });
    observed.object.notes = Notes {
        source: Some(Source::Dns),
        name: Some(NAME.into()),
        record: Some(7),
        asked: Some(now()),
        identity: Some(known().name.to_string()),
        ..Notes::default()
    };
    observed.identity = Ok(known());
    observed.record = Lookup::Found(Record { id: 7, addresses: ips(addresses), dangling: false });
    observed.machines = Lookup::Found(machines);
    observed
}

/// A control plane machine that is up.
fn up(name: &str, addresses: &[&str]) -> Machine {
    Machine {
        name: name.into(),
        control_plane: true,
        deleting: false,
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
