//! The status: what was observed, and the conditions.

use capmaas_api::cluster::Initialization;
use capmaas_api::machine_status::{AddressType, MachineAddress};
use capmaas_api::names::PAUSED_ANNOTATION;
use capmaas_api::{
    ConditionStatus, Conditions as _, MaasMachineStatus, ProvisioningMode, Severity, conditions, reasons,
};
use jiff::Timestamp;

use super::decide::Step;
use super::vm_status;
use super::{Observed, wanted};
use crate::Lookup;
use crate::conditions::{Verdict, replace};
use crate::intent::Intent;
use crate::maas::{self, Power};
use crate::pause;
use crate::text::beginning;

/// The condition `MachineDeployed`, from which `Ready` follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) status: ConditionStatus,
    pub(super) severity: Severity,
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// We cannot get beyond this by ourselves: Cluster API may treat the Machine as failed (v1beta1 contract).
    pub(super) terminal: bool,
}

impl Progress {
    pub(super) fn deployed() -> Self {
        Self {
            status: ConditionStatus::True,
            severity: Severity::Info,
            reason: reasons::MACHINE_DEPLOYED,
            message: String::new(),
            terminal: false,
        }
    }

    pub(super) fn not_yet(severity: Severity, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: ConditionStatus::False, severity, reason, message: message.into(), terminal: false }
    }

    pub(super) fn unknown(reason: &'static str, message: impl Into<String>) -> Self {
        let status = ConditionStatus::Undetermined;
        Self { status, severity: Severity::Info, reason, message: message.into(), terminal: false }
    }

    pub(super) fn terminal(mut self) -> Self {
        self.terminal = true;
        self
    }
}

fn stored(observed: &Observed) -> MaasMachineStatus {
    let mut status = observed.object.status.clone().unwrap_or_default();
    status.unreadable.clear();
    status
}

pub(super) fn put(status: &mut MaasMachineStatus, verdict: Verdict, generation: Option<i64>, now: Timestamp) {
    if let Some(condition) = verdict.settle(&status.conditions, generation, now) {
        replace(&mut status.conditions, condition);
    }
}

fn verdict(type_: &'static str, holds: bool, reason: &'static str, message: &str) -> Verdict {
    let status = if holds { ConditionStatus::True } else { ConditionStatus::False };
    Verdict::new(type_, status, reason, message)
}

/// The status of a paused object: unchanged except for that condition.
pub(super) fn paused(observed: &Observed, now: Timestamp) -> MaasMachineStatus {
    let mut status = stored(observed);
    let verdict = pause::verdict(observed.has_annotation(PAUSED_ANNOTATION), true);
    put(&mut status, verdict, observed.object.metadata.generation, now);
    status
}

