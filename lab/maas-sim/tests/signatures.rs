//! What a signature covers, and what unsigned requests get.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use axum::body::Body;
use base64::Engine as _;
use common::{ADMIN, Answer, lab, raw};
use maas_sim::Simulator;

fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// `fields`: what the client signs in addition to its key.
fn hmac(method: &str, path: &str, nonce: &str, fields: &[(&str, &str)]) -> String {
    let [consumer, token, secret]: [&str; 3] = ADMIN.split(':').collect::<Vec<_>>().try_into().unwrap();
    let now = jiff::Timestamp::now().as_second().to_string();
    let own = [
        ("oauth_consumer_key", consumer),
        ("oauth_token", token),
        ("oauth_signature_method", "HMAC-SHA1"),
        ("oauth_timestamp", &now),
        ("oauth_nonce", nonce),
        ("oauth_version", "1.0"),
    ];
    let mut pairs: Vec<(String, String)> =
        own.iter().chain(fields).map(|(key, value)| (escape(key), escape(value))).collect();
    pairs.sort();
    let joined: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let url = format!("http://maas.example:5240/MAAS/api/2.0/{path}");
    let base = format!("{method}&{}&{}", escape(&url), escape(&joined.join("&")));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, format!("&{secret}").as_bytes());
    let tag = ring::hmac::sign(&key, base.as_bytes());
    let signature = base64::engine::general_purpose::STANDARD.encode(tag);
    let quoted: Vec<String> = own.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
    format!("OAuth {}, oauth_signature=\"{}\"", quoted.join(", "), escape(&signature))
}

async fn request(
    sim: &Simulator,
    method: &str,
    path: &str,
    authorization: Option<String>,
    kind: &str,
    body: &str,
) -> Answer {
    let mut request = http::Request::builder()
        .method(method)
        .uri(format!("/MAAS/api/2.0/{path}"))
        .header("host", "maas.example:5240")
        .header("content-type", kind);
    if let Some(authorization) = authorization {
        request = request.header("authorization", authorization);
    }
    raw(sim, request.body(Body::from(body.to_owned())).unwrap()).await
}

const FORM: &str = "application/x-www-form-urlencoded";

#[tokio::test]
async fn a_signature_covers_the_fields_of_a_posted_form() {
    let sim = lab();
    let signed = hmac("POST", "zones/", "1", &[("name", "az 9"), ("description", "last")]);
    // Of a repeated field the last value counts.
    let body = "name=az+9&description=first&description=last";
    let made = request(&sim, "POST", "zones/", Some(signed), FORM, body).await;
    assert_eq!((made.status, made.json()["name"].as_str()), (200, Some("az 9")), "{}", made.text);
    let unsigned = hmac("POST", "zones/", "2", &[]);
    let refused = request(&sim, "POST", "zones/", Some(unsigned), FORM, "name=az10").await;
    assert_eq!(refused.status, 401, "{}", refused.text);
    // A multipart form is a form, too; JSON is not, and the body of a PUT is not covered.
    let signed = hmac("POST", "zones/", "3", &[("name", "az11")]);
    let body = "--B\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\naz11\r\n--B--\r\n";
    let made = request(&sim, "POST", "zones/", Some(signed), "multipart/form-data; boundary=B", body).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let signed = hmac("POST", "zones/", "4", &[]);
    let made = request(&sim, "POST", "zones/", Some(signed), "application/json", r#"{"name": "az12"}"#).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let signed = hmac("PUT", "zones/az12/", "5", &[]);
    let changed = request(&sim, "PUT", "zones/az12/", Some(signed), FORM, "description=x").await;
    assert_eq!(changed.status, 200, "{}", changed.text);
}

#[tokio::test]
async fn a_signature_covers_the_first_of_each_parameter_of_a_query() {
    let sim = lab();
    let signed = hmac("GET", "machines/", "1", &[("hostname", "bm01")]);
    let path = "machines/?hostname=bm01&hostname=bm02&agent_name=";
    let listed = request(&sim, "GET", path, Some(signed), FORM, "").await;
    assert_eq!(listed.status, 200, "{}", listed.text);
}

#[tokio::test]
async fn who_signs_nothing_is_asked_for_a_signature_where_nothing_is_open() {
    let sim = lab();
    for (method, path, status, words) in [
        ("DELETE", "machines/", 401, "Forbidden"),
        ("POST", "nodes/", 401, "Forbidden"),
        ("GET", "machines/?op=allocate", 400, "Unrecognised signature: method=GET op=allocate"),
        ("GET", "zones/", 401, "Forbidden"),
    ] {
        let answer = request(&sim, method, path, None, FORM, "").await;
        assert_eq!((answer.status, answer.text.as_str()), (status, words), "{method} {path}");
    }
}

#[tokio::test]
async fn json_that_is_none_is_refused_before_anything_is_looked_at() {
    let sim = lab();
    let signed = hmac("POST", "zones/", "1", &[]);
    let answer = request(&sim, "POST", "zones/", Some(signed), "application/json", "{\"name\": ").await;
    assert_eq!((answer.status, answer.text.as_str(), answer.content_type.as_str()), (400, "Bad Request", "text/plain"));
    // Unsigned requests do not get this error.
    let answer = request(&sim, "POST", "zones/", None, "application/json", "{").await;
    assert_eq!((answer.status, answer.text.as_str()), (401, "Forbidden"));
}

#[tokio::test]
async fn an_operation_in_the_query_counts_more_than_one_in_the_path() {
    let sim = lab();
    let signed = hmac("GET", "users/op-nosuch", "1", &[("op", "whoami")]);
    let answer = request(&sim, "GET", "users/op-nosuch?op=whoami", Some(signed), FORM, "").await;
    assert_eq!(answer.json()["username"], "admin");
}
