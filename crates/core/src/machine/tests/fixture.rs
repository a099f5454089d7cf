//! The initial state of the tests: a machine of a cluster that is ready, with its bootstrap data present.

use std::collections::BTreeMap;

use capmaas_api::MaasMachine;
use capmaas_api::capi::{Cluster, Machine};
use jiff::Timestamp;
use serde_json::json;

use super::super::*;
use crate::Lookup;
use crate::hosts::bridge::{DesiredBridge, Interface, Network};
use crate::hosts::leaving::{AsHost, LeavingHost, ObservedAgent};
use crate::maas;

pub(super) const KEY: &str = "capmaas-uid-1";
pub(super) const ID: &str = "abc123";

pub(super) fn now() -> Timestamp {
    "2026-11-15T12:00:00Z".parse().unwrap()
}

pub(super) fn later(seconds: i64) -> Timestamp {
    now() + jiff::SignedDuration::from_secs(seconds)
}

/// A machine of ours in MAAS.
pub(super) fn metal(state: State) -> maas::Machine {
    maas::Machine {
        id: ID.into(),
        state,
        state_name: format!("{state:?}"),
        power: if state == State::Deployed { Power::On } else { Power::Off },
        owner: Some("admin".into()),
        stamp: Some(KEY.into()),
        stamped_for: Some("n/m".into()),
        hostname: "bm1".into(),
        fqdn: "bm1.maas".into(),
        addresses: vec!["10.0.0.7".into()],
        zone: "az1".into(),
        locked: false,
        in_maintenance: Lookup::Found(false),
        swap_off: true,
        network: boots_from_eth0(),
        vm_host: None,
        tags: Vec::new(),
        last_message: "it broke".into(),
        without_dhcp: None,
    }
}

pub(super) fn boots_from_eth0() -> Network {
    let eth0 = Interface { id: 1, name: "eth0".into(), kind: "physical".into(), children: Vec::new() };
    Network { boot: Some(1), interfaces: vec![eth0] }
}

/// The bridge that a cluster of hosts asks for.
pub(super) fn br0() -> DesiredBridge {
    DesiredBridge { name: "br0".into(), parent: None, make: true }
}

/// ID of the VM host in the tests.
pub(super) const HOST: i64 = 7;

pub(super) fn place() -> Place {
    Place {
        host: HOST,
        host_name: "host7".into(),
        project: Some("maas".into()),
        zone: "az1".into(),
        zone_id: Some(2),
        storage_pool: Some("default".into()),
        nics: Vec::new(),
        cores: 2,
        memory: 4096,
        disk: 60,
        at: now(),
    }
}

/// The journal of a VM that has a name, and maybe a place.
pub(super) fn vm_record(place: Option<Place>) -> Journal {
    let stage = place.map_or(VmStage::Unplaced, VmStage::Placed);
    let vm = VmJournal { stage, ..VmJournal::new("m", "uid-1") };
    Journal { vm: Some(vm), ..journal() }
}

/// The journal of a VM that MAAS has.
pub(super) fn vm_on_record() -> Journal {
    Journal { allocation: Some(Allocation::of(ID)), ..vm_record(Some(place())) }
}

/// The VM in the journal, ours.
pub(super) fn vm(state: State) -> maas::Machine {
    let name = vm_record(None).vm.unwrap().name;
    maas::Machine { vm_host: Some(HOST), hostname: name, ..metal(state) }
}

/// The VM that was made for us, before anybody owns it.
pub(super) fn unowned_vm(state: State) -> maas::Machine {
    maas::Machine { stamp: None, owner: None, ..vm(state) }
}

/// A new object that asks for a VM; every lookup finds nothing.
pub(super) fn fresh_vm() -> Observed {
    let mut observed = fresh();
    observed.object.spec.provisioning_mode = Some(capmaas_api::ProvisioningMode::Lxd);
    observed.vm.by_name = Lookup::Found(Vec::new());
    observed.vm.host = Lookup::Found(usable_host());
    observed
}

pub(super) fn usable_host() -> ObservedHost {
    let others_known = Lookup::Unknown("nobody counts".into());
    ObservedHost { usable: Ok(()), project: Some("maas".into()), others_known, power: None }
}

/// The machine is a VM host, empty or not, whose agent has stopped.
pub(super) fn as_host(empty: bool) -> AsHost {
    let vms = if empty { Vec::new() } else { vec!["vm1 of cluster n/c2".to_owned()] };
    let agent =
        ObservedAgent::Node { name: "bm1".into(), told: true, left: true, strangers: Lookup::Found(Vec::new()) };
    AsHost::Host(Box::new(LeavingHost { id: 4, name: "bm1".into(), marked: true, vms: Lookup::Found(vms), agent }))
}