pub(super) fn of(observed: &Observed, step: &Step, now: Timestamp) -> MaasMachineStatus {
    let generation = observed.object.metadata.generation;
    let deleting = observed.object.metadata.deletion_timestamp.is_some();
    let mut status = stored(observed);
    let was_provisioned = status.initialization.as_ref().and_then(|it| it.provisioned) == Some(true);
    let journal = step.journal.clone().or_else(|| observed.journal().cloned());
    let id = journal.as_ref().and_then(|journal| journal.machine()).map(String::as_str);

    match &observed.in_journal {
        Lookup::Found(metal) if id == Some(metal.id.as_str()) => show(&mut status, metal, observed.power),
        _ if id.is_none() => forget(&mut status),
        _ => {}
    }
    status.provisioning_mode = match wanted(&observed.object, journal.as_ref()).map(|wanted| wanted.intent) {
        Ok(Intent::Metal(_)) => Some(ProvisioningMode::BareMetal),
        Ok(Intent::Vm(_)) => Some(ProvisioningMode::Lxd),
        Err(_) => status.provisioning_mode,
    };
    if let Some(journal) = &journal {
        vm_status::show(&mut status, observed, step, journal, now);
    }

    let mut progress = step.progress.clone();
    // MAAS could not be queried: the last known state stays.
    let stays = progress.status == ConditionStatus::Undetermined && was_provisioned && !deleting;
    if !stays {
        status.ready = progress.status == ConditionStatus::True;
        if was_provisioned || status.ready {
            status.initialization = Some(Initialization { provisioned: Some(true) });
        }
        if progress.terminal && !deleting && !was_provisioned {
            status.failure_reason = Some(progress.reason.to_owned());
            status.failure_message = Some(progress.message.clone());
        } else {
            status.failure_reason = None;
            status.failure_message = None;
        }
        cut(&mut progress.message);
        let deployed = Verdict {
            type_: conditions::MACHINE_DEPLOYED,
            status: progress.status.clone(),
            severity: progress.severity.clone(),
            reason: progress.reason,
            message: progress.message.clone(),
        };
        put(&mut status, deployed, generation, now);
        let ready = match (deleting, &progress.status) {
            (true, _) => verdict(conditions::READY, false, reasons::DELETING, &progress.message),
            (false, ConditionStatus::True) => verdict(conditions::READY, true, reasons::READY, ""),
            (false, _) => Verdict {
                type_: conditions::READY,
                status: progress.status.clone(),
                severity: progress.severity.clone(),
                reason: progress.reason,
                message: format!("MachineDeployed: {}", progress.message),
            },
        };
        put(&mut status, ready, generation, now);
    }
    put(&mut status, pause::verdict(false, false), generation, now);
    if deleting {
        put(
            &mut status,
            verdict(conditions::DELETING, true, reasons::DELETING, &step.progress.message),
            generation,
            now,
        );
    } else if status.conditions.condition(conditions::DELETING).is_some() {
        status.conditions.retain(|condition| condition.type_ != conditions::DELETING);
    }
    dns(&mut status, observed, deleting, now);
    status
}

/// Conditions are for people; the full text is in the log and in events.
pub(super) fn cut(message: &mut String) {
    message.truncate(beginning(message, 1024).len());
}

/// Whether the address is in the cluster's DNS record. Control plane machines only.
fn dns(status: &mut MaasMachineStatus, observed: &Observed, deleting: bool, now: Timestamp) {
    let Lookup::Found(attached) = observed.in_dns else { return };
    status.dns_attached = attached;
    let (reason, message) = match (attached, deleting) {
        (true, false) => (reasons::DNS_ATTACHED, ""),
        (true, true) => {
            (reasons::DNS_DETACH_PENDING, "the address leaves the DNS record before the machine is released")
        }
        (false, false) => (reasons::DNS_ATTACH_PENDING, "the address is not in the DNS record yet"),
        (false, true) => (reasons::DELETED, "the address has left the DNS record"),
    };
    let generation = observed.object.metadata.generation;
    put(status, verdict(conditions::DNS_ATTACHED, attached, reason, message), generation, now);
}

fn show(status: &mut MaasMachineStatus, metal: &maas::Machine, asked: Option<Power>) {
    let power = asked.filter(|power| *power != Power::Unknown).unwrap_or(metal.power);
    status.machine_state = Some(metal.state_name.clone());
    status.machine_powered = power == Power::On;
    status.hostname = Some(metal.hostname.clone()).filter(|name| !name.is_empty());
    status.failure_domain = Some(metal.zone.clone()).filter(|zone| !zone.is_empty());
    status.addresses = addresses(metal);
}

fn forget(status: &mut MaasMachineStatus) {
    status.machine_state = None;
    status.machine_powered = false;
    status.hostname = None;
    status.failure_domain = None;
    status.addresses = Vec::new();
    status.dns_attached = false;
}

/// Names, then each address as an external and an internal one, as the Go provider did. Does not rely on any order in MAAS.
fn addresses(metal: &maas::Machine) -> Vec<MachineAddress> {
    let mut all = Vec::new();
    let mut add = |type_: AddressType, address: &str| {
        let one = MachineAddress { type_, address: address.to_owned() };
        if !address.is_empty() && !all.contains(&one) {
            all.push(one);
        }
    };
    add(AddressType::Hostname, &metal.hostname);
    add(AddressType::ExternalDns, &metal.fqdn);
    add(AddressType::InternalDns, &metal.fqdn);
    for address in metal.addresses.iter().filter(|address| address.parse::<std::net::IpAddr>().is_ok()) {
        add(AddressType::ExternalIp, address);
        add(AddressType::InternalIp, address);
    }
    all
}
