//! A recorded request, rebuilt for the simulator: ids mapped, credentials filled in, gaps of the recording filled.

use sha2::{Digest, Sha256};

use crate::identity::{Identities, Kind};
use crate::recording::{Body, Pairs, Recording};

/// The root of relative paths in recordings.
const ROOT: &str = "/MAAS/";
const BOUNDARY: &str = "replayed-form-boundary";
/// Sent for every password that the recording omits; arrangements specify whether an LXD accepts it.
const PASSWORD: &str = "replayed";

/// An API key, and its owner.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) consumer: String,
    pub(crate) token: String,
    pub(crate) secret: String,
}

impl Key {
    pub(crate) fn text(&self) -> String {
        format!("{}:{}:{}", self.consumer, self.token, self.secret)
    }
}

/// A certificate and its key, in PEM, for those that the recording omits.
pub(crate) struct Pem {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// What a request is made with.
pub(crate) struct Context<'a> {
    pub(crate) identities: &'a Identities,
    /// Signs the request.
    pub(crate) key: &'a Key,
    /// Fills the gaps of keys in forms.
    pub(crate) about: &'a Key,
    pub(crate) pem: &'a Pem,
    /// Seconds since the epoch.
    pub(crate) now: i64,
    /// Seconds since the epoch when the recording was made, if known.
    pub(crate) recorded_now: Option<i64>,
    /// For the nonce.
    pub(crate) number: usize,
}

/// A request ready to be sent.
pub(crate) struct Prepared {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

pub(crate) fn prepare(recording: &Recording, context: &Context<'_>) -> Prepared {
    let request = &recording.request;
    let mut path = map_path(&request.path, context.identities);
    if !path.starts_with('/') {
        path.insert_str(0, ROOT);
    }
    let query = map_fields(recording, &request.query, context);
    if !query.is_empty() {
        path.push('?');
        path.push_str(&encode(&query));
    }
    // Identifies the exchange in the server's log.
    let mut headers = vec![("user-agent".to_owned(), format!("replay {}", recording.name))];
    headers.extend(authorization(recording, context).map(|value| ("authorization".to_owned(), value)));
    let (content_type, body) = match (&request.body, request.content_type.as_deref()) {
        (Body::None, kind) => (kind.map(str::to_owned), Vec::new()),
        (Body::Text(text), kind) => (kind.map(str::to_owned), text.clone().into_bytes()),
        (Body::Form(fields), Some(kind)) if kind.starts_with("multipart/") => {
            let fields = map_fields(recording, fields, context);
            (Some(format!("multipart/form-data; boundary={BOUNDARY}")), multipart(fields, &request.files))
        }
        (Body::Form(fields), kind) if fields.is_empty() => (kind.map(str::to_owned), Vec::new()),
        (Body::Form(fields), kind) => {
            let kind = kind.unwrap_or("application/x-www-form-urlencoded");
            (Some(kind.to_owned()), encode(&map_fields(recording, fields, context)).into_bytes())
        }
    };
    headers.extend(content_type.map(|kind| ("content-type".to_owned(), kind)));
    Prepared { method: request.method.clone(), path, headers, body }
}

fn encode(fields: &Pairs) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// Maps ids in a path. `fabrics/ID/vlans/VID/` ends in a VID, which is not an id.
pub(crate) fn map_path(path: &str, identities: &Identities) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    let mapped = parts.iter().enumerate().map(|(at, part)| {
        let kind = at.checked_sub(1).and_then(|before| Kind::of_collection(parts[before]));
        let is_tag = kind == Some(Kind::Vlan) && at >= 3 && parts[at - 3] == "fabrics";
        match kind {
            Some(kind) if !is_tag && !part.is_empty() => identities.simulated(kind, part),
            _ => part,
        }
    });
    mapped.collect::<Vec<_>>().join("/")
}

fn map_fields(recording: &Recording, fields: &Pairs, context: &Context<'_>) -> Pairs {
    fields
        .iter()
        .map(|(key, value)| {
            let value = fill(key, value, context);
            (key.clone(), map_field(recording, key, &value, context))
        })
        .collect()
}

fn map_field(recording: &Recording, key: &str, value: &str, context: &Context<'_>) -> String {
    let identities = context.identities;
    let operation = recording.operation();
    let path = &recording.request.path;
    let numeric = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let kind = match key {
        "oauth_timestamp" => {
            return value.parse().map_or_else(|_| value.to_owned(), |stamp| shift(stamp, context).to_string());
        }
        "id" if operation == Some("unlink_subnet") => Kind::Link,
        "link_id" => Kind::Link,
        "id" | "system_id" | "machine" | "machines" | "nodes" | "add" | "remove" | "rack_controller" => Kind::System,
        "parent" | "parents" => Kind::Interface,
        "subnet" if numeric => Kind::Subnet,
        "vlan" if numeric => Kind::Vlan,
        "fabric" if numeric => Kind::Fabric,
        "space" if numeric => Kind::Space,
        "zone" if numeric => Kind::Zone,
        "pool" if numeric => Kind::Pool,
        "domain" if numeric => Kind::Domain,
        "after" | "before" if path.ends_with("/events/") => {
            return value.parse().map_or_else(|_| value.to_owned(), |id| identities.event_cursor(id).to_string());
        }
        "hostname" | "fqdn" | "name" | "pod" | "not_pod" => Kind::Name,
        "mac" | "mac_address" | "mac_addresses" => Kind::Mac,
        "ip" | "ip_address" | "ip_addresses" | "interfaces" => return map_addresses(value, identities),
        _ => return value.to_owned(),
    };
    identities.simulated(kind, value).to_owned()
}

