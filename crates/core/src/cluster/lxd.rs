//! The condition LXDReady: whether the control plane's machines are VM hosts in MAAS.

use capmaas_api::{ConditionStatus, Conditions as _, Severity, conditions, reasons};
use jiff::Timestamp;

use super::observed::{Hosts, Observed};
use super::plan::Effect;
use crate::conditions::Verdict;
use crate::hosts::{self, plan::Standing};
use crate::plan::Requeue;

/// How often healthy hosts are checked: a node may join or break without an event.
const WATCH: Requeue = Requeue::seconds(300);
/// How often hosts that are not ready yet are checked.
const AWAIT: Requeue = Requeue::seconds(20);

const TOO_EARLY: &str = "waiting for the cluster's API server";

pub(super) struct LxdStep {
    pub(super) effect: Option<Effect>,
    /// `None`: nothing new is known.
    pub(super) verdict: Option<Verdict>,
    pub(super) requeue: Requeue,
    /// Whether it counts for Ready.
    pub(super) counts: bool,
}

pub(super) fn step(observed: &Observed, now: Timestamp) -> LxdStep {
    let quiet = |verdict, requeue, counts| LxdStep { effect: None, verdict, requeue, counts };
    let type_ = conditions::LXD_READY;
    let pending = |message: &str| Verdict::fault(type_, Severity::Info, reasons::LXD_SETUP_PENDING, message);
    match &observed.hosts {
        Hosts::Off => {
            let stored = observed.object.status.conditions.condition(type_).is_some();
            let message = "the cluster does not request LXD hosts (any more); existing ones stay as they are";
            let off = || Verdict::fault(type_, Severity::Info, reasons::LXD_SWITCHED_OFF, message);
            quiet(stored.then(off), Requeue::OnChange, false)
        }
        Hosts::Unclear(why) => quiet(
            Some(Verdict::fault(type_, Severity::Error, reasons::LXD_SETUP_FAILED, why.clone())),
            Requeue::OnChange,
            true,
        ),
        Hosts::TooEarly => quiet(Some(pending(TOO_EARLY)), AWAIT, true),
        Hosts::NotAsked => quiet(None, AWAIT, true),
        Hosts::BeingRead => {
            // What MAAS showed before stays until it shows something else.
            let is_over = observed.object.status.conditions.condition(type_).is_none_or(|told| {
                told.reason.as_deref() == Some(reasons::LXD_SWITCHED_OFF) || told.message.as_deref() == Some(TOO_EARLY)
            });
            quiet(is_over.then(|| pending("reading the VM hosts from MAAS")), AWAIT, true)
        }
        Hosts::Seen(seen) => {
            let step = hosts::decide(seen, now);
            let (verdict, requeue) = match step.standing {
                Standing::Right => {
                    let message = match step.registered {
                        1 => "1 machine is a VM host in MAAS".to_owned(),
                        registered => format!("{registered} machines are VM hosts in MAAS"),
                    };
                    (Verdict::new(type_, ConditionStatus::True, reasons::LXD_READY, message), WATCH)
                }
                Standing::Pending(why) => (pending(&why), AWAIT),
                Standing::Failed(why) => {
                    (Verdict::fault(type_, Severity::Warning, reasons::LXD_SETUP_FAILED, why), AWAIT)
                }
            };
            let requeue = if step.effect.is_some() { Requeue::seconds(1) } else { requeue };
            LxdStep { effect: step.effect.map(Effect::Hosts), verdict: Some(verdict), requeue, counts: true }
        }
    }
}
