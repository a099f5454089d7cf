//! LXD hosts that are being released or in maintenance, and the VMs on them.
//!
//! A VM is never moved: its Machine is deleted, the owner of the Machine creates another one, and placement puts that on another
//! host (S30). So Cluster API drains the Node, removes the etcd member, and respects hooks and disruption budgets, as with every
//! deletion. At most one Machine is deleted in a pass, and everything that this decision rests on is read live in that pass:
//! nothing has to be remembered.

mod group;
pub mod maintenance;
mod observed;
mod report;
mod room;
mod successor;
#[cfg(test)]
mod tests;
mod waiting;

pub use group::{Allowance, Domains, Group, Member as GroupMember, Unsettled};
pub use observed::{
    Cause, Consent, Demanded, Guest, Host, Machine, Member, ObjectName, Observed, Refusal, Site, Whose, consent,
};
pub use report::{cluster_verdicts, ended, host_verdict};
pub use successor::is_coming;
pub use waiting::Waiting;

use crate::Lookup;
use room::Room;

#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Plan {
    /// The one Machine that is deleted now.
    ///
    /// After a crash: the Machine is being deleted or gone, its control plane or MachineDeployment misses it, and the next
    /// deletion waits for that.
    pub delete: Option<Machine>,
    /// The hosts, in the order in which they are emptied.
    pub hosts: Vec<HostOutlook>,
}

/// The state of the VMs on a host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostOutlook {
    pub name: String,
    /// Why it should be empty.
    pub cause: Cause,
    /// Its MaasMachine.
    pub object: Option<ObjectName>,
    pub guests: Lookup<Vec<Outlook>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlook {
    /// Its name in MAAS.
    pub name: String,
    /// Its Cluster, if it is one of ours.
    pub cluster: Option<ObjectName>,
    pub fate: Fate,
}

/// What happens to a VM in this pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Its Machine is being deleted already.
    Leaves,
    /// Its Machine is deleted now.
    Goes,
    /// It stays for now.
    Waits(Waiting),
}

impl Plan {
    /// Nothing is deleted in this pass after all, for this reason.
    pub fn postpone(&mut self, why: &'static str) {
        self.delete = None;
        let guests = self.hosts.iter_mut().filter_map(|host| match &mut host.guests {
            Lookup::Found(guests) => Some(guests),
            Lookup::Absent | Lookup::Unknown(_) => None,
        });
        for guest in guests.flatten().filter(|guest| guest.fate == Fate::Goes) {
            guest.fate = Fate::Waits(Waiting::Postponed(why));
        }
    }
}

/// Total and deterministic; the order of the observations does not matter.
pub fn decide(observed: &Observed) -> Plan {
    let mut hosts: Vec<&Host> = observed.hosts.iter().collect();
    hosts.sort_by(|a, b| (&a.cause, &a.name, a.id).cmp(&(&b.cause, &b.name, b.id)));
    let mut room = Room::new(observed, &hosts);
    let mut chosen: Option<Machine> = None;
    let mut outlooks = Vec::with_capacity(hosts.len());
    for host in hosts {
        let guests = host.guests.as_ref().map(|guests| {
            let mut guests: Vec<&Guest> = guests.iter().collect();
            guests.sort_by_key(|guest| &guest.name);
            guests.into_iter().map(|guest| outlook(observed, host, guest, &mut room, &mut chosen)).collect()
        });
        let (name, cause, object) = (host.name.clone(), host.cause.clone(), host.object.clone());
        outlooks.push(HostOutlook { name, cause, object, guests });
    }
    Plan { delete: chosen, hosts: outlooks }
}

