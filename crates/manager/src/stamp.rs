//! The stamps that MAAS shows on machines. They prove what no text of a tenant can: whose a machine is (S7).

use capmaas_api::MaasMachine;
use capmaas_core::machine::{Journal, STAMP, STAMPED_FOR};
use maas_client::Machine;

/// What a manager wrote on a machine.
#[derive(Clone, Debug)]
pub struct Stamp {
    key: Option<String>,
    object: Option<String>,
}

impl Stamp {
    pub(crate) fn on(machine: &Machine) -> Self {
        let annotation = |name: &str| machine.workload_annotations.get(name).cloned();
        Self { key: annotation(STAMP), object: annotation(STAMPED_FOR) }
    }

    /// Whether it is this object's.
    pub(crate) fn is_of(&self, object: &MaasMachine) -> bool {
        let journal = Journal::read(object.metadata.annotations.as_ref()).ok().flatten();
        journal.is_some_and(|it| it.is_proven_by(&object.metadata, self.key.as_ref(), self.object.as_ref()))
    }
}

/// Whether MAAS shows this object's stamp on the machine.
pub(crate) fn is_of(machine: &Machine, object: &MaasMachine) -> bool {
    Stamp::on(machine).is_of(object)
}
