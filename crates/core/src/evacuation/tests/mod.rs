//! Decisions about VMs on hosts that should be empty, as tables and as properties.

mod groups;
mod properties;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use crate::Lookup;
use crate::intent::Vm;
use crate::maas::{Power, State};
use crate::placement::{self, HostMachine, Room, StoragePool};

use super::group::{Allowance, Domains, Group, Member as GroupMember};
use super::*;

pub(super) fn lxd_host(id: i64, cores: i64) -> placement::Host {
    placement::Host {
        id,
        name: format!("host{id}"),
        system_id: Some(format!("sys{id}")),
        zone: None,
        pool: None,
        tags: BTreeSet::new(),
        project: Lookup::Absent,
        reached: true,
        total: Room { cores: 64, memory: 1 << 20 },
        free: Room { cores, memory: 1 << 20 },
        pools: vec![StoragePool { name: "default".into(), free: 1 << 50, default: true }],
        ports: None,
        profiles: None,
        departing: false,
        machine: Lookup::Found(HostMachine { state: State::Deployed, power: Power::On, tags: BTreeSet::new() }),
    }
}

pub(super) fn demanded(cores: u32) -> Demanded {
    Demanded { vm: Vm { cores, memory: 1024, disk: 10, ..Vm::default() }, zones: Vec::new(), siblings: Vec::new() }
}

/// A control plane of this many healthy machines: `c-0`, `c-1`, …
pub(super) fn control_plane(cluster: &str, replicas: usize) -> Group {
    let member = |number| GroupMember {
        name: format!("{cluster}-{number}"),
        uid: format!("uid-{cluster}-{number}"),
        deleting: false,
        failure_domain: None,
        up_to_date: Some(true),
        trouble: None,
    };
    Group {
        name: format!("KubeadmControlPlane {cluster}"),
        allowance: Allowance::ControlPlane { stacked_etcd: true },
        desired: Some(replicas),
        unsettled: None,
        domains: Domains::Spread(Vec::new()),
        template: None,
        members: (0..replicas).map(member).collect(),
    }
}

/// The first machine of a control plane; nothing prevents its replacement.
pub(super) fn member(cluster: &str, group: Group) -> Member {
    let name = group.members[0].name.clone();
    Member {
        cluster: ObjectName::new("default", cluster),
        own_identity: Ok(()),
        consent: Lookup::Found(Consent::Automatic),
        paused: Lookup::Found(false),
        machine: Lookup::Found(Machine {
            object: ObjectName::new("default", &name),
            uid: format!("uid-{name}"),
            version: "1".into(),
            deleting: false,
            held: false,
        }),
        group: Lookup::Found(group),
        demanded: Ok(demanded(2)),
    }
}

pub(super) fn guest(member: Member) -> Guest {
    let name = member.machine.found().map_or_else(|| "vm".to_owned(), |machine| machine.object.name.clone());
    Guest { name, whose: Whose::Ours(Box::new(member)) }
}

pub(super) fn leaving(id: i64, guests: Vec<Guest>) -> Host {
    let object = Some(ObjectName::new("default", format!("host{id}")));
    Host {
        open: None,
        id,
        name: format!("host{id}"),
        cause: Cause::Maintenance("fans".into()),
        object,
        guests: Lookup::Found(guests),
    }
}

/// Host 1 should be empty, hosts 2 and 3 stay.
pub(super) fn observed(guests: Vec<Guest>) -> Observed {
    let hosts = (1..=3).map(|id| lxd_host(id, 8)).collect();
    Observed {
        hosts: vec![leaving(1, guests)],
        site: Lookup::Found(Site { hosts, claims: Vec::new() }),
        successors: BTreeMap::new(),
        unplaced: Vec::new(),
        refusals: BTreeMap::new(),
    }
}

pub(super) fn fates(plan: &Plan) -> Vec<Fate> {
    plan.hosts.iter().filter_map(|host| host.guests.found()).flatten().map(|guest| guest.fate.clone()).collect()
}
