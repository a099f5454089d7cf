//! What proves that a record in MAAS's DNS is this cluster's (S18).
//!
//! Anybody can write an ID in an annotation, a name of our form and a finalizer. What the record resolves to, and whose stamp the
//! machines behind it carry, comes from MAAS itself.

use std::net::IpAddr;

use super::journal::Source;
use super::observed::{Machine, Observed, Record, Stamp};
use crate::Lookup;

/// What a record resolves to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ResolvesTo {
    /// It has no address.
    Nowhere,
    /// Only machines of this cluster.
    Here,
    /// Machines of this cluster and others.
    HereAndElsewhere,
    /// No machine of this cluster; this is one of its addresses.
    Elsewhere(IpAddr),
    /// A machine that may be this cluster's and does not carry the stamp that would show it; the message names it.
    Unstamped(String),
    /// The machines of this cluster are not known.
    Unknown(String),
}

/// What a record resolves to. A machine is this cluster's if MAAS shows the stamp of its MaasMachine on it: provider IDs, addresses
/// in a status and the addresses in our own journal are text that a tenant can write. An address that is bound to no machine is
/// this cluster's if such a machine has it in MAAS.
pub(super) fn resolves_to(observed: &Observed, record: &Record) -> ResolvesTo {
    let machines = match machines(observed) {
        Ok(machines) => machines,
        Err(why) => return ResolvesTo::Unknown(why.to_owned()),
    };
    let (mut here, mut elsewhere) = (false, None);
    let (mut unstamped, mut unread) = (None, None);
    for address in &record.addresses {
        let bound = record.bound.contains_key(address);
        let claims: Vec<&Machine> = machines.iter().filter(|machine| claims(machine, record, address)).collect();
        let is_own = |machine: &&Machine| matches!(&machine.stamp, Stamp::Own(has) if bound || has.contains(address));
        if claims.iter().any(is_own) {
            here = true;
            continue;
        }
        for machine in claims {
            match &machine.stamp {
                Stamp::Unknown(why) => unread = unread.or(Some(why.as_str())),
                Stamp::NotRead => unread = unread.or(Some("the stamps of the machines were not read")),
                Stamp::Missing | Stamp::OwnedBy(_) => unstamped = unstamped.or(Some(machine)),
                Stamp::Own(_) | Stamp::Anothers => {}
            }
        }
        elsewhere = elsewhere.or(Some(*address));
    }
    // One that nobody stamps any more, or that cannot be read, must not keep the others from being kept in step.
    let settled = here && observed.object.journal.record == Some(record.id);
    if let Some(why) = unread.filter(|_| !settled) {
        return ResolvesTo::Unknown(why.to_owned());
    }
    match (unstamped.filter(|_| !settled), here, elsewhere) {
        (Some(machine), ..) => ResolvesTo::Unstamped(unstamped_message(machine)),
        (None, false, None) => ResolvesTo::Nowhere,
        (None, false, Some(address)) => ResolvesTo::Elsewhere(address),
        (None, true, None) => ResolvesTo::Here,
        (None, true, Some(_)) => ResolvesTo::HereAndElsewhere,
    }
}

fn unstamped_message(machine: &Machine) -> String {
    let (id, name) = (machine.system_id.as_deref().unwrap_or_default(), &machine.name);
    match &machine.stamp {
        Stamp::OwnedBy(owner) => format!(
            "the machine {id} of the MaasMachine {name} carries no stamp and belongs in MAAS to the user {owner}, who alone can stamp \
             it; use an API key of {owner} for this cluster until its machines are stamped, and leave the record in MAAS as it is"
        ),
        _ => format!("the machine {id} does not carry the stamp of the MaasMachine {name} in MAAS yet"),
    }
}

fn machines(observed: &Observed) -> Result<&[Machine], &str> {
    match &observed.machines {
        Lookup::Found(machines) => Ok(machines),
        Lookup::Absent => Ok(&[]),
        Lookup::Unknown(why) => Err(why),
    }
}

