//! Whether a `MaasCluster` is the one that its journal was written for (S25).
//!
//! Annotations are copied along with objects, and anybody who may edit a `MaasCluster` may write any. So a claim to a record in
//! MAAS's DNS is compared with those of all other `MaasCluster`s; where the owner of the record is unclear, nobody touches it.

use capmaas_api::reasons;

use super::endpoint;
use super::journal::Source;
use super::observed::{Observed, Owner, Rival};
use super::proof::{self, ResolvesTo};
use crate::Lookup;
use crate::origin::{Origin, WrittenFor};

/// The relation of the object to its journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Provenance {
    /// It was written for this object.
    Own,
    /// It was rightfully taken over, or there is none: from now on it names this object.
    Unwritten,
    /// It is another object's. Nothing is done for this one, and it may be deleted at any time.
    Copy(Doubt),
    /// Not clear. Nothing in MAAS is changed.
    Doubtful(Doubt),
}

/// Why nothing is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    pub reason: &'static str,
    pub message: String,
}

/// Determines the provenance. An unreadable journal counts as the object's own; it stops all work on the object anyway.
pub fn judge(observed: &Observed) -> Provenance {
    let (object, journal) = (&observed.object, &observed.object.journal);
    if !journal.unreadable.is_empty() {
        return Provenance::Own;
    }
    match object.itself.judge_of(journal.written_for.as_ref()) {
        Origin::Own => match contest(observed) {
            Contest::Won => Provenance::Own,
            // Somebody edited one of the journals; which of the two is not clear.
            Contest::Lost(rival) | Contest::Open(rival) => Provenance::Doubtful(contested(observed, rival)),
        },
        Origin::Copy(original) => Provenance::Copy(Doubt {
            reason: reasons::COPIED_JOURNAL,
            message: format!(
                "this is a copy: its annotations were written for the MaasCluster {original}; nothing is done about it, and it \
                 can be deleted; for a cluster of its own, create it without our annotations and without \
                 spec.controlPlaneEndpoint"
            ),
        }),
        Origin::Renewed(former) => {
            let owned = matches!(&observed.owner, Lookup::Found(owner) if owner.refers_here);
            match contest(observed) {
                Contest::Won if owned => Provenance::Unwritten,
                Contest::Won => Provenance::Doubtful(Doubt {
                    reason: reasons::COPIED_JOURNAL,
                    message: format!(
                        "its annotations were written for {former}, an earlier object of this name; nothing is done \
                         until a live Cluster whose infrastructureRef names this object owns it"
                    ),
                }),
                Contest::Lost(rival) => Provenance::Copy(contested(observed, rival)),
                Contest::Open(rival) => Provenance::Doubtful(contested(observed, rival)),
            }
        }
        Origin::Unrecorded => match contest(observed) {
            Contest::Won => Provenance::Unwritten,
            Contest::Lost(rival) => Provenance::Copy(contested(observed, rival)),
            Contest::Open(rival) => Provenance::Doubtful(contested(observed, rival)),
        },
    }
}

/// Whether the journal alone shows that it is another object's: then no other object need be read.
pub fn is_plain_copy(itself: &WrittenFor, written_for: Option<&WrittenFor>) -> bool {
    matches!(itself.judge_of(written_for), Origin::Copy(_))
}

fn contested(observed: &Observed, rival: &Rival) -> Doubt {
    let nobody = Owner::default();
    let owner = match &observed.owner {
        Lookup::Found(owner) => owner,
        Lookup::Absent | Lookup::Unknown(_) => &nobody,
    };
    let name = endpoint::name(&observed.object, owner).unwrap_or_default();
    let copied = observed.object.journal.source.is_some();
    Doubt {
        reason: if copied { reasons::COPIED_JOURNAL } else { reasons::DNS_NAME_TAKEN },
        message: format!(
            "the MaasCluster {} claims the DNS record {name} too, and nothing shows that it is this object's; nothing is done \
             about it: delete the one that is a copy, or give this cluster another endpoint",
            rival.who
        ),
    }
}

enum Contest<'a> {
    Won,
    /// The name is undoubtedly the other one's.
    Lost(&'a Rival),
    /// The other one has an equal or better claim, or the outcome is not known now.
    Open(&'a Rival),
}

/// Compares the claim to the record with every other one. One lost comparison decides; otherwise an open one does.
fn contest(observed: &Observed) -> Contest<'_> {
    if observed.object.journal.source == Some(Source::User) {
        return Contest::Won;
    }
    let outcomes = observed.rivals.iter().map(|rival| against(observed, rival));
    let mut open = Contest::Won;
    for outcome in outcomes {
        match outcome {
            Contest::Won => {}
            Contest::Lost(rival) => return Contest::Lost(rival),
            Contest::Open(rival) => open = Contest::Open(rival),
        }
    }
    open
}

/// The criteria, the strongest first: stamped machines, because a copy does not have them; a name that only one UID yields, though
/// with some effort another one does; the ID of the record; a journal that names its object; a Cluster that names it. Anybody can write the last ones, so they decide only
/// where one side lacks them.
fn against<'a>(observed: &Observed, rival: &'a Rival) -> Contest<'a> {
    let (object, journal) = (&observed.object, &observed.object.journal);
    let (to_us, to_them, unseen) = match &observed.record {
        Lookup::Found(record) => {
            let to_rival = record.bound.values().flatten().any(|id| rival.machines.contains(id));
            let resolves_to = proof::resolves_to(observed, record);
            let to_us = matches!(resolves_to, ResolvesTo::Here | ResolvesTo::HereAndElsewhere);
            (to_us, to_rival, matches!(resolves_to, ResolvesTo::Unknown(_)))
        }
        Lookup::Absent => (false, false, matches!(observed.machines, Lookup::Unknown(_))),
        Lookup::Unknown(_) => (false, false, true),
    };
    let own = journal.written_for.as_ref() == Some(&object.itself);
    let weights = [
        (to_us, to_them),
        (object.name_is_from_uid, rival.name_is_from_uid),
        (journal.record.is_some(), rival.numbered),
        (own, rival.own),
        (matches!(&observed.owner, Lookup::Found(owner) if owner.refers_here), rival.owned),
    ];
    match weights.into_iter().find(|(mine, theirs)| mine != theirs) {
        Some((true, _)) if object.name_is_from_uid || !unseen => Contest::Won,
        Some((false, _)) if rival.name_is_from_uid && !unseen => Contest::Lost(rival),
        _ => Contest::Open(rival),
    }
}
