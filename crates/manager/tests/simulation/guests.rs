//! Control planes and a MachineDeployment on LXD hosts, and a simulated Cluster API: it replaces Machines that are
//! deleted or unhealthy, one at a time, and rolls out changes.

use std::collections::{BTreeMap, BTreeSet};

use capmaas_api::names::CLUSTER_NAME_LABEL;
use capmaas_manager::kubernetes::Key;
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::law::{held, is_leaving};
use crate::manager::Manager;
use crate::objects::{Endpoint, HOME, Home, cluster, create, key, machine};
use crate::story::CAROL;
use crate::torments::Torment;
use crate::vms;
use crate::world::{Cast, World};

/// A second cluster with VMs on the same hosts.
pub(crate) const GUEST: Home = Home { namespace: HOME.namespace, cluster: "g2" };
/// Cluster API's finalizer on its Machines.
pub(crate) const FINALIZER: &str = "machine.cluster.x-k8s.io";
/// Conditions that a healthy Machine has.
const CONDITIONS: [&str; 6] = [
    "NodeHealthy",
    "APIServerPodHealthy",
    "ControllerManagerPodHealthy",
    "SchedulerPodHealthy",
    "EtcdPodHealthy",
    "EtcdMemberHealthy",
];
/// How long a Machine is unhealthy before a health check replaces it, in milliseconds.
const PATIENCE: i64 = 480_000;

/// One in this many runs with VMs has guests.
pub(crate) const EVERY: u64 = 25;

/// An owner that replaces Machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) home: Home,
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) replicas: usize,
}

pub(crate) const CONTROL_PLANE: &str = "KubeadmControlPlane";
pub(crate) const DEPLOYMENT: &str = "MachineDeployment";
pub(crate) const GROUPS: [Group; 4] = [
    Group { home: HOME, name: "cp", kind: CONTROL_PLANE, replicas: 3 },
    Group { home: GUEST, name: "gp", kind: CONTROL_PLANE, replicas: 3 },
    Group { home: GUEST, name: "solo", kind: CONTROL_PLANE, replicas: 1 },
    Group { home: GUEST, name: "md", kind: DEPLOYMENT, replicas: 2 },
];

impl Group {
    pub(crate) fn object(self, world: &World) -> Option<Value> {
        world.port.object(self.kind, &self.home.key(self.name))
    }

    /// Whether a Machine belongs to this group, by its name: `cp-7` belongs to `cp`.
    pub(crate) fn has(self, machine: &Value) -> bool {
        machine["metadata"]["name"].as_str().and_then(|name| name.rsplit_once('-')).is_some_and(|it| it.0 == self.name)
    }

    /// The Machines of this group among these.
    pub(crate) fn members(self, machines: &[Value]) -> Vec<&Value> {
        machines.iter().filter(|machine| self.has(machine)).collect()
    }

    /// All members exist, are healthy, and none is being deleted.
    pub(crate) fn is_whole(self, machines: &[Value]) -> bool {
        let members = self.members(machines);
        members.len() == self.replicas && members.iter().all(|machine| is_well(machine) && !is_leaving(machine))
    }

    /// Whether its Machines may be replaced at all to evacuate a host.
    pub(crate) fn may_move(self) -> bool {
        self.kind == DEPLOYMENT || self.replicas >= 3
    }
}

/// Whether all conditions of a Machine are good.
pub(crate) fn is_well(machine: &Value) -> bool {
    let conditions = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let holds = |type_: &&str| conditions.iter().any(|it| it["type"] == **type_ && it["status"] == "True");
    !machine["status"]["nodeRef"].is_null() && CONDITIONS.iter().all(holds)
}

pub(crate) fn is_paused(world: &World, home: Home) -> bool {
    world.port.object("Cluster", &home.cluster_key()).is_none_or(|cluster| cluster["spec"]["paused"] == true)
}

/// The owners of VMs on LXD hosts that are evacuated.
pub(crate) struct Guests {
    pub(crate) chance: Chance,
    /// A second manager with its own caches, as during the rollout of a new version.
    pub(crate) second: Manager,
    /// When Cluster API reconciles next.
    next: i64,
    made: u32,
    ill_since: BTreeMap<Key, i64>,
    /// By group: UIDs of the Machines that the manager has deleted and that are not replaced yet.
    pub(crate) taken: BTreeMap<&'static str, BTreeSet<String>>,
    /// The number of the host that a rollout is going to replace.
    pub(crate) outdated_host: Option<u32>,
    /// When somebody last disturbed hosts. The manager's knowledge about them may be some seconds old.
    pub(crate) disturbed: i64,
    /// Instances in LXD before the current pass, by address.
    pub(crate) instances: BTreeMap<String, usize>,
}

