//! Metal or a VM: what the journal says, from its first line on (S27). A machine that was begun as the one never becomes the other,
//! because what is given back in one way would be removed in the other.

use capmaas_api::MaasMachine;

use super::Observed;
use super::journal::Journal;
use crate::intent::{self, Intent, Problem};

/// What an object asks for, as what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// What is asked for.
    pub intent: Intent,
    /// What whoever changed the mode afterwards has to know.
    pub changed: Option<String>,
}

/// Resolves the spec of an object with this journal.
pub fn wanted(object: &MaasMachine, journal: Option<&Journal>) -> Result<Wanted, Problem> {
    let spec = &object.spec;
    let on_record = journal.is_some_and(|journal| journal.allocation.is_some());
    let kind = journal.and_then(kind);
    let asked = intent::asks_for_vm(spec)?;
    let changed = kind.filter(|kind| *kind != asked).map(|is_vm| {
        let (now, was) = if is_vm { ("bare metal", "a VM") } else { ("a VM", "bare metal") };
        format!(
            "the spec asks for {now} now, but this machine was begun as {was} and goes on as that; make a template with the other \
             provisioningMode and roll it out"
        )
    });
    Ok(Wanted { intent: intent::resolve_as(spec, on_record, kind.unwrap_or(asked))?, changed })
}

/// What is said, and after it what whoever changed the mode of the object has to know.
pub(super) fn with_change(observed: &Observed, message: &str) -> String {
    let changed = observed.journal().and_then(|journal| wanted(&observed.object, Some(journal)).ok()?.changed);
    match changed {
        Some(changed) if message.is_empty() => changed,
        Some(changed) => format!("{message}; {changed}"),
        None => message.to_owned(),
    }
}

/// Whether it is a VM; `None` if only the spec can tell, because the machine was there before the journal.
fn kind(journal: &Journal) -> Option<bool> {
    match (&journal.vm, journal.is_adopted()) {
        (Some(_), _) => Some(true),
        (None, true) => None,
        (None, false) => Some(false),
    }
}