/// A machine in MAAS that nobody owns, or somebody else.
pub(super) fn foreign(state: State, owner: Option<&str>) -> maas::Machine {
    maas::Machine { stamp: None, owner: owner.map(str::to_owned), ..metal(state) }
}

/// A new object with everything around it ready.
pub(super) fn fresh() -> Observed {
    let object: MaasMachine = serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
        "metadata": {
            "name": "m", "namespace": "n", "uid": "uid-1", "generation": 1,
            "finalizers": ["maasmachine.infrastructure.cluster.x-k8s.io"],
        },
        "spec": { "image": "ubuntu/jammy", "minCPU": 2, "minMemory": 4096 },
    }))
    .unwrap();
    let cluster: Cluster =
        serde_json::from_value(json!({ "spec": {}, "status": { "infrastructureReady": true } })).unwrap();
    let machine: Machine = serde_json::from_value(json!({
        "spec": {
            "bootstrap": { "dataSecretName": "s" }, "failureDomain": "az2",
            "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MaasMachine", "name": "m" },
        },
    }))
    .unwrap();
    Observed {
        object,
        journal: Ok(None),
        cluster: Lookup::Found(cluster),
        machine: Lookup::Found(machine),
        maas_cluster: Lookup::Found(ClusterFacts { keeps_dns: true, bridge: Ok(None) }),
        bootstrap: Lookup::Found(Format::CloudConfig { ends_swap: false }),
        held_elsewhere: HeldElsewhere::default(),
        access: Access::Granted { name: "http://maas#admin".into(), user: "admin".into(), identity_changed: false },
        by_key: Lookup::Found(Vec::new()),
        in_journal: Lookup::Unknown("none is on record".into()),
        surplus: Vec::new(),
        power: None,
        in_dns: Lookup::Absent,
        node: ObservedNode::NotAsked,
        vm: ObservedVm::default(),
        links: Lookup::Absent,
        debts: Lookup::Found(Vec::new()),
        as_host: AsHost::NoHost,
    }
}

pub(super) fn journal() -> Journal {
    let object = crate::origin::WrittenFor { namespace: "n".into(), name: "m".into(), uid: "uid-1".into() };
    Journal { written_for: Some(object), ..Journal::new("uid-1") }
}

pub(super) fn with_machine() -> Journal {
    Journal { allocation: Some(Allocation::of(ID)), ..journal() }
}

/// The machine in the journal was released.
pub(super) fn released() -> Journal {
    with_machine().noting(|it| it.released = Some(ID.into()))
}

impl Journal {
    /// Changes what is remembered about its machine.
    pub(super) fn noting(mut self, note: impl FnOnce(&mut Allocation)) -> Self {
        note(self.allocation.as_mut().expect("a machine"));
        self
    }
}

impl Observed {
    pub(super) fn with_journal(mut self, journal: &Journal) -> Self {
        let annotations = self.object.metadata.annotations.get_or_insert_with(BTreeMap::new);
        annotations.insert(JOURNAL_ANNOTATION.into(), journal.text());
        self.reading()
    }

    pub(super) fn with_annotation(mut self, name: &str, value: &str) -> Self {
        self.object.metadata.annotations.get_or_insert_with(BTreeMap::new).insert(name.into(), value.into());
        self.reading()
    }

    /// Reads the journal from the object's annotation.
    pub(super) fn reading(mut self) -> Self {
        self.journal = Journal::read(self.object.metadata.annotations.as_ref());
        self
    }

    /// The machine in the journal is this one.
    pub(super) fn seeing(mut self, metal: maas::Machine) -> Self {
        self.in_journal = Lookup::Found(metal);
        self
    }

    pub(super) fn under_key(mut self, found: Vec<maas::Machine>) -> Self {
        self.by_key = Lookup::Found(found);
        self
    }

    pub(super) fn provisioned(mut self) -> Self {
        self.object.spec.provider_id = Some(format!("maas://az1/{ID}"));
        self.object.spec.system_id = Some(ID.into());
        let status = self.object.status.get_or_insert_with(Default::default);
        status.ready = true;
        status.initialization = Some(capmaas_api::cluster::Initialization { provisioned: Some(true) });
        self
    }

    pub(super) fn deleting(mut self) -> Self {
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now());
        self.object.metadata.deletion_timestamp = Some(time);
        self
    }
}

pub(super) fn condition<'a>(plan: &'a Plan, type_: &str) -> &'a capmaas_api::Condition {
    let status = plan.status.as_ref().expect("a status");
    status.conditions.iter().find(|condition| condition.type_ == type_).expect("the condition")
}

pub(super) fn reason(plan: &Plan) -> &str {
    condition(plan, "MachineDeployed").reason.as_deref().unwrap()
}

pub(super) fn effect(plan: &Plan) -> &'static str {
    plan.effect.as_ref().map_or("", Effect::name)
}
