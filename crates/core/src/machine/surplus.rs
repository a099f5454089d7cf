//! Surplus machines: allocated under our idempotency key because an answer of MAAS was lost. The one in the journal stays; the
//! others are recorded, released, and followed until they are seen released (S4).

use capmaas_api::{Severity, reasons};
use jiff::Timestamp;

use super::decide::{Step, after, is_elsewhere};
use super::effect::Effect;
use super::journal::{ABANDON_ANNOTATION, Journal, Write};
use super::provisioning::kept;
use super::rising::once_more;
use super::status::Progress;
use super::{Access, Observed, Surplus};
use crate::Lookup;
use crate::intent::Wipe;
use crate::maas::{self, Power, State};
use crate::plan::Event;

#[derive(Default)]
pub(super) struct Followed {
    /// A step that one of them needs now.
    pub(super) step: Option<Step>,
    /// The same, for a step that MAAS may refuse forever: it waits until nothing else is to be done.
    pub(super) try_out: Option<Step>,
    /// What is still awaited.
    pub(super) awaited: Option<String>,
    /// Events about those that are not followed any more.
    pub(super) events: Vec<Event>,
}

enum Next {
    /// It is not ours any more; the message, if any, is for a person.
    Over(Option<String>),
    /// It is released and off.
    Off,
    Wait(String),
    Do(Effect, String),
    /// MAAS may refuse it forever, so it is only done while nothing else is to be done.
    Try(Effect, String),
}

/// Handles all of them, and removes those that are finished from the journal.
pub(super) fn follow(observed: &Observed, journal: &mut Journal, now: Timestamp) -> Followed {
    let mut followed = Followed::default();
    for id in std::mem::take(&mut journal.surplus) {
        match next(observed, journal, &id) {
            Next::Off if journal.seen_off(&id, now) => continue,
            Next::Off => followed.awaited = Some(once_more(&id)),
            Next::Over(told) => {
                journal.rising.remove(&id);
                let told = told.map(|message| Event::warning(reasons::NOT_OUR_MACHINE, message));
                followed.events.extend(told);
                continue;
            }
            Next::Wait(why) => followed.awaited = Some(why),
            Next::Do(effect, message) => {
                followed.awaited = Some(message.clone());
                followed.step.get_or_insert_with(|| doing(observed, effect, message));
            }
            Next::Try(effect, message) => {
                followed.awaited = Some(message.clone());
                followed.try_out.get_or_insert_with(|| doing(observed, effect, message));
            }
        }
        journal.surplus.push(id);
    }
    for step in followed.step.iter_mut().chain(&mut followed.try_out) {
        let mut journal = journal.clone();
        note_power(observed, &mut journal, step.effect.as_ref(), now);
        let write = match &step.effect {
            Some(Effect::Release { .. }) => Some(Write::Release),
            Some(Effect::Reclaim { .. }) => Some(Write::Allocate),
            _ => None,
        };
        step.journal = Some(match write {
            Some(write) => journal.sending(write, now),
            None => journal,
        });
    }
    followed
}

/// Records what the effect means for later reads of the machine's power (S14).
fn note_power(observed: &Observed, journal: &mut Journal, effect: Option<&Effect>, now: Timestamp) {
    match effect {
        Some(Effect::Release { machine, .. }) => {
            for surplus in observed.surplus.iter().filter(|surplus| surplus.id == *machine) {
                if let Lookup::Found(metal) = &surplus.seen {
                    journal.note_rising(metal, now);
                }
            }
        }
        Some(Effect::Reclaim { machine, .. }) => journal.seen_on(machine),
        _ => {}
    }
}

fn doing(observed: &Observed, effect: Effect, message: String) -> Step {
    let progress = if observed.object.metadata.deletion_timestamp.is_some() {
        Progress::not_yet(Severity::Info, reasons::MACHINE_RELEASING, message)
    } else {
        // Nothing new is known about the machine in the journal.
        kept(observed, &message)
    };
    Step::say(progress, after(1)).doing(effect)
}

