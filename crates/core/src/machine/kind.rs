//! Bare metal or VM: fixed by the journal from its first entry on (S27). A machine that was begun as one never becomes the other,
//! because bare metal is released where a VM is removed.

use capmaas_api::MaasMachine;

use super::Observed;
use super::journal::Journal;
use crate::intent::{self, Intent, Problem};

/// What an object asks for, resolved as the kind that its journal fixes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub intent: Intent,
    /// A notice for the person who changed the mode afterwards.
    pub changed: Option<String>,
}

/// Resolves the spec of an object with this journal.
pub fn wanted(object: &MaasMachine, journal: Option<&Journal>) -> Result<Wanted, Problem> {
    let spec = &object.spec;
    let in_journal = journal.is_some_and(|journal| journal.allocation.is_some());
    let kind = journal.and_then(kind);
    let asked = intent::asks_for_vm(spec)?;
    let changed = kind.filter(|kind| *kind != asked).map(|is_vm| {
        let (now, was) = if is_vm { ("bare metal", "a VM") } else { ("a VM", "bare metal") };
        format!(
            "the spec asks for {now} now, but this machine was created as {was} and remains so; create a template \
             with the other provisioningMode and roll it out"
        )
    });
    Ok(Wanted { intent: intent::resolve_as(spec, in_journal, kind.unwrap_or(asked))?, changed })
}

/// The message, followed by the notice for the person who changed the mode.
pub(super) fn with_change(observed: &Observed, message: &str) -> String {
    let changed = observed.journal().and_then(|journal| wanted(&observed.object, Some(journal)).ok()?.changed);
    match changed {
        Some(changed) if message.is_empty() => changed,
        Some(changed) => format!("{message}; {changed}"),
        None => message.to_owned(),
    }
}

/// Whether it is a VM; `None` if only the spec can tell, because the machine existed before the journal.
fn kind(journal: &Journal) -> Option<bool> {
    match (&journal.vm, journal.is_adopted()) {
        (Some(_), _) => Some(true),
        (None, true) => None,
        (None, false) => Some(false),
    }
}
