//! Whose journal an object carries (S25), and whose machine MAAS shows (S6, S7). Both questions are answered only here.

use capmaas_api::{Severity, reasons};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::decide::{Step, after, unknown};
use super::effect::Effect;
use super::journal::{ABANDON_ANNOTATION, JOURNAL_ANNOTATION, Journal};
use super::releasing::{done, kept};
use super::status::Progress;
use super::{Access, Observed};
use crate::Lookup;
use crate::credentials::{IDENTITY_ANNOTATION, Name};
use crate::maas;
use crate::origin::{Origin, WrittenFor};

/// The relation of an object to the journal that it carries.
enum Claim {
    /// Its own, by what the journal states or by what its Machine proves.
    Own,
    /// The journal belongs to this other object.
    Copy(String),
    /// Maybe its own: an object of its name had it, and no Machine proves that this is the same object.
    Unproven(String),
    /// Whether a Machine proves it is not known.
    Unknown(String),
}

fn claim(observed: &Observed, journal: &Journal) -> Claim {
    let metadata = &observed.object.metadata;
    if let Origin::Copy(original) = WrittenFor::judge(journal.written_for.as_ref(), metadata) {
        return Claim::Copy(original.to_string());
    }
    if is_keys_own(observed, journal) {
        return Claim::Own;
    }
    // Also if the journal claims otherwise: the key was made for that object, and for no other.
    if let Some(original) = &observed.held_elsewhere.original {
        return Claim::Copy(original.clone());
    }
    if WrittenFor::judge(journal.written_for.as_ref(), metadata) == Origin::Own {
        return Claim::Own;
    }
    match &observed.machine {
        Lookup::Found(_) if is_named_by_its_machine(observed) => Claim::Own,
        Lookup::Unknown(why) => Claim::Unknown(why.clone()),
        Lookup::Found(_) | Lookup::Absent => Claim::Unproven(match &journal.written_for {
            Some(earlier) => earlier.to_string(),
            None => format!("an object with the UID {}", Journal::uid_in(&journal.key).unwrap_or(&journal.key)),
        }),
    }
}

/// The idempotency key was made for this very object.
fn is_keys_own(observed: &Observed, journal: &Journal) -> bool {
    observed.object.metadata.uid.as_deref().is_some_and(|uid| Journal::uid_in(&journal.key) == Some(uid))
}

/// The Machine that owns the object has it as its infrastructure. Of two objects with one journal at most one has such a Machine,
/// unless somebody forges Machines as well.
fn is_named_by_its_machine(observed: &Observed) -> bool {
    let Lookup::Found(machine) = &observed.machine else { return false };
    let reference = machine.spec.infrastructure_ref.as_ref();
    reference.is_some_and(|reference| {
        reference.is_ours("MaasMachine") && Some(&reference.name) == observed.object.metadata.name.as_ref()
    })
}

/// Whether the object may be reconciled at all, so that MAAS has to be queried about it.
pub fn may_be_served(observed: &Observed) -> bool {
    observed.journal().is_none_or(|journal| matches!(claim(observed, journal), Claim::Own))
}

/// The step for an object whose journal is not its own, or may not be. Nothing is done in MAAS for it, whatever its journal
/// contains; `None` if it may be reconciled.
pub(super) fn foreign(observed: &Observed) -> Option<Step> {
    let journal = observed.journal()?;
    let deleting = observed.object.metadata.deletion_timestamp.is_some();
    Some(match claim(observed, journal) {
        Claim::Own => return None,
        Claim::Unknown(why) => unknown(reasons::WAITING_FOR_OWNER, why),
        Claim::Copy(original) if deleting => {
            let message = format!("this was a copy of {original}; nothing was released");
            done(&message).telling(false, reasons::COPIED_JOURNAL, message)
        }
        Claim::Copy(original) => {
            let message = format!(
                "this is a copy: its annotation {JOURNAL_ANNOTATION} was written for {original}; nothing is done about it. \
                 Delete it, which releases nothing, or remove the annotation and spec.providerID to get a machine of its own"
            );
            Step::say(Progress::not_yet(Severity::Error, reasons::COPIED_JOURNAL, message), after(300))
        }
        Claim::Unproven(_) if deleting && is_given_up(observed, journal) => given_up(journal),
        Claim::Unproven(earlier) => {
            let held = journal.machine().unwrap_or(&journal.key);
            kept(
                reasons::UNPROVEN_JOURNAL,
                format!(
                    "its annotation {JOURNAL_ANNOTATION} was written for {earlier}, and no Machine owns this object \
                     and names it as its infrastructure, so it is unknown whether it was moved or restored; restore \
                     the Machine, or delete this object and abandon what it claims with the annotation \
                     {ABANDON_ANNOTATION}: {held}"
                ),
            )
        }
    })
}

