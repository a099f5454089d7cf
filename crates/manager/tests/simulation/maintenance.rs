//! LXD hosts that are put into maintenance or deleted, what people do in the meantime, and the invariants about it
//! (S30, S31, S11).

use std::collections::{BTreeMap, BTreeSet};

use capmaas_api::names::{HOLD_EVACUATION_ANNOTATION, MAINTENANCE_ANNOTATION, PAUSED_ANNOTATION};
use capmaas_api::reasons;
use capmaas_core::machine::ABANDON_ANNOTATION;
use capmaas_core::placement::{MAINTENANCE_TAG, is_closing};
use lxd_initializer::names;
use serde_json::{Value, json};

use crate::chaos::bob;
use crate::guests::{CONTROL_PLANE, FINALIZER, GROUPS, GUEST, Group, Guests, is_paused, is_well};
use crate::law::{held, is_leaving};
use crate::lxd_host::{address, lxd_host};
use crate::objects::{HOME, cluster_key, go_machine, key};
use crate::sight::condition;
use crate::vms;
use crate::world::World;

/// Hosts that may be machines of ours. The first one has a VM that nobody can move.
const OURS: [u32; 2] = [2, 3];
/// How old the manager's knowledge about hosts may be, in milliseconds.
const STALE: i64 = 7_000;

/// A host as it is in MAAS.
#[derive(Debug)]
struct Host {
    system_id: String,
    is_closed: bool,
    /// How many more VMs fit on it.
    room: i64,
    /// IDs of the VMs on it.
    vms: BTreeSet<String>,
}

/// The registered hosts, by name.
fn hosts(world: &World) -> BTreeMap<String, Host> {
    let rooms = vms::rooms(world);
    world.maas.control().with_model(|model| {
        let of = |host: &maas_sim::model::db::VmHost| {
            let machine = model.db.machines.get(host.host.as_ref()?)?;
            let is_on = model.world.bodies.get(&machine.system_id).is_some_and(|body| body.bmc.on);
            let on_it = model.db.machines.values().filter(|it| it.vm.as_ref().is_some_and(|vm| vm.vm_host == host.id));
            let seen = Host {
                system_id: machine.system_id.clone(),
                is_closed: host.tags.iter().chain(&machine.tags).any(|tag| is_closing(tag)),
                room: if is_on { rooms.get(&host.name).map_or(0, |cores| cores / vms::VM_CORES) } else { 0 },
                vms: on_it.map(|it| it.system_id.clone()).collect(),
            };
            Some((host.name.clone(), seen))
        };
        model.db.vm_hosts.values().filter_map(of).collect()
    })
}

/// Instances in LXD, by the address of the host.
fn instances(world: &World) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for (address, _) in vms::in_lxd(world) {
        *all.entry(address).or_default() += 1;
    }
    all
}

impl Guests {
    /// Some hosts are machines of ours, as the Go provider left them.
    pub(crate) fn take_hosts(&mut self, world: &World) {
        for number in OURS {
            if self.chance.percent(70) {
                let name = format!("host{number}");
                go_machine(world, &name, &format!("az{number}"), false);
                let patch = json!({ "metadata": { "finalizers": [FINALIZER] } });
                world.port.edit("Machine", &HOME.key(&name), &patch).unwrap();
            }
        }
    }

    /// One action of people on hosts or their VMs.
    pub(crate) fn blow(&mut self, world: &mut World) {
        self.disturbed = world.time;
        if !self.chance.percent(50) {
            return;
        }
        let home = *self.chance.one_of(&[HOME, GUEST]);
        let (what, say) = (self.chance.below(14), self.chance.percent(40));
        match what {
            0..=2 => self.tag(world, true),
            3 => self.tag(world, false),
            4 | 5 => self.annotate(world, say),
            6 => self.delete_host(world),
            7 => {
                let evacuation = if say { json!("Manual") } else { Value::Null };
                world.tell(format!("{} says evacuation: {evacuation}", home.cluster));
                if world.port.object("MaasCluster", &home.cluster_key()).is_some() {
                    let patch = json!({ "spec": { "evacuation": evacuation } });
                    world.port.edit("MaasCluster", &home.cluster_key(), &patch).unwrap();
                }
            }
            8 => self.hold(world, say),
            9 => self.roll_out(world),
            12 => {
                self.outdated_host = if say { None } else { Some(*self.chance.one_of(&OURS)) };
                world.tell(format!("a rollout is going to replace the host {:?}", self.outdated_host));
            }
            10 => {
                world.tell(format!("the manager may delete Machines: {}", !say));
                world.deny_deletions(say);
            }
            11 => {
                let kind = *self.chance.one_of(&["vm-host.add_tag", "vm-host.remove_tag", "machines.read"]);
                let when = if say { "before" } else { "after" };
                world.tell(format!("{kind} is lost {when} it has its effect"));
                let rule = json!({ "match": { "kind": kind }, "do": "reset", "when": when, "times": 1 });
                world.maas.control().add_fault(serde_json::from_value(rule).unwrap());
            }
            _ => {
                world.tell(format!("somebody sets paused of {}: {say}", GUEST.cluster));
                let patch = json!({ "spec": { "paused": say } });
                world.port.edit("Cluster", &GUEST.cluster_key(), &patch).unwrap();
            }
        }
    }

