//! Bodies and queries: the parameters of a request, however they are encoded.

use serde_json::Value;

use crate::model::{Outcome, Refusal};

/// A file of a multipart body.
#[derive(Clone, Debug)]
pub struct FilePart {
    pub name: String,
    pub content: Vec<u8>,
}

/// How the body was encoded. MAAS's handlers treat each differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    #[default]
    Form,
    Json,
    /// A content type that MAAS does not read.
    Unread,
    /// Invalid JSON.
    Malformed,
}

/// Parameters in the order of the request.
#[derive(Clone, Debug, Default)]
pub struct Form {
    /// Pairs, including repeated keys.
    pub pairs: Vec<(String, String)>,
    pub files: Vec<FilePart>,
    /// Their encoding.
    pub encoding: Encoding,
}

impl Form {
    /// Parses a query string.
    pub fn from_query(query: &str) -> Self {
        Self { pairs: parse_pairs(query.as_bytes()), ..Self::default() }
    }

    /// Parses a body by its content type. Without one it counts as empty.
    pub fn from_body(content_type: Option<&str>, body: &[u8]) -> Self {
        let kind = content_type.unwrap_or_default();
        let bare = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match bare.as_str() {
            "application/x-www-form-urlencoded" => Self { pairs: parse_pairs(body), ..Self::default() },
            "multipart/form-data" => boundary(kind).map(|b| parse_multipart(&b, body)).unwrap_or_default(),
            "application/json" => match serde_json::from_slice(body) {
                Ok(value) => Self { pairs: json_pairs(&value), encoding: Encoding::Json, files: Vec::new() },
                Err(_) => Self { encoding: Encoding::Malformed, ..Self::default() },
            },
            "" => Self::default(),
            _ => Self { encoding: Encoding::Unread, ..Self::default() },
        }
    }

    /// The last value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The last value of a key, as owned text.
    pub fn text(&self, key: &str) -> Option<String> {
        self.get(key).map(str::to_owned)
    }

    /// All values of a key.
    pub fn all(&self, key: &str) -> Vec<&str> {
        self.pairs.iter().filter(|(name, _)| name == key).map(|(_, value)| value.as_str()).collect()
    }

    /// All values of a key, as owned text.
    pub fn all_texts(&self, key: &str) -> Vec<String> {
        self.all(key).into_iter().map(str::to_owned).collect()
    }

    /// A boolean in any form that MAAS accepts.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(is_true)
    }

    /// A boolean that a handler parses itself, before any form: an invalid value is refused in plain text.
    pub fn boolean(&self, key: &str) -> Outcome<bool> {
        let text = self.get(key).unwrap_or_default().trim().to_ascii_lowercase();
        match text.as_str() {
            "" | "false" | "f" | "no" | "n" | "off" | "0" => Ok(false),
            text if is_true(text) => Ok(true),
            _ => Err(Refusal::bad_request(format!("Invalid {key}: Value should be 'true' or 'false'"))),
        }
    }

    /// An integer that a handler parses itself.
    pub fn whole_number(&self, key: &str) -> Outcome<Option<i64>> {
        let Some(text) = self.get(key).map(str::trim).filter(|text| !text.is_empty()) else { return Ok(None) };
        let wrong = |_| Refusal::bad_request(format!("Invalid {key}: Please enter an integer value"));
        text.parse().map(Some).map_err(wrong)
    }

    /// A parameter that a handler requires. An empty text counts as present.
    pub fn mandatory(&self, key: &str) -> Outcome<&str> {
        self.get(key).ok_or_else(|| Refusal::bad_request(format!("No provided {key}!")))
    }

    /// A form checkbox: any value that is neither empty nor "false" checks it, even "0". From MAAS's source, not
    /// recorded.
    pub fn checkbox(&self, key: &str) -> bool {
        self.get(key).is_some_and(is_ticked)
    }

    /// The annotations of a form: `op` is no key, even where the query names the operation.
    pub fn annotations(&self) -> Vec<(String, String)> {
        self.pairs.iter().filter(|(key, _)| key != "op").cloned().collect()
    }

    /// Whether a key is there.
    pub fn has(&self, key: &str) -> bool {
        self.pairs.iter().any(|(name, _)| name == key)
    }
}

/// Whether a value checks a checkbox.
pub fn is_ticked(text: &str) -> bool {
    !text.is_empty() && !text.eq_ignore_ascii_case("false")
}

