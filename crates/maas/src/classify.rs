//! Maps an unsuccessful answer to an [`Error`]. Pure.
//!
//! MAAS's status codes are ambiguous: 404 can mean "address in use", 500 can be a mistake in the request, 409 has two
//! meanings, and a proxy in front of MAAS may answer anything. So every decision considers status, content type and
//! text together, and what does not fit is `NotUnderstood`.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderMap, Response, StatusCode, header};
use serde_json::Value;

use crate::error::{Effect, Error, ErrorKind};
use crate::redaction::Redaction;

/// What is needed about a request to interpret its refusal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) operation: &'static str,
    /// GET: nothing can have changed.
    pub(crate) read_only: bool,
    /// MAAS's names of the object in the path ("Machine"). Empty for a collection, where 404 never means absent.
    pub(crate) object: &'static [&'static str],
}

/// The maximum length of a MAAS message that an error keeps.
const MESSAGE: usize = 1024;

/// How much of an unsuccessful answer is looked at.
const READ: usize = 64 << 10;

/// The body, classified by its content type.
enum Words {
    /// Form errors: field to messages.
    Fields(BTreeMap<String, Vec<String>>),
    /// Text written by MAAS.
    Text(String),
    /// A page from a proxy or from Django: its title.
    Page(String),
    /// None of these.
    Other,
}

impl Words {
    fn of(headers: &HeaderMap, body: &[u8]) -> Self {
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let text = String::from_utf8_lossy(body);
        match content_type.split(';').next().unwrap_or("").trim() {
            "application/json" => match serde_json::from_slice::<Value>(body) {
                Ok(Value::Object(entries)) => Self::Fields(entries.into_iter().map(messages).collect()),
                Ok(Value::String(text)) => Self::Text(text),
                _ => Self::Other,
            },
            "text/plain" => Self::Text(text.trim().to_owned()),
            "text/html" => Self::Page(title(&text)),
            _ if body.is_empty() => Self::Text(String::new()),
            _ => Self::Other,
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Fields(fields) => fields
                .iter()
                .map(|(field, messages)| match field.as_str() {
                    "__all__" => messages.join(" "),
                    field => format!("{field}: {}", messages.join(" ")),
                })
                .collect::<Vec<_>>()
                .join("; "),
            Self::Text(text) => text.clone(),
            Self::Page(title) if title.is_empty() => "a web page".to_owned(),
            Self::Page(title) => format!("a web page titled {title:?}"),
            Self::Other => "neither text nor form errors".to_owned(),
        }
    }
}

fn messages((field, value): (String, Value)) -> (String, Vec<String>) {
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let messages = match value {
        Value::Array(items) => items.into_iter().map(text).collect(),
        other => vec![text(other)],
    };
    (field, messages)
}

fn title(page: &str) -> String {
    // Offsets in the lower-case text are offsets in the page: ASCII lower-casing keeps lengths.
    let lower = page.to_ascii_lowercase();
    let Some(start) = lower.find("<title>").map(|at| at + "<title>".len()) else { return String::new() };
    let end = lower.get(start..).and_then(|rest| rest.find("</title>")).map_or(page.len(), |length| start + length);
    page.get(start..end).unwrap_or_default().trim().chars().take(100).collect()
}

/// Seconds only: MAAS sends numbers. A date, which some proxies send, is treated as absent.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// The error for an answer. Only for unsuccessful answers.
pub(crate) fn error_of(asked: Asked, response: &Response<impl AsRef<[u8]>>, redaction: &Redaction) -> Error {
    let status = response.status();
    let body = response.body().as_ref();
    let body = body.get(..READ).unwrap_or(body);
    if status == StatusCode::UNAUTHORIZED {
        // From here on the body is not used.
        return Error::new(ErrorKind::Denied, asked.operation, Effect::None, why_401(body))
            .with_status(status.as_u16());
    }
    let words = Words::of(response.headers(), body);
    let retry_after = retry_after(response.headers());
    let (kind, sentence) = decide(asked, response, &words, retry_after.is_some());
    let effect = if asked.read_only || !(status.is_server_error() || kind == ErrorKind::NotUnderstood) {
        Effect::None
    } else {
        Effect::Unknown
    };
    let message = redaction.text(&sentence.unwrap_or_else(|| words.message()), MESSAGE);
    let fields = match words {
        Words::Fields(fields) => fields
            .into_iter()
            .map(|(field, messages)| {
                let messages = messages.iter().map(|message| redaction.text(message, MESSAGE)).collect();
                (redaction.text(&field, MESSAGE), messages)
            })
            .collect(),
        _ => BTreeMap::new(),
    };
    Error::new(kind, asked.operation, effect, message)
        .with_status(status.as_u16())
        .with_fields(fields)
        .with_retry_after(retry_after)
}

