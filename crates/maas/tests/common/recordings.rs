//! Exchanges recorded from MAAS 3.4.10 and 3.7.3, one per line; `lab/maas-replay` also checks the simulator against
//! them.

use std::sync::OnceLock;

use bytes::Bytes;
use http::Response;
use serde_json::Value;

/// One exchange.
#[derive(Debug, Clone)]
pub struct Recording {
    pub name: String,
    pub method: String,
    /// Below the API's root, without leading and trailing slashes.
    pub segments: Vec<String>,
    pub op: Option<String>,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

impl Recording {
    pub fn response(&self) -> Response<Bytes> {
        let body = match &self.body {
            Value::String(text) if self.header("content-type").is_some_and(|kind| !kind.contains("json")) => {
                text.clone()
            }
            Value::Null if self.status == 204 => String::new(),
            other => other.to_string(),
        };
        let mut response = Response::builder().status(self.status);
        for (name, value) in &self.headers {
            response = response.header(name, value);
        }
        response.body(body.into()).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// All recordings of 3.4.10. Their absence is a failure: this crate's guarantees rest on them.
pub fn all() -> &'static [Recording] {
    static ALL: OnceLock<Vec<Recording>> = OnceLock::new();
    ALL.get_or_init(|| read("recordings", &["from-000.jsonl", "from-900.jsonl"], 1000))
}

/// All recordings of 3.7.3.
pub fn newer() -> &'static [Recording] {
    static NEWER: OnceLock<Vec<Recording>> = OnceLock::new();
    NEWER.get_or_init(|| read("recordings-3.7.3", &["from-001.jsonl", "from-900.jsonl"], 500))
}

fn read(folder: &str, files: &[&str], at_least: usize) -> Vec<Recording> {
    let folder = format!("{}/../../lab/maas-replay/tests/{folder}", env!("CARGO_MANIFEST_DIR"));
    let mut recordings = Vec::new();
    for file in files {
        let path = format!("{folder}/{file}");
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("the recordings of a real MAAS are missing: {path}: {error}"));
        let values = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        recordings.extend(values.map(|value| recording(&value)));
    }
    assert!(recordings.len() > at_least, "only {} recordings", recordings.len());
    recordings
}

/// The recording of 3.4.10 with this number.
pub fn numbered(number: &str) -> &'static Recording {
    find(all(), number)
}

/// The recording of 3.7.3 with this number.
pub fn newer_numbered(number: &str) -> &'static Recording {
    find(newer(), number)
}

fn find(recordings: &'static [Recording], number: &str) -> &'static Recording {
    let prefix = format!("{number}-");
    recordings.iter().find(|recording| recording.name.starts_with(&prefix)).expect("a recording of this number")
}

fn recording(value: &Value) -> Recording {
    let request = &value["request"];
    let path = request["path"].as_str().unwrap();
    let (path, in_path) = path.split_once('?').unwrap_or((path, ""));
    let op = pairs(&request["query"]).into_iter().find(|(key, _)| key == "op").map(|(_, op)| op);
    let below = path.strip_prefix("/MAAS/api/2.0/").unwrap_or(path);
    Recording {
        name: value["name"].as_str().unwrap().to_owned(),
        method: request["method"].as_str().unwrap().to_owned(),
        segments: below.trim_matches('/').split('/').map(str::to_owned).collect(),
        op: op.or_else(|| in_path.strip_prefix("op=").map(str::to_owned)),
        status: u16::try_from(value["response"]["status"].as_u64().unwrap()).unwrap(),
        headers: pairs(&value["response"]["headers"]),
        body: value["response"]["body"].clone(),
    }
}

fn pairs(value: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), text(value))).collect(),
        Value::Array(items) => items.iter().map(|item| (text(&item[0]), text(&item[1]))).collect(),
        _ => Vec::new(),
    }
}
