//! The owner that replaces a Machine (a control plane or a MachineDeployment), and whether it can lose one now.

use capmaas_api::capi::Machine;
use capmaas_api::names::PAUSED_ANNOTATION;
use capmaas_api::{Condition, ConditionStatus, Conditions as _};
use serde_json::Value;

use super::waiting::Waiting;
use crate::failure_domain::{self, Placed};

/// Annotation of a `KubeadmControlPlane` that is replacing an unhealthy machine.
const REMEDIATION: &str = "controlplane.cluster.x-k8s.io/remediation-in-progress";
/// Conditions of every Machine that must be True where they are reported; the first is required.
const OF_MACHINE: [&str; 3] = ["NodeHealthy", "HealthCheckSucceeded", "OwnerRemediated"];
/// Conditions of control plane Machines.
const OF_CONTROL_PLANE: [&str; 3] = ["APIServerPodHealthy", "ControllerManagerPodHealthy", "SchedulerPodHealthy"];
/// The same where the control plane has a stacked etcd.
const OF_ETCD: [&str; 2] = ["EtcdPodHealthy", "EtcdMemberHealthy"];

/// The strategy of a MachineDeployment that replaces only what somebody deletes.
const ON_DELETE: &str = "OnDelete";

/// The owner that replaces a Machine when it is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Kind and name, for people.
    pub name: String,
    /// How many Machines may be missing.
    pub allowance: Allowance,
    /// The desired number of Machines; `None` if it is not specified.
    pub desired: Option<usize>,
    /// Why it must not be disturbed.
    pub unsettled: Option<Unsettled>,
    /// Where it creates Machines.
    pub domains: Domains,
    /// The MaasMachineTemplate of the Machines that it creates.
    pub template: Option<String>,
    /// Its Machines, read live.
    pub members: Vec<Member>,
}

/// The failure domains in which a group creates Machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Domains {
    /// The one that its template names; `None`: any.
    Template(Option<String>),
    /// Those that KubeadmControlPlane spreads its machines over; none: any.
    Spread(Vec<String>),
}

/// How many Machines of a group may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowance {
    /// A control plane may miss one, if it keeps its quorum without it.
    ControlPlane {
        /// Its machines are the members of its etcd.
        stacked_etcd: bool,
    },
    /// As a MachineDeployment specifies.
    Unavailable(usize),
    /// Not specified, for this reason.
    Unknown(String),
}

/// Why a group must not be disturbed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsettled {
    Deleting,
    /// Holds what is paused: it, or a MachineSet of it.
    Paused(String),
    /// Its controller has not observed its latest generation.
    Unobserved,
    /// It replaces its machines by itself: a rollout is under way.
    RollingOut,
    /// It replaces an unhealthy machine.
    Remediating,
}

/// A Machine of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    pub uid: String,
    pub deleting: bool,
    pub failure_domain: Option<String>,
    /// `None` if it is not known.
    pub up_to_date: Option<bool>,
    /// What is wrong with it, or not known about it.
    pub trouble: Option<String>,
}