/// Whether a machine claims an address of a record: MAAS binds it to the machine that its provider ID names, or binds it to none,
/// and the machine's status lists it.
fn claims(machine: &Machine, record: &Record, address: &IpAddr) -> bool {
    match record.bound.get(address) {
        Some(holders) => machine.system_id.as_ref().is_some_and(|id| holders.contains(id)),
        None => machine.addresses.contains(address),
    }
}

/// Whether the stamp of a machine has to be read, because it decides whose the record is, or whether an entry without an address
/// stays in it.
pub fn rests_on_stamp(machine: &Machine, record: &Record) -> bool {
    record.addresses.iter().any(|address| claims(machine, record, address))
        || machine.system_id.as_ref().is_some_and(|id| record.dangling.iter().any(|holders| holders.contains(id)))
}

/// Whether the name alone proves whose a record is: only our UID yields it. Its digits are few, so somebody may create objects
/// until one has those of a record that is not his; such a record resolves to machines with the stamps of others.
fn is_proven_by_name(observed: &Observed, record: &Record) -> bool {
    observed.object.name_is_from_uid && record.anothers.is_empty()
}

/// Whether a record under a name that only this object's UID yields can be the one that we created for it: nothing shows that it
/// resolves to somebody else's machines.
pub fn may_be_own(observed: &Observed, record: &Record) -> bool {
    let is_claimed = |machines: &[Machine], address: &IpAddr| {
        machines.iter().any(|machine| claims(machine, record, address))
            || !record.bound.contains_key(address) && observed.object.journal.owed.contains(address)
    };
    machines(observed).is_ok_and(|machines| record.addresses.iter().all(|address| is_claimed(machines, address)))
}

/// The owner of a record that was found under our name.
pub(super) enum Whose {
    Ours,
    /// Not ours, or not proven to be; the message states what a person can do.
    Foreign(String),
    /// Not known until a machine is stamped; the message names it.
    Unstamped(String),
    /// Not known now, for this reason. `None`: MAAS or our user in it has changed, and only an exact match of the ID counts.
    Unclear(Option<String>),
}

/// Determines the owner of a record. First the journal must claim it: by its ID; or, without one, because the name was free when
/// we stored it (the answer to our request was lost) or because it looks like another provider's. Then MAAS must agree: the name
/// is one that only this object's UID yields and no machine behind it is another's, or the record resolves to this cluster's
/// machines; one that we claim to have created may also be empty.
pub(super) fn whose(observed: &Observed, source: Source, record: &Record, trusted: bool, name: &str) -> Whose {
    let journal = &observed.object.journal;
    let id = record.id;
    let claimed = match journal.record {
        Some(number) if number == id => true,
        _ if !trusted => return Whose::Unclear(None),
        None if journal.asked.is_some() => true,
        None if source == Source::Adopted => false,
        _ => {
            let message =
                format!("the DNS record {name} ({id}) in MAAS was not created for this object; it is left alone");
            return Whose::Foreign(message);
        }
    };
    if claimed && is_proven_by_name(observed, record) {
        return Whose::Ours;
    }
    match resolves_to(observed, record) {
        ResolvesTo::Unknown(why) => Whose::Unclear(Some(why)),
        ResolvesTo::Unstamped(machine) => {
            Whose::Unstamped(format!("whose the DNS record {name} ({id}) in MAAS is, is not known: {machine}"))
        }
        ResolvesTo::Here => Whose::Ours,
        ResolvesTo::Nowhere | ResolvesTo::HereAndElsewhere if claimed => Whose::Ours,
        ResolvesTo::Nowhere => Whose::Foreign(format!(
            "the DNS record {name} ({id}) in MAAS has no address that would show its owner, so it is left alone; if \
             nobody else uses it, delete it in MAAS, and it is created again for this cluster"
        )),
        ResolvesTo::HereAndElsewhere => Whose::Foreign(format!(
            "the DNS record {name} ({id}) in MAAS resolves to machines of this cluster and to others, so it is left \
             alone; remove the others from it in MAAS"
        )),
        ResolvesTo::Elsewhere(address) => Whose::Foreign(format!(
            "the DNS record {name} ({id}) in MAAS resolves to {address}, which is not an address of this cluster's \
             machines, so it is left alone; if nobody else uses it, delete it in MAAS, and it is created again for \
             this cluster"
        )),
    }
}
