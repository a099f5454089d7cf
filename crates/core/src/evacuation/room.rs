//! Whether a replacement finds a place before the VM that it replaces is deleted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::Lookup;
use crate::placement::{self, Choice, Claim, Demand, Placement, place};

use super::observed::{Demanded, Host, Observed, Whose};
use super::waiting::Waiting;

/// The room left for replacements, once everything that was requested earlier has a place.
pub(super) struct Room {
    hosts: Result<Vec<placement::Host>, Waiting>,
    claims: Vec<Claim>,
    /// By host that is going to leave: the Machine that is about to be a host in its place.
    successors: BTreeMap<i64, String>,
}

impl Room {
    /// The hosts that stay. VMs that wait for a place, and replacements of Machines that are being deleted, are placed first. One
    /// that finds no place takes nothing away from others, except hosts of which nobody can tell whether it fits there (S1).
    pub(super) fn new(observed: &Observed, leaving: &[&Host]) -> Self {
        let ids: BTreeSet<i64> = leaving.iter().map(|host| host.id).collect();
        let (hosts, claims) = match &observed.site {
            Lookup::Found(site) => {
                (Ok(site.hosts.iter().filter(|host| !ids.contains(&host.id)).cloned().collect()), site.claims.clone())
            }
            Lookup::Absent => (Err(Waiting::NoRoom("MAAS has no LXD hosts".to_owned())), Vec::new()),
            Lookup::Unknown(why) => (Err(Waiting::Unknown(why.clone())), Vec::new()),
        };
        let mut room = Self { hosts, claims, successors: observed.successors.clone() };
        let guests = leaving.iter().filter_map(|host| host.guests.found()).flatten();
        let leaving = guests.filter_map(|guest| match &guest.whose {
            Whose::Ours(member) => member.replacement(),
            Whose::Foreign(_) => None,
        });
        let mut before: Vec<&Demanded> = observed.unplaced.iter().chain(leaving).collect();
        let size = |it: &Demanded| (it.vm.cores, it.vm.memory, it.vm.disk);
        before.sort_by_key(|demanded| (Reverse(size(demanded)), demanded.zones.clone()));
        for demanded in before {
            for zone in zones(demanded) {
                room.reserve(demanded, zone);
            }
        }
        room
    }

    fn reserve(&mut self, demanded: &Demanded, zone: Option<&str>) {
        let Ok(placement) = self.placement(demanded, zone) else { return };
        if let Ok(choice) = placement.choice {
            self.claims.push(claim(demanded, choice));
            return;
        }
        let unknown: BTreeSet<i64> =
            placement.verdicts.iter().filter(|verdict| verdict.why.is_unknown()).map(|verdict| verdict.host).collect();
        if let Ok(hosts) = &mut self.hosts {
            hosts.retain(|host| !unknown.contains(&host.id));
        }
    }

    /// The places that a VM on the host `from` takes: one in each zone in which it may be requested. A host that is going to leave
    /// is chosen only if none that stays has room. If another machine is about to be a host, the VM waits for it rather than be
    /// replaced twice, or come beside another machine of its group.
    pub(super) fn places(&self, demanded: &Demanded, from: i64) -> Result<Vec<Claim>, Waiting> {
        let place = |zone| {
            let wait = |host, why: &str| match self.successors.get(&host) {
                Some(machine) => Err(Waiting::Successor(machine.clone(), why.to_owned())),
                None => Ok(()),
            };
            let claim = match self.find(demanded, zone) {
                Ok(claim) => claim,
                Err(waiting) => {
                    if let Waiting::NoRoom(why) = &waiting {
                        wait(from, why)?;
                    }
                    return Err(waiting);
                }
            };
            wait(claim.host, "only hosts that are going to leave have room")?;
            if demanded.siblings.iter().any(|sibling| sibling.host == Some(claim.host)) {
                wait(from, "the host that it would be placed on has another machine of its group already")?;
            }
            Ok(claim)
        };
        zones(demanded).into_iter().map(place).collect()
    }

    /// Claims these places.
    pub(super) fn take(&mut self, demanded: &Demanded, from: i64) -> Result<(), Waiting> {
        let places = self.places(demanded, from)?;
        self.claims.extend(places);
        Ok(())
    }

    fn find(&self, demanded: &Demanded, zone: Option<&str>) -> Result<Claim, Waiting> {
        let choice = self.placement(demanded, zone)?.choice.map_err(|error| Waiting::NoRoom(error.message))?;
        Ok(claim(demanded, choice))
    }

    fn placement(&self, demanded: &Demanded, zone: Option<&str>) -> Result<Placement, Waiting> {
        let hosts = self.hosts.as_ref().map_err(Clone::clone)?;
        let none = BTreeSet::new();
        let demand = Demand { vm: &demanded.vm, zone, failed: &none };
        Ok(place(&demand, hosts, &self.claims, &demanded.siblings))
    }
}

fn claim(demanded: &Demanded, choice: Choice) -> Claim {
    let (cores, memory, disk) = (demanded.vm.cores, demanded.vm.memory, demanded.vm.disk);
    Claim { host: choice.host, cores, memory, disk, storage_pool: Some(choice.storage_pool) }
}

/// The zones in which a VM may be requested; one that is not restricted is placed once, in any.
fn zones(demanded: &Demanded) -> Vec<Option<&str>> {
    if demanded.zones.is_empty() { vec![None] } else { demanded.zones.iter().map(|zone| Some(zone.as_str())).collect() }
}
