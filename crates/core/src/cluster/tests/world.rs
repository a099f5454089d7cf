//! A small model of MAAS and Kubernetes that executes plans.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;

use super::super::observed::{ApiServer, Contract, Hosts, Known, Machine, Object, Observed, Owner, Record, Reserved};
use super::super::plan::Effect;
use super::super::{Journal, Plan, addresses, endpoint};
use super::{known, later};
use crate::Lookup;
use crate::credentials::Standing;
use crate::plan::Finalizer;

/// Where a pass ends early, as if the manager were killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crash {
    Never,
    BeforePatch,
    AfterPatch,
    /// The change in MAAS happened, but was not recorded.
    AfterEffect,
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) object: Option<Object>,
    pub(super) owner: Owner,
    pub(super) machines: Vec<Machine>,
    pub(super) records: BTreeMap<String, Record>,
    pub(super) numbers: i64,
    /// Addresses that belong to machines in MAAS.
    pub(super) known_addresses: BTreeSet<IpAddr>,
    pub(super) reserved: BTreeSet<IpAddr>,
    pub(super) maas_answers: bool,
    /// The UID of the object still yields its name: it was not moved.
    pub(super) name_is_from_uid: bool,
    pub(super) seconds: i64,
    pub(super) effects: usize,
}

impl World {
    pub(super) fn new(object: Object) -> Self {
        Self {
            object: Some(object),
            owner: Owner { name: "c1".into(), ..Owner::default() },
            machines: Vec::new(),
            records: BTreeMap::new(),
            numbers: 0,
            known_addresses: BTreeSet::new(),
            reserved: BTreeSet::new(),
            maas_answers: true,
            name_is_from_uid: true,
            seconds: 0,
            effects: 0,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        later(self.seconds)
    }

    pub(super) fn observe(&self) -> Option<Observed> {
        let mut object = self.object.clone()?;
        object.name_is_from_uid = self.name_is_from_uid && object.journal.name.is_some();
        let away = || Lookup::Unknown("MAAS is away".to_owned());
        let name = endpoint::name(&object, &self.owner);
        let record = match (&name, self.maas_answers) {
            (None, _) => Lookup::Unknown("no name yet".into()),
            (_, false) => Lookup::Unknown("MAAS is away".into()),
            (Some(name), true) => {
                self.records.get(name).map_or(Lookup::Absent, |record| Lookup::Found(self.bound(record)))
            }
        };
        let free = (0..5).map(|n| format!("c1-{n:06x}.maas")).find(|name| !self.records.contains_key(name));
        let candidate = if self.maas_answers { free.map_or(Lookup::Absent, Lookup::Found) } else { away() };
        let owed = object.journal.owed.iter().map(|address| {
            let reserved =
                if self.reserved.contains(address) { Lookup::Found(Reserved::ForUs) } else { Lookup::Absent };
            (*address, if self.maas_answers { reserved } else { Lookup::Unknown("away".into()) })
        });
        let mut observed = Observed {
            owner: Lookup::Found(self.owner.clone()),
            rivals: Vec::new(),
            machines: Lookup::Found(self.machines.clone()),
            preferred: Lookup::Absent,
            identity: Ok(Known {
                standing: Standing::of(&known().name, object.journal.identity.as_deref()),
                ..known()
            }),
            sees_a_machine: false,
            record,
            candidate,
            unknown_to_maas: BTreeSet::new(),
            reserved: owed.collect(),
            zones: None,
            usable_zones: None,
            api_server: ApiServer::NotAsked,
            hosts: Hosts::Off,
            troubles: Vec::new(),
            contract: Contract::List,
            object,
        };
        let current = match &observed.record {
            Lookup::Found(record) => record.addresses.clone(),
            _ => BTreeSet::new(),
        };
        let wanted = addresses::published(&observed).wanted.given(&current);
        let heard_of = |address: &&IpAddr| self.known_addresses.contains(*address) || self.reserved.contains(*address);
        observed.unknown_to_maas = wanted.iter().filter(|address| !heard_of(address)).copied().collect();
        Some(observed)
    }

    /// The record with the machines that own its addresses.
    fn bound(&self, record: &Record) -> Record {
        let holders = |address: &IpAddr| -> BTreeSet<String> {
            let theirs = self.machines.iter().filter(|machine| machine.addresses.contains(address));
            theirs.filter_map(|machine| machine.system_id.clone()).collect()
        };
        let known = record.addresses.iter().filter(|address| self.known_addresses.contains(*address));
        Record { bound: known.map(|address| (*address, holders(address))).collect(), ..record.clone() }
    }

    /// Executes a plan. Removing the finalizer deletes the object if it is being deleted.
    pub(super) fn apply(&mut self, plan: &Plan, crash: Crash) {
        if crash == Crash::BeforePatch {
            return;
        }
        self.patch(plan);
        if crash == Crash::AfterPatch {
            return;
        }
        if let Some(effect) = &plan.effect {
            assert!(self.maas_answers, "an effect without MAAS: {effect:?}");
            let made = self.effect(effect);
            self.effects += 1;
            if crash == Crash::AfterEffect {
                return;
            }
            if let (Some(id), Some(object)) = (made, &mut self.object) {
                object.journal.record = Some(id);
            }
        }
        if let (Some(status), Some(object)) = (&plan.status, &mut self.object) {
            object.status = status.clone();
        }
    }

    fn patch(&mut self, plan: &Plan) {
        let Some(object) = &mut self.object else { return };
        match plan.finalizer {
            Finalizer::Keep => {}
            Finalizer::Add => object.finalizer = true,
            Finalizer::Remove => object.finalizer = false,
        }
        if let Some(endpoint) = &plan.patch.endpoint {
            object.spec.control_plane_endpoint = Some(endpoint.clone());
            object.generation = object.generation.map(|generation| generation + 1);
        }
        let mut annotations = BTreeMap::new();
        for (key, value) in Journal::default().difference(&object.journal) {
            annotations.extend(value.map(|value| (key.to_owned(), value)));
        }
        for (key, value) in &plan.patch.annotations {
            match value {
                Some(value) => drop(annotations.insert((*key).to_owned(), value.clone())),
                None => drop(annotations.remove(*key)),
            }
        }
        object.journal = Journal::of(&annotations);
        if object.deleting && !object.finalizer {
            self.object = None;
        }
    }

    /// What MAAS does. Returns the ID of a new record.
    fn effect(&mut self, effect: &Effect) -> Option<i64> {
        match effect {
            Effect::CreateDnsRecord { name, addresses } => {
                assert!(!self.records.contains_key(name), "made twice: {name}");
                self.reserve(addresses);
                self.numbers += 1;
                let (bound, anothers) = (BTreeMap::new(), BTreeSet::new());
                let record =
                    Record { id: self.numbers, addresses: addresses.clone(), bound, anothers, dangling: Vec::new() };
                self.records.insert(name.clone(), record);
                return Some(self.numbers);
            }
            Effect::UpdateDnsRecord { id, addresses } => {
                self.reserve(addresses);
                let record = self.records.values_mut().find(|record| record.id == *id).unwrap();
                record.addresses.clone_from(addresses);
                record.dangling.clear();
            }
            Effect::DeleteDnsRecord { id } => self.records.retain(|_, record| record.id != *id),
            Effect::ReleaseAddress { address } => assert!(self.reserved.remove(address), "{address} was not reserved"),
            Effect::Hosts(effect) => panic!("this world has no hosts: {effect:?}"),
        }
        None
    }

    fn reserve(&mut self, addresses: &BTreeSet<IpAddr>) {
        self.reserved.extend(addresses.difference(&self.known_addresses));
    }
}
