//! A machine that is released while it powers on. MAAS reports it as Ready at once, and a slow BMC powers it on after that:
//! running, and owned by nobody. So it must be seen off twice before it is let go (S14).

use capmaas_api::{Severity, reasons};
use jiff::{SignedDuration, Timestamp};

use super::decide::{Step, after};
use super::journal::Journal;
use super::provisioning::Provisioning;
use super::status::Progress;
use crate::conditions::whole_seconds;
use crate::maas::{self, Power, State};

/// The seconds between the two reads: half a minute, plus one second because times are stored in whole seconds.
pub(super) const READS_APART: u32 = 31;

/// A BMC that was told to power a machine on has done so by then: MAAS gives up after five minutes.
const TURNS_ON: SignedDuration = SignedDuration::from_mins(10);

impl Journal {
    /// Records whether a machine that is about to be released may be powering on. A VM is removed after its release, so nothing
    /// is left to power on.
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

    /// The power driver reports a released machine as off. Returns whether that is final, or it has to be queried once more.
    pub(super) fn seen_off(&mut self, id: &str, now: Timestamp) -> bool {
        let Some(first) = self.rising.get_mut(id) else { return true };
        let first = *first.get_or_insert(whole_seconds(now));
        let settled = now.duration_since(first) >= SignedDuration::from_secs(READS_APART.into());
        if settled {
            self.rising.remove(id);
        }
        settled
    }

    /// Whether a released machine whose power nobody can tell may still be powering on. Its driver may answer again before
    /// that is over.
    fn may_turn_on(&mut self, id: &str, now: Timestamp) -> bool {
        if !self.rising.contains_key(id) {
            return false;
        }
        let began = *self.allocation_of(id).release_began.get_or_insert(whole_seconds(now));
        now.duration_since(began) < TURNS_ON
    }

    /// The power driver reports a released machine as on: both reads have to follow its next release.
    pub(super) fn seen_on(&mut self, id: &str) {
        if let Some(first) = self.rising.get_mut(id) {
            *first = None;
        }
    }
}

/// The message between the two reads.
pub(super) fn once_more(id: &str) -> String {
    format!("{id} is released and off; it was being turned on, so its power is checked once more")
}

impl Provisioning<'_> {
    /// The released machine is Ready: another one is requested as soon as this one is off. Unknown power delays that only while
    /// the machine may be powering on, because power is a common reason why such machines fail.
    pub(super) fn back(mut self, id: &str) -> Step {
        let anew = format!("{id} was released; requesting another machine");
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
                Step::say(progress, after(READS_APART.into())).writing(self.journal)
            }
            Some(Power::Off) => self.begin_anew(&anew),
            Some(Power::Unknown) | None if self.journal.may_turn_on(id, self.now) => {
                let message = format!(
                    "{id} was released while it was being turned on, and its power state is unknown; another machine is \
                     requested when it is off, or ten minutes after the release; check it in MAAS"
                );
                let progress = Progress::not_yet(Severity::Warning, reasons::MACHINE_RELEASING, message);
                Step::say(progress, after(READS_APART.into())).writing(self.journal)
            }
            Some(Power::Unknown) | None => {
                let message = format!("{id} was released and its power state is unknown; check it in MAAS");
                self.begin_anew(&anew).telling(true, reasons::MACHINE_RELEASE_FAILED, message)
            }
        }
    }
}