    fn tag(&mut self, world: &mut World, on: bool) {
        let all: Vec<String> = hosts(world).into_keys().collect();
        let tags: &[&str] = if on { &[MAINTENANCE_TAG] } else { &[] };
        let name = self.chance.one_of(&all).clone();
        world.tell(format!("{name} is tagged {tags:?}"));
        world.arrange(json!([{ "machine": { "hostname": name, "tags": tags } }]));
    }

    fn annotate(&mut self, world: &mut World, end: bool) {
        let name = format!("host{}", self.chance.one_of(&OURS));
        let reason = if end { Value::Null } else { json!("new fans") };
        let patch = json!({ "metadata": { "annotations": { MAINTENANCE_ANNOTATION: reason } } });
        if world.port.edit("MaasMachine", &HOME.key(&name), &patch).is_ok() {
            world.tell(format!("{name} is in maintenance: {}", !end));
        }
    }

    fn delete_host(&mut self, world: &mut World) {
        let of = HOME.key(&format!("host{}", self.chance.one_of(&OURS)));
        if world.port.object("Machine", &of).is_some() {
            world.tell(format!("the Machine {of} is deleted"));
            world.port.delete("Machine", &of);
        }
    }

    /// By the annotation for this purpose, or by pausing the Machine.
    fn hold(&mut self, world: &mut World, end: bool) {
        let machines = world.port.objects("Machine");
        let members: Vec<&Value> = machines.iter().filter(|it| GROUPS.iter().any(|group| group.has(it))).collect();
        if members.is_empty() {
            return;
        }
        let member: &&Value = self.chance.one_of(&members);
        let of = key(member);
        let name = *self.chance.one_of(&[HOLD_EVACUATION_ANNOTATION, PAUSED_ANNOTATION]);
        let value = if end { Value::Null } else { json!("") };
        world.tell(format!("{of} has {name}: {value}"));
        world.port.edit("Machine", &of, &json!({ "metadata": { "annotations": { name: value } } })).unwrap();
    }

    fn roll_out(&mut self, world: &mut World) {
        let group = *self.chance.one_of(&GROUPS);
        let version = world.now().to_string();
        world.tell(format!("{} is rolled out", group.name));
        let patch = json!({ "spec": { "version": version } });
        world.port.edit(group.kind, &group.home.key(group.name), &patch).unwrap();
    }

    /// All obstacles are removed, there is room, and at least one host is to be evacuated.
    pub(crate) fn heal(&mut self, world: &mut World) {
        world.deny_deletions(false);
        self.outdated_host = None;
        world.port.edit("Cluster", &GUEST.cluster_key(), &json!({ "spec": { "paused": false } })).unwrap();
        for home in [HOME, GUEST] {
            let automatic = json!({ "spec": { "evacuation": null } });
            world.port.edit("MaasCluster", &home.cluster_key(), &automatic).unwrap();
        }
        let free = json!({ HOLD_EVACUATION_ANNOTATION: null, PAUSED_ANNOTATION: null });
        for machine in world.port.objects("Machine") {
            world.port.edit("Machine", &key(&machine), &json!({ "metadata": { "annotations": free } })).unwrap();
        }
        if hosts(world).values().all(|host| !host.is_closed) {
            self.tag(world, true);
        }
        for number in 5..=8 {
            world.arrange(lxd_host(number, &format!("az{}", number - 4), (16, 32768)));
        }
        self.disturbed = world.time;
    }

    /// Before a pass: the state that its invariants are compared with.
    pub(crate) fn before_a_pass(&mut self, world: &World) {
        self.instances = instances(world);
    }

