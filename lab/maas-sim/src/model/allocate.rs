//! `op=allocate`: constraints, the cheapest match, and VMs composed when nothing matches.

use super::{
    Model, Outcome, Refusal, Status,
    bridges::BridgeOptions,
    compose::ComposeRequest,
    db::Machine,
    machines::Permission,
    refusal::FormCheck,
    wanted::{CONSTRAINTS, Parameters, Wanted},
};
use crate::ledger::Effect;
use crate::version::Change;

/// Parameters that are not constraints and are always accepted.
pub const OPTIONS: &[&str] =
    &["op", "agent_name", "comment", "bridge_all", "bridge_type", "bridge_stp", "bridge_fd", "dry_run", "verbose"];

/// A parsed request.
#[derive(Clone, Debug, Default)]
pub struct AllocateRequest {
    /// All parameters as received, without `op`: MAAS repeats them in its refusal.
    pub data: Vec<(String, String)>,
    pub agent_name: String,
    pub comment: Option<String>,
    pub dry_run: bool,
    pub verbose: bool,
    pub bridge_all: Option<BridgeOptions>,
}

impl Model {
    /// Returns the machine, which belongs to the user unless it was a dry run.
    pub fn allocate(&mut self, user: i64, request: &AllocateRequest) -> Outcome<String> {
        let mut check = FormCheck::default();
        let known = |key: &str| ["name", "system_id"].contains(&key) || OPTIONS.contains(&key);
        let wanted = self.parse_wanted(Parameters(&request.data), known, &mut check);
        check.done()?;
        let found = self.cheapest(user, &wanted).map(|machine| machine.system_id.clone());
        let may_compose = wanted.system_id.is_empty() || !self.version.has(Change::NoComposeById);
        let system_id = match found {
            Some(system_id) => system_id,
            None if may_compose => match self.compose_for(user, &request.data, &wanted) {
                Some(system_id) => system_id,
                None => return Err(Self::nothing_matches(request, &wanted)),
            },
            None => return Err(Self::nothing_matches(request, &wanted)),
        };
        if !request.dry_run {
            self.acquire(&system_id, user, &request.agent_name, request.comment.as_deref());
            let name = self.user_name(Some(user)).to_owned();
            self.effect(Effect::Allocated { machine: system_id.clone(), user: name });
            if let Some(options) = &request.bridge_all {
                self.bridge_all(&system_id, options);
            }
        }
        Ok(system_id)
    }

    fn nothing_matches(request: &AllocateRequest, wanted: &Wanted) -> Refusal {
        if let Some(system_id) = wanted.system_id.last() {
            return Refusal::conflict(format!("No machine with system ID {system_id} available."));
        }
        let parameters = Parameters(&request.data);
        let mut keys: Vec<&str> = Vec::new();
        for (key, _) in &request.data {
            if !keys.contains(&key.as_str()) {
                keys.push(key);
            }
        }
        let given: Vec<String> = keys
            .iter()
            .map(|key| {
                let values: Vec<String> = parameters.all(key).iter().map(|value| format!("'{value}'")).collect();
                format!("('{key}', [{}])", values.join(", "))
            })
            .collect();
        let ids = |ids: &[i64]| {
            let mut ids = ids.to_vec();
            ids.sort_unstable();
            ids.dedup();
            let texts: Vec<String> = ids.iter().map(ToString::to_string).collect();
            (!texts.is_empty()).then(|| texts.join(","))
        };
        let number = |value: Option<f64>| value.map(|value| format!("{value:?}"));
        let mut resolved: Vec<String> = Vec::new();
        for key in CONSTRAINTS.iter().chain(&["name", "system_id"]) {
            let text = match *key {
                "cpu_count" => number(wanted.cpu_count),
                "cpu_speed" => number(wanted.cpu_speed),
                "link_speed" => number(wanted.link_speed),
                "mem" => number(wanted.mem),
                "arch" => (!wanted.arch.is_empty()).then(|| wanted.arch.join(",")),
                "subnets" => ids(&wanted.subnets),
                "not_subnets" => ids(&wanted.not_subnets),
                "vlans" => ids(&wanted.vlans),
                "not_vlans" => ids(&wanted.not_vlans),
                // MAAS has converted it to a boolean by then.
                "deployment_target" => wanted.ephemeral.map(|memory| if memory { "True" } else { "False" }.to_owned()),
                "tags" => {
                    let mut values = parameters.list(key);
                    values.sort();
                    (!values.is_empty()).then(|| values.join(","))
                }
                "storage" | "interfaces" | "devices" => parameters.one(key).map(str::to_owned),
                _ => {
                    let values = parameters.list(key);
                    (!values.is_empty()).then(|| values.join(","))
                }
            };
            if let Some(text) = text {
                resolved.push(format!("{key}={text}"));
            }
        }
        // Options are not constraints.
        if resolved.is_empty() {
            return Refusal::conflict("No machine available.");
        }
        resolved.sort();
        Refusal::conflict(format!(
            "No available machine matches constraints: [{}] (resolved to \"{}\")",
            given.join(", "),
            resolved.join(" ")
        ))
    }

    fn cheapest(&self, user: i64, wanted: &Wanted) -> Option<&Machine> {
        self.db
            .machines
            .values()
            .filter(|machine| machine.status == Status::Ready && machine.owner.is_none())
            .filter(|machine| self.may(user, machine, Permission::View) && self.fits(machine, wanted))
            .min_by(|a, b| a.cost().total_cmp(&b.cost()).then(a.id.cmp(&b.id)))
    }

    /// Composes a VM for a request that no machine matches. Zone, tags and the pod constraints are matched against the
    /// VM hosts; size, architecture, disks and interfaces are those of the VM, and the form for composing checks them;
    /// name, pool, subnets and `not_in_zone` are ignored.
    fn compose_for(&mut self, user: i64, data: &[(String, String)], wanted: &Wanted) -> Option<String> {
        let parameters = Parameters(data);
        let whole = |number: Option<f64>| number.map(|number| number.trunc().to_string());
        let text = |name: &str| parameters.one(name).map(str::to_owned);
        let request = ComposeRequest {
            cores: whole(wanted.cpu_count),
            memory: whole(wanted.mem),
            architecture: wanted.arch.iter().min().cloned(),
            storage: text("storage"),
            interfaces: text("interfaces"),
            skip_commissioning: true,
            dynamic: true,
            ..ComposeRequest::default()
        };
        let candidates: Vec<i64> = self
            .db
            .vm_hosts
            .values()
            .filter(|host| host.discovered())
            .filter(|host| {
                let zone = self.db.zones.get(&host.zone).map_or("", |zone| zone.name.as_str());
                // Of several zones only the last counts here. The name of a host is matched as a whole, also where the
                // filter for machines accepts a part of it.
                wanted.zone.last().is_none_or(|name| name == zone)
                    && (wanted.pod.is_empty() || wanted.pod.contains(&host.name))
                    && !wanted.not_pod.contains(&host.name)
                    && (wanted.pod_type.is_empty() || wanted.pod_type.contains(&host.kind))
                    && !wanted.not_pod_type.contains(&host.kind)
                    && wanted.tags.iter().all(|tag| host.tags.contains(tag))
                    && (wanted.not_tags.is_empty() || !wanted.not_tags.iter().all(|tag| host.tags.contains(tag)))
            })
            .map(|host| host.id)
            .collect();
        candidates.into_iter().find_map(|host| self.compose(host, user, &request).ok())
    }
}
