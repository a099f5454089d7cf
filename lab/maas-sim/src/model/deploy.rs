//! Deploying, commissioning, testing and rescue mode: everything that boots a machine.

use super::{
    Model, Outcome, Refusal, Status,
    db::{Image, Level, PowerState, ScriptStatus, Table},
    power::{PowerAction, Then},
    world::Work,
};
use crate::ledger::{Effect, MachineChange};
use crate::version::Change;

/// Parameters of `op=deploy` that the model uses.
#[derive(Clone, Debug, Default)]
pub struct DeployRequest {
    pub distro_series: Option<String>,
    pub hwe_kernel: Option<String>,
    /// Belongs to acquiring, as bridges and the comment do: unused if the machine is already Allocated.
    pub agent_name: String,
    pub comment: Option<String>,
    pub ephemeral: bool,
    pub enable_hw_sync: bool,
    pub enable_kernel_crash_dump: bool,
    pub vm_host: bool,
    pub install_rackd: bool,
    pub bridge_all: Option<super::bridges::BridgeOptions>,
    /// As sent: base64.
    pub user_data: Option<String>,
}

impl Model {
    /// `op=deploy`.
    pub fn deploy(&mut self, system_id: &str, user: i64, request: &DeployRequest) -> Outcome<()> {
        // What has no disk can only run from memory.
        let diskless = self.db.machines.get(system_id).is_some_and(|machine| machine.disks.is_empty());
        let ephemeral = request.ephemeral || diskless;
        self.check_purpose(user, request, ephemeral)?;
        let machine = self.machine(system_id)?;
        let status = machine.status;
        if !matches!(status, Status::Ready | Status::Allocated) {
            return Err(Refusal::conflict(format!("Can't deploy a machine that is in the '{}' state", status.name())));
        }
        let architecture = machine.architecture.clone();
        let known_on = machine.power_state == PowerState::On;
        if request.install_rackd && self.version.has(Change::NoRackControllers) {
            // That it is a 400 was observed; MAAS's own words are unknown.
            return Err(Refusal::bad_request("Rack controllers can no longer be installed by deploying a machine."));
        }
        let (osystem, series) = self.resolve_series(request.distro_series.as_deref())?;
        let kernel = self.resolve_kernel(&osystem, &series, request.hwe_kernel.as_deref(), &architecture)?;
        if ephemeral && osystem != "ubuntu" && !self.version.has(Change::EphemeralCustom) {
            return Err(Refusal::bad_request("Ephemeral deployments only supported on Ubuntu Bionic 18.04+"));
        }
        self.check_deployable(&osystem, &series, &architecture)?;
        self.check_network(system_id)?;
        if !self.is_manual(system_id) && self.version.has(Change::TemporalPower) {
            self.check_bmc_reached(system_id, false)?;
        }
        if status == Status::Ready {
            self.acquire(system_id, user, &request.agent_name, request.comment.as_deref());
            if let Some(options) = &request.bridge_all {
                self.bridge_all(system_id, options);
            }
        }
        let machine = self.machine_mut(system_id)?;
        machine.osystem = osystem;
        machine.distro_series = series;
        machine.hwe_kernel = kernel;
        machine.min_hwe_kernel.get_or_insert_default();
        machine.ephemeral_deploy = ephemeral;
        machine.enable_hw_sync = request.enable_hw_sync;
        machine.becomes_vm_host = request.vm_host;
        machine.enable_kernel_crash_dump = request.enable_kernel_crash_dump;
        self.world.bodies.entry(system_id.to_owned()).or_default().user_data.clone_from(&request.user_data);
        self.user_event(system_id, "User starting deployment", user, request.comment.as_deref());
        self.begin_deploying(system_id, known_on);
        Ok(())
    }

    /// What the machine is deployed as is checked before its status.
    fn check_purpose(&self, user: i64, request: &DeployRequest, ephemeral: bool) -> Outcome<()> {
        let admin = self.db.users.get(&user).is_some_and(|user| user.admin);
        if request.install_rackd && !admin {
            // From MAAS's source, not recorded.
            return Err(Refusal::text(403, "Only administrators can deploy MAAS racks"));
        }
        if request.vm_host && !admin {
            return Err(Refusal::text(403, "Only administratros can deploy VM hosts"));
        }
        if ephemeral && request.vm_host {
            return Err(Refusal::bad_request(if self.version.has(Change::EphemeralCustom) {
                "A machine can not be a VM host if it is deployed to memory."
            } else {
                "Cannot deploy as a VM host for ephemeral deployments."
            }));
        }
        Ok(())
    }