/// Whether a person abandoned what the journal holds: by the machine's ID, or by the idempotency key where no machine is in the
/// journal (S14).
pub(super) fn is_given_up(observed: &Observed, journal: &Journal) -> bool {
    let named = observed.object.metadata.annotations.as_ref().and_then(|map| map.get(ABANDON_ANNOTATION));
    named.is_some() && named == Some(journal.machine().unwrap_or(&journal.key))
}

pub(super) fn given_up(journal: &Journal) -> Step {
    let held = journal.machine().unwrap_or(&journal.key);
    let given_up = std::iter::once(held).chain(&journal.surplus).cloned().collect::<Vec<_>>().join(" and ");
    let message = format!("{given_up} was abandoned with the annotation {ABANDON_ANNOTATION}; it is not released");
    done(&message).telling(true, "MachineAbandoned", message)
}

impl Journal {
    /// Whether the stamp that MAAS shows on a machine is that of the object with this metadata, which carries this journal. The
    /// journal is text that its writer may have copied, but only a manager writes stamps. A stamp of an early release names no
    /// object; then the key must have been made for this very object.
    pub fn is_proven_by(&self, metadata: &ObjectMeta, stamp: Option<&String>, stamped_for: Option<&String>) -> bool {
        let named = match stamped_for {
            Some(object) => *object == WrittenFor::of(metadata).object(),
            None => metadata.uid.is_some() && Self::uid_in(&self.key) == metadata.uid.as_deref(),
        };
        stamp == Some(&self.key) && named && !self.is_anothers(metadata)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// It carries our idempotency key or stamp, and nothing contradicts it.
    Ours,
    /// It carries our key, and its stamp in MAAS names another object.
    AnotherObjects,
    /// It carries our key, another object has the same key, and nothing shows which of the two it belongs to.
    Contested,
    /// It is under our key and belongs to a MAAS user that we never were: anybody may allocate under any `agent_name`.
    AnotherUsers,
    /// It carries no key of ours.
    Unmarked,
}

impl Observed {
    /// Determines the owner of a machine that was read in this pass.
    pub fn whose(&self, journal: &Journal, metal: &maas::Machine) -> Whose {
        let stamped = metal.stamp.as_ref() == Some(&journal.key);
        let found = matches!(&self.by_key, Lookup::Found(found) if found.iter().any(|other| other.id == metal.id));
        let marked = stamped || found && metal.stamp.is_none();
        if !marked {
            return Whose::Unmarked;
        }
        let named = metal.stamped_for.as_ref().filter(|_| stamped);
        match named {
            Some(named) if *named != WrittenFor::of(&self.object.metadata).object() => return Whose::AnotherObjects,
            None if self.held_elsewhere.contested && !is_keys_own(self, journal) => return Whose::Contested,
            // It was ours when it was recorded, and stays so whichever of our users allocated it.
            Some(_) if journal.has_machine(&metal.id) => return Whose::Ours,
            Some(_) | None => {}
        }
        if self.is_our_users(journal, metal) { Whose::Ours } else { Whose::AnotherUsers }
    }

    /// The message about a machine under our idempotency key that may or may not be ours (S25).
    pub(super) fn contested(&self, journal: &Journal) -> Option<String> {
        let Lookup::Found(found) = &self.by_key else { return None };
        let contested = found.iter().find(|metal| self.whose(journal, metal) == Whose::Contested)?;
        Some(format!(
            "{} carries our key, and so does the journal of another MaasMachine; its owner is unknown, so it is left \
             alone: delete the object whose journal was copied or written by hand",
            contested.id
        ))
    }

    /// The message about a machine that carries no key of ours. Another object that names it may be the right one (S6), so a person
    /// decides which of the two has to go.
    pub(super) fn unmarked(&self, id: &str) -> String {
        let message = format!("{id} carries neither our key nor our stamp; it is left alone");
        match self.held_elsewhere.holders.get(id) {
            Some(other) => format!(
                "{message}: the MaasMachine {other} names it too, and only a machine that no other object names is \
                 adopted; delete the one that is wrong"
            ),
            None => message,
        }
    }

    /// Whether a machine is ours by its idempotency key or stamp (S7).
    pub fn is_ours(&self, journal: &Journal, metal: &maas::Machine) -> bool {
        self.whose(journal, metal) == Whose::Ours
    }

