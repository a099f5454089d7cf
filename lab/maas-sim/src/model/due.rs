//! Scheduled work: a queue by time, and what happens when a task is due.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    Model, Status,
    db::{Level, ScriptStatus},
    power::{PowerAction, PowerFailure, Then},
    reports::StatusReport,
    world::Work,
};
use crate::ledger::Effect;
use crate::version::Change;

/// A task that is due at some time.
#[derive(Clone, Debug)]
pub enum Due {
    /// The background work of a request starts a power action.
    PowerStart { machine: String, work: u64, action: PowerAction, then: Then },
    /// A power action ends, successfully or not.
    PowerEnd { machine: String, work: u64, action: PowerAction, then: Then, failure: Option<PowerFailure> },
    /// The machine itself has completed something.
    Finish { machine: String, work: u64, what: Work },
    /// Testing after commissioning.
    TestAfterCommission { machine: String, work: u64 },
    /// A status timed out.
    Expire { machine: String, work: u64, status: Status },
    /// The machine powered itself off. MAAS does not know that before it queries the BMC.
    PoweredItselfOff { machine: String, work: u64 },
    /// MAAS queries the BMC.
    PowerPolled { machine: String },
    /// A VM host's totals are known.
    VmHostTotals { vm_host: i64 },
    /// A dynamic VM is deleted after its release.
    RemoveDynamic { machine: String, work: u64 },
    /// MAAS processes a machine's report.
    Report { machine: String, report: Box<StatusReport> },
    /// A request whose client has given up is executed after all. The number is the simulator's.
    LateRequest { number: u64 },
}

/// The queue. Tasks for the same time run in the order of scheduling.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    entries: BTreeMap<(Timestamp, u64), Due>,
    planned: u64,
    /// Late requests that are due, for the simulator to execute.
    pub late: Vec<u64>,
}

impl Queue {
    /// Schedules a task.
    pub fn push(&mut self, at: Timestamp, due: Due) {
        self.planned += 1;
        self.entries.insert((at, self.planned), due);
    }

    /// Takes the first task that is due by `until`.
    pub fn pop_due(&mut self, until: Timestamp) -> Option<(Timestamp, Due)> {
        let key = *self.entries.keys().next().filter(|(at, _)| *at <= until)?;
        self.entries.remove(&key).map(|due| (key.0, due))
    }

    /// When the next task is due, except timeouts.
    pub fn next_work_at(&self) -> Option<Timestamp> {
        let is_work = |due: &Due| !matches!(due, Due::Expire { .. } | Due::PowerPolled { .. });
        self.entries.iter().find(|(_, due)| is_work(due)).map(|((at, _), _)| *at)
    }

    /// Takes all scheduled power queries.
    pub fn take_polls(&mut self) -> Vec<Due> {
        let polls = self.entries.iter().filter(|(_, due)| matches!(due, Due::PowerPolled { .. }));
        let keys: Vec<_> = polls.map(|(key, _)| *key).collect();
        keys.iter().filter_map(|key| self.entries.remove(key)).collect()
    }

    /// When the last task for one machine is due, except timeouts.
    pub fn last_for(&self, system_id: &str) -> Option<Timestamp> {
        self.entries.iter().rev().find(|(_, due)| due.is_work_of(system_id)).map(|((at, _), _)| *at)
    }

    /// Drops the tasks of machines and VM hosts: the process that would have run them is gone.
    pub fn forget(&mut self, keep: impl Fn(&Due) -> bool) {
        self.entries.retain(|_, due| keep(due));
    }
}

impl Due {
    fn is_work_of(&self, system_id: &str) -> bool {
        match self {
            Due::PowerStart { machine, .. }
            | Due::PowerEnd { machine, .. }
            | Due::Finish { machine, .. }
            | Due::TestAfterCommission { machine, .. }
            | Due::PoweredItselfOff { machine, .. }
            | Due::RemoveDynamic { machine, .. } => machine == system_id,
            Due::Expire { .. }
            | Due::PowerPolled { .. }
            | Due::VmHostTotals { .. }
            | Due::LateRequest { .. }
            | Due::Report { .. } => false,
        }
    }
}