fn outlook(observed: &Observed, host: &Host, guest: &Guest, room: &mut Room, chosen: &mut Option<Machine>) -> Outlook {
    let name = guest.name.clone();
    let member = match &guest.whose {
        Whose::Foreign(owner) => {
            return Outlook { name, cluster: None, fate: Fate::Waits(Waiting::Foreign(owner.clone())) };
        }
        Whose::Ours(member) => member,
    };
    let fate = match may_go(member) {
        Err(fate) => fate,
        Ok(_) if host.open.is_some() => Fate::Waits(Waiting::Open(host.open.clone().unwrap_or_default())),
        Ok((machine, demanded)) => match refused(observed, member, machine) {
            // Others may have the room that it cannot use.
            Some(waiting) => Fate::Waits(room.places(demanded, host.id).err().unwrap_or(waiting)),
            None => match (&chosen, room.take(demanded, host.id)) {
                (_, Err(waiting)) => Fate::Waits(waiting),
                (Some(first), Ok(())) => Fate::Waits(Waiting::Turn(first.object.to_string())),
                (None, Ok(())) => {
                    *chosen = Some(machine.clone());
                    Fate::Goes
                }
            },
        },
    };
    Outlook { name, cluster: Some(member.cluster.clone()), fate }
}

/// Whether a deletion that failed a moment ago is in the way: its own, or one of the same group that may still take effect.
fn refused(observed: &Observed, member: &Member, machine: &Machine) -> Option<Waiting> {
    if let Some(refusal) = observed.refusals.get(&machine.uid) {
        return Some(Waiting::Denied(machine.object.to_string(), refusal.clone()));
    }
    let group = member.group.found()?;
    let pending = |it: &&GroupMember| matches!(observed.refusals.get(&it.uid), Some(Refusal::Unanswered(_)));
    let other = group.members.iter().find(pending)?;
    Some(Waiting::OtherLeaves(group.name.clone(), other.name.clone()))
}

/// Whether the Machine of a VM may be deleted now, room aside. Anything unknown prevents it.
fn may_go(member: &Member) -> Result<(&Machine, &Demanded), Fate> {
    let wait = |waiting| Err(Fate::Waits(waiting));
    let machine = match &member.machine {
        Lookup::Found(machine) if machine.deleting => return Err(Fate::Leaves),
        Lookup::Found(machine) => machine,
        Lookup::Absent => return wait(Waiting::Unknown("which Machine it belongs to".to_owned())),
        Lookup::Unknown(why) => return wait(Waiting::Unknown(why.clone())),
    };
    let name = || machine.object.to_string();
    if let Err(why) = &member.own_identity {
        return wait(Waiting::OtherIdentity(why.clone()));
    }
    match &member.paused {
        Lookup::Found(false) => {}
        Lookup::Found(true) => return wait(Waiting::Paused),
        Lookup::Absent => return wait(Waiting::Unknown("whether its Cluster is paused".to_owned())),
        Lookup::Unknown(why) => return wait(Waiting::Unknown(why.clone())),
    }
    match &member.consent {
        Lookup::Found(Consent::Automatic) if machine.held => return wait(Waiting::Held(name())),
        Lookup::Found(Consent::Automatic) => {}
        Lookup::Found(Consent::Manual) => return wait(Waiting::Manual(name())),
        Lookup::Absent => {
            return wait(Waiting::Unknown("whether its cluster consents, because its MaasCluster is gone".to_owned()));
        }
        Lookup::Unknown(why) => return wait(Waiting::Unknown(why.clone())),
    }
    match &member.group {
        Lookup::Found(group) => group.may_lose(&machine.object.name).map_err(Fate::Waits)?,
        Lookup::Absent => return wait(Waiting::NoOwner(name())),
        Lookup::Unknown(why) => return wait(Waiting::Unknown(why.clone())),
    }
    match &member.demanded {
        Ok(demanded) => Ok((machine, demanded)),
        Err(why) => wait(Waiting::Unknown(why.clone())),
    }
}

/// The same for one VM alone, right before its Machine is deleted: everything that was true a moment ago must still be true.
pub fn still_goes(member: &Member, machine: &Machine) -> bool {
    matches!(may_go(member), Ok((now, _)) if now == machine)
}
