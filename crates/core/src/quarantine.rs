//! Cleanup of expired quarantine tags, which keep failed machines out of allocations (S17).
//!
//! An allocation considers the tags of today and yesterday; an older one has no effect, whichever machine carries it. Here it is
//! kept for a day longer, because the clocks of two managers may differ.

use jiff::{Timestamp, ToSpan as _, civil::Date, tz::TimeZone};

use crate::machine::QUARANTINE_PREFIX;

/// A tag this many days old is expired.
const OVER_AFTER_DAYS: i32 = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    pub name: String,
    /// MAAS assigns it to machines by itself, so somebody else created it.
    pub automatic: bool,
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
    let today = now.to_zoned(TimeZone::UTC).date();
    let over = |tag: &&Tag| {
        let end = day(&tag.name).and_then(|day| day.checked_add(OVER_AFTER_DAYS.days()).ok());
        !tag.automatic && end.is_some_and(|end| end <= today)
    };
    let name = tags.iter().filter(over).map(|tag| &tag.name).min()?;
    Some(Effect::DeleteTag { name: name.clone() })
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
        names.iter().map(|name| Tag { name: (*name).to_owned(), automatic: false }).collect()
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
        all.push(Tag { name: "capmaas-quarantine-2026-01-01".into(), automatic: true });
        for expected in ["capmaas-quarantine-2026-10-31", "capmaas-quarantine-2026-11-12"] {
            let Some(Effect::DeleteTag { name }) = decide(&all, at("2026-11-15T09:00:00Z")) else { panic!() };
            assert_eq!(name, expected);
            all.retain(|tag| tag.name != name);
        }
        assert_eq!(decide(&all, at("2026-11-15T09:00:00Z")), None);
    }
}