/// The commissioning scripts, in the order of the log.
pub const COMMISSIONING_SCRIPTS: &[&str] = &[
    "20-maas-01-install-lldpd",
    "20-maas-02-dhcp-unconfigured-ifaces",
    "20-maas-03-machine-resources",
    "30-maas-01-bmc-config",
    "40-maas-01-machine-config-hints",
    "50-maas-01-commissioning",
    "maas-capture-lldpd",
    "maas-get-fruid-api-data",
    "maas-kernel-cmdline",
    "maas-list-modaliases",
    "maas-lshw",
    "maas-serial-ports",
    "maas-support-info",
];

impl Model {
    /// Runs one task that is due.
    pub fn happen(&mut self, due: Due) {
        match due {
            Due::PowerStart { machine, work, action, then } => self.power_starts(&machine, work, action, then),
            Due::PowerEnd { machine, work, action, then, failure } => {
                self.power_ends(&machine, work, action, then, failure);
            }
            Due::Finish { machine, work, what } => {
                if self.is_current(&machine, work) {
                    self.finish(&machine, what);
                }
            }
            Due::TestAfterCommission { machine, work } => {
                if self.is_current(&machine, work) {
                    self.test_after_commission(&machine);
                }
            }
            Due::Expire { machine, work, status } => {
                let current = self.is_current(&machine, work);
                let same =
                    self.db.machines.get(&machine).is_some_and(|m| m.status == status && m.status_expires.is_some());
                if current && same {
                    let minutes = match status {
                        Status::Releasing => 5,
                        Status::Deploying if self.version.has(Change::LongDeployments) => 60,
                        _ => 30,
                    };
                    let text = format!("Node operation '{}' timed out after {minutes} minutes.", status.name());
                    self.mark_failed(&machine, &text);
                }
            }
            Due::PoweredItselfOff { machine, work } => {
                if self.is_current(&machine, work) {
                    self.set_real_power(&machine, false);
                    self.later(self.durations.power_poll, Due::PowerPolled { machine });
                }
            }
            Due::PowerPolled { machine } => self.poll_power(&machine),
            Due::VmHostTotals { vm_host } => self.fill_vm_host_totals(vm_host),
            Due::RemoveDynamic { machine, work } => {
                if self.is_current(&machine, work) {
                    self.remove_machine(&machine, true);
                }
            }
            Due::Report { machine, report } => self.hear(&machine, &report),
            Due::LateRequest { number } => self.queue.late.push(number),
        }
    }

    /// Whether the machine is still at the work that a task was scheduled for.
    pub fn is_current(&self, system_id: &str, work: u64) -> bool {
        self.db.machines.get(system_id).is_some_and(|machine| machine.work == work)
    }

    /// Changes the status and logs the DEBUG event, unless the state machine forbids it.
    pub fn set_status(&mut self, system_id: &str, next: Status) -> bool {
        let Some(machine) = self.db.machines.get_mut(system_id) else { return false };
        let before = machine.status;
        if before == next {
            return true;
        }
        if !before.may_become(next) {
            return false;
        }
        machine.status = next;
        machine.status_expires = None;
        // However it got there, also from rescue mode or tests, it then has no owner.
        if matches!(next, Status::Ready | Status::New | Status::Broken) {
            machine.owner = None;
            machine.annotations.clear();
        }
        let owner = machine.owner;
        let mut text = format!("From '{}' to '{}'", before.name(), next.name());
        if next == Status::Allocated && before == Status::Ready {
            text = format!("{text} (to {})", self.user_name(owner));
        }
        self.event(system_id, Level::Debug, "Node changed status", &text);
        self.effect(Effect::Status { machine: system_id.to_owned(), from: before, to: next });
        true
    }

