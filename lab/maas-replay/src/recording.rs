//! Recorded exchanges: reading and ordering a folder of them.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;
use serde_json::Value;

use maas_sim::version::Version;

use crate::fields;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The folder or one of its files cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// What was being read.
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file is not JSON, or JSON but not a recording.
    #[error("{place} cannot be understood: {source}")]
    Json {
        /// The file, and the line where there are several.
        place: String,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// Two recordings have the same name.
    #[error("two recordings are called {0}; keep either its file or its line")]
    Twice(String),
    /// There is nothing to replay.
    #[error("no recordings (*.json or *.jsonl with a request and a response) in {}", .0.display())]
    Empty(PathBuf),
}

/// The position of a recording in its folder: the number that its name begins with, then letters ("368b"), then the
/// name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    number: u64,
    letters: String,
    rest: String,
}

impl Position {
    /// Whether this position has reached `mark`, usually one without a name ("before 368b"). A name distinguishes
    /// recordings with the same number.
    pub fn reaches(&self, mark: &Self) -> bool {
        let (own, other) = ((self.number, &self.letters), (mark.number, &mark.letters));
        own > other || (own == other && (mark.rest.is_empty() || mark.rest == self.rest))
    }

    /// Whether this position has the number of `mark`.
    pub fn is_at(&self, mark: &Self) -> bool {
        self.number == mark.number && self.letters == mark.letters
    }
}

impl FromStr for Position {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let digits = name.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = name.split_at(digits);
        let number = number.parse().map_err(|_| format!("{name:?} does not begin with a number"))?;
        let letters = rest.bytes().take_while(u8::is_ascii_lowercase).count();
        let (letters, rest) = rest.split_at(letters);
        Ok(Self { number, letters: letters.to_owned(), rest: rest.trim_start_matches('-').to_owned() })
    }
}

impl Ord for Position {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.number, &self.letters, &self.rest).cmp(&(other.number, &other.letters, &other.rest))
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:03}{}", self.number, self.letters)
    }
}

/// The fields of a form or a query, in order; keys may repeat.
pub type Pairs = Vec<(String, String)>;

/// The body of a recorded request.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// There was none.
    None,
    /// Form fields.
    Form(Pairs),
    /// Anything else, as sent.
    Text(String),
}

#[derive(Clone, Debug, Deserialize)]
pub struct Request {
    /// HTTP method.
    pub method: String,
    /// Path as recorded; without a leading slash it is relative to `/MAAS/`.
    pub path: String,
    /// Query fields.
    #[serde(default, deserialize_with = "fields::pairs")]
    pub query: Pairs,
    /// Content-Type header, as recorded.
    #[serde(default)]
    pub content_type: Option<String>,
    /// Body.
    #[serde(default = "fields::no_body", deserialize_with = "fields::body")]
    pub body: Body,
    /// Files of a multipart form: field, and the recording's description of the content.
    #[serde(default, deserialize_with = "fields::pairs")]
    pub files: Pairs,
    /// The Authorization header if the recording shows it ("none": there was none).
    #[serde(default)]
    pub authorization: Option<String>,
    /// The user who made the request, as the recording names it; absent for the first admin.
    #[serde(default, rename = "as")]
    pub caller: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// Headers, names in lower case.
    #[serde(default, deserialize_with = "fields::headers")]
    pub headers: BTreeMap<String, String>,
    /// Body: JSON if it was JSON, else a string.
    #[serde(default)]
    pub body: Value,
}

/// One recorded exchange.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Raw")]
pub struct Recording {
    /// File name without its extension.
    pub name: String,
    pub position: Position,
    pub request: Request,
    pub response: Response,
    /// How long the answer took.
    pub seconds: f64,
    /// The server as its recorder names it, such as "MAAS 3.4.10".
    pub server: Option<String>,
}

/// A recording as stored in a file.
#[derive(Deserialize)]
struct Raw {
    name: String,
    request: Request,
    response: Response,
    #[serde(default)]
    seconds: Option<f64>,
    #[serde(default)]
    server: Option<String>,
}

impl TryFrom<Raw> for Recording {
    type Error = String;

    fn try_from(raw: Raw) -> Result<Self, Self::Error> {
        let Raw { name, mut request, response, seconds, server } = raw;
        if let Some((path, query)) = request.path.clone().split_once('?') {
            let mut fields: Pairs = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
            fields.append(&mut request.query);
            path.clone_into(&mut request.path);
            request.query = fields;
        }
        Ok(Self { position: name.parse()?, name, request, response, seconds: seconds.unwrap_or(0.0), server })
    }
}

