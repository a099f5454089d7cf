//! OAuth 1.0 as MAAS checks it.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use http::HeaderMap;

use super::{forms::Form, reply::Reply};
use crate::version::Change;
use crate::{config::Version, model::Model};

/// Used nonces, by token. MAAS keeps them in its database, so a restore makes old ones usable again; clients cannot
/// observe that.
#[derive(Debug, Default)]
pub struct Nonces(BTreeSet<(String, String)>);

/// The user that a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The request is not authenticated.
    Anonymous,
    /// A user, by id.
    User(i64),
}

const PARAMETERS: &[&str] = &[
    "oauth_consumer_key",
    "oauth_token",
    "oauth_signature",
    "oauth_signature_method",
    "oauth_timestamp",
    "oauth_nonce",
];
const THRESHOLD_SECONDS: i64 = 300;

/// What a signature covers in addition to the parameters.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    pub method: &'a str,
    /// Scheme, host and path.
    pub url: &'a str,
    pub query: &'a Form,
    /// The fields of a posted form, which are signed too.
    pub posted: Option<&'a Form>,
}

/// Determines the caller. `wall` is the system clock: timestamps come from clients, whose clocks are not driven.
pub fn identify(
    model: &Model,
    nonces: &mut Nonces,
    headers: &HeaderMap,
    signed: &Signed<'_>,
    wall: i64,
) -> Result<Identity, Reply> {
    let header = headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let parameters = match header {
        Some(text) => match text.trim().split_once(' ') {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("OAuth") => {
                let parsed = parse_header(rest);
                // A malformed header is only an error if it names all parameters.
                if parsed.is_none() && PARAMETERS.iter().all(|name| rest.contains(name)) {
                    let text = "'Unable to parse OAuth parameters from Authorization header.'";
                    return Err(Reply::oauth(&format!("Authorization Error: {text}")));
                }
                parsed.unwrap_or_default()
            }
            _ => return Ok(Identity::Anonymous),
        },
        None => signed.query.pairs.iter().filter(|(key, _)| key.starts_with("oauth_")).cloned().collect(),
    };
    // MAAS searches for the names anywhere in the header: `oauth_signature_method` counts as `oauth_signature`, too.
    let named = |name: &str| match header {
        Some(text) => text.contains(name),
        None => parameters.contains_key(name),
    };
    if PARAMETERS.iter().any(|name| !named(name)) {
        return Ok(Identity::Anonymous);
    }
    check(model, nonces, &parameters, signed, wall)
}

fn check(
    model: &Model,
    nonces: &mut Nonces,
    parameters: &BTreeMap<String, String>,
    signed: &Signed<'_>,
    wall: i64,
) -> Result<Identity, Reply> {
    let get = |name: &str| parameters.get(name).map_or("", String::as_str);
    let error = |text: String| Reply::oauth(&format!("Authorization Error: {text}"));
    let (consumer, token) = (get("oauth_consumer_key"), get("oauth_token"));
    if !model.knows_consumer(consumer) {
        return Err(error("Invalid API key.".to_owned()));
    }
    let Some((user, key)) = model.find_key(consumer, token) else {
        return Err(error(format!("'Invalid access token: {token}'")));
    };
    let stamp = get("oauth_timestamp");
    let Ok(given) = stamp.trim().parse::<i64>() else {
        return Err(bad_timestamp(stamp, model.version));
    };
    if wall - given > THRESHOLD_SECONDS {
        return Err(error(format!(
            "'Expired timestamp: given {given} and now {wall} has a greater difference than threshold {THRESHOLD_SECONDS}'"
        )));
    }
    let nonce = get("oauth_nonce");
    if nonces.0.contains(&(token.to_owned(), nonce.to_owned())) {
        return Err(error(format!("'Nonce already used: {nonce}'")));
    }
    if !parameters.contains_key("oauth_signature") {
        return Err(error("'Missing signature.'".to_owned()));
    }
    let signature = get("oauth_signature");
    let (right, base) = match get("oauth_signature_method") {
        // The consumer's secret is empty.
        "PLAINTEXT" => {
            let expected = format!("&{}", key.key.secret);
            (signature == expected, expected)
        }
        "HMAC-SHA1" => {
            let base = base_string(signed, parameters);
            (signature == hmac(&key.key.secret, &base), base)
        }
        other => {
            return Err(error(format!(
                "'Signature method {other} not supported try one of the following: PLAINTEXT, HMAC-SHA1'"
            )));
        }
    };
    if !right {
        return Err(error(format!("'Invalid signature. Expected signature base string: {base}'")));
    }
    nonces.0.insert((token.to_owned(), nonce.to_owned()));
    Ok(Identity::User(user.id))
}

fn bad_timestamp(stamp: &str, version: Version) -> Reply {
    let text = format!("invalid literal for int() with base 10: '{stamp}'");
    if version.has(Change::StrictTimestamps) {
        Reply::text(400, &format!("Bad Request: {text}"))
    } else {
        Reply::text(500, &text)
    }
}

/// The token that a request names, whether or not its signature is valid.
pub fn token(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = text.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("OAuth").then(|| parse_header(rest)?.remove("oauth_token")).flatten()
}

/// `name="value", …`, quotes optional, values escaped or not. `None` if a part does not have that form.
fn parse_header(text: &str) -> Option<BTreeMap<String, String>> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.contains("realm"))
        .map(|part| part.split_once('='))
        .map(|pair| pair.map(|(name, value)| (name.trim().to_owned(), percent_decode(value.trim().trim_matches('"')))))
        .collect()
}

/// Decodes `%xx` as bytes; a plus sign is kept.
pub fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        if let (b'%', Some(decoded)) = (byte, hex.and_then(|pair| u8::from_str_radix(pair, 16).ok())) {
            out.push(decoded);
            at += 3;
        } else {
            out.push(*byte);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn escape(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// The text that is signed. Each name counts once: the last value of a form, the first non-empty value of a query. The
/// query takes precedence over the header, and the header over the form.
fn base_string(signed: &Signed<'_>, parameters: &BTreeMap<String, String>) -> String {
    let mut fields: BTreeMap<&str, &str> = BTreeMap::new();
    for (key, value) in signed.posted.iter().flat_map(|form| &form.pairs) {
        fields.insert(key, value);
    }
    fields.extend(parameters.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    let given = signed.query.pairs.iter().filter(|(_, value)| !value.is_empty());
    fields.extend(given.rev().map(|(key, value)| (key.as_str(), value.as_str())));
    fields.remove("oauth_signature");
    let mut pairs: Vec<(String, String)> =
        fields.into_iter().map(|(key, value)| (escape(key), escape(value))).collect();
    pairs.sort();
    let joined: Vec<String> = pairs.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("{}&{}&{}", signed.method, escape(&without_default_port(signed.url)), escape(&joined.join("&")))
}

fn without_default_port(url: &str) -> String {
    url.replacen(":80/", "/", 1)
}

fn hmac(secret: &str, base: &str) -> String {
    let key =
        ring::hmac::Key::new(ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, format!("&{}", escape(secret)).as_bytes());
    base64::engine::general_purpose::STANDARD.encode(ring::hmac::sign(&key, base.as_bytes()))
}
