//! Answers: body, content type and the headers that MAAS sets on each kind.

use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use serde::Serialize;
use serde_json::{Value, ser::PrettyFormatter};

use crate::version::Change;
use crate::{
    config::Version,
    model::{Refusal, refusal::FieldErrors},
};

/// Hash of the API's description that MAAS 3.4.10 sends.
const API_HASH: &str = "29b8898cd6164c9b0adae16fe79c9932fe40e145";
/// The one that MAAS 3.7.3 sends.
const NEWER_API_HASH: &str = "36763f1444f05f8c565d0292aabefcaa9ece4369";

const JSON: &str = "application/json; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const BARE_TEXT: &str = "text/plain";

/// An answer before it becomes an HTTP response.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub content_type: &'static str,
    pub vary: Option<&'static str>,
    pub hash: bool,
    pub headers: Vec<(&'static str, String)>,
    pub body: ReplyBody,
}

/// The body of an answer.
#[derive(Clone, Debug)]
pub enum ReplyBody {
    /// The complete body.
    Bytes(Vec<u8>),
    /// Machines by system id, rendered one after the other while they are sent: a list of ten thousand would otherwise
    /// take 150 MB of memory.
    Machines(Vec<String>),
}

const AUTHENTICATED: Option<&str> = Some("Authorization, Cookie");

impl Reply {
    fn new(status: u16, content_type: &'static str, body: Vec<u8>) -> Self {
        Self {
            status,
            content_type,
            vary: AUTHENTICATED,
            hash: true,
            headers: Vec::new(),
            body: ReplyBody::Bytes(body),
        }
    }

    /// 200 with JSON.
    pub fn json(value: &Value) -> Self {
        Self::new(200, JSON, pretty(value))
    }

    /// 200 with a list of machines.
    pub fn machines(ids: Vec<String>) -> Self {
        let mut reply = Self::new(200, JSON, Vec::new());
        reply.body = ReplyBody::Machines(ids);
        reply
    }

    /// 201 with JSON.
    pub fn created(value: &Value) -> Self {
        Self::new(201, JSON, pretty(value))
    }

    /// 204.
    pub fn deleted() -> Self {
        Self::new(204, BARE_TEXT, Vec::new())
    }

    /// 200 with JSON under the bare content type, not indented.
    pub fn bare_json(value: &Value) -> Self {
        Self::new(200, "application/json", serde_json::to_vec(value).unwrap_or_default())
    }

    /// 200 with any content.
    pub fn raw(content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, content_type, body.into())
    }

    /// An answer of piston itself: text with the headers of a success.
    pub fn handler(status: u16, body: &str) -> Self {
        Self::new(status, BARE_TEXT, body.as_bytes().to_vec())
    }

    /// A text of the middleware.
    pub fn text(status: u16, body: &str) -> Self {
        Self { vary: Some("Cookie"), hash: false, ..Self::new(status, TEXT, body.as_bytes().to_vec()) }
    }

    /// 401 of the OAuth layer. It repeats what it expected, including secrets.
    pub fn oauth(body: &str) -> Self {
        let mut reply = Self::text(401, body);
        reply.content_type = "text/html; charset=utf-8";
        reply.headers.push(("www-authenticate", "OAuth realm=\"OAuth\"".to_owned()));
        reply
    }

    /// 404 of the URL resolver.
    pub fn unknown_endpoint(path: &str) -> Self {
        Self { vary: None, ..Self::text(404, &format!("Unknown API endpoint: {path}.")) }
    }

    /// 405.
    pub fn not_allowed(allow: &str) -> Self {
        let mut reply = Self::new(405, "text/html; charset=utf-8", Vec::new());
        reply.headers.push(("allow", allow.to_owned()));
        reply
    }

    /// An answer of the web server in front of MAAS, not of MAAS itself.
    pub fn nginx(status: u16, reason: &str) -> Self {
        let body = format!(
            "<html>\r\n<head><title>{status} {reason}</title></head>\r\n<body>\r\n<center><h1>{status} {reason}</h1></center>\r\n<hr><center>nginx/1.22.1</center>\r\n</body>\r\n</html>\r\n"
        );
        Self { vary: None, hash: false, ..Self::new(status, "text/html", body.into_bytes()) }
    }

    /// The answer to a refusal.
    pub fn refused(refusal: &Refusal, version: Version) -> Self {
        match refusal {
            Refusal::NotFound(what) if version.has(Change::NamedNotFound) => {
                Self::handler(404, &format!("No {what} matches the given query."))
            }
            Refusal::NotFound(_) => Self::handler(404, "Not Found"),
            Refusal::Forbidden => Self::text(403, forbidden_words(version)),
            Refusal::Text { status, body, retry_after, late } => {
                let mut reply = Self::text(*status, body);
                if let Some(after) = retry_after {
                    reply.headers.push(("retry-after", after.to_string()));
                }
                if *late {
                    reply.vary = None;
                }
                reply
            }
            Refusal::Handler { status, body } => Self::handler(*status, body),
            Refusal::Form(fields) => {
                Self { vary: Some("Cookie"), hash: false, ..Self::new(400, JSON, field_json(fields)) }
            }
            Refusal::Validation(fields) => {
                Self { vary: Some("Cookie"), hash: false, ..Self::new(400, "application/json", field_json(fields)) }
            }
        }
    }

    /// As an HTTP response. A list of machines must already be rendered.
    pub fn into_response(self, version: Version) -> Response<Vec<u8>> {
        let body = match self.body {
            ReplyBody::Bytes(bytes) => bytes,
            ReplyBody::Machines(_) => Vec::new(),
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        if let Some(vary) = self.vary {
            headers.insert(header::VARY, HeaderValue::from_static(vary));
        }
        if self.hash {
            headers.insert(HeaderName::from_static("x-maas-api-hash"), HeaderValue::from_static(api_hash(version)));
        }
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

/// Hash of the API's description; clients compare it with their cached one.
pub fn api_hash(version: Version) -> &'static str {
    if version.has(Change::OtherApiHash) { NEWER_API_HASH } else { API_HASH }
}

/// 3.8 names the missing permission.
fn forbidden_words(version: Version) -> &'static str {
    if version.has(Change::NamedPermissions) {
        "Forbidden: the user lacks the permission can_edit_machines."
    } else {
        ""
    }
}

fn field_json(fields: &FieldErrors) -> Vec<u8> {
    let items: Vec<String> = fields
        .iter()
        .map(|(name, messages)| {
            let quoted: Vec<String> = messages.iter().map(|text| Value::from(text.as_str()).to_string()).collect();
            format!("{}: [{}]", Value::from(name.as_str()), quoted.join(", "))
        })
        .collect();
    format!("{{{}}}", items.join(", ")).into_bytes()
}

/// JSON with an indent of four spaces, as piston writes it.
pub fn pretty(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, PrettyFormatter::with_indent(b"    "));
    // Serializing a Value into a Vec cannot fail.
    if value.serialize(&mut serializer).is_err() {
        out.clear();
    }
    out
}