impl Group {
    /// From a stored `KubeadmControlPlane`, the Machines that it owns, and the failure domains of its Cluster.
    pub fn control_plane(object: &Value, machines: &[Machine], failure_domains: Vec<String>) -> Self {
        let etcd = &object["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["etcd"]["external"];
        let stacked_etcd = etcd.is_null();
        let status = &object["status"];
        let up_to_date = up_to_date(status);
        let all_up_to_date = up_to_date.is_some() && up_to_date == number(&status["replicas"]);
        let desired = number(&object["spec"]["replicas"]);
        let remediating = !object["metadata"]["annotations"][REMEDIATION].is_null();
        let unsettled = unsettled(object).or_else(|| {
            if remediating {
                Some(Unsettled::Remediating)
            } else {
                (up_to_date != desired || up_to_date.is_none()).then_some(Unsettled::RollingOut)
            }
        });
        let conditions: Vec<&str> =
            OF_CONTROL_PLANE.into_iter().chain(OF_ETCD.into_iter().filter(|_| stacked_etcd)).collect();
        Self {
            name: named(object),
            allowance: Allowance::ControlPlane { stacked_etcd },
            desired,
            unsettled,
            domains: Domains::Spread(failure_domains),
            template: template(&object["spec"]["machineTemplate"]),
            members: machines.iter().map(|machine| member(machine, &conditions, all_up_to_date)).collect(),
        }
    }

    /// The replacement of a Machine of this MachineDeployment: from the stored object, the MachineSet that owns the Machine, and the
    /// Machines of all its MachineSets.
    pub fn deployment(object: &Value, set: &Value, machines: &[Machine]) -> Self {
        let desired = number(&object["spec"]["replicas"]);
        let status = &object["status"];
        // A rollout under way creates more machines than desired, or replaces some itself, which OnDelete leaves to others.
        let outdated = up_to_date(status) != number(&status["replicas"]) && !is_on_delete(object);
        let rolling = outdated || desired.is_some_and(|desired| machines.len() > desired);
        let domain = object["spec"]["template"]["spec"]["failureDomain"].as_str().filter(|name| !name.is_empty());
        Self {
            name: named(object),
            allowance: allowance(object, desired),
            desired,
            unsettled: unsettled(object).or_else(|| paused(set)).or_else(|| rolling.then_some(Unsettled::RollingOut)),
            domains: Domains::Template(domain.map(str::to_owned)),
            template: template(&object["spec"]["template"]),
            members: machines.iter().map(|machine| member(machine, &[], false)).collect(),
        }
    }

    /// Whether this Machine may be deleted now.
    pub fn may_lose(&self, machine: &str) -> Result<(), Waiting> {
        let group = || self.name.clone();
        if let Some(unsettled) = &self.unsettled {
            return Err(Waiting::Unsettled(group(), unsettled.clone()));
        }
        let Some(desired) = self.desired else {
            return Err(Waiting::Unknown(format!("how many machines {} should have", self.name)));
        };
        let Some(own) = self.members.iter().find(|member| member.name == machine) else {
            return Err(Waiting::Unknown(format!("whether the Machine {machine} is one of {}", self.name)));
        };
        if let Some(why) = &own.trouble {
            return Err(Waiting::Unhealthy(own.name.clone(), why.clone()));
        }
        match &self.allowance {
            Allowance::Unknown(why) => Err(Waiting::NoAllowance(group(), why.clone())),
            Allowance::ControlPlane { .. } if desired <= 1 => Err(Waiting::OnlyOne(group())),
            Allowance::ControlPlane { stacked_etcd: true } if desired < 3 => Err(Waiting::NoQuorum(group())),
            Allowance::ControlPlane { .. } => self.is_whole(desired),
            Allowance::Unavailable(allowed) => {
                let well = self.members.iter().filter(|member| !member.deleting && member.trouble.is_none()).count();
                let missing = desired.saturating_sub(well);
                if missing < *allowed {
                    return Ok(());
                }
                Err(Waiting::Budget { group: group(), missing, allowed: *allowed })
            }
        }
    }

    /// For each of the next Machines: the failure domains in which it may be created once `leaving` and all that are being deleted
    /// are gone. None: in any.
    pub fn next_domains(&self, leaving: Option<&str>, count: usize) -> Vec<Vec<String>> {
        let spread = match &self.domains {
            Domains::Template(domain) => return vec![domain.iter().cloned().collect(); count],
            Domains::Spread(spread) => spread,
        };
        let stays = self.members.iter().filter(|it| !it.deleting && Some(it.name.as_str()) != leaving);
        let placed = |it: &Member| Some((it.failure_domain.clone(), it.up_to_date?));
        let Some(mut placed) = stays.map(placed).collect::<Option<Vec<_>>>() else {
            return vec![spread.clone(); count];
        };
        let mut next = || {
            let machines = placed
                .iter()
                .map(|(domain, up_to_date)| Placed { failure_domain: domain.as_deref(), up_to_date: *up_to_date });
            let chosen = failure_domain::next(spread, &machines.collect::<Vec<_>>()).map(str::to_owned);
            placed.push((chosen.clone(), true));
            chosen.into_iter().collect()
        };
        (0..count).map(|_| next()).collect()
    }

    /// All Machines exist, are healthy, and none is being deleted.
    fn is_whole(&self, desired: usize) -> Result<(), Waiting> {
        if let Some(leaving) = self.members.iter().find(|member| member.deleting) {
            return Err(Waiting::OtherLeaves(self.name.clone(), leaving.name.clone()));
        }
        if self.members.len() != desired {
            return Err(Waiting::Incomplete { group: self.name.clone(), has: self.members.len(), wants: desired });
        }
        match self.members.iter().find_map(|member| Some((member, member.trouble.as_ref()?))) {
            Some((member, why)) => Err(Waiting::Unhealthy(member.name.clone(), why.clone())),
            None => Ok(()),
        }
    }
}

fn number(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|number| usize::try_from(number).ok())
}

fn up_to_date(status: &Value) -> Option<usize> {
    number(&status["upToDateReplicas"]).or_else(|| number(&status["updatedReplicas"]))
}

