//! The compact form of a folder of recordings: one JSON value a line, repeated objects written once.
//!
//! The first line of a file is `{"shared": [ … ]}`. Wherever `{"$": N}` stands, the N-th shared object is meant; shared
//! objects refer to earlier ones in the same way. Nothing that a replay compares is lost: only headers that say nothing
//! about behaviour (lengths, hashes, caches) are left out.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::recording::{Body, Position, ReadError, Recording, files_of, is_exchange};

/// Key of a reference.
const REFERENCE: &str = "$";
/// Shorter objects are cheaper to repeat than to refer to.
const WORTH_SHARING: usize = 60;
/// Response headers that a replay looks at.
const HEADERS: [&str; 4] = ["content-type", "allow", "retry-after", "www-authenticate"];

/// Expands the text of a compact file into its recordings.
pub(super) fn expand(text: &str, place: &str) -> Result<Vec<Value>, ReadError> {
    let mut shared = Vec::new();
    let mut recordings = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = format!("{place} line {}", number + 1);
        let value: Value =
            serde_json::from_str(line).map_err(|source| ReadError::Json { place: place.clone(), source })?;
        if let Some(Value::Array(objects)) = value.get("shared") {
            for object in objects {
                let object = resolve(object, &shared, &place)?;
                shared.push(object);
            }
        } else {
            recordings.push(resolve(&value, &shared, &place)?);
        }
    }
    Ok(recordings)
}

fn resolve(value: &Value, shared: &[Value], place: &str) -> Result<Value, ReadError> {
    match value {
        Value::Object(fields) => {
            if fields.len() == 1
                && let Some(number) = fields.get(REFERENCE).and_then(Value::as_u64)
            {
                let at = usize::try_from(number).unwrap_or(usize::MAX);
                return shared.get(at).cloned().ok_or_else(|| ReadError::Shape {
                    place: place.to_owned(),
                    what: format!("refers to the shared object {number}, which does not exist yet"),
                });
            }
            let fields = fields.iter().map(|(key, value)| Ok((key.clone(), resolve(value, shared, place)?)));
            fields.collect::<Result<Map<_, _>, ReadError>>().map(Value::Object)
        }
        Value::Array(items) => {
            items.iter().map(|item| resolve(item, shared, place)).collect::<Result<_, _>>().map(Value::Array)
        }
        scalar => Ok(scalar.clone()),
    }
}

/// Writes the recordings of `folder` to `out`, one file for each series. A series begins where `starts` says (a number),
/// the first with the first recording. Returns how many recordings each file got.
pub fn compact(folder: &Path, out: &Path, starts: &[Position]) -> Result<BTreeMap<String, usize>, ReadError> {
    let mut recordings: Vec<(Position, Value)> = Vec::new();
    for path in files_of(folder)?.into_iter().filter(|path| path.extension().is_some_and(|end| end == "json")) {
        let place = path.display().to_string();
        let text = fs::read_to_string(&path).map_err(|source| ReadError::Io { path: path.clone(), source })?;
        if !is_exchange(&text, &place)? {
            continue;
        }
        let json = |source| ReadError::Json { place: place.clone(), source };
        let recording: Recording = serde_json::from_str(&text).map_err(json)?;
        let mut value: Value = serde_json::from_str(&text).map_err(json)?;
        let position = recording.position.clone();
        keep_order_of_fields(&mut value, &recording);
        drop_idle_headers(&mut value);
        recordings.push((position, value));
    }
    recordings.sort_by(|a, b| a.0.cmp(&b.0));
    let mut series: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let first = recordings.first().map(|(position, _)| position.to_string()).unwrap_or_default();
    for (position, value) in recordings {
        let start = starts.iter().filter(|start| position.reaches(start)).max();
        let start = start.map_or_else(|| first.clone(), ToString::to_string);
        series.entry(start).or_default().push(value);
    }
    let io = |path: &Path, source| ReadError::Io { path: path.to_owned(), source };
    fs::create_dir_all(out).map_err(|source| io(out, source))?;
    let mut written = BTreeMap::new();
    for (start, values) in series {
        let path = out.join(format!("from-{start}.jsonl"));
        fs::write(&path, write_series(&values)).map_err(|source| io(&path, source))?;
        written.insert(path.display().to_string(), values.len());
    }
    Ok(written)
}

