//! Statements of an arrangement: sentences such as "bm05 is Deployed, owner alice", or explicit fields.

use serde_json::{Map, Value, json};

/// Kinds of objects and the field that names one.
const NAMED: [(&str, &str); 16] = [
    ("machine", "hostname"),
    ("user", "name"),
    ("zone", "name"),
    ("pool", "name"),
    ("domain", "name"),
    ("space", "name"),
    ("fabric", "name"),
    ("vlan", "id"),
    ("subnet", "cidr"),
    ("ip_range", "start_ip"),
    ("ip_address", "ip"),
    ("tag", "name"),
    ("dns", "fqdn"),
    ("image", "name"),
    ("vm_host", "name"),
    ("lxd", "address"),
];
/// The meaning of a plain word after "is", by kind.
const STATES: [(&str, &str, &str, bool); 10] = [
    ("lxd", "reachable", "reachable", true),
    ("lxd", "unreachable", "reachable", false),
    ("rack", "connected", "connected", true),
    ("rack", "disconnected", "connected", false),
    ("image", "complete", "complete", true),
    ("image", "incomplete", "complete", false),
    ("user", "admin", "admin", true),
    ("domain", "authoritative", "authoritative", true),
    ("vm_host", "counted", "counted", true),
    ("ip_address", "free", "free", true),
];

/// A statement for the simulator from an element of `state`.
pub(crate) fn statement(value: &Value) -> Result<Value, String> {
    match value {
        Value::String(sentence) => parse(sentence).map_err(|what| format!("{sentence:?}: {what}")),
        Value::Object(fields) if fields.len() == 1 => Ok(value.clone()),
        other => Err(format!("{other} is neither a sentence nor an object with one key, the kind")),
    }
}

/// `[KIND] NAME [(ID)] is STATE|exists|absent|has … [, FIELD VALUE]…`
fn parse(sentence: &str) -> Result<Value, String> {
    let mut parts = split_outside_brackets(sentence).into_iter();
    let head = parts.next().unwrap_or_default();
    let words: Vec<&str> = head.split_whitespace().collect();
    let verb = words
        .iter()
        .position(|word| matches!(*word, "is" | "exists" | "has"))
        .ok_or("has no verb: is, exists or has")?;
    let (subject, rest) = (&words[..verb], &words[verb + 1..]);
    let (kind, name, id) = subject_of(subject)?;
    let mut fields = Map::new();
    let named = name.clone();
    if let Some(key) = NAMED.iter().find(|(known, _)| *known == kind).map(|(_, key)| *key) {
        let name = name.ok_or_else(|| format!("does not say which {kind}"))?;
        fields.insert(key.to_owned(), if key == "id" { scalar(&name) } else { json!(name) });
    } else if kind == "rack" {
        fields.extend(name.map(|name| ("system_id".to_owned(), json!(name))));
    } else {
        return Err(format!("{kind} has no names: write its fields out"));
    }
    if let Some(id) = id {
        fields.insert(if kind == "machine" { "system_id" } else { "id" }.to_owned(), scalar(&id));
    }
    match (words[verb], rest) {
        ("exists", []) => {}
        ("has", rest) => field(&mut fields, &rest.join(" "))?,
        ("is", ["absent"]) => {
            // The id of a machine is more specific than its name, which another one may have by now.
            let which = fields.get("system_id").cloned().unwrap_or_else(|| json!(named));
            return Ok(json!({"absent": {kind: which}}));
        }
        ("is", []) | ("exists", _) => return Err("breaks off or says too much after its verb".to_owned()),
        ("is", state) => {
            let state = state.join(" ");
            if kind == "machine" {
                fields.insert("status".to_owned(), json!(state));
            } else if let Some((_, _, key, on)) = STATES.iter().find(|(of, word, ..)| *of == kind && *word == state) {
                fields.insert((*key).to_owned(), json!(on));
            } else {
                return Err(format!("a {kind} cannot be {state:?}"));
            }
        }
        _ => return Err("has no verb: is, exists or has".to_owned()),
    }
    for part in parts {
        field(&mut fields, part.trim())?;
    }
    Ok(json!({kind: fields}))
}

