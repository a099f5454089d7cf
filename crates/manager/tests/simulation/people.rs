//! What people do to objects: copies, edits, broken journals, forged debts, wrong clocks; and what another user of MAAS does.

use capmaas_api::names::{MACHINE_FINALIZER, VM_NAME_ANNOTATION};
use capmaas_api::reasons;
use capmaas_core::machine::{DEBTS_ANNOTATION, JOURNAL_ANNOTATION};
use capmaas_manager::kubernetes::Key;
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::law::is_leaving;
use crate::objects::{COPY, HOME, RESTORED, cluster_key, create, is_copy, key};
use crate::sight::condition;
use crate::torments::Torment;
use crate::vms;
use crate::world::{Cast, World};

/// A machine of bob's.
const BOBS: &str = "bob1";
/// Identifies a forged debt.
const FORGED: &str = "forged";

/// People who interfere, and their changes.
pub(crate) struct People {
    /// Separate, so that switching one torment on or off does not affect the others.
    chance: Chance,
    /// Changes to specs, to be reverted.
    edited: Vec<(Key, Value)>,
    /// Journals that they broke.
    broken: Vec<(Key, String)>,
    copies: u32,
    /// How far the manager's clock is ahead, in seconds.
    ahead: i64,
}

impl People {
    pub(crate) fn of(seed: u64) -> Self {
        Self { chance: Chance::new(seed ^ 0x0be0_91e5), edited: Vec::new(), broken: Vec::new(), copies: 0, ahead: 0 }
    }

    /// One round.
    pub(crate) fn meddle(&mut self, world: &mut World) {
        for (torment, percent) in [
            (Torment::Edits, 25),
            (Torment::BrokenJournals, 12),
            (Torment::ForgedDebts, 12),
            (Torment::Copies, 25),
            (Torment::ClusterCopies, 12),
            (Torment::ForeignKeys, 10),
            (Torment::NamedVms, 10),
            (Torment::ClockJumps, 15),
        ] {
            // Drawn whether or not it is on, so that the others stay the same.
            let (happens, mut chance) = (self.chance.percent(percent), self.chance.another());
            if happens && torment.is_on() {
                self.torment(world, torment, &mut chance);
            }
        }
    }

    fn torment(&mut self, world: &mut World, torment: Torment, chance: &mut Chance) {
        let originals = world.originals();
        let one = (!originals.is_empty()).then(|| chance.one_of(&originals).clone());
        match (torment, one) {
            (Torment::Edits, Some(one)) => self.edit(world, &one, chance),
            (Torment::BrokenJournals, Some(one)) => self.break_or_mend(world, &one, chance),
            (Torment::ForgedDebts, one) => self.forge(world, one.as_ref(), chance),
            (Torment::Copies, Some(one)) => self.copy_or_delete(world, &one, chance),
            (Torment::ClusterCopies, _) => copy_cluster(world),
            (Torment::ForeignKeys, Some(one)) => use_key(world, &one),
            (Torment::NamedVms, _) if world.cast == Cast::Vms => name_vm(world),
            (Torment::ClockJumps, _) if sets_clocks(world.seed) => self.set_clock(world, chance),
            _ => {}
        }
    }

    /// An edit that leads to a request which MAAS refuses, or to nothing.
    fn edit(&mut self, world: &mut World, object: &Value, chance: &mut Chance) {
        let of = key(object);
        let (field, value) = match chance.below(3) {
            0 => ("image", json!("ubuntu/none")),
            1 => ("minCPU", json!(4000)),
            _ => {
                let note = json!({ "metadata": { "annotations": { "team": world.now().to_string() } } });
                world.port.edit("MaasMachine", &of, &note).unwrap();
                return;
            }
        };
        self.change(world, object, field, &value);
    }

    fn change(&mut self, world: &mut World, object: &Value, field: &str, value: &Value) {
        let of = key(object);
        world.tell(format!("somebody sets {field} of {of} to {value}"));
        self.edited.push((of.clone(), json!({ "spec": { field: object["spec"][field] } })));
        world.port.edit("MaasMachine", &of, &json!({ "spec": { field: value } })).unwrap();
    }

