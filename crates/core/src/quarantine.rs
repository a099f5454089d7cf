//! Cleanup of expired quarantine tags, which keep failed machines out of allocations (S17).
//!
//! An allocation considers the tags of today and yesterday; an older one has no effect, whichever machine carries it. Here it is
//! kept for a day longer, because the clocks of two managers may differ. A tag that no machine carries has no effect either; only
//! today's stays, because a manager creates it before a machine gets it.

use jiff::{Timestamp, ToSpan as _, civil::Date, tz::TimeZone};

use crate::machine::QUARANTINE_PREFIX;

/// A tag this many days old is expired.
const OVER_AFTER_DAYS: i32 = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    pub name: String,
    /// MAAS assigns it to machines by itself, so somebody else created it.
    pub automatic: bool,
    /// MAAS showed that no machine carries it.
    pub unused: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Deletes a tag, which also removes it from the machines that still carry it.
    ///
    /// After a crash: the tag is not listed any more. A repetition is a 404, which is just as good.
    DeleteTag { name: String },
}

/// The next effect for these tags, the oldest first.
pub fn decide(tags: &[Tag], now: Timestamp) -> Option<Effect> {
    let over = |tag: &&Tag| match age(tag, now) {
        Some(Age::Past) => true,
        Some(Age::Recent) => tag.unused,
        None => false,
    };
    let name = tags.iter().filter(over).map(|tag| &tag.name).min()?;
    Some(Effect::DeleteTag { name: name.clone() })
}

/// Whether the decision depends on the machines that carry the tag.
pub fn asks_machines(tag: &Tag, now: Timestamp) -> bool {
    age(tag, now) == Some(Age::Recent)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    /// Of an earlier day, and somebody may still go by it.
    Recent,
    /// Nobody goes by it any more.
    Past,
}

/// `None` for a tag that stays in any case: today's, or not ours.
fn age(tag: &Tag, now: Timestamp) -> Option<Age> {
    let (today, day) = (now.to_zoned(TimeZone::UTC).date(), day(&tag.name)?);
    if tag.automatic || day >= today {
        return None;
    }
    let end = day.checked_add(OVER_AFTER_DAYS.days()).ok()?;
    Some(if end <= today { Age::Past } else { Age::Recent })
}

/// The day in a name of the form that we write.
fn day(name: &str) -> Option<Date> {
    let text = name.strip_prefix(QUARANTINE_PREFIX)?;
    let day: Date = text.parse().ok()?;
    (day.to_string() == text).then_some(day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::quarantine_tags;

    fn tags(names: &[&str]) -> Vec<Tag> {
        names.iter().map(|name| Tag { name: (*name).to_owned(), automatic: false, unused: false }).collect()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn s17_a_tag_that_anybody_may_still_go_by_stays() {
        for now in ["2026-11-15T00:00:00Z", "2026-11-15T23:59:59Z", "2026-03-01T12:00:00Z"] {
            let in_force = quarantine_tags(at(now));
            // A manager whose clock is a day behind uses these.
            let behind = quarantine_tags(at(now).checked_sub(24.hours()).unwrap());
            let all = [in_force, behind].concat();
            assert_eq!(decide(&tags(&all.iter().map(String::as_str).collect::<Vec<_>>()), at(now)), None, "{now}");
        }
    }

    #[test]
    fn tags_of_days_that_are_over_go_one_by_one_and_nobody_elses() {
        let mut all = tags(&[
            "capmaas-quarantine-2026-11-12",
            "capmaas-quarantine-2026-10-31",
            "capmaas-quarantine-2026-11-13",
            "capmaas-quarantine-",
            "capmaas-quarantine-2026-11-1",
            "capmaas-quarantine-2026-02-30",
            "capmaas-quarantine-2026-01-01-mine",
            "my-capmaas-quarantine-2026-01-01",
            "virtual",
        ]);
        all.push(Tag { name: "capmaas-quarantine-2026-01-01".into(), automatic: true, unused: true });
        for expected in ["capmaas-quarantine-2026-10-31", "capmaas-quarantine-2026-11-12"] {
            let Some(Effect::DeleteTag { name }) = decide(&all, at("2026-11-15T09:00:00Z")) else { panic!() };
            assert_eq!(name, expected);
            all.retain(|tag| tag.name != name);
        }
        assert_eq!(decide(&all, at("2026-11-15T09:00:00Z")), None);
    }

    #[test]
    fn s17_a_tag_that_no_machine_carries_goes_unless_it_is_todays_or_not_ours() {
        let now = at("2026-11-15T09:00:00Z");
        for (name, goes) in [
            ("capmaas-quarantine-2026-11-13", true),
            ("capmaas-quarantine-2026-11-14", true),
            ("capmaas-quarantine-2026-11-15", false),
            ("capmaas-quarantine-2026-11-16", false),
            ("virtual", false),
        ] {
            let tag = Tag { name: name.into(), automatic: false, unused: true };
            assert_eq!(asks_machines(&tag, now), goes, "{name}");
            assert_eq!(decide(&[tag], now).is_some(), goes, "{name}");
        }
        assert!(!asks_machines(&tags(&["capmaas-quarantine-2026-11-12"])[0], now), "it goes anyway");
    }
}
