//! A played MAAS: just the calls that the agent makes, with MAAS's habits, over a real socket. It reaches the LXD of a VM host
//! over TLS with the key that it was given, as MAAS does.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
};
use lxd_client::{Client, Fingerprint, Identity};
use serde_json::{Value, json};

/// The secret part of the API key; it must show up nowhere.
pub(crate) const CANARY: &str = "CANARYapikeysecret";

pub(crate) struct PlayedMaas {
    pub(crate) endpoint: String,
    pub(crate) model: Arc<Mutex<Model>>,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
pub(crate) struct Model {
    pub(crate) version: String,
    pub(crate) hosts: BTreeMap<u64, Host>,
    pub(crate) machines: Vec<Value>,
    /// Every request that is no GET.
    pub(crate) writes: Vec<String>,
    /// Answer everything but `version/` so.
    pub(crate) always: Option<(u16, &'static str)>,
    /// Carry writes out and answer 503.
    pub(crate) lose_answers: bool,
    /// The fingerprint of the LXD behind each address; MAAS itself does not look at it.
    pub(crate) lxds: BTreeMap<String, Fingerprint>,
    /// The machine that a new VM host is matched to.
    pub(crate) matches: Option<String>,
}

#[derive(Clone, Default)]
pub(crate) struct Host {
    pub(crate) fields: BTreeMap<String, String>,
    pub(crate) machine: Option<String>,
    pub(crate) version: String,
}

impl PlayedMaas {
    /// A MAAS that knows this node's machine.
    pub(crate) async fn start(node_ip: &str) -> Self {
        let machine = json!({
            "system_id": "abc123", "hostname": "n1", "ip_addresses": [node_ip], "status": 6,
            "zone": {"id": 1, "name": "az1", "description": ""}, "pool": {"id": 0, "name": "default", "description": ""},
        });
        let model = Arc::new(Mutex::new(Model {
            version: "3.4.10".into(),
            machines: vec![machine],
            matches: Some("abc123".into()),
            ..Model::default()
        }));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}/MAAS", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(model.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { endpoint, model, server }
    }

    pub(crate) fn key() -> String {
        format!("consumer:token:{CANARY}")
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Model) -> T) -> T {
        look(&mut self.model.lock().unwrap())
    }
}

impl Drop for PlayedMaas {
    fn drop(&mut self) {
        self.server.abort();
    }
}

type Answer = (StatusCode, HeaderMap, String);

fn says(status: u16, kind: &str, body: impl Into<String>) -> Answer {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", kind.parse().unwrap());
    (StatusCode::from_u16(status).unwrap(), headers, body.into())
}

fn json(value: &Value) -> Answer {
    says(200, "application/json; charset=utf-8", value.to_string())
}

fn text(status: u16, body: impl Into<String>) -> Answer {
    says(status, "text/plain; charset=utf-8", body)
}

