//! Power: what MAAS requests from BMCs and LXD daemons, what they do, and what MAAS assumes.

use super::{
    Model, Outcome, Refusal, Status,
    db::{Level, PowerState},
    due::Due,
    world::{BmcMode, LxdCommand, Work, lxd_key},
};
use crate::ledger::{Effect, MachineChange};
use crate::version::Change;

/// A request to a BMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerAction {
    On,
    Off,
    Cycle,
}

/// What follows a completed power action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Nothing,
    /// The machine starts to work.
    Work(Work),
    /// The end of a release.
    Released,
    /// The end of an aborted action.
    Aborted(Status),
    /// The addresses of a machine marked broken are released.
    FreeAddresses,
}

/// The result of a power query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PowerAnswer {
    /// A state, which MAAS stores.
    State(PowerState),
    /// No answer within MAAS's timeout.
    Timeout,
}

/// Why a power action failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerFailure {
    NoRack,
    NoLxd,
    Hangs,
    Closes,
    Error,
    StaysOn,
}

impl PowerFailure {
    /// The message of 3.4.
    fn sentence(self) -> String {
        match self {
            Self::NoRack => "No rack controllers can access the BMC of the node".to_owned(),
            Self::NoLxd => "Failed to connect to the LXD REST API".to_owned(),
            Self::Hangs => HANGING.to_owned(),
            Self::Closes => format!("Failed to complete power action: {CLOSED}"),
            Self::Error => format!("Failed to complete power action: {STATUS_500}"),
            Self::StaysOn => "Failed to complete power action: the machine did not turn off.".to_owned(),
        }
    }

    /// The message of Temporal. The one for a timeout was only read in the source of its SDK.
    fn of_activity(self) -> &'static str {
        if self == Self::Hangs { "Activity task timed out" } else { "Activity task failed" }
    }
}

const HANGING: &str =
    "Failed talking to node's BMC: [<twisted.python.failure.Failure twisted.internet.defer.CancelledError: >]";
const CLOSED: &str =
    "[<twisted.python.failure.Failure twisted.internet.error.ConnectionDone: Connection was closed cleanly.>]";
const STATUS_500: &str = "Request failed with response status code: 500.";

impl Model {
    /// Schedules a power action as the background work of a request.
    pub fn plan_power(&mut self, system_id: &str, action: PowerAction, then: Then) {
        let Some(machine) = self.db.machines.get(system_id) else { return };
        let work = machine.work;
        if let Some(body) = self.world.bodies.get_mut(system_id) {
            body.bmc.busy = true;
        }
        let machine = system_id.to_owned();
        self.later(self.durations.post_commit, Due::PowerStart { machine, work, action, then });
    }

    pub(super) fn power_starts(&mut self, system_id: &str, work: u64, action: PowerAction, then: Then) {
        let Some(machine) = self.db.machines.get(system_id) else { return };
        if machine.status == Status::Deploying && machine.work == work {
            self.assign_auto_addresses(system_id);
        }
        let kind = match action {
            PowerAction::On => "Powering on",
            PowerAction::Off => "Powering off",
            PowerAction::Cycle => "Power cycling",
        };
        self.power_event(system_id, Level::Info, kind, "");
        let (after, failure) = self.bmc_reaction(system_id);
        let failure = failure.or_else(|| {
            let release = then == Then::Released && self.fails(system_id, Work::Release);
            release.then_some(PowerFailure::StaysOn)
        });
        let machine = system_id.to_owned();
        self.later(after, Due::PowerEnd { machine, work, action, then, failure });
    }

    /// How long the hardware takes, and how it fails.
    fn bmc_reaction(&self, system_id: &str) -> (f64, Option<PowerFailure>) {
        let slow = &self.durations;
        if !self.rack_connected() {
            return (slow.power, Some(PowerFailure::NoRack));
        }
        if let Some((host, ..)) = self.vm_place(system_id) {
            let reachable = self.lxd_of(host).is_some_and(|lxd| lxd.reachable);
            return (slow.power, (!reachable).then_some(PowerFailure::NoLxd));
        }
        let mode = self.world.bodies.get(system_id).map_or(BmcMode::Ok, |body| body.bmc.mode);
        match mode {
            BmcMode::Ok | BmcMode::Garbage | BmcMode::Unrouted => (slow.power, None),
            BmcMode::Hangs => (slow.bmc_hang, Some(PowerFailure::Hangs)),
            BmcMode::Closes => (slow.power, Some(PowerFailure::Closes)),
            BmcMode::Error => (slow.bmc_error, Some(PowerFailure::Error)),
        }
    }