/// Fields go into lists of pairs: the order of a form's fields shows in answers, and an object of JSON does not keep it.
fn keep_order_of_fields(value: &mut Value, recording: &Recording) {
    let Some(request) = value.get_mut("request").and_then(Value::as_object_mut) else { return };
    request.insert("path".into(), json!(recording.request.path));
    let query = &recording.request.query;
    request.insert("query".into(), if query.is_empty() { Value::Null } else { json!(query) });
    if let Body::Form(fields) = &recording.request.body {
        request.insert("body".into(), json!(fields));
    }
}

fn drop_idle_headers(recording: &mut Value) {
    if let Some(headers) = recording.pointer_mut("/response/headers").and_then(Value::as_object_mut) {
        headers.retain(|name, _| HEADERS.contains(&name.to_lowercase().as_str()));
    }
}

fn write_series(recordings: &[Value]) -> String {
    let mut counts = HashMap::new();
    for recording in recordings {
        count(recording, &mut counts);
    }
    let mut writer = Writer { counts, numbers: HashMap::new(), shared: Vec::new() };
    let lines: Vec<_> = recordings.iter().map(|recording| writer.write(recording).to_string()).collect();
    let mut text = json!({"shared": writer.shared}).to_string();
    for line in lines {
        text.push('\n');
        text.push_str(&line);
    }
    text.push('\n');
    text
}

fn count(value: &Value, counts: &mut HashMap<String, usize>) {
    match value {
        Value::Object(fields) => {
            let seen = counts.entry(value.to_string()).or_default();
            *seen += 1;
            // The parts of what is shared as a whole need no sharing of their own.
            if *seen == 1 {
                fields.values().for_each(|field| count(field, counts));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| count(item, counts)),
        _ => {}
    }
}

struct Writer {
    counts: HashMap<String, usize>,
    numbers: HashMap<String, usize>,
    shared: Vec<Value>,
}

impl Writer {
    fn write(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let text = value.to_string();
                if text.len() < WORTH_SHARING || self.counts.get(&text).is_none_or(|count| *count < 2) {
                    return self.write_fields(fields);
                }
                if let Some(number) = self.numbers.get(&text) {
                    return json!({REFERENCE: number});
                }
                let object = self.write_fields(fields);
                let number = self.shared.len();
                self.shared.push(object);
                self.numbers.insert(text, number);
                json!({REFERENCE: number})
            }
            Value::Array(items) => Value::Array(items.iter().map(|item| self.write(item)).collect()),
            scalar => scalar.clone(),
        }
    }

    fn write_fields(&mut self, fields: &Map<String, Value>) -> Value {
        Value::Object(fields.iter().map(|(key, value)| (key.clone(), self.write(value))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_compactly_expands_to_what_it_was() {
        let vlan = json!({"id": 1, "name": "untagged", "description": "long enough to be worth sharing, surely"});
        let subnet = json!({"vlan": vlan, "cidr": "10.0.0.0/24", "list": [vlan, {"vlan": vlan}]});
        let recordings = vec![json!({"a": subnet, "b": 1.0}), json!({"c": [subnet, null, "x"]})];
        let text = write_series(&recordings);
        assert_eq!(expand(&text, "test").unwrap(), recordings);
        assert_eq!(text.matches("untagged").count(), 1, "{text}");
    }

    #[test]
    fn a_reference_into_nowhere_is_named_with_its_line() {
        let error = expand("{\"shared\":[]}\n{\"a\":{\"$\":7}}", "file").unwrap_err().to_string();
        assert!(error.contains("file line 2") && error.contains('7'), "{error}");
    }
}