    /// Checks whether each Machine of `before` that a pass over the hosts has deleted was allowed to be.
    pub(crate) fn heed_deletions(&mut self, world: &mut World, before: &[Value]) {
        for machine in before.iter().filter(|machine| !is_leaving(machine)) {
            let now = world.port.object("Machine", &key(machine));
            if now.is_some_and(|now| now["metadata"]["uid"] == machine["metadata"]["uid"] && !is_leaving(&now)) {
                continue;
            }
            let name = key(machine);
            world.tell(format!("the manager deletes the Machine {name}"));
            world.evacuated += 1;
            if let Err(why) = self.may_go(world, machine, before) {
                world.fail(&format!("the manager deletes the Machine {name} although {why} (S30)"));
            }
        }
    }

    fn may_go(&mut self, world: &World, machine: &Value, all: &[Value]) -> Result<(), String> {
        let Some(group) = GROUPS.into_iter().find(|group| group.has(machine)) else {
            return Err("nothing owns it".to_owned());
        };
        let owner = group.object(world).ok_or("its owner is gone")?;
        if !group.may_move() {
            return Err("it is the only one".to_owned());
        }
        if is_paused(world, group.home) {
            return Err("its Cluster is paused".to_owned());
        }
        let annotations = &machine["metadata"]["annotations"];
        if [HOLD_EVACUATION_ANNOTATION, PAUSED_ANNOTATION].iter().any(|name| !annotations[*name].is_null()) {
            return Err("it is held".to_owned());
        }
        let cluster = world.port.object("MaasCluster", &group.home.cluster_key()).ok_or("its MaasCluster is gone")?;
        if cluster["spec"]["evacuation"] == "Manual" {
            return Err("its cluster does not consent".to_owned());
        }
        if owner["status"]["observedGeneration"] != owner["metadata"]["generation"]
            || owner["status"]["upToDateReplicas"] != owner["status"]["replicas"]
        {
            return Err(format!("{} rolls out", group.name));
        }
        if group.kind == CONTROL_PLANE && !group.is_whole(all) {
            return Err(format!("{} is not whole: {:#?}", group.name, group.members(all)));
        }
        let well = group.members(all).into_iter().filter(|it| is_well(it) && !is_leaving(it)).count();
        if well < group.replicas {
            return Err(format!("{} has {well} that are well", group.name));
        }
        let taken = self.taken.entry(group.name).or_default();
        taken.insert(machine["metadata"]["uid"].as_str().unwrap().to_owned());
        if taken.len() > 1 {
            return Err(format!("{taken:?} of {} are not replaced yet", group.name));
        }
        if world.time - self.disturbed > STALE && !world.is_behind() {
            return had_reason(world, group, machine);
        }
        Ok(())
    }
}

/// A host is closed, and time passes until the manager has deleted a Machine for it, or for two minutes.
pub(crate) async fn until_one_leaves(world: &mut World) {
    let tag = |guests: &mut Guests, world: &mut World| {
        guests.disturbed = world.time;
        guests.tag(world, true);
    };
    world.with_guests(tag);
    for _ in 0..60 {
        let machines = world.port.objects("Machine");
        let taken = |guests: &Guests| {
            let is = |it: &Value| guests.taken.values().flatten().any(|uid| it["metadata"]["uid"] == **uid);
            machines.iter().any(|machine| is_leaving(machine) && is(machine))
        };
        if world.guests.as_ref().is_none_or(taken) {
            return;
        }
        world.run_for(2).await;
    }
}

/// Its host is to be evacuated, and others have room for it and for all VMs that are not placed yet.
fn had_reason(world: &World, group: Group, machine: &Value) -> Result<(), String> {
    let hosts = hosts(world);
    let object = world.port.object("MaasMachine", &key(machine)).ok_or("its MaasMachine is gone")?;
    let id = held(&object).unwrap_or_default();
    if !hosts.values().any(|host| host.is_closed && host.vms.contains(&id)) {
        return Err("its host is not to be emptied".to_owned());
    }
    let room: i64 = hosts.values().filter(|host| !host.is_closed).map(|host| host.room).sum();
    let placed: BTreeSet<&String> = hosts.values().flat_map(|host| &host.vms).collect();
    let machines = world.port.objects("Machine");
    let others = GROUPS.into_iter().filter(|other| *other != group);
    let waiting: usize = others
        .map(|other| {
            let has_place = |it: &&&Value| {
                let object = world.port.object("MaasMachine", &key(it));
                !is_leaving(it) && object.and_then(|it| held(&it)).is_some_and(|id| placed.contains(&id))
            };
            other.replicas.saturating_sub(other.members(&machines).iter().filter(has_place).count())
        })
        .sum();
    if room < 1 + i64::try_from(waiting).unwrap() {
        return Err(format!("there is room for {room}, and {waiting} wait already"));
    }
    Ok(())
}