    pub(super) fn power_ends(
        &mut self,
        system_id: &str,
        work: u64,
        action: PowerAction,
        then: Then,
        failure: Option<PowerFailure>,
    ) {
        if let Some(body) = self.world.bodies.get_mut(system_id) {
            body.bmc.busy = false;
        }
        let current = self.is_current(system_id, work);
        let on = action != PowerAction::Off;
        if let Some(why) = failure {
            let direction = if on { "on" } else { "off" };
            let text = if self.version.has(Change::TemporalPower) {
                why.of_activity().to_owned()
            } else {
                format!("Power {direction} for the node failed: {}", why.sentence())
            };
            if current && then != Then::Nothing {
                self.mark_failed(system_id, &text);
            }
            let kind = if on { "Failed to power on node" } else { "Failed to power off node" };
            self.power_event(system_id, Level::Error, kind, &text);
            return;
        }
        self.set_real_power(system_id, on);
        if let Some(machine) = self.db.machines.get_mut(system_id) {
            machine.power_state = if on { PowerState::On } else { PowerState::Off };
        } else {
            return;
        }
        if on {
            self.power_event(system_id, Level::Debug, "Node powered on", "");
        }
        if current {
            self.after_power(system_id, then);
        }
        if !on && self.db.machines.contains_key(system_id) {
            self.power_event(system_id, Level::Debug, "Node powered off", "");
        }
    }

    /// The event that a power action logs, in versions that log one.
    fn power_event(&mut self, system_id: &str, level: Level, kind: &'static str, text: &str) {
        if !self.version.has(Change::TemporalPower) {
            self.event(system_id, level, kind, text);
        }
    }

    /// The error of a power action for whose BMC no rack is found. `connected`: whether a rack connection is checked
    /// first, as by all actions except a deployment.
    pub fn check_bmc_reached(&self, system_id: &str, connected: bool) -> Outcome<()> {
        let temporal = self.version.has(Change::TemporalPower);
        let machine = self.machine(system_id)?;
        if connected && !self.rack_connected() {
            let boot = machine.interfaces.iter().find(|nic| Some(nic.id) == machine.boot_interface);
            let vlan = boot.and_then(|nic| nic.vlan).and_then(|id| self.db.vlans.get(&id));
            // A VLAN with DHCP has a primary rack, whose absence is then reported by its name.
            if temporal && !vlan.is_some_and(|vlan| vlan.dhcp_on) {
                let text = format!("No rack controllers can access the BMC of node {}", machine.hostname);
                return Err(Refusal::unavailable(text));
            }
            return Err(self.no_rack());
        }
        let mode = self.world.bodies.get(system_id).map_or(BmcMode::Ok, |body| body.bmc.mode);
        if temporal && (mode == BmcMode::Unrouted || !self.rack_connected()) {
            return Err(Refusal::crash(format!("Error determining BMC task queue for machine {system_id}")));
        }
        Ok(())
    }

    fn after_power(&mut self, system_id: &str, then: Then) {
        match then {
            Then::Nothing => {
                // A stuck deployment continues as soon as someone powers the machine on.
                let stuck = self.db.machines.get(system_id).is_some_and(|machine| {
                    machine.status == Status::Deploying
                        && machine.status_expires.is_none()
                        && machine.power_state == PowerState::On
                });
                if stuck {
                    self.limit_status(system_id, self.durations.node_timeout);
                    self.plan_finish(system_id, Work::Deploy, self.durations.deploy);
                }
            }
            Then::Work(what) => {
                let slow = &self.durations;
                let after = match what {
                    Work::Commission => slow.commission,
                    Work::Test => slow.test,
                    Work::Deploy => slow.deploy,
                    Work::Erase => slow.erase,
                    Work::Rescue => slow.rescue,
                    Work::Release => 0.0,
                };
                self.plan_finish(system_id, what, after);
            }
            Then::Released => self.finalize_release(system_id),
            Then::Aborted(status) => {
                // Later releases keep the addresses.
                if !self.version.has(Change::TemporalPower) {
                    self.free_auto_addresses(system_id);
                }
                self.set_status(system_id, status);
                self.new_work(system_id);
            }
            Then::FreeAddresses => self.free_auto_addresses(system_id),
        }
    }