/// Kind, name and id of the subject; without a kind it is a machine.
fn subject_of(words: &[&str]) -> Result<(String, Option<String>, Option<String>), String> {
    let (kind, mut rest) = match words {
        [first, rest @ ..] if *first == "rack" || NAMED.iter().any(|(kind, _)| kind == first) => (*first, rest),
        words => ("machine", words),
    };
    let mut id = None;
    if let [before @ .., last] = rest
        && let Some(inner) = last.strip_prefix('(').and_then(|inner| inner.strip_suffix(')'))
    {
        id = Some(inner.to_owned());
        rest = before;
    }
    match rest {
        [] => Ok((kind.to_owned(), None, id)),
        [name] => Ok((kind.to_owned(), Some((*name).to_owned()), id)),
        _ => Err(format!("does not begin with a kind and a name: {words:?}")),
    }
}

/// `FIELD VALUE`, or `no FIELD` for null.
fn field(fields: &mut Map<String, Value>, text: &str) -> Result<(), String> {
    let (key, value) = text.split_once(' ').ok_or_else(|| format!("{text:?} is not a field and its value"))?;
    if key == "no" {
        fields.insert(value.trim().to_owned(), Value::Null);
    } else {
        fields.insert(key.to_owned(), scalar(value.trim()));
    }
    Ok(())
}

/// A value in YAML notation; anything else is plain text. On and off are power states here, not booleans.
fn scalar(text: &str) -> Value {
    let flow = text.starts_with(['[', '{', '"']);
    if flow {
        return serde_saphyr::from_str(text).unwrap_or_else(|_| json!(text));
    }
    match text {
        "true" => json!(true),
        "false" => json!(false),
        "null" => Value::Null,
        text => text.parse::<i64>().map_or_else(|_| json!(text), |number| json!(number)),
    }
}

fn split_outside_brackets(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_usize, 0, Vec::new());
    for (at, character) in text.char_indices() {
        match character {
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_says_what_a_machine_is_and_has() {
        assert_eq!(
            parse("bm05 is Deployed, owner alice").unwrap(),
            json!({"machine": {"hostname": "bm05", "status": "Deployed", "owner": "alice"}})
        );
        assert_eq!(
            parse("machine bm05 (whbgc7) is Failed deployment, power on, tags [a, b], no owner, cpu_count 4").unwrap(),
            json!({"machine": {"hostname": "bm05", "system_id": "whbgc7", "status": "Failed deployment", "power": "on",
                "tags": ["a", "b"], "owner": null, "cpu_count": 4}})
        );
        assert_eq!(parse("bm05 has bmc hangs").unwrap(), json!({"machine": {"hostname": "bm05", "bmc": "hangs"}}));
    }

    #[test]
    fn other_kinds_are_named_first() {
        assert_eq!(parse("zone az1 (2) exists").unwrap(), json!({"zone": {"name": "az1", "id": 2}}));
        assert_eq!(
            parse("lxd 10.0.0.2:8443 is unreachable").unwrap(),
            json!({"lxd": {"address": "10.0.0.2:8443", "reachable": false}})
        );
        assert_eq!(parse("vm_host host-a is absent").unwrap(), json!({"absent": {"vm_host": "host-a"}}));
        assert_eq!(parse("rack is disconnected").unwrap(), json!({"rack": {"connected": false}}));
    }

    #[test]
    fn what_is_no_sentence_is_refused_with_a_reason() {
        assert!(parse("bm05 Deployed").unwrap_err().contains("verb"));
        assert!(parse("zone az1 is Deployed").unwrap_err().contains("cannot be"));
        assert!(statement(&json!({"machine": {}, "zone": {}})).unwrap_err().contains("one key"));
    }
}
