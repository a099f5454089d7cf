//! What a MaasMachine claims for its VM, for the placement of others.

use capmaas_api::MaasMachine;
use capmaas_api::names::{CLUSTER_NAME_LABEL, CONTROL_PLANE_LABEL};
use capmaas_core::credentials::{IDENTITY_ANNOTATION, Name};
use capmaas_core::intent::asks_for_vm;
use capmaas_core::machine::Journal;
use capmaas_core::placement::Claim;
use jiff::Timestamp;
use kube::ResourceExt as _;

/// Label of the MachineSet that a machine belongs to.
const SET_LABEL: &str = "cluster.x-k8s.io/set-name";

/// The group of machines to spread: a control plane, or a MachineSet.
pub fn group(machine: &MaasMachine) -> Option<String> {
    let labels = machine.labels();
    let cluster = labels.get(CLUSTER_NAME_LABEL)?;
    let set = if labels.contains_key(CONTROL_PLANE_LABEL) { "" } else { labels.get(SET_LABEL)?.as_str() };
    Some(format!("{}/{cluster}/{set}", machine.namespace().unwrap_or_default()))
}

/// What another object's journal says about its VM.
#[derive(Clone, Debug)]
pub struct Seen {
    pub(crate) uid: String,
    /// The MAAS that it is in, if recorded. IDs of hosts mean nothing in another one.
    pub(crate) maas: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) claim: Option<Claim>,
    /// When its host was chosen.
    pub(crate) since: Option<Timestamp>,
    pub(crate) zone: Option<String>,
    /// MAAS has the VM.
    pub(crate) there: bool,
    pub(crate) leaving: bool,
    /// Its spec asks for a VM.
    asked: bool,
}

impl Seen {
    /// It has a place on an LXD host, or waits for one.
    pub(crate) fn is_vm(&self) -> bool {
        self.claim.is_some() || self.asked
    }

    /// The claims of an object, from the object and its journal.
    pub fn of(machine: &MaasMachine, record: Option<&Journal>) -> Self {
        let place = record.and_then(Journal::place);
        let seen = machine.status.as_ref().and_then(|status| status.failure_domain.clone());
        Self {
            uid: machine.uid().unwrap_or_default(),
            maas: machine
                .annotations()
                .get(IDENTITY_ANNOTATION)
                .map(|name| Name::parts(name).map_or(name.as_str(), |(endpoint, _)| endpoint).to_owned()),
            since: place.map(|place| place.at),
            group: group(machine),
            claim: place.map(|place| Claim {
                host: place.host,
                cores: place.cores,
                memory: place.memory,
                disk: place.disk,
                storage_pool: place.storage_pool.clone(),
            }),
            zone: place.map(|place| place.zone.clone()).or(seen),
            there: record.is_some_and(|record| record.allocation.is_some()),
            leaving: machine.metadata.deletion_timestamp.is_some(),
            asked: asks_for_vm(&machine.spec) == Ok(true),
        }
    }
}