    fn plan_finish(&mut self, system_id: &str, what: Work, after: f64) {
        let Some(machine) = self.db.machines.get(system_id) else { return };
        let fails = self.world.bodies.get(system_id).is_some_and(|body| body.fails.contains(&what));
        if self.boots && what == Work::Deploy && !fails {
            // It ends with the machine's own work.
            return;
        }
        let due = Due::Finish { machine: system_id.to_owned(), work: machine.work, what };
        self.later(after, due);
    }

    /// Powers the real thing on or off: the BMC, or the instance in LXD.
    pub fn set_real_power(&mut self, system_id: &str, on: bool) {
        self.power_reaches_hardware(system_id, self.real_power(system_id), on);
        if let Some((host, project, name)) = self.vm_place(system_id) {
            let real = self.lxd_of(host).is_some_and(|lxd| lxd.real);
            if let Some(instance) =
                self.lxd_of_mut(host).and_then(|lxd| lxd.instances.get_mut(&(project.clone(), name.clone())))
            {
                instance.running = on;
                if real {
                    self.outbox.push(LxdCommand::Power { host, project, name, on });
                }
            }
        } else if self.db.machines.contains_key(system_id) {
            self.world.bodies.entry(system_id.to_owned()).or_default().bmc.on = on;
        }
    }

    /// Whether the real thing is on.
    pub fn real_power(&self, system_id: &str) -> bool {
        if let Some((host, project, name)) = self.vm_place(system_id) {
            return self
                .lxd_of(host)
                .and_then(|lxd| lxd.instances.get(&(project, name)))
                .is_some_and(|instance| instance.running);
        }
        self.world.bodies.get(system_id).is_some_and(|body| body.bmc.on)
    }

    /// VM host, project and name of a machine that is a VM.
    pub fn vm_place(&self, system_id: &str) -> Option<(i64, String, String)> {
        let machine = self.db.machines.get(system_id)?;
        let vm = machine.vm.as_ref()?;
        let host = self.db.vm_hosts.get(&vm.vm_host)?;
        let name = machine.power_parameters.get("instance_name").cloned().unwrap_or_else(|| machine.hostname.clone());
        let project = machine.power_parameters.get("project").cloned().unwrap_or_else(|| host.project.clone());
        Some((vm.vm_host, project, name))
    }

    /// The daemon behind a VM host.
    pub fn lxd_of(&self, vm_host: i64) -> Option<&super::world::Lxd> {
        let host = self.db.vm_hosts.get(&vm_host)?;
        self.world.lxds.get(&lxd_key(&host.power_address))
    }

    /// The daemon behind a VM host, to change it.
    pub fn lxd_of_mut(&mut self, vm_host: i64) -> Option<&mut super::world::Lxd> {
        let host = self.db.vm_hosts.get(&vm_host)?;
        self.world.lxds.get_mut(&lxd_key(&host.power_address))
    }