    /// Whether a machine belongs to a MAAS user that the object has or had.
    pub(super) fn is_our_users(&self, journal: &Journal, metal: &maas::Machine) -> bool {
        let Some(owner) = metal.owner.as_deref() else { return true };
        let annotations = self.object.metadata.annotations.as_ref();
        let noted = annotations.and_then(|map| map.get(IDENTITY_ANNOTATION)).and_then(|name| Name::parts(name));
        let current = matches!(&self.access, Access::Granted { user, .. } if user == owner);
        current
            || noted.is_some_and(|(_, user)| user == owner)
            || journal.earlier_users.iter().any(|user| user == owner)
    }

    /// The effect that stamps a machine of our user that lacks our stamp: MAAS lets only the owner stamp a machine. Needed before
    /// a release too. MAAS removes the idempotency key as soon as the release begins and the stamp when it ends, so only the
    /// stamp distinguishes a failed release from somebody else's machine (S7).
    pub(super) fn missing_stamp(&self, journal: &Journal, metal: &maas::Machine) -> Option<Effect> {
        let owned =
            matches!((&self.access, &metal.owner), (Access::Granted { user, .. }, Some(owner)) if user == owner);
        let missing = metal.stamp.as_ref() != Some(&journal.key);
        (owned && missing).then(|| Effect::Stamp { key: journal.key.clone(), machine: metal.id.clone() })
    }

    /// Whether it is another object's live node (S6). A machine that is in our journal and stamped for us is not, whatever others
    /// claim; a stamp alone may come from a MAAS that was restored from a backup.
    pub(super) fn is_held_by_another(&self, journal: &Journal, metal: &maas::Machine) -> bool {
        let written = journal.has_machine(&metal.id) || journal.surplus.contains(&metal.id);
        let stamped = metal.stamp.as_ref() == Some(&journal.key) && self.is_ours(journal, metal);
        self.held_elsewhere.machines.contains(&metal.id) && !(written && stamped)
    }

    /// Whether the machine was created in another MAAS than the one that was queried, and none of ours was seen in this one. The
    /// cluster may have accepted this one because it has seen another machine in it (S5).
    pub(super) fn is_made_elsewhere(&self) -> bool {
        let (Access::Granted { name, .. }, Some(journal)) = (&self.access, self.journal()) else { return false };
        let annotations = self.object.metadata.annotations.as_ref();
        let noted = annotations.and_then(|map| map.get(IDENTITY_ANNOTATION)).and_then(|name| Name::parts(name));
        let elsewhere = match (noted, Name::parts(name)) {
            (Some((made, _)), Some((seen, _))) => made != seen,
            _ => false,
        };
        let seen = match (journal.machine(), &self.in_journal, &self.by_key) {
            (Some(_), Lookup::Found(metal), _) => self.is_ours(journal, metal),
            (None, _, Lookup::Found(found)) => found.iter().any(|metal| self.is_ours(journal, metal)),
            _ => false,
        };
        elsewhere && journal.may_hold_something() && !seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s07_a_stamp_proves_the_machine_of_the_object_that_it_names() {
        let object = |namespace: &str, uid: &str| ObjectMeta {
            namespace: Some(namespace.into()),
            name: Some("m".into()),
            uid: Some(uid.into()),
            ..ObjectMeta::default()
        };
        let journal = Journal::new("1");
        let (key, other, named) = (journal.key.clone(), "capmaas-2".to_owned(), "a/m".to_owned());
        let proven = |journal: &Journal, metadata: &ObjectMeta, stamp: Option<&String>, named: Option<&String>| {
            journal.is_proven_by(metadata, stamp, named)
        };
        assert!(proven(&journal, &object("a", "1"), Some(&key), Some(&named)));
        assert!(proven(&journal, &object("a", "9"), Some(&key), Some(&named)), "after a move");
        assert!(!proven(&journal, &object("b", "1"), Some(&key), Some(&named)), "a forged journal elsewhere");
        assert!(!proven(&journal, &object("a", "1"), Some(&other), Some(&named)));
        assert!(!proven(&journal, &object("a", "1"), None, None));
        // Stamps of an early release name no object.
        assert!(proven(&journal, &object("a", "1"), Some(&key), None));
        assert!(!proven(&journal, &object("a", "9"), Some(&key), None));
        let copied = Journal { written_for: Some(WrittenFor::of(&object("b", "1"))), ..journal };
        assert!(!proven(&copied, &object("a", "1"), Some(&key), Some(&named)));
    }
}
