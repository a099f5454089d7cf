//! What proves that a record in MAAS's DNS is this cluster's (S18).
//!
//! Anybody can write an ID in an annotation, a name of our form and a finalizer. What the record resolves to comes from MAAS
//! itself.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::journal::Source;
use super::observed::{Observed, Record};
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
    /// The machines of this cluster are not known.
    Unknown(String),
}

/// What a record resolves to. An address that no machine has in MAAS is ours if a machine of ours has it in its status, or if the
/// journal has it as reserved for us.
pub(super) fn resolves_to(observed: &Observed, record: &Record) -> ResolvesTo {
    let machines = match &observed.machines {
        Lookup::Found(machines) => machines.as_slice(),
        Lookup::Absent => &[],
        Lookup::Unknown(why) => return ResolvesTo::Unknown(why.clone()),
    };
    let ids: BTreeSet<&str> = machines.iter().filter_map(|machine| machine.system_id.as_deref()).collect();
    let is_ours = |address: &&IpAddr| match record.bound.get(*address) {
        Some(holders) => holders.iter().any(|id| ids.contains(id.as_str())),
        None => {
            machines.iter().any(|machine| machine.addresses.contains(*address))
                || observed.object.journal.owed.contains(*address)
        }
    };
    let (here, elsewhere): (Vec<&IpAddr>, Vec<&IpAddr>) = record.addresses.iter().partition(is_ours);
    match (here.is_empty(), elsewhere.first()) {
        (true, None) => ResolvesTo::Nowhere,
        (true, Some(address)) => ResolvesTo::Elsewhere(**address),
        (false, None) => ResolvesTo::Here,
        (false, Some(_)) => ResolvesTo::HereAndElsewhere,
    }
}

/// Whether a record under a name that only this object's UID yields can be the one that we created for it: it resolves to nobody
/// else's machines.
pub fn may_be_own(observed: &Observed, record: &Record) -> bool {
    matches!(resolves_to(observed, record), ResolvesTo::Nowhere | ResolvesTo::Here)
}

/// The owner of a record that was found under our name.
pub(super) enum Whose {
    Ours,
    /// Not ours, or not proven to be; the message states what a person can do.
    Foreign(String),
    /// Not known now, for this reason. `None`: MAAS or our user in it has changed, and only an exact match of the ID counts.
    Unclear(Option<String>),
}

/// Determines the owner of a record. First the journal must claim it: by its ID; or, without one, because the name was free when
/// we stored it (the answer to our request was lost) or because it looks like another provider's. Then MAAS must agree: the name
/// is one that only this object's UID yields, or the record resolves to this cluster's machines; one that we claim to have
/// created may also be empty.
pub(super) fn whose(observed: &Observed, source: Source, record: &Record, trusted: bool, name: &str) -> Whose {
    let (object, journal) = (&observed.object, &observed.object.journal);
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
    if claimed && object.name_is_from_uid {
        return Whose::Ours;
    }
    match resolves_to(observed, record) {
        ResolvesTo::Unknown(why) => Whose::Unclear(Some(why)),
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
