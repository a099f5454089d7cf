//! Which parts of a workload cluster's kubeconfig are used, and which are refused (S28).
//!
//! The tenant can write the Secret. A kubeconfig may name files, programs and proxies; using it unfiltered would make
//! the manager read its own files, run programs and send its own token to any server of the tenant's choice. So only
//! the values that identify the API server and our credentials for it are taken, one by one, and kube never sees the
//! rest of the text.

use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};
use serde_json::{Map, Value};

/// The name of everything that is handed to kube: one cluster, one user, one context.
const ONLY: &str = "workload";
const TAKEN_OF_CLUSTER: [&str; 5] =
    ["server", "certificate-authority-data", "tls-server-name", "disable-compression", "extensions"];
const TAKEN_OF_USER: [&str; 4] = ["client-certificate-data", "client-key-data", "token", "extensions"];
/// Other fields that kubectl knows. Only these are named in a message: a malformed text may contain a secret anywhere.
const REFUSED: [&str; 16] = [
    "certificate-authority",
    "insecure-skip-tls-verify",
    "proxy-url",
    "client-certificate",
    "client-key",
    "tokenFile",
    "username",
    "password",
    "as",
    "as-uid",
    "as-groups",
    "as-user-extra",
    "auth-provider",
    "exec",
    "api-version",
    "token-file",
];

/// The one cluster and the one user that `current-context` names, reduced to the permitted fields.
pub(super) fn read(text: &str) -> Result<Kubeconfig, String> {
    let Ok(Value::Object(whole)) = serde_saphyr::from_str::<Value>(text) else {
        return Err("it is not a kubeconfig".to_owned());
    };
    let unfit = || "it does not name a matching cluster and user".to_owned();
    let current = said(whole.get("current-context")).ok_or_else(unfit)?;
    let context = named(&whole, "contexts", "context", current).ok_or_else(unfit)?;
    let cluster = said(context.get("cluster")).and_then(|name| named(&whole, "clusters", "cluster", name));
    let user = said(context.get("user")).and_then(|name| named(&whole, "users", "user", name));
    let (cluster, user) = cluster.zip(user).ok_or_else(unfit)?;
    only(cluster, &TAKEN_OF_CLUSTER)?;
    only(user, &TAKEN_OF_USER)?;

    let text = |fields: &Map<String, Value>, name: &str| said(fields.get(name)).map(str::to_owned);
    let server = text(cluster, "server").ok_or_else(unfit)?;
    judge_server(&server)?;
    let cluster = Cluster {
        server: Some(server),
        certificate_authority_data: text(cluster, "certificate-authority-data"),
        tls_server_name: text(cluster, "tls-server-name"),
        ..Cluster::default()
    };
    let user = AuthInfo {
        client_certificate_data: text(user, "client-certificate-data"),
        client_key_data: text(user, "client-key-data").map(Into::into),
        token: text(user, "token").map(Into::into),
        ..AuthInfo::default()
    };
    let context = Context { cluster: ONLY.to_owned(), user: Some(ONLY.to_owned()), ..Context::default() };
    Ok(Kubeconfig {
        clusters: vec![NamedCluster { name: ONLY.to_owned(), cluster: Some(cluster), ..NamedCluster::default() }],
        auth_infos: vec![NamedAuthInfo { name: ONLY.to_owned(), auth_info: Some(user), ..NamedAuthInfo::default() }],
        contexts: vec![NamedContext { name: ONLY.to_owned(), context: Some(context), ..NamedContext::default() }],
        current_context: Some(ONLY.to_owned()),
        ..Kubeconfig::default()
    })
}

/// The entry with this name. A duplicate name counts as none: readers disagree about which entry wins.
fn named<'a>(whole: &'a Map<String, Value>, list: &str, field: &str, name: &str) -> Option<&'a Map<String, Value>> {
    let mut found = whole.get(list)?.as_array()?.iter().filter(|entry| said(entry.get("name")) == Some(name));
    match (found.next(), found.next()) {
        (Some(entry), None) => entry.get(field)?.as_object(),
        _ => None,
    }
}

