//! The metadata API: what a machine reads while it boots, and where it reports its progress.
//!
//! cloud-init's MAAS datasource reads `/MAAS/metadata/2012-03-01/meta-data/…` and `…/user-data`, signed with the machine's own key, and
//! posts to `/MAAS/metadata/status/<system_id>`.

use super::{
    Incoming,
    auth::{self, Identity, Nonces, Signed},
    forms::Form,
    header,
    reply::Reply,
};
use crate::model::{Model, reports::StatusReport};

const PREFIX: &str = "/MAAS/metadata/";
const VERSIONS: [&str; 2] = ["2012-03-01", "latest"];
const ITEMS: [&str; 4] = ["instance-id", "local-hostname", "public-keys", "vendor-data"];
const OCTETS: &str = "application/octet-stream";
/// MAAS would add DNS servers, NTP and a proxy. There are none here.
const VENDOR_DATA: &str = "cloud-init: |\n  #cloud-config\n  {}\n";

/// Whether a request is for the metadata API.
pub fn is_for(incoming: &Incoming) -> bool {
    incoming.path.starts_with(PREFIX)
}

/// Answers such a request.
pub fn answer(model: &mut Model, nonces: &mut Nonces, incoming: &Incoming, wall: i64) -> Reply {
    let path = incoming.path.strip_prefix(PREFIX).unwrap_or_default().trim_end_matches('/').to_owned();
    let token = auth::token(&incoming.headers);
    if path.starts_with("status/") {
        return status(model, incoming, token.as_deref());
    }
    let (version, rest) = path.split_once('/').unwrap_or((&path, ""));
    if path.is_empty() {
        return listing(&VERSIONS);
    }
    if !VERSIONS.contains(&version) {
        return Reply::text(404, &format!("Unknown metadata version: {version}"));
    }
    let query = Form::from_query(&incoming.query);
    let origin = format!("http://{}", header(&incoming.headers, "host").unwrap_or("localhost"));
    let url = format!("{origin}{}", incoming.path);
    let signed = Signed { method: incoming.method.as_str(), url: &url, query: &query, posted: None };
    match auth::identify(model, nonces, &incoming.headers, &signed, wall) {
        Ok(Identity::User(_)) => {}
        Ok(Identity::Anonymous) => return Reply::text(401, "No authorization header received."),
        Err(reply) => return reply,
    }
    let Some(machine) = token.as_deref().and_then(|token| model.node_of_token(token)).map(str::to_owned) else {
        return Reply::text(403, "Not authenticated as a known node.");
    };
    if incoming.method != http::Method::GET {
        return Reply::not_allowed("GET");
    }
    item(model, &machine, rest)
}

fn item(model: &mut Model, machine: &str, path: &str) -> Reply {
    match path {
        "" => listing(&["meta-data", "user-data"]),
        "meta-data" => listing(&ITEMS),
        "meta-data/instance-id" => text(machine),
        "meta-data/local-hostname" => text(&model.fqdn(machine)),
        // This MAAS has no SSH keys.
        "meta-data/public-keys" => text(""),
        "meta-data/vendor-data" => Reply::raw("application/x-yaml; charset=utf-8", VENDOR_DATA),
        "user-data" => match model.fetch_user_data(machine) {
            Some(data) => Reply::raw(OCTETS, data),
            None => Reply::handler(404, ""),
        },
        other => Reply::text(404, &format!("Unknown metadata attribute: {other}")),
    }
}

fn text(content: &str) -> Reply {
    Reply::raw("text/plain", content)
}

fn listing(items: &[&str]) -> Reply {
    text(&items.join("\n"))
}

/// Reports are accepted without a check of the signature, and a sender that is not a machine gets no error.
fn status(model: &mut Model, incoming: &Incoming, token: Option<&str>) -> Reply {
    if incoming.method != http::Method::POST {
        return Reply::not_allowed("POST");
    }
    let Some(token) = token else { return Reply::handler(401, "") };
    let Ok(payload) = std::str::from_utf8(&incoming.body) else {
        return Reply::handler(400, "Status payload must be ASCII-only");
    };
    let Ok(message) = serde_json::from_str::<serde_json::Value>(payload) else {
        return Reply::handler(400, &format!("Status payload is not valid JSON:\n{payload}\n\n"));
    };
    let missing: Vec<&str> =
        ["event_type", "origin", "name", "description"].into_iter().filter(|key| message.get(key).is_none()).collect();
    if !missing.is_empty() {
        return Reply::handler(400, &format!("Missing parameter(s) {} in status message.", missing.join(", ")));
    }
    let machine = model.node_of_token(token).map(str::to_owned);
    if let (Some(machine), Ok(report)) = (machine, serde_json::from_value::<StatusReport>(message)) {
        model.take_report(&machine, report);
    }
    Reply::deleted()
}