    /// The steps that `op=power_on` of an Allocated machine shares with a deployment.
    pub(super) fn begin_deploying(&mut self, system_id: &str, known_on: bool) {
        self.set_status(system_id, Status::Deploying);
        self.new_work(system_id);
        let set = self.db.sequences.take(Table::ScriptSet);
        if let Some(machine) = self.db.machines.get_mut(system_id) {
            // Nothing is installed on a machine that runs from memory.
            if !machine.ephemeral_deploy {
                machine.installation_set = Some(set);
            }
            machine.netboot = true;
        }
        self.event(system_id, Level::Info, "Deploying", "");
        self.limit_status(system_id, self.deploy_limit());
        let action = if known_on { PowerAction::Cycle } else { PowerAction::On };
        if self.is_manual(system_id) {
            self.assign_auto_addresses(system_id);
            self.manual_power(system_id, true, Then::Work(Work::Deploy));
        } else {
            self.plan_power(system_id, action, Then::Work(Work::Deploy));
        }
    }

    /// The time limit of a deployment.
    pub(super) fn deploy_limit(&self) -> f64 {
        let times = if self.version.has(Change::LongDeployments) { 2.0 } else { 1.0 };
        times * self.durations.node_timeout
    }

    fn is_manual(&self, system_id: &str) -> bool {
        self.db.machines.get(system_id).is_some_and(|machine| machine.power_type == "manual")
    }

    /// Someone presses the power button of a machine without a BMC.
    fn manual_power(&mut self, system_id: &str, on: bool, then: Then) {
        let Some(machine) = self.db.machines.get(system_id) else { return };
        let work = machine.work;
        let action = if on { PowerAction::On } else { PowerAction::Off };
        let machine = system_id.to_owned();
        self.later(self.durations.power, super::due::Due::PowerEnd { machine, work, action, then, failure: None });
    }

    /// Operating system and series of a request; without one, the server's default.
    fn resolve_series(&self, asked: Option<&str>) -> Outcome<(String, String)> {
        let default = self.db.settings.get("default_distro_series").and_then(|v| v.as_str()).unwrap_or("jammy");
        let asked = asked.filter(|series| !series.is_empty());
        let wanted = asked.unwrap_or(default);
        let wanted = if self.version.has(Change::SeriesAliases) { series_alias(wanted) } else { wanted };
        let found = self
            .db
            .images
            .values()
            .find(|image| image.series == wanted || format!("{}/{}", image.osystem, image.series) == wanted);
        if wanted.split('/').count() > 2 {
            // MAAS does not handle a second slash.
            return Err(Refusal::crash("too many values to unpack (expected 2)"));
        }
        if let Some(image) = found.or_else(|| self.by_short_name(wanted)) {
            return Ok((image.osystem.clone(), image.series.clone()));
        }
        let mut choices: Vec<String> =
            self.db.images.values().map(|image| format!("'{}/{}'", image.osystem, image.series)).collect();
        choices.sort();
        choices.dedup();
        choices.insert(0, "''".to_owned());
        Err(Refusal::field(
            "distro_series",
            format!(
                "'{}' is not a valid distro_series.  It should be one of: {}.",
                asked.unwrap_or(default),
                choices.join(", ")
            ),
        ))
    }

    /// The last series of an operating system by its name, or, except of Ubuntu, by the beginning of the series' name.
    /// From MAAS's source, not recorded.
    fn by_short_name(&self, wanted: &str) -> Option<&Image> {
        let (osystem, name) = wanted.split_once('/').unwrap_or(("", wanted));
        let images = self.db.images.values().filter(|image| osystem.is_empty() || image.osystem == osystem);
        let is_meant =
            |image: &&Image| image.osystem == name || (image.osystem != "ubuntu" && image.series.starts_with(name));
        images.filter(is_meant).max_by_key(|image| &image.series)
    }

    fn resolve_kernel(
        &self,
        osystem: &str,
        series: &str,
        asked: Option<&str>,
        architecture: &str,
    ) -> Outcome<Option<String>> {
        let image = self.db.images.values().find(|image| image.osystem == osystem && image.series == series);
        let Some(image) = image else { return Ok(None) };
        if osystem != "ubuntu" {
            // A custom image boots with the kernel of the ephemeral system.
            return Ok(Some(self.default_kernel()));
        }
        if !image.complete {
            return Err(Refusal::field("hwe_kernel", format!("{series} has no kernels available.")));
        }
        let kernel = image.kernel();
        match asked.filter(|kernel| !kernel.is_empty()) {
            Some(asked) if asked != kernel => Err(Refusal::field(
                "hwe_kernel",
                format!("{asked} is not available for {osystem}/{series} on {architecture}."),
            )),
            _ => Ok(Some(kernel)),
        }
    }

