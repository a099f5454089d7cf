//! Differences between a recorded answer and the simulator's.
//!
//! Compared are the status, the content type, the headers that clients act on, the texts of errors and, in other
//! answers, the keys and types, and the values of the fields that show a machine's state. Elsewhere a recorded null or
//! empty list does not restrict the simulated value; the reverse is a difference.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::identity::{Identities, Kind};
use crate::recording::Response;
use crate::target::Answer;
use crate::words;

/// Headers that clients act on.
const HEADERS: [&str; 3] = ["allow", "retry-after", "www-authenticate"];
/// This header is compared where it is recorded.
const WHERE_RECORDED: &str = "x-maas-api-hash";
/// Longer texts are truncated in reports.
const SHOWN: usize = 300;
/// More differences than this add nothing new.
const REPORTED: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    place: String,
    recorded: String,
    simulated: String,
}

impl Difference {
    fn new(place: &str, recorded: impl fmt::Display, simulated: impl fmt::Display) -> Self {
        let cut = |text: String| match text.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        };
        Self { place: place.to_owned(), recorded: cut(recorded.to_string()), simulated: cut(simulated.to_string()) }
    }
}

impl Difference {
    /// There was no answer.
    pub(crate) fn silence(recorded: u16, why: &dyn std::error::Error) -> Self {
        Self::new("status", recorded, format!("none: {why}"))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: recorded {}, simulated {}", self.place, self.recorded, self.simulated)
    }
}

/// Compares an answer with the recorded one; the list is empty if nothing differs.
pub fn compare(recorded: &Response, simulated: &Answer, identities: &Identities) -> Vec<Difference> {
    let mut found = Vec::new();
    if recorded.status != simulated.status {
        let with_text = |status: u16, text: &str| {
            if status >= 400 { format!("{status} ({})", text.trim()) } else { status.to_string() }
        };
        let recorded_text = recorded.body.as_str().map_or_else(|| recorded.body.to_string(), str::to_owned);
        let recorded = with_text(recorded.status, &recorded_text);
        return vec![Difference::new("status", recorded, with_text(simulated.status, &simulated.text()))];
    }
    let header = |headers: &std::collections::BTreeMap<String, String>, name: &str| {
        headers.get(name).map_or_else(|| "none".to_owned(), |value| tidy(value))
    };
    let hash = recorded.headers.contains_key(WHERE_RECORDED).then_some(WHERE_RECORDED);
    for name in std::iter::once("content-type").chain(HEADERS).chain(hash) {
        let (ours, theirs) = (header(&recorded.headers, name), header(&simulated.headers, name));
        let same = if name == "allow" { methods(&ours) == methods(&theirs) } else { ours == theirs };
        if !same {
            found.push(Difference::new(name, ours, theirs));
        }
    }
    let is_json = recorded.headers.get("content-type").is_some_and(|kind| kind.contains("json"));
    if is_json {
        match simulated.json() {
            Some(body) if recorded.status < 400 => {
                shape(&recorded.body, &body, "body", identities, &mut found);
                states(&recorded.body, &body, identities, &mut found);
            }
            Some(body) => errors(&recorded.body, &body, "body", identities, &mut found),
            None => found.push(Difference::new("body", "JSON", simulated.text())),
        }
    } else if recorded.status >= 400 {
        let ours = recorded.body.as_str().unwrap_or_default();
        let theirs = simulated.text();
        if !words::same(ours, &theirs, identities) {
            found.push(Difference::new("text", format!("{ours:?}"), format!("{theirs:?}")));
        }
    } else if recorded.body.as_str().is_some_and(str::is_empty) != simulated.body.is_empty() {
        found.push(Difference::new("body", recorded.body.to_string(), format!("{:?}", simulated.text())));
    }
    found.truncate(REPORTED);
    found
}

fn tidy(value: &str) -> String {
    value.to_lowercase().split(';').map(str::trim).collect::<Vec<_>>().join("; ")
}

fn methods(allow: &str) -> BTreeSet<&str> {
    allow.split(',').map(str::trim).collect()
}

/// The fields of an error answer and their texts must be the same.
fn errors(recorded: &Value, simulated: &Value, place: &str, identities: &Identities, found: &mut Vec<Difference>) {
    match (recorded, simulated) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let keys = |fields: &serde_json::Map<String, Value>| fields.keys().cloned().collect::<BTreeSet<_>>();
            if keys(ours) != keys(theirs) {
                found.push(Difference::new(place, recorded, simulated));
                return;
            }
            for (key, ours) in ours {
                errors(ours, &theirs[key], &format!("{place}.{key}"), identities, found);
            }
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (ours, theirs) in ours.iter().zip(theirs) {
                errors(ours, theirs, place, identities, found);
            }
        }
        (Value::String(ours), Value::String(theirs)) if words::same(ours, theirs, identities) => {}
        (ours, theirs) if ours == theirs => {}
        _ => found.push(Difference::new(place, recorded, simulated)),
    }
}

