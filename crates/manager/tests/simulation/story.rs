//! Events that happen once in a run: the credentials become another user's or point to an empty MAAS, MAAS is restored
//! from a backup, the cluster is moved to another management cluster, or it was the Go provider's before.

use std::collections::{BTreeMap, BTreeSet};

use capmaas_api::names::DELETE_FOR_MOVE_ANNOTATION;
use capmaas_manager::kubernetes::Key;
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::law::{Seen, held, is_leaving};
use crate::maintenance;
use crate::manager::Subject;
use crate::objects::{HOME, cluster_key, credentials, is_copy};
use crate::world::{ADMIN, Cast, World};

/// Another administrator.
pub(crate) const CAROL: &str = "cc:tc:CANARYcarol";

/// Requests that take something from a machine, or start its life over.
const VIOLENCE: [&str; 3] = ["machine.deploy", "machine.release", "machine.power_off"];

/// The one major event of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Great {
    Nothing,
    OtherUser,
    EmptyMaas,
    Restore,
    Move,
    TakeOver,
}

/// When it happens, and what is checked from then on.
pub(crate) struct Story {
    pub(crate) great: Great,
    begins: u64,
    lasts: u64,
    under_way: bool,
    /// Objects whose machines must not be harmed while they are desired: each with its machine, and the number of
    /// harmful requests before.
    live: BTreeMap<String, (String, usize)>,
    /// Machines about which a restored MAAS has forgotten something.
    excused: BTreeSet<String>,
}

impl Story {
    pub(crate) fn of(chance: &mut Chance, cast: Cast, rounds: u64) -> Self {
        use Great::{EmptyMaas, Move, Nothing, OtherUser, Restore, TakeOver};
        let all: &[Great] = match cast {
            Cast::Metal => &[Nothing, Nothing, OtherUser, EmptyMaas, Restore, Move, TakeOver],
            Cast::Vms => &[Nothing, Nothing, OtherUser, EmptyMaas, Move],
        };
        let great = *chance.one_of(all);
        // A backup from before most machines were allocated forgets the most.
        let (begins, lasts) = match great {
            Restore => (chance.below(4), 3 + chance.below(rounds / 2)),
            _ => (3 + chance.below(rounds - 8), 1 + chance.below(4)),
        };
        Self { great, begins, lasts, under_way: false, live: BTreeMap::new(), excused: BTreeSet::new() }
    }

    /// Whether a machine may be left behind: MAAS has forgotten what it was.
    pub(crate) fn excuses(&self, id: &str) -> bool {
        self.excused.contains(id)
    }

    /// Adopting the Go provider's objects changes nothing in MAAS, except for the stamp (S24).
    pub(crate) fn took_over(&mut self, world: &World) {
        self.live = live(world);
    }

    pub(crate) async fn goes_on(&mut self, world: &mut World, round: u64) {
        let ends = round == self.begins + self.lasts && self.under_way;
        match self.great {
            Great::OtherUser if round == self.begins => {
                world.tell("the credentials are another user's".to_owned());
                credentials(world, &world.endpoint(), CAROL);
            }
            Great::EmptyMaas if round == self.begins => self.leads_elsewhere(world),
            Great::EmptyMaas if ends => self.ends(world),
            Great::Restore if round == self.begins => {
                world.tell("MAAS is backed up".to_owned());
                world.maas.control().backup("b1");
                self.under_way = true;
            }
            Great::Restore if ends => self.restore(world),
            Great::Move if round >= self.begins && !self.under_way => self.under_way = moved(world).await,
            _ => {}
        }
    }