/// Maps addresses inside a text.
fn map_addresses(text: &str, identities: &Identities) -> String {
    let is_part = |character: char| character.is_ascii_hexdigit() || character == '.' || character == ':';
    let mut mapped = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|character| is_part(character) != is_part(first)).unwrap_or(rest.len());
        mapped.push_str(identities.simulated(Kind::Address, &rest[..end]));
        rest = &rest[end..];
    }
    mapped
}

/// Fills the gaps of the recording: passwords, certificates, keys, long texts.
fn fill(key: &str, value: &str, context: &Context<'_>) -> String {
    let left_out = value.contains('<') && value.contains('>');
    if !left_out {
        return value.to_owned();
    }
    if key.ends_with("certificate") {
        return context.pem.certificate.clone();
    }
    if key == "key" || key.ends_with("parameters_key") {
        return context.pem.key.clone();
    }
    if key.contains("pass") {
        return PASSWORD.to_owned();
    }
    if let Some(text) = long_text(value) {
        return text;
    }
    value
        .replace("<consumer-key>", &context.about.consumer)
        .replace("<token-key>", &context.about.token)
        .replace("<token-secret>", &context.about.secret)
}

/// `<11 MiB>` and `<100000 times v>`.
fn long_text(value: &str) -> Option<String> {
    let inner = value.strip_prefix('<')?.strip_suffix('>')?;
    let mut words = inner.split(' ');
    let count: usize = words.next()?.parse().ok()?;
    match (words.next()?, words.next(), words.next()) {
        ("MiB", None, None) => Some("x".repeat(count << 20)),
        ("KiB", None, None) => Some("x".repeat(count << 10)),
        ("times", Some(text), None) => Some(text.repeat(count)),
        _ => None,
    }
}

/// A multipart form. The content of a file was not recorded; one of the stated size replaces it, with its checksum.
fn multipart(mut fields: Pairs, files: &Pairs) -> Vec<u8> {
    let size = fields.iter().find(|(key, _)| key == "size").and_then(|(_, size)| size.parse().ok()).unwrap_or(0);
    let content = vec![b'x'; size];
    if size > 0 {
        let sum = Sha256::digest(&content).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        fields.iter_mut().filter(|(key, _)| key == "sha256").for_each(|(_, value)| value.clone_from(&sum));
    }
    let mut body = Vec::new();
    for (key, value) in &fields {
        body.extend(
            format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{key}\"\r\n\r\n{value}\r\n").bytes(),
        );
    }
    for (key, file) in files {
        let name = file.trim_matches(['<', '>']);
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{key}\"; filename=\"{name}\"\r\nContent-Type: application/octet-stream\r\n\r\n"
        );
        body.extend(head.bytes());
        body.extend(&content);
        body.extend(b"\r\n");
    }
    body.extend(format!("--{BOUNDARY}--\r\n").bytes());
    body
}

/// Converts a recorded time to the simulator's clock.
fn shift(recorded: i64, context: &Context<'_>) -> i64 {
    context.recorded_now.map_or(recorded, |then| recorded - then + context.now)
}

/// The Authorization header: as recorded if the recording shows it, with hidden parts filled in.
fn authorization(recording: &Recording, context: &Context<'_>) -> Option<String> {
    let key = context.key;
    let Some(recorded) = &recording.request.authorization else {
        return Some(format!(
            "OAuth oauth_version=\"1.0\", oauth_signature_method=\"PLAINTEXT\", oauth_consumer_key=\"{}\", \
             oauth_token=\"{}\", oauth_signature=\"%26{}\", oauth_timestamp=\"{}\", oauth_nonce=\"replay{}\"",
            key.consumer, key.token, key.secret, context.now, context.number
        ));
    };
    if recorded == "none" {
        return None;
    }
    let Some(parameters) = recorded.strip_prefix("OAuth ") else { return Some(recorded.clone()) };
    let mapped = parameters.split(", ").map(|parameter| {
        let Some((name, value)) = parameter.split_once('=') else { return parameter.to_owned() };
        let bare = value.trim_matches('"');
        let hidden = bare.contains('<');
        let new = match name {
            "oauth_consumer_key" if hidden => key.consumer.clone(),
            "oauth_token" if hidden => key.token.clone(),
            "oauth_signature" if hidden => format!("%26{}", key.secret),
            "oauth_timestamp" => {
                bare.parse().map_or_else(|_| bare.to_owned(), |stamp| shift(stamp, context).to_string())
            }
            _ => bare.to_owned(),
        };
        if value.starts_with('"') { format!("{name}=\"{new}\"") } else { format!("{name}={new}") }
    });
    Some(format!("OAuth {}", mapped.collect::<Vec<_>>().join(", ")))
}