/// Keys and types must be the same.
fn shape(recorded: &Value, simulated: &Value, place: &str, identities: &Identities, found: &mut Vec<Difference>) {
    match (recorded, simulated) {
        (Value::Null, _) => {}
        (Value::Object(ours), Value::Object(theirs)) => {
            let ours: Vec<_> = ours.iter().map(|(key, value)| (common_key(key, identities), value)).collect();
            let theirs: Vec<_> = theirs.iter().map(|(key, value)| (common_key(key, &NOTHING_KNOWN), value)).collect();
            let lookup = |fields: &[(String, &Value)], key: &str| fields.iter().any(|(other, _)| other == key);
            let missing: Vec<_> =
                ours.iter().filter(|(key, _)| !lookup(&theirs, key)).map(|(key, _)| key.as_str()).collect();
            let surplus: Vec<_> =
                theirs.iter().filter(|(key, _)| !lookup(&ours, key)).map(|(key, _)| key.as_str()).collect();
            if !missing.is_empty() || !surplus.is_empty() {
                let list = |keys: &[&str]| {
                    if keys.is_empty() { "nothing more".into() } else { format!("also {}", keys.join(", ")) }
                };
                found.push(Difference::new(&format!("keys of {place}"), list(&missing), list(&surplus)));
            }
            for (key, ours) in &ours {
                if let Some((_, theirs)) = theirs.iter().find(|(other, _)| other == key) {
                    shape(ours, theirs, &format!("{place}.{key}"), identities, found);
                }
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => list(ours, theirs, place, identities, found),
        _ if type_name(recorded) == type_name(simulated) => {}
        _ => found.push(Difference::new(place, describe(recorded), describe(simulated))),
    }
}

/// Lists: elements about the same object are compared with each other, the rest with the most similar element. A list
/// at the top is the answer to a query, so whether it is empty matters; further down a recorded empty list does not
/// restrict anything.
fn list(recorded: &[Value], simulated: &[Value], place: &str, identities: &Identities, found: &mut Vec<Difference>) {
    let count =
        |list: &[Value]| if list.is_empty() { "an empty list".to_owned() } else { format!("{} elements", list.len()) };
    if recorded.is_empty() || simulated.is_empty() {
        let differs = if place == "body" {
            recorded.is_empty() != simulated.is_empty()
        } else {
            // Only objects have keys that an empty list hides.
            recorded.iter().any(Value::is_object)
        };
        if differs {
            found.push(Difference::new(place, count(recorded), count(simulated)));
        }
        return;
    }
    let couples = identities.couples(recorded, simulated);
    for (ours, theirs) in &couples {
        shape(ours, theirs, &format!("{place}[]"), identities, found);
    }
    for lonely in simulated.iter().filter(|value| !couples.iter().any(|(_, theirs)| std::ptr::eq(*theirs, *value))) {
        let mut least: Option<Vec<Difference>> = None;
        for ours in recorded {
            let mut differences = Vec::new();
            shape(ours, lonely, &format!("{place}[]"), identities, &mut differences);
            if least.as_ref().is_none_or(|least| differences.len() < least.len()) {
                least = Some(differences);
            }
        }
        found.extend(least.unwrap_or_default());
    }
}

/// Fields whose values show a machine's state; `state` is its power state.
const STATE: [&str; 6] = ["status", "status_name", "owner", "power_state", "locked", "state"];

/// The machines of an answer must be in the recorded states.
fn states(recorded: &Value, simulated: &Value, identities: &Identities, found: &mut Vec<Difference>) {
    for (ours, theirs) in identities.couples(&as_list(recorded), &as_list(simulated)) {
        let is_power = ours.as_object().is_some_and(|fields| fields.len() == 1 && fields.contains_key("state"));
        let name = ours.get("hostname").and_then(Value::as_str);
        if name.is_none() && !is_power {
            continue;
        }
        for key in STATE {
            if let (Some(ours), Some(theirs)) = (ours.get(key), theirs.get(key))
                && ours != theirs
            {
                found.push(Difference::new(&format!("{key} of {}", name.unwrap_or("the power")), ours, theirs));
            }
        }
    }
}

fn as_list(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items.clone(),
        single => vec![single.clone()],
    }
}

/// Lists with a different length than the recorded ones. The form of the answer is the same, but the replay has
/// diverged from the recording.
pub fn drift(recorded: &Value, simulated: &Value) -> Option<String> {
    let (ours, theirs) = (recorded.as_array()?.len(), simulated.as_array()?.len());
    (ours != theirs).then(|| format!("recorded {ours} elements, simulated {theirs}"))
}

/// Makes keys that are ids or dates comparable.
fn common_key(key: &str, identities: &Identities) -> String {
    let day = key.get(..8).unwrap_or_default();
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if day.len() == 8 && digits(day) && key[8..].trim_start_matches('.').bytes().all(|byte| byte.is_ascii_digit()) {
        return "<date>".to_owned();
    }
    identities.simulated(Kind::System, key).to_owned()
}

static NOTHING_KNOWN: std::sync::LazyLock<Identities> = std::sync::LazyLock::new(Identities::default);

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a fraction",
        Value::Number(_) => "a whole number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Array(_) | Value::Object(_) => type_name(value).to_owned(),
        scalar => format!("{} ({scalar})", type_name(scalar)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn differences(recorded: &Value, simulated: &Value) -> Vec<String> {
        let mut found = Vec::new();
        shape(recorded, simulated, "body", &Identities::default(), &mut found);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_hash_of_the_api_is_compared_where_it_is_recorded() {
        let headers = |hash: Option<&str>| {
            let kind = ("content-type".to_owned(), "text/plain".to_owned());
            hash.map(|hash| (WHERE_RECORDED.to_owned(), hash.to_owned())).into_iter().chain([kind]).collect()
        };
        let simulated = Answer { status: 200, headers: headers(Some("b")), body: "x".into() };
        let found = |recorded: Option<&str>| {
            let recorded = Response { status: 200, headers: headers(recorded), body: json!("x") };
            compare(&recorded, &simulated, &Identities::default()).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found(Some("a")), ["x-maas-api-hash: recorded a, simulated b"]);
        assert!(found(Some("b")).is_empty() && found(None).is_empty());
    }

    #[test]
    fn keys_must_be_the_same_on_both_sides() {
        let found = differences(&json!({"a": 1, "b": 2}), &json!({"a": 1, "c": 2}));
        assert_eq!(found, ["keys of body: recorded also b, simulated also c"]);
    }

    #[test]
    fn a_recorded_null_allows_anything_but_a_recorded_value_no_null() {
        assert!(differences(&json!({"a": null}), &json!({"a": "x"})).is_empty());
        assert_eq!(differences(&json!({"a": "x"}), &json!({"a": null})).len(), 1);
    }

    #[test]
    fn whole_numbers_and_fractions_are_different_types() {
        assert_eq!(differences(&json!({"a": 1.0}), &json!({"a": 1})).len(), 1);
        assert!(differences(&json!({"a": 1.5}), &json!({"a": 2.5})).is_empty());
    }

    #[test]
    fn an_empty_answer_is_not_a_full_one_but_empty_lists_inside_say_nothing() {
        assert_eq!(differences(&json!([]), &json!([{"a": 1}])).len(), 1);
        assert_eq!(differences(&json!([{"a": 1}]), &json!([])).len(), 1);
        assert!(differences(&json!({"l": []}), &json!({"l": [1]})).is_empty());
        assert!(differences(&json!({"l": ["text"]}), &json!({"l": []})).is_empty());
        assert_eq!(differences(&json!({"l": [{"a": 1}]}), &json!({"l": []})).len(), 1);
    }

    #[test]
    fn elements_are_compared_with_their_namesakes() {
        let ours = json!([{"name": "a", "x": 1}, {"name": "b", "x": "t"}]);
        assert!(differences(&ours, &json!([{"name": "b", "x": "u"}, {"name": "a", "x": 5}])).is_empty());
        assert_eq!(differences(&ours, &json!([{"name": "a", "x": "t"}, {"name": "b", "x": "u"}])).len(), 1);
    }

    #[test]
    fn status_owner_and_power_are_compared_by_value() {
        let machine = |status: &str, owner: Value, power: &str| json!({"hostname": "bm1", "status_name": status, "owner": owner, "power_state": power});
        let differing = |ours: &Value, theirs: &Value| {
            let mut found = Vec::new();
            states(ours, theirs, &Identities::default(), &mut found);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let ready = machine("Ready", Value::Null, "off");
        assert!(differing(&ready, &ready).is_empty());
        let found = differing(&json!([ready]), &json!([machine("Allocated", json!("alice"), "on")]));
        let told = [
            r#"status_name of bm1: recorded "Ready", simulated "Allocated""#,
            r#"owner of bm1: recorded null, simulated "alice""#,
            r#"power_state of bm1: recorded "off", simulated "on""#,
        ];
        assert_eq!(found, told);
        assert_eq!(differing(&json!({"state": "on"}), &json!({"state": "off"})).len(), 1);
    }

    #[test]
    fn dates_as_keys_are_masked() {
        assert!(differences(&json!({"20261115": 1}), &json!({"20240101.1": 1})).is_empty());
    }
}
