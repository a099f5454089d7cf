//! From an allocated machine to a running one.

use capmaas_api::{Severity, reasons};
use jiff::SignedDuration;

use super::decide::{Step, after, left_alone, unseen};
use super::effect::{Effect, quarantine_tags};
use super::journal::{Failure, TurnedOn, Write};
use super::provisioning::{Provisioning, prerequisites};
use super::status::Progress;
use super::{Format, dead_host};
use crate::Lookup;
use crate::conditions::whole_seconds;
use crate::intent::Intent;
use crate::links::{self, Next};
use crate::maas::{self, Power};

/// A deployment that has not ended by then counts as failed. MAAS itself gives up after 30 minutes, from 3.5 on after 60, unless
/// it was killed in the middle: then it never does.
pub const DEPLOY_DEADLINE: SignedDuration = SignedDuration::from_mins(75);
/// A machine that is still off this long after its deployment began will not power on by itself.
pub(super) const DEPLOY_POWER: SignedDuration = SignedDuration::from_mins(2);
/// After this time the condition names possible causes.
const DEPLOY_LONG: SignedDuration = SignedDuration::from_mins(10);

/// A warning about a machine that may get no address to boot with. A DHCP server that MAAS does not know may give it one, so it
/// is deployed anyway.
fn no_dhcp(metal: &maas::Machine) -> Option<String> {
    let vlan = metal.without_dhcp.as_ref()?;
    Some(format!(
        "{} boots from {vlan}, where MAAS neither serves nor relays DHCP: turn it on there, unless another server gives addresses",
        metal.id
    ))
}

fn prepared(metal: &maas::Machine) -> Progress {
    let message = format!("{} ({}) is being prepared", metal.hostname, metal.id);
    Progress::not_yet(Severity::Info, reasons::MACHINE_DEPLOY_STARTED, message)
}