    fn break_or_mend(&mut self, world: &mut World, object: &Value, chance: &mut Chance) {
        if !self.broken.is_empty() && chance.percent(50) {
            self.mend(world);
            return;
        }
        let of = key(object);
        let Some(journal) = object["metadata"]["annotations"][JOURNAL_ANNOTATION].as_str() else { return };
        if self.broken.iter().all(|(key, _)| *key != of) {
            world.tell(format!("somebody breaks the journal of {of}"));
            annotate(world, "MaasMachine", &of, JOURNAL_ANNOTATION, json!("{"));
            self.broken.push((of, journal.to_owned()));
        }
    }

    fn mend(&mut self, world: &mut World) {
        for (of, journal) in std::mem::take(&mut self.broken) {
            if world.port.object("MaasMachine", &of).is_some() {
                world.tell(format!("somebody mends the journal of {of}"));
                annotate(world, "MaasMachine", &of, JOURNAL_ANNOTATION, json!(journal));
            }
        }
    }

    /// A forged debt, of a physical machine or of a VM that is not ours; or another mode.
    fn forge(&mut self, world: &mut World, object: Option<&Value>, chance: &mut Chance) {
        if let Some(object) = object.filter(|_| chance.percent(50)) {
            let begun = object["metadata"]["annotations"][JOURNAL_ANNOTATION].is_string();
            if begun && object["spec"]["provisioningMode"].is_null() {
                self.change(world, object, "provisioningMode", &json!("lxd"));
            }
            return;
        }
        let targets: Vec<(String, String)> = world.inventory().into_iter().map(|(id, it)| (id, it.hostname)).collect();
        let (id, hostname) = chance.one_of(&targets).clone();
        let Some(cluster) = world.port.object("MaasCluster", &cluster_key()) else { return };
        let mut debts = debts(&cluster);
        debts.push(json!({ "machine": id, "name": hostname, "host": FORGED, "key": FORGED }));
        world.tell(format!("somebody writes that {id} is owed"));
        annotate(world, "MaasCluster", &cluster_key(), DEBTS_ANNOTATION, json!(Value::from(debts).to_string()));
    }

    /// Next to the original, or restored into another namespace.
    fn copy_or_delete(&mut self, world: &mut World, object: &Value, chance: &mut Chance) {
        let mut copies = world.port.objects("MaasMachine");
        copies.retain(|object| is_copy(object) && !is_leaving(object));
        if !copies.is_empty() && chance.percent(45) {
            let of = key(chance.one_of(&copies));
            world.tell(format!("somebody deletes the copy {of}"));
            world.port.delete("MaasMachine", &of);
            return;
        }
        let journal = object["metadata"]["annotations"][JOURNAL_ANNOTATION].as_str();
        if journal.is_none_or(|journal| serde_json::from_str::<Value>(journal).is_err()) {
            // Without a journal it would be just another object, and with a broken one a person has to fix it.
            return;
        }
        let mut copy = object.clone();
        let metadata = copy["metadata"].as_object_mut().unwrap();
        metadata.remove("resourceVersion");
        if chance.percent(50) {
            metadata.insert("namespace".into(), json!(RESTORED));
            metadata.remove("ownerReferences");
        } else {
            self.copies += 1;
            metadata.insert("name".into(), json!(format!("{COPY}{}", self.copies)));
            if chance.percent(70) {
                metadata.remove("ownerReferences");
            }
        }
        world.tell(format!("somebody copies {} to {}", key(object), key(&copy)));
        // An existing one stays.
        drop(world.port.create(copy));
    }

    fn set_clock(&mut self, world: &mut World, chance: &mut Chance) {
        let to = if self.ahead == 0 { *chance.one_of(&[-90_000, -600, 40, 200, 4_000, 90_000]) } else { 0 };
        world.set_clock(to - self.ahead);
        self.ahead = to;
    }

