//! A machine that runs, or ran once: its Node gets the provider ID, its power is watched, and nothing else is done to it (S9).

use capmaas_api::names::MAINTENANCE_ANNOTATION;
use capmaas_api::provider_id::{ProviderId, Scheme, Slashes};
use capmaas_api::{ConditionStatus, Conditions as _, Severity, conditions, reasons};
use jiff::{SignedDuration, Timestamp};

use super::decide::{Step, after, left_alone, unseen};
use super::effect::Effect;
use super::journal::{LEAVE_POWER_ANNOTATION, TurnedOn};
use super::node_labels::NodeLabels;
use super::provisioning::{Provisioning, unplanned};
use super::status::Progress;
use super::{ObservedNode, SpecPatch};
use crate::Lookup;
use crate::conditions::whole_seconds;
use crate::maas::{self, Power, State};
use crate::plan::Requeue;

/// A machine is powered on at most this often before it is seen on again, each time after twice the wait (S20).
const TURN_ON_TIMES: u32 = 3;
const TURN_ON_WAIT: SignedDuration = SignedDuration::from_mins(10);

impl Provisioning<'_> {
    /// Ours and Deployed, now or once.
    pub(super) fn running(mut self, metal: &maas::Machine) -> Step {
        match metal.state {
            State::Deployed => {}
            // Adopted before it was deployed: continue where the Go provider stopped.
            State::Allocated if self.journal.is_adopted() && !self.is_latched() => return self.prepare(metal),
            State::Deploying if !self.is_latched() => return self.deploying(metal),
            State::Releasing | State::DiskErasing => {
                let message = format!("{} is being released in MAAS outside of capmaas", metal.id);
                return left_alone(reasons::MACHINE_TERMINATED, message);
            }
            _ => return unplanned(metal),
        }
        // The driver was queried where MAAS's own state is not "on", or may be stale.
        let said = if metal.power == Power::On { Power::On } else { Power::Unknown };
        let power = self.observed.power.unwrap_or(said);
        if let (Power::On, Some(allocation)) = (power, &mut self.journal.allocation) {
            allocation.turned_on = None;
        }
        if self.observed.object.spec.provider_id().is_none() {
            return self.provision(metal);
        }
        match power {
            Power::Off => self.powered_off(metal),
            Power::On | Power::Unknown => self.name_node(metal, power == Power::Unknown),
        }
    }

    fn is_latched(&self) -> bool {
        let status = self.observed.object.status.as_ref();
        status.and_then(|status| status.initialization.as_ref()).and_then(|it| it.provisioned) == Some(true)
    }

    /// Deployed for the first time: the provider ID is written, once, together with everything that belongs to it (S19).
    fn provision(mut self, metal: &maas::Machine) -> Step {
        let (scheme, slashes) = match (self.is_vm(), self.observed.held_elsewhere.use_go_form) {
            (true, _) => (Scheme::MaasLxd, Slashes::Two),
            (false, true) => (Scheme::Maas, Slashes::Three),
            (false, false) => (Scheme::Maas, Slashes::Two),
        };
        let id = match ProviderId::new(scheme, slashes, &metal.zone, &metal.id) {
            Ok(id) => id,
            Err(error) => return left_alone(reasons::MACHINE_STATE_UNDEFINED, error.to_string()),
        };
        self.journal.allocation_of(&metal.id).deploy_began = None;
        let mut step = Step::say(Progress::deployed(), after(0)).writing(self.journal);
        step.spec = SpecPatch { provider_id: Some(id.to_string()), system_id: Some(metal.id.clone()) };
        let message = format!("{} ({}) runs {}", metal.hostname, metal.id, self.intent.image());
        step.telling(false, reasons::MACHINE_DEPLOYED, message)
    }

    /// The power driver reports off: powered on again, with growing delays (S20).
    fn powered_off(mut self, metal: &maas::Machine) -> Step {
        let message = format!("{} is off according to its power driver", metal.id);
        let progress =
            |more: &str| Progress::not_yet(Severity::Warning, reasons::MACHINE_POWERED_OFF, format!("{message}{more}"));
        let annotations = self.observed.object.metadata.annotations.as_ref();
        if metal.locked
            || metal.in_maintenance == Lookup::Found(true)
            || annotations.is_some_and(|map| {
                [LEAVE_POWER_ANNOTATION, MAINTENANCE_ANNOTATION].iter().any(|name| map.contains_key(*name))
            })
        {
            return Step::say(progress("; it is locked, in maintenance or opted out, so it stays off"), after(300));
        }
        if let Lookup::Unknown(why) = &metal.in_maintenance {
            let more =
                format!("; it stays off, because whether its VM host is tagged for maintenance cannot be read: {why}");
            return Step::say(progress(&more), after(60));
        }
        let before = self.journal.allocation_of(&metal.id).turned_on;
        let wait =
            before.map_or(SignedDuration::ZERO, |on| TURN_ON_WAIT * 2_i32.saturating_pow(on.times.saturating_sub(1)));
        if before.is_some_and(|on| on.times >= TURN_ON_TIMES) {
            return Step::say(
                progress("; it was turned on several times and stays off; check its power settings in MAAS"),
                after(600),
            );
        }
        if before.is_some_and(|on| self.now.duration_since(on.at) < wait) {
            return Step::say(progress("; it was turned on and is watched"), after(120));
        }
        let times = before.map_or(0, |on| on.times) + 1;
        self.journal.allocation_of(&metal.id).turned_on = Some(TurnedOn { at: whole_seconds(self.now), times });
        Step::say(progress("; it is turned on"), after(60))
            .writing(self.journal)
            .telling(true, reasons::MACHINE_POWERED_OFF, message)
            .doing(Effect::PowerOn { machine: metal.id.clone() })
    }

    /// The Node gets the machine's provider ID (S19), and its labels with it.
    fn name_node(self, metal: &maas::Machine, unsure: bool) -> Step {
        let Some(provider_id) = self.observed.object.spec.provider_id() else { return unseen("no provider ID") };
        let journal = self.journal.clone();
        match &self.observed.node {
            ObservedNode::Joined { name, named, labels } => {
                let NodeLabels { missing, impossible_zone } = NodeLabels::of(self.observed, metal, labels);
                if *named && missing.is_empty() {
                    let mut progress = Progress::deployed();
                    if self.nobody_watches_nodes() {
                        // A changed status triggers Cluster API.
                        progress.message = format!("its Node is {name}");
                    }
                    return Step::say(progress, self.dns_wait()).writing(journal);
                }
                let (node, provider_id) = (name.clone(), provider_id.to_owned());
                let effect = Effect::NameNode { node, provider_id, labels: missing };
                let step = Step::say(Progress::deployed(), after(5)).writing(journal).doing(effect);
                let Some(zone) = impossible_zone else { return step };
                let message = format!("the zone {zone:?} is not a valid label value, so the Node {name} gets none");
                step.telling(true, reasons::NODE_LABELS_LEFT_OUT, message)
            }
            ObservedNode::Foreign(why) => {
                let mut progress = Progress::deployed();
                progress.reason = reasons::NODE_PROVIDER_ID_CONFLICT;
                progress.message.clone_from(why);
                Step::say(progress, after(120)).writing(journal)
            }
            ObservedNode::NotYet if metal.bootstrap_failed() => {
                let mut progress = Progress::deployed();
                progress.reason = reasons::BOOTSTRAP_FAILED;
                progress.message = format!("{} ({}) has not joined: {}", metal.hostname, metal.id, metal.last_message);
                Step::say(progress, after(120)).writing(journal)
            }
            // The watches on the cluster's Nodes and Machines trigger the next pass: MAAS has nothing new meanwhile.
            ObservedNode::NotYet => Step::say(Progress::deployed(), self.dns_wait()).writing(journal),
            ObservedNode::NotAsked => {
                Step::say(Progress::deployed(), if unsure { after(120) } else { self.dns_wait() }).writing(journal)
            }
        }
    }

    /// Cluster API watches the Nodes of a cluster once its control plane is up. Without a control plane object, Cluster API
    /// recognizes that by the Node of a control plane Machine, which it would not look up before the next resync.
    fn nobody_watches_nodes(&self) -> bool {
        let cluster = self.observed.cluster.found();
        self.observed.is_control_plane() && cluster.is_some_and(|cluster| cluster.spec.control_plane_ref.is_none())
    }

    /// A control plane machine polls until its address is in DNS, with growing pauses: there may be none to publish. Others wait for
    /// changes.
    fn dns_wait(&self) -> Requeue {
        if !self.observed.is_control_plane() || self.observed.in_dns != Lookup::Found(false) {
            return Requeue::OnChange;
        }
        // A machine that was off is published once it is on again, however long its address has been missing.
        let on = self.since(conditions::MACHINE_DEPLOYED, &ConditionStatus::True);
        let missing = self.since(conditions::DNS_ATTACHED, &ConditionStatus::False);
        after(self.now.duration_since(on.max(missing)).as_secs().clamp(10, 300).unsigned_abs())
    }

    /// Since when a stored condition has this status; now if it has not.
    fn since(&self, type_: &str, status: &ConditionStatus) -> Timestamp {
        let stored = self.observed.object.status.as_ref();
        let said = stored.and_then(|stored| stored.conditions.condition(type_));
        let said = said.filter(|said| said.status == *status);
        said.and_then(|said| said.last_transition_time.as_ref()).map_or(self.now, |time| time.0)
    }
}
