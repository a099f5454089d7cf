//! The machine index: which MaasMachine claims which machines of MAAS, under which idempotency key, in which cluster.
//!
//! Every pass checks whether another object holds the same machine, and there are many passes and many objects. So each
//! version of an object is parsed once, and looked up by index.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use capmaas_api::names::CLUSTER_NAME_LABEL;
use capmaas_api::provider_id::Slashes;
use capmaas_api::{MaasMachine, ProviderId};
use capmaas_core::credentials::{IDENTITY_ANNOTATION, Name};
use capmaas_core::machine::Journal;
use kube::ResourceExt as _;

use crate::key::Key;
use crate::vm_claims::Seen;
use crate::watch::Change;

/// The index over all objects. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MachineIndex {
    inner: Arc<RwLock<Inner>>,
}

/// The context of a lookup for other objects.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The UID of the asking object, which does not count as another one.
    pub uid: Option<&'a str>,
    /// The MAAS in which the ID was seen; two of them may use the same IDs. `None`: any.
    pub maas: Option<&'a str>,
}

#[derive(Debug, Default)]
struct Inner {
    objects: HashMap<Key, Facts>,
    /// By UID.
    uids: HashMap<String, Key>,
    /// By the system ID of a live node: the objects that claim it.
    holders: Index<String>,
    /// By system IDs that MAAS's event log may use for the machine of an object.
    named: Index<String>,
    /// By the idempotency key in the journal.
    keys: Index<String>,
    /// By cluster: objects with a provider ID in the Go provider's form.
    go_form: Index<Key>,
}

/// The claims of one version of an object.
#[derive(Debug)]
struct Facts {
    uid: Option<String>,
    version: Option<String>,
    /// The MAAS that its IDs belong to, if recorded.
    maas: Option<String>,
    /// Its journal was written for another object (S25).
    is_copy: bool,
    claimed: BTreeSet<String>,
    named: BTreeSet<String>,
    key: Option<String>,
    cluster: Key,
    go_form: bool,
    vm: Seen,
}

impl Facts {
    fn of(machine: &MaasMachine) -> Self {
        let journal = Journal::read(machine.metadata.annotations.as_ref()).ok().flatten();
        let provider_id = machine.spec.provider_id().and_then(|id| id.parse::<ProviderId>().ok());
        let by_provider_id = provider_id.as_ref().and_then(|id| id.system_id().map(str::to_owned));
        // A released machine is nobody's live node, although the object that is being deleted still names it.
        let given_back = journal.as_ref().and_then(|journal| journal.allocation.as_ref()?.released.as_ref());
        let recorded = journal.as_ref().and_then(|journal| journal.machine()).cloned();
        let surplus = journal.iter().flat_map(|journal| journal.surplus.iter().cloned());
        let pinned = machine.spec.system_id().map(str::to_owned);
        let named = pinned.into_iter().chain(by_provider_id.clone()).chain(recorded.clone()).chain(surplus);
        Self {
            uid: machine.uid(),
            version: machine.resource_version(),
            maas: machine
                .annotations()
                .get(IDENTITY_ANNOTATION)
                .and_then(|name| Name::parts(name))
                .map(|(endpoint, _)| endpoint.to_owned()),
            is_copy: journal.as_ref().is_some_and(|journal| journal.is_anothers(&machine.metadata)),
            named: named.collect(),
            claimed: by_provider_id.into_iter().chain(recorded).filter(|id| given_back != Some(id)).collect(),
            vm: Seen::of(machine, journal.as_ref()),
            key: journal.map(|journal| journal.key),
            cluster: cluster_of(machine),
            go_form: provider_id.is_some_and(|id| id.slashes() == Slashes::Three),
        }
    }

    /// Whether the object may refer to this MAAS. While its MAAS is unknown, it may be any (S6).
    fn may_be_in(&self, maas: Option<&str>) -> bool {
        match (maas, self.maas.as_deref()) {
            (Some(maas), Some(own)) => maas == own,
            (None, _) | (_, None) => true,
        }
    }
}

/// Whether an object itself claims a machine of a MAAS.
pub fn holds(object: &MaasMachine, maas: Option<&str>, system_id: &str) -> bool {
    let facts = Facts::of(object);
    facts.claimed.contains(system_id) && facts.may_be_in(maas) && !facts.is_copy
}

