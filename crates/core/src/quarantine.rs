//! What becomes of the tags by which failed machines are kept out (S17), once their days are over.
//!
//! Whoever allocates goes by the tags of today and yesterday; an older one means nothing any more, on whichever machine it still
//! is. It stays in force for a day longer here, because the clocks of two managers may differ.

use jiff::{Timestamp, ToSpan as _, civil::Date, tz::TimeZone};

use crate::machine::QUARANTINE_PREFIX;

/// A tag with a day this far back is over.
const OVER_AFTER_DAYS: i32 = 3;

/// A tag that MAAS has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    pub name: String,
    /// MAAS gives it to machines by itself, so somebody else made it.
    pub automatic: bool,
}

/// A change in MAAS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Deletes a tag, which also takes it off the machines that still carry it.
    ///
    /// If this happened and we crashed: the tag is not listed any more. Sent twice it is a 404, which is as good.
    DeleteTag { name: String },
}

/// The next thing to do about these tags, the oldest first.
pub fn decide(tags: &[Tag], now: Timestamp) -> Option<Effect> {
    let today = now.to_zoned(TimeZone::UTC).date();
    let over = |tag: &&Tag| {
        let end = day(&tag.name).and_then(|day| day.checked_add(OVER_AFTER_DAYS.days()).ok());
        !tag.automatic && end.is_some_and(|end| end <= today)
    };
    let name = tags.iter().filter(over).map(|tag| &tag.name).min()?;
    Some(Effect::DeleteTag { name: name.clone() })
}

/// The day in a name, if it is one that we write.
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
            // A manager whose clock is a day behind goes by these.
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