    /// Starts new work on a machine: tasks of older work are ignored.
    pub fn new_work(&mut self, system_id: &str) -> u64 {
        match self.db.machines.get_mut(system_id) {
            Some(machine) => {
                machine.work += 1;
                machine.work
            }
            None => 0,
        }
    }

    /// Sets the timeout of the current status.
    pub fn limit_status(&mut self, system_id: &str, after: f64) {
        let at = self.after(after);
        if let Some(machine) = self.db.machines.get_mut(system_id) {
            machine.status_expires = Some(at);
            let due = Due::Expire { machine: system_id.to_owned(), work: machine.work, status: machine.status };
            self.queue.push(at, due);
        }
    }

    /// The machine's current work has failed.
    pub fn mark_failed(&mut self, system_id: &str, why: &str) {
        let Some(failed) = self.db.machines.get(system_id).and_then(|machine| machine.status.failed()) else { return };
        if failed == Status::FailedCommissioning {
            if let Some(machine) = self.db.machines.get_mut(system_id) {
                machine.commissioning = ScriptStatus::Failed;
            }
            self.event(system_id, Level::Info, "Failed commissioning", "");
        } else {
            self.event(system_id, Level::Error, "Marking node failed", why);
        }
        self.set_status(system_id, failed);
        self.new_work(system_id);
        if let Some(machine) = self.db.machines.get_mut(system_id).filter(|_| !why.is_empty()) {
            why.clone_into(&mut machine.error_description);
        }
    }

    fn take_failure(&mut self, system_id: &str, what: Work) -> bool {
        let Some(body) = self.world.bodies.get_mut(system_id) else { return false };
        let found = body.fails.iter().position(|work| *work == what);
        if let Some(at) = found {
            body.fails.remove(at);
        }
        found.is_some()
    }

    /// Takes a scheduled failure of this work, if there is one.
    pub(super) fn fails(&mut self, system_id: &str, what: Work) -> bool {
        self.take_failure(system_id, what)
    }

    /// Nothing runs in a VM whose host is off; MAAS's work on it times out.
    fn is_on_dead_host(&self, system_id: &str) -> bool {
        let host = self.vm_place(system_id).and_then(|(host, ..)| self.db.vm_hosts.get(&host));
        host.and_then(|host| host.host.as_deref()).is_some_and(|machine| !self.real_power(machine))
    }

    pub(super) fn finish(&mut self, system_id: &str, what: Work) {
        if self.is_on_dead_host(system_id) {
            return;
        }
        if self.world.bodies.get(system_id).is_some_and(|body| body.vanishes) {
            self.remove_machine(system_id, false);
            return;
        }
        if self.take_failure(system_id, what) {
            let text = match what {
                Work::Deploy => "Installation failed (refer to the installation log for more information).",
                Work::Erase => "Failed to erase disks.",
                Work::Rescue => "Failed to enter rescue mode.",
                Work::Test => "1 test failed.",
                Work::Commission | Work::Release => "",
            };
            if what == Work::Test
                && let Some(machine) = self.db.machines.get_mut(system_id)
            {
                machine.testing = ScriptStatus::Failed;
            }
            self.mark_failed(system_id, text);
            return;
        }
        match what {
            Work::Commission => self.commissioning_ends(system_id),
            Work::Test => self.testing_ends(system_id),
            Work::Deploy => self.deployment_ends(system_id),
            Work::Erase => self.erasing_ends(system_id),
            Work::Rescue => self.rescue_ends(system_id),
            Work::Release => self.finalize_release(system_id),
        }
    }

    fn commissioning_ends(&mut self, system_id: &str) {
        let wants_test = self.db.machines.get(system_id).is_some_and(|m| m.testing == ScriptStatus::Pending);
        for script in COMMISSIONING_SCRIPTS {
            let text = format!("{script} changed status from 'Pending' to 'Passed'");
            self.event(system_id, Level::Debug, "Script result", &text);
        }
        self.learn_hardware(system_id);
        if wants_test {
            let work = self.db.machines.get(system_id).map_or(0, |machine| machine.work);
            self.later(0.0, Due::TestAfterCommission { machine: system_id.to_owned(), work });
        } else {
            self.becomes_ready(system_id, "Ready");
        }
    }

