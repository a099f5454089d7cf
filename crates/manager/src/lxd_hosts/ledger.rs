//! Placement choices of this process: what they claim counts until MAAS's own figures include it.

use std::collections::{BTreeMap, BTreeSet};

use capmaas_api::MaasMachine;
use capmaas_core::intent::Vm;
use capmaas_core::placement::{Choice, Claim, Sibling};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use crate::vm_claims::{Seen, group};

/// A claim whose VM does not exist after this time no longer counts: the claimant sends the request immediately, and
/// MAAS refuses one that does not fit. Otherwise a handwritten journal could block a host for all others for ever.
const CLAIMED: SignedDuration = SignedDuration::from_mins(30);
/// A choice that never reached a journal is dropped after this: the pass that made it failed to write it.
const UNWRITTEN: SignedDuration = SignedDuration::from_secs(60);

/// Where an object's siblings are, according to the claims of the others.
pub(super) fn siblings<'a>(object: &MaasMachine, others: impl Iterator<Item = &'a Seen>) -> Vec<Sibling> {
    let ours = group(object);
    let siblings = others.filter(|seen| ours.is_some() && seen.group == ours && !seen.leaving && seen.zone.is_some());
    let place = |seen: &Seen| Sibling { host: seen.claim.as_ref().map(|claim| claim.host), zone: seen.zone.clone() };
    siblings.map(place).collect()
}

/// The last choice for an object.
#[derive(Clone, Debug)]
struct Entry {
    maas: String,
    group: Option<String>,
    claim: Claim,
    zone: Option<String>,
    /// When it was chosen.
    at: Timestamp,
    /// The journal with this choice was observed.
    written: bool,
    /// When its VM was first observed in its journal: figures that were requested from MAAS earlier may not include it.
    there: Option<Moment>,
}

/// A logical clock of this process. Wall clocks are not enough: much happens within one tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

/// The choices, by the UID of their object.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: BTreeMap<String, Entry>,
    last: Moment,
}

impl Ledger {
    /// The next moment, after all others.
    pub(super) fn moment(&mut self) -> Moment {
        self.last.0 += 1;
        self.last
    }

    /// Records which VMs exist by now. Figures requested from MAAS after this include them.
    pub(super) fn note_created<'a>(&mut self, others: impl Iterator<Item = &'a Seen>) {
        if self.entries.is_empty() {
            return;
        }
        let now = self.moment();
        for seen in others.filter(|seen| seen.there) {
            if let Some(entry) = self.entries.get_mut(&seen.uid) {
                entry.there.get_or_insert(now);
            }
        }
    }

    /// Whether VMs were created that figures requested at `asked` may not include.
    pub(super) fn has_news_since(&self, asked: Moment) -> bool {
        self.entries.values().any(|entry| entry.there.is_some_and(|there| asked < there))
    }

    /// Claims in this MAAS that its figures requested at `asked` do not include, and where an object's siblings are.
    pub(super) fn promised<'a>(
        &mut self,
        (maas, asked): (&str, Moment),
        object: &MaasMachine,
        others: impl Iterator<Item = &'a Seen>,
        now: Timestamp,
    ) -> (Vec<Claim>, Vec<Sibling>) {
        let (ours, moment) = (group(object), self.moment());
        // It is about to choose again: its previous choice no longer counts.
        self.entries.remove(&object.uid().unwrap_or_default());
        let is_sibling = |group: &Option<String>| ours.is_some() && *group == ours;
        let (mut claims, mut siblings) = (Vec::new(), Vec::new());
        let mut written = BTreeSet::new();
        for seen in others.filter(|seen| seen.maas.as_deref().is_none_or(|theirs| theirs == maas)) {
            if is_sibling(&seen.group) && !seen.leaving && seen.zone.is_some() {
                let host = seen.claim.as_ref().map(|claim| claim.host);
                siblings.push(Sibling { host, zone: seen.zone.clone() });
            }
            let entry = self.entries.get_mut(&seen.uid);
            if let Some(claim) = &seen.claim {
                let hidden = match entry {
                    Some(entry) => {
                        entry.written = true;
                        written.insert(seen.uid.as_str());
                        !seen.there || asked < *entry.there.get_or_insert(moment)
                    }
                    None => !seen.there,
                };
                let age = seen.since.map(|since| now.duration_since(since));
                let is_fresh = age.is_none_or(|age| age < CLAIMED && age > -UNWRITTEN);
                if hidden && is_fresh {
                    claims.push(claim.clone());
                }
            }
        }
        self.entries.retain(|uid, entry| {
            entry.maas != maas
                || if written.contains(uid.as_str()) {
                    // In its journal: the journal counts, and the entry only until the figures are newer than the VM.
                    entry.there.is_none_or(|there| asked < there)
                } else {
                    // Not in its journal: the watch lags behind, or the journal entry was dropped or never written.
                    !entry.written && now.duration_since(entry.at) < UNWRITTEN
                }
        });
        for (uid, entry) in self.entries.iter().filter(|(_, entry)| entry.maas == maas) {
            if !written.contains(uid.as_str()) {
                claims.push(entry.claim.clone());
                if is_sibling(&entry.group) {
                    siblings.push(Sibling { host: Some(entry.claim.host), zone: entry.zone.clone() });
                }
            }
        }
        (claims, siblings)
    }

    /// Records a choice; it counts from now on.
    pub(super) fn note(&mut self, maas: &str, object: &MaasMachine, vm: &Vm, choice: &Choice, now: Timestamp) {
        let claim = Claim {
            host: choice.host,
            cores: vm.cores,
            memory: vm.memory,
            disk: vm.disk,
            storage_pool: Some(choice.storage_pool.clone()),
        };
        let zone = choice.zone.as_ref().map(|zone| zone.name.clone());
        let maas = maas.to_owned();
        let entry = Entry { maas, group: group(object), claim, zone, at: now, written: false, there: None };
        self.entries.insert(object.uid().unwrap_or_default(), entry);
    }
}