    fn default_kernel(&self) -> String {
        let series =
            self.db.settings.get("commissioning_distro_series").and_then(|value| value.as_str()).unwrap_or("jammy");
        self.db
            .images
            .values()
            .find(|image| image.series == series)
            .map_or_else(|| "ga-22.04".to_owned(), Image::kernel)
    }

    /// Whether machines can boot an image: from the racks, or from the region in versions where it serves images.
    fn is_served(&self, osystem: &str, series: &str) -> bool {
        let in_region = self.version.has(Change::ImagesInRegion);
        let mut images = self.db.images.values().filter(|image| image.osystem == osystem && image.series == series);
        (in_region || self.rack_connected()) && images.any(|image| image.complete && (in_region || image.on_racks))
    }

    fn check_deployable(&self, osystem: &str, series: &str, architecture: &str) -> Outcome<()> {
        // An image without its own kernel boots with that of the ephemeral system.
        if osystem != "ubuntu" && self.version.has(Change::ImagesInRegion) {
            self.check_can_boot(architecture)?;
        }
        if self.is_served(osystem, series) {
            return Ok(());
        }
        Err(Refusal::bad_request(if self.version.has(Change::ImagesInRegion) {
            // From MAAS's source, not recorded: recorded cases are refused earlier.
            format!("Deployment operating system {osystem}/{series} is unavailable for {architecture}.")
        } else {
            format!("Deployment operating system {osystem} {series} is unavailable.")
        }))
    }

    /// The ephemeral system is needed to commission, test, erase and rescue.
    pub fn check_can_boot(&self, architecture: &str) -> Outcome<()> {
        let series =
            self.db.settings.get("commissioning_distro_series").and_then(|value| value.as_str()).unwrap_or("jammy");
        if self.is_served("ubuntu", series) {
            return Ok(());
        }
        Err(Refusal::bad_request(if self.version.has(Change::ImagesInRegion) {
            format!("Ephemeral operating system ubuntu/{series} for {architecture} is unavailable.")
        } else {
            format!("Ephemeral operating system ubuntu {series} is unavailable.")
        }))
    }

    /// What is required before a machine is booted for MAAS's own purposes.
    fn check_boot(&self, system_id: &str) -> Outcome<()> {
        let machine = self.machine(system_id)?;
        self.check_can_boot(&machine.architecture)?;
        // Even a machine without a BMC needs a rack then.
        if self.version.has(Change::TemporalPower) {
            self.check_bmc_reached(system_id, true)?;
        }
        Ok(())
    }

    /// `op=commission`, also used for new and discovered machines.
    pub fn commission(&mut self, system_id: &str, user: i64, test: bool) -> Outcome<()> {
        let machine = self.machine(system_id)?;
        if !machine.status.may_become(Status::Commissioning) {
            return Err(Refusal::not_in_this_state("Commission"));
        }
        let known_on = self.real_power(system_id);
        self.check_boot(system_id)?;
        let commissioning_set = self.db.sequences.take(Table::ScriptSet);
        let testing_set = test.then(|| self.db.sequences.take(Table::ScriptSet));
        self.user_event(system_id, "User starting node commissioning", user, None);
        self.event(system_id, Level::Info, "Commissioning", "");
        self.clear_configuration(system_id);
        let machine = self.machine_mut(system_id)?;
        machine.owner = Some(user);
        machine.commissioning = ScriptStatus::Pending;
        machine.commissioning_set = Some(commissioning_set);
        machine.testing = if test { ScriptStatus::Pending } else { ScriptStatus::Unknown };
        machine.testing_set = testing_set;
        self.set_status(system_id, Status::Commissioning);
        self.new_work(system_id);
        self.limit_status(system_id, self.durations.node_timeout);
        self.boot(system_id, known_on, Work::Commission);
        Ok(())
    }

    fn boot(&mut self, system_id: &str, on: bool, what: Work) {
        if self.is_manual(system_id) {
            self.manual_power(system_id, true, Then::Work(what));
        } else {
            let action = if on { PowerAction::Cycle } else { PowerAction::On };
            self.plan_power(system_id, action, Then::Work(what));
        }
    }