    /// A MAAS without any machine of ours. Only if there is something to lose: a cluster that never did anything may
    /// start there.
    fn leads_elsewhere(&mut self, world: &mut World) {
        if world.originals().iter().all(|object| held(object).is_none()) {
            return;
        }
        // Its machines have the same IDs as ours.
        let mut inventory = vec![
            json!({"zone": {"name": "az1"}}),
            json!({"image": {"name": "ubuntu/jammy"}}),
            json!({"fabric": {"name": "fabric-0", "id": 0}}),
            json!({"vlan": {"fabric": "fabric-0", "vid": 0, "dhcp_on": true}}),
            json!({"subnet": {"cidr": "10.9.0.0/24", "gateway_ip": "10.9.0.254"}}),
        ];
        inventory.extend(world.inventory().keys().map(|id| {
            json!({"machine": {"system_id": id, "hostname": id, "status": "Ready", "zone": "az1", "cpu_count": 4, "memory": 8192}})
        }));
        let inventory = Value::from(inventory);
        let statements: Vec<_> = serde_json::from_value(inventory).unwrap();
        world.elsewhere.control().arrange(&statements).unwrap();
        world.tell("the credentials lead to an empty MAAS".to_owned());
        credentials(world, &world.empty_endpoint(), ADMIN);
        self.under_way = true;
        // Somebody deletes a machine while it cannot be seen.
        let key = world.chance.one_of(&world.machines()).clone();
        world.tell(format!("somebody deletes {}", key.name));
        world.port.delete("MaasMachine", &key);
    }

    /// Ends an event with a duration.
    pub(crate) fn ends(&mut self, world: &mut World) {
        if self.great == Great::EmptyMaas && self.under_way {
            world.tell("the credentials are right again".to_owned());
            credentials(world, &world.endpoint(), ADMIN);
            self.under_way = false;
        }
    }

    fn restore(&mut self, world: &mut World) {
        let before = world.inventory();
        world.maas.control().restore("b1").unwrap();
        let after = world.inventory();
        self.excused = before.into_iter().filter(|(id, held)| after.get(id) != Some(held)).map(|(id, _)| id).collect();
        self.under_way = false;
        self.live = live(world);
        world.lenient = true;
        world.ledgers.restored = true;
        world.after_last_pass = Seen::anew(world);
        world.tell(format!("MAAS is restored; it forgot something about {:?}", self.excused));
    }

    /// What must hold, whatever happened.
    pub(crate) fn check(&self, world: &World) {
        let changed = world.elsewhere.control().ledger(None).into_iter().find(|entry| !entry.effects.is_empty());
        if let Some(entry) = changed {
            world.fail(&format!("a MAAS that is not ours was changed: {entry:?} (S5)"));
        }
        if self.live.is_empty() {
            return;
        }
        let objects = world.originals();
        for object in objects.iter().filter(|object| !is_leaving(object)) {
            if let Some((id, before)) = self.live.get(name(object))
                && harm(world, id) > *before
            {
                world.fail(&format!("{id} is a live node, and was harmed (S6, S9, S24)"));
            }
        }
    }
}