fn next(observed: &Observed, journal: &Journal, id: &str) -> Next {
    let Some(Surplus { seen, power, .. }) = observed.surplus.iter().find(|surplus| surplus.id == id) else {
        return Next::Wait(format!("the surplus machine {id} was not observed"));
    };
    let identity_changed = matches!(&observed.access, Access::Granted { identity_changed: true, .. });
    let metal = match seen {
        Lookup::Found(metal) => metal,
        Lookup::Absent if !identity_changed => return Next::Over(None),
        Lookup::Absent => return Next::Wait(format!("the MAAS identity changed, so {id} may still exist")),
        Lookup::Unknown(why) => return Next::Wait(why.clone()),
    };
    if observed.is_held_by_another(journal, metal) {
        let given_up = observed.object.metadata.annotations.as_ref().and_then(|map| map.get(ABANDON_ANNOTATION));
        if given_up.is_some_and(|given_up| given_up == id) {
            return Next::Over(Some(format!(
                "{id} was abandoned with the annotation {ABANDON_ANNOTATION}; it is not released"
            )));
        }
        // The other object finds it under our idempotency key and does not release it either.
        return Next::Wait(format!(
            "{id} is a surplus machine and another MaasMachine claims it, so it is released only once that one is \
             gone; check it in MAAS, or abandon it with the annotation {ABANDON_ANNOTATION}: {id}"
        ));
    }
    if let Lookup::Unknown(why) = &observed.by_key {
        return Next::Wait(why.clone());
    }
    let ours = observed.is_ours(journal, metal);
    if !ours && is_elsewhere(observed) {
        return Next::Wait(format!("the MAAS endpoint changed, so {id} may be another machine there"));
    }
    let (key, machine) = (journal.key.clone(), id.to_owned());
    let stays = observed.object.metadata.deletion_timestamp.is_none();
    match metal.state {
        // Not by us: it was Allocated when it was recorded, and we do not deploy surplus machines.
        State::Deploying | State::Deployed if ours && stays => Next::Wait(format!(
            "{id} is a surplus machine and somebody deployed it; it is left alone; check it in MAAS"
        )),
        State::Releasing | State::DiskErasing => Next::Wait(format!("{id} is {} in MAAS", metal.state_name)),
        State::Ready | State::New => match power {
            Some(Power::Off) => Next::Off,
            Some(Power::On) => {
                let message = format!("{id} is still on after its release; it is reclaimed and released once more");
                Next::Do(Effect::Reclaim { key, machine }, message)
            }
            Some(Power::Unknown) | None => {
                Next::Wait(format!("{id} is released, but its power state is unknown; check it in MAAS"))
            }
        },
        state if ours && state.is_releasable() && !metal.locked => {
            let message = format!("{id} is a surplus machine; it is released");
            let release = Effect::Release { machine: machine.clone(), erase: Some(Wipe::Nothing) };
            match (observed.missing_stamp(journal, metal), &metal.stamp, &metal.owner) {
                (Some(stamp), ..) => Next::Do(stamp, message),
                (None, Some(_), _) => Next::Do(release, message),
                // MAAS lets only the owner stamp a machine, and only the owner or an administrator release it.
                (None, None, owner) => {
                    let whose = owner.as_deref().unwrap_or("nobody");
                    let message = format!(
                        "{id} is a surplus machine, allocated by {whose}; it is released; if we may not do that, \
                         release it in MAAS"
                    );
                    Next::Try(release, message)
                }
            }
        }
        _ if ours => Next::Wait(format!(
            "{id} is a surplus machine and is {}{} in MAAS; bring it to Ready there",
            if metal.locked { "locked and " } else { "" },
            metal.state_name
        )),
        _ => Next::Over(Some(format!(
            "{id} is a surplus machine and is {} in MAAS without our stamp; it is left alone",
            metal.state_name
        ))),
    }
}

/// Machines under our idempotency key besides the one in the journal, as far as they are not recorded yet and are not another
/// object's live node (S6).
pub(super) fn unwritten<'a>(observed: &'a Observed, journal: &Journal, id: &str) -> Vec<&'a maas::Machine> {
    let Lookup::Found(found) = &observed.by_key else { return Vec::new() };
    let unknown = |metal: &&maas::Machine| {
        let written = journal.surplus.contains(&metal.id) || journal.owed.contains(&metal.id);
        metal.id != id && !written && !observed.is_held_by_another(journal, metal)
    };
    found.iter().filter(unknown).collect()
}