/// The Cluster in a machine's label; an empty name if there is no label.
fn cluster_of(machine: &MaasMachine) -> Key {
    Key::of(machine).beside(machine.labels().get(CLUSTER_NAME_LABEL).cloned().unwrap_or_default())
}

impl MachineIndex {
    /// The index of these objects.
    pub fn of<'a>(machines: impl IntoIterator<Item = &'a MaasMachine>) -> Self {
        let machine_index = Self::default();
        machine_index.replace(machines);
        machine_index
    }

    /// Applies a change.
    pub fn apply(&self, change: &Change<'_, MaasMachine>) {
        match change {
            Change::Applied(machine) => self.write().note_unless_older(machine),
            Change::Deleted(machine) => self.write().strike(&Key::of(*machine)),
            Change::Replaced(machines) => self.replace(machines.iter()),
        }
    }

    /// Applies what this manager has just stored, before the watch delivers it. A watch may lag for minutes, and a machine that is
    /// somebody's live node by then must not be taken for a free one (S6).
    /// A manager that crashed before this lists everything when it starts.
    pub fn stored(&self, machine: &MaasMachine) {
        let is_gone = machine.metadata.deletion_timestamp.is_some() && machine.finalizers().is_empty();
        if !is_gone {
            self.write().note_unless_older(machine);
        }
    }

    /// Replaces the content with exactly these objects.
    pub fn replace<'a>(&self, machines: impl IntoIterator<Item = &'a MaasMachine>) {
        let mut inner = self.write();
        let mut there = BTreeSet::new();
        for machine in machines {
            there.insert(Key::of(machine));
            inner.note(machine);
        }
        let gone: Vec<Key> = inner.objects.keys().filter(|key| !there.contains(key)).cloned().collect();
        for key in gone {
            inner.strike(&key);
        }
    }

    /// The other objects that claim a machine (S6), in order.
    pub fn others_holding(&self, asker: Asker<'_>, system_id: &str) -> Vec<Key> {
        let inner = self.read();
        let of_another = |facts: &Facts| facts.uid.as_deref() != asker.uid && facts.may_be_in(asker.maas);
        let holders = inner.originals(inner.holders.of(system_id)).filter(|(_, facts)| of_another(facts));
        holders.map(|(key, _)| key.clone()).collect()
    }

    /// Whether another object has the same idempotency key in its journal and is not itself a copy. A recreated object
    /// of the same name is not another one; the watch may not have reported it yet.
    pub fn is_key_of_another(&self, own: &Key, key: &str) -> bool {
        let inner = self.read();
        let mut others = inner.keys.of(key).filter(|other| *other != own).filter_map(|key| inner.objects.get(key));
        others.any(|facts| !facts.is_copy)
    }

    /// The object that an idempotency key was generated for, if that is another one.
    pub fn original_of(&self, own: &Key, key: &str) -> Option<Key> {
        let made_for = Journal::uid_in(key)?;
        self.read().uids.get(made_for).filter(|original| *original != own).cloned()
    }

    /// Whether another object of the same cluster has a provider ID in the Go provider's form.
    pub fn is_go_form_used_beside(&self, machine: &MaasMachine) -> bool {
        let inner = self.read();
        let beside = cluster_of(machine);
        inner.originals(inner.go_form.of(&beside)).any(|(_, facts)| facts.uid != machine.metadata.uid)
    }

    /// The objects that claim a machine of this MAAS, each with its cluster, in order. Anybody may write a claim; whose the
    /// machine is, MAAS's stamp tells (S7).
    pub fn holders(&self, maas: &str, system_id: &str) -> Vec<(Key, Key)> {
        let inner = self.read();
        let holders = inner.originals(inner.holders.of(system_id)).filter(|(_, facts)| facts.may_be_in(Some(maas)));
        holders.map(|(key, facts)| (key.clone(), facts.cluster.clone())).collect()
    }

    /// Every object whose machine this MAAS may mean by an ID, in order.
    pub fn named(&self, maas: &str, system_id: &str) -> BTreeSet<Key> {
        let inner = self.read();
        let named = inner.originals(inner.named.of(system_id));
        named.filter(|(_, facts)| facts.may_be_in(Some(maas))).map(|(key, _)| key.clone()).collect()
    }

    /// The VM claims of all objects except the one with this UID.
    pub fn vms_of_others<T>(&self, uid: Option<&str>, look: impl FnOnce(&mut dyn Iterator<Item = &Seen>) -> T) -> T {
        let inner = self.read();
        let others = inner.originals(inner.objects.keys()).filter(|(_, facts)| facts.uid.as_deref() != uid);
        look(&mut others.map(|(_, facts)| &facts.vm))
    }

    /// The Clusters that have VMs on LXD hosts, or are going to.
    pub fn clusters_with_vms(&self) -> BTreeSet<Key> {
        let inner = self.read();
        let vms = inner.originals(inner.objects.keys()).filter(|(_, facts)| facts.vm.is_vm());
        vms.map(|(_, facts)| facts.cluster.clone()).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The claims of those of these objects that are not copies: neither by their own journal, nor because the object
    /// exists that their key was generated for (S25).
    fn originals<'a>(&'a self, keys: impl Iterator<Item = &'a Key>) -> impl Iterator<Item = (&'a Key, &'a Facts)> {
        let is_copy = |facts: &Facts| {
            let made_for = facts.key.as_deref().and_then(Journal::uid_in);
            let elsewhere = made_for.filter(|made_for| Some(*made_for) != facts.uid.as_deref());
            facts.is_copy || elsewhere.is_some_and(|made_for| self.uids.contains_key(made_for))
        };
        let said = keys.filter_map(|key| Some((key, self.objects.get(key)?)));
        said.filter(move |(_, facts)| !is_copy(facts))
    }

    /// The API server's versions of an object grow. After an etcd was restored from a backup they do not, and everything is listed
    /// anew.
    fn note_unless_older(&mut self, machine: &MaasMachine) {
        let number = |version: Option<&String>| version.and_then(|version| version.parse::<u64>().ok());
        let known = self.objects.get(&Key::of(machine)).filter(|known| known.uid == machine.metadata.uid);
        let known = known.and_then(|known| number(known.version.as_ref()));
        let is_older =
            number(machine.metadata.resource_version.as_ref()).zip(known).is_some_and(|(new, old)| new < old);
        if !is_older {
            self.note(machine);
        }
    }

    fn note(&mut self, machine: &MaasMachine) {
        let key = Key::of(machine);
        if let Some(known) = self.objects.get(&key)
            && known.version.is_some()
            && (&known.uid, &known.version) == (&machine.metadata.uid, &machine.metadata.resource_version)
        {
            return;
        }
        self.strike(&key);
        let facts = Facts::of(machine);
        facts.uid.iter().for_each(|uid| drop(self.uids.insert(uid.clone(), key.clone())));
        facts.claimed.iter().for_each(|id| self.holders.add(id, &key));
        facts.named.iter().for_each(|id| self.named.add(id, &key));
        facts.key.iter().for_each(|recorded| self.keys.add(recorded, &key));
        if facts.go_form {
            self.go_form.add(&facts.cluster, &key);
        }
        self.objects.insert(key, facts);
    }

    fn strike(&mut self, key: &Key) {
        let Some(facts) = self.objects.remove(key) else { return };
        facts.uid.iter().for_each(|uid| drop(self.uids.remove(uid)));
        facts.claimed.iter().for_each(|id| self.holders.remove(id, key));
        facts.named.iter().for_each(|id| self.named.remove(id, key));
        facts.key.iter().for_each(|recorded| self.keys.remove(recorded, key));
        self.go_form.remove(&facts.cluster, key);
    }
}