impl Guests {
    /// Whether a run has guests: only a few of those with VMs, because they cost several times as much.
    pub(crate) fn of(seed: u64, cast: Cast, second: impl FnOnce() -> Manager) -> Option<Self> {
        let (next, made, ill_since, taken) = (0, 0, BTreeMap::new(), BTreeMap::new());
        let are_there = Torment::Evacuation.is_on() && cast == Cast::Vms && seed % EVERY == 2;
        are_there.then(|| Self {
            chance: Chance::new(seed ^ 0x0e7a_c0a7),
            second: second(),
            next,
            made,
            ill_since,
            taken,
            outdated_host: None,
            disturbed: 0,
            instances: BTreeMap::new(),
        })
    }

    /// A second cluster, sometimes with its own identity for the same MAAS, and all owners of Machines.
    pub(crate) fn come(&mut self, world: &World) {
        let mut spec = json!({});
        if self.chance.percent(40) {
            let data = json!({ "apiKey": CAROL, "maasEndpoint": world.endpoint() });
            let metadata = json!({ "name": "guest-maas", "namespace": GUEST.namespace });
            create(world, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data }));
            spec["identityRef"] = json!({ "name": "guest-maas" });
        }
        cluster(world, GUEST, Endpoint::Users, &spec);
        for group in GROUPS {
            let metadata = json!({ "name": group.name, "namespace": group.home.namespace });
            let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1, "maxSurge": 1 } });
            let (version, spec) = if group.kind == CONTROL_PLANE {
                ("controlplane.cluster.x-k8s.io/v1beta2", json!({ "kubeadmConfigSpec": {} }))
            } else {
                ("cluster.x-k8s.io/v1beta2", json!({ "rollout": { "strategy": strategy } }))
            };
            let mut object = json!({ "apiVersion": version, "kind": group.kind, "metadata": metadata, "spec": spec });
            object["spec"]["replicas"] = json!(group.replicas);
            object["spec"]["version"] = json!("1");
            let made = create(world, object);
            if group.kind == DEPLOYMENT {
                let owner = json!([owner_of(&made)]);
                let metadata =
                    json!({ "name": group.name, "namespace": group.home.namespace, "ownerReferences": owner });
                create(world, json!({ "apiVersion": version, "kind": "MachineSet", "metadata": metadata, "spec": {} }));
            }
        }
    }

    /// Cluster API acts every few seconds.
    pub(crate) fn play(&mut self, world: &mut World) {
        if world.time < self.next {
            return;
        }
        self.next = world.time + 1_000 + i64::try_from(self.chance.below(12_000)).unwrap();
        self.look_after_machines(world);
        for group in GROUPS {
            if !is_paused(world, group.home) {
                self.look_after(world, group);
            }
        }
    }

    /// The infrastructure of deleted Machines is deleted with them; the others report their health.
    fn look_after_machines(&mut self, world: &World) {
        let inventory = world.inventory();
        let hosts_on: BTreeSet<&String> =
            inventory.values().filter(|it| vms::is_host(it) && it.on).map(|it| &it.hostname).collect();
        for machine in world.port.objects("Machine") {
            let of = key(&machine);
            let home = if machine["spec"]["clusterName"] == GUEST.cluster { GUEST } else { HOME };
            let kept = machine["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&json!(FINALIZER)));
            if !kept || of.namespace != HOME.namespace || is_paused(world, home) {
                continue;
            }
            let object = world.port.object("MaasMachine", &of);
            if is_leaving(&machine) {
                match object {
                    // Draining takes time.
                    Some(object) if !is_leaving(&object) && self.chance.percent(60) => {
                        world.port.delete("MaasMachine", &of);
                    }
                    Some(_) => {}
                    None => {
                        let none = json!({ "metadata": { "finalizers": null } });
                        world.port.edit("Machine", &of, &none).unwrap();
                    }
                }
                continue;
            }
            let well = object.as_ref().is_some_and(|object| {
                let id = held(object).unwrap_or_default();
                let host = object["status"]["lxdHost"].as_str().map(str::to_owned);
                object["status"]["ready"] == true
                    && !is_leaving(object)
                    && inventory.get(&id).is_some_and(|it| it.state == "Deployed" && (it.on || it.is_vm))
                    && host.is_none_or(|host| hosts_on.contains(&host))
            });
            if well || !machine["status"]["nodeRef"].is_null() {
                let said = if well { "True" } else { "False" };
                let outdated = self.outdated_host.is_some_and(|number| of.name == format!("host{number}"));
                let mut conditions = CONDITIONS.map(|type_| json!({ "type": type_, "status": said })).to_vec();
                let is = if outdated { "False" } else { "True" };
                conditions.extend(of.name.starts_with("host").then(|| json!({ "type": "UpToDate", "status": is })));
                let status = json!({ "nodeRef": { "name": of.name }, "conditions": conditions });
                world.port.set_status("Machine", &of, status).unwrap();
            }
        }
    }

    /// One step of a control plane or a MachineDeployment.
    fn look_after(&mut self, world: &mut World, group: Group) {
        let Some(object) = group.object(world) else { return };
        let machines = world.port.objects("Machine");
        let members = group.members(&machines);
        if group.is_whole(&machines) {
            self.taken.remove(group.name);
        }
        let is_current = |machine: &&&Value| machine["spec"]["version"] == object["spec"]["version"];
        let status = json!({
            "observedGeneration": object["metadata"]["generation"], "replicas": members.len(),
            "upToDateReplicas": members.iter().filter(is_current).count(),
        });
        let outdated = members.iter().find(|machine| !is_current(machine)).copied();
        let going = members.iter().filter(|machine| is_leaving(machine)).count();
        let staying = members.len() - going;
        let ill = self.ill(world, &members);
        let all_well = members.iter().all(|machine| is_well(machine));
        if going > 0 && (group.kind == CONTROL_PLANE || staying >= group.replicas) {
            // One at a time.
        } else if let Some(ill) = ill.filter(|_| going == 0) {
            world.tell(format!("Cluster API replaces {ill}, which is ill"));
            world.port.delete("Machine", &ill);
        } else if staying < group.replicas || outdated.is_some() && all_well && staying == group.replicas {
            self.add(world, group, &object);
        } else if all_well && staying > group.replicas {
            let one = key(outdated.unwrap_or(members[0]));
            world.tell(format!("Cluster API deletes {one}, which is one too many"));
            world.port.delete("Machine", &one);
        }
        world.port.set_status(group.kind, &group.home.key(group.name), status).unwrap();
    }

    /// A Machine that has lost its infrastructure, or has been unhealthy for long.
    fn ill(&mut self, world: &World, members: &[&Value]) -> Option<Key> {
        let mut lost = None;
        for machine in members {
            let of = key(machine);
            if is_well(machine) {
                self.ill_since.remove(&of);
                continue;
            }
            let since = *self.ill_since.entry(of.clone()).or_insert(world.time);
            let gone = world.port.object("MaasMachine", &of).is_none_or(|object| is_leaving(&object));
            if gone || world.time - since > PATIENCE {
                lost.get_or_insert(of);
            }
        }
        lost
    }

    fn add(&mut self, world: &mut World, group: Group, object: &Value) {
        let name = format!("{}-{}", group.name, self.made);
        self.made += 1;
        world.tell(format!("Cluster API makes {name}"));
        machine(world, group.home, &name, None, group.kind == CONTROL_PLANE, &vms::plain());
        let of = group.home.key(&name);
        let mut labels = json!({ CLUSTER_NAME_LABEL: group.home.cluster });
        let mut owner = owner_of(object);
        if group.kind == DEPLOYMENT {
            labels["cluster.x-k8s.io/deployment-name"] = json!(group.name);
            owner = owner_of(&world.port.object("MachineSet", &group.home.key(group.name)).unwrap());
        }
        let patch = json!({
            "metadata": { "labels": labels, "ownerReferences": [owner], "finalizers": [FINALIZER] },
            "spec": { "version": object["spec"]["version"] },
        });
        world.port.edit("Machine", &of, &patch).unwrap();
    }
}

/// The reference to the owner that creates replacements.
fn owner_of(object: &Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"], "controller": true,
    })
}

impl World {
    /// Runs `what` with the guests, if there are any.
    pub(crate) fn with_guests(&mut self, what: impl FnOnce(&mut Guests, &mut Self)) {
        if let Some(mut guests) = self.guests.take() {
            what(&mut guests, self);
            self.guests = Some(guests);
        }
    }
}
