//! The stamps on the machines that a record resolves to: where a name does not prove whose the record is, they do (S18, S25).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use capmaas_api::MaasMachine;
use capmaas_core::Lookup;
use capmaas_core::cluster::observed::{Machine, Observed, Record, Stamp};
use capmaas_core::cluster::proof::rests_on_stamp;
use futures::future::join_all;

use super::Context;
use super::maas::system_id;
use super::memory::Shown;
use crate::identity::Identity;
use crate::kubernetes::Key;
use crate::machine::linked_addresses;
use crate::stamp;

/// The MaasMachines of a cluster, and those of each rival, in the order in which they were observed.
pub(super) struct Claims<'a> {
    pub(super) machines: &'a [Arc<MaasMachine>],
    pub(super) rivals: &'a [Vec<Arc<MaasMachine>>],
}

/// Reads the machines that both the record and a MaasMachine name, and under a name that our UID yields all that the record
/// resolves to: its digits may fit by accident, or because somebody tried. With a record from the cache, a stamp that proved a
/// claim need not be read again; nor while our name alone proves ours, because it has shown that machine to be nobody else's.
pub(super) async fn observe(
    (context, key, identity): (&Context, &Key, &Identity),
    claims: &Claims<'_>,
    observed: &mut Observed,
    from_cache: bool,
) {
    let (Lookup::Found(record), from_uid) = (observed.record.clone(), observed.object.name_is_from_uid) else { return };
    let Lookup::Found(facts) = &mut observed.machines else { return };
    let bound: BTreeSet<&String> = record.bound.values().flatten().collect();
    let named = |machine: &Arc<MaasMachine>| system_id(machine).filter(|id| bound.contains(id));
    let of_rivals = claims.rivals.iter().flatten().filter_map(named);
    let own = facts.iter().filter(|machine| rests_on_stamp(machine, &record)).filter_map(|it| it.system_id.clone());
    let all = bound.iter().copied().filter(|_| from_uid).cloned();
    let ids: BTreeSet<String> = of_rivals.chain(own).chain(all).collect();

    let mut shown =
        if from_cache || from_uid && observed.rivals.is_empty() { context.memory.shown(key) } else { BTreeMap::new() };
    let proves = |shown: &Shown| {
        claims.machines.iter().chain(claims.rivals.iter().flatten()).any(|machine| shown.stamp.is_of(machine))
    };
    shown.retain(|id, shown| ids.contains(id) && proves(shown));
    let mut unread = BTreeMap::new();
    let unseen: Vec<&String> = ids.iter().filter(|id| !shown.contains_key(*id)).collect();
    let found = join_all(unseen.iter().map(|id| identity.machines.read(id))).await;
    for (id, found) in unseen.into_iter().zip(found) {
        match found {
            Ok(machine) => drop(shown.insert(id.clone(), Shown::of(&machine))),
            Err(error) if error.is_not_found() => {}
            // Another user's, who is nobody that shares ours.
            Err(error) if from_uid && error.status() == Some(403) => {}
            Err(error) => drop(unread.insert(id.clone(), error.to_string())),
        }
    }
    for (machine, facts) in claims.machines.iter().zip(facts.iter_mut()) {
        let Some(id) = facts.system_id.as_ref().filter(|id| ids.contains(*id)) else { continue };
        facts.stamp = match (shown.get(id), unread.get(id)) {
            (Some(shown), _) => shown.stamp_of(machine, identity.user()),
            (None, Some(why)) => Stamp::Unknown(why.clone()),
            (None, None) => Stamp::Anothers,
        };
    }
    for (rival, machines) in observed.rivals.iter_mut().zip(claims.rivals) {
        let is_its_own =
            |(id, machine): &(String, &MaasMachine)| shown.get(id).is_some_and(|shown| shown.stamp.is_of(machine));
        let claimed = machines.iter().filter_map(|machine| Some((named(machine)?, machine.as_ref())));
        rival.machines = claimed.filter(is_its_own).map(|(id, _)| id).collect();
    }
    let is_proven = |machine: &Machine| {
        matches!(machine.stamp, Stamp::Own(_)) && machine.system_id.as_ref().is_some_and(|id| bound.contains(id))
    };
    observed.record = match unread.values().next() {
        Some(why) if from_uid && !facts.iter().any(is_proven) => Lookup::Unknown(why.clone()),
        _ => {
            let is_anothers =
                |id: &String| shown.get(id).is_some_and(|shown| shown.stamp.is_anothers(key, claims.machines));
            let anothers = record.bound.iter().filter(|(_, holders)| holders.iter().any(is_anothers));
            Lookup::Found(Record { anothers: anothers.map(|(address, _)| *address).collect(), ..record.clone() })
        }
    };
    context.memory.keep_shown(key, shown);
}

impl Shown {
    fn of(machine: &maas_client::Machine) -> Self {
        Self {
            stamp: stamp::Stamp::on(machine),
            owner: machine.owner.clone().filter(|owner| !owner.is_empty()),
            addresses: linked_addresses(machine).iter().filter_map(|address| address.parse().ok()).collect(),
        }
    }

    fn stamp_of(&self, object: &MaasMachine, user: &str) -> Stamp {
        if self.stamp.is_of(object) {
            return Stamp::Own(self.addresses.clone());
        }
        match &self.owner {
            Some(owner) if self.stamp.is_nobodys(object) && owner == user => Stamp::Missing,
            Some(owner) if self.stamp.is_nobodys(object) => Stamp::OwnedBy(owner.clone()),
            _ => Stamp::Anothers,
        }
    }
}