    /// `op=test`.
    pub fn test(&mut self, system_id: &str, user: i64) -> Outcome<()> {
        let machine = self.machine(system_id)?;
        let status = machine.status;
        if !status.may_become(Status::Testing) {
            return Err(Refusal::not_in_this_state("Test"));
        }
        let on = machine.power_state == PowerState::On;
        self.check_boot(system_id)?;
        let set = self.db.sequences.take(Table::ScriptSet);
        self.user_event(system_id, "User starting node testing", user, None);
        self.event(system_id, Level::Info, "Testing", "");
        let machine = self.machine_mut(system_id)?;
        machine.previous_status = if status == Status::FailedTesting { Status::Ready } else { status };
        machine.owner = machine.owner.or(Some(user));
        machine.testing = ScriptStatus::Pending;
        machine.testing_set = Some(set);
        self.set_status(system_id, Status::Testing);
        self.new_work(system_id);
        self.limit_status(system_id, self.durations.node_timeout);
        self.boot(system_id, on, Work::Test);
        Ok(())
    }

    /// `op=rescue_mode`.
    pub fn rescue_mode(&mut self, system_id: &str, user: i64) -> Outcome<()> {
        let machine = self.machine(system_id)?;
        let status = machine.status;
        if !status.may_become(Status::EnteringRescueMode) {
            return Err(Refusal::invalid_transition(status.name(), Status::EnteringRescueMode.name()));
        }
        let on = machine.power_state == PowerState::On;
        self.check_boot(system_id)?;
        self.user_event(system_id, "User starting rescue mode", user, None);
        let machine = self.machine_mut(system_id)?;
        if !matches!(status, Status::RescueMode | Status::FailedEnteringRescueMode | Status::FailedExitingRescueMode) {
            machine.previous_status = status;
        }
        machine.owner = machine.owner.or(Some(user));
        self.set_status(system_id, Status::EnteringRescueMode);
        self.new_work(system_id);
        self.event(system_id, Level::Info, "Entering rescue mode", "");
        self.boot(system_id, on, Work::Rescue);
        Ok(())
    }

    /// `op=exit_rescue_mode`.
    pub fn exit_rescue_mode(&mut self, system_id: &str, user: i64) -> Outcome<()> {
        let status = self.machine(system_id)?.status;
        if !status.may_become(Status::ExitingRescueMode) {
            return Err(Refusal::invalid_transition(status.name(), Status::ExitingRescueMode.name()));
        }
        self.user_event(system_id, "User stopping rescue mode", user, None);
        self.set_status(system_id, Status::ExitingRescueMode);
        self.new_work(system_id);
        let on = matches!(self.machine(system_id)?.previous_status, Status::Deployed);
        let action = if on { PowerAction::Cycle } else { PowerAction::Off };
        self.plan_power(system_id, action, Then::Work(Work::Rescue));
        Ok(())
    }

    /// `op=abort`.
    pub fn abort(&mut self, system_id: &str, user: i64, comment: Option<&str>) -> Outcome<()> {
        let machine = self.machine(system_id)?;
        let (kind, event, target) = match machine.status {
            Status::Commissioning => ("User aborting node commissioning", "Aborted commissioning", Status::New),
            Status::Deploying => ("User aborting deployment", "Aborted deployment", Status::Allocated),
            Status::DiskErasing => ("User aborting disk erase", "Aborted disk erasing", Status::FailedDiskErasing),
            Status::Testing => ("User aborting node testing", "Aborted testing", machine.previous_status),
            other => {
                return Err(Refusal::conflict(format!(
                    "Cannot abort in current state: node {system_id} is in state {}.",
                    other.name()
                )));
            }
        };
        let status = machine.status;
        if !self.rack_connected() {
            return Err(self.no_rack().late());
        }
        self.check_power_free(system_id, "off")?;
        self.user_event(system_id, kind, user, comment);
        self.event(system_id, Level::Info, event, "");
        let machine = self.machine_mut(system_id)?;
        if status == Status::Commissioning {
            machine.owner = None;
        }
        self.new_work(system_id);
        self.plan_power(system_id, PowerAction::Off, Then::Aborted(target));
        self.effect(Effect::machine(system_id, MachineChange::Aborted));
        Ok(())
    }
}

/// Series by version number, as 3.6 and later accept them.
fn series_alias(series: &str) -> &str {
    match series {
        "20.04" | "ubuntu/20.04" => "focal",
        "22.04" | "ubuntu/22.04" => "jammy",
        "24.04" | "ubuntu/24.04" => "noble",
        other => other,
    }
}