impl Recording {
    /// A request that is not part of a recording, in the form of one.
    pub(crate) fn asking(method: &str, path: &str) -> Self {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        Self {
            name: String::new(),
            position: Position { number: 0, letters: String::new(), rest: String::new() },
            request: Request {
                method: method.to_owned(),
                path: path.to_owned(),
                query: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
                content_type: None,
                body: Body::None,
                files: Vec::new(),
                authorization: None,
                caller: None,
            },
            response: Response { status: 200, headers: BTreeMap::new(), body: Value::Null },
            seconds: 0.0,
            server: None,
        }
    }

    /// The release that was recorded, if the recording names it.
    pub fn version(&self) -> Option<Version> {
        self.server.as_deref()?.rsplit(' ').next()?.parse().ok()
    }

    /// The requested operation, wherever it was named.
    pub fn operation(&self) -> Option<&str> {
        fn named(fields: &Pairs) -> Option<&str> {
            fields.iter().find(|(key, _)| key == "op").map(|(_, op)| op.as_str())
        }
        let in_path = || self.request.path.rsplit_once("/op-").map(|(_, op)| op.trim_end_matches('/'));
        let in_body = || if let Body::Form(fields) = &self.request.body { named(fields) } else { None };
        named(&self.request.query).or_else(in_path).or_else(in_body)
    }
}

/// Reads every recording of a folder, in order. JSON files without an exchange (an index, a description) are skipped.
pub fn read_folder(folder: &Path) -> Result<Vec<Recording>, ReadError> {
    let mut recordings: Vec<Recording> = Vec::new();
    for path in files_of(folder)? {
        let place = path.display().to_string();
        let read = || fs::read_to_string(&path).map_err(|source| ReadError::Io { path: path.clone(), source });
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("json") => {
                let text = read()?;
                if is_exchange(&text, &place)? {
                    let recording = serde_json::from_str(&text);
                    recordings.push(recording.map_err(|source| ReadError::Json { place, source })?);
                }
            }
            Some("jsonl") => {
                let text = read()?;
                for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                    let place = || format!("{place} line {}", number + 1);
                    let recording = serde_json::from_str(line);
                    recordings.push(recording.map_err(|source| ReadError::Json { place: place(), source })?);
                }
            }
            _ => {}
        }
    }
    recordings.sort_by(|a, b| a.position.cmp(&b.position));
    if let Some(twice) = recordings.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(ReadError::Twice(twice[0].name.clone()));
    }
    if recordings.is_empty() {
        return Err(ReadError::Empty(folder.to_owned()));
    }
    Ok(recordings)
}

/// Whether a JSON file contains an exchange at all.
pub(crate) fn is_exchange(text: &str, place: &str) -> Result<bool, ReadError> {
    let value: Value =
        serde_json::from_str(text).map_err(|source| ReadError::Json { place: place.to_owned(), source })?;
    Ok(value.get("request").is_some() && value.get("response").is_some())
}

/// The files of a folder, sorted by name.
pub(crate) fn files_of(folder: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let io = |source| ReadError::Io { path: folder.to_owned(), source };
    let mut paths = fs::read_dir(folder)
        .map_err(io)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(io)?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn position(name: &str) -> Position {
        name.parse().unwrap()
    }

    #[test]
    fn numbers_order_recordings_before_letters_and_names() {
        let mut names = ["1000-z", "368b-x", "368-y", "900-a", "005-q", "368-a"];
        names.sort_by_key(|name| position(name));
        assert_eq!(names, ["005-q", "368-a", "368-y", "368b-x", "900-a", "1000-z"]);
    }

    #[test]
    fn a_mark_is_reached_by_its_own_number_and_by_later_ones() {
        assert!(position("368b-x").reaches(&position("368")));
        assert!(position("370-x").reaches(&position("368b")));
        assert!(!position("368-x").reaches(&position("368b")));
        assert!(position("000-x").reaches(&position("000-x")));
        assert!(!position("000-z").reaches(&position("000-x")));
    }

    #[test]
    fn fields_are_read_as_objects_lists_and_inline_queries() {
        let recording: Recording = serde_json::from_value(json!({
            "name": "001-a",
            "request": {"method": "POST", "path": "/MAAS/api/2.0/machines/?op=allocate",
                "query": [["id", "a"], ["id", "b"]], "body": {"n": 4, "tags": ["x", "y"]}},
            "response": {"status": 200, "headers": {"Content-Type": "text/plain"}, "body": "x"}
        }))
        .unwrap();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(recording.request.query, [pair("op", "allocate"), pair("id", "a"), pair("id", "b")]);
        assert_eq!(recording.request.body, Body::Form(vec![pair("n", "4"), pair("tags", "x"), pair("tags", "y")]));
        assert_eq!(recording.operation(), Some("allocate"));
    }
}