/// "true", "1", "yes", "on" in any case.
pub fn is_true(text: &str) -> bool {
    matches!(text.trim().to_ascii_lowercase().as_str(), "true" | "1" | "yes" | "y" | "on" | "t")
}

fn parse_pairs(bytes: &[u8]) -> Vec<(String, String)> {
    form_urlencoded::parse(bytes).map(|(key, value)| (key.into_owned(), value.into_owned())).collect()
}

fn json_pairs(value: &Value) -> Vec<(String, String)> {
    let Value::Object(object) = value else { return Vec::new() };
    let plain = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    object
        .iter()
        .flat_map(|(key, value)| match value {
            Value::Array(items) => items.iter().map(|item| (key.clone(), plain(item))).collect::<Vec<_>>(),
            other => vec![(key.clone(), plain(other))],
        })
        .collect()
}

fn boundary(content_type: &str) -> Option<String> {
    content_type.split(';').skip(1).find_map(|part| {
        let (name, value) = part.trim().split_once('=')?;
        name.eq_ignore_ascii_case("boundary").then(|| value.trim_matches('"').to_owned())
    })
}

fn find(haystack: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    if needle.is_empty() || haystack.len() < needle.len() {
        return None;
    }
    (from..=haystack.len() - needle.len()).find(|at| &haystack[*at..*at + needle.len()] == needle)
}

/// Parses a multipart body. Invalid parts are skipped, as Django does.
fn parse_multipart(boundary: &str, body: &[u8]) -> Form {
    let mut form = Form::default();
    let delimiter = format!("--{boundary}");
    let mut at = match find(body, delimiter.as_bytes(), 0) {
        Some(start) => start + delimiter.len(),
        None => return form,
    };
    while let Some(end) = find(body, delimiter.as_bytes(), at) {
        let part = &body[at..end];
        at = end + delimiter.len();
        let part = part.strip_prefix(b"\r\n").or_else(|| part.strip_prefix(b"\n")).unwrap_or(part);
        let part = part.strip_suffix(b"\r\n").or_else(|| part.strip_suffix(b"\n")).unwrap_or(part);
        let Some((head_end, gap)) =
            find(part, b"\r\n\r\n", 0).map(|at| (at, 4)).or_else(|| find(part, b"\n\n", 0).map(|at| (at, 2)))
        else {
            continue;
        };
        let head = String::from_utf8_lossy(&part[..head_end]).into_owned();
        let mut content = part[head_end + gap..].to_vec();
        let disposition = head.lines().find(|line| line.to_ascii_lowercase().starts_with("content-disposition"));
        let Some(name) = disposition.and_then(|line| parameter(line, "name")) else { continue };
        let encoded = head.lines().any(|line| {
            let line = line.to_ascii_lowercase();
            line.starts_with("content-transfer-encoding") && line.contains("base64")
        });
        if encoded {
            use base64::Engine as _;
            let compact: Vec<u8> = content.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
            content = base64::engine::general_purpose::STANDARD.decode(&compact).unwrap_or(content);
        }
        if disposition.is_some_and(|line| parameter(line, "filename").is_some()) {
            form.files.push(FilePart { name, content });
        } else {
            form.pairs.push((name, String::from_utf8_lossy(&content).into_owned()));
        }
    }
    form
}

fn parameter(line: &str, wanted: &str) -> Option<String> {
    line.split(';').skip(1).find_map(|part| {
        let (name, value) = part.trim().split_once('=')?;
        (name == wanted).then(|| value.trim_matches('"').to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_repeated_scalar_wins_and_lists_keep_all() {
        let form = Form::from_body(Some("application/x-www-form-urlencoded"), b"a=1&a=2&b=x%20y");
        assert_eq!(form.get("a"), Some("2"));
        assert_eq!(form.all("a"), ["1", "2"]);
        assert_eq!(form.get("b"), Some("x y"));
    }

    #[test]
    fn multipart_bodies_have_fields_and_files() {
        let body = b"--B\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\nazmp\r\n--B\r\nContent-Disposition: \
                     form-data; name=\"x\"; filename=\"f\"\r\n\r\n\x00\x01\r\n--B--\r\n";
        let form = Form::from_body(Some("multipart/form-data; boundary=B"), body);
        assert_eq!(form.get("name"), Some("azmp"));
        assert_eq!(form.files[0].content, [0, 1]);
    }

    #[test]
    fn a_body_without_content_type_counts_as_empty() {
        assert!(Form::from_body(None, b"name=noct").pairs.is_empty());
    }
}
