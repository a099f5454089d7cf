//! VMs on a host that died: recorded on the MaasCluster, and removed when the host comes back (S16).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::vm::is_anothers;
use super::vm_journal::is_made_up;
use crate::Lookup;
use crate::maas::{self, Power, State};

/// Annotation on a MaasCluster: the VMs that still have to be removed.
pub const DEBTS_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/vm-debts";

/// A VM that has to be removed when its host comes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Debt {
    /// Its system ID.
    pub machine: String,
    pub name: String,
    pub host: String,
    /// The idempotency key that it is stamped with.
    pub key: String,
}

/// Parses the annotation. An unreadable one is an error, not an empty list.
pub fn debts(annotations: Option<&BTreeMap<String, String>>) -> Result<Vec<Debt>, String> {
    let text = annotations.and_then(|annotations| annotations.get(DEBTS_ANNOTATION)).filter(|text| !text.is_empty());
    let Some(text) = text else { return Ok(Vec::new()) };
    serde_json::from_str(text)
        .map_err(|error| format!("cannot read the annotation {DEBTS_ANNOTATION}: {error}; restore it"))
}

/// The next step for a debt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payment {
    /// Nothing is owed any more; the message states why.
    Paid(String),
    /// It cannot be paid yet; the message states why.
    Wait(String),
    /// The VM is deleted as it is, without a release.
    Remove,
}

/// Decides about one debt. `power` is what the VM's power driver reports; that driver is its host, so it answers only if the host
/// does. `hindrance` is a reason not to remove the VM although it is the one of the debt.
///
/// People can write a debt, so only two kinds of VMs are removed for one: a VM stamped with the idempotency key of the debt, or
/// one that nobody owns under a name that only that key yields. The VM is deleted without a release: a release would remove the
/// stamp, and with it the proof (S16, S27).
pub fn pay(
    debt: &Debt,
    vm: &Lookup<maas::Machine>,
    power: Option<Power>,
    user: &str,
    hindrance: Option<String>,
) -> Payment {
    let id = &debt.machine;
    let metal = match vm {
        Lookup::Found(metal) => metal,
        Lookup::Absent => return Payment::Paid(format!("MAAS does not know {id} any more")),
        Lookup::Unknown(why) => return Payment::Wait(why.clone()),
    };
    if !metal.is_vm() {
        return Payment::Paid(format!("{id} is not a VM of any VM host in MAAS and is left alone"));
    }
    let ours = metal.stamp.as_ref() == Some(&debt.key);
    if !ours && is_anothers(metal, user) && metal.state.is_being_commissioned() {
        return Payment::Wait(format!("{id} is {} in MAAS for another user", metal.state_name));
    }
    if !ours && (is_anothers(metal, user) || metal.hostname != debt.name || metal.stamp.is_some()) {
        return Payment::Paid(format!("{id} is somebody else's now"));
    }
    if let Some(why) = hindrance {
        return Payment::Wait(why);
    }
    if !ours && !is_made_up(&debt.name, &debt.key) {
        return Payment::Wait(format!(
            "{id} carries no stamp, so nothing proves that it was made for this cluster; delete the VM in MAAS if it \
             was"
        ));
    }
    if matches!(metal.state, State::Releasing | State::DiskErasing) || metal.locked {
        return Payment::Wait(format!("{id} is {} in MAAS", metal.state_name));
    }
    match power {
        Some(Power::On | Power::Off) if metal.state.is_removable() || ours && metal.state.is_releasable() => {
            Payment::Remove
        }
        Some(Power::On | Power::Off) => Payment::Wait(format!("{id} is {} in MAAS", metal.state_name)),
        Some(Power::Unknown) | None => Payment::Wait(format!("the LXD host {} does not answer", debt.host)),
    }
}
