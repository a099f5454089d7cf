//! The stamps that MAAS shows on machines. They prove what no text of a tenant can: whose a machine is (S7).

use std::sync::Arc;

use capmaas_api::MaasMachine;
use capmaas_core::machine::{Journal, STAMP, STAMPED_FOR};
use maas_client::Machine;

use crate::key::Key;

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
        journal(object).is_some_and(|it| it.is_proven_by(&object.metadata, self.key.as_ref(), self.object.as_ref()))
    }

    /// Whether it is nobody's: there is none, or one of an early release under this object's key, which names no object.
    pub(crate) fn is_nobodys(&self, object: &MaasMachine) -> bool {
        match (&self.key, &self.object) {
            (None, _) => true,
            (Some(key), None) => journal(object).is_some_and(|it| it.key == *key),
            (Some(_), Some(_)) => false,
        }
    }

    /// Whether it is that of a MaasMachine outside the namespace of this object, and of none of these.
    pub(crate) fn is_anothers(&self, beside: &Key, machines: &[Arc<MaasMachine>]) -> bool {
        let named = self.object.as_deref().and_then(|object| object.split_once('/'));
        self.key.is_some()
            && named.is_none_or(|(namespace, _)| namespace != beside.namespace)
            && !machines.iter().any(|machine| self.is_of(machine))
    }
}

fn journal(object: &MaasMachine) -> Option<Journal> {
    Journal::read(object.metadata.annotations.as_ref()).ok().flatten()
}

/// Whether MAAS shows this object's stamp on the machine.
pub(crate) fn is_of(machine: &Machine, object: &MaasMachine) -> bool {
    Stamp::on(machine).is_of(object)
}
