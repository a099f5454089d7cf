//! A simulator in process, and a small client.

#![allow(dead_code, unreachable_pub)]

use axum::body::Body;
use http_body_util::BodyExt as _;
use maas_sim::{Config, Simulator, config::Version};
use serde_json::Value;
use tower::ServiceExt as _;

/// Keys of three users.
pub const ADMIN: &str = "ac:at:as";
pub const ALICE: &str = "alc:alt:als";
pub const BOB: &str = "bc:bt:bs";

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub content_type: String,
    pub headers: http::HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

/// A lab: alice and bob, two zones, two pools, a subnet with DHCP, four machines.
pub fn lab() -> Simulator {
    lab_of(Version::default())
}

pub fn lab_of(version: Version) -> Simulator {
    let simulator = Simulator::new(Config { version, ..Config::driven(ADMIN.parse().unwrap()) });
    arrange(
        &simulator,
        r#"[{"user": {"name": "alice", "key": "alc:alt:als"}}, {"user": {"name": "bob", "key": "bc:bt:bs"}},
            {"zone": {"name": "az1"}}, {"pool": {"name": "pool-a"}}, {"domain": {"name": "k8s.example"}},
            {"subnet": {"cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.254", "dns_servers": ["10.0.0.1"], "dhcp": true}},
            {"ip_range": {"start_ip": "10.0.0.200", "end_ip": "10.0.0.250"}},
            {"machine": {"hostname": "bm01", "zone": "az1"}}, {"machine": {"hostname": "bm02"}},
            {"machine": {"hostname": "bm03", "cpu_count": 16, "memory": 65536, "pool": "pool-a"}},
            {"machine": {"hostname": "bm04", "cpu_count": 8}}]"#,
    );
    simulator
}

pub fn arrange(simulator: &Simulator, statements: &str) {
    let statements: Vec<maas_sim::model::statement::Statement> = serde_json::from_str(statements).unwrap();
    simulator.control().arrange(&statements).unwrap();
}

/// A simulated LXD with four cores, registered as host-a.
pub fn with_vm_host(simulator: &Simulator) {
    arrange(
        simulator,
        r#"[{"machine": {"hostname": "host1", "status": "Deployed", "owner": "admin"}},
            {"lxd": {"address": "192.0.2.9:8443", "cores": 4, "memory": 8192, "host": "host1"}},
            {"vm_host": {"name": "host-a", "power_address": "192.0.2.9:8443", "project": "maas"}}]"#,
    );
}

pub fn system_id(simulator: &Simulator, hostname: &str) -> String {
    simulator.control().with_model(|model| model.machine_named(hostname)).unwrap()
}

pub fn authorization(key: &str, nonce: u64) -> String {
    let parts: Vec<&str> = key.split(':').collect();
    let now = jiff::Timestamp::now().as_second();
    format!(
        "OAuth oauth_version=\"1.0\", oauth_signature_method=\"PLAINTEXT\", oauth_consumer_key=\"{}\", \
         oauth_token=\"{}\", oauth_signature=\"%26{}\", oauth_timestamp=\"{now}\", oauth_nonce=\"n{nonce}\"",
        parts[0], parts[1], parts[2]
    )
}

fn nonce() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Sends any request.
pub async fn raw(simulator: &Simulator, request: http::Request<Body>) -> Answer {
    let response = simulator.router().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let content_type = parts.headers.get("content-type").and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    Answer {
        status: parts.status.as_u16(),
        content_type,
        headers: parts.headers,
        text: String::from_utf8_lossy(&bytes).into_owned(),
    }
}

/// Sends a signed request; the path is below /MAAS/api/2.0/.
pub async fn send(simulator: &Simulator, key: &str, method: &str, path: &str, form: &[(&str, &str)]) -> Answer {
    let mut body = String::new();
    for (name, value) in form {
        if !body.is_empty() {
            body.push('&');
        }
        body.extend(form_urlencoded::byte_serialize(name.as_bytes()));
        body.push('=');
        body.extend(form_urlencoded::byte_serialize(value.as_bytes()));
    }
    send_body(simulator, key, method, path, "application/x-www-form-urlencoded", body).await
}

async fn send_body(sim: &Simulator, key: &str, method: &str, path: &str, kind: &str, body: String) -> Answer {
    let request = http::Request::builder()
        .method(method)
        .uri(format!("/MAAS/api/2.0/{path}"))
        .header("host", "maas.example:5240")
        .header("authorization", authorization(key, nonce()))
        .header("content-type", kind)
        .body(Body::from(body))
        .unwrap();
    raw(sim, request).await
}

pub async fn post_json(simulator: &Simulator, key: &str, path: &str, body: &Value) -> Answer {
    send_body(simulator, key, "POST", path, "application/json", body.to_string()).await
}

pub async fn get(simulator: &Simulator, key: &str, path: &str) -> Answer {
    send(simulator, key, "GET", path, &[]).await
}

pub async fn post(simulator: &Simulator, key: &str, path: &str, form: &[(&str, &str)]) -> Answer {
    send(simulator, key, "POST", path, form).await
}
