//! Invariants of single requests, by the object whose pass sent them, and of machines whose objects are gone.

use std::collections::{BTreeMap, BTreeSet};

use capmaas_api::names::DELETE_FOR_MOVE_ANNOTATION;
use capmaas_core::machine::ABANDON_ANNOTATION;
use capmaas_manager::kubernetes::{Key, Version};
use maas_sim::Simulator;
use maas_sim::ledger::Entry;

use crate::chaos::bob;
use crate::dns_writes::DnsWrite;
use crate::law::held;
use crate::maintenance;
use crate::manager::Subject;
use crate::objects::{HOME, is_copied, is_copy};
use crate::torments::Torment;
use crate::world::World;

/// The earliest repetition of a machine's refused request of this kind, in milliseconds: the shortest backoff in `meaning` of
/// core's `conclude.rs`, which grows with every refusal and is only ever extended at random. A refused `Take` or `Reclaim`,
/// and a VM whose name exists, wait for less there: they are read first, and lead to another request.
fn back_off(kind: &str) -> i64 {
    match kind {
        "machines.allocate" | "machine.deploy" | "machine.power_on" | "machine.delete" | "vm-host.compose"
        | "vm-host.refresh" | "vm-host.update" | "vm-host.delete" => 30_000,
        "machine.release" | "machine.abort" => 20_000,
        _ => 15_000,
    }
}

/// The same for a failed write of a MaasCluster's DNS record: `FIRST_WAIT` of the manager's `cluster/memory.rs`.
const DNS_BACK_OFF: i64 = 5_000;
/// How much later a machine whose object is gone is checked again.
const LATER: i64 = 60_000;

/// A request: kind, path, machine, and user.
type Asked = (Key, String, String, Option<String>, String);

#[derive(Default)]
pub(crate) struct Ledgers {
    /// The last request that was checked.
    read: u64,
    /// When each was refused, and the generation of the object then.
    refused: BTreeMap<Asked, (i64, Option<i64>)>,
    /// When each write of a DNS record failed, by its cluster, the UID of that, and what it said.
    failed_dns_writes: BTreeMap<(Key, String, String), i64>,
    /// Every machine that each object has held and is accountable for.
    held: BTreeMap<Key, BTreeSet<String>>,
    /// Machines whose objects are gone, and when to check them.
    gone: Vec<(i64, String, Key)>,
    /// MAAS was restored from a backup: what objects held says nothing about machines.
    pub(crate) restored: bool,
    /// When the manager's clock was last set.
    pub(crate) clock_set_at: Option<i64>,
    /// Machines that may be on because of that.
    pub(crate) untold: BTreeSet<String>,
    /// Physical machines.
    pub(crate) metal: BTreeSet<String>,
}

impl Ledgers {
    /// Requests from now on belong to the next pass. Late ones belonged to another.
    pub(crate) fn before_a_pass(&mut self, maas: &Simulator) {
        if let Some(last) = maas.control().ledger_after(self.read).last() {
            self.read = last.number;
        }
    }

    /// Refusals are remembered for one life of the manager, and by one clock.
    pub(crate) fn forget_refusals(&mut self) {
        self.refused.clear();
        self.failed_dns_writes.clear();
    }
}

impl World {
    /// Checks what a pass has sent to MAAS.
    pub(crate) fn heed_requests(&mut self, subject: &Subject) {
        for entry in self.maas.control().ledger_after(self.ledgers.read) {
            self.ledgers.read = entry.number;
            if entry.method == "GET" {
                continue;
            }
            if is_copied(subject.key()) {
                self.fail(&format!("a copy touches MAAS: {subject:?} sent {entry:?} (S25)"));
            }
            self.may_be_sent(&entry);
            if let Some(guests) = &self.guests {
                maintenance::may_be_sent(self, guests, &entry);
            }
            if let Subject::Machine(key) = subject
                && Torment::BackOff.is_on()
            {
                self.is_not_asked_again(key, &entry);
            }
        }
        let writes = self.around.dns_writes.take();
        if let Subject::Cluster(key) = subject
            && Torment::BackOff.is_on()
        {
            self.are_not_written_again(key, writes);
        }
    }

    /// Physical machines are never deleted from MAAS, and only our own machines get bootstrap data.
    fn may_be_sent(&self, entry: &Entry) {
        if entry.effects.is_empty() {
            return;
        }
        let machine = entry.machine.as_deref().unwrap_or_default();
        if entry.kind == "machine.delete" && self.ledgers.metal.contains(machine) {
            self.fail(&format!("{machine} is metal, and was deleted from MAAS: {entry:?}"));
        }
        if entry.kind == "machine.deploy"
            && let Some(held) = self.inventory().get(machine)
            && held.owner == Some(bob(self))
        {
            self.fail(&format!("bob got the bootstrap data: {entry:?}"));
        }
    }