/// If no machine of ours is left by which the other user could prove itself, only a person can resolve that (S5).
pub(crate) fn gives_the_earlier_credentials_back(world: &mut World) {
    // Without its DNS record the cluster has no machine yet, and waits itself.
    let cluster = world.port.object("MaasCluster", &cluster_key());
    let waits = world.originals().iter().chain(&cluster).any(|object| {
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|condition| condition["reason"] == "IdentityChanged")
    });
    if waits && world.inventory().values().all(|held| held.stamp.is_none()) {
        world.tell("the credentials are the earlier user's again".to_owned());
        credentials(world, &world.endpoint(), ADMIN);
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// Live nodes: machines with a provider ID in Kubernetes.
fn live(world: &World) -> BTreeMap<String, (String, usize)> {
    let objects = world.originals();
    let named = objects.iter().filter(|object| object["spec"]["providerID"].is_string());
    named
        .filter_map(|object| held(object).map(|id| (name(object).to_owned(), (id.clone(), harm(world, &id)))))
        .collect()
}

fn harm(world: &World, id: &str) -> usize {
    let of = |kind: &&str| {
        let entries = world.maas.control().ledger(Some(kind));
        entries.iter().filter(|entry| entry.machine.as_deref() == Some(id) && !entry.effects.is_empty()).count()
    };
    VIOLENCE.iter().map(of).sum()
}

/// `clusterctl move`: the Cluster is paused, everything is recreated without status and with new UIDs, and the
/// originals are deleted under an annotation and stripped of their finalizers. MAAS is not touched (S15).
///
/// It moves Machines that are being deleted, too, and their deletion is lost: nothing that is created is being deleted.
/// So an evacuation that it interrupts deletes the Machine once more. Returns whether it was done: with a MaasMachine that
/// is being deleted it waits, because the VM of that may be gone.
async fn moved(world: &mut World) -> bool {
    maintenance::until_one_leaves(world).await;
    let of_kind = |kind: &str| {
        let mut objects = world.port.objects(kind);
        objects.retain(|object| object["metadata"]["namespace"] == HOME.namespace && !is_copy(object));
        objects
    };
    if ["MaasMachine", "MaasCluster"].iter().any(|kind| of_kind(kind).iter().any(is_leaving)) {
        return false;
    }
    let leaving = of_kind("Machine").iter().filter(|it| is_leaving(it)).count();
    let paused: Vec<(Key, Value)> =
        of_kind("Cluster").iter().map(|it| (HOME.key(name(it)), it["spec"]["paused"].clone())).collect();
    let kinds =
        ["Cluster", "KubeadmControlPlane", "MachineDeployment", "MachineSet", "Machine", "MaasCluster", "MaasMachine"];
    for (cluster, _) in &paused {
        world.port.edit("Cluster", cluster, &json!({ "spec": { "paused": true } })).unwrap();
    }
    let objects: Vec<Value> = kinds.iter().flat_map(|kind| of_kind(kind)).collect();
    world.tell(format!("the cluster is moved; {leaving} of its Machines are being deleted"));
    let key = |object: &Value| Key::new("default", name(object));
    let kind = |object: &Value| object["kind"].as_str().unwrap().to_owned();
    let writes = |world: &World| world.maas.control().ledger(None).iter().filter(|entry| entry.method != "GET").count();
    let before = writes(world);
    let mark = json!({ "metadata": { "annotations": { DELETE_FOR_MOVE_ANNOTATION: "" } } });
    for object in objects.iter().rev() {
        world.port.edit(&kind(object), &key(object), &mark).unwrap();
        world.port.delete(&kind(object), &key(object));
        // The manager there is still running.
        match kind(object).as_str() {
            "MaasMachine" => world.pass(&Subject::Machine(key(object))).await,
            "MaasCluster" => world.pass(&Subject::Cluster(key(object))).await,
            "Machine" if world.guests.is_some() => world.pass(&Subject::hosts()).await,
            _ => {}
        }
        if world.port.object(&kind(object), &key(object)).is_some() {
            let none = json!({ "metadata": { "finalizers": null } });
            world.port.edit(&kind(object), &key(object), &none).unwrap();
        }
    }
    let mut uids: BTreeMap<String, Value> = BTreeMap::new();
    for mut object in objects {
        let old = object["metadata"]["uid"].as_str().unwrap().to_owned();
        for owner in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
            if let Some(new) = uids.get(owner["uid"].as_str().unwrap()) {
                owner["uid"] = new.clone();
            }
        }
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        object.as_object_mut().unwrap().remove("status");
        let made = world.port.create(object).unwrap();
        uids.insert(old, made["metadata"]["uid"].clone());
    }
    world.restart();
    for subject in world.subjects() {
        world.pass(&subject).await;
    }
    if world.guests.is_some() {
        world.pass(&Subject::hosts()).await;
    }
    if writes(world) != before {
        world.fail("the move changed something in MAAS (S15)");
    }
    if let Some(guests) = &mut world.guests {
        guests.taken.clear();
    }
    for (cluster, paused) in paused {
        world.port.edit("Cluster", &cluster, &json!({ "spec": { "paused": paused } })).unwrap();
    }
    true
}
