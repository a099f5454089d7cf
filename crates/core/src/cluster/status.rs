//! The status of a `MaasCluster`: built verdict by verdict, written only if it changes.

use capmaas_api::cluster::Initialization;
use capmaas_api::{Condition, ConditionStatus, Conditions as _, MaasClusterStatus, Severity, conditions, reasons};
use jiff::Timestamp;

use super::observed::Object;
use crate::conditions::{Verdict, replace};

/// The conditions that we write. Others are left to their writers.
const OURS: [&str; 8] = [
    conditions::READY,
    conditions::PAUSED,
    conditions::DELETING,
    conditions::CREDENTIALS_VALID,
    conditions::LOAD_BALANCER_READY,
    conditions::API_SERVER_AVAILABLE,
    conditions::LXD_READY,
    conditions::EVACUATING,
];
/// The conditions that count for Ready, in the order in which they are reported.
const COUNTED: [&str; 3] =
    [conditions::CREDENTIALS_VALID, conditions::LOAD_BALANCER_READY, conditions::API_SERVER_AVAILABLE];

/// A status under construction.
pub(super) struct Draft<'a> {
    object: &'a Object,
    pub(super) status: MaasClusterStatus,
    verdicts: Vec<Verdict>,
}

impl<'a> Draft<'a> {
    /// Starts with the stored status: what gets no new verdict stays.
    pub(super) fn new(object: &'a Object) -> Self {
        Self { object, status: object.status.clone(), verdicts: Vec::new() }
    }

    pub(super) fn say(&mut self, verdict: Verdict) {
        self.verdicts.push(verdict);
    }

    /// Whether a condition is True, as far as is known.
    pub(super) fn is_true(&self, type_: &str) -> bool {
        self.standing(type_).is_some_and(|verdict| verdict.status == ConditionStatus::True)
    }

    /// Marks the infrastructure as provisioned. This never returns to false.
    pub(super) fn provisioned(&mut self) {
        self.status.ready = true;
        self.status.initialization = Some(Initialization { provisioned: Some(true) });
    }

    /// Sets Ready: the first of the other conditions that is not True, otherwise `further`, otherwise True.
    pub(super) fn sum_up(&mut self, further: Option<Verdict>, lxd_counts: bool) {
        let lxd = [conditions::LXD_READY];
        let at_fault = COUNTED.iter().chain(lxd.iter().filter(|_| lxd_counts)).find_map(|type_| {
            let verdict = self.standing(type_)?;
            // A MAAS that does not answer shows nothing about the cluster.
            let silent = *type_ == conditions::CREDENTIALS_VALID && verdict.status == ConditionStatus::Undetermined;
            (verdict.status != ConditionStatus::True && !silent).then_some((*type_, verdict))
        });
        let ready = match (at_fault, further) {
            (Some((type_, verdict)), _) => {
                Verdict { type_: conditions::READY, message: format!("{type_}: {}", verdict.message), ..verdict }
            }
            (None, Some(further)) => further,
            (None, None) => Verdict::new(conditions::READY, ConditionStatus::True, reasons::READY, ""),
        };
        self.say(ready);
    }

    /// The current verdict of a condition: the new one, otherwise the stored one.
    fn standing(&self, type_: &str) -> Option<Verdict> {
        if let Some(new) = self.verdicts.iter().rev().find(|verdict| verdict.type_ == type_) {
            return Some(new.clone());
        }
        let stored = self.object.status.conditions.condition(type_)?;
        // Only reasons of the table are ever written, but another version of this program may have stored others.
        let reason = stored.reason.as_deref().and_then(reasons::entry).map_or(reasons::NOT_READY, |entry| entry.name);
        Some(Verdict {
            type_: OURS.into_iter().find(|ours| *ours == type_)?,
            status: stored.status.clone(),
            severity: stored.severity.clone().unwrap_or(Severity::Warning),
            reason,
            message: stored.message.clone().unwrap_or_default(),
        })
    }

    /// The status to write; `None` if it is stored already.
    pub(super) fn finish(self, now: Timestamp) -> Option<MaasClusterStatus> {
        let stored = &self.object.status;
        let mut status = self.status;
        let ours = |condition: &&Condition| OURS.contains(&condition.type_.as_str());
        status.conditions = stored.conditions.iter().filter(ours).cloned().collect();
        let mut changed = !stored.unreadable.is_empty();
        status.unreadable.clear();
        for verdict in self.verdicts {
            let Some(condition) = verdict.settle(&stored.conditions, self.object.generation, now) else { continue };
            changed = true;
            replace(&mut status.conditions, condition);
        }
        let fields = |status: &MaasClusterStatus| {
            (status.ready, status.initialization.clone(), status.network.clone(), status.failure_domains.clone())
        };
        (changed || fields(&status) != fields(stored)).then_some(status)
    }
}
