//! A machine that is released while it is being turned on. MAAS calls it Ready at once, and a slow BMC turns it on after that: on,
//! and nobody's. So it is seen off twice before it is let go (S14).

use capmaas_api::{Severity, reasons};
use jiff::{SignedDuration, Timestamp};

use super::decide::{Step, after};
use super::journal::Journal;
use super::provisioning::Provisioning;
use super::status::Progress;
use crate::conditions::whole_seconds;
use crate::maas::{self, Power, State};

/// So far apart are the two looks: half a minute, and a second because times are written down in whole ones.
const APART: SignedDuration = SignedDuration::from_secs(31);
/// The same, as a time to wait.
pub(super) const LOOK_AGAIN: u64 = 31;

/// A BMC that was told to turn a machine on has done so by then: MAAS gives it up after five minutes.
const TURNS_ON: SignedDuration = SignedDuration::from_mins(10);

impl Journal {
    /// Notes about a machine that is going to be released whether it may be on its way up. A VM is removed after its release, and
    /// nothing is left to be turned on.
    pub(super) fn note_rising(&mut self, metal: &maas::Machine, now: Timestamp) {
        let allocation = self.allocation.as_ref().filter(|allocation| allocation.machine == metal.id);
        let deploys = matches!(metal.state, State::Deploying | State::FailedDeployment);
        let told = allocation.is_some_and(|it| {
            it.deploy_began.is_some() || it.turned_on.is_some_and(|on| now.duration_since(on.at) < TURNS_ON)
        });
        if !metal.is_vm() && (deploys || told) {
            self.rising.entry(metal.id.clone()).or_default();
        }
    }

    /// The power driver says that a released machine is off. Whether that is the end of it, or it is to be asked once more.
    pub(super) fn seen_off(&mut self, id: &str, now: Timestamp) -> bool {
        let Some(first) = self.rising.get_mut(id) else { return true };
        let first = *first.get_or_insert(whole_seconds(now));
        let settled = now.duration_since(first) >= APART;
        if settled {
            self.rising.remove(id);
        }
        settled
    }

    /// The power driver says that a released machine is on: both looks come after its next release.
    pub(super) fn seen_on(&mut self, id: &str) {
        if let Some(first) = self.rising.get_mut(id) {
            *first = None;
        }
    }
}

/// What is said between the two looks.
pub(super) fn once_more(id: &str) -> String {
    format!("{id} is released and off; it was being turned on, so its power is looked at once more")
}

impl Provisioning<'_> {
    /// The machine that was given back is Ready: another one is asked for as soon as this one is off. What nobody can tell holds
    /// nothing up, because power is what such machines fail for.
    pub(super) fn back(mut self, id: &str) -> Step {
        let anew = format!("{id} was released; another machine is asked for");
        if !self.journal.is_released(id) {
            return self.begin_anew(&anew);
        }
        if let Some(step) = self.in_flight() {
            return step;
        }
        match self.observed.power {
            Some(Power::On) => {
                self.journal.seen_on(id);
                self.reclaim(id)
            }
            Some(Power::Off) if !self.journal.seen_off(id, self.now) => {
                let progress = Progress::not_yet(Severity::Info, reasons::MACHINE_RELEASING, once_more(id));
                Step::say(progress, after(LOOK_AGAIN)).writing(self.journal)
            }
            Some(Power::Off) => self.begin_anew(&anew),
            Some(Power::Unknown) | None => {
                let message = format!("nobody can tell whether {id}, which was released, is off; look at it in MAAS");
                self.begin_anew(&anew).telling(true, reasons::MACHINE_RELEASE_FAILED, message)
            }
        }
    }
}
