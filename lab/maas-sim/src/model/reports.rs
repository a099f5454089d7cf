//! Machines that really boot: orders for their hardware, and their reports to MAAS.

use base64::Engine as _;
use serde::Deserialize;

use super::{
    Model, Status,
    db::{AllocType, Level, UserKey},
    due::Due,
    world::Work,
};
use crate::{
    config::ApiKey,
    hardware::{Action, Credentials, Link, Order},
};

/// The user that owns the keys of machines.
const NODE_USER: &str = "maas-init-node";
const INSTALLATION_FAILED: &str = "Installation failed (refer to the installation log for more information).";
const COMMISSIONING_FAILED: &str =
    "Commissioning failed, cloud-init reported a failure (refer to the event log for more information)";

/// A status report of curtin or cloud-init.
#[derive(Clone, Debug, Deserialize)]
pub struct StatusReport {
    pub event_type: String,
    pub origin: String,
    pub name: String,
    pub description: String,
    #[serde(default)]
    pub result: Option<String>,
}

impl StatusReport {
    fn failed(&self) -> bool {
        matches!(self.result.as_deref(), Some("FAIL" | "FAILURE"))
    }

    /// Only top-level reports change the status of a machine.
    fn is_top_level(&self) -> bool {
        !self.name.contains('/')
    }
}

impl Model {
    /// Powers the hardware of a machine on or off, if machines boot.
    pub(super) fn power_reaches_hardware(&mut self, system_id: &str, was_on: bool, on: bool) {
        let Some(machine) = self.db.machines.get(system_id).filter(|_| self.boots) else { return };
        let action = match machine.status {
            // Nothing happens to a machine that is already off.
            _ if !on && !was_on => return,
            _ if !on => Action::PowerOff,
            Status::Deploying => Action::Deploy,
            Status::DiskErasing => Action::Erase,
            // These run a system of MAAS's own, from the network.
            Status::Commissioning | Status::Testing | Status::EnteringRescueMode | Status::RescueMode => {
                Action::PowerOff
            }
            _ if was_on => Action::PowerCycle,
            _ => Action::PowerOn,
        };
        self.order(system_id, action);
    }

    /// Sends an order to the hardware of a machine, if machines boot.
    pub(super) fn order(&mut self, system_id: &str, action: Action) {
        if !self.boots || !self.db.machines.contains_key(system_id) {
            return;
        }
        let credentials = (action == Action::Deploy).then(|| Credentials(self.new_node_key(system_id)));
        let link = self.boot_link(system_id);
        let Some(machine) = self.db.machines.get(system_id) else { return };
        let boot = machine.interfaces.iter().find(|nic| Some(nic.id) == machine.boot_interface);
        self.orders.push(Order {
            action,
            system_id: system_id.to_owned(),
            hostname: machine.hostname.clone(),
            fqdn: self.fqdn(system_id),
            mac: boot.or(machine.interfaces.first()).map(|nic| nic.mac.clone()),
            series: machine.distro_series.clone(),
            link,
            credentials,
        });
    }

    /// The fully qualified name of a machine.
    pub fn fqdn(&self, system_id: &str) -> String {
        let Some(machine) = self.db.machines.get(system_id) else { return String::new() };
        let domain = self.db.domains.get(&machine.domain).map_or("maas", |domain| domain.name.as_str());
        format!("{}.{domain}", machine.hostname)
    }

    /// The first link that MAAS configures; an observed address may come before it.
    fn boot_link(&self, system_id: &str) -> Option<Link> {
        let rows = self.link_ids(system_id).into_iter().filter_map(|id| self.db.addresses.get(&id));
        let mut configured = rows.filter(|row| matches!(row.alloc, AllocType::Auto | AllocType::Sticky));
        configured.find_map(|row| {
            let subnet = self.db.subnets.get(&row.subnet?)?;
            Some(Link {
                address: row.ip?,
                prefix: subnet.cidr.length(),
                gateway: subnet.gateway_ip,
                name_servers: subnet.dns_servers.clone(),
            })
        })
    }