async fn answer(
    State(model): State<Arc<Mutex<Model>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let path = uri.path().strip_prefix("/MAAS/api/2.0/").unwrap_or_default().to_owned();
    let query: Vec<(String, String)> =
        form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    if path == "version/" {
        return json(&json!({"version": model.lock().unwrap().version, "subversion": "", "capabilities": []}));
    }
    let authorization = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !authorization.contains(&format!("%26{CANARY}\"")) {
        // The real one repeats the expected signature, which is the secret.
        return text(401, format!("Invalid signature. Expected signature base string: &{CANARY}"));
    }
    if let Some((status, body)) = model.lock().unwrap().always {
        return text(status, body);
    }
    let form: BTreeMap<String, String> = form_urlencoded::parse(&body).into_owned().collect();
    if method != Method::GET {
        model
            .lock()
            .unwrap()
            .writes
            .push(format!("{method} {path}{}", uri.query().map(|q| format!("?{q}")).unwrap_or_default()));
    }
    let op = query.iter().find(|(key, _)| key == "op").map(|(_, value)| value.as_str());
    let id = path.strip_prefix("vm-hosts/").and_then(|rest| rest.trim_end_matches('/').parse::<u64>().ok());
    let reply = match (&method, path.as_str(), id, op) {
        (&Method::GET, "machines/", ..) => {
            let names: Vec<&String> = query.iter().filter(|(key, _)| key == "hostname").map(|(_, name)| name).collect();
            let model = model.lock().unwrap();
            let found = model.machines.iter().filter(|machine| names.iter().any(|name| machine["hostname"] == ***name));
            json(&Value::Array(found.cloned().collect()))
        }
        (&Method::GET, "vm-hosts/", ..) => {
            let model = model.lock().unwrap();
            json(&Value::Array(model.hosts.iter().map(|(id, host)| shape(*id, host)).collect()))
        }
        (&Method::POST, "vm-hosts/", ..) => create(&model, form).await,
        (&Method::GET, _, Some(id), Some("parameters")) => match model.lock().unwrap().hosts.get(&id) {
            Some(host) => json(&json!(host.fields)),
            None => text(404, "No Pod matches the given query."),
        },
        (&Method::PUT, _, Some(id), _) => {
            let changed = model.lock().unwrap().hosts.get_mut(&id).map(|host| host.fields.extend(form)).is_some();
            if changed {
                let _ = discover(&model, id).await;
                json(&shape(id, &model.lock().unwrap().hosts[&id]))
            } else {
                text(404, "No Pod matches the given query.")
            }
        }
        (&Method::POST, _, Some(id), Some("refresh")) => match discover(&model, id).await {
            Ok(()) => json(&shape(id, &model.lock().unwrap().hosts[&id])),
            Err(why) => text(503, why),
        },
        (&Method::GET, path, ..) if path.starts_with("machines/") => {
            let model = model.lock().unwrap();
            let wanted = path.trim_start_matches("machines/").trim_end_matches('/');
            match model.machines.iter().find(|machine| machine["system_id"] == wanted) {
                Some(machine) => json(machine),
                None => text(404, "No Machine matches the given query."),
            }
        }
        _ => text(404, "Unknown API endpoint"),
    };
    if method != Method::GET && model.lock().unwrap().lose_answers {
        return text(503, "the answer was lost");
    }
    reply
}

async fn create(model: &Arc<Mutex<Model>>, form: BTreeMap<String, String>) -> Answer {
    let id = {
        let mut model = model.lock().unwrap();
        let same = |host: &Host| {
            ["power_address", "project", "certificate"].iter().all(|key| host.fields.get(*key) == form.get(*key))
        };
        if model.hosts.values().any(same) {
            return text(400, "Pod n1 with type and parameters already exist.");
        }
        let id = model.hosts.keys().max().unwrap_or(&0) + 1;
        let machine = model.matches.clone();
        model.hosts.insert(id, Host { fields: form, machine, version: String::new() });
        id
    };
    // From 3.1 on MAAS answers 200 whether or not it reached the host.
    let _ = discover(model, id).await;
    json(&shape(id, &model.lock().unwrap().hosts[&id]))
}

/// Connects to LXD with the stored key, and takes in what it finds.
async fn discover(model: &Arc<Mutex<Model>>, id: u64) -> Result<(), String> {
    let (fields, pin) = {
        let model = model.lock().unwrap();
        let fields = model.hosts.get(&id).ok_or("No Pod matches the given query.")?.fields.clone();
        let pin = model.lxds.get(&fields["power_address"]).copied();
        (fields, pin.ok_or("Failed talking to pod: Pod is unreachable")?)
    };
    let identity = Identity::new(fields["certificate"].clone(), fields["key"].clone().into());
    let lxd = Client::tls(&fields["power_address"], pin, Some(&identity)).map_err(|error| error.to_string())?;
    let server =
        lxd.server_in_project(&fields["project"]).await.map_err(|error| format!("Failed talking to pod: {error}"))?;
    if !server.is_trusted() {
        return Err("Failed talking to pod: Certificate is not trusted and no password was given".into());
    }
    if let Some(host) = model.lock().unwrap().hosts.get_mut(&id) {
        host.version = server.environment.server_version;
    }
    Ok(())
}

fn shape(id: u64, host: &Host) -> Value {
    let reached = !host.version.is_empty();
    json!({
        "id": id, "name": host.fields.get("name"), "type": "lxd", "version": host.version, "tags": [], "architectures": [],
        "capabilities": if reached { vec!["composable"] } else { vec![] },
        "total": {"cores": if reached { 4 } else { 0 }, "memory": if reached { 8192 } else { 0 }, "local_storage": 0},
        "host": {"system_id": host.machine, "__incomplete__": true},
        "zone": {"id": 1, "name": host.fields.get("zone"), "description": ""},
        "pool": {"id": 0, "name": host.fields.get("pool"), "description": ""},
        "storage_pools": [],
    })
}