/// Holds for every request: a host is neither unregistered nor released while an instance is on it (S11).
pub(crate) fn may_be_sent(world: &World, guests: &Guests, entry: &maas_sim::ledger::Entry) {
    let what = ["machine.release", "vm-host.delete"].contains(&entry.kind.as_str());
    if !what || entry.effects.is_empty() {
        return;
    }
    for number in OURS {
        let id = world.maas.control().with_model(|model| model.machine_named(&format!("host{number}")).ok());
        let lost = entry.kind == "vm-host.delete" && !hosts(world).contains_key(&format!("host{number}"));
        let meant = lost || entry.machine.is_some() && entry.machine == id;
        if let Some(count) = guests.instances.get(&address(number)).filter(|count| meant && **count > 0) {
            world.fail(&format!("host{number} has {count} instances, and was given up: {entry:?} (S11)"));
        }
    }
}

/// Why a Machine that may be evacuated has not been, or its group is not complete again.
pub(crate) fn unsettled(world: &World) -> Option<String> {
    world.guests.as_ref()?;
    let (machines, hosts) = (world.port.objects("Machine"), hosts(world));
    let cluster = world.port.object("MaasCluster", &GUEST.cluster_key())?;
    if let Some(owed) = vms::owed(&cluster) {
        return Some(format!("{} still owes {owed}", GUEST.cluster));
    }
    for group in GROUPS {
        if !group.is_whole(&machines) {
            return Some(format!("{} is not whole: {:#?}", group.name, group.members(&machines)));
        }
        for machine in group.members(&machines).into_iter().filter(|_| group.may_move()) {
            let id = world.port.object("MaasMachine", &key(machine)).and_then(|object| held(&object));
            let here = |host: &Host| host.is_closed && id.as_ref().is_some_and(|id| host.vms.contains(id));
            if let Some((host, _)) = hosts.iter().find(|(_, host)| here(host)) {
                let said = condition(&cluster, "Evacuating");
                return Some(format!("{} is still on {host}: {said:?}", key(machine)));
            }
        }
    }
    None
}

/// Whether an object is a host that is being deleted and that only a person can resolve: VMs on it cannot be moved, or
/// its agent has never reported what is on it.
pub(crate) fn is_kept(object: &Value) -> bool {
    let (reason, message) = condition(object, "MachineDeployed");
    object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("host"))
        && (reason == reasons::WAITING_FOR_VMS_TO_LEAVE || message.contains("remove the VM host in MAAS"))
}

/// bob's VM cannot be moved: a person who knows that abandons its host (S14).
pub(crate) fn give_up(world: &World) {
    let (hosts, inventory, bob) = (hosts(world), world.inventory(), bob(world));
    for object in world.originals().into_iter().filter(|object| is_leaving(object) && is_kept(object)) {
        let of_bob = |id: &String| inventory.get(id).is_some_and(|vm| vm.owner == Some(bob));
        if let Some(host) = hosts.get(&key(&object).name).filter(|host| host.vms.iter().all(of_bob)) {
            let note = json!({ "metadata": { "annotations": { ABANDON_ANNOTATION: host.system_id } } });
            world.port.edit("MaasMachine", &key(&object), &note).unwrap();
        }
    }
}

/// The agents on our hosts report what they observe, and stop when asked to.
pub(crate) fn agents_report(world: &World) {
    let inventory = world.inventory();
    let there = vms::in_lxd(world);
    for number in OURS {
        let name = format!("host{number}");
        let Some(mut node) = world.port.node_of(&cluster_key(), &name) else { continue };
        if !inventory.values().any(|machine| machine.hostname == name && machine.on) {
            continue;
        }
        let told = node.annotations.contains_key(names::LEAVE);
        let names_there: Vec<&String> = there.iter().filter(|it| it.0 == address(number)).map(|it| &it.1).collect();
        let state = if told { "Left" } else { "Ready" };
        node.annotations.insert(names::STATE.to_owned(), state.to_owned());
        node.annotations.insert(names::INSTANCES.to_owned(), json!(names_there).to_string());
        world.port.put_node(&cluster_key(), node);
    }
}
