//! A VM whose host died: the BMC reports the host as off, so nothing runs there. The MaasCluster records the VM as a debt and
//! removes it when the host comes back; nothing else waits for that (S16). Unknown power does not count as off.

use capmaas_api::lxd_error::{LxdError, LxdErrorKind};
use capmaas_api::reasons;

use super::decide::{Step, after, unseen};
use super::effect::Effect;
use super::journal::Journal;
use super::provisioning::Provisioning;
use super::releasing::{Releasing, done, wait};
use super::vm::{is_anothers, trouble};
use super::{Access, Debt, Observed};
use crate::Lookup;
use crate::maas::{self, Power};

/// The next step for such a VM.
enum Fenced {
    /// It is allocated and has no stamp yet. Once its object is gone, only the stamp shows whose it is, so the stamp comes first.
    Stamp(Effect),
    /// The debt has to be recorded.
    Owe(Debt),
    /// The debt is recorded: nothing more is to be done here.
    Owed,
    /// Whether the debt is recorded cannot be read.
    Unseen(String),
}

/// Whether the host of the VM in the journal is off, and therefore the VM. Queried only where the VM itself does not answer.
pub(super) fn is_off(observed: &Observed) -> bool {
    let host = match &observed.vm.host {
        Lookup::Found(host) => host.power,
        Lookup::Absent | Lookup::Unknown(_) => None,
    };
    observed.power == Some(Power::Unknown) && host == Some(Power::Off)
}

/// `ours`: the VM carries our idempotency key or stamp. A VM that nobody has taken yet is ours if it was made for us.
fn fenced(observed: &Observed, journal: &Journal, metal: &maas::Machine, ours: bool) -> Option<Fenced> {
    let Access::Granted { user, identity_changed: false, .. } = &observed.access else { return None };
    if !metal.is_vm() || !is_off(observed) || observed.held_elsewhere.machines.contains(&metal.id) {
        return None;
    }
    let made_for_us = journal.is_proven(metal);
    let nobodys = metal.stamp.is_none() && metal.state.is_removable() && !is_anothers(metal, user);
    let to_be_ours = made_for_us && nobodys;
    if !ours && !to_be_ours {
        return None;
    }
    if ours && metal.stamp.as_ref() != Some(&journal.key) {
        // MAAS lets only the owner stamp a machine.
        let marked = metal.stamp.is_none() && metal.owner.as_ref() == Some(user);
        return marked.then(|| Fenced::Stamp(Effect::Stamp { key: journal.key.clone(), machine: metal.id.clone() }));
    }
    let debts = match &observed.debts {
        Lookup::Found(debts) => debts,
        Lookup::Absent => return None,
        Lookup::Unknown(why) => return Some(Fenced::Unseen(why.clone())),
    };
    let debt = Debt {
        machine: metal.id.clone(),
        name: metal.hostname.clone(),
        host: journal.place().map(|place| place.host_name.clone()).unwrap_or_default(),
        key: journal.key.clone(),
    };
    Some(if debts.contains(&debt) { Fenced::Owed } else { Fenced::Owe(debt) })
}

fn message(metal: &maas::Machine) -> String {
    format!("the LXD host of {} is off, so the VM does not run; it is removed when the host comes back", metal.id)
}

impl Releasing<'_> {
    /// The object that is being deleted need not wait for a host that is off.
    pub(super) fn fenced(&self, in_journal: Option<&maas::Machine>, ours: &[maas::Machine]) -> Option<Step> {
        let metal = in_journal.filter(|_| self.is_vm)?;
        // Surplus machines come first (S4).
        if ours.iter().any(|other| other.id != metal.id) {
            return None;
        }
        let fenced = fenced(self.observed, &self.journal, metal, !ours.is_empty())?;
        if let Some(step) = self.dns(metal) {
            return Some(step);
        }
        let message = message(metal);
        let waiting = |message: String| wait(reasons::HOST_UNAVAILABLE, message, 0).writing(self.journal.clone());
        Some(match fenced {
            Fenced::Stamp(effect) => waiting(message).doing(effect),
            Fenced::Owe(debt) => waiting(message).doing(Effect::Owe(debt)),
            Fenced::Owed => done(&message).telling(true, reasons::HOST_UNAVAILABLE, message),
            Fenced::Unseen(why) => unseen(&why),
        })
    }
}

impl Provisioning<'_> {
    /// A VM that failed and cannot be removed because its host is off: it is left to the MaasCluster, and another one is made
    /// under another name. From then on it does not belong to this object, although it may carry the same idempotency key.
    pub(super) fn left_on_dead_host(&self, metal: &maas::Machine, ours: bool) -> Option<Step> {
        let fenced = fenced(self.observed, &self.journal, metal, ours)?;
        let message = message(metal);
        let host = self.host_name();
        let error = LxdError::new(LxdErrorKind::HostUnavailable, message.clone()).on_host(host);
        let mut step = match fenced {
            Fenced::Stamp(effect) => trouble(error).writing(self.journal.clone()).doing(effect),
            Fenced::Owe(debt) => trouble(error).writing(self.journal.clone()).doing(Effect::Owe(debt)),
            Fenced::Owed => {
                let mut journal = self.journal.clone().without_vm();
                journal.owed.push(metal.id.clone());
                // Whatever MAAS reported, an image cannot fail where nothing runs (S17).
                for failure in journal.failed.iter_mut().filter(|failure| failure.machine == metal.id) {
                    failure.power = true;
                }
                trouble(error).writing(journal).telling(true, reasons::HOST_UNAVAILABLE, message)
            }
            Fenced::Unseen(why) => return Some(unseen(&why)),
        };
        step.requeue = after(0);
        Some(step)
    }
}