/// When a recording was made, from the signatures of neighbouring recordings: most are signed with the current time.
pub(crate) fn recorded_now(recordings: &[Recording], at: usize) -> Option<i64> {
    const NEIGHBOURS: usize = 20;
    let window = &recordings[at.saturating_sub(NEIGHBOURS)..recordings.len().min(at + NEIGHBOURS)];
    let mut stamps: Vec<i64> = window.iter().filter_map(signed_at).collect();
    stamps.sort_unstable();
    let runs = stamps.chunk_by(|a, b| a == b);
    runs.max_by_key(|run| run.len()).map(|run| run[0])
}

fn signed_at(recording: &Recording) -> Option<i64> {
    let header = recording.request.authorization.as_deref().unwrap_or_default();
    let in_header = header.split(", ").find_map(|parameter| {
        parameter.split_once("oauth_timestamp=").and_then(|(_, value)| value.trim_matches('"').parse().ok())
    });
    let in_query = || recording.request.query.iter().find(|(key, _)| key == "oauth_timestamp")?.1.parse().ok();
    in_header.or_else(in_query)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn recording(request: &Value) -> Recording {
        serde_json::from_value(json!({"name": "1-x", "request": request, "response": {"status": 200}})).unwrap()
    }

    fn prepared(request: &Value) -> Prepared {
        let mut identities = Identities::default();
        identities.pair(Kind::System, "ah4dxd", "m00001");
        identities.pair(Kind::Interface, "11", "3");
        identities.pair(Kind::Address, "10.0.0.7", "10.0.0.1");
        let key = Key { consumer: "c".into(), token: "t".into(), secret: "s".into() };
        let pem = Pem { certificate: "CERT".into(), key: "KEY".into() };
        let context = Context {
            identities: &identities,
            key: &key,
            about: &key,
            pem: &pem,
            now: 5000,
            recorded_now: Some(1000),
            number: 1,
        };
        prepare(&recording(request), &context)
    }

    #[test]
    fn ids_are_mapped_in_path_query_and_form() {
        let made = prepared(&json!({"method": "POST", "path": "/MAAS/api/2.0/nodes/ah4dxd/interfaces/11/",
            "query": {"op": "link_subnet"}, "content_type": "application/x-www-form-urlencoded",
            "body": [["mode", "static"], ["ip_address", "10.0.0.7"], ["vlan", "42"]]}));
        assert_eq!(made.path, "/MAAS/api/2.0/nodes/m00001/interfaces/3/?op=link_subnet");
        assert_eq!(String::from_utf8(made.body).unwrap(), "mode=static&ip_address=10.0.0.1&vlan=42");
    }

    #[test]
    fn a_recorded_signature_is_renewed_and_keeps_its_age() {
        let header = "OAuth oauth_consumer_key=\"<scrubbed>\", oauth_signature=\"<scrubbed>\", oauth_timestamp=\"699\", oauth_nonce=\"n\"";
        let made = prepared(&json!({"method": "GET", "path": "api/2.0//zones/", "authorization": header}));
        assert_eq!(made.path, "/MAAS/api/2.0//zones/");
        assert_eq!(
            made.headers[1].1,
            "OAuth oauth_consumer_key=\"c\", oauth_signature=\"%26s\", oauth_timestamp=\"4699\", oauth_nonce=\"n\""
        );
    }

    #[test]
    fn what_the_recording_left_out_is_made_up() {
        let made = prepared(
            &json!({"method": "POST", "path": "/MAAS/api/2.0/vm-hosts/", "content_type": "application/x-www-form-urlencoded",
            "body": [["certificate", "<certificate>\n"], ["key", "<private-key>\n"], ["password", "<scrubbed>"], ["long", "<3 times ab>"]]}),
        );
        let body = String::from_utf8(made.body).unwrap();
        assert_eq!(body, "certificate=CERT&key=KEY&password=replayed&long=ababab");
    }

    #[test]
    fn a_vlan_tag_is_no_id() {
        let mut identities = Identities::default();
        identities.pair(Kind::Fabric, "2", "5");
        identities.pair(Kind::Vlan, "0", "9");
        assert_eq!(map_path("/MAAS/api/2.0/fabrics/2/vlans/0/", &identities), "/MAAS/api/2.0/fabrics/5/vlans/0/");
    }
}
