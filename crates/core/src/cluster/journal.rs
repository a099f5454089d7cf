//! The journal of a `MaasCluster`, in annotations: they survive `clusterctl move` and a backup, status does not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use capmaas_api::names;
use jiff::Timestamp;

use crate::credentials::IDENTITY_ANNOTATION;
use crate::origin::WrittenFor;

/// Who provides the name of the API server. Decided once, before any effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The user: nothing is done in MAAS's DNS.
    User,
    /// We do: a name in MAAS's DNS that was free when we chose it.
    Dns,
    /// Another provider created it in MAAS's DNS before us: kept in sync once it is proven to be this cluster's, never deleted.
    Adopted,
}

impl Source {
    /// The value in the annotation.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Dns => "dns",
            Self::Adopted => "adopted",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::User, Self::Dns, Self::Adopted].into_iter().find(|source| source.as_str() == text)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Journal {
    pub source: Option<Source>,
    /// The name in MAAS's DNS.
    pub name: Option<String>,
    /// The ID of the record under the name, either created by us or proven to be another provider's for this cluster.
    pub record: Option<i64>,
    /// When the record was last requested. Until the answer is known, a missing record counts as in flight, not as absent (S2).
    pub asked: Option<Timestamp>,
    /// Addresses that MAAS did not know before a record of ours had them, so that it reserved them: to be released.
    pub owed: BTreeSet<IpAddr>,
    /// The MAAS identity that everything was created with (S5).
    pub identity: Option<String>,
    /// The object that this was written for (S25). Absent in what earlier releases stored.
    pub written_for: Option<WrittenFor>,
    /// Annotations of ours that somebody made unreadable: unknown, not absent.
    pub unreadable: Vec<String>,
}

impl Journal {
    /// Reads the annotations.
    pub fn of(annotations: &BTreeMap<String, String>) -> Self {
        let mut journal = Self::default();
        let mut unreadable = Vec::new();
        let stored = |key: &str| annotations.get(key).map(String::as_str).filter(|text| !text.is_empty());
        journal.source = read(stored(names::ENDPOINT_SOURCE_ANNOTATION), Source::parse, || {
            unreadable.push(names::ENDPOINT_SOURCE_ANNOTATION);
        });
        journal.name = stored(names::DNS_NAME_ANNOTATION).map(str::to_owned);
        journal.record = read(
            stored(names::DNS_RECORD_ANNOTATION),
            |text| text.parse().ok(),
            || {
                unreadable.push(names::DNS_RECORD_ANNOTATION);
            },
        );
        journal.asked = read(
            stored(names::DNS_ASKED_ANNOTATION),
            |text| text.parse().ok(),
            || {
                unreadable.push(names::DNS_ASKED_ANNOTATION);
            },
        );
        let owed = |text: &str| text.split(',').map(|word| word.trim().parse().ok()).collect::<Option<BTreeSet<_>>>();
        journal.owed = read(stored(names::DNS_OWED_ANNOTATION), owed, || unreadable.push(names::DNS_OWED_ANNOTATION))
            .unwrap_or_default();
        journal.identity = stored(IDENTITY_ANNOTATION).map(str::to_owned);
        journal.written_for = read(
            stored(names::WRITTEN_FOR_ANNOTATION),
            |text| serde_json::from_str(text).ok(),
            || {
                unreadable.push(names::WRITTEN_FOR_ANNOTATION);
            },
        );
        // They are written together: somebody removed the others.
        if journal.record.is_some() || journal.asked.is_some() {
            let possible = match journal.source {
                Some(Source::Dns) => true,
                Some(Source::Adopted) => journal.asked.is_none(),
                Some(Source::User) | None => false,
            };
            if !possible {
                unreadable.push(names::ENDPOINT_SOURCE_ANNOTATION);
            }
            if journal.name.is_none() {
                unreadable.push(names::DNS_NAME_ANNOTATION);
            }
        }
        journal.unreadable = unreadable.into_iter().map(str::to_owned).collect();
        journal
    }