impl Provisioning<'_> {
    /// Allocated: stamp, swap, deploy, one at a time.
    pub(super) fn prepare(self, metal: &maas::Machine) -> Step {
        let progress = prepared(metal);
        // Its owner in MAAS can read its bootstrap data.
        if !self.observed.is_our_users(&self.journal, metal) {
            let owner = metal.owner.as_deref().unwrap_or_default();
            let message = format!(
                "{} belongs to {owner} in MAAS, who is not a user of this object, so it gets no bootstrap data; have \
                 {owner} release it, or delete the Machine",
                metal.id
            );
            return left_alone(reasons::NOT_OUR_MACHINE, message);
        }
        if let Some(step) = self.stamp(metal) {
            return step;
        }
        // Without bootstrap data the deployment would be useless; the machine stays allocated to us meanwhile.
        if let Some(step) = prerequisites(self.observed, &self.intent) {
            return step;
        }
        if let Some(tag) = self.missing_tag(metal) {
            let effect = Effect::Tag { machine: metal.id.clone(), tag };
            return Step::say(progress, after(0)).writing(self.journal).doing(effect);
        }
        let swap_denied = self.journal.allocation.as_ref().is_some_and(|it| it.swap_denied);
        if !metal.swap_off && !swap_denied && !self.ends_swap() {
            return Step::say(progress, after(0))
                .writing(self.journal)
                .doing(Effect::DisableSwap { machine: metal.id.clone() });
        }
        if let Some(step) = self.bridge(metal) {
            return step;
        }
        if let Some(step) = self.link(metal, &progress) {
            return step;
        }
        let effect = Effect::Deploy {
            key: self.journal.key.clone(),
            machine: metal.id.clone(),
            image: self.intent.image().to_owned(),
            in_memory: matches!(&self.intent, Intent::Metal(metal) if metal.in_memory),
        };
        let mut journal = self.journal.sending(Write::Deploy, self.now);
        let allocation = journal.allocation_of(&metal.id);
        allocation.deploy_began = Some(whole_seconds(self.now));
        allocation.turned_on = None;
        Step::say(progress, after(0)).writing(journal).doing(effect)
    }

    /// Stamps the machine where our stamp is missing. A machine that an earlier user of the cluster allocated is ours by its
    /// idempotency key anyway (S7).
    pub(super) fn stamp(&self, metal: &maas::Machine) -> Option<Step> {
        let effect = self.observed.missing_stamp(&self.journal, metal)?;
        Some(Step::say(prepared(metal), after(0)).writing(self.journal.clone()).doing(effect))
    }

    /// The next change to the machine's interfaces before it is deployed, if any.
    fn link(&self, metal: &maas::Machine, progress: &Progress) -> Option<Step> {
        let desired = self.intent.links();
        if desired.is_empty() {
            return None;
        }
        let seen = match &self.observed.links {
            Lookup::Found(seen) => seen,
            Lookup::Absent => return Some(unseen("the machine's interfaces were not read")),
            Lookup::Unknown(why) => return Some(unseen(why)),
        };
        match links::next(&metal.id, &desired, seen) {
            Next::Done => None,
            Next::Write(change) => {
                let effect = Effect::ChangeLink { machine: metal.id.clone(), change };
                Some(Step::say(progress.clone(), after(0)).writing(self.journal.clone()).doing(effect))
            }
            Next::Refused(problem) => {
                let progress = Progress::not_yet(Severity::Error, problem.reason, problem.message);
                Some(Step::say(progress, after(60)))
            }
            Next::Unknown(why) => Some(unseen(&why)),
        }
    }

    /// What the bootstrap data does by itself need not be written to MAAS, where it would stay.
    fn ends_swap(&self) -> bool {
        matches!(self.observed.bootstrap, Lookup::Found(Format::CloudConfig { ends_swap: true }))
    }

    /// A tag that a VM should carry and does not. As a rule it has inherited the tags of its host.
    fn missing_tag(&self, metal: &maas::Machine) -> Option<String> {
        let Intent::Vm(vm) = &self.intent else { return None };
        vm.tags.iter().find(|tag| !metal.tags.contains(tag)).cloned()
    }

    pub(super) fn deploying(mut self, metal: &maas::Machine) -> Step {
        // Adopted during its deployment: the deadline counts from now.
        let began = *self.journal.allocation_of(&metal.id).deploy_began.get_or_insert(whole_seconds(self.now));
        let since = self.now.duration_since(began);
        if since >= DEPLOY_DEADLINE {
            let off = self.observed.power != Some(Power::On) && metal.power != Power::On;
            return self.failed(metal, off, &format!("the deployment of {} has not ended within 75 minutes", metal.id));
        }
        if self.is_vm() && dead_host::is_off(self.observed) {
            return self.failed(metal, true, &format!("its host is off while MAAS deploys {}", metal.id));
        }
        let mut message = format!("MAAS is deploying {} ({})", metal.hostname, metal.id);
        if let Some(no_dhcp) = no_dhcp(metal).filter(|_| since >= DEPLOY_LONG) {
            message = format!("{message}; {no_dhcp}");
        }
        let progress = Progress::not_yet(Severity::Info, reasons::MACHINE_DEPLOYING, message);
        // MAAS was killed between the two halves of a deployment: it never powers the machine on, and never gives up.
        let turned_on = &mut self.journal.allocation_of(&metal.id).turned_on;
        if since >= DEPLOY_POWER && self.observed.power == Some(Power::Off) && turned_on.is_none() {
            *turned_on = Some(TurnedOn { at: whole_seconds(self.now), times: 1 });
            return Step::say(progress, after(30))
                .writing(self.journal)
                .telling(
                    true,
                    reasons::MACHINE_POWERED_OFF,
                    format!("{} is off in the middle of its deployment; it is turned on", metal.id),
                )
                .doing(Effect::PowerOn { machine: metal.id.clone() });
        }
        Step::say(progress, after(60)).writing(self.journal)
    }

    /// The machine failed before it was ever in use: it is quarantined and released, and another one is tried.
    pub(super) fn failed(mut self, metal: &maas::Machine, power: bool, why: &str) -> Step {
        // An image cannot fail where nothing can boot (S17).
        let (power, why) = match no_dhcp(metal) {
            Some(no_dhcp) => (true, &format!("{why}; {no_dhcp}")),
            None => (power, &why.to_owned()),
        };
        if self.provisioned {
            return left_alone(reasons::MACHINE_DEPLOY_FAILED, why);
        }
        if self.is_vm() {
            return self.failed_vm(metal, power, why);
        }
        let image = self.intent.image().to_owned();
        self.journal.failed.push(Failure { machine: metal.id.clone(), image, power });
        let progress = Progress::not_yet(Severity::Warning, reasons::MACHINE_DEPLOY_FAILED, why);
        let effect = Effect::Quarantine { machine: metal.id.clone(), tag: quarantine_tags(self.now)[0].clone() };
        Step::say(progress, after(0))
            .writing(self.journal)
            .telling(true, reasons::MACHINE_DEPLOY_FAILED, why)
            .doing(effect)
    }
}
