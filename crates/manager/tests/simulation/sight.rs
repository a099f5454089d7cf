//! The actual state of MAAS, and what objects report.

use std::collections::BTreeMap;

use maas_sim::Simulator;
use serde_json::Value;

use crate::manager::Subject;
use crate::world::World;

/// A machine in MAAS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) hostname: String,
    pub(crate) is_vm: bool,
    pub(crate) state: String,
    pub(crate) owner: Option<i64>,
    pub(crate) stamp: Option<String>,
    pub(crate) on: bool,
}

/// Every machine in a MAAS: state, owner, key, whether it is really on.
pub(crate) fn inventory(maas: &Simulator) -> BTreeMap<String, Held> {
    maas.control().with_model(|model| {
        let on = |id: &str| model.world.bodies.get(id).is_some_and(|body| body.bmc.on);
        let machines = model.db.machines.values();
        machines
            .map(|machine| {
                let held = Held {
                    hostname: machine.hostname.clone(),
                    is_vm: machine.vm.is_some(),
                    state: format!("{:?}", machine.status),
                    owner: machine.owner,
                    stamp: machine.annotations.get("capmaas-key").cloned(),
                    on: on(&machine.system_id),
                };
                (machine.system_id.clone(), held)
            })
            .collect()
    })
}

pub(crate) fn condition(object: &Value, type_: &str) -> (String, String) {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&found["reason"]), text(&found["message"]))
}

impl World {
    /// Every machine in the MAAS of the first tenant.
    pub(crate) fn inventory(&self) -> BTreeMap<String, Held> {
        inventory(&self.maas)
    }

    /// What an object reports about itself, for the trace.
    pub(crate) fn story(&self, subject: &Subject) -> String {
        let (kind, condition, key) = match subject {
            Subject::Cluster(key) => ("MaasCluster", "Ready", key),
            Subject::Machine(key) => ("MaasMachine", "MachineDeployed", key),
            Subject::Hosts(_) => return "the LXD hosts".to_owned(),
        };
        let Some(object) = self.port.object(kind, key) else { return format!("{kind} {key} is gone") };
        let (reason, message) = self::condition(&object, condition);
        format!("{kind} {key} {reason}: {message} {}", object["metadata"]["annotations"])
    }

    /// A fingerprint of everything that happened.
    pub(crate) fn fingerprint(&self) -> Vec<String> {
        let ledger = self.maas.control().ledger(None);
        let asked =
            ledger.iter().map(|entry| format!("{} {} {:?} {:?}", entry.at, entry.kind, entry.machine, entry.effects));
        self.trace.iter().cloned().chain(asked).collect()
    }

    pub(crate) fn fail(&self, why: &str) -> ! {
        let last = self.trace.iter().rev().take(60).rev().cloned().collect::<Vec<_>>().join("\n");
        let inventory = self.inventory();
        let writes = self.maas.control().ledger(None).into_iter().filter(|entry| entry.method != "GET");
        let writes: Vec<String> = writes
            .map(|it| {
                format!(
                    "{} {} {} {:?} {:?} {:?} {:?}",
                    it.at, it.user, it.kind, it.machine, it.status, it.effects, it.faults
                )
            })
            .collect();
        let writes = writes.join("\n");
        panic!(
            "{:?} seed {}: {why}\nreplay it with: make simulate SEED={}\nMAAS: {inventory:#?}\nwhat was sent:\n{writes}\n\
             the last passes:\n{last}",
            self.cast, self.seed, self.seed
        );
    }
}