fn named(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// The MaasMachineTemplate that the template of a Machine names: in its spec, or beside it up to v1beta1 of a control plane.
fn template(of: &Value) -> Option<String> {
    let reference =
        [&of["spec"]["infrastructureRef"], &of["infrastructureRef"]].into_iter().find(|it| it.is_object())?;
    (reference["kind"] == "MaasMachineTemplate").then(|| reference["name"].as_str().map(str::to_owned))?
}

fn unsettled(object: &Value) -> Option<Unsettled> {
    let metadata = &object["metadata"];
    if !metadata["deletionTimestamp"].is_null() {
        return Some(Unsettled::Deleting);
    }
    let seen = number(&object["status"]["observedGeneration"]);
    let unobserved = seen.is_none() || seen != number(&metadata["generation"]);
    paused(object).or_else(|| unobserved.then_some(Unsettled::Unobserved))
}

/// A paused owner does not replace what is deleted.
fn paused(object: &Value) -> Option<Unsettled> {
    let is = !object["metadata"]["annotations"][PAUSED_ANNOTATION].is_null() || object["spec"]["paused"] == true;
    is.then(|| Unsettled::Paused(named(object)))
}

/// The strategy of a MachineDeployment: `spec.strategy` up to v1beta1, `spec.rollout.strategy` from v1beta2 on.
fn strategy(object: &Value) -> &Value {
    let spec = &object["spec"];
    if spec["rollout"]["strategy"].is_object() { &spec["rollout"]["strategy"] } else { &spec["strategy"] }
}

fn is_on_delete(object: &Value) -> bool {
    strategy(object)["type"] == ON_DELETE
}

/// How many Machines a MachineDeployment may miss.
fn allowance(object: &Value, desired: Option<usize>) -> Allowance {
    let strategy = strategy(object);
    match strategy["type"].as_str() {
        // Its machines are replaced when somebody deletes them, which is what happens here, one by one.
        Some(ON_DELETE) => Allowance::Unavailable(1),
        Some("RollingUpdate") => {
            let update = &strategy["rollingUpdate"];
            let desired = desired.unwrap_or(0);
            let (Some(unavailable), Some(surge)) =
                (share(&update["maxUnavailable"], 0, desired, false), share(&update["maxSurge"], 1, desired, true))
            else {
                return Allowance::Unknown("its maxUnavailable cannot be read".to_owned());
            };
            // As Cluster API resolves it: with both at zero nothing could ever be replaced.
            Allowance::Unavailable(if unavailable == 0 && surge == 0 { 1 } else { unavailable })
        }
        Some(other) => Allowance::Unknown(format!("its strategy {other} is not known")),
        None => Allowance::Unknown("it has no strategy".to_owned()),
    }
}

/// A number, or a percentage of all; `None` if it is neither.
fn share(value: &Value, absent: usize, of: usize, up: bool) -> Option<usize> {
    match value {
        Value::Null => Some(absent),
        Value::String(text) => {
            let percent: usize = text.strip_suffix('%')?.parse().ok()?;
            let parts = percent.checked_mul(of)?;
            Some(if up { parts.div_ceil(100) } else { parts / 100 })
        }
        value => number(value),
    }
}

fn member(machine: &Machine, more: &[&str], all_up_to_date: bool) -> Member {
    let conditions = &machine.status.conditions;
    let name = machine.metadata.name.clone().unwrap_or_default();
    let deleting = machine.metadata.deletion_timestamp.is_some();
    let trouble = if machine.status.node_ref.is_none() {
        Some("it has no Node yet".to_owned())
    } else if !machine.status.unreadable.is_empty() {
        Some("its status cannot be read".to_owned())
    } else {
        let (first, further) = (&OF_MACHINE[..1], &OF_MACHINE[1..]);
        let must = first.iter().chain(more).find_map(|type_| failing(conditions, type_, true));
        must.or_else(|| further.iter().find_map(|type_| failing(conditions, type_, false)))
    };
    Member {
        name,
        uid: machine.metadata.uid.clone().unwrap_or_default(),
        deleting,
        failure_domain: machine.failure_domain().map(str::to_owned),
        up_to_date: machine.is_up_to_date().or(all_up_to_date.then_some(true)),
        trouble,
    }
}

/// How a condition speaks against a Machine. A required condition that is missing does, too.
fn failing(conditions: &[Condition], type_: &str, required: bool) -> Option<String> {
    match conditions.condition(type_) {
        Some(condition) if condition.status == ConditionStatus::True => None,
        Some(condition) => {
            let message = condition.message.as_deref().unwrap_or_default();
            let words = if message.is_empty() { String::new() } else { format!(": {message}") };
            Some(format!("{type_} is {}{words}", condition.status))
        }
        None => required.then(|| format!("{type_} is not reported")),
    }
}