    /// `op=query_power_state`: queries the hardware and stores the answer.
    pub fn query_power(&mut self, system_id: &str) -> Outcome<PowerAnswer> {
        self.check_bmc_reached(system_id, true)?;
        let machine = self.machine(system_id)?;
        if machine.power_type == "manual" || machine.power_type.is_empty() {
            return Ok(PowerAnswer::State(PowerState::Unknown));
        }
        let truth = if self.real_power(system_id) { PowerState::On } else { PowerState::Off };
        let is_vm = machine.vm.is_some();
        // The power driver of a VM is its host's LXD.
        if let Some((host, ..)) = self.vm_place(system_id)
            && !self.lxd_of(host).is_some_and(|lxd| lxd.reachable)
        {
            let words = "Failed to connect to the LXD REST API";
            self.event(system_id, Level::Warning, "Failed to query node's BMC", words);
            self.machine_mut(system_id)?.power_state = PowerState::Error;
            return Ok(PowerAnswer::State(PowerState::Error));
        }
        let mode = self.world.bodies.get(system_id).map_or(BmcMode::Ok, |body| body.bmc.mode);
        let state = match mode {
            _ if is_vm => truth,
            BmcMode::Ok | BmcMode::Unrouted => truth,
            // Then not even the state that MAAS assumes changes.
            BmcMode::Closes | BmcMode::Error if self.version.has(Change::TemporalPower) => {
                return Err(Refusal::crash("exit status 1"));
            }
            BmcMode::Garbage => PowerState::Unknown,
            BmcMode::Hangs => return Ok(PowerAnswer::Timeout),
            BmcMode::Closes => {
                self.event(system_id, Level::Warning, "Failed to query node's BMC", CLOSED);
                PowerState::Error
            }
            BmcMode::Error => {
                self.event(system_id, Level::Warning, "Failed to query node's BMC", STATUS_500);
                PowerState::Error
            }
        };
        self.machine_mut(system_id)?.power_state = state;
        Ok(PowerAnswer::State(state))
    }

    /// MAAS queries the BMC on its own. It skips machines with a power action of its own in progress.
    pub(super) fn poll_power(&mut self, system_id: &str) {
        let Some(body) = self.world.bodies.get(system_id) else { return };
        let answers = !body.bmc.busy && body.bmc.mode == BmcMode::Ok && self.rack_connected();
        let state = if self.real_power(system_id) { PowerState::On } else { PowerState::Off };
        if let Some(machine) = self.db.machines.get_mut(system_id).filter(|_| answers) {
            machine.power_state = state;
        }
    }

    /// The error of a second power action while one is in progress.
    pub fn check_power_free(&self, system_id: &str, wanted: &str) -> Outcome<()> {
        let busy = self.world.bodies.get(system_id).is_some_and(|body| body.bmc.busy);
        if !busy || self.version.has(Change::TemporalPower) {
            return Ok(());
        }
        let hostname = self.machine(system_id)?.hostname.clone();
        let text = format!(
            "Unable to change power state to '{wanted}' for node {hostname}: another action is already in progress for that node."
        );
        Err(Refusal::text(503, text).late())
    }

    /// `op=power_off`.
    pub fn power_off(&mut self, system_id: &str, user: i64, comment: Option<&str>) -> Outcome<()> {
        let manual = self.machine(system_id)?.power_type == "manual";
        if !manual {
            self.check_bmc_reached(system_id, true).map_err(Refusal::late)?;
        }
        self.user_event(system_id, "User powering down node", user, comment);
        if !manual {
            self.plan_power(system_id, PowerAction::Off, Then::Nothing);
        }
        self.effect(Effect::machine(system_id, MachineChange::PowerOff));
        Ok(())
    }

    /// `op=power_on`: on an Allocated machine it starts a deployment.
    pub fn power_on(&mut self, system_id: &str, user: i64, comment: Option<&str>) -> Outcome<()> {
        let machine = self.machine(system_id)?;
        if machine.owner.is_none() {
            return Err(Refusal::conflict("Can't start node: it hasn't been allocated."));
        }
        let status = machine.status;
        let known_on = machine.power_state == PowerState::On;
        // Someone presses the power button of a machine without a BMC.
        if machine.power_type != "manual" {
            self.check_bmc_reached(system_id, true).map_err(Refusal::late)?;
        }
        self.user_event(system_id, "User powering up node", user, comment);
        self.effect(Effect::machine(system_id, MachineChange::PowerOn));
        if status == Status::Allocated {
            self.begin_deploying(system_id, known_on);
        } else {
            self.plan_power(system_id, PowerAction::On, Then::Nothing);
        }
        Ok(())
    }
}