    fn test_after_commission(&mut self, system_id: &str) {
        if !self.set_status(system_id, Status::Testing) {
            return;
        }
        let work = self.new_work(system_id);
        if let Some(machine) = self.db.machines.get_mut(system_id) {
            machine.previous_status = Status::Ready;
        }
        self.limit_status(system_id, self.durations.node_timeout);
        let machine = system_id.to_owned();
        self.later(self.durations.test, Due::Finish { machine, work, what: Work::Test });
    }

    fn testing_ends(&mut self, system_id: &str) {
        let previous = match self.db.machines.get_mut(system_id) {
            Some(machine) => {
                machine.testing = ScriptStatus::Passed;
                machine.previous_status
            }
            None => return,
        };
        if previous == Status::Ready {
            self.becomes_ready(system_id, "Ready");
        } else {
            self.set_status(system_id, previous);
            self.new_work(system_id);
        }
    }

    /// The end of commissioning or testing: the machine has no owner, and powers itself off.
    fn becomes_ready(&mut self, system_id: &str, event: &'static str) {
        self.event(system_id, Level::Info, event, "");
        self.set_status(system_id, Status::Ready);
        let work = self.new_work(system_id);
        if let Some(machine) = self.db.machines.get_mut(system_id) {
            machine.owner = None;
        }
        let machine = system_id.to_owned();
        self.later(self.durations.power, Due::PoweredItselfOff { machine, work });
        self.steal(system_id);
    }

    fn deployment_ends(&mut self, system_id: &str) {
        let Some(machine) = self.db.machines.get_mut(system_id) else { return };
        machine.netboot = machine.ephemeral_deploy;
        if machine.becomes_vm_host {
            // Fetching the user data does not end such a deployment, but it changes the agent name.
            "maas-kvm-pod".clone_into(&mut machine.agent_name);
            machine.netboot = false;
            return;
        }
        if machine.enable_hw_sync {
            machine.last_sync = Some(self.now);
        }
        let text = format!("deployed {}/{}/{}", machine.osystem, machine.distro_series, machine.architecture);
        let series = machine.distro_series.clone();
        let osystem = machine.osystem.clone();
        self.event(system_id, Level::Info, "Image Deployed", &text);
        self.set_status(system_id, Status::Deployed);
        self.event(system_id, Level::Info, "Deployed", "");
        self.new_work(system_id);
        let now = self.now;
        if let Some(image) = self.db.images.values_mut().find(|i| i.series == series && i.osystem == osystem) {
            image.last_deployed = Some(now);
        }
    }

    fn erasing_ends(&mut self, system_id: &str) {
        self.event(system_id, Level::Info, "Disks erased", "");
        self.event(system_id, Level::Debug, "User releasing node", "");
        self.start_release(system_id);
    }

    fn rescue_ends(&mut self, system_id: &str) {
        let Some(machine) = self.db.machines.get(system_id) else { return };
        let previous = machine.previous_status;
        match machine.status {
            Status::EnteringRescueMode => {
                self.set_status(system_id, Status::RescueMode);
                self.event(system_id, Level::Info, "Rescue mode", "");
            }
            Status::ExitingRescueMode => {
                self.set_status(system_id, previous);
                self.event(system_id, Level::Info, "Exited rescue mode", "");
            }
            _ => {}
        }
        self.new_work(system_id);
    }

    /// Another user was waiting for this machine to become Ready.
    pub fn steal(&mut self, system_id: &str) {
        let is_vm = self.db.machines.get(system_id).is_some_and(|machine| machine.vm.is_some());
        let thief = self.world.bodies.get_mut(system_id).and_then(|body| body.stolen_by.take());
        let thief = thief.or_else(|| if is_vm { self.world.vm_thief.take() } else { None });
        if let Some(user) = thief {
            self.acquire(system_id, user, "", None);
        }
    }
}