fn said(value: Option<&Value>) -> Option<&str> {
    value.and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Go programs may omit empty values or write them in several forms: an empty value requests nothing.
fn asks_for_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

fn only(fields: &Map<String, Value>, taken: &[&str]) -> Result<(), String> {
    let other = fields.iter().find(|(name, value)| !taken.contains(&name.as_str()) && !asks_for_nothing(value));
    let Some((name, _)) = other else { return Ok(()) };
    let what = match REFUSED.iter().find(|refused| *refused == name) {
        Some(refused) => format!("it sets {refused}"),
        None => "it sets an unknown field".to_owned(),
    };
    Err(format!(
        "{what}, which is refused because the author of this Secret must not choose what the manager runs, reads or sends; \
         write a kubeconfig with server and certificate-authority-data, and with client-certificate-data and client-key-data or \
         token"
    ))
}

/// Keys and tokens are sent only over verified TLS.
fn judge_server(server: &str) -> Result<(), String> {
    let uri: http::Uri = server.parse().map_err(|_| "its server is not a URL".to_owned())?;
    let host = uri.authority().filter(|authority| !authority.as_str().contains('@'));
    match (uri.scheme_str(), host) {
        (Some("https"), Some(_)) => Ok(()),
        _ => Err("its server must be https://HOST:PORT, without a user name or password".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;
    use serde_json::json;

    use super::*;

    fn kubeconfig(cluster: &Value, user: &Value) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "preferences": {}, "current-context": "admin@c1",
            "clusters": [{ "name": "c1", "cluster": cluster }],
            "contexts": [{ "name": "admin@c1", "context": { "cluster": "c1", "user": "admin", "namespace": "x" } }],
            "users": [{ "name": "admin", "user": user }, { "name": "other", "user": { "exec": { "command": "x" } } }],
        })
        .to_string()
    }

    fn with(fields: &[(&str, Value)], base: Value) -> Value {
        let mut whole = base;
        for (name, value) in fields {
            whole[*name] = value.clone();
        }
        whole
    }

    fn server() -> Value {
        json!({ "server": "https://10.0.0.1:6443", "certificate-authority-data": "Q0E=" })
    }

    #[test]
    fn what_cluster_api_writes_is_taken_as_it_is() {
        let user = json!({ "client-certificate-data": "Qw==", "client-key-data": "Sw==" });
        let read = read(&kubeconfig(&server(), &user)).unwrap();
        let cluster = read.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://10.0.0.1:6443"));
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("Q0E="));
        let user = read.auth_infos[0].auth_info.as_ref().unwrap();
        assert_eq!(user.client_certificate_data.as_deref(), Some("Qw=="));
        assert_eq!(user.client_key_data.as_ref().unwrap().expose_secret(), "Sw==");
        assert_eq!((read.clusters.len(), read.auth_infos.len(), read.contexts.len()), (1, 1, 1));
    }

    #[test]
    fn what_asks_for_nothing_is_no_reason_to_refuse() {
        let user = json!({ "token": "t", "exec": null, "username": "", "as-groups": [] });
        let cluster = with(&[("insecure-skip-tls-verify", json!(false)), ("tls-server-name", json!("c1"))], server());
        let read = read(&kubeconfig(&cluster, &user)).unwrap();
        assert_eq!(read.clusters[0].cluster.as_ref().unwrap().tls_server_name.as_deref(), Some("c1"));
    }

    #[test]
    fn s28_every_field_that_runs_reads_or_sends_something_else_is_refused_by_name() {
        let path = json!("/var/run/secrets/kubernetes.io/serviceaccount/token");
        let user = [
            ("exec", json!({ "command": "/bin/sh", "args": ["-c", "CANARY"] })),
            ("auth-provider", json!({ "name": "gcp", "config": { "cmd-path": "CANARY" } })),
            ("tokenFile", path.clone()),
            ("client-certificate", path.clone()),
            ("client-key", path.clone()),
            ("username", json!("CANARY")),
            ("password", json!("CANARY")),
            ("as", json!("system:admin")),
            ("as-uid", json!("1")),
            ("as-groups", json!(["system:masters"])),
            ("as-user-extra", json!({ "a": ["b"] })),
        ];
        for (name, value) in user {
            let user = with(&[(name, value)], json!({ "token": "t" }));
            let why = read(&kubeconfig(&server(), &user)).unwrap_err();
            assert!(why.contains(&format!("sets {name},")) && !why.contains("CANARY"), "{name}: {why}");
        }
        for (name, value) in [
            ("certificate-authority", path),
            ("proxy-url", json!("http://x")),
            ("insecure-skip-tls-verify", json!(true)),
        ] {
            let why = read(&kubeconfig(&with(&[(name, value)], server()), &json!({ "token": "t" }))).unwrap_err();
            assert!(why.contains(&format!("sets {name},")), "{name}: {why}");
        }
        let strange = read(&kubeconfig(&server(), &json!({ "CANARY": "CANARY" }))).unwrap_err();
        assert!(strange.contains("it sets an unknown field") && !strange.contains("CANARY"), "{strange}");
    }

    #[test]
    fn s28_a_server_is_spoken_to_over_tls_only_and_a_name_means_one_entry() {
        for bad in
            ["http://10.0.0.1:6443", "https://u:p@10.0.0.1", "10.0.0.1:6443", "file:///etc/passwd", "unix:///x", ""]
        {
            let cluster = json!({ "server": bad });
            assert!(read(&kubeconfig(&cluster, &json!({ "token": "t" }))).is_err(), "{bad}");
        }
        let twice = "current-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n\
                     clusters: [{name: c, cluster: {server: 'https://a'}}, {name: c, cluster: {server: 'https://b'}}]\n\
                     users: [{name: u, user: {token: t}}]\n";
        assert!(read(twice).is_err());
        let repeated = "current-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n\
                        clusters: [{name: c, cluster: {server: 'https://a'}}]\n\
                        users: [{name: u, user: {token: t, exec: null, exec: {command: x}}}]\n";
        assert!(read(repeated).is_err(), "readers differ about which of two fields counts");
        assert!(read("nonsense").is_err() && read("").is_err());
    }
}