/// Why a key was refused, in our own words: the body of a 401 may contain the secret.
fn why_401(body: &[u8]) -> &'static str {
    let body = String::from_utf8_lossy(body);
    if body.contains("Expired timestamp") {
        "the clock here is more than five minutes behind the clock of MAAS"
    } else if body.contains("Nonce already used") {
        "MAAS has seen the nonce before"
    } else if body.contains("Invalid API key") || body.contains("Invalid access token") {
        "MAAS does not know this API key; it was mistyped or deleted"
    } else if body.contains("Invalid signature") {
        "the secret part of the API key is wrong"
    } else {
        "MAAS did not accept the API key"
    }
}

/// The kind, and our own message where it is more helpful than the body.
fn decide(
    asked: Asked,
    response: &Response<impl AsRef<[u8]>>,
    words: &Words,
    has_retry_after: bool,
) -> (ErrorKind, Option<String>) {
    let status = response.status();
    let kind = match status.as_u16() {
        300..=399 => return redirected(response.headers()),
        400 => bad_request(asked, words),
        403 => match words {
            Words::Text(text) if text.contains("belongs to an existing dynamic range") => ErrorKind::Invalid,
            Words::Text(text) if text.is_empty() => {
                let sentence = "the user of the key may not do this, or the object is locked or somebody else's";
                return (ErrorKind::Denied, Some(sentence.to_owned()));
            }
            _ => ErrorKind::Denied,
        },
        404 => not_found(asked, response.headers(), words),
        409 => match words {
            // Distinguished as MAAS does: a refusal is text without Retry-After, a collision is a page.
            _ if has_retry_after => ErrorKind::Conflict,
            Words::Page(_) => ErrorKind::Conflict,
            Words::Text(_) if asked.operation == "machines.allocate" => ErrorKind::NoMatch,
            Words::Text(_) => ErrorKind::WrongState,
            _ => ErrorKind::NotUnderstood,
        },
        410 => ErrorKind::Gone,
        413 => ErrorKind::Invalid,
        429 => ErrorKind::Throttled,
        500 => server_error(words),
        503 => unavailable(words),
        502 | 504 => ErrorKind::ServerTrouble,
        200..=299 => {
            // A successful answer may contain secrets (a VM host's parameters do), so nothing of it is kept except a
            // page's title.
            let sentence = match words {
                Words::Page(_) => format!("{} instead of an answer of the API", words.message()),
                _ => "it is not the JSON that was expected".to_owned(),
            };
            return (ErrorKind::NotUnderstood, Some(sentence));
        }
        _ => ErrorKind::NotUnderstood,
    };
    (kind, None)
}