    /// The annotations to write to turn this journal into `after`; `None` removes one.
    pub fn difference(&self, after: &Self) -> BTreeMap<&'static str, Option<String>> {
        let (before, after) = (self.written(), after.written());
        before.into_iter().zip(after).filter(|(old, new)| old != new).map(|(_, new)| new).collect()
    }

    /// Whether nothing at all is recorded.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn written(&self) -> [(&'static str, Option<String>); 7] {
        let owed = self.owed.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        [
            (names::ENDPOINT_SOURCE_ANNOTATION, self.source.map(|source| source.as_str().to_owned())),
            (names::DNS_NAME_ANNOTATION, self.name.clone()),
            (names::DNS_RECORD_ANNOTATION, self.record.map(|id| id.to_string())),
            (names::DNS_ASKED_ANNOTATION, self.asked.map(|asked| asked.to_string())),
            (names::DNS_OWED_ANNOTATION, Some(owed).filter(|owed| !owed.is_empty())),
            (IDENTITY_ANNOTATION, self.identity.clone()),
            (names::WRITTEN_FOR_ANNOTATION, self.written_for.as_ref().and_then(|it| serde_json::to_string(it).ok())),
        ]
    }
}

fn read<T>(text: Option<&str>, parse: impl Fn(&str) -> Option<T>, unreadable: impl FnOnce()) -> Option<T> {
    let text = text?;
    let value = parse(text);
    if value.is_none() {
        unreadable();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read_back() {
        let journal = Journal {
            source: Some(Source::Dns),
            name: Some("c1-abc123.maas".into()),
            record: Some(7),
            asked: Some(Timestamp::from_second(1_800_000_000).unwrap()),
            owed: BTreeSet::from(["10.0.0.9".parse().unwrap(), "fd00::1".parse().unwrap()]),
            identity: Some("http://maas/MAAS#admin".into()),
            written_for: Some(WrittenFor { namespace: "n".into(), name: "c1".into(), uid: "u".into() }),
            unreadable: Vec::new(),
        };
        let annotations = |from: &Journal, to: &Journal| -> BTreeMap<String, String> {
            from.difference(to).into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
        };
        assert_eq!(Journal::of(&annotations(&Journal::default(), &journal)), journal);
        assert!(journal.difference(&journal).is_empty());
        let without = Journal { record: None, ..journal.clone() };
        assert_eq!(journal.difference(&without), BTreeMap::from([(names::DNS_RECORD_ANNOTATION, None)]));
    }

    /// An upgrade reads what the release before stored, and finds nothing to write.
    #[test]
    fn s24_a_stored_journal_is_written_again_as_it_was() {
        let all: Vec<BTreeMap<String, String>> = serde_json::from_str(include_str!("stored.json")).unwrap();
        let meant = all.iter().map(Journal::of).inspect(|journal| assert!(journal.unreadable.is_empty()));
        let meant: Vec<Journal> = meant.collect();
        let sources = [None, Some(Source::User), Some(Source::Dns), Some(Source::Dns), Some(Source::Adopted)];
        assert_eq!(meant.iter().map(|journal| journal.source).collect::<Vec<_>>(), sources);
        assert_eq!(
            meant.iter().map(|journal| journal.record).collect::<Vec<_>>(),
            [None, None, None, Some(7), Some(3)]
        );
        assert_eq!(meant[2].asked, Some("2026-11-15T11:59:30Z".parse().unwrap()));
        for (stored, journal) in all.into_iter().zip(meant) {
            let written = Journal::default().difference(&journal);
            assert_eq!(
                stored.into_iter().map(|(key, value)| (key, Some(value))).collect::<Vec<_>>(),
                written.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn s01_a_note_that_cannot_be_read_is_not_an_absent_one() {
        let stored = BTreeMap::from([
            (names::DNS_RECORD_ANNOTATION.to_owned(), "seven".to_owned()),
            (names::DNS_OWED_ANNOTATION.to_owned(), "10.0.0.1, x".to_owned()),
        ]);
        assert_eq!(Journal::of(&stored).unreadable, [names::DNS_RECORD_ANNOTATION, names::DNS_OWED_ANNOTATION]);
    }

    #[test]
    fn a_record_without_its_name_is_not_understood() {
        let stored = BTreeMap::from([(names::DNS_RECORD_ANNOTATION.to_owned(), "7".to_owned())]);
        assert_eq!(Journal::of(&stored).unreadable, [names::ENDPOINT_SOURCE_ANNOTATION, names::DNS_NAME_ANNOTATION]);
    }
}