    fn is_not_asked_again(&mut self, key: &Key, entry: &Entry) {
        // A tag is created after it was found missing, within one effect.
        if entry.kind.starts_with("tag") {
            return;
        }
        let object = self.port.object("MaasMachine", key);
        let generation = object.and_then(|object| object["metadata"]["generation"].as_i64());
        let asked = (key.clone(), entry.kind.clone(), entry.path.clone(), entry.machine.clone(), entry.user.clone());
        if let Some((at, of)) = self.ledgers.refused.remove(&asked)
            && of == generation
            && self.time - at < back_off(&entry.kind)
        {
            self.fail(&format!("{} ms after it was refused, {key} asks for the same: {entry:?} (S26)", self.time - at));
        }
        // After a 5xx, any other request may have taken effect.
        let refusals = if entry.kind == "vm-host.compose" { 400..600 } else { 400..500 };
        let refused = entry.status.is_some_and(|status| refusals.contains(&status));
        if refused && entry.faults.is_empty() {
            self.ledgers.refused.insert(asked, (self.time, generation));
        }
    }

    fn are_not_written_again(&mut self, key: &Key, writes: Vec<DnsWrite>) {
        let object = self.port.object("MaasCluster", key);
        let uid = object.map(|object| object["metadata"]["uid"].to_string()).unwrap_or_default();
        let ours = self.endpoint();
        for write in writes {
            let (DnsWrite::Sent(told) | DnsWrite::Failed(told)) = &write;
            if !told.contains(&ours) {
                continue;
            }
            let (asked, time) = ((key.clone(), uid.clone(), told.clone()), self.time);
            match write {
                DnsWrite::Sent(told) => {
                    if let Some(at) = self.ledgers.failed_dns_writes.remove(&asked)
                        && time - at < DNS_BACK_OFF
                    {
                        self.fail(&format!("{} ms after it failed, {key} writes the same: {told} (S26)", time - at));
                    }
                }
                DnsWrite::Failed(_) => {
                    self.ledgers.failed_dns_writes.insert(asked, time);
                }
            }
        }
    }

    /// Checks a version of an object: a deleted object has released what it held.
    pub(crate) fn heed_departures(&mut self, version: &Version) {
        if version.kind != "MaasMachine" || version.key.namespace != HOME.namespace || !Torment::StaysOff.is_on() {
            return;
        }
        match &version.object {
            Some(object) if is_copy(object) => {}
            Some(object) => {
                let annotations = &object["metadata"]["annotations"];
                let excused = |name: &&str| !annotations[*name].is_null();
                let ids = self.ledgers.held.entry(version.key.clone()).or_default();
                ids.extend(held(object));
                if [DELETE_FOR_MOVE_ANNOTATION, ABANDON_ANNOTATION].iter().any(excused) {
                    ids.clear();
                }
            }
            None => {
                let time = self.time;
                let ids = self.ledgers.held.remove(&version.key).unwrap_or_default();
                // A clock that is set in the meantime cannot measure half a minute between two observations.
                if self.ledgers.clock_set_at.is_some_and(|at| time - at < LATER) {
                    self.ledgers.untold.extend(ids);
                    return;
                }
                let twice = ids.into_iter().flat_map(|id| [(time, id.clone()), (time + LATER, id)]);
                self.ledgers.gone.extend(twice.map(|(at, id)| (at, id, version.key.clone())));
            }
        }
    }

    /// A machine whose object is gone is Ready, unowned and off, unless somebody has it again.
    pub(crate) fn heed_the_departed(&mut self) {
        if !self.ledgers.gone.iter().any(|(at, ..)| *at <= self.time) {
            return;
        }
        let (due, later) = std::mem::take(&mut self.ledgers.gone).into_iter().partition(|(at, ..)| *at <= self.time);
        self.ledgers.gone = later;
        let due: Vec<(i64, String, Key)> = due;
        if self.ledgers.restored {
            return;
        }
        let inventory = self.inventory();
        let wanted: BTreeSet<String> = self.originals().iter().filter_map(held).collect();
        for (_, id, key) in due {
            let Some(machine) = inventory.get(&id) else { continue };
            let free = machine.owner.is_none() && !machine.is_vm && !wanted.contains(&id);
            if free && (machine.on || machine.state != "Ready") {
                self.fail(&format!("{key} is gone, and its machine {id} is {machine:?} (S14)"));
            }
        }
    }
}