fn redirected(headers: &HeaderMap) -> (ErrorKind, Option<String>) {
    let target = headers.get(header::LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("");
    let sentence = if target.starts_with("https://") {
        "the server wants https: write the endpoint with https://".to_owned()
    } else {
        "the server answers with a redirect, which is not followed because it would carry the API key elsewhere"
            .to_owned()
    };
    (ErrorKind::WrongEndpoint, Some(sentence))
}

fn bad_request(asked: Asked, words: &Words) -> ErrorKind {
    match words {
        Words::Fields(fields) => {
            let any = |text: &str| fields.values().flatten().any(|message| message.contains(text));
            let of = |field: &str, text: &str| {
                fields.get(field).is_some_and(|messages| messages.iter().any(|message| message.contains(text)))
            };
            if of("hwe_kernel", "has no kernels available") {
                ErrorKind::ImageUnavailable
            } else if any("already exists") || any("Labels must be unique within their zone") {
                ErrorKind::AlreadyExists
            } else if asked.operation == "vm_hosts.compose"
                && ["cores", "memory"].iter().any(|field| of(field, "less than or equal to"))
            {
                ErrorKind::NoCapacity
            } else {
                ErrorKind::Invalid
            }
        }
        Words::Text(text) => {
            if text.contains("must be removed first") || text.contains("are still allocated") {
                ErrorKind::InUse
            } else if text.contains("operating system") && text.contains(" is unavailable") {
                // Newer releases name the architecture before or after this text.
                ErrorKind::ImageUnavailable
            } else if text.contains("already exist") {
                ErrorKind::AlreadyExists
            } else if text.contains("does not support composability") {
                ErrorKind::HostTrouble
            } else if text == "Unrecognised signature: method=GET op=None" {
                // MAAS lets anonymous users call machines/, but not list it: the key was lost on the way.
                ErrorKind::Denied
            } else if text.starts_with("Unrecognised signature") {
                ErrorKind::Unsupported
            } else {
                ErrorKind::Invalid
            }
        }
        Words::Page(_) | Words::Other => ErrorKind::NotUnderstood,
    }
}

/// 404 means absent only where MAAS itself says so about the object of the path.
fn not_found(asked: Asked, headers: &HeaderMap, words: &Words) -> ErrorKind {
    let Words::Text(text) = words else { return ErrorKind::NotUnderstood };
    if text.ends_with("already in use.") {
        return ErrorKind::AddressInUse;
    }
    if text.starts_with("Unknown API endpoint") {
        return ErrorKind::WrongEndpoint;
    }
    if let Some(model) = text.strip_prefix("No ").and_then(|rest| rest.strip_suffix(" matches the given query.")) {
        return if asked.object.contains(&model) { ErrorKind::NotFound } else { ErrorKind::UnknownReference };
    }
    // Up to MAAS 3.2 (for VM hosts later, too) that is the whole message. Any web server might send it, so the server
    // must at least have checked the key.
    let looked_at_the_key = headers
        .get_all(header::VARY)
        .iter()
        .any(|vary| vary.to_str().is_ok_and(|vary| vary.to_ascii_lowercase().contains("authorization")));
    match text.as_str() {
        "Not Found" if looked_at_the_key && !asked.object.is_empty() => ErrorKind::NotFound,
        "Not Found" if looked_at_the_key => ErrorKind::UnknownReference,
        _ => ErrorKind::NotUnderstood,
    }
}

/// A 500 contains the text of an exception. Some are mistakes in the request, some are transient. The others are
/// unclear: they are never retried, and nothing is concluded from them.
fn server_error(words: &Words) -> ErrorKind {
    const MISTAKES: [&str; 7] = [
        "failed to detect a valid IP address",
        "Field 'id' expected a number",
        "Invalid PEM material",
        "Invalid character in key name",
        "cannot unpack non-iterable NoneType object",
        "invalid literal for int()",
        "expected a number but got",
    ];
    let Words::Text(text) = words else { return ErrorKind::NotUnderstood };
    if MISTAKES.iter().any(|mistake| text.contains(mistake)) {
        ErrorKind::Invalid
    } else if text.contains("Cannot delete some instances of model") {
        ErrorKind::InUse
    } else if text.contains("Not enough space in") {
        ErrorKind::NoCapacity
    } else if text.contains("Error determining BMC task queue") {
        // No rack controller can reach the BMC at present, as 3.5 and later word it.
        ErrorKind::ServerTrouble
    } else if text.contains("connection to server") || text.contains("server closed the connection") {
        // PostgreSQL is unavailable; MAAS answers again as soon as it is back.
        ErrorKind::ServerTrouble
    } else {
        ErrorKind::NotUnderstood
    }
}

fn unavailable(words: &Words) -> ErrorKind {
    let Words::Text(text) = words else { return ErrorKind::ServerTrouble };
    if text.contains("overcommit ratio") {
        ErrorKind::NoCapacity
    } else if text.starts_with("Unable to compose") && text.contains("already exists") {
        // A VM of that name is in LXD but not in MAAS: a refresh of the host adopts it.
        ErrorKind::AlreadyExists
    } else if text.contains("Failed talking to pod") {
        ErrorKind::HostTrouble
    } else {
        ErrorKind::ServerTrouble
    }
}