    /// People revert what they did.
    pub(crate) fn heal(&mut self, world: &mut World) {
        self.mend(world);
        for (of, before) in std::mem::take(&mut self.edited).into_iter().rev() {
            if world.port.object("MaasMachine", &of).is_some() {
                world.tell(format!("somebody changes {of} back: {before}"));
                world.port.edit("MaasMachine", &of, &before).unwrap();
            }
        }
        if let Some(cluster) = world.port.object("MaasCluster", &cluster_key()) {
            let mut debts = debts(&cluster);
            let before = debts.len();
            debts.retain(|debt| debt["key"] != FORGED);
            if debts.len() < before {
                annotate(world, "MaasCluster", &cluster_key(), DEBTS_ANNOTATION, json!(Value::from(debts).to_string()));
            }
        }
        if world.maas.control().with_model(|model| model.db.by_hostname.contains_key(BOBS)) {
            world.arrange(json!([{"absent": {"machine": BOBS}}]));
        }
        if self.ahead != 0 {
            world.set_clock(-self.ahead);
            self.ahead = 0;
        }
    }
}

/// Clocks are set in every other run. In those no request is late: the clock measures how long it is waited for.
pub(crate) fn sets_clocks(seed: u64) -> bool {
    Torment::ClockJumps.is_on() && !seed.is_multiple_of(2)
}

fn annotate(world: &World, kind: &str, of: &Key, name: &str, value: Value) {
    world.port.edit(kind, of, &json!({ "metadata": { "annotations": { name: value } } })).unwrap();
}

fn debts(cluster: &Value) -> Vec<Value> {
    let text = cluster["metadata"]["annotations"][DEBTS_ANNOTATION].as_str();
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// A backup of the MaasCluster that is restored into another namespace, and deleted later.
fn copy_cluster(world: &mut World) {
    let copied = Key::new(RESTORED, HOME.cluster);
    if world.port.object("MaasCluster", &copied).is_some() {
        world.tell("somebody deletes the copy of the MaasCluster".to_owned());
        world.port.delete("MaasCluster", &copied);
        return;
    }
    let Some(mut copy) = world.port.object("MaasCluster", &cluster_key()) else { return };
    let metadata = copy["metadata"].as_object_mut().unwrap();
    metadata.remove("resourceVersion");
    metadata.remove("ownerReferences");
    metadata.insert("namespace".into(), json!(RESTORED));
    world.tell("somebody copies the MaasCluster".to_owned());
    world.port.create(copy).unwrap();
}

/// bob reads the idempotency key of an object, which is no secret, and allocates a machine of his own under it.
fn use_key(world: &mut World, object: &Value) {
    let journal = object["metadata"]["annotations"][JOURNAL_ANNOTATION].as_str().unwrap_or_default();
    let journal: Value = serde_json::from_str(journal).unwrap_or_default();
    let Some(used) = journal["key"].as_str() else { return };
    world.tell(format!("bob takes a machine of his own under the key of {}", key(object)));
    world.arrange(json!([{"machine": {"hostname": BOBS, "status": "Allocated", "owner": "bob", "agent_name": used}}]));
}

/// Somebody names a VM that is not ours, and deletes the object.
fn name_vm(world: &mut World) {
    let of = HOME.key(&format!("{COPY}thief"));
    if world.port.object("MaasMachine", &of).is_some() {
        world.port.delete("MaasMachine", &of);
        return;
    }
    world.tell(format!("somebody names {} as the VM of {of}", vms::FOREIGN));
    create(
        world,
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
            "metadata": {
                "name": of.name, "namespace": of.namespace, "finalizers": [MACHINE_FINALIZER],
                "labels": { capmaas_api::names::CLUSTER_NAME_LABEL: HOME.cluster },
                "annotations": { VM_NAME_ANNOTATION: vms::FOREIGN },
            },
            "spec": { "image": "ubuntu/jammy", "minCPU": 1, "minMemory": 2048, "provisioningMode": "lxd" },
        }),
    );
}

/// Why copies have not settled: deleted ones disappear, and the others report that they are copies.
pub(crate) fn unsettled(world: &World) -> Option<String> {
    let objects = ["MaasMachine", "MaasCluster"].into_iter().flat_map(|kind| world.port.objects(kind));
    objects.filter(is_copy).find_map(|copy| {
        let (reason, message) = condition(&copy, "MachineDeployed");
        if is_leaving(&copy) {
            return Some(format!("the copy {} is still being deleted: {reason}: {message}", key(&copy)));
        }
        let silent =
            !copy["metadata"]["annotations"][JOURNAL_ANNOTATION].is_null() && reason != reasons::COPIED_JOURNAL;
        silent.then(|| format!("the copy {} does not say that it is one: {reason}: {message}", key(&copy)))
    })
}