/// Objects by one of their claims; objects with the same claim are in order.
#[derive(Debug)]
struct Index<K>(HashMap<K, BTreeSet<Key>>);

impl<K> Default for Index<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Hash + Eq + Clone> Index<K> {
    fn of<Q>(&self, said: &Q) -> impl Iterator<Item = &Key>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.0.get(said).into_iter().flatten()
    }

    fn add(&mut self, said: &K, key: &Key) {
        self.0.entry(said.clone()).or_default().insert(key.clone());
    }

    fn remove(&mut self, said: &K, key: &Key) {
        if let Some(keys) = self.0.get_mut(said) {
            keys.remove(key);
            if keys.is_empty() {
                self.0.remove(said);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use capmaas_core::machine::JOURNAL_ANNOTATION;
    use serde_json::{Value, json};

    use super::*;

    /// An object with this journal.
    fn machine(name: &str, version: u64, journal: Value, provider_id: Option<&str>) -> MaasMachine {
        let mut metadata = json!({
            "name": name, "namespace": "team", "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
            "labels": { CLUSTER_NAME_LABEL: "c1" },
        });
        if !journal.is_null() {
            metadata["annotations"] = json!({ JOURNAL_ANNOTATION: journal.to_string() });
        }
        serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
            "metadata": metadata, "spec": { "image": "jammy", "providerID": provider_id },
        }))
        .unwrap()
    }

    #[test]
    fn s06_a_machine_is_held_by_its_object_until_that_has_given_it_back() {
        let machine_index = MachineIndex::default();
        let say = |version, journal| machine_index.apply(&Change::Applied(&machine("a", version, journal, None)));
        say(1, json!({"key": "k"}));
        let held_for = |uid| machine_index.others_holding(Asker { uid: Some(uid), maas: Some("maas") }, "abc");
        assert_eq!(held_for("uid-b"), []);
        say(2, json!({"key": "k", "machine": "abc"}));
        assert_eq!(held_for("uid-b"), [Key::new("team", "a")]);
        assert_eq!(held_for("uid-a"), [], "its own");
        assert_eq!(machine_index.holders("maas", "abc"), [(Key::new("team", "a"), Key::new("team", "c1"))]);
        say(3, json!({"key": "k", "machine": "abc", "released": "abc"}));
        assert_eq!(held_for("uid-b"), []);
        assert_eq!(machine_index.named("maas", "abc").len(), 1, "what happens to it is still of interest");
        machine_index.apply(&Change::Deleted(&machine("a", 3, Value::Null, None)));
        assert!(machine_index.named("maas", "abc").is_empty());
    }

    #[test]
    fn s06_what_was_just_stored_is_held_although_the_watch_is_behind() {
        let machine_index = MachineIndex::default();
        let holders = || machine_index.holders("maas", "abc").len();
        let made = machine("a", 8, json!({"key": "k"}), None);
        let taken = machine("a", 9, json!({"key": "k", "machine": "abc"}), None);
        machine_index.stored(&taken);
        assert_eq!(holders(), 1);
        machine_index.apply(&Change::Applied(&made));
        assert_eq!(holders(), 1, "the watch delivers an older version");
        machine_index.apply(&Change::Applied(&machine("a", 10, json!({"key": "k"}), None)));
        assert_eq!(holders(), 0);
        let mut leaves = machine("a", 11, json!({"key": "k", "machine": "abc"}), None);
        leaves.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        machine_index.stored(&leaves);
        assert_eq!(holders(), 0, "without a finalizer it is gone");
        machine_index.apply(&Change::Replaced(&[made]));
        assert_eq!(
            machine_index.read().objects.len(),
            1,
            "a list is true, also after a restored etcd has begun again with lower versions"
        );
    }

    #[test]
    fn a_copied_record_and_the_form_of_the_go_provider_are_seen_from_the_others() {
        let (one, two) = (
            machine("a", 1, json!({"key": "k", "machine": "abc"}), Some("maas:///az1/abc")),
            machine("b", 2, json!({"key": "k"}), None),
        );
        let machine_index = MachineIndex::of([&one, &two]);
        let of_another = |name: &str| machine_index.is_key_of_another(&Key::new("team", name), "k");
        assert!(of_another("a") && of_another("b"));
        assert!(machine_index.is_go_form_used_beside(&two) && !machine_index.is_go_form_used_beside(&one));
        machine_index.apply(&Change::Replaced(&[two]));
        assert!(!machine_index.is_key_of_another(&Key::new("team", "b"), "k"));
        assert_eq!(
            machine_index.others_holding(Asker { uid: Some("uid-b"), maas: None }, "abc"),
            [],
            "an object that is in no list any more is gone"
        );
    }

    #[test]
    fn s25_a_copy_counts_nowhere_and_the_original_as_ever() {
        let journal = json!({
            "key": "capmaas-uid-a", "machine": "abc", "writtenFor": { "namespace": "team", "name": "a", "uid": "uid-a" },
        });
        let mut unrecorded = journal.clone();
        unrecorded.as_object_mut().unwrap().remove("writtenFor");
        let mut forged = journal.clone();
        forged["writtenFor"] = json!({ "namespace": "team", "name": "c", "uid": "uid-c" });
        let original = machine("a", 1, journal.clone(), None);
        for copied in [journal, unrecorded, forged] {
            let (copy, another) =
                (machine("c", 2, copied, Some("maas:///az1/abc")), machine("d", 3, Value::Null, None));
            let machine_index = MachineIndex::of([&original, &copy, &another]);
            let held_for = |uid| machine_index.others_holding(Asker { uid: Some(uid), maas: None }, "abc");
            assert_eq!((held_for("uid-a"), held_for("uid-d")), (vec![], vec![Key::new("team", "a")]));
            let original_of = |name: &str| machine_index.original_of(&Key::new("team", name), "capmaas-uid-a");
            assert_eq!((original_of("c"), original_of("a")), (Some(Key::new("team", "a")), None));
            assert_eq!(machine_index.named("maas", "abc"), BTreeSet::from([Key::new("team", "a")]));
            assert!(!machine_index.is_go_form_used_beside(&another));
            assert_eq!(machine_index.vms_of_others(Some("uid-d"), |others| others.count()), 1);
        }
    }

    #[test]
    fn s06_an_id_is_one_of_a_maas() {
        let mut staging = machine("a", 1, json!({"key": "k", "machine": "abc"}), None);
        let identity = (IDENTITY_ANNOTATION.to_owned(), "http://staging#admin".to_owned());
        staging.metadata.annotations.as_mut().unwrap().extend([identity]);
        let unknown = machine("b", 2, Value::Null, Some("maas://az1/abc"));
        let machine_index = MachineIndex::of([&staging, &unknown]);
        let held_in = |maas| machine_index.others_holding(Asker { uid: None, maas }, "abc").len();
        assert_eq!((held_in(Some("http://staging")), held_in(Some("http://production")), held_in(None)), (2, 1, 2));
        assert!(holds(&staging, Some("http://staging"), "abc"));
        assert!(!holds(&staging, Some("http://production"), "abc"));
        assert!(holds(&unknown, Some("http://production"), "abc"), "it may mean any");
        let woken = machine_index.named("http://production", "abc");
        assert_eq!(woken, BTreeSet::from([Key::new("team", "b")]));
    }

    /// After any sequence of changes, an index equals one that is built from the same objects.
    #[test]
    fn after_any_changes_it_is_the_same_as_a_new_one() {
        let mut dice: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut roll = |sides: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % sides
        };
        let (machine_index, mut there) =
            (MachineIndex::default(), std::collections::BTreeMap::<String, MaasMachine>::new());
        for version in 1..=2000 {
            let name = format!("m{}", roll(6));
            match roll(8) {
                0 => {
                    if let Some(gone) = there.remove(&name) {
                        machine_index.apply(&Change::Deleted(&gone));
                    }
                }
                1 => {
                    there.retain(|_, _| roll(3) > 0);
                    machine_index.apply(&Change::Replaced(&there.values().cloned().collect::<Vec<_>>()));
                }
                _ => {
                    let id = format!("id{}", roll(4));
                    let mut journal = json!({"key": format!("k{}", roll(5))});
                    if roll(2) == 0 {
                        journal["machine"] = json!(id);
                    }
                    if roll(4) == 0 {
                        journal["released"] = json!(id);
                    }
                    let provider_id = format!("maas:{}z/id{}", if roll(2) == 0 { "//" } else { "///" }, roll(4));
                    let object = machine(&name, version, journal, (roll(2) == 0).then_some(provider_id.as_str()));
                    machine_index.apply(&Change::Applied(&object));
                    there.insert(name, object);
                }
            }
            let new = MachineIndex::of(there.values());
            for n in 0..6 {
                let (uid, id, key) = (format!("uid-m{n}"), format!("id{n}"), format!("k{n}"));
                let says = |machine_index: &MachineIndex| {
                    let held = machine_index.others_holding(Asker { uid: Some(&uid), maas: None }, &id);
                    let shared = machine_index.is_key_of_another(&Key::new("team", format!("m{n}")), &key);
                    let go = there.get(&format!("m{n}")).map(|object| machine_index.is_go_form_used_beside(object));
                    (held, shared, go, machine_index.holders("maas", &id), machine_index.named("maas", &id))
                };
                assert_eq!(says(&machine_index), says(&new), "after {version} changes");
            }
        }
        let left = machine_index.read().holders.0.len();
        machine_index.apply(&Change::Replaced(&[]));
        let inner = machine_index.read();
        let indices = [inner.holders.0.len(), inner.named.0.len(), inner.keys.0.len(), inner.go_form.0.len()];
        let empty = [indices.iter().sum(), inner.uids.len()];
        assert!(left > 0 && empty == [0; 2], "nothing is left behind: {left}, {empty:?}");
    }
}