    /// A new key for each deployment; older ones of the machine become invalid.
    fn new_node_key(&mut self, system_id: &str) -> ApiKey {
        let key = ApiKey { consumer: self.rng.hex(18), token: self.rng.hex(18), secret: self.rng.hex(32) };
        if let Some(user) = self.db.users.values_mut().find(|user| user.name == NODE_USER) {
            user.keys.retain(|key| key.name != system_id);
            user.keys.push(UserKey { name: system_id.to_owned(), key: key.clone() });
        }
        key
    }

    /// The machine that a token belongs to.
    pub fn node_of_token(&self, token: &str) -> Option<&str> {
        let user = self.user_by_name(NODE_USER)?;
        let key = user.keys.iter().find(|key| key.key.token == token)?;
        self.db.machines.get(&key.name).map(|machine| machine.system_id.as_str())
    }

    /// A machine fetches its user data, which ends a deployment. `None` if there is none.
    pub fn fetch_user_data(&mut self, system_id: &str) -> Option<Vec<u8>> {
        if self.db.machines.get(system_id)?.status == Status::Deploying {
            self.finish(system_id, Work::Deploy);
        }
        let sent = self.world.bodies.get(system_id)?.user_data.clone()?;
        let stripped: String = sent.split_whitespace().collect();
        let decoded = base64::engine::general_purpose::STANDARD.decode(stripped);
        Some(decoded.unwrap_or_else(|_| sent.into_bytes()))
    }

    /// Receives a machine's report. MAAS collects reports and processes them periodically.
    pub fn take_report(&mut self, system_id: &str, report: StatusReport) {
        let due = Due::Report { machine: system_id.to_owned(), report: Box::new(report) };
        self.later(self.durations.status_reports, due);
    }

    /// The hardware could not be installed, which curtin reports on a real machine.
    pub fn installation_failed(&mut self, system_id: &str, why: &str) {
        let report = StatusReport {
            event_type: "finish".to_owned(),
            origin: "curtin".to_owned(),
            name: "cmd-install".to_owned(),
            description: why.to_owned(),
            result: Some("FAILURE".to_owned()),
        };
        self.take_report(system_id, report);
    }

    /// Processes a report.
    pub(super) fn hear(&mut self, system_id: &str, report: &StatusReport) {
        let Some(machine) = self.db.machines.get(system_id) else { return };
        let (status, becomes_vm_host, failed) = (machine.status, machine.becomes_vm_host, report.failed());
        if report.event_type == "start" || failed {
            let (level, kind) = kind_of_event(status, report.result.as_deref());
            self.event(system_id, level, kind, &format!("'{}' {}", report.origin, report.description));
        }
        if !failed || report.event_type != "finish" || !report.is_top_level() {
            return;
        }
        match status {
            Status::Commissioning => self.mark_failed(system_id, COMMISSIONING_FAILED),
            Status::Deploying if !becomes_vm_host => self.mark_failed(system_id, INSTALLATION_FAILED),
            Status::DiskErasing => self.mark_failed(system_id, "Failed to erase disks."),
            _ => {}
        }
    }
}

fn kind_of_event(status: Status, result: Option<&str>) -> (Level, &'static str) {
    let well = matches!(result, None | Some("SUCCESS"));
    match (status, well) {
        (Status::Commissioning, true) => (Level::Debug, "Node commissioning"),
        (Status::Commissioning, false) => (Level::Error, "Node commissioning failure"),
        (Status::Deploying, true) => (Level::Debug, "Node installation"),
        (Status::Deploying, false) => (Level::Error, "Node installation failure"),
        (Status::Deployed, false) if result == Some("FAIL") => (Level::Error, "Node post-installation failure"),
        (Status::EnteringRescueMode, true) => (Level::Debug, "Node entering rescue mode"),
        (Status::EnteringRescueMode, false) => (Level::Error, "Node entering rescue mode failure"),
        _ => (Level::Debug, "Node status event"),
    }
}
