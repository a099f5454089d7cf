//! The stamps that MAAS shows on machines. They prove what no text of a tenant can: whose a machine is (S7).

use capmaas_api::MaasMachine;
use capmaas_core::machine::{Journal, STAMP, STAMPED_FOR};
use maas_client::Machine;

/// Whether MAAS shows this object's stamp on the machine.
pub(crate) fn is_of(machine: &Machine, object: &MaasMachine) -> bool {
    let (stamp, stamped_for) = (machine.workload_annotations.get(STAMP), machine.workload_annotations.get(STAMPED_FOR));
    let journal = Journal::read(object.metadata.annotations.as_ref()).ok().flatten();
    journal.is_some_and(|journal| journal.is_proven_by(&object.metadata, stamp, stamped_for))
}
